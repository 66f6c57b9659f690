"""The order of changes, and the last one per key: an update that changed the key is a delete and an upsert.

Equal keys are found by numbers: codes within a table, and hashes that are the same everywhere. For the key index a key
is itself if it fits 64 bits, else two halves of a digest, as in `key_index.key_sql`. Tables without a key may be
multisets, in which a change adds or removes one copy of a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


APPLY, LEAVE, ARRIVE = 1, 0, 2
"""The steps of a change: a plain one; a row that leaves its old key; the same row as it arrives at its new key."""


def events(changes: pa.Table, spec: TableSpec) -> pa.Table:
    """Return changes, in order, with each changed key split in two, and the column `step`.

    An update that changed the key becomes a delete of the old key (LEAVE) and an upsert of the new one (ARRIVE). So each
    old key of a chain 1 → 2 → 3 ends with its delete.
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


def _left_behind(moved: pa.Table, spec: TableSpec) -> pa.Table:
    """Return the deletes of the old keys; a part of a key without an old value did not change."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {name: moved[name] for name in moved.column_names}
    columns["op"] = pa.array(["D"] * len(moved))
    for i, name in enumerate(spec.names):
        new = moved[f"new_{i}"]
        old = moved[f"old_{spec.key.index(name)}"] if name in spec.key else None
        columns[f"new_{i}"] = pa.nulls(len(moved), new.type) if old is None else pc.coalesce(old, new)
    return pa.table(columns, schema=moved.schema)


_MIX = 0x9E37_79B9_7F4A_7C15
"""An odd number with well-mixed bits; multiplication by it separates neighbours."""


def key_codes(rows: pa.Table, spec: TableSpec) -> np.ndarray:
    """Return a number per row that is the same for equal keys, and for no others."""
    import numpy as np

    codes = np.zeros(len(rows), "int64")
    for name in spec.key:
        part = _codes(rows[f"new_{spec.names.index(name)}"])
        if codes.any():
            _, codes = np.unique(codes, return_inverse=True)
            codes = codes * (int(part.max(initial=0)) + 1)
        codes = codes + part
    return codes


def key_hashes(rows: pa.Table, spec: TableSpec) -> np.ndarray:
    """Return a hash per row that depends only on the key, so that equal keys have equal hashes in every process."""
    import numpy as np

    hashes = np.zeros(len(rows), "uint64")
    for name in spec.key:
        part = _hashes(one_zero(rows[f"new_{spec.names.index(name)}"]))
        hashes = (hashes ^ part) * np.uint64(_MIX)
    return hashes ^ (hashes >> np.uint64(32))


def _hashes(values: pa.ChunkedArray) -> np.ndarray:
    """Hash each distinct value once; whole numbers are their own hash."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_integer(values.type) and not values.null_count:
        return values.to_numpy().astype("int64").view("uint64") * np.uint64(_MIX)
    encoded = values.combine_chunks().dictionary_encode("encode")
    distinct = [hashlib.blake2b(repr(v).encode(), digest_size=8).digest() for v in encoded.dictionary.to_pylist()]
    return np.frombuffer(b"".join(distinct), "uint64")[encoded.indices.to_numpy()]


def one_zero(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return reals with -0.0 as 0.0, which are one key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _codes(values: pa.ChunkedArray) -> np.ndarray:
    encoded = one_zero(values).combine_chunks().dictionary_encode("encode")
    return encoded.indices.to_numpy().astype("int64")


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


PLAIN_SCALE = 6
"""Maximum digits after the point.

With more, Spark writes a decimal near zero with or without an exponent, by its ANSI mode.
"""


def has_numbers(spec: TableSpec) -> bool:
    """Return whether the numbers of a table's keys can be computed here.

    They cannot for reals, and for decimals with many digits after the point, which Spark writes in its own way.
    """
    from frazil.core.types import arrow_type

    return all(spec.column(k).mask or _text_form(arrow_type(spec.column(k))) for k in spec.key)


def key_numbers(keys: list[pa.Array]) -> list[np.ndarray]:
    """Return the numbers of keys, given their columns with the lake's types: one column of numbers, or two.

    None is null.
    """
    import numpy as np
    import pyarrow as pa

    kinds = [k.type for k in keys]
    if len(kinds) == 1 and pa.types.is_integer(kinds[0]):
        return [keys[0].cast(pa.int64()).to_numpy()]
    if kinds == [pa.int32(), pa.int32()]:
        high, low = (k.cast(pa.int64()).to_numpy() for k in keys)
        return [(high << 32) | (low & 0xFFFF_FFFF)]
    if kinds == [pa.date32()]:
        return [keys[0].cast(pa.int32()).cast(pa.int64()).to_numpy()]
    texts = [_text_form(k.type)(k).to_pylist() for k in keys]
    digests = [_digest(row) for row in zip(*texts, strict=True)]
    halves = np.frombuffer(b"".join(digests), ">i8").reshape(-1, 2)
    return [halves[:, 0].astype("int64"), halves[:, 1].astype("int64")]


def _digest(parts: tuple[str, ...]) -> bytes:
    whole = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(whole.encode()).digest()[:16]


def _text_form(kind: pa.DataType):
    """Return the function that writes keys of a type as Spark writes them; None for a type without a known one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind):
        return lambda values: values.cast(pa.string())
    if pa.types.is_binary(kind):
        return lambda values: pa.array([value.hex().upper() for value in values.to_pylist()], pa.string())
    if pa.types.is_decimal(kind) and kind.scale <= PLAIN_SCALE:
        return lambda values: values.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.tz:
        return lambda values: values.cast(pa.int64()).cast(pa.string())
    if pa.types.is_timestamp(kind):
        return lambda values: pc.replace_substring_regex(values.cast(pa.string()), r"\.?0+$", "")
    return None
