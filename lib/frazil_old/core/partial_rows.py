"""Partial rows: a column that the source's log did not carry keeps the row's earlier value.

That is the value of the nearest earlier change of the row which carried it. The row may have had another key then.
What no change of the batch carries comes from the stored row, or is null after a delete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil_old.config.spec import TableSpec
from frazil_old.core.key_changes import ARRIVE, LEAVE, events
from frazil_old.core.latest_per_key import events_by_key

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class _Row:
    """The state of one row: for each column the event that carried it, and the stored row with the others."""

    carried: dict[int, int] = field(default_factory=dict)
    stored: int | None = None
    """An event whose key the stored row has; None: no stored row supplies values."""


@dataclass(frozen=True)
class Filled:
    """The last event per key with all values that the batch carries.

    `missing` has, for each row, the columns that stay as they are stored. `stored_keys` has the event whose key the
    stored row has, nulls if no row is stored.
    """

    rows: pa.Table
    missing: list[list[str]]
    stored_keys: pa.Table
    steps: pa.Table


def fill(changes: pa.Table, spec: TableSpec) -> Filled:
    """Collapse ordered changes, which may lack columns, to the last event per key."""
    import numpy as np

    steps = events(changes, spec)
    by_key = events_by_key(steps, spec)
    keys, order = by_key.codes.tolist(), np.sort(by_key.order[by_key.is_last])
    ops, step = steps["op"].to_pylist(), steps["step"].to_pylist()
    absent = _absent_columns(steps, spec)
    values = [i for i, name in enumerate(spec.names) if name not in spec.key]
    rows: dict[int, _Row] = {}
    moving = _Row()
    for event, key in enumerate(keys):
        before = rows.get(key) or _Row(stored=event)
        if step[event] == LEAVE:
            moving = before
        if ops[event] == "D":
            rows[key] = _Row()
        else:
            base = moving if step[event] == ARRIVE else before
            now = {i: event for i in values if not (i in absent and absent[i][event])}
            rows[key] = _Row(base.carried | now, base.stored)
    return _gathered(steps, spec, [rows[keys[e]] for e in order.tolist()], order)


def _absent_columns(steps: pa.Table, spec: TableSpec) -> dict[int, list[bool]]:
    return {
        i: steps[f"absent_{i}"].fill_null(False).to_pylist()
        for i in range(len(spec.names))
        if f"absent_{i}" in steps.column_names
    }


def _gathered(steps: pa.Table, spec: TableSpec, rows: list[_Row], order) -> Filled:
    """Take each value from the event that carried it."""
    import pyarrow as pa

    taken = steps.take(pa.array(order))
    columns = {name: taken[name] for name in taken.column_names if not name.startswith("absent_")}
    deletes = [op == "D" for op in taken["op"].to_pylist()]
    missing: list[list[str]] = [[] for _ in rows]
    for i, name in enumerate(spec.names):
        if name in spec.key:
            continue
        places = [row.carried.get(i) for row in rows]
        columns[f"new_{i}"] = steps[f"new_{i}"].take(pa.array(places, pa.int64()))
        for n, place in enumerate(places):
            if place is None and not deletes[n] and rows[n].stored is not None:
                missing[n].append(name)
    stored_keys = steps.take(pa.array([row.stored for row in rows], pa.int64()))
    return Filled(pa.table(columns), missing, stored_keys, steps)
