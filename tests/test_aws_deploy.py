"""`frazil aws` on MiniStack: up, start, status and down; what it refuses, and with which remedy. moto plays DMS."""

import json
import logging
import os
import re
import subprocess
import time
from pathlib import Path
from textwrap import dedent

import boto3
import pytest
import yaml
from botocore.stub import Stubber

import aws_emulator
from aws_emulator import ACCOUNT, REGION, client
from frazil_old import exit_codes
from frazil_old.aws import deploy_stack, stack_template
from frazil_old.aws.cloud import Cloud
from frazil_old.aws.deployment_parameters import AwsError, Deployment
from frazil_old.cli import aws_archives, bundle, main
from frazil_old.config.environment_file import find_params
from frazil_old.config.settings import resolve

pytestmark = pytest.mark.aws

ROOT = Path(__file__).parent.parent
BUCKETS = ("dms-bucket", "lake-bucket", "work-bucket")
SETTINGS = {
    "common": {
        "source": "s3://dms-bucket/dms/data", "specs": "params/prod", "endpoint": "params/e.json", "catalog_options":
        {"type": "glue", "warehouse": "s3://lake-bucket/lake", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"},
    },
    "aws": {"region": REGION, "artifacts": "s3://work-bucket/frazil", "application": "00fabc0123456789"},
}  # fmt: skip


@pytest.fixture(scope="module")
def url():
    with aws_emulator.running() as address:
        yield address


@pytest.fixture(scope="module")
def dms():
    """moto's server, which knows DMS; and the ARN of a task there."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    made = client("dms", f"http://{host}:{port}").create_replication_task(
        ReplicationTaskIdentifier="shop", SourceEndpointArn="arn:s", TargetEndpointArn="arn:t", ReplicationInstanceArn="arn:i",
        MigrationType="full-load-and-cdc", TableMappings="{}",
    )  # fmt: skip
    yield f"http://{host}:{port}", made["ReplicationTask"]["ReplicationTaskArn"]
    server.stop()


@pytest.fixture
def prod(url, dms, tmp_path, monkeypatch):
    """Write the environment `prod`, and return a function that writes it with other parameters of a section."""
    for name, value in aws_emulator.variables(url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DATABASE_MIGRATION_SERVICE", dms[0])
    params = tmp_path / "params"
    (params / "prod").mkdir(parents=True)
    monkeypatch.setenv("FRAZIL_PARAMS", str(params))
    monkeypatch.setattr(deploy_stack, "POLL_S", 0.1)
    spec = {"source": "public.t", "target": "shop.t", "key": ["id"], "columns": [{"name": "id", "type": "INT8"}]}
    (params / "prod/t.yml").write_text(yaml.safe_dump(spec))
    driver = tmp_path / "runs/prod/aws" / bundle.Platform("3.11.6", "x86_64", True).file_name
    driver.parent.mkdir(parents=True)
    driver.write_bytes(b"packages")
    there = {b["Name"] for b in client("s3", url).list_buckets()["Buckets"]}
    for bucket in set(BUCKETS) - there:
        client("s3", url).create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})

    def write(section="aws", **parameters):
        told = {n: {**s, **(parameters if n == section else {})} for n, s in SETTINGS.items()}
        (params / "prod.yml").write_text(yaml.safe_dump(told))

    write(replication_task=dms[1])
    return write


def frazil(action: str, *more: str) -> int:
    return main(["aws", action, "--env", "prod", *more])


def remains(url: str) -> dict[str, list]:
    """What of Frazil is in the account, beside buckets."""
    named = {
        "stacks": [s["StackName"] for s in client("cloudformation", url).list_stacks()["StackSummaries"] if s["StackStatus"] != "DELETE_COMPLETE"],
        "machines": client("stepfunctions", url).list_state_machines()["stateMachines"],
        "queues": client("sqs", url).list_queues().get("QueueUrls", []),
        "roles": [r["RoleName"] for r in client("iam", url).list_roles()["Roles"] if "frazil" in r["RoleName"]],
        "jobs": client("glue", url).get_jobs()["Jobs"],
        "rules": [r["Name"] for r in client("events", url).list_rules()["Rules"] if "frazil" in r["Name"]],
        "schedules": client("scheduler", url).list_schedules()["Schedules"],
        "logs": client("logs", url).describe_log_groups(logGroupNamePrefix="/aws/vendedlogs/states/frazil")["logGroups"],
        "objects": client("s3", url).list_objects_v2(Bucket="work-bucket").get("Contents", []),
    }  # fmt: skip
    return {name: found for name, found in named.items() if found}


def test_up_shows_first_then_makes_and_down_leaves_nothing_but_tables_and_files(prod, url, capsys):
    s3 = client("s3", url)
    topic = client("sns", url).create_topic(Name="old")["TopicArn"]
    old = {"TopicConfigurations": [{"Id": "old", "TopicArn": topic, "Events": ["s3:ObjectRemoved:*"]}]}
    s3.put_bucket_notification_configuration(Bucket="dms-bucket", NotificationConfiguration=old)
    s3.put_object(Bucket="dms-bucket", Key="dms/data/public/t/LOAD00000001.csv", Body=b"1\n")
    s3.put_object(Bucket="lake-bucket", Key="lake/shop/t/metadata/v1.json", Body=b"{}")

    assert frazil("up") == exit_codes.OK
    shown = capsys.readouterr().out
    assert "add Queue: AWS::SQS::Queue" in shown and "add Pipeline: AWS::StepFunctions::StateMachine" in shown
    assert "turn on EventBridge for bucket dms-bucket" in shown and "nothing is changed yet" in shown
    assert remains(url) == {}
    assert "EventBridgeConfiguration" not in s3.get_bucket_notification_configuration(Bucket="dms-bucket")

    assert frazil("up", "--yes") == exit_codes.OK
    told = s3.get_bucket_notification_configuration(Bucket="dms-bucket")
    assert "EventBridgeConfiguration" in told and told["TopicConfigurations"][0]["TopicArn"] == topic
    assert set(remains(url)) == {"stacks", "machines", "queues", "roles", "rules", "schedules", "logs", "objects"}

    assert frazil("start") == exit_codes.OK
    capsys.readouterr()
    frazil("status")
    shown = capsys.readouterr().out
    assert "stack frazil-prod: CREATE_COMPLETE" in shown and "queue: 0 events waiting" in shown
    assert re.search(r"execution \S+ of \d{4}-.*: (RUNNING|FAILED)", shown) and "DMS task: " in shown

    assert frazil("down") == exit_codes.OK
    shown = capsys.readouterr().out
    assert "delete stack frazil-prod" in shown and "not deleted: the tables in s3://lake-bucket/lake" in shown
    assert set(remains(url)) >= {"stacks", "machines"}
    assert frazil("down", "--yes") == exit_codes.OK
    assert remains(url) == {}
    assert "nothing of prod is left" in capsys.readouterr().out
    assert [o["Key"] for o in s3.list_objects_v2(Bucket="dms-bucket")["Contents"]]
    assert [o["Key"] for o in s3.list_objects_v2(Bucket="lake-bucket")["Contents"]]
    assert frazil("down") == exit_codes.NOTHING


def test_the_commands_of_the_page_run_in_their_order(prod, url, dms, known_types, capsys):
    page = (ROOT / "lib/docs/aws.md").read_text()
    (told,) = [yaml.safe_load(dedent(b)) for b in re.findall(r"```yaml\n(.*?)```", page, re.S)]
    named = re.sub(r"arn:aws:dms:[\w:-]+", dms[1], json.dumps(told))
    told = json.loads(named)
    told["common"] |= {"specs": "params/prod", "endpoint": "params/e.json"}
    told["aws"]["application"] = "00fabc0123456789"  # MiniStack has no EMR Serverless
    (find_params() / "prod.yml").write_text(yaml.safe_dump(told))
    for bucket in ("my-dms", "my-lake", "my-work"):
        client("s3", url).create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    commands = re.findall(r"^ *frazil (aws .*)$", "\n".join(re.findall(r"```sh\n(.*?)```", page, re.S)), re.M)
    assert [c.split()[1] for c in commands] == ["check", "up", "up", "start", "status", "down", "down"]
    for command in commands:
        code = main(command.split())
        assert code == exit_codes.OK or (code == exit_codes.BREACH and "status" in command), (
            command
        )  # no DMS answers the execution
    assert "nothing of prod is left" in capsys.readouterr().out and remains(url) == {}


@pytest.fixture
def cluster(url):
    """A cluster whose machines have the role `emr-machines`, and its id."""
    iam, emr = client("iam", url), client("emr", url)
    iam.create_role(RoleName="emr-machines", AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName="emr-profile")
    iam.add_role_to_instance_profile(InstanceProfileName="emr-profile", RoleName="emr-machines")
    instances = {"MasterInstanceType": "m5.xlarge", "InstanceCount": 1, "KeepJobFlowAliveWhenNoSteps": True}
    yield emr.run_job_flow(Name="c", ReleaseLabel="emr-7.12.0", Instances=instances, JobFlowRole="emr-profile")["JobFlowId"]  # fmt: skip
    iam.remove_role_from_instance_profile(InstanceProfileName="emr-profile", RoleName="emr-machines")
    iam.delete_instance_profile(InstanceProfileName="emr-profile")
    iam.delete_role(RoleName="emr-machines")


@pytest.fixture
def known_types(monkeypatch):
    """Let MiniStack validate the template, which has a type that it does not know."""
    whole = stack_template.template
    monkeypatch.setattr(stack_template, "template", lambda engine: whole(engine).replace("AWS::EMRServerless::Application", "AWS::SNS::Topic"))  # fmt: skip


def made(url: str) -> set[str]:
    """The stack's resources. MiniStack's change sets list those too whose condition is false."""
    found = client("cloudformation", url).describe_stack_resources(StackName="frazil-prod")["StackResources"]
    return {r["LogicalResourceId"] for r in found}


def test_glue_runs_the_jobs_by_a_job_that_up_makes_and_down_deletes(prod, url, known_types, capsys):
    prod(engine="glue", application="", changes_workers=3)
    assert frazil("check") == exit_codes.OK
    assert frazil("up", "--yes") == exit_codes.OK
    assert made(url) >= {"GlueJob", "JobRole", "JobPolicy"} and "Application" not in made(url)
    job = client("glue", url).get_job(JobName="frazil-prod")["Job"]
    assert (job["GlueVersion"], job["Command"]["Name"], int(job["NumberOfWorkers"])) == ("5.1", "glueetl", 3)
    sent = {f"s3://work-bucket/{o['Key']}" for o in client("s3", url).list_objects_v2(Bucket="work-bucket")["Contents"]}
    named = {job["Command"]["ScriptLocation"], *(job["DefaultArguments"][f"--{n}-archive"] for n in ("packages", "workbook"))}  # fmt: skip
    assert named == sent, "the job names the archives that were sent"
    policies = {r["RoleName"]: client("iam", url).list_role_policies(RoleName=r["RoleName"])["PolicyNames"] for r in client("iam", url).list_roles()["Roles"]}  # fmt: skip
    assert ["frazil-prod-job"] in policies.values()
    assert frazil("start") == exit_codes.OK
    assert (
        frazil("status") in (exit_codes.OK, exit_codes.BREACH)
        and "stack frazil-prod: CREATE_COMPLETE" in capsys.readouterr().out
    )
    prod(engine="emr-serverless")
    assert frazil("up", "--yes") == exit_codes.OK
    assert "GlueJob" not in made(url) and client("glue", url).get_jobs()["Jobs"] == [], (
        "another engine changes the stack"
    )
    assert frazil("down", "--yes") == exit_codes.OK and remains(url) == {}


def test_steps_run_on_a_cluster_whose_role_gets_the_jobs_policy_until_down(prod, url, cluster, known_types, capsys):
    prod(engine="emr-steps", application="", cluster=cluster)
    iam = client("iam", url)
    assert frazil("check") == exit_codes.OK
    assert frazil("up", "--yes") == exit_codes.OK
    assert "JobPolicy" in made(url) and not made(url) & {"GlueJob", "JobRole", "Application"}
    assert iam.list_role_policies(RoleName="emr-machines")["PolicyNames"] == ["frazil-prod-job"]
    machine = client("stepfunctions", url).describe_state_machine(stateMachineArn=client("stepfunctions", url).list_state_machines()["stateMachines"][0]["stateMachineArn"])  # fmt: skip
    assert json.loads(machine["definition"])["States"]["Changes"]["Arguments"]["ClusterId"] == cluster
    assert frazil("start") == exit_codes.OK
    assert frazil("status") in (exit_codes.OK, exit_codes.BREACH)
    assert frazil("down", "--yes") == exit_codes.OK and remains(url) == {}
    assert iam.list_role_policies(RoleName="emr-machines")["PolicyNames"] == []
    client("emr", url).terminate_job_flows(JobFlowIds=[cluster])
    capsys.readouterr()
    assert frazil("up") == exit_codes.FAILED
    refused(capsys, f"cluster {cluster} is in state TERMINAT", "name a running cluster")


def test_an_event_of_s3_becomes_a_message_of_the_queue(prod, url):
    assert frazil("up", "--yes") == exit_codes.OK
    s3, sqs = client("s3", url), client("sqs", url)
    queue = sqs.get_queue_url(QueueName="frazil-prod.fifo")["QueueUrl"]
    s3.put_object(Bucket="dms-bucket", Key="dms/data/public/t/20260101-000000000.csv", Body=b"I,1\n")
    s3.put_object(Bucket="dms-bucket", Key="elsewhere/x.csv", Body=b"I,1\n")
    came = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=5, MaxNumberOfMessages=10)["Messages"]
    bodies = [json.loads(m["Body"]) for m in came]
    assert [(b["bucket"], b["key"]) for b in bodies] == [("dms-bucket", "dms/data/public/t/20260101-000000000.csv")]
    assert frazil("down", "--yes") == exit_codes.OK


def test_archives_have_the_parameters_and_are_sent_once(prod, url, capsys):
    frazil("up", "--yes")
    first = {o["Key"]: o["LastModified"] for o in client("s3", url).list_objects_v2(Bucket="work-bucket")["Contents"]}
    assert sorted(re.sub("-[0-9a-f]{12}", "", k) for k in first) == [
        f"frazil/prod/archives/{name}" for name in ("driver.tar.gz", "job.py", "workbook.zip")
    ]
    capsys.readouterr()
    assert frazil("up", "--yes") == exit_codes.NOTHING
    (find_params() / "prod/t.yml").open("a").write("# another byte\n")
    assert frazil("up", "--yes") == exit_codes.OK
    shown = capsys.readouterr().out
    assert re.findall(r"sent \S+/(\w+)-", shown) == ["workbook"] and "modify Pipeline" in shown
    frazil("down", "--yes")


def test_an_archive_from_before_the_installed_frazil_is_built_again(prod, tmp_path, monkeypatch):
    """The name of the archive has Frazil's version alone: a newer checkout may have the same one."""
    built = []
    monkeypatch.setattr(bundle, "build", lambda *given: built.append(given))
    deployment = Deployment.of(resolve("aws", {"env": "prod"}).settings)
    file = aws_archives.driver_archive(deployment)
    assert built == []
    os.utime(file, (0, 0))
    assert aws_archives.driver_archive(deployment) == file and len(built) == 1


def test_what_still_has_the_tag_after_down_is_named(prod, url, capsys):
    sqs = client("sqs", url)
    left = sqs.create_queue(QueueName="left-behind", tags={"frazil": "prod"})["QueueUrl"]
    assert frazil("down", "--yes") == exit_codes.FAILED
    refused(capsys, "still there with the tag of prod", "left-behind", "delete them in the console")
    sqs.delete_queue(QueueUrl=left)
    assert frazil("down", "--yes") == exit_codes.OK


def test_status_shows_the_newest_runs_by_their_records_and_the_lag_of_the_tables(prod, url, capsys, monkeypatch):
    (find_params() / "e.json").write_text('{"S3Settings": {"CsvNullValue": "", "TimestampColumnName": "ts"}}')
    frazil("up", "--yes")
    capsys.readouterr()
    frazil("status")
    shown = capsys.readouterr().out
    assert "no run yet" in shown and "lag public.t: unknown: table shop.t does not exist" in shown
    records = [
        {"notebook": "00_setup", "began": 0, "outcome": "ok", "seconds": 20.4}, {"notebook": "01_full_load", "began": 3600, "outcome": "ok", "seconds": 31, "rows": 12_000},
        {"notebook": "02_cdc_merge", "began": 7200, "outcome": "some tables failed", "seconds": 9, "cause": "app.t: it broke\nmore"},
        {"notebook": "02_cdc_merge", "began": 10_800, "outcome": "ok", "seconds": 8, "rows": 7, "worst_lag_s": 41.2},
    ]  # fmt: skip
    s3 = client("s3", url)
    for number, record in enumerate(records):
        s3.put_object(Bucket="work-bucket", Key=f"frazil/prod/runs/r{number}/run.json", Body=json.dumps(record))
        s3.put_object(Bucket="work-bucket", Key=f"frazil/prod/runs/r{number}/out.ipynb", Body=b"{}")
        time.sleep(1.1)  # the times of objects have whole seconds
    rows = [{"table": "public.t", "pending": 3, "lag_s": 71.0, "problem": "", "cure": ""}, {"table": "public.u", "pending": 0, "lag_s": 0.0, "problem": "", "cure": ""}]  # fmt: skip
    monkeypatch.setattr("frazil_old.flows.lag.per_table", lambda book: rows)
    frazil("status")
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith(("run ", "lag"))] == [
        "run 02_cdc_merge of 1970-01-01 03:00:00 UTC: ok, 8 s, 7 rows, source to lake in at most 41 s",
        "run 02_cdc_merge of 1970-01-01 02:00:00 UTC: some tables failed, 9 s: app.t: it broke",
        "run 01_full_load of 1970-01-01 01:00:00 UTC: ok, 31 s, 12,000 rows",
        "lag public.t: 3 files, the oldest for 71.0 s", "lag: nothing waits for 1 table",
    ]  # fmt: skip
    frazil("down", "--yes")


