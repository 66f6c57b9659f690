"""The stack of an environment: made and changed by change sets that are shown first, and removed without a rest."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from frazil_old.aws import stack_template
from frazil_old.aws.cloud import Cloud, aws_errors_explained
from frazil_old.aws.deployment_parameters import TAG, AwsError, Deployment, Place
from frazil_old.config.aws_calls import code_of, describe_task

READY = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE")
"""The states in which a stack can be changed."""
POLL_S, LONGEST_S = 2.0, 1800.0


def state(cloud: Cloud, name: str) -> dict[str, Any]:
    """Return a stack's description; empty if it does not exist."""
    with aws_errors_explained("the stack"):
        try:
            return cloud.client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
        except Exception as e:
            if code_of(e) == "ValidationError" and "does not exist" in str(e):
                return {}
            raise


def outputs(cloud: Cloud, deployment: Deployment) -> dict[str, str]:
    """Return a stack's outputs; raise AwsError if it is not deployed."""
    found = state(cloud, deployment.name)
    if not found:
        raise AwsError(f"{deployment.name} is not deployed", f"frazil aws up --env {deployment.settings.env}")
    return {o["OutputKey"]: o["OutputValue"] for o in found.get("Outputs", ())}


def require_changeable(cloud: Cloud, deployment: Deployment) -> bool:
    """Return whether a stack exists that can be changed; raise AwsError if it is in a state that forbids it."""
    found = state(cloud, deployment.name)
    status = found.get("StackStatus", "")
    if status in ("", "REVIEW_IN_PROGRESS"):
        return False
    if status.endswith("_IN_PROGRESS"):
        raise AwsError(f"{deployment.name} is in state {status}", "wait until AWS has finished, and run again")
    if status not in READY:
        again = f"frazil aws down --env {deployment.settings.env}, then up again: tables and source files stay"
        raise AwsError(f"{deployment.name} is in state {status}: {found.get('StackStatusReason', '')}", again)
    return True


def require_buckets(cloud: Cloud, deployment: Deployment) -> None:
    """Raise AwsError for a bucket that does not exist or is in another region."""
    for place in (deployment.source, deployment.lake, deployment.artifacts):
        try:
            with aws_errors_explained(f"bucket {place.bucket}"):
                found = cloud.client("s3").get_bucket_location(Bucket=place.bucket)["LocationConstraint"]
        except AwsError as e:
            if "NoSuchBucket" in e.problem:
                raise AwsError(f"there is no bucket {place.bucket}", "correct the name, or create the bucket") from None
            raise
        region = {None: "us-east-1", "": "us-east-1", "EU": "eu-west-1"}.get(found, found)
        if region != cloud.region:
            raise AwsError(
                f"bucket {place.bucket} is in {region}, not in {cloud.region}",
                "write that region into section aws, or take a bucket of this region",
            )


def require_task(cloud: Cloud, deployment: Deployment) -> None:
    """Raise AwsError if DMS does not know the task."""
    arn = deployment.settings.replication_task
    if not arn:
        return
    dms = cloud.client("dms")
    with aws_errors_explained(f"DMS task {arn}"):
        if ":replication-config:" in arn:  # before its first start, DMS describes only its configuration
            filters = [{"Name": "replication-config-arn", "Values": [arn]}]
            known = dms.describe_replication_configs(Filters=filters)["ReplicationConfigs"]
        else:
            known = describe_task(dms, arn)
    if not known:
        raise AwsError(f"DMS knows no task {arn}", "correct replication_task in section aws, or its account and region")


def cluster_role(cloud: Cloud, deployment: Deployment) -> str:
    """Return the role of the cluster's machines; raise AwsError if the cluster does not run."""
    name = deployment.settings.cluster
    if not name:
        return "none"
    with aws_errors_explained(f"cluster {name}"):
        found = cloud.client("emr").describe_cluster(ClusterId=name)["Cluster"]
        if (status := found["Status"]["State"]) not in ("STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING"):
            raise AwsError(f"cluster {name} is in state {status}", "name a running cluster in section aws")
        profile = found["Ec2InstanceAttributes"]["IamInstanceProfile"].rsplit("/", 1)[-1]
        roles = cloud.client("iam").get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Roles"]
    return roles[0]["RoleName"]


