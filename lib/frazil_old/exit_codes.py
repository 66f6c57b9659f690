"""The outcome of a run of all tables, and the exit code of its command."""

from __future__ import annotations

from typing import Any

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
