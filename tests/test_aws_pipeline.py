"""The state machine's graph on MiniStack, the queue as a hint, and what the roles allow."""

import json
import random
import re
import subprocess
import time

import boto3
import pytest

import aws_definition
import aws_emulator
from asl_harness import Ended, Refused, argument_faults, events_of, run
from aws_emulator import ACCOUNT, REGION, client
from aws_graph import ENGINES, JOB_FAILED, TASK, VALUES, depth, dms, machine, send, services, turns, waiting
from dms_writer import I, U
from frazil_old.aws import stack_template
from frazil_old.aws.deployment_parameters import Deployment, Place
from frazil_old.aws.engines import spark_options
from frazil_old.aws.hint_queue import delete_before
from frazil_old.config.settings import AwsSettings
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
    lost = turns({"Attributes": {"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "3"}})
    assert run(url, machine(MaxPasses="4"), services(QueueDepth=lost)).states.count("Changes") > 0


def test_each_retry_has_a_token_of_its_own_and_the_last_failure_is_named(url):
    done = run(url, machine(), services(QueueDepth=depth(3), Changes=turns(JOB_FAILED)))
    tokens = [arguments["ClientToken"] for arguments in done.arguments("Changes")]
    assert (done.status, done.error) == ("FAILED", "ChangesFailed") and "the job failed" in done.cause
    assert len(tokens) == len(set(tokens)) == 4 and all(len(token) <= 64 for token in tokens)


def test_a_retry_that_succeeds_goes_on(url):
    job = turns(JOB_FAILED, {"JobRunId": "00j"})
    done = run(url, machine(MaxPasses="4"), services(QueueDepth=depth(1), Changes=job))
    assert done.status == "SUCCEEDED" and len(done.arguments("Changes")) == 3


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


def test_the_history_stays_below_what_aws_allows():
    busiest = ["QueueDepth", "IsWorkWaiting", "Changes"] * 900
    assert events_of(machine(), busiest, retries=3 * 900) < 25_000
    assert events_of(machine(), busiest[:3] * 1000, retries=3 * 1000) > 25_000, "so 900 is the limit"


# --- arguments and structure


@pytest.mark.parametrize("engine", ENGINES)
def test_the_arguments_are_those_of_the_services(url, engine):
    done: Ended = run(url, machine(engine, MaxPasses="4"), services(QueueDepth=depth(1)))
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


@pytest.mark.parametrize(
    ("engine", "right", "wrong"),
    [
        ("glue", '"JobName"', '"Job"'), ("glue", '"Arguments": {"--env"', '"Argument": {"--env"'), ("emr-steps", '"ClusterId"', '"Cluster"'),
        ("emr-steps", '"HadoopJarStep"', '"JarStep"'), ("emr-steps", '"ActionOnFailure"', '"OnFailure"'), ("emr-steps", "addStep", "addSteps"),
    ],
)  # fmt: skip
def test_planted_faults_in_arguments_of_other_engines_are_found(engine, right, wrong):
    state = machine(engine)["States"]["Changes"]
    text = json.dumps({"Resource": state["Resource"], "Arguments": state["Arguments"]})
    text = re.sub(r'"\{% (\$append|2).*? %\}"', lambda m: "2" if m[1] == "2" else "[]", text)  # what JSONata makes
    assert right in text
    assert argument_faults(*json.loads(text).values()) == ""
    assert argument_faults(*json.loads(text.replace(right, wrong, 1)).values())


@pytest.mark.parametrize(
    ("state", "right", "wrong"),
    [
        ("Changes", "startJobRun.sync", "startJobRun.snc"), ("Changes", "startJobRun", "startJob"), ("Changes", '"ApplicationId"', '"ApplicationID"'),
        ("Changes", '"EntryPointArguments": [', '"EntryPointArguments": "x", "Other": ['), ("DescribeDmsTask", '"Values"', '"Value"'),
        ("QueueDepth", '"QueueUrl"', '"Queue"'), ("ContinueAsNew", '"StateMachineArn"', '"StateMachine"'), ("QueueDepth", '"AttributeNames"', '"Attributes"'),
    ],
)  # fmt: skip
def test_planted_faults_in_arguments_are_found(state, right, wrong):
    text = json.dumps(machine()["States"][state])
    assert right in text
    task = json.loads(text.replace(right, wrong, 1))
    assert argument_faults(task["Resource"], task["Arguments"])


def _statelint(machine: dict, folder) -> str:
    file = folder / "machine.json"
    text = json.dumps(machine).replace('"{% 30 %}"', "30").replace("2.0", "2.5").replace("3.0", "3.5")
    file.write_text(text)  # statelint refuses two forms that AWS takes: computed seconds, whole back-off rates
    ran = subprocess.run([aws_emulator.tool("statelint"), str(file)], capture_output=True, text=True)
    return (ran.stdout + ran.stderr).strip()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", ["none", "no such state", "no type", "no choices", "unreachable"])
def test_statelint_and_the_check_find_planted_faults(tmp_path, engine, fault):
    graph = machine(engine)
    states = graph["States"]
    if fault == "no such state":
        states["Setup"]["Next"] = "FulLoad"
    if fault == "no type":
        del states["WaitForLoad"]["Type"]
    if fault == "no choices":
        del states["IsAlone"]["Choices"]
    if fault == "unreachable":
        states["Changes"]["Catch"][0]["Next"] = "DmsTaskFailed"
    found = _statelint(graph, tmp_path)
    assert bool(found) is (fault != "none"), found
    if fault in ("no such state", "unreachable"):
        assert aws_definition._graph_problems(graph)


def test_the_check_finds_what_template_and_machine_lack(monkeypatch):
    place = Place("bucket", "folder")
    for engine in ENGINES:
        each = Deployment(AwsSettings(env="prod", region=REGION, engine=engine), place, place, place, ("shop", "ops"))
        assert aws_definition.problems(each, each.parameters(ACCOUNT, "aws", dict.fromkeys(("driver", "workbook", "job"), "s3://b/x"))) == []  # fmt: skip
    here = Deployment(AwsSettings(env="prod", region=REGION), place, place, place, ("shop", "ops"))
    archives = dict.fromkeys(("driver", "workbook", "job"), "s3://b/x")
    given = here.parameters(ACCOUNT, "aws", archives)
    assert aws_definition.problems(here, given) == []
    assert aws_definition.problems(here, {**given, "Enw": "x"}) == ["the template has no parameter Enw"]
    assert aws_definition.problems(here, {**given, "Env": ""}) == ["the parameter Env of the template has no value"]
    whole = stack_template.template
    monkeypatch.setattr(
        stack_template, "template", lambda engine: whole(engine).replace("!Ref CatalogArns", "!Ref CatalogArn")
    )
    assert aws_definition.problems(here, given) == ["the template refers to CatalogArn, which it lacks"]
    monkeypatch.setattr(stack_template, "template", lambda engine: whole(engine).replace("        Runs: !Sub", "        Rans: !Sub"))  # fmt: skip
    assert aws_definition.problems(here, given) == ["the state machine has a placeholder Runs without a value"]


# --- the queue as a hint


@pytest.fixture
def queue(url):
    """A FIFO queue as the template makes it, with a short visibility time."""
    sqs = client("sqs", url)
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": "1"}
    address = sqs.create_queue(QueueName=f"q{time.time_ns()}.fifo", Attributes=attributes)["QueueUrl"]
    return sqs, address


def now_ms() -> int:
    time.sleep(0.05)
    moment = int(time.time() * 1000)
    time.sleep(0.05)
    return moment


def test_a_run_deletes_what_was_sent_before_it_listed_and_leaves_the_rest_visible(queue):
    send(queue, *(f"old {n}" for n in range(25)))
    listed = now_ms()
    send(queue, "new 1", "new 2")
    assert delete_before(*queue, listed) == 25 and waiting(queue) == (2, 0)
    assert delete_before(*queue, listed) == 0 and waiting(queue) == (2, 0)


def test_a_repeated_event_is_one_message(queue):
    send(queue, '{"key": "a", "etag": "1"}', '{"key": "a", "etag": "1"}')
    assert waiting(queue) == (1, 0)


def test_messages_of_a_run_that_died_come_back(queue):
    send(queue, "a", "b")
    assert queue[0].receive_message(QueueUrl=queue[1], MaxNumberOfMessages=10)["Messages"]
    assert waiting(queue) == (0, 2)
    time.sleep(1.2)  # the visibility time
    assert delete_before(*queue, now_ms()) == 2 and waiting(queue) == (0, 0)


def test_expired_and_lost_messages_cost_nothing_but_a_later_start(queue):
    assert delete_before(*queue, now_ms()) == 0
    send(queue, "of a file that was applied long ago")
    assert delete_before(*queue, now_ms()) == 1


def test_one_run_deletes_a_limited_number(queue):
    send(queue, *(f"m {n}" for n in range(30)))
    assert delete_before(*queue, now_ms(), most=20) == 20 and waiting(queue)[0] == 10


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
                    send(self.queue, name)
                case "twice":
                    send(self.queue, name, f"{name} again")
                case "late":
                    self.late.append(name)
            if len(self.late) > 2:
                send(self.queue, *(f"{name} late" for name in reversed(self.late)))
                self.late = []
        visible, held = waiting(self.queue)
        return {"Attributes": {"ApproximateNumberOfMessages": str(visible), "ApproximateNumberOfMessagesNotVisible": str(held)}}  # fmt: skip

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
            self.queue[0].receive_message(QueueUrl=self.queue[1], MaxNumberOfMessages=3)
        if fate != "well":
            raise JOB_FAILED
        delete_before(*self.queue, listed)
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


# --- what the job's role may do

ALLOWED = [
    ("s3", "list_objects_v2", {"Bucket": "src-bucket", "Prefix": "dms/"}, True), ("s3", "list_objects_v2", {"Bucket": "src-bucket", "Prefix": "other/"}, False),
    ("s3", "get_object", {"Bucket": "src-bucket", "Key": "dms/a"}, True), ("s3", "put_object", {"Bucket": "src-bucket", "Key": "dms/b", "Body": b""}, False),
    ("s3", "delete_object", {"Bucket": "src-bucket", "Key": "dms/a"}, False), ("s3", "put_object", {"Bucket": "lake-bucket", "Key": "lake/a", "Body": b""}, True),
    ("s3", "delete_object", {"Bucket": "lake-bucket", "Key": "lake/a"}, True), ("s3", "put_object", {"Bucket": "lake-bucket", "Key": "else/a", "Body": b""}, False),
    ("s3", "put_object", {"Bucket": "art-bucket", "Key": "frazil/prod/runs/a", "Body": b""}, True), ("s3", "put_object", {"Bucket": "art-bucket", "Key": "frazil/prod/archives/a", "Body": b""}, False),
    ("glue", "create_table", {"DatabaseName": "shop", "TableInput": {"Name": "t"}}, True), ("glue", "create_table", {"DatabaseName": "other", "TableInput": {"Name": "t"}}, False),
    ("glue", "delete_table", {"DatabaseName": "shop", "Name": "t"}, False), ("sqs", "receive_message", {}, True),
    ("sqs", "send_message", {"MessageBody": "x", "MessageGroupId": "g"}, False), ("sqs", "purge_queue", {}, False), ("secretsmanager", "list_secrets", {}, False),
]  # fmt: skip


class Job:
    """A user with the policy of the jobs' role, whose trust names a service that MiniStack does not have."""

    def __init__(self, url: str, deployment: Deployment):
        given = deployment.parameters(ACCOUNT, "aws", dict.fromkeys(("driver", "workbook", "job"), "s3://b/x"))
        cloud, self.iam, self.url = client("cloudformation", url), client("iam", url), url
        pairs = [{"ParameterKey": k, "ParameterValue": v} for k, v in given.items()]
        cloud.create_stack(StackName="frazil-prod", TemplateBody=stack_template.template(deployment.settings.engine), Parameters=pairs, Capabilities=["CAPABILITY_IAM"])  # fmt: skip
        while (stack := cloud.describe_stacks(StackName="frazil-prod")["Stacks"][0])["StackStatus"].endswith("PROGRESS"):  # fmt: skip
            time.sleep(0.2)
        out = {o["OutputKey"]: o["OutputValue"] for o in stack["Outputs"]}
        self.queue = out["Queue"].replace("localhost", "127.0.0.1")
        self.policy = self.iam.get_role_policy(RoleName=out["JobRole"], PolicyName="frazil-prod-job")["PolicyDocument"]  # fmt: skip
        self.iam.create_user(UserName="job")
        self.key = self.iam.create_access_key(UserName="job")["AccessKey"]

    def may(self, policy: dict, service: str, operation: str, arguments: dict) -> bool:
        self.iam.put_user_policy(UserName="job", PolicyName="job", PolicyDocument=json.dumps(policy))
        keys = {"aws_access_key_id": self.key["AccessKeyId"], "aws_secret_access_key": self.key["SecretAccessKey"]}
        as_job = boto3.client(service, endpoint_url=self.url, region_name=REGION, **keys)
        own = {"QueueUrl": self.queue} if service == "sqs" else {}
        try:
            getattr(as_job, operation)(**arguments, **own)
            return True
        except as_job.exceptions.ClientError as error:
            return not any(w in str(error) for w in ("AccessDenied", "not authorized", "Forbidden"))


@pytest.fixture(scope="module")
def job():
    settings = AwsSettings(env="prod", region=REGION, application="00fabc0123456789", replication_task=TASK)
    places = (Place("src-bucket", "dms"), Place("lake-bucket", "lake"), Place("art-bucket", "frazil/prod"))
    with aws_emulator.running(AUTH="true") as url:
        for place in places:
            client("s3", url).create_bucket(Bucket=place.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})  # fmt: skip
        client("s3", url).put_object(Bucket="src-bucket", Key="dms/a", Body=b"")
        for database in ("shop", "other"):
            client("glue", url).create_database(DatabaseInput={"Name": database})
        yield Job(url, Deployment(settings, *places, ("shop", "ops")))


def test_the_role_of_the_jobs_allows_what_they_do_and_no_more(job):
    wrong = [call for *call, allowed in ALLOWED if job.may(job.policy, *call) is not allowed]
    assert wrong == []


LAKE, TABLE = {"Bucket": "lake-bucket", "Key": "lake/x"}, {"DatabaseName": "shop"}
CALLS = {
    ("ListSource", "s3:ListBucket"): ("list_objects_v2", {"Bucket": "src-bucket", "Prefix": "dms/"}), ("ReadSource", "s3:GetObject"): ("get_object", {"Bucket": "src-bucket", "Key": "dms/a"}),
    ("ListLake", "s3:ListBucket"): ("list_objects_v2", {"Bucket": "lake-bucket", "Prefix": "lake/"}), ("WriteLake", "s3:GetObject"): ("get_object", LAKE),
    ("WriteLake", "s3:PutObject"): ("put_object", LAKE), ("WriteLake", "s3:DeleteObject"): ("delete_object", LAKE),
    ("WriteLake", "s3:AbortMultipartUpload"): ("abort_multipart_upload", {**LAKE, "UploadId": "x"}),
    ("ReadArchives", "s3:GetObject"): ("get_object", {"Bucket": "art-bucket", "Key": "frazil/prod/archives/a"}),
    ("WriteRuns", "s3:PutObject"): ("put_object", {"Bucket": "art-bucket", "Key": "frazil/prod/runs/a"}), ("Catalog", "glue:GetDatabases"): ("get_databases", {}), ("Catalog", "glue:CreateDatabase"): ("create_database", {"DatabaseInput": {"Name": "ops"}}),
    ("Catalog", "glue:GetTable"): ("get_table", {**TABLE, "Name": "u"}), ("Catalog", "glue:GetTables"): ("get_tables", TABLE),
    ("Catalog", "glue:CreateTable"): ("create_table", {**TABLE, "TableInput": {"Name": "u"}}), ("Catalog", "glue:UpdateTable"): ("update_table", {**TABLE, "TableInput": {"Name": "u"}}),
    ("Queue", "sqs:ReceiveMessage"): ("receive_message", {}), ("Queue", "sqs:DeleteMessage"): ("delete_message", {"ReceiptHandle": "x"}),
    ("Queue", "sqs:ChangeMessageVisibility"): ("change_message_visibility", {"ReceiptHandle": "x", "VisibilityTimeout": 0}),
}  # fmt: skip
"""A call for each action of the policy, by statement."""
UNSEEN = {("Catalog", "glue:GetDatabase")}
"""MiniStack takes the name in this call for a table's. It has no DMS."""


def actions(statement: dict) -> list[str]:
    return [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]


def test_a_call_is_named_for_each_action(job):
    policy = {(s["Sid"], action) for s in job.policy["Statement"] for action in actions(s)}
    assert {key for key in policy if not key[0].startswith("Dms")} == {*CALLS, *UNSEEN}


@pytest.mark.parametrize("call", CALLS, ids="-".join)
def test_without_any_one_action_its_call_is_denied(job, call):
    sid, action = call
    less = [{**s, "Action": [a for a in actions(s) if (s["Sid"], a) != call]} for s in job.policy["Statement"]]
    without = {**job.policy, "Statement": [s for s in less if s["Action"]]}
    wanted = (action.split(":")[0], *CALLS[call])
    assert job.may(job.policy, *wanted) and not job.may(without, *wanted)
