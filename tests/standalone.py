"""A standalone cluster of Spark on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

from frazil_demo.process import free_ports


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[tuple[str, list[psutil.Process]]]:
    """Start a cluster of workers with one core each; give its master and its processes, and stop them."""
    (port,), started = free_ports(1), []

    def start(role: str, *arguments: str) -> None:
        command = [f"{Path(pyspark.__file__).parent}/bin/spark-class", f"org.apache.spark.deploy.{role.lower()}.{role}", "--webui-port", "0", *arguments]  # fmt: skip
        log = (folder / f"{role}{len(started)}.log").open("wb")
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
        started.append(psutil.Popen(command, cwd=folder, env=env, stdout=log, stderr=log))

    try:
        start("Master", "--host", "127.0.0.1", "--port", str(port))
        for _ in range(workers):
            start("Worker", "--cores", "1", "--memory", "1g", f"spark://127.0.0.1:{port}")  # fmt: skip
        until = time.monotonic() + 90
        while (folder / "Master0.log").read_text().count("Registering worker") < workers and time.monotonic() < until:
            time.sleep(0.2)
        yield f"spark://127.0.0.1:{port}", started
    finally:
        for process in [child for one in started for child in one.children(recursive=True)] + started:
            process.kill()
        psutil.wait_procs(started, 30)
