"""What the roles of the pipeline and of its schedule allow, for each engine: no action can go unnoticed, and no more is allowed.

MiniStack enforces the policies where it has the service. For EMR Serverless, DMS, PassRole and rules of the default bus,
whose ARNs it writes otherwise than AWS, its simulator decides.
"""

import json
import time

import boto3
import pytest

import aws_emulator
from aws_emulator import ACCOUNT, REGION, client
from aws_graph import ENGINES, TASK, machine
from frazil_old.aws import stack_template
from frazil_old.aws.deployment_parameters import Deployment, Place
from frazil_old.config.settings import AwsSettings

pytestmark = pytest.mark.aws

APPLICATION, CLUSTER = "00fabc0123456789", "j-ABC"
NEEDED = {
    "emr-serverless:startJobRun.sync": [
        "emr-serverless:StartJobRun", "emr-serverless:GetJobRun", "emr-serverless:CancelJobRun", "emr-serverless:TagResource", "iam:PassRole",
        "events:PutTargets", "events:PutRule", "events:DescribeRule",
    ],
    "glue:startJobRun.sync": ["glue:StartJobRun", "glue:GetJobRun", "glue:GetJobRuns", "glue:BatchStopJobRun"],
    "elasticmapreduce:addStep.sync": ["elasticmapreduce:AddJobFlowSteps", "elasticmapreduce:DescribeStep", "elasticmapreduce:CancelSteps"],
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
    "elasticmapreduce:AddJobFlowSteps": ("emr", "add_job_flow_steps", {"JobFlowId": CLUSTER, "Steps": []}),
    "elasticmapreduce:DescribeStep": ("emr", "describe_step", {"ClusterId": CLUSTER, "StepId": "s-A"}),
    "elasticmapreduce:CancelSteps": ("emr", "cancel_steps", {"ClusterId": CLUSTER, "StepIds": ["s-A"]}),
    "sqs:GetQueueAttributes": ("sqs", "get_queue_attributes", {"QueueUrl": "of the stack"}),
    "states:StartExecution": ("stepfunctions", "start_execution", {"stateMachineArn": "of the stack"}),
    "states:ListExecutions": ("stepfunctions", "list_executions", {"stateMachineArn": "of the stack"}),
    "logs:DescribeLogGroups": ("logs", "describe_log_groups", {}), "logs:DescribeResourcePolicies": ("logs", "describe_resource_policies", {}),
    "logs:PutResourcePolicy": ("logs", "put_resource_policy", {"policyName": "a", "policyDocument": "{}"}),
}  # fmt: skip
"""A call for each action that MiniStack enforces."""


def actions(statement: dict) -> list[str]:
    return [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]


def wanted(engine: str) -> list[str]:
    """The actions that the tasks of an engine's state machine need, and those for logs."""
    resources = {s["Resource"].removeprefix("arn:aws:states:::") for s in machine(engine)["States"].values() if s["Type"] == "Task"}  # fmt: skip
    return sorted({action for r in resources for action in NEEDED[r]} | {f"logs:{name}" for name in LOG})


