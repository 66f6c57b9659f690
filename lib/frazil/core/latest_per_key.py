"""The order of changes, and the last one per key: an update that changed the key is a delete and an upsert."""

from __future__ import annotations

from collections.abc import Sequence
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
    `moving` has the `moving_events`, None if no key changed.
    """

    rows: pa.Table
    passed: pa.Table
    out_of_sequence: int = 0
    moving: pa.Table | None = None


def latest_per_key(changes: pa.Table, spec: TableSpec) -> Latest:
    """Collapse changes that are in order to the last event per key."""
    steps = events(changes, spec)
    return replace(last_events(steps, spec), moving=moving_events(steps, spec))


def moving_events(steps: pa.Table, spec: TableSpec) -> pa.Table | None:
    """Return, in order, the events of keys that a row left or reached; None if no key changed.

    `event` is its place in `steps`, `row` the place of its key in the rows of `last_events`. `step` and `deleted` say what
    happened to the key.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    step = steps["step"].to_numpy()
    if (step == APPLY).all():
        return None
    codes = key_codes(steps, spec)
    distinct, from_end = np.unique(codes[::-1], return_index=True)
    row_of = np.argsort(np.argsort(-from_end))
    event = np.flatnonzero(np.isin(codes, codes[step != APPLY]))
    deleted = pc.equal(steps["op"], "D").to_numpy()
    row = row_of[np.searchsorted(distinct, codes[event])]
    return pa.table({"event": event, "row": row, "step": step[event], "deleted": deleted[event]})


def keys_at_first(moving: pa.Table, keys: Sequence[int]) -> dict[int, int]:
    """Return which rows had another key before the batch, and which: those of `keys`, given for each moving event.

    The events are those of all keys, in order. A row may pass several keys.
    """
    first: dict[int, int | None] = {}  # a row's present key → its key at first; None: it is new
    moving_row = None
    steps, deleted = moving["step"].to_pylist(), moving["deleted"].to_pylist()
    for key, step, is_deleted in zip(keys, steps, deleted, strict=True):
        if step == LEAVE:
            moving_row, first[key] = first.get(key, key), None
        elif step == ARRIVE:
            first[key] = moving_row
        elif is_deleted:
            first[key] = None
    return {key: at_first for key, at_first in first.items() if at_first is not None and at_first != key}


def last_events(steps: pa.Table, spec: TableSpec) -> Latest:
    """Return the last one per key of `events` that are in order."""
    import numpy as np
    import pyarrow as pa

    if not len(steps):
        return Latest(steps, steps)
    order, follows = _by_key(steps, spec)
    last = np.append(~follows[1:], True)
    passed = order[_passes(steps, order, follows) & last]
    kept = np.sort(order[last])
    return Latest(steps.take(pa.array(kept)), steps.take(pa.array(passed)), _out_of_sequence(steps, order, follows))


def contradictions(steps: pa.Table, spec: TableSpec) -> tuple[pa.Table, int]:
    """Return all events by which a row left a key right after one arrived, and the number of events out of sequence."""
    import pyarrow as pa

    if not len(steps):
        return steps, 0
    order, follows = _by_key(steps, spec)
    passed = order[_passes(steps, order, follows)]
    return steps.take(pa.array(passed)), _out_of_sequence(steps, order, follows)


def _by_key(steps: pa.Table, spec: TableSpec) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of steps in the order of their keys, and which step has the same key as the one before."""
    import numpy as np

    codes = key_codes(steps, spec)
    order = np.argsort(codes, kind="stable")
    in_order = codes[order]
    return order, np.append(False, in_order[1:] == in_order[:-1])


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
