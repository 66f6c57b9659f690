"""Whether DMS has completed the load of a table, by the statistics that it keeps: from a JSON file, or asked from DMS itself."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_pascal

from frazil.dms.aws_documents import find, read
from frazil.errors import FrazilError
from frazil.settings.settings_model import SettingError, Settings

TASK = re.compile(r"dms:(arn:[\w-]+:dms:([\w-]+):\d{12}:(task|replication-config):[\w-]+)")
"""The setting that names a task, or a serverless one."""
CALLS = {
    "task": ("describe_replication_tasks", "describe_table_statistics", "replication-task-arn"),
    "replication-config": ("describe_replications", "describe_replication_table_statistics", "replication-config-arn"),
}
"""For each kind of task: the calls for its state and for its tables, and the name of its ARN."""
STATISTICS = ("TableStatistics", "ReplicationTableStatistics")
ASK_AGAIN_S = 5.0
"""How long an answer of DMS about all tables counts."""
FAILED = re.compile("FATAL_ERROR|LOW_MEMORY|LOW_DISK|error|cancel|failed", re.IGNORECASE)
"""What a state has that does not go on by itself."""


class DmsSilentError(FrazilError, code="dms-silent"):
    """DMS does not say how far a task is. Allow the actions that the message names, and correct the task's name."""


@dataclass(frozen=True)
class Statistics:
    """What DMS says of loads, by source table, as it names them; `task`: the state of the task, if it is known."""

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


class LoadGate:
    """Says which loads wait for DMS, as far as it said so lately."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.ask_again()

    def ask_again(self) -> None:
        """Forget what DMS said, as a run begins."""
        self._said: Statistics | None = None
        self._asked_s = -ASK_AGAIN_S

    def waits(self, table: str) -> str:
        """Return why DMS says that the load of a source table is not complete; empty if it does not say so."""
        if time.monotonic() - self._asked_s > ASK_AGAIN_S:
            self._said, self._asked_s = statistics(self.settings), time.monotonic()
        return self._said.waits(table) if self._said else ""

    def loaded_rows(self, table: str) -> int:
        """Return how many rows DMS said that it loaded; 0: it said nothing."""
        said = self._said.tables.get(table, {}) if self._said else {}
        return int(said.get("FullLoadRows") or 0)


def statistics(settings: Settings) -> Statistics | None:
    """Return the statistics that `load_complete_when` names; None if it names none, or a task that only copies changes."""
    named = settings.load_complete_when
    if not named:
        return None
    if named.startswith("dms:"):
        return _asked(named)
    file, cure = Path(settings.place("load_complete_when")), "save what aws dms describe-table-statistics prints"
    return Statistics(_by_table(find(read(file), file, *STATISTICS, cure=cure)))


def _asked(named: str) -> Statistics | None:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    if not (found := TASK.fullmatch(named)):
        cure = "write dms: and the ARN that aws dms describe-replication-tasks prints"
        raise SettingError(f"load_complete_when: '{named}' names no task", cure)
    arn, region, kind = found.groups()
    describe, describe_tables, name = CALLS[kind]
    entries, page = list[dict[str, Any]](), {to_pascal(name.replace("-", "_")): arn}
    try:
        dms = boto3.client("dms", region_name=region)
        answer = getattr(dms, describe)(Filters=[{"Name": name, "Values": [arn]}])
        task: dict[str, Any] = next(iter(find(answer, arn, "ReplicationTasks", "Replications") or ()), {})
        if "cdc" in (task.get("MigrationType"), task.get("ReplicationType")):
            return None
        while page.get("Marker") != "":
            answer = getattr(dms, describe_tables)(**page)
            entries += find(answer, arn, *STATISTICS) or ()
            page["Marker"] = answer.get("Marker") or ""
    except (BotoCoreError, ClientError) as error:
        actions = " and ".join(f"dms:{to_pascal(call)}" for call in (describe, describe_tables))
        cure = f"log in, allow {actions}, correct the ARN, or name a JSON file of the statistics"
        raise DmsSilentError(f"DMS does not answer about {arn}: {error}", cure) from error
    said = (task.get(name) for name in ("Status", "StopReason", "LastFailureMessage"))
    return Statistics(_by_table(entries), ", ".join(text for text in (*said, *task.get("FailureMessages", ())) if text))


def _by_table(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{entry['SchemaName']}.{entry['TableName']}": entry for entry in entries}
