"""The entry point of the jobs on EMR: exit codes, what it keeps on S3, and the messages that it deletes."""

import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pyspark
import pytest

import table_reader
from aws_emulator import Queue, client, make_buckets
from frazil_old import cli, exit_codes
from frazil_old.aws.hint_queue import delete_before
from frazil_old.cli import aws_job
from frazil_old.config import jars
from frazil_old.config.spark_session import EXTENSIONS
from helpers import LIB
from world import World, house

pytestmark = pytest.mark.aws

RUNS = "s3://work-bucket/frazil/w/runs"


@pytest.fixture(scope="module")
def url(aws):
    make_buckets(aws, "work-bucket")
    return aws


@pytest.fixture
def queue(url):
    """A queue with a message."""
    made = Queue(url)
    made.send("a file")
    return made


def kept(url: str) -> dict[str, bytes]:
    """The objects in the folder of runs, by name."""
    s3 = client("s3", url)
    found = s3.list_objects_v2(Bucket="work-bucket", Prefix="frazil/w/runs/").get("Contents", [])
    return {o["Key"].removeprefix("frazil/w/runs/"): s3.get_object(Bucket="work-bucket", Key=o["Key"])["Body"].read() for o in found}  # fmt: skip


CHANGES, LOAD = "02_cdc_merge", "01_full_load"


@pytest.mark.parametrize(
    "case",
    [
        (CHANGES, exit_codes.OK, 0, 0), (CHANGES, exit_codes.NOTHING, 0, 0), (CHANGES, exit_codes.SOME_FAILED, 0, 0), (CHANGES, exit_codes.DECISION, 0, 0),
        (CHANGES, exit_codes.SKIPPED, 0, 1), (CHANGES, exit_codes.FAILED, 1, 1), (CHANGES, exit_codes.WRONG, 2, 1), (CHANGES, exit_codes.TIMED_OUT, 5, 1),
        (LOAD, exit_codes.SOME_FAILED, 3, 1), (LOAD, exit_codes.DECISION, 0, 0),
    ],
)  # fmt: skip
def test_a_job_fails_if_a_retry_may_cure_it_and_keeps_its_messages_then(tmp_path, monkeypatch, url, queue, case):
    notebook, outcome, code, left = case
    params = tmp_path / "params"
    params.mkdir()
    monkeypatch.setenv("FRAZIL_PARAMS", str(params))
    name = f"{notebook}-{outcome}"

    def run(argv: list[str]) -> int:
        assert argv == ["run", notebook, "--env", "w"]
        for file in (f"{name}/run.json", f"{name}/out.ipynb", "index/t/segment", "index.html", ".lock"):
            (tmp_path / "runs/w" / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "runs/w" / file).write_text("{}")
        queue.send("came meanwhile")
        return outcome

    monkeypatch.setattr(cli, "main", run)
    words = ["--env", "w", "--runs", RUNS, "--queue", queue.url, "--notebook", notebook, "--JOB_ID", "glue"]
    assert aws_job.main(words) == code
    assert sum(queue.waiting()) == 1 + left, "the message that came meanwhile stays"
    assert {f"{name}/run.json", f"{name}/out.ipynb"} <= set(kept(url))
    assert not [n for n in kept(url) if "index" in n or "lock" in n]


def test_a_run_deletes_what_was_sent_before_it_listed_and_leaves_the_rest_visible(queue):
    queue.send(*(f"old {n}" for n in range(24)))
    time.sleep(0.05)
    listed = int(time.time() * 1000)
    time.sleep(0.05)
    queue.send("new 1", "new 2")
    for deleted in (25, 0):
        assert delete_before(queue.sqs, queue.url, listed) == deleted and queue.waiting() == (2, 0)


