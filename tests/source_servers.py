"""Real source databases on loopback: MariaDB from the system's package, started by whoever needs it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from frazil_demo.process import free_ports, stop_process

PACKAGES = "mariadb-server-core mariadb-client-core"
"""The Debian packages with the server."""


def program(name: str) -> str:
    """Return the path of a program of MariaDB; skip the test where the package is missing."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    return found or pytest.skip(f"{name} is not there: apt-get install {PACKAGES}")


@contextmanager
def mariadb(folder: Path) -> Iterator[str]:
    """Run an empty server, and give the address of its root user, who has no password."""
    server, setup = program("mariadbd"), program("mariadb-install-db")
    (port,) = free_ports(1)
    user = ["--user=root"] if os.geteuid() == 0 else []
    common = [f"--datadir={folder}/data", *user]
    subprocess.run([setup, *common, "--auth-root-authentication-method=normal", "--skip-test-db"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    address = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder}/socket"]
    order = [server, "--no-defaults", *common, *address]
    with (folder / "log").open("w") as log, subprocess.Popen(order, stdout=log, stderr=log) as child:
        try:
            wait_for(port, child)
            yield f"mariadb://root@127.0.0.1:{port}"
        finally:
            stop_process(child, patience_s=20)


def wait_for(port: int, child: subprocess.Popen) -> None:
    """Wait until a server answers."""
    for _ in range(300):
        assert child.poll() is None, f"the server ended with {child.returncode}"
        with socket.socket() as tried:
            if not tried.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing answers on port {port}")
