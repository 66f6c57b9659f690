"""The state machine as a deployment has it, and what its tasks usually answer, for `asl_harness.run`."""

from collections.abc import Callable

from asl_harness import Refused, substituted
from aws_emulator import ACCOUNT, REGION
from frazil_old.aws import stack_template
from frazil_old.aws.deployment_parameters import Deployment
from frazil_old.config.settings import AwsSettings

TASK = f"arn:aws:dms:{REGION}:{ACCOUNT}:task:T"
VALUES = {
    "ReplicationTaskArn": TASK, "ApplicationId": "00fabc0123456789", "JobRoleArn": f"arn:aws:iam::{ACCOUNT}:role/job", "Env": "prod",
    "JobFile": "s3://b/job.py", "Runs": "s3://b/runs", "QueueUrl": "https://sqs/q.fifo", "SparkShared": "--conf a=b", "SparkFullLoad": "--conf c=d",
    "SparkChanges": "--conf e=f", "ClusterId": "j-ABC", "FullLoadWorkers": "4", "ChangesWorkers": "2", "MaxPasses": "900", "MaxDays": "30", "SweepEvery": "120", "WaitSeconds": "30",
}  # fmt: skip
ENGINES = ["emr-serverless", "glue", "emr-steps"]


def machine(engine=ENGINES[0], **values) -> dict:
    deployment = Deployment(AwsSettings(engine=engine), None, None, None, ())
    return substituted(stack_template.definition(deployment.settings.engine), **{**VALUES, **values})


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
