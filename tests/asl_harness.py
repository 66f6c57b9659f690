"""The state machine as a deployment has it, run on MiniStack with Python functions in place of the AWS services.

Each Task becomes a message that waits for an answer. MiniStack evaluates the graph and all JSONata. A function of the
test gets the arguments, and returns a result or raises `Refused`. Waits and pauses between retries take no time. Whether
AWS would accept the arguments, `argument_faults` says by botocore's models.
"""

from __future__ import annotations

import copy
import json
import re
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from botocore.session import Session
from botocore.validate import ParamValidator

from aws_emulator import ACCOUNT, REGION, client
from frazil_old.aws import stack_template
from frazil_old.aws.deployment_parameters import Deployment
from frazil_old.config.settings import AwsSettings

ROLE = f"arn:aws:iam::{ACCOUNT}:role/test"


class Refused(Exception):
    """A task fails with this name and cause."""

    def __init__(self, error: str, cause: str = ""):
        super().__init__(error)
        self.error, self.cause = error, cause


@dataclass
class Ended:
    """An execution that ended: its description, the states in their order, the calls of tasks with their arguments."""

    status: str
    error: str = ""
    cause: str = ""
    arn: str = ""
    states: list[str] = field(default_factory=list)
    calls: list[tuple[str, dict]] = field(default_factory=list)

    def arguments(self, state: str) -> list[dict]:
        return [arguments for name, arguments in self.calls if name == state]


def _called_back(definition: dict, queue: str) -> dict:
    changed = copy.deepcopy(definition)
    for name, state in changed["States"].items():
        if state["Type"] == "Task":
            body = {"token": "{% $states.context.Task.Token %}", "state": name, "arguments": state.get("Arguments", {})}
            state["Arguments"] = {"QueueUrl": queue, "MessageBody": body}
            state["Resource"] = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
    return changed


def run(url: str, definition: dict, services: dict[str, Callable], given: dict | None = None, limit_s=120.0) -> Ended:
    """Run the graph to its end. `services` are the functions by the names of the Task states."""
    sfn, sqs = client("stepfunctions", url), client("sqs", url)
    scale = json.dumps({"stepfunctions._SFN_WAIT_SCALE": 0}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}/_ministack/config", scale, {"Content-Type": "application/json"})).close()  # fmt: skip
    name = f"graph{time.time_ns()}"
    queue = sqs.create_queue(QueueName=name)["QueueUrl"]
    graph = json.dumps(_called_back(definition, queue))
    machine = sfn.create_state_machine(name=name, definition=graph, roleArn=ROLE)["stateMachineArn"]
    execution = sfn.start_execution(stateMachineArn=machine, input=json.dumps(given or {}))["executionArn"]
    done, until = Ended("RUNNING", arn=execution), time.monotonic() + limit_s
    while done.status == "RUNNING":
        if time.monotonic() > until:
            sfn.stop_execution(executionArn=execution)
            raise TimeoutError(f"still running: {[state for state, _ in done.calls][-10:]}")
        for message in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", []):
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
            body = json.loads(message["Body"])
            done.calls.append((body["state"], body["arguments"]))
            try:
                answer = services[body["state"]](body["arguments"])
                sfn.send_task_success(taskToken=body["token"], output=json.dumps(answer))
            except Refused as refused:
                sfn.send_task_failure(taskToken=body["token"], error=refused.error, cause=refused.cause)
        described = sfn.describe_execution(executionArn=execution)
        done.status, done.error, done.cause = (described.get(n, "") for n in ("status", "error", "cause"))
    page: dict[str, str] = {}
    while True:
        history = sfn.get_execution_history(executionArn=execution, maxResults=1000, **page)
        done.states += [e["stateEnteredEventDetails"]["name"] for e in history["events"] if "stateEnteredEventDetails" in e]  # fmt: skip
        if "nextToken" not in history:
            return done
        page = {"nextToken": history["nextToken"]}


# --- a usual one

TASK = f"arn:aws:dms:{REGION}:{ACCOUNT}:task:T"
VALUES = {
    "ReplicationTaskArn": TASK, "ApplicationId": "00fabc0123456789", "JobRoleArn": f"arn:aws:iam::{ACCOUNT}:role/job", "Env": "prod",
    "JobFile": "s3://b/job.py", "Runs": "s3://b/runs", "QueueUrl": "https://sqs/q.fifo", "SparkShared": "--conf a=b", "SparkFullLoad": "--conf c=d",
    "SparkChanges": "--conf e=f", "ClusterId": "j-ABC", "FullLoadWorkers": "4", "ChangesWorkers": "2", "MaxPasses": "900", "MaxDays": "30", "SweepEvery": "120", "WaitSeconds": "30",
}  # fmt: skip
ENGINES = ["emr-serverless", "glue", "emr-steps"]


