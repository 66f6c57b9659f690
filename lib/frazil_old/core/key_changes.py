"""Key changes: an update that changed the key is a delete of the old key and an upsert of the new one.

A row keeps its id when its key changes, so `keys_at_first` follows it from key to key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frazil_old.config.spec import TableSpec
from frazil_old.core.changes import PLACE

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

APPLY, LEAVE, ARRIVE = 1, 0, 2
"""The steps of a change: a plain one; a row that leaves its old key; the same row as it arrives at its new key."""
EVENT_PLACE = (*PLACE, "step")
"""The columns whose order is that of events."""


def events(changes: pa.Table, spec: TableSpec) -> pa.Table:
    """Return changes, in order, with each changed key split in two, and the column `step`.

    An update that changed the key becomes a delete of the old key (LEAVE) and an upsert of the new one (ARRIVE). So the
    last event of each old key of a chain 1 → 2 → 3 is its delete.
    """
    import numpy as np
    import pyarrow as pa

    moved = moves(changes, spec)
    if not moved.any():
        return changes.append_column("step", pa.array(np.full(len(changes), APPLY, "int8")))
    arrive = np.where(moved, ARRIVE, APPLY).astype("int8")
    left = _left_behind(changes.filter(pa.array(moved)), spec)
    both = pa.concat_tables(
        [
            left.append_column("step", pa.array(np.full(len(left), LEAVE, "int8"))),
            changes.append_column("step", pa.array(arrive)),
        ]
    )
    places = np.concatenate([np.flatnonzero(moved), np.arange(len(changes))])
    return both.take(pa.array(np.lexsort((both["step"].to_numpy(), places))))


def moves(changes: pa.Table, spec: TableSpec) -> np.ndarray:
    """Return which changes are updates that changed the key."""
    import numpy as np
    import pyarrow.compute as pc

    moved = np.zeros(len(changes), bool)
    for i, name in enumerate(spec.key):
        old, new = changes[f"old_{i}"], changes[f"new_{spec.names.index(name)}"]
        if old.null_count < len(old):
            moved |= pc.fill_null(pc.not_equal(old, new), False).to_numpy()
    return moved & pc.equal(changes["op"], "U").to_numpy() if moved.any() else moved


def old_keys(changes: pa.Table, spec: TableSpec) -> list[pa.ChunkedArray]:
    """Return the columns of the keys before the changes; a part of a key without an old value did not change."""
    import pyarrow.compute as pc

    return [pc.coalesce(changes[f"old_{i}"], changes[f"new_{spec.names.index(k)}"]) for i, k in enumerate(spec.key)]


def _left_behind(moved: pa.Table, spec: TableSpec) -> pa.Table:
    """Return the deletes of the old keys."""
    import pyarrow as pa

    columns = {name: moved[name] for name in moved.column_names}
    columns["op"] = pa.array(["D"] * len(moved))
    olds = dict(zip(spec.key, old_keys(moved, spec), strict=True))
    for i, name in enumerate(spec.names):
        columns[f"new_{i}"] = olds[name] if name in olds else pa.nulls(len(moved), moved[f"new_{i}"].type)
    return pa.table(columns, schema=moved.schema)


def moving_events(steps: pa.Table, codes: np.ndarray, last: np.ndarray) -> pa.Table | None:
    """Return, in order, the events of keys that a row left or reached; None if no key changed.

    `event` is its place in `steps`, `row` the place of its key in the rows of `last_events`. `step` and `deleted` say
    what happened to the key. `codes` are the `key_codes`, `last` the places of the last event of each key, by code.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    step = steps["step"].to_numpy()
    if (step == APPLY).all():
        return None
    row_of = np.argsort(np.argsort(last))
    event = np.flatnonzero(np.isin(codes, codes[step != APPLY]))
    deleted = pc.equal(steps["op"], "D").to_numpy()
    row = row_of[np.searchsorted(codes[last], codes[event])]
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


def leaves_transient_key(steps: pa.Table, order: np.ndarray, follows: np.ndarray) -> np.ndarray:
    """Return which events, in key order, leave a transient key: one that a row reached just before, in one commit time.

    If such a key is stored, one statement changed keys among stored rows, and the row that left is the stored one. Keys
    that a delete freed before do not count. `order` and `follows` are those of `EventsByKey`.
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
