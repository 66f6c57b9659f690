"""What can be told of a stream before a run: how much lies behind each table's position, and what its settings will lose."""

from __future__ import annotations

from frazil.config.spec import TableSpec
from frazil.dms.documents import boolean, read_stream_settings
from frazil.dms.streams import ARRIVED
from frazil.flows.stream_read import WAITS
from frazil.flows.workbook import Workbook
from frazil.lake.tables import read_base


def plan(book: Workbook) -> list[dict]:
    """Return one row per table: how many messages, of any table, lie behind its position (Kinesis does not tell). Nothing is changed."""
    ends = book.stream.ends()

    def look(spec: TableSpec) -> dict:
        position = read_base(book.spark, book.name(spec)).position
        behind = sum(e - position.stream.get(p, 0) for p, e in ends.items()) if position.loaded else sum(ends.values())
        at = ", ".join(f"{p}: {o}" for p, o in position.stream.items() if p != ARRIVED)
        if not book.stream.tells_ends:
            action, behind = "read on" if position.loaded else f"held until {WAITS}", None
        else:
            action = "nothing new" if not behind else "merge" if position.loaded else f"held until {WAITS}"
        return {"action": action, "messages": behind, "position": at or "–", "decision": ""}

    return book.plan(look)


def look(book: Workbook) -> list[dict]:
    """Return one row per table, and how many messages the stream holds for all tables (Kinesis does not tell)."""
    first, ends = book.stream.earliest(), book.stream.ends()
    kept = sum(ends[p] - first[p] for p in ends) if book.stream.tells_ends else None
    return [
        {"table": s.source, "target": book.name(s), "key": ", ".join(s.key) or f"none: {s.policy}", "columns": len(s.columns),
         "partitions": len(ends), "messages_of_all": kept} for s in book.specs.values()
    ]  # fmt: skip


def findings(book: Workbook) -> list[dict]:
    """Return what the endpoint's stream settings will lose on the way, one row per finding."""
    given = read_stream_settings(book.settings.path("endpoint"))
    says = {
        "IncludeNullAndEmpty": "an empty text cannot be told from a null: both are left out, and become null",
        "IncludeTransactionDetails": "no commit time: no latency, and no second witness of the order",
        "IncludeTableAlterOperations": "changes of the tables' columns are not announced",
    }
    return [
        {"setting": name, "value": False, "kind": "warning", "files": None, "says": what, "cure": "switch it on", "example": ""}
        for name, what in says.items() if not boolean(given, name, False, book.settings.endpoint)
    ]  # fmt: skip