class Account:
    """An account with a stack for each engine; a user gets the policies of a role."""

    def __init__(self, url: str):
        self.url, self.iam = url, client("iam", url)
        self.out: dict[str, dict[str, str]] = {}
        self.iam.create_user(UserName="pipeline")
        self.key = self.iam.create_access_key(UserName="pipeline")["AccessKey"]
        self.iam.create_role(RoleName="emr-machines", AssumeRolePolicyDocument="{}")

    def deploy(self, engine: str) -> None:
        own = {"emr-serverless": {"application": APPLICATION}, "emr-steps": {"cluster": CLUSTER}}.get(engine, {})
        settings = AwsSettings(env=engine, region=REGION, engine=engine, replication_task=TASK, **own)
        deployment = Deployment(settings, Place("src", "dms"), Place("lake", "lake"), Place("art", engine), ("shop",))
        given = deployment.parameters(ACCOUNT, "aws", dict.fromkeys(("driver", "workbook", "job"), "s3://b/x"), "emr-machines")  # fmt: skip
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
        """What a call of the action is refused with, by a user with these statements; empty if it is allowed."""
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        if action not in CALLS:
            return self._simulated(policy, engine, action)
        self.iam.put_user_policy(UserName="pipeline", PolicyName="p", PolicyDocument=policy)
        service, operation, given = CALLS[action]
        own = {"QueueUrl": self.out[engine]["Queue"].replace("localhost", "127.0.0.1"), "stateMachineArn": self.out[engine]["Pipeline"]}  # fmt: skip
        keys = {"aws_access_key_id": self.key["AccessKeyId"], "aws_secret_access_key": self.key["SecretAccessKey"]}
        as_user = boto3.client(service, endpoint_url=self.url, region_name=REGION, **keys)
        try:
            getattr(as_user, operation)(**{name: own.get(name, value) for name, value in given.items()})
        except as_user.exceptions.ClientError as error:
            return str(error) if "AccessDenied" in str(error) else ""
        return ""

    def _simulated(self, policy: str, engine: str, action: str) -> str:
        of = f"arn:aws:emr-serverless:{REGION}:{ACCOUNT}:/applications/{APPLICATION}"
        role = f"arn:aws:iam::{ACCOUNT}:role/{self.out[engine].get('JobRole')}"
        rule = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/StepFunctionsGetEventsForEMRServerlessJobRule"
        named = {"emr-serverless:StartJobRun": of, "iam:PassRole": role} | dict.fromkeys((a for a in wanted(engine) if a.startswith("events:")), rule)  # fmt: skip
        resource = named.get(action, f"{of}/jobruns/00j")
        policy = policy.replace(
            '"Condition"', '"Sid2"'
        )  # the simulator knows no context; a test of its own looks at it
        told = self.iam.simulate_custom_policy(PolicyInputList=[policy], ActionNames=[action], ResourceArns=[resource])
        (found,) = told["EvaluationResults"]
        return "" if found["EvalDecision"] == "allowed" else f"{found['EvalDecision']}: {found['EvalActionName']}"


@pytest.fixture(scope="module")
def account():
    with aws_emulator.running(AUTH="true") as url:
        found = Account(url)
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
    less = [{**s, "Action": [a for a in actions(s) if a != action]} for s in whole]
    refused = account.refusal([s for s in less if s["Action"]], engine, action)
    assert action in refused, refused or f"{action} is still allowed"


FOREIGN = {"glue": ("glue:StartJobRun", {"JobName": "other"}), "emr-steps": ("elasticmapreduce:AddJobFlowSteps", {"JobFlowId": "j-OTHER", "Steps": []})}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_no_foreign_application_job_or_cluster_can_be_started(account, engine, monkeypatch):
    whole = account.statements(engine, "PipelineRole")
    if engine in FOREIGN:
        action, given = FOREIGN[engine]
        monkeypatch.setitem(CALLS, action, (*CALLS[action][:2], given))
    else:
        action = "emr-serverless:StartJobRun"
        monkeypatch.setitem(globals(), "APPLICATION", "00other")
    assert action in account.refusal(whole, engine, action)


def test_the_jobs_role_is_passed_to_emr_serverless_only(account):
    (passes,) = [s for s in account.statements("emr-serverless", "PipelineRole") if "iam:PassRole" in actions(s)]
    assert passes["Condition"] == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}
    assert passes["Resource"].endswith(f":role/{account.out['emr-serverless']['JobRole']}")


def test_the_schedule_may_start_the_pipeline_and_nothing_else(account):
    statements = account.statements("glue", "ScheduleRole")
    assert [actions(s) for s in statements] == [["states:StartExecution"]]
    assert account.refusal(statements, "glue", "states:StartExecution") == ""
    assert "states:ListExecutions" in account.refusal(statements, "glue", "states:ListExecutions")