def test_a_job_keeps_runs_that_lie_elsewhere_and_knows_the_secret_of_the_source(tmp_path, monkeypatch, url, queue):
    (tmp_path / "params").mkdir()
    (tmp_path / "params/w.yml").write_text(f"common: {{runs: {tmp_path}/elsewhere}}\naws: {{source_secret: arn:x}}")
    monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path / "params"))

    def run(argv: list[str]) -> int:
        (tmp_path / "elsewhere/w/a-run").mkdir(parents=True)
        (tmp_path / "elsewhere/w/a-run/run.json").write_text("{}")
        assert os.environ["FRAZIL_SOURCE_SECRET"] == "arn:x"
        return exit_codes.OK

    monkeypatch.setenv("FRAZIL_SOURCE_SECRET", "")  # it is as it was afterwards
    monkeypatch.delenv("FRAZIL_SOURCE_SECRET")
    monkeypatch.setattr(cli, "main", run)
    assert aws_job.main(["--env", "w", "--runs", RUNS, "--notebook", CHANGES]) == 0
    assert "a-run/run.json" in kept(url)


def test_on_glue_a_job_unpacks_its_archives_for_itself_and_for_its_kernel(tmp_path, monkeypatch, url, queue):
    s3, packed = client("s3", url), tmp_path / "packages.tar.gz"
    (tmp_path / "only_on_glue.py").write_text("HERE = True")
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(tmp_path / "only_on_glue.py", "only_on_glue.py")
    with zipfile.ZipFile(tmp_path / "workbook.zip", "w") as archive:
        archive.writestr("params/w.yml", "common: {}")
    for name in (packed.name, "workbook.zip"):
        s3.upload_file(str(tmp_path / name), "work-bucket", f"archives/{name}")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("FRAZIL_PARAMS", "elsewhere")
    monkeypatch.setenv("PYTHONPATH", "before")

    def run(argv: list[str]) -> int:
        import only_on_glue

        assert only_on_glue.HERE and (Path(os.environ["FRAZIL_PARAMS"]) / "w.yml").read_text() == "common: {}"
        first, second = os.environ["PYTHONPATH"].split(os.pathsep)
        assert (Path(first) / "only_on_glue.py").exists() and second.endswith("/before")
        return exit_codes.OK

    monkeypatch.setattr(cli, "main", run)
    archives = [f"--{n}-archive=s3://work-bucket/archives/{file}" for n, file in (("packages", packed.name), ("workbook", "workbook.zip"))]  # fmt: skip
    assert aws_job.main(["--env", "w", "--runs", RUNS, "--queue", queue.url, "--notebook", CHANGES, *archives]) == 0


@pytest.mark.spark
def test_a_job_in_spark_submit_runs_a_notebook_and_keeps_it_on_s3(tmp_path, monkeypatch, url, queue):
    monkeypatch.delenv("FRAZIL_PARAMS", raising=False)
    options = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/lake/catalog.db", "warehouse": f"{tmp_path}/lake/files"}
    w = World(tmp_path / "workbook", "app", options).table("t")
    w.source.load("t", (1, "a"))
    house().prepare(w)
    line = ".".join(pyspark.__version__.split(".")[:2])
    there = ",".join(jars.fetch([*jars.ICEBERG[line], *jars.DRIVERS], excludes=jars.CARRIED))
    job = tmp_path / "job.py"
    job.write_bytes(Path(aws_job.__file__).read_bytes())
    environment = {**os.environ, "FRAZIL_PARAMS": "workbook/params", "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}  # fmt: skip
    environment |= {"PYTHONPATH": os.path.relpath(LIB, tmp_path), "FRAZIL_MASTER": "local[7]"}
    submit = [
        str(Path(pyspark.__file__).parent / "bin/spark-submit"), "--master", "local[1]", "--jars", there, "--conf", f"spark.sql.extensions={EXTENSIONS}",
        "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false", "job.py", "--env", "w", "--runs", RUNS, "--queue", queue.url, "--notebook",
    ]  # fmt: skip
    for notebook in ("00_setup", "01_full_load"):
        done = subprocess.run([*submit, notebook], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert table_reader.rows(options, "app.t") == [(1, "a")]
    records = {n: json.loads(text) for n, text in kept(url).items() if n.endswith("run.json") and text != b"{}"}
    assert {r["outcome"] for r in records.values()} == {"ok"} and len(records) == 2
    assert [n for n in kept(url) if n.startswith("01_full_load") and n.endswith(".ipynb")]
    assert queue.waiting() == (0, 0)
