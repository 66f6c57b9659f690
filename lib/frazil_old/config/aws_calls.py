"""Calls to AWS that several packages make: errors in one line with their remedy, and the description of a DMS task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from frazil_old.errors import FrazilError

TASK_ARN = re.compile(r"arn:[\w-]+:dms:([\w-]+):\d{12}:(task|replication-config):[\w-]+")
"""The ARN of a DMS task, or of a serverless replication."""
LOGIN = "log in: aws configure sso, or set AWS_PROFILE"


@contextmanager
def explained(error: type[FrazilError], what: str, cures: Mapping[str, str], or_else: str = "") -> Iterator[None]:
    """Turn what boto3 raises into `error`, which names the cause and the remedy.

    `cures` has remedies by the start of an error's code; `or_else` ends each remedy.
    """
    try:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
    except ImportError:
        raise error("boto3 is not installed", f"pip install 'frazil[workbook]'{or_else}") from None
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError):
        raise error("no AWS credentials were found", f"{LOGIN}{or_else}") from None
    except ClientError as e:
        code, message = code_of(e), e.response["Error"]["Message"]
        cure = next((cure for start, cure in cures.items() if code.startswith(start)), "correct what it names")
        raise error(f"{what}: {code}: {message}", f"{cure}{or_else}") from None
    except BotoCoreError as e:
        raise error(f"{what}: {e}", f"check the region and the network, and run again{or_else}") from None


def code_of(error: Exception) -> str:
    """Return the code of an error of AWS."""
    return getattr(error, "response", {}).get("Error", {}).get("Code", "")


def describe_task(dms: Any, arn: str) -> dict[str, Any] | None:
    """Return what DMS says of a task or a serverless replication; None if it knows none."""
    kind = "replication-config" if ":replication-config:" in arn else "replication-task"
    filters = [{"Name": f"{kind}-arn", "Values": [arn]}]
    try:
        if kind == "replication-config":
            found = dms.describe_replications(Filters=filters)["Replications"]
        else:
            found = dms.describe_replication_tasks(Filters=filters, WithoutSettings=True)["ReplicationTasks"]
    except Exception as e:
        if not code_of(e).startswith("ResourceNotFound"):
            raise
        return None
    return found[0] if found else None
