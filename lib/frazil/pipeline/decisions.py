"""What a person decides about a table. Each decision is a commit of its position, so it is made once and is in its history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from msgspec import structs

from frazil.dms.applied import FILES, WAITING, applied_files
from frazil.dms.change_place import FIRST, newest_before
from frazil.dms.file_marks import mark_of
from frazil.dms.file_names import base_name
from frazil.dms.load_rule import require_all_there, require_one_load
from frazil.dms.pending import FileChangedError, FileVanishedError, LateFileError, RepeatedHourError, findings
from frazil.dms.position import Position, read_position
from frazil.errors import FrazilError, nearest
from frazil.iceberg import create
from frazil.iceberg.columns import COLUMNS, Columns, Known
from frazil.iceberg.snapshots import POSITION
from frazil.iceberg.swap import Change, commit_as_is, pass_others
from frazil.pipeline import all_changes
from frazil.pipeline.facts import DECISION, KIND
from frazil.pipeline.look import Look, applied_batches, applied_before

if TYPE_CHECKING:
    from frazil.pipeline.steps import Table

NEXT, LAST = "next", "last"
"""Words for places: the change files that are not applied; the position that is there."""


class DecisionError(FrazilError, code="decision"):
    """A decision does not fit its table: it names what is not there, or lacks what it is about. Write it as the message of the table's stop says."""


class PositionAlreadyError(FrazilError, code="position-already"):
    """A table that is to be taken over has a position already. Restart it, or run 02_cdc_merge, which goes on from there."""


def restart(table: Table, changes_from: str | None = None) -> None:
    """Load a table again with its next batch, and then apply changes.

    `changes_from` is the first change file to apply, or a time in UTC; `next`: those that are not applied yet; None: all
    that DMS's clock does not put before the load. `first`: all; then a person says, too, that the load files are one load.
    """
    table.refresh()
    position, applied = table.stored.position, applied_before(table)
    there = table.lake.source.look(table.spec, None)
    last = ""
    if changes_from == NEXT:
        last = next((batch.position.last for batch in applied_batches(table) if batch.position.load), "")
    elif changes_from:
        last = newest_before(there, changes_from, table.source)
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
    look, name = Look(table), base_name(name)
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


def stop(table: Table, why: str) -> str:
    """Let a table take no batch until a person resumes it; return the stop's id."""
    table.refresh()
    number = uuid4().hex[:6]
    after = structs.replace(table.stored.position, stopped=f"{number} {why}")
    _decide(table, Change("row delta"), after, "stop", why)
    return number


def resume(table: Table, stop: str) -> None:
    """End a stop, by its id; do nothing if it has ended."""
    table.refresh()
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
    stored, spec = table.refresh(), all_changes.with_columns(table.spec)
    if place == LAST and stored.own:
        pass_others(stored, anew=True)
        return
    if stored.own is not None:
        raise PositionAlreadyError(f"{table.source} has a position already: {stored.position.last}", "run 02_cdc_merge")
    there = table.lake.source.look(table.spec, None)
    last = newest_before(there, place, table.source, through=True)
    create.adopt(stored, spec, Position(batch=1, load=mark_of(there.storage, there.loads), last=last))


# --- the parameter `decide`


def carry_out(table: Table) -> None:
    """Carry out what the parameter `decide` says of a table. A decision that was made before does nothing."""
    decision, decided = table.lake.settings.decide.get(table.source), table.lake.decided
    if decision and table.source not in decided:
        decided.add(table.source)
        ((verb, value),) = decision.items()
        _VERBS[verb](table, value)


def _restart_by(table: Table, value: Any) -> None:
    if not isinstance(value, Mapping) or "after" not in value:
        cure = 'write {"after": <the snapshot that the message names>}, so that it is made once'
        raise DecisionError(f"{table.source}: the restart does not say after which snapshot", cure)
    table.refresh()
    then = table.stored.snapshot(int(value["after"]))
    if then is None or POSITION not in then.summary:
        return
    if read_position(then.summary[POSITION], table.source).batch == table.stored.position.batch:
        restart(table, value.get("changes_from"))


def _discard_by(table: Table, value: Any) -> None:
    file, why = (value, "") if isinstance(value, str) else (value["side_file"], value.get("why", ""))
    discard(table, file, why)


def _stop_by(table: Table, value: Any) -> None:
    table.refresh()
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
    told = {KIND: "decision", DECISION: f"{verb} {about}".strip()}
    change = replace(change, summary={**change.summary, **told})
    commit_as_is(table.stored, change, table.stored.position, after)


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