def change_set(cloud: Cloud, deployment: Deployment, parameters: dict[str, str]) -> tuple[str, list[dict[str, str]]]:
    """Make a change set; return its name and its changes. No changes: it is deleted again."""
    exists = require_changeable(cloud, deployment)
    formation, name = cloud.client("cloudformation"), f"frazil-{time.time_ns()}"
    at = {"StackName": deployment.name, "ChangeSetName": name}
    with aws_errors_explained("the change set"):
        formation.create_change_set(
            **at,
            ChangeSetType="UPDATE" if exists else "CREATE",
            TemplateBody=stack_template.template(deployment.settings.engine),
            Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()],
            Capabilities=["CAPABILITY_IAM"],
            Tags=[{"Key": TAG, "Value": deployment.settings.env}],
        )
        described = _awaited(lambda: formation.describe_change_set(**at), "Status")
    reason = described.get("StatusReason", "")
    if described["Status"] == "FAILED":
        drop_change_set(cloud, deployment, name)
        if "didn't contain changes" in reason or "No updates" in reason:
            return "", []
        raise AwsError(f"CloudFormation refuses the template: {reason}", "correct what it names, and run again")
    changes = [c["ResourceChange"] for c in described.get("Changes", ())]
    return name, [{n: c.get(n, "") for n in ("Action", "LogicalResourceId", "ResourceType", "Replacement")} for c in changes]  # fmt: skip


def drop_change_set(cloud: Cloud, deployment: Deployment, name: str) -> None:
    """Delete a change set, and the empty stack that only a change set has made."""
    formation = cloud.client("cloudformation")
    with aws_errors_explained("the change set"):
        formation.delete_change_set(StackName=deployment.name, ChangeSetName=name)
    if state(cloud, deployment.name).get("StackStatus") == "REVIEW_IN_PROGRESS":
        delete_stack(cloud, deployment)


def carry_out(cloud: Cloud, deployment: Deployment, name: str, say: Callable[[str], None]) -> None:
    """Execute a change set and wait for its end; raise AwsError with the first cause if it fails."""
    formation = cloud.client("cloudformation")
    with aws_errors_explained("the stack"):
        formation.execute_change_set(StackName=deployment.name, ChangeSetName=name)
    done = _awaited(lambda: state(cloud, deployment.name), "StackStatus", say)
    if done["StackStatus"] not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
        events = cloud.pages("cloudformation", "describe_stack_events", "StackEvents", StackName=deployment.name)
        failed = [e for e in events if e["ResourceStatus"].endswith("_FAILED")]
        first = failed[-1] if failed else {"LogicalResourceId": deployment.name}
        raise AwsError(
            f"{first['LogicalResourceId']} failed: {first.get('ResourceStatusReason', done['StackStatus'])}",
            f"correct what it names; frazil aws down --env {deployment.settings.env} removes what was made",
        )


