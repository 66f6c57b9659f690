"""Tables without a key whose rows are compared whole: a multiset, in which a change adds or removes one copy of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec
from frazil.core.equal_keys import one_zero

if TYPE_CHECKING:
    import pyarrow as pa


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
