"""What the roles of jobs, pipeline and schedule allow: no action can go unnoticed, and no more is allowed.

MiniStack enforces the policies where it has the service. For EMR Serverless, DMS, PassRole and rules of the default bus,
whose ARNs it writes otherwise than AWS, its simulator decides.
"""

import json
import time

import boto3
import pytest

import aws_emulator
from aws_emulator import ACCOUNT, ENGINES, REGION, client, make_buckets
from frazil_old.aws import stack_template
from frazil_old.aws.deployment_parameters import Deployment, Place
from frazil_old.config.settings import AwsSettings

pytestmark = pytest.mark.aws

APPLICATION, TASK = "00fabc0123456789", f"arn:aws:dms:{REGION}:{ACCOUNT}:task:T"
NEEDED = {
    "emr-serverless:startJobRun.sync": [
        "emr-serverless:StartJobRun", "emr-serverless:GetJobRun", "emr-serverless:CancelJobRun", "emr-serverless:TagResource", "iam:PassRole",
        "events:PutTargets", "events:PutRule", "events:DescribeRule",
    ],
    "glue:startJobRun.sync": ["glue:StartJobRun", "glue:GetJobRun", "glue:GetJobRuns", "glue:BatchStopJobRun"],
    "aws-sdk:sqs:getQueueAttributes": ["sqs:GetQueueAttributes"], "aws-sdk:sfn:listExecutions": ["states:ListExecutions"],
    "aws-sdk:databasemigration:describeReplicationTasks": ["dms:DescribeReplicationTasks"], "states:startExecution": ["states:StartExecution"],
}  # fmt: skip
"""What Step Functions needs for a task, by AWS's pages on its integrations; the tags of a job are ours."""
LOG = ["CreateLogDelivery", "GetLogDelivery", "UpdateLogDelivery", "DeleteLogDelivery", "ListLogDeliveries", "PutResourcePolicy", "DescribeResourcePolicies", "DescribeLogGroups"]  # fmt: skip
"""What it needs to log, by its page on logs."""
OWN = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:frazil-"
RUN = {"JobName": "frazil-glue", "RunId": "jr"}
CALLS = {
    "glue:StartJobRun": ("glue", "start_job_run", {"JobName": RUN["JobName"]}), "glue:GetJobRun": ("glue", "get_job_run", RUN),
    "glue:GetJobRuns": ("glue", "get_job_runs", {"JobName": RUN["JobName"]}), "glue:BatchStopJobRun": ("glue", "batch_stop_job_run", {"JobName": RUN["JobName"], "JobRunIds": ["jr"]}),
    "sqs:GetQueueAttributes": ("sqs", "get_queue_attributes", {}), "states:StartExecution": ("stepfunctions", "start_execution", {}),
    "states:ListExecutions": ("stepfunctions", "list_executions", {}),
    "logs:DescribeLogGroups": ("logs", "describe_log_groups", {}), "logs:DescribeResourcePolicies": ("logs", "describe_resource_policies", {}),
    "logs:PutResourcePolicy": ("logs", "put_resource_policy", {"policyName": "a", "policyDocument": "{}"}),
}  # fmt: skip
"""A call for each action of the pipeline that MiniStack enforces; queue and state machine are those of the stack."""
SOURCE, LAKE, ARCHIVE = {"Bucket": "src-bucket", "Key": "dms/a"}, {"Bucket": "lake-bucket", "Key": "lake/x"}, {"Bucket": "art-bucket", "Key": "frazil/prod/archives/a"}  # fmt: skip
RUN_FILE, TABLE = {"Bucket": "art-bucket", "Key": "frazil/prod/runs/a"}, {"DatabaseName": "shop"}
CALLS_OF_JOBS = {
    ("ListSource", "s3:ListBucket"): ("s3", "list_objects_v2", {"Bucket": "src-bucket", "Prefix": "dms/"}), ("ReadSource", "s3:GetObject"): ("s3", "get_object", SOURCE),
    ("ListLake", "s3:ListBucket"): ("s3", "list_objects_v2", {"Bucket": "lake-bucket", "Prefix": "lake/"}), ("WriteLake", "s3:GetObject"): ("s3", "get_object", LAKE),
    ("WriteLake", "s3:PutObject"): ("s3", "put_object", LAKE), ("WriteLake", "s3:DeleteObject"): ("s3", "delete_object", LAKE),
    ("WriteLake", "s3:AbortMultipartUpload"): ("s3", "abort_multipart_upload", {**LAKE, "UploadId": "x"}), ("ReadArchives", "s3:GetObject"): ("s3", "get_object", ARCHIVE),
    ("WriteRuns", "s3:PutObject"): ("s3", "put_object", RUN_FILE), ("Catalog", "glue:GetDatabases"): ("glue", "get_databases", {}), ("Catalog", "glue:CreateDatabase"): ("glue", "create_database", {"DatabaseInput": {"Name": "ops"}}),
    ("Catalog", "glue:GetTable"): ("glue", "get_table", {**TABLE, "Name": "u"}), ("Catalog", "glue:GetTables"): ("glue", "get_tables", TABLE),
    ("Catalog", "glue:CreateTable"): ("glue", "create_table", {**TABLE, "TableInput": {"Name": "u"}}), ("Catalog", "glue:UpdateTable"): ("glue", "update_table", {**TABLE, "TableInput": {"Name": "u"}}),
    ("Queue", "sqs:ReceiveMessage"): ("sqs", "receive_message", {}), ("Queue", "sqs:DeleteMessage"): ("sqs", "delete_message", {"ReceiptHandle": "x"}),
    ("Queue", "sqs:ChangeMessageVisibility"): ("sqs", "change_message_visibility", {"ReceiptHandle": "x", "VisibilityTimeout": 0}),
}  # fmt: skip
"""A call for each action of the jobs' policy, by statement."""
UNSEEN = {("Catalog", "glue:GetDatabase")}
"""MiniStack takes the name in this call for a table's. It has no DMS."""
NOT_FOR_JOBS = [
    ("s3", "list_objects_v2", {"Bucket": "src-bucket", "Prefix": "other/"}), ("s3", "put_object", {**SOURCE, "Key": "dms/b"}), ("s3", "delete_object", SOURCE), ("s3", "put_object", {**LAKE, "Key": "else/a"}),
    ("s3", "put_object", ARCHIVE), ("glue", "create_table", {"DatabaseName": "other", "TableInput": {"Name": "t"}}), ("glue", "delete_table", {**TABLE, "Name": "t"}),
    ("sqs", "send_message", {"MessageBody": "x", "MessageGroupId": "g"}), ("sqs", "purge_queue", {}), ("secretsmanager", "list_secrets", {}),
]  # fmt: skip