def _awaited(look: Callable[[], dict[str, Any]], key: str, say: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Return a description once its state is final; `say` gets each new state."""
    until, before = time.monotonic() + LONGEST_S, ""
    while time.monotonic() < until:
        found = look()
        status = found.get(key, "")
        if say and status and status != before:
            say(status)
        before = status
        if not status.endswith(("_IN_PROGRESS", "_PENDING")):
            return found
        time.sleep(POLL_S)
    raise AwsError(f"AWS has not finished after {LONGEST_S / 60:.0f} minutes", "look at the stack in the console")


# --- the bucket's events


def events_are_on(cloud: Cloud, bucket: str) -> bool:
    """Return whether a bucket sends its events to EventBridge."""
    with aws_errors_explained(f"bucket {bucket}"):
        found = cloud.client("s3").get_bucket_notification_configuration(Bucket=bucket)
    return "EventBridgeConfiguration" in found


def turn_events_on(cloud: Cloud, bucket: str) -> None:
    """Let a bucket send its events to EventBridge, and keep its other notifications."""
    s3 = cloud.client("s3")
    with aws_errors_explained(f"bucket {bucket}"):
        found = s3.get_bucket_notification_configuration(Bucket=bucket)
        kept = {n: v for n, v in found.items() if n.endswith("Configurations")}
        given = {**kept, "EventBridgeConfiguration": {}}
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=given)


# --- files on S3


def objects(cloud: Cloud, place: Place) -> list[str]:
    """Return the keys in a folder."""
    given = {"Bucket": place.bucket, "Prefix": f"{place.prefix}/"}
    return [entry["Key"] for entry in cloud.pages("s3", "list_objects_v2", "Contents", **given)]


def _parts(keys: list[str], size: int = 1000) -> Iterator[list[str]]:
    yield from (keys[at : at + size] for at in range(0, len(keys), size))


def delete_objects(cloud: Cloud, place: Place, keys: list[str]) -> None:
    """Delete objects of a folder."""
    for part in _parts(keys):
        with aws_errors_explained(f"bucket {place.bucket}"):
            entries = [{"Key": key} for key in part]
            answer = cloud.client("s3").delete_objects(Bucket=place.bucket, Delete={"Objects": entries, "Quiet": True})
        for failed in answer.get("Errors", ()):
            raise AwsError(f"{failed['Key']} cannot be deleted: {failed['Message']}", "allow s3:DeleteObject")


# --- executions and the end


def running(cloud: Cloud, pipeline: str) -> list[dict[str, Any]]:
    """Return the executions that run."""
    given = {"stateMachineArn": pipeline, "statusFilter": "RUNNING"}
    return cloud.pages("stepfunctions", "list_executions", "executions", **given)


def stop(cloud: Cloud, executions: Iterable[dict[str, Any]]) -> None:
    """Stop executions; Step Functions cancels their jobs."""
    for each in executions:
        with aws_errors_explained("the execution"):
            cloud.client("stepfunctions").stop_execution(executionArn=each["executionArn"], cause="frazil aws down")


def delete_stack(cloud: Cloud, deployment: Deployment, say: Callable[[str], None] | None = None) -> None:
    """Delete the stack, and wait until it is gone."""
    with aws_errors_explained("the stack"):
        cloud.client("cloudformation").delete_stack(StackName=deployment.name)
    left = _awaited(lambda: state(cloud, deployment.name), "StackStatus", say)
    if left and left["StackStatus"] != "DELETE_COMPLETE":
        raise AwsError(
            f"{deployment.name} is in state {left['StackStatus']}: {left.get('StackStatusReason', '')}",
            "correct what it names, and run down again",
        )


def left_over(cloud: Cloud, env: str, looks: int = 10) -> list[str]:
    """Return the ARNs of what still has the environment's tag.

    AWS lists deleted resources for a while, so it looks several times.
    """
    found: list[str] = []
    for look in range(looks):
        time.sleep(POLL_S * min(look, 1))
        filters = [{"Key": TAG, "Values": [env]}]
        entries = cloud.pages("resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", TagFilters=filters)
        found = sorted(entry["ResourceARN"] for entry in entries)
        if not found:
            break
    return found


def definition_problems(cloud: Cloud, deployment: Deployment) -> list[str]:
    """Let AWS itself check the template and the state machine; return what it finds."""
    with aws_errors_explained("the template"):
        cloud.client("cloudformation").validate_template(
            TemplateBody=stack_template.template(deployment.settings.engine)
        )
    definition = json.dumps(stack_template.definition(deployment.settings.engine))
    with aws_errors_explained("the state machine"):
        found = cloud.client("stepfunctions").validate_state_machine_definition(definition=definition)
    return [f"{d['code']}: {d['message']}" for d in found.get("diagnostics", ()) if d["severity"] == "ERROR"]


def stop_application(cloud: Cloud, application: str) -> None:
    """Stop an EMR Serverless application and its jobs: a started one cannot be deleted."""
    emr = cloud.client("emr-serverless")
    alive = ["SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "QUEUED"]
    with aws_errors_explained("the application"):
        for job in emr.list_job_runs(applicationId=application, states=alive)["jobRuns"]:
            emr.cancel_job_run(applicationId=application, jobRunId=job["id"])
        emr.stop_application(applicationId=application)
        until = time.monotonic() + LONGEST_S
        while emr.get_application(applicationId=application)["application"]["state"] not in ("STOPPED", "CREATED"):
            if time.monotonic() > until:
                raise AwsError(f"application {application} does not stop", "stop it in the console, and run down again")
            time.sleep(POLL_S)
