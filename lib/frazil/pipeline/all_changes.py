"""Tables that keep all changes (`without_key: append`): each change is a row, with its operation, its time and its place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from frazil.core.bad_rows import BAD
from frazil.core.changes import COMMITTED, OP, SEQUENCE, Changes
from frazil.core.exact import arrow_type
from frazil.core.latest import Latest
from frazil.dms.file_names import base_name
from frazil.engine.waiting_rows import BatchFiles
from frazil.settings.column import Column
from frazil.settings.spec import TableSpec

APPEND = "append"
COLUMNS = (
    Column(name="_op", type="STRING", comment="I, U or D; a load row is an I"),
    Column(name="_commit_ts", type="DATETIME", utc=True, comment="When the source committed"),
    Column(name="_seq", type="STRING", comment="The sequence that DMS gave the change"),
    Column(
        name="_object", type="STRING", comment="The file that it came in: their order by name is the order of changes"
    ),
    Column(name="_row", type="INT4", comment="The row in that file, from 1"),
)
"""The columns after the source's."""


def with_columns(spec: TableSpec) -> TableSpec:
    """Return a spec with the columns that the lake's table has beside the source's."""
    return spec.model_copy(update={"columns": (*spec.columns, *COLUMNS)}) if spec.policy == APPEND else spec


def without_columns(spec: TableSpec) -> TableSpec:
    """Return a spec with the columns that files have."""
    if spec.policy != APPEND:
        return spec
    own = {column.name for column in COLUMNS}
    return spec.model_copy(update={"columns": tuple(c for c in spec.columns if c.name not in own)})


def no_changes(spec: TableSpec) -> Changes:
    """Return the changes of files that have none."""
    rows = pa.table({c.name: pa.array([], arrow_type(c.lake_type)) for c in spec.lake_columns})
    facts = pa.table(
        {"file": pa.array([], pa.int32()), "number": pa.array([], pa.int64()), OP: pa.array([], pa.string())}
    )
    return Changes(rows, facts, BAD.empty_table())


def rows_of(changes: Changes, of: BatchFiles) -> pa.Table:
    """Return each change as a row of the lake's table."""
    count, facts = len(changes.rows), of.original(changes.facts)
    names = pa.array([base_name(path) for path in of.paths], pa.string())
    committed, sequence = changes.fact(COMMITTED), changes.fact(SEQUENCE)
    added = [
        facts[OP],
        pa.nulls(count, pa.timestamp("us", "UTC")) if committed is None else committed,
        pa.nulls(count, pa.string()) if sequence is None else sequence,
        names.take(facts["file"].combine_chunks()),
        facts["number"].cast(pa.int32()),
    ]
    rows = changes.rows
    for column, values in zip(COLUMNS, added, strict=True):
        rows = rows.append_column(column.name, values)
    return rows


def latest(changes: Changes, of: BatchFiles) -> Latest:
    """Return all changes, as if each were the last of a key of its own."""
    rows = rows_of(changes, of)
    none, place = pa.table({}), np.arange(len(rows))
    return Latest(none, place, np.zeros(len(rows), bool), rows, None, none, none)
