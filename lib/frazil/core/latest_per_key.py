"""The order of changes, and the last one per key: an update that changed the key is a delete and an upsert."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec
from frazil.core.equal_keys import key_codes
from frazil.core.key_changes import APPLY, ARRIVE, LEAVE, events

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

SEQUENCE_TIME = 16
"""Digits of DMS's sequence that are a time; the counter after them restarts with the task."""


@dataclass(frozen=True)
class Latest:
    """The last event per key.

    `rows` has the columns of changes and `step`. `out_of_sequence` counts events that DMS's own sequence orders
    differently. `passed` has the rows of keys at which a row arrived, and which it then left within one commit time.
    If such a key is stored, one statement changed keys among stored rows, and the row that left is the stored one.
    `stored_as` has, for each row, the event whose key it had before the batch; nulls if its key did not change. It is None
    if no key changed, or if the events are only those of some keys.
    """

    rows: pa.Table
    passed: pa.Table
    out_of_sequence: int = 0
    stored_as: pa.Table | None = None


def latest_per_key(changes: pa.Table, spec: TableSpec) -> Latest:
    """Collapse changes that are in order to the last event per key."""
    steps = events(changes, spec)
    latest = last_events(steps, spec)
    if (steps["step"].to_numpy() == APPLY).all():  # no key changed
        return latest
    return replace(latest, stored_as=_stored_as(steps, spec))


def _stored_as(steps: pa.Table, spec: TableSpec) -> pa.Table:
    """Follow rows from key to key; return, in the order of `last_events`, the events whose keys they had at first."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    codes, step = key_codes(steps, spec), steps["step"].to_numpy()
    deleted = pc.equal(steps["op"], "D").to_numpy()
    first: dict[int, int | None] = {}  # a row's present key → the event with its key at first; None: it is new
    moving = None
    for event in np.flatnonzero(np.isin(codes, codes[step != APPLY])).tolist():
        key = int(codes[event])
        if step[event] == LEAVE:
            moving, first[key] = first.get(key, event), None
        elif step[event] == ARRIVE:
            first[key] = moving
        elif deleted[event]:
            first[key] = None
    last = np.sort(len(codes) - 1 - np.unique(codes[::-1], return_index=True)[1])
    return steps.take(pa.array([first.get(key) for key in codes[last].tolist()], pa.int64()))


def last_events(steps: pa.Table, spec: TableSpec) -> Latest:
    """Return the last one per key of `events` that are in order."""
    import numpy as np
    import pyarrow as pa

    if not len(steps):
        return Latest(steps, steps)
    codes = key_codes(steps, spec)
    order = np.argsort(codes, kind="stable")
    in_order = codes[order]
    follows = np.append(False, in_order[1:] == in_order[:-1])
    last = np.append(in_order[1:] != in_order[:-1], True)
    passed = order[_passes(steps, order, follows) & last]
    kept = np.sort(order[last])
    return Latest(steps.take(pa.array(kept)), steps.take(pa.array(passed)), _out_of_sequence(steps, order, follows))


def contradictions(steps: pa.Table, spec: TableSpec) -> tuple[pa.Table, int]:
    """Return all events by which a row left a key right after one arrived, and the number of events out of sequence."""
    import numpy as np
    import pyarrow as pa

    if not len(steps):
        return steps, 0
    codes = key_codes(steps, spec)
    order = np.argsort(codes, kind="stable")
    in_order = codes[order]
    follows = np.append(False, in_order[1:] == in_order[:-1])
    passed = order[_passes(steps, order, follows)]
    return steps.take(pa.array(passed)), _out_of_sequence(steps, order, follows)


def _passes(steps: pa.Table, order: np.ndarray, follows: np.ndarray) -> np.ndarray:
    """Return, in key order, where a row leaves a key right after one arrived, in one commit time.

    Keys that a delete freed before do not count.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    step = steps["step"].to_numpy()[order]
    found = follows & (step == LEAVE) & (np.roll(step, 1) == ARRIVE)
    if not found.any():
        return found
    times = steps["commit_ts"].combine_chunks().cast(pa.int64()).fill_null(np.iinfo("int64").min).to_numpy()[order]
    found &= times == np.roll(times, 1)
    deletes = (pc.equal(steps["op"], "D").to_numpy()[order] & ~found).astype("int64")
    before = np.cumsum(deletes) - deletes
    first = np.flatnonzero(~follows)
    is_freed = before > np.repeat(before[first], np.diff(np.append(first, len(order))))
    return found & ~is_freed


def _out_of_sequence(steps: pa.Table, order: np.ndarray, follows: np.ndarray) -> int:
    """Return how many events have an earlier sequence of DMS than the event before; `order` is by key."""
    import numpy as np
    import pyarrow.compute as pc

    sequence = steps["change_seq"]
    if sequence.null_count == len(sequence) or not follows.any():
        return 0
    time = pc.utf8_slice_codeunits(pc.fill_null(sequence, ""), 0, SEQUENCE_TIME).combine_chunks()
    ranks = time.dictionary_encode()
    place = np.argsort(np.argsort(ranks.dictionary.to_numpy(zero_copy_only=False).astype(str), kind="stable"))
    rank = place[ranks.indices.to_numpy()][order]
    known = sequence.is_valid().to_numpy()[order]
    return int((follows & known & np.roll(known, 1) & (rank < np.roll(rank, 1))).sum())
