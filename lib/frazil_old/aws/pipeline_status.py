"""What the pipeline of an environment does: its executions, its queue, the load of its DMS task, and its newest runs."""

from __future__ import annotations

import json
import time
from typing import Any

from frazil_old.aws import deploy_stack
from frazil_old.aws.cloud import Cloud, aws_errors_explained
from frazil_old.aws.deployment_parameters import AwsError, Deployment
from frazil_old.config.aws_calls import describe_task
from frazil_old.errors import many

SHOWN = 3
"""How many executions, and how many runs, are shown."""


def progress(cloud: Cloud, deployment: Deployment) -> tuple[list[str], bool]:
    """Return lines about the pipeline, and whether its newest execution has not failed."""
    found = deploy_stack.outputs(cloud, deployment)
    lines = [f"stack {deployment.name}: {deploy_stack.state(cloud, deployment.name)['StackStatus']}"]
    with aws_errors_explained("the pipeline"):
        states = cloud.client("stepfunctions")
        executions = states.list_executions(stateMachineArn=found["Pipeline"], maxResults=SHOWN)["executions"]
    lines += [_execution(states, each) for each in executions] or ["no execution yet"]
    lines += [_queue(cloud, found["Queue"]), *_task(cloud, deployment), *_runs(cloud, deployment)]
    return lines, not executions or executions[0]["status"] in ("RUNNING", "SUCCEEDED")


def _execution(states: Any, execution: dict[str, Any]) -> str:
    """Return a line about an execution: since when, at which state, and why it failed."""
    begun = f"{execution['startDate']:%Y-%m-%d %H:%M:%S%z}"
    line = f"execution {execution['name'][:12]} of {begun}: {execution['status']}"
    with aws_errors_explained("the execution"):
        if execution["status"] == "RUNNING":
            newest = states.get_execution_history(
                executionArn=execution["executionArn"], reverseOrder=True, maxResults=20
            )
            at = [e["stateEnteredEventDetails"]["name"] for e in newest["events"] if "stateEnteredEventDetails" in e]
            return f"{line}, in {at[0]}" if at else line
        if execution["status"] != "SUCCEEDED":
            found = states.describe_execution(executionArn=execution["executionArn"])
            return f"{line}: {found.get('error', '')}: {found.get('cause', '')}".rstrip(": ")
    return line


def _queue(cloud: Cloud, url: str) -> str:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    with aws_errors_explained("the queue"):
        found = cloud.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return f"queue: {many(int(found[names[0]]), 'event')} waiting, {found[names[1]]} with a job"


def _task(cloud: Cloud, deployment: Deployment) -> list[str]:
    """Return a line about the DMS task; none if no task is named."""
    if not (arn := deployment.settings.replication_task):
        return []
    try:
        with aws_errors_explained("DMS"):
            task = describe_task(cloud.client("dms"), arn)
    except AwsError as e:
        return [f"DMS task: unknown: {e.problem}"]
    if task is None:
        return ["DMS task: DMS does not know it, or it has never been started"]
    stats = task.get("ReplicationTaskStats") or task.get("ReplicationStats") or {}
    loaded, errored = stats.get("FullLoadProgressPercent", "?"), stats.get("TablesErrored", 0)
    return [f"DMS task: {task.get('Status')}, {loaded} % loaded, {many(errored, 'table')} with errors"]


def _runs(cloud: Cloud, deployment: Deployment) -> list[str]:
    """Return a line about each of the newest runs, by their records on S3, newest first."""
    place = deployment.artifacts.under("runs")
    given = {"Bucket": place.bucket, "Prefix": f"{place.prefix}/"}
    found = [o for o in cloud.pages("s3", "list_objects_v2", "Contents", **given) if o["Key"].endswith("/run.json")]
    newest = sorted(found, key=lambda o: o["LastModified"], reverse=True)[:SHOWN]
    with aws_errors_explained(str(place)):
        s3 = cloud.client("s3")
        bodies = [s3.get_object(Bucket=place.bucket, Key=o["Key"])["Body"].read() for o in newest]
    return [_run(json.loads(body)) for body in bodies] or ["no run yet"]


def _run(record: dict[str, Any]) -> str:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.get("began", 0)))
    line = f"run {record.get('notebook')} of {began} UTC: {record.get('outcome')}, {record.get('seconds') or 0:,.0f} s"
    if record.get("rows"):
        line += f", {many(record['rows'], 'row')}"
    if record.get("worst_lag_s"):
        line += f", source to lake in at most {record['worst_lag_s']:,.0f} s"
    cause = (record.get("cause") or "").split("\n")[0]
    return f"{line}: {cause}" if cause else line