def machine(engine=ENGINES[0], **values) -> dict:
    """Return the definition with its `${…}` replaced, as CloudFormation does."""
    chosen = Deployment(AwsSettings(engine=engine), None, None, None, ()).settings.engine
    text, given = json.dumps(stack_template.definition(chosen)), {**VALUES, **values}
    return json.loads(re.sub(r"\$\{(\w+)\}", lambda m: str(given[m[1]]), text))


def dms(percent=100, finished=True, loading=0, errored=0, **task) -> dict:
    """What DMS answers about the task."""
    stats = {"FullLoadProgressPercent": percent, "TablesLoading": loading, "TablesQueued": 0, "TablesErrored": errored}
    stats |= {"FullLoadFinishDate": "2026-01-01T00:00:00Z"} if finished else {}
    usual = {"Status": "running", "MigrationType": "full-load-and-cdc", "ReplicationTaskStats": stats}
    return {"ReplicationTasks": [{**usual, **task}]}


def turns(*answers) -> Callable:
    """Answer with one after the other, and with the last one from then on; exceptions are raised."""
    left = list(answers)

    def answer(_):
        now = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(now, Exception):
            raise now
        return now

    return answer


def waiting(visible: int, taken: int = 0) -> dict:
    """What SQS answers about the queue."""
    return {"Attributes": {"ApproximateNumberOfMessages": str(visible), "ApproximateNumberOfMessagesNotVisible": str(taken)}}  # fmt: skip


def depth(*numbers) -> Callable:
    return turns(*map(waiting, numbers))


def services(**given) -> dict[str, Callable]:
    job = turns({"JobRunId": "00j"})
    usual = {
        "ListExecutions": turns({"Executions": []}), "DescribeDmsTask": turns(dms()), "QueueDepth": depth(0), "Setup": job, "FullLoad": job,
        "Changes": job, "ContinueAsNew": turns({"ExecutionArn": "new"}),
    }  # fmt: skip
    return {**usual, **given}


JOB_FAILED = Refused("States.TaskFailed", "the job failed")


# --- whether AWS would take the arguments

SERVICES = {"databasemigration": "dms", "elasticmapreduce": "emr", "sfn": "stepfunctions", "states": "stepfunctions"}
"""The names of services in a state machine, and in botocore."""


def argument_faults(resource: str, arguments: dict) -> str:
    """Return what is wrong with the arguments of a task, by botocore's model of its operation."""
    found = re.fullmatch(r"arn:aws:states:::(?:aws-sdk:)?([a-z0-9-]+):(\w+)(\.sync)?", resource)
    if not found:
        return f"no resource: {resource}"
    service, operation, _ = found.groups()
    arguments = dict(arguments)
    if operation == "addStep":  # this integration takes one step
        operation, arguments = "addJobFlowSteps", {"JobFlowId": arguments.pop("ClusterId", None), "Steps": [arguments.pop("Step", None)], **arguments}  # fmt: skip
    try:
        model = Session().get_service_model(SERVICES.get(service, service))
        shape = model.operation_model(operation[0].upper() + operation[1:]).input_shape
    except Exception as error:
        return str(error)
    given = _as_in_the_api(arguments, shape)
    if operation == "startExecution" and isinstance(given.get("input"), dict):
        given["input"] = json.dumps(given["input"])  # this integration takes an object
    report = ParamValidator().validate(given, shape)
    unknown = [] if not isinstance(given, dict) else [n for n in given if n not in shape.members]
    return report.generate_report() if report.has_errors() else f"unknown: {unknown}" if unknown else ""


def _as_in_the_api(value: Any, shape: Any) -> Any:
    """Step Functions writes all names in PascalCase."""
    if shape.type_name == "structure" and isinstance(value, dict):
        members = {m[0].upper() + m[1:]: m for m in shape.members}
        return {members.get(k, k): _as_in_the_api(v, shape.members[members[k]]) if k in members else v for k, v in value.items()}  # fmt: skip
    if shape.type_name == "list" and isinstance(value, list):
        return [_as_in_the_api(v, shape.member) for v in value]
    return value