# --- what is refused


def refused(capsys, *words: str) -> None:
    """The last command printed one problem and its cure."""
    shown = capsys.readouterr().err.strip().splitlines()
    assert len(shown) == 2 and shown[1].startswith("  cure: "), shown
    for word in words:
        assert word in " ".join(shown), shown


@pytest.mark.parametrize("action", ["up", "start", "status", "down"])
def test_missing_credentials(prod, monkeypatch, capsys, action):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    assert frazil(action) == exit_codes.FAILED
    refused(capsys, "no AWS credentials were found", "aws configure sso")


def test_check_says_what_was_not_asked(prod, known_types, monkeypatch, capsys):
    assert frazil("check") == exit_codes.OK
    assert "has the buckets and the DMS task, and accepts template and state machine" in capsys.readouterr().out
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    assert frazil("check") == exit_codes.OK
    assert "AWS was not asked: no credentials" in capsys.readouterr().out


def test_an_unknown_task(prod, capsys):
    prod(replication_task=f"arn:aws:dms:{REGION}:{ACCOUNT}:task:NOSUCHTASK")
    assert frazil("up", "--yes") == exit_codes.FAILED
    refused(capsys, "DMS knows no task", "correct replication_task")


def test_a_bucket_of_another_region_and_one_that_is_not_there(prod, url, capsys):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_REGION", "us-west-2")
        far = boto3.client("s3", endpoint_url=url, region_name="us-west-2")
        far.create_bucket(Bucket="far-bucket", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    prod("common", source="s3://far-bucket/dms")
    assert frazil("up") == exit_codes.FAILED
    refused(capsys, "bucket far-bucket is in us-west-2, not in eu-west-1", "take a bucket of this region")
    prod("common", source="s3://nowhere-bucket/dms")
    assert frazil("up") == exit_codes.FAILED
    refused(capsys, "there is no bucket nowhere-bucket", "create the bucket")


@pytest.mark.parametrize(
    ("section", "parameters", "words"),
    [
        ("common", {"source": "runs/source"}, ("source = 'runs/source' is no folder on S3", "s3://bucket/folder")),
        ("common", {"source": "s3://dms-bucket"}, ("is no folder on S3",)),
        ("common", {"source": "kinesis://eu-west-1/s"}, ("is a stream", "run_for_s")),
        (
            "common",
            {"catalog_options": {"type": "jdbc", "uri": "jdbc:sqlite:x", "warehouse": "w"}},
            ("catalog of type 'jdbc'", "type: glue"),
        ),
        ("aws", {"region": "ireland"}, ("is no region", "eu-west-1")),
        ("aws", {"region": ""}, ("is no region",)),
        ("aws", {"artifacts": ""}, ("artifacts = '' is no folder on S3",)),
        (
            "common",
            {"source": "s3://work-bucket/frazil/prod"},
            ("s3://work-bucket/frazil/prod would be in", "which frazil aws down deletes"),
        ),
        (
            "common",
            {"source": "s3://work-bucket/frazil/prod/dms/"},
            ("would be in s3://work-bucket/frazil/prod, which frazil aws down deletes",),
        ),
        ("aws", {"replication_task": "my-task"}, ("is no ARN of a DMS task",)),
        ("aws", {"wait_s": 1}, ("wait_s",)),
        ("aws", {"engine": "lambda"}, ("engine",)),
        ("aws", {"engine": "emr-steps", "application": ""}, ("cluster = '' does not fit", "cluster: j-")),
        ("aws", {"cluster": "j-ABC"}, ("cluster = 'j-ABC' does not fit", "leave it out")),
        ("aws", {"engine": "glue"}, ("uses no application", "leave out application")),
        ("aws", {"changes_spark": "--conf a='b'"}, ("changes_spark holds a quote", "without them")),
        ("aws", {"wait": 1}, ("unknown parameter 'wait'", "wait_s")),
    ],
)
def test_parameters_that_cannot_be_deployed(prod, capsys, section, parameters, words):
    prod(section, **parameters)
    assert frazil("check") in (exit_codes.FAILED, exit_codes.WRONG)
    refused(capsys, *words)


def test_a_stack_in_a_failed_state_is_named_with_its_remedy(prod, monkeypatch, capsys):
    failed = {"StackName": "frazil-prod", "StackStatus": "ROLLBACK_COMPLETE", "StackStatusReason": "a role is there"}
    monkeypatch.setattr(deploy_stack, "state", lambda cloud, name: failed)
    assert frazil("up", "--yes") == exit_codes.FAILED
    refused(capsys, "frazil-prod is in state ROLLBACK_COMPLETE: a role is there", "frazil aws down --env prod")
    monkeypatch.setattr(deploy_stack, "state", lambda cloud, name: {"StackStatus": "UPDATE_IN_PROGRESS"})
    assert frazil("up", "--yes") == exit_codes.FAILED
    refused(capsys, "UPDATE_IN_PROGRESS", "wait until AWS has finished")


def test_what_is_not_deployed_is_neither_started_nor_shown(prod, capsys):
    for action in ("start", "status"):
        assert frazil(action) == exit_codes.FAILED
        refused(capsys, "frazil-prod is not deployed", "frazil aws up --env prod")


def test_a_quota_and_denied_access_have_their_remedies():
    cloud = Cloud(REGION)
    formation = boto3.client("cloudformation", region_name=REGION, aws_access_key_id="a", aws_secret_access_key="b")
    cloud.client = lambda service: formation
    for code, cure in (("LimitExceededException", "quota"), ("AccessDenied", "allow the action")):
        with Stubber(formation) as answers:
            answers.add_client_error("describe_stacks", code, "no")
            with pytest.raises(AwsError, match=f"(?s){code}.*{cure}"):
                deploy_stack.state(cloud, "frazil-prod")


def test_down_stops_the_application_that_up_made_and_no_other(prod, url, known_types, monkeypatch, capsys):
    stopped: list[str] = []
    monkeypatch.setattr(deploy_stack, "stop_application", lambda cloud, application: stopped.append(application))
    frazil("up", "--yes")  # with an application of somebody else
    prod(engine="glue", application="")
    assert frazil("down", "--yes") == exit_codes.OK and stopped == []
    prod(application="")
    assert frazil("up", "--yes") == exit_codes.OK
    assert frazil("down", "--yes") == exit_codes.OK and len(stopped) == 1


def test_a_running_application_is_stopped_before_it_is_deleted():
    cloud = Cloud(REGION)
    emr = boto3.client("emr-serverless", region_name=REGION, aws_access_key_id="a", aws_secret_access_key="b")
    cloud.client = lambda service: emr
    job = {"applicationId": "00a", "id": "00j", "arn": "arn:aws:emr-serverless:eu-west-1:111111111111:/applications/00a/jobruns/00j", "createdBy": "arn:aws:iam::111111111111:role/a",
           "createdAt": 0, "updatedAt": 0, "executionRole": "arn:aws:iam::111111111111:role/a", "state": "RUNNING", "stateDetails": "x", "releaseLabel": "emr-7.12.0"}  # fmt: skip
    application = {"applicationId": "00a", "arn": job["arn"], "releaseLabel": "emr-7.12.0", "type": "SPARK", "createdAt": 0, "updatedAt": 0}  # fmt: skip
    with Stubber(emr) as answers:
        answers.add_response("list_job_runs", {"jobRuns": [job]})
        answers.add_response("cancel_job_run", {"applicationId": "00a", "jobRunId": "00j"}, {"applicationId": "00a", "jobRunId": "00j"})  # fmt: skip
        answers.add_response("stop_application", {}, {"applicationId": "00a"})
        answers.add_response("get_application", {"application": {**application, "state": "STOPPED"}})
        deploy_stack.stop_application(cloud, "00a")
        answers.assert_no_pending_responses()


# --- the linters


def lint(text: str, folder) -> list[str]:
    """Return the rules that cfn-lint finds broken; warnings too."""
    file = folder / "template.yml"
    file.write_text(text)
    ran = subprocess.run([aws_emulator.tool("cfn-lint"), "-r", REGION, "--format", "json", "--", str(file)], capture_output=True, text=True)  # fmt: skip
    return [found["Rule"]["Id"] for found in json.loads(ran.stdout or "[]")]


def _template(engine="emr-serverless") -> str:
    return stack_template.template(engine)


@pytest.mark.parametrize("engine", ["glue", "emr-steps"])
def test_cfn_lint_accepts_the_template_of_other_engines(tmp_path, engine):
    assert lint(_template(engine), tmp_path) == []
    assert len(_template(engine).encode()) < 51_200, "CloudFormation takes no longer text"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("", ""), ("FifoQueue: true", "FifoQueu: true"), ("!Ref CatalogArns", "!Ref CatalogArn"), ("ReleaseLabel: !Ref Release", "Release: x"), ("GlueVersion: !Ref Release", "GlueRelease: x"), ("HasJobRole: !Not", "HasRole: !Not"),
        ("!GetAtt Queue.Arn", "!GetAtt Queue.Arm"), ("ScheduleExpression: rate(1 hour)", "Schedule: rate(1 hour)"),
    ],
)  # fmt: skip
def test_cfn_lint_accepts_the_template_and_finds_planted_faults(tmp_path, right, wrong):
    assert right in _template()
    assert bool(lint(_template().replace(right, wrong, 1) if right else _template(), tmp_path)) is bool(right)
