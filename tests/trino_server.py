"""Trino on a free port of the loopback interface, from the jars of Maven Central that `make test-engines` resolves."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CLASS_PATH = Path(os.environ.get("FRAZIL_TRINO") or HERE.parent / ".trino/classpath")
JAVA_HOMES = ("/usr/lib/jvm/temurin-25-jdk-amd64", "/usr/lib/jvm/java-25-openjdk-amd64")
START_S = 180


def java_25() -> str:
    """Return the program `java` of a JDK 25 or newer; skip the test if there is none."""
    for home in (os.environ.get("TRINO_JAVA_HOME"), *JAVA_HOMES, os.environ.get("JAVA_HOME")):
        java = Path(home or "/nowhere") / "bin/java"
        if java.exists():
            told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
            if (found := re.search(r'version "(\d+)', told)) and int(found[1]) >= 25:
                return str(java)
    pytest.skip("Trino needs a JDK 25: none is here; install one and name it in TRINO_JAVA_HOME")


@contextmanager
def running(folder: Path, **catalogs: dict[str, str]) -> Iterator[int]:
    """Start Trino with these Iceberg catalogs, and yield its port."""
    if not CLASS_PATH.exists():
        pytest.skip(f"no {CLASS_PATH}: make test-engines")
    files = []
    for name, properties in catalogs.items():
        files.append(folder / f"{name}.properties")
        files[-1].write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
    options = ["-Xmx1500m", "--add-modules=jdk.incubator.vector", "-cp", CLASS_PATH.read_text()]
    command = [java_25(), *options, str(HERE / "trino/TrinoServer.java"), *map(str, files)]
    log = folder / "trino.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=folder)
        try:
            yield _port(server, log)
        finally:
            server.stdin.close()  # it then ends by itself
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _port(server: subprocess.Popen, log: Path) -> int:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        if found := re.search(r"READY (\d+)", log.read_text(errors="replace")):
            return int(found[1])
        time.sleep(0.2)
    raise AssertionError(f"Trino did not start: {log.read_text(errors='replace')[-2000:]}")
