"""Whether DMS has completed the load of a table, by the statistics that it keeps: from a JSON file, or asked from DMS itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_pascal

from frazil.dms.documents import find, read
from frazil.errors import FrazilError
from frazil.settings.parameters import SettingError, Settings

TASK = re.compile(r"dms:(arn:[\w-]+:dms:([\w-]+):\d{12}:(task|replication-config):[\w-]+)")
"""The setting that names a task, or a serverless one."""
CALLS = {
    "task": ("describe_replication_tasks", "describe_table_statistics", "replication-task-arn", "ReplicationTaskArn"),
    "replication-config": ("describe_replications", "describe_replication_table_statistics", "replication-config-arn", "ReplicationConfigArn"),
}  # fmt: skip
"""For each kind of task: the calls for its state and its tables, and how each names the task."""
STATISTICS = ("TableStatistics", "ReplicationTableStatistics")
FAILED = re.compile("FATAL_ERROR|LOW_MEMORY|LOW_DISK|error|cancel|failed", re.IGNORECASE)
"""What a state has that does not go on by itself."""


class DmsSilentError(FrazilError, code="dms-silent"):
    """DMS does not say how far a task is. Allow the actions that the message names, and correct the task's name."""


@dataclass(frozen=True)
class LoadGate:
    """The statistics by source table, as DMS names them; `task`: the state of the task, if it is known."""

    tables: dict[str, dict[str, Any]]
    task: str = ""

    def waits(self, table: str) -> str:
        """Return why the load of a source table is not complete, and what to do; empty if it is complete."""
        state = self.tables.get(table, {}).get("TableState") or ""
        if state.lower() == "table completed":
            return ""
        cure = "mend the task and resume it" if FAILED.search(self.task) else "run again when its load is completed"
        cure = "reload the table in DMS" if FAILED.search(state) else cure
        reported = f"reports '{state}'" if state else "does not know the table"
        return f"DMS {reported}{f'; the task is {self.task}' if self.task else ''}: {cure}"


def load_gate(settings: Settings) -> LoadGate | None:
    """Return the gate that `load_complete_when` names; None if it names none, or a task that only copies changes."""
    named = settings.load_complete_when
    if not named:
        return None
    if not named.startswith("dms:"):
        file = Path(settings.place("load_complete_when"))
        cure = "save what aws dms describe-table-statistics prints"
        return LoadGate(_by_table(find(read(file), file, *STATISTICS, cure=cure)))
    if not (found := TASK.fullmatch(named)):
        cure = "write dms: and the ARN that aws dms describe-replication-tasks prints"
        raise SettingError(f"load_complete_when: '{named}' names no task", cure)
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    arn, region, kind = found.groups()
    try:
        return _asked(boto3.client("dms", region_name=region), arn, *CALLS[kind])
    except (BotoCoreError, ClientError) as error:
        actions = " and ".join(f"dms:{to_pascal(call)}" for call in CALLS[kind][:2])
        cure = f"log in, allow {actions}, correct the ARN, or name a JSON file of the statistics"
        raise DmsSilentError(f"DMS does not answer about {arn}: {error}", cure) from error


def _asked(dms: Any, arn: str, describe: str, describe_tables: str, filtered: str, named: str) -> LoadGate | None:
    answer = getattr(dms, describe)(Filters=[{"Name": filtered, "Values": [arn]}])
    task: dict[str, Any] = next(iter(find(answer, arn, "ReplicationTasks", "Replications") or ()), {})
    if "cdc" in (task.get("MigrationType"), task.get("ReplicationType")):
        return None
    entries: list[dict[str, Any]] = []
    page = {named: arn}
    while page:
        answer = getattr(dms, describe_tables)(**page)
        entries += find(answer, arn, *STATISTICS) or ()
        page = {named: arn, "Marker": answer["Marker"]} if answer.get("Marker") else {}
    said = (task.get(name) for name in ("Status", "StopReason", "LastFailureMessage"))
    return LoadGate(_by_table(entries), ", ".join(text for text in (*said, *task.get("FailureMessages", ())) if text))


def _by_table(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{entry['SchemaName']}.{entry['TableName']}": entry for entry in entries}
