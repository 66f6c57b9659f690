"""A Spark standalone cluster for tests: a master and two workers that share no more with the driver than one machine allows.

Each is a JVM of its own in an empty working directory, with an emptied environment. Where the system permits it, workers live in a
mount namespace in which checkout, virtual environment and jar cache are empty. Executors get a Python without packages, and a
folder with what `frazil bundle` packs. All listen on loopback.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import psutil
import pyspark
from packaging.requirements import Requirement

import frazil_old as frazil
from frazil_demo.process import free_ports, stop_process
from frazil_old.cli import bundle
from frazil_old.config import jars

HERE = Path(__file__).parent
CHECKOUT = HERE.parent
WORKERS, PATIENCE_S = 2, 60
MEMORY = "900m"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
HIDING = 'empty=$1; shift; while [ "$1" != -- ]; do mount --bind "$empty" "$1" || exit; shift; done; shift; exec "$@"'


class Cluster:
    """Runs for the duration of the `with` block; `heal` replaces workers that were killed."""

    address = "127.0.0.1"

    def __init__(self, folder: Path):
        self.folder, self.home, self.packages = folder, folder / "spark", folder / "packages"
        self.python = folder / "python/bin/python"
        self.java = Path(os.environ.get("JAVA_HOME") or Path(shutil.which("java")).resolve().parent.parent)
        self.hidden = self._outermost()
        self.url, self.namespace = "", self._namespace()
        self.processes: dict[str, subprocess.Popen] = {}
        self.workers_started = 0

    # --- what executors have, and what they do not see

    def _outermost(self) -> list[Path]:
        """The folders to hide that hold nothing a worker needs, without those inside of another one."""
        needed = [self.folder, self.java, Path(sys.base_prefix)]
        places = {CHECKOUT, Path(sys.prefix), Path(frazil.__file__).parent.parent, jars.CACHE}
        places = {p.resolve() for p in places if p.is_dir()}
        places = {p for p in places if not any(n.resolve().is_relative_to(p) for n in needed)}
        return sorted(p for p in places if not any(p != other and p.is_relative_to(other) for other in places))

    def _namespace(self) -> list[str]:
        """The command that hides these folders from a process; empty where the system does not permit it."""
        empty = self.folder / "empty"
        empty.mkdir(parents=True)
        for way in (["unshare", "-m"], ["unshare", "-r", "-m"]):
            command = [*way, "bash", "-c", HIDING, "bash", str(empty), *map(str, self.hidden), "--"]
            with suppress(OSError):
                if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
                    return command
        return []

    def _prepare(self) -> None:
        spark = Path(pyspark.__file__).parent
        for part in ("bin", "jars", "python/lib"):
            shutil.copytree(spark / part, self.home / part, copy_function=_link)
        venv.create(self.folder / "python", with_pip=False)
        _copy_packages(self.packages)

    # --- processes

    def __enter__(self) -> "Cluster":
        self._prepare()
        (port,) = free_ports(1)
        self.url = f"spark://{self.address}:{port}"
        try:
            self._launch("master", "master.Master", "--port", str(port))
            self.heal()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def heal(self) -> None:
        """Start the workers that do not run; return when the master knows all of them."""
        for name in (f"worker{n}" for n in range(1, WORKERS + 1)):
            if name not in self.processes or self.processes[name].poll() is not None:
                self._launch(name, "worker.Worker", "--cores", "1", "--memory", MEMORY, self.url)
                self.workers_started += 1
        log, until = self.folder / "master/log", time.monotonic() + PATIENCE_S
        while log.read_text(errors="replace").count("Registering worker") < self.workers_started:
            assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)

    def _launch(self, name: str, what: str, *options: str) -> None:
        home = self.folder / name
        for part in ("home", "local", "work"):
            (home / part).mkdir(parents=True, exist_ok=True)
        variables = {
            "PATH": f"{self.java}/bin:/usr/bin:/bin", "JAVA_HOME": str(self.java), "LANG": "C.UTF-8", "HOME": str(home / "home"),
            "SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": self.address, "SPARK_LOCAL_DIRS": str(home / "local"),
            "SPARK_WORKER_DIR": str(home / "work"), "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JVM} -Dspark.master.rest.enabled=false",
        }  # fmt: skip
        command = [f"{self.home}/bin/spark-class", f"org.apache.spark.deploy.{what}", "--host", self.address, "--webui-port", "0", *options]  # fmt: skip
        (home / "empty").mkdir(exist_ok=True)
        with open(home / "log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.namespace, *command], cwd=home / "empty", env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def stop(self) -> None:
        """End all processes by their ids, the executors too; delete the copies of Spark and of the packages."""
        for process in reversed(self.processes.values()):
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(process.pid).children(recursive=True)
                stop_process(process, 10)
                for child in children:
                    with suppress(psutil.NoSuchProcess):
                        child.kill()
        for place in (self.home, self.packages, self.folder / "python"):
            shutil.rmtree(place, ignore_errors=True)

    # --- drivers

    def applications(self) -> int:
        """Return how many applications had executors here."""
        return len({found.name for found in self.folder.glob("worker*/work/app-*")})

    @property
    def spark_options(self) -> dict[str, str]:
        """What a driver's session needs beside the master: memory, and the packages of the executors."""
        return {
            "spark.driver.memory": "1g",
            "spark.executor.memory": MEMORY,
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.executorEnv.PYTHONPATH": str(self.packages),
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.liveUpdate.period": "0",
        }

    def drive(self, params: Path, *argv: str, timeout: float = 580) -> subprocess.CompletedProcess:
        """Run Python in a process of its own, whose sessions are on this cluster with all its workers."""
        self.heal()
        variables = {
            "PYTHONPATH": os.pathsep.join(map(str, (CHECKOUT / "lib", HERE))), "FRAZIL_MASTER": self.url, "FRAZIL_PARAMS": str(params),
            "PYSPARK_PYTHON": str(self.python), "SPARK_LOCAL_IP": self.address,
        }  # fmt: skip
        environment = {**os.environ, **variables}
        return subprocess.run([sys.executable, *argv], env=environment, capture_output=True, text=True, timeout=timeout)


def _link(source: str, to: str) -> None:
    """Give a file a second name, or copy it to another file system."""
    try:
        os.link(os.path.realpath(source), to)
    except OSError:
        shutil.copy2(source, to)


def _copy_packages(to: Path) -> None:
    """Copy what `frazil bundle` packs out of this environment: Frazil, the pinned packages, and what these need."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [Requirement(pin) for pin in bundle._pins(False)]
    while waiting:
        wanted = waiting.pop()
        key = re.sub(r"[-_.]+", "-", wanted.name).lower()
        extras = ("", *wanted.extras)
        if key not in found and (not wanted.marker or any(wanted.marker.evaluate({"extra": e}) for e in extras)):
            found[key] = metadata.distribution(wanted.name)
            waiting += map(Requirement, found[key].requires or ())
    for distribution in found.values():
        for file in distribution.files or ():
            is_packed = "__pycache__" in file.parts or not bundle._LEFT_OUT.match(str(file))
            if ".." not in file.parts and is_packed and (source := Path(distribution.locate_file(file))).is_file():
                (to / file).parent.mkdir(parents=True, exist_ok=True)
                _link(str(source), str(to / file))
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(bundle.__file__).parent.parent, to / "frazil_old", symlinks=True, ignore=without)
