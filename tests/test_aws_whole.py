"""The whole pipeline on MiniStack: events, queue, state machine, and as its jobs the real entry point with real notebooks.

200 files in four bursts, whose events are doubled, lost, reordered or late. A job is killed in its work, another is
longer than the visibility time of messages, and an execution continues as a new one.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import yaml

import aws_emulator
import table_reader
from asl_harness import run
from aws_emulator import REGION, client
from aws_graph import JOB_FAILED, machine, send, services, waiting
from dms_writer import D, I, U
from frazil_demo.postgres import EmbeddedPostgres
from frazil_old.cli import aws_job
from frazil_old.config import jars
from helpers import World

LIB = Path(jars.__file__).parent.parent.parent
RUNS = "s3://work-bucket/frazil/w/runs"
VISIBILITY_S = 4
SECRETS = {"FRAZIL_SOURCE_PASSWORD": "pl4nted-of-the-source", "option": "pl4nted-of-s3a", "webhook": "pl4nted-in-a-url", "catalog": "pl4nted-of-the-catalog"}  # fmt: skip
pytestmark = [pytest.mark.aws, pytest.mark.spark, pytest.mark.slow]


class Pipeline:
    """A source that writes a burst of files at a look, with its events; and the jobs, as processes of the entry point."""

    def __init__(self, url: str, folder: Path, patch: pytest.MonkeyPatch):
        self.url, self.random = url, random.Random(7)
        self.options = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/lake/catalog.db", "warehouse": f"{folder}/lake/files"}  # fmt: skip
        self.world = World(folder / "workbook", "app", self.options)
        self.expected = {name: dict.fromkeys(range(20), "old") for name in ("t", "u")}
        for name, rows in self.expected.items():
            self.world.table(name).load(name, *rows.items())
        params = self.world.whole_environment(patch)
        told = yaml.safe_load((params / "w.yml").read_text())
        told["common"] |= {"spark_options": {"spark.hadoop.fs.s3a.secret.key": SECRETS["option"]}}
        told["common"]["catalog_options"] |= {"token": SECRETS["catalog"]}
        told["operate"] = {"webhook": f"http://u:{SECRETS['webhook']}@127.0.0.1:9/hook"}
        (params / "w.yml").write_text(yaml.safe_dump(told))
        self.environment = {
            **os.environ, **aws_emulator.variables(url), "PYTHONPATH": str(LIB), "FRAZIL_PARAMS": str(params), "FRAZIL_MASTER": "local[2]",
            "SPARK_LOCAL_IP": "127.0.0.1", "FRAZIL_SOURCE_PASSWORD": SECRETS["FRAZIL_SOURCE_PASSWORD"],
        }  # fmt: skip
        attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": str(VISIBILITY_S)}
        self.queue = (client("sqs", url), client("sqs", url).create_queue(QueueName=f"w{time.time_ns()}.fifo", Attributes=attributes)["QueueUrl"])  # fmt: skip
        self.files = 0
        self.fates: set[str] = set()
        self.jobs: list[tuple[str, int]] = []
        self.held_s = 0.0

    def graph(self, **values) -> dict:
        return machine(Env="w", Runs=RUNS, QueueUrl=self.queue[1], **values)

    # --- the source

    def burst(self, files: int, lost: bool = False) -> None:
        """Write files of both tables. Of their events some are doubled, lost or late; they are sent in any order."""
        events = []
        for _ in range(files):
            self.files += 1
            name = f"20240101-10{self.files // 60:02d}{self.files % 60:02d}000.csv"
            table = self.random.choice(("t", "u"))
            key, rows = self.random.randrange(40), self.expected[table]
            deletes = key in rows and self.random.random() < 0.2
            change = D(key) if deletes else (U if key in rows else I)(key, name)
            self.world.changes(table, change, name=name)
            rows.pop(key) if deletes else rows.update({key: name})
            fate = "lost" if lost else self.random.choice(("once", "twice", "lost", "late"))
            self.fates.add(fate)
            events += {"once": [name], "twice": [name, f"{name} again"], "lost": [], "late": [f"{name} late"]}[fate]
        self.random.shuffle(events)
        send(self.queue, *events)

    def looks(self, *bursts: int):
        """Return the queue's depth at each look, after a burst; a negative one loses all its events."""
        left = list(bursts)

        def look(_) -> dict:
            if left and (files := left.pop(0)):
                self.burst(abs(files), lost=files < 0)
            visible, held = waiting(self.queue)
            return {"Attributes": {"ApproximateNumberOfMessages": str(visible), "ApproximateNumberOfMessagesNotVisible": str(held)}}  # fmt: skip

        return look

    # --- the jobs

    def started(self, arguments: dict) -> subprocess.Popen:
        submit = arguments["JobDriver"]["SparkSubmit"]
        command = [sys.executable, aws_job.__file__, *submit["EntryPointArguments"]]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip

    def job(self, arguments: dict) -> dict:
        """Run a job to its end."""
        process = self.started(arguments)
        told = process.communicate(timeout=400)[0]
        self.jobs.append((arguments["Name"], process.returncode))
        if process.returncode:
            raise JOB_FAILED
        assert "Traceback" not in told, told[-3000:]
        return {"JobRunId": "00j"}

    def killed(self, arguments: dict) -> dict:
        """Kill a job with all its processes as soon as it has committed to a table."""
        before, process = self.commits(), self.started(arguments)
        threading.Thread(target=process.communicate, daemon=True).start()
        until = time.monotonic() + 300
        while self.commits() == before:
            assert process.poll() is None and time.monotonic() < until, "the job ended before it could be killed"
            time.sleep(0.02)
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        for member in family:
            member.kill()
        psutil.wait_procs(family, timeout=20)
        self.jobs.append((arguments["Name"], -9))
        raise JOB_FAILED

    def commits(self) -> int:
        return sum(len(list((self.world.root.parent / f"lake/files/app/{name}/metadata").glob("*.json"))) for name in self.expected)  # fmt: skip

    def longer_than_visible(self, arguments: dict) -> dict:
        """Run a job whose messages are received when it starts, and become visible again while it works."""
        sqs, address = self.queue
        held = sqs.receive_message(QueueUrl=address, MaxNumberOfMessages=10)["Messages"]
        assert held and waiting(self.queue)[1] == len(held)
        began = time.monotonic()
        done = self.job(arguments)
        self.held_s = time.monotonic() - began
        return done

    def changes(self, *ways: str):
        """Return the task that runs one job after the other in these ways, and further ones to their end."""
        left = list(ways)
        return lambda arguments: getattr(self, left.pop(0) if left else "job")(arguments)


