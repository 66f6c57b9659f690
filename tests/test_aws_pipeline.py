"""The state machine's graph on MiniStack, and the queue as a hint."""

import json
import random
import subprocess
import time

import pytest

import aws_emulator

from asl_harness import ENGINES, JOB_FAILED, VALUES, Refused, argument_faults, depth, dms, machine, run, services, turns, waiting  # isort: skip  # fmt: skip
from aws_emulator import ACCOUNT, REGION, Queue
from dms_writer import I, U
from frazil_old.aws.engines import spark_options
from frazil_old.aws.hint_queue import delete_before
from frazil_old.config.spark_session import EXTENSIONS

pytestmark = pytest.mark.aws


@pytest.fixture(scope="module")
def url():
    with aws_emulator.running() as address:
        yield address


# --- the gate


def test_the_load_begins_once_dms_has_completed_its_own(url):
    task = turns(dms(40, False, loading=2), dms(100, False), dms(100, loading=1), dms())
    done = run(url, machine(MaxPasses="8"), services(DescribeDmsTask=task))
    assert done.status == "SUCCEEDED" and done.states.count("WaitForLoad") == 3
    assert done.states.index("FullLoad") > done.states.index("Setup") > done.states.index("WaitForLoad")


def test_tables_with_errors_hold_nobody_up_and_are_tried_by_the_next_execution(url):
    done = run(url, machine(MaxPasses="4"), services(DescribeDmsTask=turns(dms(80, False, errored=1))))
    assert "FullLoad" in done.states and done.arguments("ContinueAsNew")[0]["Input"]["loaded"] is False
    done = run(url, machine(MaxPasses="4"), services())
    assert done.arguments("ContinueAsNew")[0]["Input"]["loaded"] is True


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (dms(30, False, Status="failed"), "The DMS task is failed"),
        (dms(30, False, Status="stopped", StopReason="Stop Reason FATAL_ERROR"), "Stop Reason FATAL_ERROR"),
        (Refused("DatabaseMigration.ResourceNotFoundFault", "no such task"), "no such task"),
        ({"ReplicationTasks": [{"Status": "failed"}]}, "The DMS task is failed"),
    ],
)
def test_a_task_that_failed_or_is_unknown_ends_the_execution_with_its_reason(url, answer, words):
    done = run(url, machine(), services(DescribeDmsTask=turns(answer)))
    assert (done.status, done.error) == ("FAILED", "DmsTaskFailed")
    assert words in done.cause and "frazil aws start --env prod" in done.cause


def test_a_task_that_only_copies_changes_and_one_that_nobody_names_are_not_waited_for(url):
    done = run(url, machine(MaxPasses="3"), services(DescribeDmsTask=turns(dms(0, False, MigrationType="cdc"))))
    assert "WaitForLoad" not in done.states and "FullLoad" in done.states
    for arn in ("", f"arn:aws:dms:{REGION}:{ACCOUNT}:replication-config:C"):
        done = run(url, machine(MaxPasses="3", ReplicationTaskArn=arn), services())
        assert "DescribeDmsTask" not in done.states and "FullLoad" in done.states


def test_a_load_that_does_not_end_is_waited_for_by_successors(url):
    done = run(url, machine(MaxPasses="5"), services(DescribeDmsTask=turns(dms(10, False, loading=1))))
    assert done.states[-1] == "ContinueAsNew" and "Setup" not in done.states


# --- the loop


def test_a_job_runs_when_messages_wait_and_at_each_nth_look(url):
    done = run(url, machine(MaxPasses="9"), services(QueueDepth=depth(0, 0, 4, 0, 2, 0, 0)))
    assert done.states.count("Changes") == 2 and done.states[-1] == "ContinueAsNew"
    done = run(url, machine(MaxPasses="14", SweepEvery="5"), services())
    assert done.states.count("Changes") == 2, "a lost message costs time only"


def test_messages_that_are_with_a_job_that_died_count_too(url):
    done = run(url, machine(MaxPasses="4"), services(QueueDepth=turns(waiting(0, 3))))
    assert done.states.count("Changes") > 0


def test_each_retry_has_a_token_of_its_own_and_the_last_failure_is_named(url):
    done = run(url, machine(), services(QueueDepth=depth(3), Changes=turns(JOB_FAILED)))
    tokens = [arguments["ClientToken"] for arguments in done.arguments("Changes")]
    assert (done.status, done.error) == ("FAILED", "ChangesFailed") and "the job failed" in done.cause
    assert len(tokens) == len(set(tokens)) == 4 and all(len(token) <= 64 for token in tokens)


