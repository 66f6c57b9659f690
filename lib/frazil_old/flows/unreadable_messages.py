"""Messages that name no table (`on_unreadable`): they stop tables, are quarantined once, or are ignored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from frazil_old.config.spec import TableSpec
from frazil_old.dms.stream_source import Offsets, StreamError, stream_name
from frazil_old.engine.quarantine_records import unreadable_records
from frazil_old.errors import many
from frazil_old.flows.bad_row_limits import why_too_many
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import batch_branches, quarantine_columns, quarantine_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from frazil_old.flows.stream_read import Group, Read


def handle_unreadable(book: Workbook, read: Read) -> None:
    """Quarantine messages that name no table, before any table passes them, or report that they are ignored."""
    going = [g for g in read.groups if not g.readable and not _stays(book, g)]
    if going and book.settings.on_unreadable == "quarantine":
        _quarantine(book, read.unreadable({g.object for g in going}), going, sum(g.count for g in read.groups))
    elif going:
        book.progress(f"ignored, as none of DMS's: {_places(going)}")


def require_readable(book: Workbook, spec: TableSpec, groups: Iterable[Group], at: Offsets, only: str) -> None:
    """Raise StreamError if a message after the table's position names no table and may be this table's.

    `only` is the topic of all its messages; empty: any.
    """
    lost = [g for g in groups if not g.readable and g.is_after(at) and only in ("", stream_name(g.object))]
    if not (lost := [g for g in lost if _stays(book, g)]):
        return
    hidden = any(_hidden(book, g) for g in lost)
    sample = "" if hidden else f", such as {lost[0].sample!r}"
    why = ": they are not quarantined, since columns are masked or left out, and their bytes may show them"
    raise StreamError(
        f"{spec.source}: messages that are none of DMS's ({_places(lost)}){sample}"
        f"{why if hidden and book.settings.on_unreadable == 'quarantine' else ''}",
        f"see what writes there; to {'' if hidden else 'quarantine them, run with on_unreadable=quarantine, to '}"
        "ignore them, run with on_unreadable=report",
    )


def _stays(book: Workbook, group: Group) -> bool:
    """Return whether tables stop at such messages: as the settings say, or because their bytes may not be kept.

    In a topic of no table they stop nothing.
    """
    policy = book.settings.on_unreadable
    if policy == "quarantine":
        return _hidden(book, group)
    return policy == "stop" and any(
        book.may_have_messages_in(s, stream_name(group.object)) for s in book.every.values()
    )


def _hidden(book: Workbook, group: Group) -> bool:
    """Return whether a message may reveal what a table masks or leaves out."""
    return any(
        s.has_hidden_columns and book.may_have_messages_in(s, stream_name(group.object)) for s in book.every.values()
    )


def _places(groups: Sequence[Group]) -> str:
    return ", ".join(f"{g.count} in {g.object} from offset {g.first}" for g in groups)


def _quarantine(book: Workbook, lost: DataFrame, groups: Sequence[Group], total: int) -> None:
    limits = book.settings.max_bad_rows, book.settings.max_bad_percent

    def admit(count: int) -> None:
        if why := why_too_many(count, total, limits, "messages"):
            raise StreamError(
                f"messages that are none of DMS's ({_places(groups)}), such as {groups[0].sample!r}: {why}",
                "see what writes there, or raise the limit; no table has passed them",
            )

    records = unreadable_records(lost, book.stream.scheme, batch_branches.new_batch())
    count, first = quarantine_table.add_once(book.spark, book.ops("quarantine"), records, admit)
    if count:
        book.progress(f"{many(count, 'message')} naming no table quarantined: {', '.join(first)}")


def discard(book: Workbook) -> int:
    """Discard the messages of the book's stream that name no table, and return their number."""
    name, batch = book.ops("quarantine"), batch_branches.new_batch()
    if not book.spark.catalog.tableExists(name):
        return 0
    lost = quarantine_table.unreadable(book.spark, name, book.message_paths)
    records = quarantine_table.changed(lost, batch, 1, status=quarantine_columns.DISCARDED).persist()
    try:
        if count := records.count():
            quarantine_table.add(book.spark, name, records)
        return count
    finally:
        records.unpersist()
