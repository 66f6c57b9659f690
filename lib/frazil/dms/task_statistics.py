"""Reads a DMS task's table statistics, the output of `aws dms describe-table-statistics`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from frazil.dms.aws_json import EndpointError, read_json

LISTS = ("TableStatistics", "ReplicationTableStatistics")
"""The list's name for a task, and for a serverless one (`describe-replication-table-statistics`)."""


@dataclass(frozen=True)
class TableStatistics:
    """One table's state, and the numbers of rows of its load; names in comments are DMS's own."""

    state: str = ""  # TableState
    full_load_rows: int = 0  # FullLoadRows
    full_load_errors: int = 0  # FullLoadErrorRows

    @property
    def loaded(self) -> bool:
        """Whether the table's full load has ended without an error: its load files are complete."""
        return self.state.lower() == "table completed"

    @property
    def failed(self) -> bool:
        """Whether DMS stopped replicating the table: neither its load nor its changes continue."""
        return "error" in self.state.lower() or "cancel" in self.state.lower()


def read_statistics(path: Path) -> dict[str, TableStatistics]:
    """Read the document that describes a task's tables; return {source schema.table: its statistics}."""
    raw = read_json(path, "table statistics")
    entries = next((raw[name] for name in LISTS if name in raw), None)
    if entries is None:
        raise EndpointError(
            f"{path}: contains no TableStatistics",
            "save the output of: aws dms describe-table-statistics --replication-task-arn <the task's>",
        )
    return {f"{e.get('SchemaName', '')}.{e.get('TableName', '')}": _one(e) for e in entries}


def _one(e: dict) -> TableStatistics:
    return TableStatistics(
        state=e.get("TableState") or "",
        full_load_rows=int(e.get("FullLoadRows") or 0),
        full_load_errors=int(e.get("FullLoadErrorRows") or 0),
    )
