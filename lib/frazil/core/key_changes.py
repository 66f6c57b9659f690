"""What changes do to keys: an update that changed the key deletes the old one and puts its row at the new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.bad_rows import as_mask
from frazil.core.changes import BEFORE, COMMITTED, OP, Changes

APPLY, LEAVE, ARRIVE = 0, 1, 2
"""The steps of a change: a plain one; a row that leaves its old key; the same row as it arrives at its new key."""


@dataclass(frozen=True)
class Events:
    """What happens to keys, in order: a changed key is two events, LEAVE and ARRIVE.

    `place` has the place of each event's change, `keys` its key, `deleted` whether no row has the key afterwards.
    """

    place: np.ndarray
    keys: pa.Table
    deleted: np.ndarray
    step: np.ndarray

    @cached_property
    def numbers(self) -> np.ndarray:
        """The number of each event's key, from 0."""
        names = [str(i) for i in range(self.keys.num_columns)]
        numbered = self.keys.rename_columns(names).append_column("n", pa.array(np.arange(len(self.place))))
        places = numbered.group_by(names, use_threads=False).aggregate([("n", "list")])["n_list"].combine_chunks()
        found = np.empty(len(self.place), "int64")
        found[places.flatten().to_numpy()] = np.repeat(np.arange(len(places)), np.diff(places.offsets.to_numpy()))
        return found

    @cached_property
    def last(self) -> np.ndarray:
        """The last event of each key, by the number of the key."""
        return last_of(np.arange(len(self.numbers)), self.numbers, self.numbers.max(initial=-1) + 1)

    @cached_property
    def before(self) -> np.ndarray:
        """The event of its key before each event, else -1."""
        order, found = np.argsort(self.numbers, kind="stable"), np.full(len(self.numbers), -1)
        found[order[1:]] = np.where(np.diff(self.numbers[order]) == 0, order[:-1], -1)
        return found


def last_of(events: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """Return the one of some events that comes last for each number, else -1; `numbers` are those of all events."""
    found = np.full(count, -1)
    found[numbers[events]] = events  # NumPy keeps the last of several values
    return found


def events(changes: Changes, names: Sequence[str]) -> Events:
    """Return what changes do to keys; `names` are the columns of the key.

    In a chain 1 → 2 → 3 the last event of 1 and of 2 is a delete. Rows swap keys by way of a third key.
    """
    op, keys = changes.facts[OP], {name: changes.rows[name] for name in names}
    old = {name: was for name in names if (was := changes.fact(BEFORE + name)) is not None}
    differs = [as_mask(pc.not_equal(was, keys[name])) for name, was in old.items()]
    moved = as_mask(pc.equal(op, "U")) & np.any(differs, axis=0)
    deleted, place, step = as_mask(pc.equal(op, "D")), np.arange(len(op)), np.full(len(op), APPLY)
    if moved.any():
        place = np.repeat(place, 1 + moved)
        step = np.where(moved, ARRIVE, APPLY)[place]
        step[np.flatnonzero(np.diff(place) == 0)] = LEAVE
        keys = {name: values.take(pa.array(place)) for name, values in keys.items()}
        for name, was in old.items():
            left = pc.coalesce(was.take(pa.array(place)), keys[name])
            keys[name] = pc.if_else(pa.array(step == LEAVE), left, keys[name])
    for name, values in keys.items():
        if pa.types.is_floating(values.type):
            keys[name] = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 is 0.0
    return Events(place, pa.table(keys), deleted[place] | (step == LEAVE), step)


def transient(of: Events, changes: Changes) -> np.ndarray:
    """Return the events that leave a transient key: one that a row reached just before, in one commit time.

    If such a key is stored, one statement changed keys among stored rows, and the row that left is the stored one.
    Keys that a delete freed before do not count. Whole rows count only if nothing came after: they need no stored one.
    """
    if not of.step.any():
        return np.empty(0, "int64")
    found = (of.before >= 0) & (of.step == LEAVE) & (of.step[of.before] == ARRIVE)
    if (committed := changes.fact(COMMITTED)) is not None:
        times = committed.cast(pa.int64()).fill_null(np.iinfo("int64").min).to_numpy()[of.place]
        found &= times == times[of.before]
    freed = last_of(np.flatnonzero(of.deleted & ~found)[::-1], of.numbers, len(of.last))[of.numbers]  # the first
    left = np.flatnonzero(found & ((freed < 0) | (freed > np.arange(len(freed)))))
    return left if changes.absent else left[of.last[of.numbers[left]] == left]