def test_a_load_that_fails_lets_changes_go_on_and_is_tried_by_the_next_execution(url):
    done = run(url, machine(MaxPasses="4"), services(FullLoad=turns(JOB_FAILED)))
    assert done.status == "SUCCEEDED" and done.states.count("QueueDepth") > 0
    assert done.arguments("ContinueAsNew")[0]["Input"]["loaded"] is False


# --- one execution after the other


def test_the_900th_look_starts_one_successor_which_does_not_take_its_predecessor_for_a_rival(url):
    done = run(url, machine(SweepEvery="100000"), services(), limit_s=250)
    assert done.states.count("QueueDepth") == 899 and len(done.arguments("ContinueAsNew")) == 1
    handed = done.arguments("ContinueAsNew")[0]["Input"]
    assert handed == {"loaded": True, "before": done.arn}
    both = turns({"Executions": [{"ExecutionArn": handed["before"]}]})
    after = run(url, machine(MaxPasses="3"), services(ListExecutions=both), handed)
    assert "QueueDepth" in after.states and not {"DescribeDmsTask", "FullLoad", "AnotherExecutionRuns"} & {
        *after.states
    }


def test_a_repeated_start_of_the_successor_has_the_same_name(url):
    start = turns(Refused("States.Timeout"), Refused("States.Timeout"), {"ExecutionArn": "new"})
    done = run(url, machine(MaxPasses="3"), services(ContinueAsNew=start))
    names = {arguments["Name"] for arguments in done.arguments("ContinueAsNew")}
    assert len(done.arguments("ContinueAsNew")) == 3 and len(names) == 1 and done.status == "SUCCEEDED"


def test_a_second_execution_gives_way(url):
    done = run(url, machine(), services(ListExecutions=turns({"Executions": [{"ExecutionArn": "another"}]})))
    assert done.status == "SUCCEEDED" and done.states[-1] == "AnotherExecutionRuns" and not done.arguments("Changes")


# --- arguments and structure


@pytest.mark.parametrize("engine", ENGINES)
def test_the_arguments_are_those_of_the_services(url, engine):
    done = run(url, machine(engine, MaxPasses="4"), services(QueueDepth=depth(1)))
    resources = {n: s["Resource"] for n, s in machine(engine)["States"].items() if s["Type"] == "Task"}
    assert {state for state, _ in done.calls} == set(resources)
    assert [f for state, arguments in done.calls if (f := argument_faults(resources[state], arguments))] == []


