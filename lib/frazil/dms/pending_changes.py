"""Which change files are pending, and which stop the table: late, changed, gone or named in the future. Errors name the remedy."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from frazil.config.sql import literal
from frazil.dms.listing import DmsObject, TableObjects
from frazil.dms.position import (
    POSITION,
    REPLAY,
    SHOWN,
    Position,
    PositionError,
    discarded,
    is_other_load,
    require_there,
)
from frazil.source.applied_files import Record
from frazil.source.compare_listing import Arrived, arrived, same_loads
from frazil.source.file_names import digits_of, latest_possible


class LateFilesError(PositionError):
    """Change files that were never applied have names before the position."""

    def __init__(self, problem: str, cure: str, late: Sequence[DmsObject]):
        super().__init__(problem, cure)
        self.late = late


@dataclass(frozen=True)
class State:
    """What a table records about its files: `name` as in Spark, the position parsed and as `stored`, and the record."""

    name: str
    source: str
    position: Position
    stored: str
    record: Record


def pending(there: TableObjects, state: State, late: str = "refuse", without: Sequence[str] = ()) -> Arrived:
    """Return a listing's result, with the `pending` files complete and in order; raise PositionError if the table must stop.

    `late` and `without` are the parameters `late_files` and `go_on_without`.
    """
    found = arrived(there.changes, state.position, state.record, time.time())
    _require_present(found, there, state)
    if not is_other_load(there, state.position):
        require_awaited(there, state.position, state.source, state.record.awaited, without)
    found.pending = require_clear(found, there, state.position, state.source, late)
    return found


def with_known_loads(there: TableObjects, state: State) -> tuple[TableObjects, list[DmsObject]]:
    """Return the listing with old ETags for load files whose bytes are unchanged, and the files that were read to find out."""
    position = state.position
    if not there.loads or not position.loaded or there.load_digest == position.load_digest:
        return there, []
    loads, same = same_loads(there.loads, state.record)
    return replace(there, loads=tuple(loads)), same


def _require_present(found: Arrived, there: TableObjects, state: State) -> None:
    latest, position = latest_possible(time.time()), state.position
    if not position.last or digits_of(position.last) <= latest:
        return
    _, stamp = Position.from_json(state.stored)
    names = {*position.recent, *(n for n in state.record.files if "/" not in n)}
    real = max((n for n in names if digits_of(n) <= latest), default="")
    known = state.record.files.get(real)
    etag = known.etag if known else next((o.etag for o in there.changes if o.name == real), "")
    recent = tuple(n for n in position.recent if n <= real)
    wanted = replace(position, last=real, last_etag=etag, recent=recent, turn=0).to_json(**stamp)
    raise PositionError(
        f"{state.source}: its position {position.last} lies in the future, and {len(found.late)} change file(s) with names before it "
        "are not applied",
        f"set it to {f'the last real file, {real}' if real else 'the load'}: ALTER TABLE {state.name} SET TBLPROPERTIES "
        f"('{POSITION}' = {literal(wanted)}), and move {position.last} away: its changes stay in the table, and the files before it are applied then",
    )


def pending_changes(
    objects: TableObjects, position: Position, source: str, record: Record | None = None, late: str = "refuse"
) -> list[DmsObject]:
    """Return the change objects that are not applied, in the order in which to apply them.

    Raise PositionError for a late object: its name is before the position, and it was never applied. Also raise it for
    one that was written again after it was applied, and for names in the future. Raise it too if an object is gone that
    was listed or that a replay needs. Without a `record`, only the names in the position are known. With `late` =
    `after`, late objects are pending and come first.
    """
    found = arrived(objects.changes, position, record or Record(), time.time())
    return require_clear(found, objects, position, source, late)


def require_clear(found: Arrived, objects: TableObjects, position: Position, source: str, late: str) -> list[DmsObject]:
    """Return the result of `pending_changes` for files that are already classified."""
    require_there(objects, position.owed, source)
    if found.changed:
        _refuse_changed(found, position, source)
    if found.late and late != "after":
        refuse_late(found, position, source)
    if found.ahead:
        raise PositionError(
            f"{source}: {named(o.path for o in found.ahead)}: {len(found.ahead)} change file(s) are named more than a day after the "
            "present; once one of them is applied, each file that follows would count as late",
            "give them the names that DMS wrote, and nothing is lost; or move them away: what they say is not applied then",
        )
    return [*found.late, *found.pending]


def require_awaited(
    objects: TableObjects, position: Position, source: str, awaited: Sequence[str], without: Sequence[str]
) -> None:
    """Raise PositionError if a change object is gone that was listed and not applied, unless `without` has it."""
    there = {o.name for o in objects.changes}
    gone = [n for n in awaited if n > position.last and n not in there and n not in without]
    if gone:
        all_gone = " All change files are gone: a TRUNCATE at the source may have deleted them." if not there else ""
        raise PositionError(
            f"{source}: {named(gone)}: {len(gone)} change file(s) are gone that were listed and never applied: their changes are not in the "
            f"lake.{all_gone}",
            "fetch them again, and nothing is lost; or go on without them by the parameter go_on_without: "
            f"[{', '.join(gone[:SHOWN])}{', …' if gone[SHOWN:] else ''}], which loses their changes until the table is loaded again",
        )


def named(names: Iterable[str]) -> str:
    """Return the first of some names, with a mark if there are more."""
    listed = list(names)
    return f"{', '.join(listed[:SHOWN])}{' …' if listed[SHOWN:] else ''}"


def refuse_late(found: Arrived, position: Position, source: str) -> None:
    """Raise LateFilesError."""
    count = f" and {len(found.late) - 1} more" if found.late[1:] else ""
    raise LateFilesError(
        f"{source}: {found.late[0].path}{count} turned up late: changes up to {position.last} are applied already",
        f"if the file came late, {REPLAY}: all changes are applied in the order of their names, and none is lost; if DMS's clock went back, "
        "run 02_cdc_merge with late_files=after: it is applied after the last batch, which loses newer values where it holds older ones; "
        "if it repeats what was applied, move it away",
        found.late,
    )


def _refuse_changed(found: Arrived, position: Position, source: str) -> None:
    told = []
    for o, known, differs in found.changed:
        sizes = f"{known.size:,} bytes then, {o.size:,} now" if known else "its size then is not known"
        if known and known.size == o.size:
            sizes += ", other bytes" if differs else ", and nothing tells whether these are the same bytes"
        told.append(f"{o.path} was written again after it was applied ({sizes})")
    many = f"{len(told)} change files: " if told[1:] else ""
    raise PositionError(
        f"{source}: {many}{named(told)}",
        f"{REPLAY}: nothing is lost then; or put back what was applied; a reload discards {discarded(position)} and "
        "loses what the new load does not hold",
    )
