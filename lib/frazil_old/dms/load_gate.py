"""Whether DMS has completed a table's full load, by its table statistics: from a JSON file, or asked from DMS itself.

Without it, a load is taken as it is; changes wait for their table's load in any case (`flows.cdc`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from frazil_old.config.aws_calls import TASK_ARN, describe_task, explained
from frazil_old.config.settings import ParameterError, Settings
from frazil_old.dms.aws_json import TableStatistics, read_statistics, statistics_by_table
from frazil_old.errors import FrazilError

ASK = "dms:"
"""Begins the parameter that names the task to ask about, by its ARN."""
CURES = {"": "allow dms:DescribeReplicationTasks and dms:DescribeTableStatistics"}
_FAILED = re.compile("FATAL_ERROR|LOW_MEMORY|LOW_DISK|failed", re.I)


class DmsTaskError(FrazilError):
    """DMS cannot be asked about a task."""


@dataclass(frozen=True)
class LoadGate:
    """The statistics by source table, and the state of the task."""

    tables: dict[str, TableStatistics]
    task: str = ""

    def waits(self, table: str) -> str:
        """Return why a table's load is not complete; empty if it is."""
        known = self.tables.get(table)
        if known and known.loaded:
            return ""
        of_task = f"; the task is {self.task}" if self.task else ""
        if known and known.failed:
            return f"DMS reports '{known.state}' for its load{of_task}: reload the table in DMS"
        state = f"'{known.state}'" if known else "nothing about it"
        cure = ": mend the task and resume it" if _FAILED.search(self.task) else ""
        return f"DMS's statistics do not call the table completed, but {state}{of_task}{cure}"

    def rows(self, table: str) -> int | None:
        """Return how many rows DMS loaded into a table; None if it is unknown."""
        return self.tables[table].full_load_rows if table in self.tables else None


def load_gate(settings: Settings) -> LoadGate | None:
    """Return the gate that `load_complete_when` names; None if it names none, or if the task only copies changes."""
    named = getattr(settings, "load_complete_when", "changes")
    if named in ("changes", "declared"):
        return None
    if named.startswith(ASK):
        return ask(named.removeprefix(ASK))
    return LoadGate(read_statistics(settings.path("load_complete_when")))


def ask(arn: str) -> LoadGate | None:
    """Ask DMS for a task's state and the statistics of all its tables; None if the task only copies changes."""
    found = TASK_ARN.fullmatch(arn)
    if not found:
        raise ParameterError(
            f"load_complete_when = '{ASK}{arn}' names no task",
            f"write {ASK} and the ARN that aws dms describe-replication-tasks prints",
        )
    with explained(DmsTaskError, f"DMS does not answer about {arn}", CURES, ", or name a JSON file"):
        import boto3

        dms = boto3.client("dms", region_name=found[1])
        task = describe_task(dms, arn)
        if task is None:
            raise DmsTaskError(f"DMS knows no task {arn}", "correct load_complete_when")
        if (task.get("MigrationType") or task.get("ReplicationType")) == "cdc":
            return None
        statistics = list(_statistics(dms, arn, serverless=found[2] == "replication-config"))
        return LoadGate(statistics_by_table(statistics), _state(task))


def _state(task: dict[str, Any]) -> str:
    """Return a task's state, with the reason if it has stopped."""
    reasons = [str(task[n]) for n in ("StopReason", "LastFailureMessage") if task.get(n)]
    return " ".join([task.get("Status", "unknown"), *([f"({'; '.join(reasons)})"] if reasons else [])])


def _statistics(dms: Any, arn: str, serverless: bool) -> Iterator[dict[str, Any]]:
    """Yield the statistics of each table, page after page."""
    page: dict[str, str] = {}
    while True:
        if serverless:
            answer = dms.describe_replication_table_statistics(ReplicationConfigArn=arn, **page)
            yield from answer.get("ReplicationTableStatistics", ())
        else:
            answer = dms.describe_table_statistics(ReplicationTaskArn=arn, **page)
            yield from answer.get("TableStatistics", ())
        if not answer.get("Marker"):
            return
        page = {"Marker": answer["Marker"]}
