"""The deployment on MiniStack: what up makes and sends; down leaves nothing but tables and files; the linters of the template."""

import json
import re
import subprocess

import pytest
import yaml

import aws_emulator
from aws_emulator import ENGINES, REGION, Queue, client, make_buckets
from frazil_old import exit_codes
from frazil_old.aws import deploy_stack, stack_template
from frazil_old.cli import bundle, main

pytestmark = pytest.mark.aws


@pytest.fixture(scope="module")
def url(aws):
    make_buckets(aws, "dms-bucket", "lake-bucket", "work-bucket")
    return aws


@pytest.fixture
def prod(url, tmp_path, monkeypatch):
    """Write the environment `prod`, and return a function that writes it with another source or other parameters."""
    monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path / "params"))
    monkeypatch.setattr(deploy_stack, "POLL_S", 0.1)
    spec = {"source": "public.t", "target": "shop.t", "key": ["id"], "columns": [{"name": "id", "type": "INT8"}]}
    driver = tmp_path / "runs/prod/aws" / bundle.Platform("3.11.6", "x86_64", True).file_name
    for file, content in ((tmp_path / "params/prod/t.yml", yaml.safe_dump(spec)), (driver, "packages")):
        file.parent.mkdir(parents=True)
        file.write_text(content)

    def write(source="s3://dms-bucket/dms/data", **parameters):
        lake = {"type": "glue", "warehouse": "s3://lake-bucket/lake", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
        common = {"source": source, "specs": "params/prod", "endpoint": "params/e.json", "catalog_options": lake}
        aws = {"region": REGION, "artifacts": "s3://work-bucket/frazil", "application": "00fabc0123456789"} | parameters
        (tmp_path / "params/prod.yml").write_text(yaml.safe_dump({"common": common, "aws": aws}))

    write()
    return write


def frazil(action: str, *more: str) -> int:
    return main(["aws", action, "--env", "prod", *more])


def kept(url: str, bucket="work-bucket") -> list[str]:
    return [o["Key"] for o in client("s3", url).list_objects_v2(Bucket=bucket).get("Contents", [])]


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
        "objects": kept(url),
    }  # fmt: skip
    return {name: found for name, found in named.items() if found}


def made(url: str) -> tuple[dict[str, str], dict]:
    """The resources of the stack, and the arguments of its job of changes."""
    found = client("cloudformation", url).describe_stack_resources(StackName="frazil-prod")["StackResources"]
    ids = {r["LogicalResourceId"]: r["PhysicalResourceId"] for r in found}
    definition = client("stepfunctions", url).describe_state_machine(stateMachineArn=ids["Pipeline"])["definition"]
    assert "${" not in definition, "a placeholder has no value"
    return ids, json.loads(definition)["States"]["Changes"]["Arguments"]


def test_up_makes_all_and_down_leaves_nothing_but_tables_and_files(prod, url, capsys):
    s3 = client("s3", url)
    topic = client("sns", url).create_topic(Name="old")["TopicArn"]
    old = {"TopicConfigurations": [{"Id": "old", "TopicArn": topic, "Events": ["s3:ObjectRemoved:*"]}]}
    s3.put_bucket_notification_configuration(Bucket="dms-bucket", NotificationConfiguration=old)
    s3.put_object(Bucket="dms-bucket", Key="dms/data/public/t/LOAD00000001.csv", Body=b"1\n")
    s3.put_object(Bucket="lake-bucket", Key="lake/shop/t/metadata/v1.json", Body=b"{}")
    assert frazil("up", "--yes") == exit_codes.OK
    told = s3.get_bucket_notification_configuration(Bucket="dms-bucket")
    assert "EventBridgeConfiguration" in told and told["TopicConfigurations"][0]["TopicArn"] == topic
    assert set(remains(url)) == {"stacks", "machines", "queues", "roles", "rules", "schedules", "logs", "objects"}
    assert "Application" not in made(url)[0], "it is somebody else's"
    client("stepfunctions", url).start_execution(stateMachineArn=remains(url)["machines"][0]["stateMachineArn"])
    assert frazil("down") == exit_codes.OK
    shown = capsys.readouterr().out
    assert "delete stack frazil-prod" in shown and "not deleted: the tables in s3://lake-bucket/lake" in shown
    assert set(remains(url)) >= {"stacks", "machines"}
    assert frazil("down", "--yes") == exit_codes.OK and remains(url) == {}
    assert "nothing of prod is left" in capsys.readouterr().out
    assert kept(url, "dms-bucket") and kept(url, "lake-bucket")
    assert frazil("down") == exit_codes.NOTHING


