"""Kernels that a script of spark-submit starts work in its JVM, by its settings: papermill in a step of EMR, for one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from frazil_old.config import jars
from frazil_old.config.spark_session import EXTENSIONS
from helpers import World
from lake_reader import lake_rows

pytestmark = pytest.mark.spark
LIB = Path(jars.__file__).parent.parent.parent
KERNEL = """
import json, sys
from frazil_old.config.settings import resolve
from frazil_old.flows import full_load, setup
from frazil_old.results import raise_if_failed
from frazil_old.flows.workbook import Workbook
book = Workbook(resolve(sys.argv[1], {"env": "w"}).settings)
raise_if_failed({"setup": setup.create_tables, "full_load": full_load.run}[sys.argv[1]](book))
context = book.spark.sparkContext
print("KERNEL", json.dumps([context.master, context.applicationId, context.getConf().get("spark.jars.packages", "")]))
"""
SCRIPT = """
import subprocess, sys
for notebook in ("setup", "full_load"):
    subprocess.run([sys.executable, "kernel.py", notebook], check=True)
"""


def test_two_kernels_after_each_other_share_the_session_of_spark_submit(tmp_path, monkeypatch):
    options = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/lake/catalog.db", "warehouse": f"{tmp_path}/lake/files"}
    world = World(tmp_path / "w", "app", options).table("t").load("t", (1, "a"))
    world.whole_environment(monkeypatch)
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "script.py").write_text(SCRIPT)
    line = ".".join(pyspark.__version__.split(".")[:2])
    there = ",".join(jars.fetch([*jars.ICEBERG[line], *jars.DRIVERS], excludes=jars.CARRIED))
    environment = {**os.environ, "PYTHONPATH": str(LIB), "FRAZIL_MASTER": "local[7]", "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}  # fmt: skip
    submit = [
        str(Path(pyspark.__file__).parent / "bin/spark-submit"), "--master", "local[1]", "--jars", there, "--conf", f"spark.sql.extensions={EXTENSIONS}",
        "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false", "script.py",
    ]  # fmt: skip
    done = subprocess.run(submit, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    kernels = [json.loads(said.removeprefix("KERNEL ")) for said in done.stdout.splitlines() if said.startswith("KERNEL")]  # fmt: skip
    assert [k[0] for k in kernels] == ["local[1]"] * 2 and kernels[0] == kernels[1]
    assert kernels[0][2] == ""
    assert lake_rows(options, "app.t") == [(1, "a")]


WITHOUT_JARS = """
from pyspark.sql import SparkSession
from frazil_old.config.settings import Settings
from frazil_old.config.spark_session import EXTENSIONS, SessionError, get_spark
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.extensions", EXTENSIONS).getOrCreate()
lake = {"type": "jdbc", "uri": "jdbc:sqlite:catalog.db", "warehouse": "files"}
try:
    get_spark(Settings(root=".", catalog_options=lake))
except SessionError as e:
    print("SAID", e)
"""


def test_a_session_without_jars_of_iceberg_is_told_which_packages_to_start_with(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(LIB), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", WITHOUT_JARS]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("SAID")]
    assert said == "SAID this Spark session lacks Iceberg's jars", done.stdout
    line = ".".join(pyspark.__version__.split(".")[:2])
    assert f"start it with --packages {jars.ICEBERG[line][0]},{jars.DRIVERS[0]}," in done.stdout
