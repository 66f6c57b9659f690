"""Reads a table's position from its properties. A damaged or missing one is restored by a statement."""

from __future__ import annotations

from collections.abc import Iterable

from frazil_old.config.sql import literal
from frazil_old.dms.position import POSITION, Position, PositionError
from frazil_old.lake import jvm
from frazil_old.lake.jvm import TAG


def stamped(text: str) -> tuple[Position, dict[str, int]]:
    """Return a table's position and its stamp; raise PositionError if either is damaged."""
    position, stamp = Position.from_json(text)
    if missing := [n for n in ("snapshot", "sequence") if n not in stamp]:
        raise PositionError(f"the position lacks {', '.join(missing)}")
    return position, stamp


def damaged(name: str, error: PositionError | None, history: Iterable[tuple[int, int, str | None]]) -> PositionError:
    """Return the error for a missing or damaged position, with the statement that restores it.

    `history`: id, sequence number and position of main's snapshots, newest first.
    """
    what = error.problem if error else "the position is missing"
    for snapshot, sequence, text in history:
        try:
            there = Position.from_json(text or "")[0]
        except PositionError:
            continue
        wanted = there.to_json(snapshot=snapshot, sequence=sequence)
        also = f"{error.cure}; if no newer Frazil writes this table, " if error and error.cure else ""
        return PositionError(
            f"{name}: property {POSITION}: {what}",
            f"{also}restore the position of the newest snapshot that has one ({there.place}), which loses nothing: ALTER TABLE {name} "
            f"SET TBLPROPERTIES ('{POSITION}' = {literal(wanted)})",
        )
    return PositionError(
        f"{name}: property {POSITION}: {what}, and no snapshot has one",
        "drop the table and run 00_setup and 01_full_load, which applies all files again; or take it over by frazil adopt",
    )


def history_entry(snapshot: int, parent: int | None, sequence: int, text: str | None) -> tuple[int, int, str | None]:
    """Return the entry of a snapshot in a `history`; the empty table created by 00_setup has the first position."""
    made_by_setup = text is None and parent is None and sequence == 1
    return snapshot, sequence, Position().to_json() if made_by_setup else text


def _history(table: jvm.JavaTable) -> Iterable[tuple[int, int, str | None]]:
    for s in jvm.ancestors(table):
        yield history_entry(s.snapshotId(), s.parentId(), s.sequenceNumber(), s.summary().get(POSITION))


def read_position(table: jvm.JavaTable, name: str, stored: str) -> tuple[Position, dict[str, int]]:
    """Return the stored position and its stamp; raise PositionError, with the statement that restores it, if it is damaged."""
    try:
        return stamped(stored)
    except PositionError as e:
        raise damaged(name, e, _history(table)) from None


def require_position(table: jvm.JavaTable, name: str) -> None:
    """Raise PositionError if the table is Frazil's and has lost its position; a foreign table does not have Frazil's tag."""
    if table.refs().get(TAG) is not None:
        raise damaged(name, None, _history(table))
