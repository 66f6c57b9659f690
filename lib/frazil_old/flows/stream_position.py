"""Where each table continues in its stream and how much is there, and what the stream's settings will lose."""

from __future__ import annotations

from frazil_old.config.spec import TableSpec
from frazil_old.dms.aws_json import stream_settings
from frazil_old.dms.position import Position
from frazil_old.dms.source_errors import EndpointError
from frazil_old.dms.stream_retention import Retention
from frazil_old.dms.stream_source import Offsets, StreamError, max_offsets
from frazil_old.flows.workbook import Workbook


def begin_of(
    book: Workbook, spec: TableSpec, position: Position, retention: Retention, seen: Offsets | None = None
) -> Offsets:
    """Return where a loaded table continues in the stream, not before `seen`; raise if that is impossible."""
    if not position.stream:
        raise StreamError(
            f"{spec.source} was loaded from files, so where its changes begin in the stream is not known",
            "drop the table, set it up again and load it from the stream",
        )
    return retention.checked_position(
        max_offsets(position.stream, seen or {}), spec.source, position.stream_ids, only_topic(book, spec, position)
    )


def only_topic(book: Workbook, spec: TableSpec, position: Position) -> str:
    """Return the topic to check a position against; empty: all, as also right after the mappings name another one."""
    topic = book.topic(spec)
    return topic if topic == position.topic else ""


def pending(book: Workbook, ends: Offsets, position: Position) -> int | None:
    """Return how many messages, of any table, are after a position; None if the stream does not report its ends."""
    return sum(e - position.stream.get(p, 0) for p, e in ends.items()) if book.stream.has_end_offsets else None


def look(book: Workbook) -> list[dict]:
    """Return one row per table, and the number of messages in the stream for all tables (Kinesis does not report it)."""
    first, ends = book.stream.earliest(), book.stream.ends()
    kept = sum(ends[p] - first[p] for p in ends) if book.stream.has_end_offsets else None
    return [
        {"table": s.source, "target": book.name(s), "key": ", ".join(s.key) or f"none: {s.policy}", "columns": len(s.columns),
         "partitions": len(ends), "messages_of_all": kept} for s in book.specs.values()
    ]  # fmt: skip


def findings(book: Workbook) -> list[dict]:
    """Return what the endpoint's stream settings will lose, one row per finding."""
    from frazil_old.config.validation import checked
    from frazil_old.dms.endpoint_model import StreamSettings

    path = book.settings.path("endpoint")
    stated = checked(StreamSettings, stream_settings(path)[0], str(path), EndpointError)
    says = {
        "null_and_empty": "an empty text is the same as a null: both are left out, and become null",
        "transaction_details": "no commit time: no latency, and nothing else confirms the order",
        "table_alters": "changes of the tables' columns are not announced",
    }
    return [
        {"setting": StreamSettings.model_fields[entry].alias, "value": False, "kind": "warning", "files": None, "says": what,
         "cure": "switch it on", "example": ""} for entry, what in says.items() if not getattr(stated, entry)
    ]  # fmt: skip