def given(engine: str, arguments: dict) -> dict:
    """The arguments that the entry point gets."""
    match engine:
        case "glue":
            return arguments["Arguments"]
        case "emr-steps":
            args = arguments["Step"]["HadoopJarStep"]["Args"]
            given = args[args.index(VALUES["JobFile"]) + 1 :]
        case _:
            given = arguments["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
    return dict(zip(given[::2], given[1::2], strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_runs_the_same_entry_point_with_the_same_arguments(url, engine):
    done = run(url, machine(engine, MaxPasses="4"), services(QueueDepth=depth(1)))
    wanted = {"--env": "prod", "--runs": "s3://b/runs"}
    notebooks = {"Setup": "00_setup", "FullLoad": "01_full_load", "Changes": "02_cdc_merge"}
    for state, notebook in notebooks.items():
        queue = {"--queue": VALUES["QueueUrl"]} if state == "Changes" else {}
        assert given(engine, done.arguments(state)[0]) == {**wanted, **queue, "--notebook": notebook}
    load = done.arguments("FullLoad")[0]
    match engine:
        case "glue":
            assert (load["NumberOfWorkers"], done.arguments("Changes")[0]["NumberOfWorkers"]) == (4, 2)
        case "emr-steps":
            command = "spark-submit --deploy-mode cluster --conf a=b --conf c=d s3://b/job.py"
            assert load["Step"]["HadoopJarStep"]["Args"][:8] == command.split()
            assert machine(engine)["States"]["FullLoad"]["TimeoutSeconds"] == 720 * 60


@pytest.mark.parametrize("engine", ENGINES)
def test_the_shared_options_of_spark_name_archives_extensions_and_python(engine):
    options = spark_options(engine, {"driver": "s3://b/d.tar.gz", "workbook": "s3://b/w.zip"})
    told = options.removeprefix("--conf ").split(" --conf ")
    conf = dict(entry.split("=", 1) for entry in told)
    archives = "spark.yarn.dist.archives" if engine == "emr-steps" else "spark.archives"
    assert conf[archives] == "s3://b/d.tar.gz#frazil,s3://b/w.zip#workbook"
    assert conf["spark.sql.extensions"] == EXTENSIONS and conf["spark.executorEnv.PYTHONPATH"] == "./frazil"
    driver = [name for name in conf if name.endswith(".FRAZIL_PARAMS")]
    wanted = {"emr-serverless": ["spark.emr-serverless.driverEnv.FRAZIL_PARAMS"], "emr-steps": ["spark.yarn.appMasterEnv.FRAZIL_PARAMS"], "glue": []}  # fmt: skip
    assert driver == wanted[engine]
    assert options.startswith("--conf ") is (engine != "glue"), "Glue's parameter is the first --conf itself"


@pytest.mark.parametrize("engine", ENGINES)
def test_statelint_accepts_the_state_machine(tmp_path, engine):
    file = tmp_path / "machine.json"
    text = json.dumps(machine(engine)).replace('"{% 30 %}"', "30").replace("2.0", "2.5").replace("3.0", "3.5")
    file.write_text(text)  # statelint refuses two forms that AWS takes: computed seconds, whole back-off rates
    ran = subprocess.run([aws_emulator.tool("statelint"), str(file)], capture_output=True, text=True)
    assert (ran.stdout + ran.stderr).strip() == ""


# --- the queue as a hint


@pytest.fixture
def queue(url):
    return Queue(url, VisibilityTimeout="1")


def now_ms() -> int:
    time.sleep(0.05)
    moment = int(time.time() * 1000)
    time.sleep(0.05)
    return moment


def test_a_run_deletes_what_was_sent_before_it_listed_and_leaves_the_rest_visible(queue):
    queue.send(*(f"old {n}" for n in range(25)))
    listed = now_ms()
    queue.send("new 1", "new 2")
    for deleted in (25, 0):
        assert delete_before(queue.sqs, queue.url, listed) == deleted and queue.waiting() == (2, 0)


def test_messages_of_a_run_that_died_come_back(queue):
    queue.send("a", "b")
    assert queue.receive() and queue.waiting() == (0, 2)
    time.sleep(1.2)  # the visibility time
    assert delete_before(queue.sqs, queue.url, now_ms()) == 2 and queue.waiting() == (0, 0)


class Life:
    """A source that writes a file at each look, and whose events get lost, doubled or late; jobs that may die."""

    def __init__(self, world, queue, files: int):
        self.world, self.queue, self.random = world, queue, random.Random(7)
        self.files = [f"20240101-10{n:02d}00000.csv" for n in range(files)]
        self.expected = dict.fromkeys(range(5), "old")
        self.late: list[str] = []
        self.fates: set[str] = set()
        self.died = 0
        world.table("t").load("t", *self.expected.items())

    def choose(self, *fates: str) -> str:
        fate = self.random.choice(fates)
        self.fates.add(fate)
        return fate

    def look(self, _) -> dict:
        if self.files:
            name, key = self.files.pop(0), self.random.randrange(8)
            change = U if key in self.expected else I
            self.world.changes("t", change(key, name), name=name)
            self.expected[key] = name
            match self.choose("once", "twice", "lost", "late"):
                case "once":
                    self.queue.send(name)
                case "twice":
                    self.queue.send(name, f"{name} again")
                case "late":
                    self.late.append(name)
            if len(self.late) > 2:
                self.queue.send(*(f"{name} late" for name in reversed(self.late)))
                self.late = []
        return waiting(*self.queue.waiting())

    def job(self, _) -> dict:
        listed = int(time.time() * 1000)
        fates = ("well", "well", "dies before", "dies after", "dies with messages")
        fate = self.choose(*fates) if self.died < 3 else "well"  # the fourth failure in turn ends an execution
        self.died = 0 if fate == "well" else self.died + 1
        if fate == "dies before":
            raise JOB_FAILED
        done = self.world.merge()["t"]
        assert not done.failed, done.note
        if fate == "dies with messages":
            self.queue.receive(3)
        if fate != "well":
            raise JOB_FAILED
        delete_before(self.queue.sqs, self.queue.url, listed)
        return {"JobRunId": "00j"}


@pytest.mark.spark
def test_whatever_becomes_of_events_and_jobs_the_table_ends_as_the_source(url, queue, world):
    life = Life(world, queue, files=30)
    flows = services(QueueDepth=life.look, Changes=life.job, Setup=lambda _: [*world.setup()], FullLoad=lambda _: [*world.full_load()])  # fmt: skip
    first = run(url, machine(MaxPasses="35", SweepEvery="4"), flows, limit_s=250)
    assert (first.status, life.files) == ("SUCCEEDED", []), first.cause
    handed = first.arguments("ContinueAsNew")[0]["Input"]
    second = run(url, machine(MaxPasses="9", SweepEvery="4"), flows, handed, limit_s=100)
    assert second.status == "SUCCEEDED" and "FullLoad" not in second.states
    assert life.fates == {"once", "twice", "lost", "late", "well", "dies before", "dies after", "dies with messages"}
    assert dict(world.rows("t")) == life.expected
    assert world.merge()["t"].status == "unchanged", "the pipeline's own jobs applied everything"
