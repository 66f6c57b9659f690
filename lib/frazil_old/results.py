"""The result of a flow for one table, and the error that names the tables that failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from frazil_old.errors import FrazilError, Message, grouped, safe


@dataclass
class TableResult:
    """The result of one table: `status` in one word, counts, and for a failure its full cause."""

    table: str
    status: str
    note: str = ""
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    live: dict[str, float] = field(default_factory=dict)
    """Values of the newest batch only, never summed:

    `lag_p50_s`, `lag_p99_s` (of the latency), `commit_s`, and what is `pending` after it.
    """
    decision: bool = False

    def __post_init__(self):
        self.note = self.note if isinstance(self.note, Message) else Message(safe(self.note))

    @property
    def failed(self) -> bool:
        """Whether the table failed."""
        return self.status == "failed"

    def add(self, later: TableResult) -> None:
        """Merge the table's later result into this one."""
        recovered = self.failed and not later.failed
        for name, count in later.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.seconds += later.seconds
        self.live = later.live or self.live
        if recovered:
            self.status = "merged" if self.counts.get("batches") else later.status
            self.note, self.decision = "failed before, then continued", False
        elif later.status != "unchanged":
            self.status, self.note, self.decision = later.status, later.note, later.decision

    def row(self) -> dict[str, Any]:
        """Return the result as one flat row."""
        return {
            "table": self.table,
            "status": self.status,
            **self.counts,
            "seconds": round(self.seconds, 1),
            "note": self.note,
            **({"decision": True} if self.decision else {}),
        }


class TablesFailedError(FrazilError):
    """Some tables failed; the others succeeded. The message names each and its cause."""


def raise_if_failed(results: list[TableResult]) -> None:
    """Raise TablesFailedError that names every failed table with its cause; do nothing if none failed."""
    failed = [r for r in results if r.failed]
    if failed:
        causes = grouped((r.table, r.note.removeprefix(f"{safe(r.table)}: ")) for r in failed)
        named = "\n".join(f"{safe(', '.join(tables))}: {cause}" for cause, tables in causes.items())
        raise TablesFailedError(f"{len(failed)} of {len(results)} tables failed", lines=named.split("\n"))
