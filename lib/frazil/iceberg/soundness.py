"""Whether a table is as Frazil left it, or as others may leave it: no batch is written before that is certain."""

from __future__ import annotations

import time
from itertools import takewhile
from typing import TYPE_CHECKING

from frazil.dms.position import NoPositionError
from frazil.errors import FrazilError
from frazil.iceberg.columns import require_own_columns
from frazil.iceberg.snapshot_summary import POSITION, TAG, Snapshot

if TYPE_CHECKING:
    from frazil.iceberg.table import LakeTable

MOST_AHEAD_S = 60


class RolledBackError(FrazilError, code="rolled-back", decision=True):
    """Somebody rolled a table back behind its position. Set the tag to the snapshot that the message names: changes since are applied again."""


class HistoryGoneError(FrazilError, code="history-gone", decision=True):
    """Others expired what links a table's position to its rows, so nobody knows whether it was rolled back. Adopt the last position if it was not."""


class ClockError(FrazilError, code="clock-wrong"):
    """A table was changed in the future, by the clock of this machine. Set the clock, or wait."""


def require_sound(table: LakeTable) -> list[Snapshot]:
    """Return the snapshots of others since the last own one, newest first.

    Raises RolledBackError, HistoryGoneError, NoPositionError or ClockError, and what `columns` raises: each has a cure
    that loses nothing.
    """
    if table.head and table.head.committed_ms / 1000 > time.time() + MOST_AHEAD_S:
        raise ClockError(f"{table.name} was changed in the future", "set this machine's clock, or wait")
    own = table.own
    if own is None and table.ever_had_rows:
        cure = "call adopt(place) on the table, with the newest file that it holds; or restart it"
        raise NoPositionError(f"{table.name} has rows and no position", cure)
    others = _since(own, table) if own else []
    require_own_columns(table)
    return others


def _since(own: Snapshot, table: LakeTable) -> list[Snapshot]:
    """Return the snapshots of others since the last own one, on which the oldest of them must have been made."""
    others = [*takewhile(lambda s: s.sequence > own.sequence and POSITION not in s.summary, table.ancestors())]
    made_on = others[-1].parent if others else table.head_id
    if made_on == own.id:
        return others
    if made_on is not None and table.snapshot(made_on) is None:
        cure = 'if nobody rolled it back, call adopt("last") on the table; else restart it'
        raise HistoryGoneError(f"{table.name}: others expired the snapshots between its position and now", cure)
    cure = "restart the table: no snapshot that is left has a position"
    if of_past := next((s for s in table.ancestors() if POSITION in s.summary), None):
        cure = f"ALTER TABLE {table.spark_name} CREATE OR REPLACE TAG {TAG} AS OF VERSION {of_past.id}"
    raise RolledBackError(f"{table.name} was rolled back or replaced; its snapshot is now {table.head_id}", cure)
