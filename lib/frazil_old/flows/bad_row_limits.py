"""Whether a batch's bad rows stop its table or are quarantined: `on_bad_rows`, `max_bad_rows` and `max_bad_percent`."""

from __future__ import annotations

from collections.abc import Sequence

from frazil_old.config.spec import TableSpec
from frazil_old.core.bad_row_errors import bad_rows_error
from frazil_old.core.bad_rows import SHOWN, BadRow, BadRows
from frazil_old.engine.read_files import FileToRead, PartitionRead
from frazil_old.flows.workbook import Workbook


def quarantines_bad_rows(book: Workbook, spec: TableSpec) -> tuple[bool, str]:
    """Return whether a table's bad rows are quarantined, and why not if that was requested."""
    if (spec.on_bad_rows or book.settings.on_bad_rows) != "quarantine":
        return False, ""
    if spec.has_hidden_columns:
        return False, "columns of the table are masked or left out, so its rows may not be kept as they are"
    if spec.policy == "multiset" or spec.optional or book.endpoint.no_sup_value is not None:
        return (
            False,
            "a row may have only some of its columns, so that nothing shows what one left out does to later ones",
        )
    return True, ""


def most_bad_rows(book: Workbook, spec: TableSpec) -> int:
    """Return how many bad rows of a batch may be quarantined."""
    return book.settings.max_bad_rows if spec.max_bad_rows is None else spec.max_bad_rows


def most_kept(book: Workbook, spec: TableSpec) -> int:
    """Return how many bad rows of each file the core keeps: those to be quarantined, or those that an error shows."""
    return most_bad_rows(book, spec) if quarantines_bad_rows(book, spec)[0] else SHOWN


def admit_rows(
    book: Workbook, spec: TableSpec, bad: BadRows, total: int, files: Sequence[FileToRead | PartitionRead]
) -> None:
    """Raise BadRowError unless the bad rows that the core found, out of `total` rows, may be quarantined."""
    if not bad.count:
        return
    aside, why_not = quarantines_bad_rows(book, spec)
    most = most_bad_rows(book, spec)
    share = book.settings.max_bad_percent if spec.max_bad_percent is None else spec.max_bad_percent
    if not aside:
        other = why_not and f"such rows are not quarantined: {why_not}"
    elif limit := why_too_many(bad.count, total, (most, share), "rows"):
        other = f"or raise the limit, which leaves such rows out of the lake until they are replayed: {limit}"
    else:
        return
    by_order = {file.order: file for file in files}
    raise bad_rows_error(
        spec, bad.count, [(_place(row, by_order[order]), row) for order, row in bad.rows[:SHOWN]], other
    )


def why_too_many(count: int, total: int, limits: tuple[int, float], what: str) -> str:
    """Return that bad rows or messages are above the limits, a number and a percentage; empty if they are not."""
    most, share = limits
    if count <= most and count * 100 <= share * total:
        return ""
    return f"{count:,} of {total:,} {what} are more than max_bad_rows={most:,} and max_bad_percent={share:g} allow"


def _place(row: BadRow, file: FileToRead | PartitionRead) -> str:
    return f"{file.path} " + (f"offset {row.place}" if isinstance(file, PartitionRead) else f"row {row.number}")