def test_glue_runs_the_jobs_by_a_job_that_up_makes_and_down_deletes(prod, url):
    prod(engine="glue", application="", changes_workers=3)
    assert frazil("up", "--yes") == exit_codes.OK
    there, _ = made(url)
    assert {*there} >= {"GlueJob", "JobRole", "JobPolicy"} and "Application" not in there
    job = client("glue", url).get_job(JobName="frazil-prod")["Job"]
    assert (job["GlueVersion"], job["Command"]["Name"], int(job["NumberOfWorkers"])) == ("5.1", "glueetl", 3)
    named = {job["Command"]["ScriptLocation"], *(job["DefaultArguments"][f"--{n}-archive"] for n in ("packages", "workbook"))}  # fmt: skip
    assert named == {f"s3://work-bucket/{key}" for key in kept(url)}, "the job names the archives that were sent"
    assert client("iam", url).list_role_policies(RoleName=there["JobRole"])["PolicyNames"] == ["frazil-prod-job"]
    assert frazil("down", "--yes") == exit_codes.OK and remains(url) == {}


def test_an_event_of_s3_becomes_a_message_of_the_queue_and_a_repeated_one_is_one(prod, url):
    assert frazil("up", "--yes") == exit_codes.OK
    s3, address = client("s3", url), client("sqs", url).get_queue_url(QueueName="frazil-prod.fifo")["QueueUrl"]
    queue = Queue(url, address)
    s3.put_object(Bucket="dms-bucket", Key="dms/data/public/t/20260101-000000000.csv", Body=b"I,1\n")
    s3.put_object(Bucket="dms-bucket", Key="elsewhere/x.csv", Body=b"I,1\n")
    bodies = [json.loads(m["Body"]) for m in queue.receive(wait_s=5)]
    assert [(b["bucket"], b["key"]) for b in bodies] == [("dms-bucket", "dms/data/public/t/20260101-000000000.csv")]
    queue.send(*['{"key": "a", "etag": "1"}'] * 2)
    assert queue.waiting() == (1, 1)
    assert frazil("down", "--yes") == exit_codes.OK


@pytest.mark.parametrize("engine", ENGINES)
def test_cfn_lint_accepts_the_template(tmp_path, engine):
    text, file = stack_template.template(engine), tmp_path / "template.yml"
    assert len(text.encode()) < 51_200, "CloudFormation takes no longer text"
    file.write_text(text)
    ran = subprocess.run([aws_emulator.tool("cfn-lint"), "-r", REGION, "--format", "json", "--", str(file)], capture_output=True, text=True)  # fmt: skip
    assert json.loads(ran.stdout or "[]") == [], "warnings count too"


@pytest.mark.parametrize("engine", ENGINES)
def test_statelint_accepts_the_state_machine(tmp_path, engine):
    text, file = json.dumps(stack_template.definition(engine)), tmp_path / "machine.json"
    text = re.sub(r"\$\{\w+\}", "30", text)  # statelint refuses two forms that AWS takes:
    file.write_text(
        text.replace('"{% 30 %}"', "30").replace("2.0", "2.5").replace("3.0", "3.5")
    )  # computed seconds, whole back-off rates
    ran = subprocess.run([aws_emulator.tool("statelint"), str(file)], capture_output=True, text=True)
    assert (ran.stdout + ran.stderr).strip() == ""
