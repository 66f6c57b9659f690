"""The archive for executors: bare Pythons can import it, and run a batch's tasks on a cluster; what executors lack is said."""

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from lake_reader import duckdb_rows, lake_rows

HERE = Path(__file__).parent
LIB = HERE.parent / "lib"
OF_SPARK_AND_JUPYTER = {"pyspark", "py4j", "IPython", "nbconvert", "papermill"}


def ran(*argv: str, **variables: str) -> subprocess.CompletedProcess:
    paths = os.pathsep.join(map(str, (LIB, HERE)))
    environment = {**os.environ, "PYTHONPATH": paths, **variables}
    return subprocess.run([sys.executable, *argv], env=environment, capture_output=True, text=True, timeout=580)


def bundled(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess:
    return ran("-m", "frazil_old.cli", "bundle", "--to", str(folder), *options, **variables)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An archive, and what the command printed."""
    folder = tmp_path_factory.mktemp("bundle")
    done = bundled(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = folder.iterdir()
    return file, done.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A Python of this version without packages."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return folder / "bin/python"


# --- the archive


@pytest.mark.slow
def test_the_archive_is_small_and_its_settings_are_shown(made):
    file, said = made
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(rf"frazil-bundle-[\d.]+-cp{version}\.tar\.gz", file.name)
    assert file.stat().st_size <= 150e6
    assert f"{file.stat().st_size / 1e6:.0f} MB" in said and f"PLACE/{file.name}#frazil" in said
    assert all(part in said for part in ("spark.executorEnv.PYTHONPATH ./frazil", "pyarrow-", "packing "))
    with tarfile.open(file) as archive:
        entries = archive.getmembers()
    assert [e.name for e in entries] == sorted(e.name for e in entries)
    assert {(e.mtime, e.uid, e.gid, e.type) for e in entries} == {(0, 0, 0, tarfile.REGTYPE)}
    assert not [e.name for e in entries if e.name.split("/")[0] in ("pyspark", "py4j", "jupyterlab")]


@pytest.mark.slow
def test_a_second_archive_has_the_same_bytes(made, tmp_path):
    file, _ = made
    assert bundled(tmp_path).returncode == 0
    assert (tmp_path / file.name).read_bytes() == file.read_bytes()


EXTRAS_OF_A_DRIVER = ("duckdb", "openlineage", "opentelemetry", "prometheus_client")
"""Packages of optional extras: executors need none of them, and a driver says which one it lacks."""


def third_party() -> set[str]:
    """The packages of others that a module of the library imports anywhere."""
    found = set()
    for module in (LIB / "frazil").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ImportFrom):
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {a.name for a in node.names}
    ours = {*sys.stdlib_module_names, *OF_SPARK_AND_JUPYTER, *EXTRAS_OF_A_DRIVER, "frazil"}
    return {name for name in found if name.split(".")[0] not in ours}


IMPORT_ALL = """
import importlib, json, pkgutil, sys
sys.path.append(sys.argv[1])
import frazil_old as frazil
modules = [m.name for m in pkgutil.walk_packages(frazil.__path__, "frazil_old.") if not m.name.endswith("__main__")]
for name in [*modules, *json.loads(sys.argv[2])]:
    importlib.import_module(name)
import boto3
for service in json.loads(sys.argv[3]):
    boto3.client(service, region_name="eu-central-1")
places = {m.__file__ for m in sys.modules.values() if getattr(m, "__file__", None)}
print(json.dumps([modules, sorted(p for p in places if "site-packages" in p)]))
"""


@pytest.mark.slow
def test_a_bare_python_imports_every_module_and_what_modules_import_later(made, bare, tmp_path):
    with tarfile.open(made[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    deploys = (LIB / "frazil/aws", LIB / "frazil/cli/aws.py")  # from a workstation alone
    jobs = [m for m in (LIB / "frazil").rglob("*.py") if not any(m.is_relative_to(d) for d in deploys)]
    source = "\n".join(m.read_text() for m in jobs)
    services = sorted(set(re.findall(r"""client\(["'](\w+)["']""", source)))
    assert {*services} >= {"kinesis", "s3"}
    told = subprocess.run(
        [bare, "-I", "-S", "-c", IMPORT_ALL, tmp_path, json.dumps(sorted(third_party())), json.dumps(services)],
        env={"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}, capture_output=True, text=True,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr[-2000:]
    modules, elsewhere = json.loads(told.stdout)
    assert {"frazil_old.engine.large_batch", "frazil_old.core.changes", "frazil_old.lake.data_file_writer"} <= set(
        modules
    )
    assert elsewhere == []


# --- errors


def test_an_index_that_cannot_be_reached_is_named(tmp_path):
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_NO_CACHE_DIR": "1"}
    done = bundled(tmp_path, **nowhere)
    assert done.returncode and re.search(r"BundleError: pip cannot fetch.*No matching distribution found for \w+==", done.stderr)  # fmt: skip
    assert "cure: can this machine reach pip's index?" in done.stderr and not list(tmp_path.iterdir())


def test_a_python_without_wheels_is_named(tmp_path):
    done = bundled(tmp_path, "--python", "3.99", PIP_NO_INDEX="1")
    assert done.returncode and re.search("No matching distribution found for .*\n  cure: does --python name", done.stderr)  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_fetched(tmp_path):
    (tmp_path / "file").touch()
    done = bundled(tmp_path / "file")
    assert done.returncode and re.search("BundleError: .* cannot be written: .*\n  cure: .*--to", done.stderr)
    assert "fetching" not in done.stdout


# --- on a cluster


ON_CLUSTER = """
import json, sys, time
from pathlib import Path
from frazil_old.engine import load_files, small_batch
from frazil_old.config import executor_check
from helpers import D, I, U, World

folder, wanted, options = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
load_files.IN_PROCESS = small_batch.MOST_MB = -1  # tasks read everything
executor_check.PATIENCE_S = 3
lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/lake/catalog.db", "warehouse": f"{folder}/lake/warehouse"}
world = World(folder / "world", "shop", lake)
world.given = {"spark_options": {"spark.driver.memory": "1g", **options}}
world.table("t").load("t", *[(i, "loaded") for i in range(2_000)])
book = world.book()
begun = time.monotonic()
book.spark
asked = time.monotonic()
while wanted and not any(wanted in line for line in world.said) and time.monotonic() - asked < 60:
    time.sleep(0.1)
if wanted != "no executor":
    world.loaded()
    world.changes("t", U(1, "changed"), D(2), I(9_999, "new")).merged(lane="merge")
    world.book().spark  # a second workbook of the same session says nothing again
(folder / "said.json").write_text(json.dumps(world.said))
"""


def said_on_cluster(folder: Path, python: Path, wanted: str, **options: str) -> tuple[list[str], dict[str, str]]:
    """Run a load and a batch on one executor; return what was said, and the catalog."""
    variables = {"FRAZIL_MASTER": "local-cluster[1,1,1024]", "PYSPARK_PYTHON": str(python)}
    given = {"spark.executorEnv.PYTHONPATH": "/no/such/folder", **options}
    done = ran("-c", ON_CLUSTER, str(folder), wanted, json.dumps(given), **variables)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    lake = {"uri": f"jdbc:sqlite:{folder}/lake/catalog.db"}
    return json.loads((folder / "said.json").read_text()), lake


ROWS = sorted([(0, "loaded"), (1, "changed"), *[(i, "loaded") for i in range(3, 2_000)], (9_999, "new")], key=repr)


@pytest.mark.spark
def test_what_executors_lack_is_said_once_and_this_process_reads(bare, tmp_path):
    said, lake = said_on_cluster(tmp_path, bare, "cannot import")
    (line,) = [s for s in said if "cannot import" in s]
    assert re.search(r"executors on \S+ cannot import pyarrow, numpy, .*frazil; cure: frazil bundle", line)
    assert any("this process reads its rows" in s for s in said)
    assert lake_rows(lake, "shop.t") == ROWS


@pytest.mark.spark
def test_executors_without_any_python_are_named_at_the_start(tmp_path):
    said, lake = said_on_cluster(tmp_path, Path("/no/such/python"), "cannot run Python")
    assert [s for s in said if "cannot run Python" in s and "/no/such/python" in s and "PYSPARK_PYTHON" in s]
    assert lake_rows(lake, "shop.t") == ROWS


@pytest.mark.spark
def test_a_cluster_without_an_executor_is_named(bare, tmp_path):
    said, _ = said_on_cluster(tmp_path, bare, "no executor", **{"spark.executor.cores": "2"})
    (line,) = [s for s in said if "executor" in s]
    assert re.search(r"no executor has registered for 3 s: .*127\.0\.0\.1; cure: .*spark\.driver\.host", line)


@pytest.mark.spark
@pytest.mark.slow
def test_with_the_archive_tasks_on_a_bare_python_run_a_load_and_a_batch(made, bare, tmp_path):
    archive = {"spark.archives": f"{made[0]}#frazil", "spark.executorEnv.PYTHONPATH": "./frazil"}
    said, lake = said_on_cluster(tmp_path, bare, "", **archive)
    assert not [s for s in said if "executors" in s]
    assert lake_rows(lake, "shop.t") == duckdb_rows(lake, "shop.t") == ROWS