def actions(statement: dict) -> list[str]:
    return [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]


def without(statements: list[dict], action: str, sid: str = "") -> list[dict]:
    """The statements without an action; `sid`: without it in that one only."""
    less = [{**s, "Action": [a for a in actions(s) if a != action or sid not in ("", s["Sid"])]} for s in statements]
    return [s for s in less if s["Action"]]


def wanted(engine: str) -> list[str]:
    """The actions that the tasks of an engine's state machine need, and those for logs."""
    states = stack_template.definition(engine)["States"].values()
    resources = {s["Resource"].removeprefix("arn:aws:states:::") for s in states if s["Type"] == "Task"}
    return sorted({action for r in resources for action in NEEDED[r]} | {f"logs:{name}" for name in LOG})


class Account:
    """An account with a stack for each engine; a user gets the policies of a role."""

    def __init__(self, url: str):
        self.url, self.iam = url, client("iam", url)
        self.out: dict[str, dict[str, str]] = {}
        self.iam.create_user(UserName="pipeline")
        self.key = self.iam.create_access_key(UserName="pipeline")["AccessKey"]

    def deploy(self, engine: str) -> None:
        own = {"application": APPLICATION} if engine == "emr-serverless" else {}
        settings = AwsSettings(env=engine, region=REGION, engine=engine, replication_task=TASK, **own)
        places = (Place("src-bucket", "dms"), Place("lake-bucket", "lake"), Place("art-bucket", "frazil/prod"))
        deployment = Deployment(settings, *places, ("shop", "ops"))
        given = deployment.parameters(ACCOUNT, "aws", dict.fromkeys(("driver", "workbook", "job"), "s3://b/x"), "")
        pairs = [{"ParameterKey": k, "ParameterValue": v} for k, v in given.items()]
        formation, name = client("cloudformation", self.url), deployment.name
        formation.create_stack(StackName=name, TemplateBody=stack_template.template(deployment.settings.engine), Parameters=pairs, Capabilities=["CAPABILITY_IAM"])  # fmt: skip
        while (stack := formation.describe_stacks(StackName=name)["Stacks"][0])["StackStatus"].endswith("PROGRESS"):
            time.sleep(0.2)
        assert stack["StackStatus"] == "CREATE_COMPLETE", stack
        self.out[engine] = {o["OutputKey"]: o["OutputValue"] for o in stack["Outputs"]}

    def statements(self, engine: str, role: str) -> list[dict]:
        """The statements of all policies of a role of the stack."""
        found = client("cloudformation", self.url).describe_stack_resource(StackName=f"frazil-{engine}", LogicalResourceId=role)  # fmt: skip
        name = found["StackResourceDetail"]["PhysicalResourceId"]
        policies = self.iam.list_role_policies(RoleName=name)["PolicyNames"]
        documents = [self.iam.get_role_policy(RoleName=name, PolicyName=p)["PolicyDocument"] for p in policies]
        return [s for d in documents for s in d["Statement"]]

    def refusal(self, statements: list[dict], engine: str, action: str) -> str:
        """What a call of the pipeline is refused with, by a user with these statements; empty if it is allowed."""
        return self.denied(statements, engine, CALLS[action]) if action in CALLS else self.simulated(statements, engine, action)  # fmt: skip

    def denied(self, statements: list[dict], engine: str, call: tuple[str, str, dict]) -> str:
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self.iam.put_user_policy(UserName="pipeline", PolicyName="p", PolicyDocument=policy)
        service, operation, given = call
        own = {"sqs": {"QueueUrl": self.out[engine]["Queue"].replace("localhost", "127.0.0.1")}, "stepfunctions": {"stateMachineArn": self.out[engine]["Pipeline"]}}  # fmt: skip
        keys = {"aws_access_key_id": self.key["AccessKeyId"], "aws_secret_access_key": self.key["SecretAccessKey"]}
        as_user = boto3.client(service, endpoint_url=self.url, region_name=REGION, **keys)
        try:
            getattr(as_user, operation)(**given, **own.get(service, {}))
        except as_user.exceptions.ClientError as error:
            return str(error) if any(w in str(error) for w in ("AccessDenied", "not authorized", "Forbidden")) else ""
        return ""

    def simulated(self, statements: list[dict], engine: str, action: str, application: str = APPLICATION) -> str:
        of = f"arn:aws:emr-serverless:{REGION}:{ACCOUNT}:/applications/{application}"
        role = f"arn:aws:iam::{ACCOUNT}:role/{self.out[engine].get('JobRole')}"
        rule = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/StepFunctionsGetEventsForEMRServerlessJobRule"
        named = {"emr-serverless:StartJobRun": of, "iam:PassRole": role} | dict.fromkeys((a for a in wanted(engine) if a.startswith("events:")), rule)  # fmt: skip
        resource = named.get(action, f"{of}/jobruns/00j")
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        policy = policy.replace('"Condition"', '"Sid2"')  # the simulator has no context; a test of its own looks at it
        told = self.iam.simulate_custom_policy(PolicyInputList=[policy], ActionNames=[action], ResourceArns=[resource])
        (found,) = told["EvaluationResults"]
        return "" if found["EvalDecision"] == "allowed" else f"{found['EvalDecision']}: {found['EvalActionName']}"


