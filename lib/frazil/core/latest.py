"""The last change of each key: what a table's rows become by a batch, whatever came between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.bad_rows import as_mask
from frazil.core.changes import SEQUENCE, Changes
from frazil.core.key_changes import Events, events, transient
from frazil.core.partial_rows import Filled, filled

SEQUENCE_TIME = 16
"""Digits of DMS's sequence that are a time; the counter after them restarts with the task."""


@dataclass(frozen=True)
class Latest:
    """The last change of each key, in order.

    `keys` has all keys that changed, `place` the place of the last change of each, `deleted` whether its row goes.
    `rows` has the rows that stay, in the same order, and `partial` what they lack (None: all are whole).
    `transient` has keys that must not be stored; see `key_changes.transient`.
    `contradicting` has the key of each event that DMS's own sequence puts before the one it follows.
    """

    keys: pa.Table
    place: np.ndarray
    deleted: np.ndarray
    rows: pa.Table
    partial: Filled | None
    transient: pa.Table
    contradicting: pa.Table


def latest(changes: Changes, keys: Sequence[str]) -> Latest:
    """Return the last change of each key, which is the value of some columns."""
    of = events(changes, keys)
    last = np.sort(of.last)
    kept = last[~of.deleted[last]]
    partial = filled(of, kept, changes) if changes.absent else None
    return Latest(
        _taken(of.keys, last),
        of.place[last],
        of.deleted[last],
        partial.rows if partial else _taken(changes.rows, of.place[kept]),
        partial,
        _taken(of.keys, transient(of, changes)),
        _taken(of.keys, contradicting(of, changes)),
    )


def contradicting(of: Events, changes: Changes) -> np.ndarray:
    """Return the events whose time by DMS's sequence is before that of the event of their key before."""
    sequence = changes.fact(SEQUENCE)
    if sequence is None:
        return np.empty(0, "int64")
    times = _taken(pc.utf8_slice_codeunits(sequence, 0, SEQUENCE_TIME), of.place)
    known = pc.fill_null_forward(times)
    if not pc.any(pc.less(known[1:], known[:-1])).as_py():
        return np.empty(0, "int64")
    return np.flatnonzero(as_mask(pc.less(times, times.take(pa.array(of.before, mask=of.before < 0)))))


def _taken(rows: pa.Table, places: np.ndarray) -> pa.Table:
    """Return the rows, or values, at some places: all of them if there are as many."""
    return rows if len(places) == len(rows) else rows.take(pa.array(places))
