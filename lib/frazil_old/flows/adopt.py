"""Take over a table that another pipeline has fed, at a position that the operator gives."""

from __future__ import annotations

from dataclasses import replace

from frazil_old.config.settings import ParameterError
from frazil_old.config.spec import TableSpec
from frazil_old.config.timestamps import instant
from frazil_old.dms.applied_files import AppliedFiles
from frazil_old.dms.endpoint import DatePartition
from frazil_old.dms.file_names import is_change_file
from frazil_old.dms.position import STREAM_LOAD, Position, after_load
from frazil_old.errors import FrazilError, many, nearest
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import batch_branches, jvm, stored_applied_files, tables

ADOPTED = "adopted"
"""Replaces the digest of a load that another pipeline applied."""


class AdoptError(FrazilError):
    """A position at which a table cannot be adopted."""


def adopt(book: Workbook, table: str, position: str) -> str:
    """Take over a table that holds all changes up to `position` and none after it; return what was done.

    `position` is the name of the last change file applied, a UTC time up to which all files were applied, or `load` for
    no change file. For a stream it is any value of `stream_start`, such as the first offsets not applied, as JSON.
    Everything before it counts as applied. The rows are not checked: the position is the operator's word for it. The
    other pipeline must have stopped.
    """
    spec = book.specs[table]
    if book.stream:
        begin = book.stream.start(position)
        stated = Position(
            batch=batch_branches.new_batch(),
            load_digest=STREAM_LOAD,
            stream=begin,
            stream_load=begin,
            stream_ids=book.stream.stream_ids(),
        )
        tables.adopt(book.spark, book.name(spec), spec, stated)
        return f"{book.name(spec)} continues from " + ", ".join(f"{p}: {offset}" for p, offset in begin.items())
    there = book.objects(spec)
    names = [o.name for o in there.changes]
    last = _last(spec, names, position, book.endpoint.date_partition)
    stated = after_load(Position(last=last, recent=(last,) if last else ()), there, batch_branches.new_batch())
    if not there.loads:  # the rows exist already: load files that arrive later are another load
        stated = replace(stated, load_digest=ADOPTED)
    tables.adopt(book.spark, book.name(spec), spec, stated)
    table = jvm.load_table(book.spark, book.name(spec))
    stored_applied_files.Update(table, AppliedFiles(), stated.batch, (*there.loads, *there.changes)).load(
        last, there, {}, False
    ).publish()
    pending = sum(name > last for name in names)
    return f"{book.name(spec)} continues from {last or 'its load'}: {many(pending, 'change file')} pending"


def _last(spec: TableSpec, names: list[str], position: str, named_by: DatePartition) -> str:
    """Return the change file that a given position means; empty: the load."""
    if position == "load":
        return ""
    is_name = is_change_file(position)
    # A file older than all existing ones has been deleted since.
    if position in names or (is_name and position < min(names, default="9")):
        return position
    if is_name:
        raise AdoptError(f"{spec.source}: no change file {position}", nearest(position, names[-20:]))
    try:
        when = instant(position)
    except ParameterError as e:
        raise AdoptError(
            f"{spec.source}: '{position}' is no position", f"name a change file or write load; a time: {e.cure}"
        ) from None
    return max((n for n in names if named_by.written_s(n) * 1000 <= when), default="")
