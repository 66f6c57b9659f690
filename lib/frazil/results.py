"""The result of a flow for one table, the outcome of a run of all tables, and its exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from frazil.errors import FrazilError, Message, grouped, safe


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


OK, FAILED, WRONG, SOME_FAILED, DECISION, TIMED_OUT, BREACH, NOTHING, SKIPPED = 0, 1, 2, 3, 4, 5, 6, 10, 11
EXIT_CODES = {
    "ok": OK,
    "failed": FAILED,
    "wrong parameters": WRONG,
    "some tables failed": SOME_FAILED,
    "needs a decision": DECISION,
    "timed out": TIMED_OUT,
    "breach": BREACH,
    "nothing to do": NOTHING,
    "skipped": SKIPPED,
}
"""The outcomes of a run. Codes from 10 on are not errors."""
_STILL = ("unchanged", "exists", "healthy", "empty", "paused")
_DECISION = ("UnknownTablesError", "DecisionNeededError")
_WRONG = ("ParameterError", "SpecError", "EndpointError")


def outcome(tables: list[dict[str, Any]]) -> str:
    """Return a run's outcome, from its tables' `status`, `decision` and, if compared with the source, `differs`.

    Tables that were only inspected have no status.
    """
    words = {t.get("status", "") for t in tables}
    failed = [t for t in tables if t.get("status") == "failed"]
    if any(not t.get("decision") for t in failed):
        return "failed" if len(failed) == len(tables) else "some tables failed"
    if failed or words & {"waiting", "differs"}:
        return "needs a decision"
    if "skipped" in words:
        return "skipped"
    return "nothing to do" if words and words <= set(_STILL) else "ok"


def outcome_of(record: dict[str, Any] | None, error: str) -> str:
    """Return a run's outcome from its notebook's record, or else from the class of the error that stopped it."""
    if record and (not error or record["status"] == "failed"):
        compared = [c for c in record.get("compared", ()) if c["status"] != "failed"]
        return outcome([*record.get("tables", {}).values(), *compared])
    return "wrong parameters" if error in _WRONG else "needs a decision" if error in _DECISION else "failed"


def is_bad(outcome: str) -> bool:
    """Return whether an outcome is one that somebody should hear of."""
    return 0 < EXIT_CODES[outcome] < NOTHING


def why(record: dict[str, Any] | None) -> str:
    """Return what a notebook's record says about tables that did not fail but keep the run from being `ok`."""
    tables = [*(record or {}).get("tables", {}).items(), *((c["table"], c) for c in (record or {}).get("compared", ()))]
    reasons = [(t, f) for t, f in tables if f.get("status") in ("waiting", "differs", "skipped")]
    return "\n".join(f"{t}: {f['status']}: {f.get('note') or ''}".rstrip(": ") for t, f in reasons)
