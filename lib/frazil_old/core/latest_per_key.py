"""The latest row per key of changes in order (`changes.PLACE`).

Tables without a key may be multisets, in which a change adds or removes one copy of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil_old.config.spec import TableSpec
from frazil_old.core.changes import PLACE
from frazil_old.core.key_changes import events, leaves_transient_key, moving_events
from frazil_old.core.key_numbers import key_codes, one_zero

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


SEQUENCE_TIME = 16
"""Digits of DMS's sequence that are a time; the counter after them restarts with the task."""


@dataclass(frozen=True)
class Latest:
    """The last event per key.

    `rows` has the columns of changes and `step`. `out_of_sequence` counts events that DMS's own sequence orders
    differently. `transient_keys` has the rows of keys that a row reached and left again within one commit time; see
    `key_changes.leaves_transient_key`. `moving` has the `moving_events`, None if no key changed.
    """

    rows: pa.Table
    transient_keys: pa.Table
    out_of_sequence: int = 0
    moving: pa.Table | None = None


@dataclass(frozen=True)
class EventsByKey:
    """Events brought together by key, those of each key in order. Which one is the last of its key is decided here alone.

    `codes` has the number of each event's key, and `order` the places of the events by key. In that order, `follows`
    says whether an event has the key of the one before, and `is_last` whether it is its key's last.
    """

    codes: np.ndarray
    order: np.ndarray
    follows: np.ndarray
    is_last: np.ndarray


def events_by_key(steps: pa.Table, spec: TableSpec) -> EventsByKey:
    """Bring `events` that are in order together by key."""
    import numpy as np

    codes = key_codes(steps, spec)
    order = np.argsort(codes, kind="stable")
    is_same = np.diff(codes[order]) == 0
    follows, is_last = np.append(False, is_same), ~np.append(is_same, False)
    return EventsByKey(codes, order, follows[: len(order)], is_last[: len(order)])


def latest_per_key(changes: pa.Table, spec: TableSpec) -> Latest:
    """Return the last event per key of changes that are in order."""
    return last_events(events(changes, spec), spec)


def last_events(steps: pa.Table, spec: TableSpec) -> Latest:
    """Return the last one per key of `events` that are in order."""
    import numpy as np
    import pyarrow as pa

    by_key = events_by_key(steps, spec)
    last = by_key.order[by_key.is_last]
    left = by_key.order[by_key.is_last & leaves_transient_key(steps, by_key.order, by_key.follows)]
    rows, transient = (steps.take(pa.array(places)) for places in (np.sort(last), left))
    return Latest(rows, transient, _out_of_sequence(steps, by_key), moving_events(steps, by_key.codes, last))


def transient_events(steps: pa.Table, spec: TableSpec) -> tuple[pa.Table, int]:
    """Return all events that leave a transient key, the last of their key or not, and the number of events out of sequence."""
    import pyarrow as pa

    by_key = events_by_key(steps, spec)
    left = by_key.order[leaves_transient_key(steps, by_key.order, by_key.follows)]
    return steps.take(pa.array(left)), _out_of_sequence(steps, by_key)


def _out_of_sequence(steps: pa.Table, by_key: EventsByKey) -> int:
    """Return how many events have an earlier sequence of DMS than the event of their key before.

    That of messages is a time alone: it counts only between partitions, as DMS may send messages of one again.
    """
    import numpy as np
    import pyarrow.compute as pc

    sequence = steps["change_seq"]
    if sequence.null_count == len(sequence) or not by_key.follows.any():
        return 0
    time = pc.utf8_slice_codeunits(pc.fill_null(sequence, ""), 0, SEQUENCE_TIME).combine_chunks()
    ranks = time.dictionary_encode()
    place = np.argsort(np.argsort(ranks.dictionary.to_numpy(zero_copy_only=False).astype(str), kind="stable"))
    rank = place[ranks.indices.to_numpy()][by_key.order]
    known = sequence.is_valid().to_numpy()[by_key.order]
    found = by_key.follows & known & np.roll(known, 1) & (rank < np.roll(rank, 1))
    if found.any() and PLACE[0] in steps.column_names:
        file = steps[PLACE[0]].to_numpy()[by_key.order]
        is_time = pc.equal(pc.utf8_length(sequence), SEQUENCE_TIME).fill_null(False).to_numpy()[by_key.order]
        found &= ~is_time | (file != np.roll(file, 1))
    return int(found.sum())


def net_rows(changes: pa.Table, spec: TableSpec) -> pa.Table:
    """Return the rows that changes add (`net` 1) and remove (-1), as `new_0` …; an update removes its old row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [f"new_{i}" for i in range(len(spec.names))]
    olds = [f"old_{i}" for i in range(len(spec.names))]
    updates = changes.filter(pc.equal(changes["op"], "U"))
    removes = pc.equal(changes["op"], "D")
    added, removed = changes.filter(pc.invert(removes)).select(names), changes.filter(removes).select(names)
    replaced = updates.select(olds).rename_columns(names)
    parts = [(added, 1), (removed, -1), (replaced, -1)]
    rows = pa.concat_tables([part.append_column("net", pa.array([n] * len(part), pa.int64())) for part, n in parts])
    for i, name in enumerate(names):
        rows = rows.set_column(i, name, one_zero(rows[name]))
    return rows
