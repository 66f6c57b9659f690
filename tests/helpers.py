"""Helpers of tests that open the library themselves."""

import os
import subprocess
import sys
from pathlib import Path

from dms_writer import columns_of

LIB = Path(__file__).parent.parent / "lib"


def spec_of(source: str, *columns: str, key="id", target: str = "") -> dict:
    """Return a spec as its YAML would hold it; columns are written `name TYPE`."""
    keys = [key] if isinstance(key, str) else list(key)
    return {"source": source, "target": target or source, "key": keys, "columns": columns_of(*columns)}


def run_python(code: str, folder: Path, *words: str, **variables: str) -> str:
    """Run code in a process of its own that finds the library, and return what it prints."""
    own = {"PYTHONPATH": str(LIB), "FRAZIL_MASTER": "local[1]"}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **own, **variables}, capture_output=True, text=True, timeout=280)  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def source_is(postgres, monkeypatch) -> None:
    """Let the environment say how the source database is reached."""
    for name, value in (("URL", postgres.jdbc_url), ("USER", postgres.user), ("PASSWORD", postgres.password)):
        monkeypatch.setenv(f"FRAZIL_SOURCE_{name}", value)
