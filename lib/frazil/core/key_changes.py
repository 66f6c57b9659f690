"""Changed keys: an update that moves a row to another key becomes a delete and an upsert."""

from __future__ import annotations

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