@pytest.fixture(scope="module")
def url():
    with aws_emulator.running() as address:
        configuration = {"LocationConstraint": REGION}
        client("s3", address).create_bucket(Bucket="work-bucket", CreateBucketConfiguration=configuration)
        yield address


@pytest.fixture(scope="module")
def lived(url, tmp_path_factory):
    """A pipeline that lived through all of it, in two executions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        here = Pipeline(url, tmp_path_factory.mktemp("whole"), patch)
        tasks = services(Setup=here.job, FullLoad=here.job, Changes=here.changes("killed", "job", "longer_than_visible"), QueueDepth=here.looks(60, 60, -40))  # fmt: skip
        first = run(url, here.graph(MaxPasses="6", SweepEvery="900"), tasks, limit_s=900)
        handed = first.arguments("ContinueAsNew")[0]["Input"] if first.status == "SUCCEEDED" else {}
        tasks = services(Changes=here.job, QueueDepth=here.looks(-40))
        second = run(url, here.graph(MaxPasses="4", SweepEvery="2"), tasks, handed, limit_s=400)
        yield here, first, second


def kept(url: str, place: str = RUNS) -> dict[str, bytes]:
    """The objects that runs left in a folder, by name."""
    s3, prefix = client("s3", url), place.removeprefix("s3://work-bucket/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="work-bucket", Prefix=prefix)
    names = [o["Key"] for page in pages for o in page.get("Contents", ())]
    return {n.removeprefix(f"{prefix}/"): s3.get_object(Bucket="work-bucket", Key=n)["Body"].read() for n in names}


def test_the_tables_equal_the_source_whatever_became_of_events_and_jobs(lived):
    here, first, second = lived
    assert (first.status, second.status) == ("SUCCEEDED", "SUCCEEDED"), (first.cause, second.cause, here.jobs)
    assert here.files == 200 and here.fates == {"once", "twice", "lost", "late"}
    assert {name: dict(table_reader.rows(here.options, f"app.{name}")) for name in here.expected} == here.expected


def test_a_killed_job_and_one_longer_than_the_visibility_time_were_among_the_jobs(lived):
    here, first, second = lived
    codes = [code for name, code in here.jobs if name == "frazil-w-changes"]
    assert codes[0] == -9 and set(codes[1:]) == {0} and len(codes) == 4, here.jobs
    assert here.held_s > VISIBILITY_S
    assert waiting(here.queue) == (0, 0), "each message was deleted by a run that listed later"
    tokens = [arguments["ClientToken"] for arguments in first.arguments("Changes")]
    assert len(set(tokens)) == len(tokens), "a retry starts a new job"


def test_the_execution_continues_as_one_new_one_that_loads_no_more(lived):
    here, first, second = lived
    assert [a["Input"]["loaded"] for a in first.arguments("ContinueAsNew")] == [True]
    assert "FullLoad" not in second.states and second.states.count("Changes") == 1, "a sweep finds files without events"


def test_every_job_that_ended_left_its_run_on_s3(lived):
    here, _, _ = lived
    found = kept(here.url)
    records = [json.loads(text) for name, text in found.items() if name.endswith("/run.json")]
    assert sum(r["outcome"] == "ok" for r in records) == len([code for _, code in here.jobs if code == 0])
    assert [n for n in found if n.endswith("02_cdc_merge.ipynb")] and [n for n in found if n.endswith("00_setup.html")]
    assert all(here.world.root.name not in n for n in found)


def leaks(found: dict[str, bytes]) -> list[str]:
    """The objects that hold a planted secret."""
    return [name for name, text in found.items() if any(secret.encode() in text for secret in SECRETS.values())]


def test_no_run_on_s3_holds_a_secret(lived):
    here, _, _ = lived
    found = kept(here.url)
    assert len(found) > 12 and sum(n.endswith(".ipynb") for n in found) >= 4
    assert b"fs.s3a.secret.key" in b"".join(found.values()), "the parameters are shown, with their values hidden"
    assert leaks(found) == []


def test_a_job_compares_with_the_source_by_a_login_that_only_secrets_manager_holds(url, tmp_path, monkeypatch):
    options = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/lake/catalog.db", "warehouse": f"{tmp_path}/lake/files"}
    world = World(tmp_path / "workbook", "app", options)
    world.table("t").load("t", (1, "a"), (2, "b")).changes("t", U(2, "c"), name="20240101-100000000.csv")
    params = world.whole_environment(monkeypatch)
    told = yaml.safe_load((params / "w.yml").read_text())
    (params / "w.yml").write_text(yaml.safe_dump({**told, "cdc_merge": {"check_source": True}}))
    runs = "s3://work-bucket/frazil/secret/runs"
    with EmbeddedPostgres(tmp_path / "postgres") as postgres:
        with postgres.connect(autocommit=True) as c:
            c.execute("create table public.t (id bigint primary key, v text)")
            c.execute("insert into public.t values (1, 'a'), (2, 'other')")
        login = {"engine": "postgres", "host": "127.0.0.1", "port": postgres.port, "dbname": postgres.database,
                 "username": postgres.user, "password": postgres.password}  # fmt: skip
        name = client("secretsmanager", url).create_secret(Name="w/source", SecretString=json.dumps(login))["ARN"]
        environment = {
            **os.environ, **aws_emulator.variables(url), "PYTHONPATH": str(LIB), "FRAZIL_PARAMS": str(params),
            "FRAZIL_MASTER": "local[2]", "SPARK_LOCAL_IP": "127.0.0.1", "FRAZIL_SOURCE_SECRET": name,
        }  # fmt: skip
        for notebook in ("00_setup", "01_full_load", "02_cdc_merge"):
            command = [sys.executable, aws_job.__file__, "--env", "w", "--runs", runs, "--notebook", notebook]
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
            assert ran.returncode == 0, ran.stdout + ran.stderr
    found = kept(url, runs)
    (record,) = [
        json.loads(text) for file, text in found.items() if "02_cdc_merge" in file and file.endswith("/run.json")
    ]
    assert record["outcome"] == "needs a decision" and "public.t: differs" in record["cause"], record
    assert dict(table_reader.rows(options, "app.t")) == {1: "a", 2: "c"}
    assert postgres.password not in ran.stdout + ran.stderr
    assert [file for file, text in found.items() if postgres.password.encode() in text] == []
