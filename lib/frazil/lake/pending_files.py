"""Compare a table's files with what it has applied: what is pending, what stops it, and the statement or parameter that helps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from frazil.config.sql import literal
from frazil.dms.listing import DmsObject, TableObjects
from frazil.dms.pending_changes import require_awaited, require_clear
from frazil.dms.position import Position, PositionError, is_other_load
from frazil.lake.stored_position import POSITION
from frazil.source.applied_files import Record
from frazil.source.file_names import digits_of, latest_possible
from frazil.source.pending import Arrived, arrived, same_loads


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