@pytest.fixture(scope="module")
def account():
    with aws_emulator.running(AUTH="true") as url:
        found = Account(url)
        make_buckets(url, "src-bucket", "lake-bucket", "art-bucket")
        client("s3", url).put_object(**SOURCE)
        for database in ("shop", "other"):
            client("glue", url).create_database(DatabaseInput={"Name": database})
        for engine in ENGINES:
            found.deploy(engine)
        yield found


@pytest.mark.parametrize("engine", ENGINES)
def test_the_role_has_the_actions_that_the_state_machine_needs_and_no_more(account, engine):
    assert sorted({a for s in account.statements(engine, "PipelineRole") for a in actions(s)}) == wanted(engine)


@pytest.mark.parametrize(("engine", "action"), [(e, a) for e in ENGINES for a in wanted(e)])
def test_without_any_one_action_its_call_is_refused_by_name(account, engine, action):
    whole = account.statements(engine, "PipelineRole")
    assert account.refusal(whole, engine, action) == ""
    refused = account.refusal(without(whole, action), engine, action)
    assert action in refused, refused or f"{action} is still allowed"


def test_no_foreign_application_or_job_can_be_started(account):
    serverless, glue = (account.statements(engine, "PipelineRole") for engine in ENGINES)
    action = "emr-serverless:StartJobRun"
    assert action in account.simulated(serverless, "emr-serverless", action, "00other")
    assert "glue:StartJobRun" in account.denied(glue, "glue", ("glue", "start_job_run", {"JobName": "other"}))


def test_the_jobs_role_is_passed_to_emr_serverless_only(account):
    (passes,) = [s for s in account.statements("emr-serverless", "PipelineRole") if "iam:PassRole" in actions(s)]
    assert passes["Condition"] == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}
    assert passes["Resource"].endswith(f":role/{account.out['emr-serverless']['JobRole']}")


def test_the_schedule_may_start_the_pipeline_and_nothing_else(account):
    statements = account.statements("glue", "ScheduleRole")
    assert [actions(s) for s in statements] == [["states:StartExecution"]]
    assert account.refusal(statements, "glue", "states:StartExecution") == ""
    assert "states:ListExecutions" in account.refusal(statements, "glue", "states:ListExecutions")


# --- the jobs


@pytest.fixture(scope="module")
def jobs(account):
    """The statements of the jobs' role, whose trust names a service that MiniStack does not have."""
    return account.statements("emr-serverless", "JobRole")


def test_the_role_of_the_jobs_allows_no_more_than_they_do(account, jobs):
    assert [call for call in NOT_FOR_JOBS if not account.denied(jobs, "emr-serverless", call)] == []
    policy = {(s["Sid"], action) for s in jobs for action in actions(s)}
    assert {key for key in policy if not key[0].startswith("Dms")} == {*CALLS_OF_JOBS, *UNSEEN}


@pytest.mark.parametrize(("sid", "action"), CALLS_OF_JOBS)
def test_without_any_one_action_the_call_of_a_job_is_denied(account, jobs, sid, action):
    call = CALLS_OF_JOBS[sid, action]
    assert account.denied(jobs, "emr-serverless", call) == ""
    assert account.denied(without(jobs, action, sid), "emr-serverless", call)
