"""The record of a run: `run.json` in its folder, next to the executed notebook, the charts and the log."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frazil.errors import safe
from frazil.results import EXIT_CODES, Results

FOLDER_VARIABLE = "FRAZIL_RUN"
"""The variable by which `frazil run` names the run's folder to the kernel."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass
class RunRecord:
    """A run of a notebook: what it did to each table, and how it ended. It is written when it begins and when it ends."""

    notebook: str
    env: str
    started: str = field(default_factory=_now)
    ended: str = ""
    outcome: str = "running"
    error: str = ""
    tables: list[dict[str, Any]] = field(default_factory=list)

    def end(self, results: Results, error: str = "") -> None:
        """Take over the results; none are ok. `error` is what stopped the notebook before its end, if anything did."""
        self.ended = _now()
        self.outcome = "failed" if error else results.outcome if results else "ok"
        self.error, self.tables = safe(error), [asdict(result) for result in results]

    @property
    def exit_code(self) -> int:
        """The exit code of the run's command."""
        return EXIT_CODES.get(self.outcome, EXIT_CODES["failed"])

    def write(self, folder: str) -> None:
        """Write `run.json` into a folder, which may be on S3."""
        write(folder, "run.json", json.dumps(asdict(self), indent=1, ensure_ascii=False).encode())


def run_folder(runs: str, env: str, notebook: str) -> str:
    """Return the folder of a run: the one that `frazil run` made, else a new name `<runs>/<env>/<notebook>-<start>`."""
    start = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")[:-3]
    return os.environ.get(FOLDER_VARIABLE) or f"{runs}/{env}/{notebook}-{start}"


def write(folder: str, name: str, content: bytes) -> None:
    """Write a file into a folder on disk or on an object store; on disk whole or not at all."""
    if "://" in folder:
        from obstore.store import from_url

        from_url(folder).put(name, content)
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    part = Path(folder, f".{name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(Path(folder, name))


def read(file: Path) -> RunRecord | None:
    """Return the record in a file; None if it is no record, as after a full disk."""
    try:
        return RunRecord(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
