"""What a person decides about a table. Each decision is a commit of its position, so it is made once and is in its history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import dropwhile
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from msgspec import structs

from frazil.dms.applied import FILES, WAITING, applied_files
from frazil.dms.file_marks import mark_of
from frazil.dms.file_names import base_name, is_change_file, order_of
from frazil.dms.listing import TableFiles
from frazil.dms.load_rule import require_all_there, require_one_load
from frazil.dms.pending import FileChangedError, FileVanishedError, LateFileError, RepeatedHourError, findings
from frazil.dms.position import Position, read_position
from frazil.errors import FrazilError, nearest
from frazil.iceberg import create
from frazil.iceberg.columns import COLUMNS, Columns, Known
from frazil.iceberg.snapshots import POSITION
from frazil.iceberg.soundness import NoPositionError
from frazil.iceberg.swap import Change, commit, pass_others, written
from frazil.pipeline import all_changes
from frazil.pipeline.facts import DECISION, KIND
from frazil.pipeline.look import ALL, Look, applied_batches

if TYPE_CHECKING:
    from frazil.pipeline.table import Table

FIRST, NEXT, LAST, OF_LOAD = "first", "next", "last", "load"
"""Words for places: all change files; those that are not applied; the position that is there; no change file."""


class DecisionError(FrazilError, code="decision"):
    """A decision does not fit its table: it names what is not there, or lacks what it is about. Write it as the message of the table's stop says."""


class PositionAlreadyError(FrazilError, code="position-already"):
    """A table that is to be taken over has a position already. Restart it, or run 02_cdc_merge, which goes on from there."""


def restart(table: Table, changes_from: str | None = None) -> None:
    """Load a table again with its next batch, and then apply changes.

    `changes_from` is the first change file to apply, or a time in UTC; `next`: those that are not applied yet; None: all
    that DMS's clock does not put before the load. `first`: all; then a person says, too, that the load files are one load.
    """
    table.stored.refresh()
    position, batches = table.stored.position, applied_batches(table)
    applied = applied_files(dropwhile(lambda batch: not batch.position.load, batches))
    there = table.lake.source.look(table.spec, None)
    last = _newest_before(table, there, changes_from, through=False) if changes_from else ""
    if changes_from == NEXT:
        last = next((batch.position.last for batch in batches if batch.position.load), "")
    if changes_from != FIRST:
        require_one_load(there, applied, table.source)
    if changes_from:
        require_all_there(there, applied, last, table.source)
    accepted = {name: place for name, place in position.accepted.items() if name in applied.marks}
    after = Position(batch=position.batch + 1, last=last, accepted=accepted)
    known = _columns_by_name(table)
    change = Change("row delta", properties={COLUMNS: known.text}, anew=True)
    _decide(table, change, after, "restart", changes_from or "")


def accept(table: Table, name: str) -> None:
    """Take a file as it is: a late one is applied now, a changed one counts as applied, a vanished one is given up."""
    look = Look(table)
    position, applied = table.stored.position, applied_files(applied_batches(table))
    found = {name: f.error for f in findings(look.there, position, applied) for name in f.names}
    if name in applied.marks or name in position.accepted:
        found.setdefault(name, DecisionError)  # decided before
    error = found.get(name)
    there = {f.name: f for f in look.there.changes}
    if error in (LateFileError, RepeatedHourError) or (error is None and name in there):
        after = structs.replace(position, accepted={**position.accepted, name: position.last})
        _decide(table, Change("row delta"), after, "accept", name)
    elif error is FileChangedError:
        marks = {name: mark_of(look.there.storage, {name: there[name]})}
        change = Change("row delta", summary={FILES: msgspec.json.encode(marks).decode()})
        _decide(table, change, position, "accept", name)
    elif error is FileVanishedError:
        change = Change("row delta", summary={WAITING: " ".join(n for n in applied.waiting if n != name)})
        rows = None if name == base_name(position.last) else position.rows
        _decide(table, change, structs.replace(position, rows=rows), "accept", name)
    elif error is None:
        raise DecisionError(f"{table.source}: there is no file {name} to accept", nearest(name, found or there))


def stop(table: Table, why: str, number: str = "") -> str:
    """Let a table take no batch until a person resumes it; return the stop's id, by default a new one."""
    table.stored.refresh()
    number = number or uuid4().hex[:6]
    after = structs.replace(table.stored.position, stopped=f"{number} {why}")
    _decide(table, Change("row delta"), after, "stop", why)
    return number


def resume(table: Table, stop: str) -> None:
    """End a stop, by its id; do nothing if it has ended."""
    table.stored.refresh()
    position = table.stored.position
    if position.stopped.split(" ")[0] == stop:
        _decide(table, Change("row delta"), structs.replace(position, stopped=""), "resume", position.stopped)


def replay(table: Table, side_file: str) -> None:
    """Let the waiting rows of a side file be the next batch; do nothing if it does not wait any more."""
    position = _waiting(table, side_file)
    if position:
        after = structs.replace(position, accepted={**position.accepted, side_file: ""})
        _decide(table, Change("row delta"), after, "replay", side_file)


def discard(table: Table, side_file: str, why: str) -> None:
    """Give up the waiting rows of a side file; do nothing if it does not wait any more."""
    position = _waiting(table, side_file)
    if position:
        after = structs.replace(position, quarantine=None)
        _decide(table, Change("row delta"), after, "discard", f"{side_file} {why}")


