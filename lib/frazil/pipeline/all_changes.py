"""Tables that keep all changes (`without_key: append`): each change is a row, with its operation, its time and its place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from frazil.core.bad_rows import BAD
from frazil.core.changes import COMMITTED, OP, SEQUENCE, Changes
from frazil.core.exact import arrow_type
from frazil.core.latest import Latest
from frazil.dms.file_names import base_name
from frazil.engine.replay_files import BatchFiles
from frazil.settings.column import Column
from frazil.settings.spec import TableSpec

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
    return spec.model_copy(update={"columns": (*spec.columns, *COLUMNS)}) if spec.policy == "append" else spec


def without_columns(spec: TableSpec) -> TableSpec:
    """Return a spec with the columns that files have."""
    if spec.policy != "append":
        return spec
    own = {column.name for column in COLUMNS}
    return spec.model_copy(update={"columns": tuple(c for c in spec.columns if c.name not in own)})


def no_changes(spec: TableSpec) -> Changes:
    """Return the changes of files that have none."""
    rows = pa.schema([(column.name, arrow_type(column.lake_type)) for column in spec.lake_columns])
    facts = pa.schema([("file", pa.int32()), ("number", pa.int64()), (OP, pa.string())])
    return Changes(rows.empty_table(), facts.empty_table(), BAD.empty_table())


def rows_of(changes: Changes, of: BatchFiles) -> pa.Table:
    """Return each change as a row of the lake's table."""
    count, facts = len(changes.rows), of.original(changes.facts)
    files = pa.array([base_name(path) for path in of.paths], pa.string())
    committed, sequence = changes.fact(COMMITTED), changes.fact(SEQUENCE)
    added = [
        facts[OP],
        pa.nulls(count, pa.timestamp("us", "UTC")) if committed is None else committed,
        pa.nulls(count, pa.string()) if sequence is None else sequence,
        files.take(facts["file"].combine_chunks()),
        facts["number"].cast(pa.int32()),
    ]
    names = [*changes.rows.column_names, *(column.name for column in COLUMNS)]
    return pa.table([*changes.rows.columns, *added], names)


def latest(changes: Changes, of: BatchFiles) -> Latest:
    """Return all changes, as if each were the last of a key of its own."""
    rows = rows_of(changes, of)
    none, place = pa.table({}), np.arange(len(rows))
    return Latest(none, place, np.zeros(len(rows), bool), rows, None, none, none)
