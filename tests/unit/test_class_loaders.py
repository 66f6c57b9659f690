"""Commits, however Iceberg's classes came into the JVM: the class that Janino compiles finds them by the loader of the catalog."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from frazil.settings.spark import EXTENSIONS

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent
SUBMIT = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local[1]", "--conf", f"spark.sql.extensions={EXTENSIONS}", "--conf", "spark.ui.enabled=false"]  # fmt: skip
COMMIT = """
import sys
from pathlib import Path
from unit.iceberg_world import Kept, Lake
w = Kept(Lake(Path(sys.argv[1]), sys.argv[2]), "t", "bigint")
if sys.argv[2] != "livy":  # whose JVM is that of other tests, and has threads that would inherit it
    lang = w.lake.session._jvm.java.lang
    lang.Thread.currentThread().setContextClassLoader(lang.ClassLoader.getSystemClassLoader())
w.apply_random()
of = w.table.handle.getClass()
print("made", w.opened().position.batch, of.getClassLoader().getClass().getSimpleName(), of.getProtectionDomain().getCodeSource().getLocation().getPath())
"""
AS_LIVY = """
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
gateway = launch_gateway()
apache = gateway.jvm.org.apache.spark
there = apache.sql.classic.SparkSession.getDefaultSession().get()
context = SparkContext(gateway=gateway, jsc=apache.api.java.JavaSparkContext(there.sparkContext()))
SparkSession._instantiatedSession = SparkSession(context, there)
"""


@pytest.mark.parametrize("way", ["classpath", "submit", "livy", "older"])
def test_a_commit_is_made_however_iceberg_came_into_the_jvm(lake, tmp_path, way):
    """The last way is `spark.jars`, as in all other tests, with the older release."""
    context = lake.session.sparkContext
    jars = [jar.removeprefix("file://") for jar in context.getConf().get("spark.jars").split(",")]
    by = {"classpath": [*SUBMIT, "--driver-class-path", ":".join(jars)], "submit": [*SUBMIT, "--jars", ",".join(jars)]}
    given = {**os.environ, "PYTHONPATH": f"{HERE.parents[1]}/lib:{HERE.parent}", "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}  # fmt: skip
    if way == "older":
        given["FRAZIL_ICEBERG"] = "1.11.0"
    if way == "livy":
        at = context._gateway.gateway_parameters
        given |= {"PYSPARK_GATEWAY_PORT": str(at.port), "PYSPARK_GATEWAY_SECRET": at.auth_token, "PYSPARK_PIN_THREAD": "false"}  # fmt: skip
    (tmp_path / "work.py").write_text((AS_LIVY if way == "livy" else "") + COMMIT)
    order = [*by.get(way, [sys.executable]), "work.py", str(tmp_path / "l"), way]
    done = subprocess.run(order, cwd=tmp_path, env=given, capture_output=True, text=True)
    assert not done.returncode, (done.stdout + done.stderr)[-3000:]
    made = done.stdout[done.stdout.index("made") :].split()
    assert made[:2] == ["made", "1"] and ("1.11.0.jar" in made[3]) == (way == "older")
    assert made[2] == ("AppClassLoader" if way == "classpath" else "MutableURLClassLoader")
