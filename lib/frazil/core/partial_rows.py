"""Partial rows: a column that the source's log did not carry keeps the row's earlier value.

That is the value of the nearest earlier change that carried it, also if the row had another key then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frazil.core.changes import Changes
from frazil.core.key_changes import APPLY, ARRIVE, LEAVE, Events, last_of


@dataclass(frozen=True)
class Filled:
    """Rows with all values that a batch carries.

    `missing` says, by column, which rows keep what is stored; `stored` has the key of the stored row, else nulls.
    `lost` says which rows have a null only because their row was deleted before: no change of the batch carried a value.
    """

    rows: pa.Table
    missing: dict[str, np.ndarray]
    stored: pa.Table
    lost: np.ndarray


def filled(of: Events, wanted: np.ndarray, changes: Changes) -> Filled:
    """Return the rows of wanted events, each the last of its key and no delete, with what earlier ones carried.

    A key change that lacks columns takes them from the row of its old key; through a chain, of the first old key.
    """
    row = _followed(of)
    count = int(row.max(initial=-1)) + 1
    deleted = last_of(np.flatnonzero(of.deleted), row, count)[row[wanted]]
    rows = changes.rows.take(pa.array(of.place[wanted]))
    missing, lost = {}, np.zeros(len(wanted), bool)
    for name, absent in changes.absent.items():
        at = last_of(np.flatnonzero(~(of.deleted | absent[of.place])), row, count)[row[wanted]]
        missing[name] = (at < 0) & (deleted < 0)
        carried = at > deleted
        lost |= ~carried & ~missing[name]
        values = changes.rows[name].take(pa.array(of.place[at], mask=~carried))
        rows = rows.set_column(rows.column_names.index(name), name, values)
    lacks = np.any([*missing.values()], axis=0)
    stored = of.keys.take(
        pa.array(of.last[np.where(lacks, row[wanted], 0)], mask=~lacks)
    )  # such a row is one of before
    return Filled(rows, missing, stored, lost)


def _followed(of: Events) -> np.ndarray:
    """Return the number of the row that each event is about: that of its key before the batch, or a new one.

    A key that a row left has a new row from then on, which begins with that delete.
    """
    row, new, moving = of.numbers.copy(), len(of.last), -1
    now: dict[int, int] = {}
    events = np.flatnonzero(np.isin(row, row[of.step != APPLY]))
    for event, key, step in zip(events.tolist(), row[events].tolist(), of.step[events].tolist(), strict=True):
        if step == LEAVE:
            moving, now[key], new = now.get(key, key), new, new + 1
        elif step == ARRIVE:
            now[key] = moving
        row[event] = now.get(key, key)
    return row
