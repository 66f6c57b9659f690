"""What a person decides about a table. Each decision is a commit of its position, so it is made once and is in its history."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec import structs

from frazil.dms.decided import DecisionError, accepted, restarted, taken_over
from frazil.dms.file_names import base_name
from frazil.dms.position import Position
from frazil.errors import FrazilError
from frazil.iceberg import create
from frazil.iceberg.columns import COLUMNS, Columns, columns_of
from frazil.iceberg.commits import Change, commit_as_is, pass_others
from frazil.pipeline import all_changes
from frazil.pipeline.batch_summary import DECISION, KIND
from frazil.pipeline.next_batch import Look, applied_batches

if TYPE_CHECKING:
    from frazil.pipeline.steps import Table


class PositionAlreadyError(FrazilError, code="position-already"):
    """A table that is to be taken over has a position already. Restart it, or run 02_cdc_merge, which goes on from there."""


def restart(table: Table, changes_from: str | None = None) -> None:
    """Load a table again with its next batch, and then apply changes.

    `changes_from` is the first change file to apply, or a time in UTC; `next`: those that are not applied yet; None: all
    that DMS's clock does not put before the load. `first`: all; then a person says, too, that the load files are one load.
    """
    position, there = table.refresh().position, table.lake.source.look(table.spec, None)
    after = restarted(there, position, applied_batches(table), changes_from or "", table.source)
    _decide(table, f"restart {changes_from or ''}", after, properties=_columns_by_name(table), anew=True)


def accept(table: Table, name: str) -> None:
    """Take a file as it is: a late one is applied now, a changed one counts as applied, a vanished one is given up."""
    there, position, name = Look(table).there, table.stored.position, base_name(name)
    after, summary = accepted(there, position, applied_batches(table), name, table.source)
    if summary or after != position:
        _decide(table, f"accept {name}", after, summary)


def stop(table: Table, why: str) -> str:
    """Let a table take no batch until a person resumes it; return the stop's id: that of before, if the reason is the same."""
    position = table.refresh().position
    number, _, before = position.stopped.partition(" ")
    if before != why:
        number = uuid4().hex[:6]
        halt(table, number, why)
    return number


def halt(table: Table, number: str, why: str) -> None:
    """Stop a table under an id, which resumes it."""
    _decide(table, f"stop {why}", structs.replace(table.stored.position, stopped=f"{number} {why}"))


def resume(table: Table, stop: str) -> None:
    """End a stop, by its id; do nothing if it has ended."""
    position = table.refresh().position
    if position.stopped.split(" ")[0] == stop:
        _decide(table, f"resume {position.stopped}", structs.replace(position, stopped=""))


def replay(table: Table, side_file: str) -> None:
    """Let the waiting rows of a side file be the next batch; do nothing if it does not wait any more."""
    if position := _waiting(table, side_file):
        accepted = {**position.accepted, side_file: ""}
        _decide(table, f"replay {side_file}", structs.replace(position, accepted=accepted))


def discard(table: Table, side_file: str, why: str = "") -> None:
    """Give up the waiting rows of a side file; do nothing if it does not wait any more."""
    if position := _waiting(table, side_file):
        _decide(table, f"discard {side_file} {why}", structs.replace(position, quarantine=None))


def adopt(table: Table, place: str = "last") -> None:
    """Take over a table that another pipeline has fed up to a place: its last change file, a time in UTC, or `load`.

    `last` is the position that is there, of a table whose history others have expired.
    """
    stored = table.refresh()
    if place == "last" and stored.own:
        pass_others(stored, anew=True)
        return
    if stored.own is not None:
        raise PositionAlreadyError(f"{table.source} has a position already: {stored.position.last}", "run 02_cdc_merge")
    there = table.lake.source.look(table.spec, None)
    create.adopt(stored, all_changes.with_columns(table.spec), taken_over(there, place, table.source))


def carry_out(table: Table) -> None:
    """Carry out what the parameter `decide` says of a table. A decision that was made before does nothing."""
    decision, decided = table.lake.settings.decide.get(table.source), table.lake.decided
    if not decision or table.source in decided:
        return
    decided.add(table.source)
    ((verb, value),) = decision.items()
    act = partial(_restart_once, table) if verb == "restart" else getattr(table, verb)
    if isinstance(value, Mapping):
        act(**value)
    elif f"{verb} {value}" not in (s.summary.get(DECISION) for s in table.refresh().ancestors()):
        act(value)


def _restart_once(table: Table, after: int | str = "", changes_from: str | None = None) -> None:
    """Restart a table if its last batch is still that of a snapshot."""
    if not str(after).isdigit():
        cure = 'write {"after": <the snapshot that the message names>}, so that it is made once'
        raise DecisionError(f"{table.source}: the restart does not say after which snapshot", cure)
    table.refresh()
    batches, then = applied_batches(table), table.batches.get(int(after))
    if then and then.position.batch == batches[0].position.batch:
        restart(table, changes_from)


def _decide(table: Table, told: str, after: Position, summary: Mapping[str, str] | None = None, **change: Any) -> None:
    """Commit a position that a person wants, with what was decided."""
    entries = {**(summary or {}), KIND: "decision", DECISION: told.strip()}
    commit_as_is(table.stored, Change("row delta", summary=entries, **change), after)


def _waiting(table: Table, side_file: str) -> Position | None:
    """Return the position if a side file still waits. Raises StoppedError of a stopped table."""
    position = table.refresh().position
    table.require_not_stopped()
    return position if position.quarantine and position.quarantine.path == side_file else None


def _columns_by_name(table: Table) -> dict[str, str]:
    """Return as a property what is known of a table's columns; those count that have their names now, whoever made them."""
    metadata, known = table.stored.metadata, table.known
    there = {field.name: field for field in metadata.schema().fields}
    found = tuple(
        structs.replace(column, id=there[column.name].field_id, type=str(there[column.name].field_type))
        for column in known.columns or columns_of(table.spec).columns
        if column.name in there
    )
    return {COLUMNS: Columns(metadata.current_schema_id, found, known.dropped).text}