def adopt(table: Table, place: str = LAST) -> None:
    """Take over a table that another pipeline has fed up to a place: its last change file, a time in UTC, or `load`.

    `last` is the position that is there, of a table whose history others have expired.
    """
    stored, spec = table.stored, all_changes.with_columns(table.spec)
    stored.refresh()
    if place == LAST and stored.own:
        pass_others(stored, anew=True)
        return
    if stored.own is not None:
        raise PositionAlreadyError(f"{table.source} has a position already: {stored.position.last}", "run 02_cdc_merge")
    there = table.lake.source.look(table.spec, None)
    last = _newest_before(table, there, place, through=True)
    create.adopt(stored, spec, Position(batch=1, load=mark_of(there.storage, there.loads), last=last))


# --- the parameter `decide`


def carry_out(table: Table) -> None:
    """Carry out what the parameter `decide` says of a table. A decision that was made before does nothing."""
    for verb, value in table.lake.settings.decide.get(table.source, {}).items():
        if table.source in table.lake.decided:
            continue
        table.lake.decided.add(table.source)
        _VERBS[verb](table, value)


def _restart_by(table: Table, value: Any) -> None:
    if not isinstance(value, Mapping) or "after" not in value:
        cure = 'write {"after": <the snapshot that the message names>}, so that it is made once'
        raise DecisionError(f"{table.source}: the restart does not say after which snapshot", cure)
    table.stored.refresh()
    then = table.stored.snapshot(int(value["after"]))
    if then is None or POSITION not in then.summary:
        return
    if read_position(then.summary[POSITION], table.source).batch == table.stored.position.batch:
        restart(table, value.get("changes_from"))


def _discard_by(table: Table, value: Any) -> None:
    file, why = (value, "") if isinstance(value, str) else (value["side_file"], value.get("why", ""))
    discard(table, file, why)


def _stop_by(table: Table, value: Any) -> None:
    table.stored.refresh()
    if not table.stored.position.stopped and not any(
        s.summary.get(DECISION) == f"stop {value}" for s in table.stored.ancestors()
    ):
        stop(table, str(value))


_VERBS: dict[str, Callable[[Table, Any], object]] = {
    "restart": _restart_by, "accept": accept, "stop": _stop_by, "resume": resume, "replay": replay, "discard": _discard_by, "adopt": adopt,
}  # fmt: skip


# --- how a decision is committed


def _decide(table: Table, change: Change, after: Position, verb: str, about: str) -> None:
    """Commit a position that a person wants, with what was decided."""
    stored = table.stored
    planned = stored.position
    told = {KIND: "decision", DECISION: f"{verb} {about}".strip()}
    change = replace(change, summary={**change.summary, **told})
    commit(stored, written(stored, change), lambda: change, planned, after)


def _waiting(table: Table, side_file: str) -> Position | None:
    """Return the position if a side file still waits. Raises StoppedError of a stopped table."""
    table.require_not_stopped()
    position = table.stored.position
    return position if position.quarantine and position.quarantine.path == side_file else None


def _columns_by_name(table: Table) -> Columns:
    """Return what is known of a table's columns, of which those count that have their names now, whoever made them."""
    metadata, known = table.stored.metadata, table.known
    there = {field.name: field for field in metadata.schema().fields}
    own = known.columns or tuple(
        Known(0, c.name, "", c.type, key=c.name in table.spec.key, mask=c.mask) for c in table.spec.lake_columns
    )
    found = (
        structs.replace(k, id=there[k.name].field_id, type=str(there[k.name].field_type))
        for k in own
        if k.name in there
    )
    return Columns(metadata.current_schema_id, tuple(found), known.dropped)


def _newest_before(table: Table, there: TableFiles, place: str, through: bool) -> str:
    """Return the path of the newest change file before a place, or `through` it; empty: none is.

    Raises NoPositionError for a text that is no file of the table, and no time.
    """
    if place in (FIRST, NEXT, OF_LOAD):
        return ALL if place == FIRST else ""
    before = _before_name(there, place, through) if is_change_file(place) else _before_time(there, place, table.source)
    if before is None:
        names = [f.name for f in there.changes[-20:]]
        raise NoPositionError(f"{table.source}: there is no change file {place}", nearest(place, names))
    return before


def _before_name(there: TableFiles, name: str, through: bool) -> str | None:
    """Return the newest change file before a name, or with it; None: no file has it, and older ones are there."""
    older = [f for f in there.changes if order_of(f.name) < order_of(name)]
    if through and any(f.name == base_name(name) for f in there.changes):
        return next(there.below(f) for f in there.changes if f.name == base_name(name))
    if not older:
        return name if through else ALL
    return None if through else there.below(older[-1])


def _before_time(there: TableFiles, place: str, table: str) -> str:
    try:
        time = datetime.fromisoformat(place)
    except ValueError:
        cure = "write the name of a change file, a time as 2024-01-01 10:00:00 in UTC, or load"
        raise NoPositionError(f"{table}: '{place}' is no position", cure) from None
    when = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    older = [f for f in there.changes if there.partition.written_s(f.name) <= when]
    return there.below(older[-1]) if older else ""
