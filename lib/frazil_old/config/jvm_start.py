"""Starts or joins Spark's JVM: its options and its output.

Options go through files that only this user can read: every local user can read a command line.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from frazil_old.errors import safe_output

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
"""Spark's launcher puts these on the JVM's command line even if a file holds them."""
_SUBMIT = "PYSPARK_SUBMIT_ARGS"


@contextmanager
def handed_over(conf: dict[str, str]) -> Iterator[None]:
    """Let a JVM that PySpark starts in this block read `conf` from a private file, which is deleted afterwards.

    The user's own PYSPARK_SUBMIT_ARGS, properties file and `spark-defaults.conf` keep the precedence that they have
    with `--conf`.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--properties-file")
    before = os.environ.get(_SUBMIT)
    own, rest = parser.parse_known_args(shlex.split(before or "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="frazil-") as folder:  # mode 0700
        given = dict(conf)
        for key in JAVA_OPTIONS:
            if given.get(key):
                given[key] = "@" + _argument_file(Path(folder) / key, given[key])
        lines = [f"{_escaped(k, key=True)}={_escaped(v)}\n" for k, v in given.items()]
        file = Path(folder) / "spark.properties"
        _write(file, f"{_defaults(own.properties_file)}\n{''.join(lines)}")
        os.environ[_SUBMIT] = shlex.join(["--properties-file", str(file), *rest])
        try:
            yield
        finally:
            os.environ.pop(_SUBMIT)
            if before is not None:
                os.environ[_SUBMIT] = before


def _defaults(own: str | None) -> str:
    """Return the properties that spark-submit would read without our file: it reads only one file."""
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    file = Path(own or os.path.join(folder, "spark-defaults.conf"))
    return file.read_text(encoding="utf-8") if own or file.is_file() else ""


def _argument_file(file: Path, options: str) -> str:
    """Write Java options to a file that `java @file` reads, and return its path, quoted."""
    quoted = (re.sub(r'(["\\])', r"\\\1", option) for option in shlex.split(options))
    _write(file, "".join(f'"{option}"\n' for option in quoted))
    return shlex.quote(str(file))


def _escaped(text: str, key: bool = False) -> str:
    """Escape a text for a Java properties file."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return re.sub(r"([\s:=#!])", r"\\\1", text) if key else re.sub(r"^ ", r"\\ ", text)


def _write(file: Path, text: str) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)


class JvmOutput:
    """Copies a JVM's output to a file, line by line, until the JVM ends."""

    def __init__(self, file: str, source: int):
        self.file, self.lines = file, deque(maxlen=5000)
        with suppress(OSError):
            os.makedirs(os.path.dirname(file), exist_ok=True)
        self.thread = threading.Thread(target=self._copy, args=[source], daemon=True)
        self.thread.start()

    def _copy(self, source: int) -> None:
        with os.fdopen(source, "rb") as printed:
            for line in printed:
                text = safe_output(line.decode("utf-8", "replace"))
                self.lines.append(text)
                with (
                    suppress(OSError),
                    open(self.file, "a", encoding="utf-8") as log,
                ):  # a full disk must not stop Spark
                    log.write(text)

    def text(self, wait_s: float = 5.0) -> str:
        """Return the output of a JVM that has ended."""
        self.thread.join(wait_s)
        return "".join(self.lines)


@contextmanager
def jvm_output_to(file: str) -> Iterator[JvmOutput]:
    """Redirect the log of a JVM that starts in this block to a file, away from the cells' results.

    The JVM inherits file descriptors 1 and 2 for its whole life. Python's own are restored after the block.
    """
    read, write = os.pipe()
    kept = os.dup(1), os.dup(2)
    output = JvmOutput(file, read)
    for number in (1, 2):
        os.dup2(write, number)
    os.close(write)
    try:
        yield output
    finally:
        for saved, number in zip(kept, (1, 2), strict=True):
            os.dup2(saved, number)
            os.close(saved)


def session_there(conf: Callable[[str], dict[str, str]]) -> SparkSession:
    """Return the session of a running JVM, or create its first one. `conf` maps a master to the settings of a session.

    Everything given to spark-submit stays, such as master, jars and sizes. Only missing SQL settings are taken from
    `conf`. The context of a kernel that has ended stays in the JVM, and the next kernel uses it.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()
    jvm, builder = SparkContext._jvm, SparkSession.builder
    there = getattr(getattr(jvm, "org.apache.spark.SparkContext$"), "MODULE$").getActive()
    if there.isDefined():
        context = jvm.JavaSparkContext(there.get())
        SparkContext(gateway=SparkContext._gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
        return builder.getOrCreate()
    submitted = SparkConf()
    for key, value in conf(submitted.get("spark.master", "")).items():
        if key.startswith("spark.sql.") and not submitted.contains(key):
            builder = builder.config(key, value)
    return builder.getOrCreate()


def executor_count(context: SparkContext) -> int:
    """Return how many executors a context has now."""
    return context._jsc.sc().getExecutorMemoryStatus().size() - 1
