"""Options for Spark's JVM, in files that only this user can read: every local user can read a command line."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
