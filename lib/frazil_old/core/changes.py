"""Changes: the typed rows of files and messages, in the order in which DMS wrote them.

Bad rows are found on the way (`core.bad_rows`), and are kept apart from the changes.

A block of changes has these columns:

| column | meaning |
|---|---|
| `number` | the row's place in its file, from 1, or the place of its message |
| `op` | `I`, `U` (both upserts) or `D` |
| `commit_ts` | when the source committed; null if DMS does not write it |
| `change_seq` | DMS's own sequence, a second proof of the order |
| `new_0`, `new_1` … | the columns of the spec, typed, before any mask |
| `old_0`, `old_1` … | old values of the columns that identify a row; null if an update did not change them |
| `absent_3` … | whether the row does not carry that column at all; only for columns that some row lacks |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil_old.config.columns import Column
from frazil_old.config.spec import TableSpec
from frazil_old.core import bad_rows
from frazil_old.core.bad_rows import COMMIT_TIME, BadRow, Fault
from frazil_old.core.field_meaning import ReadRules, absent_columns, texts_by_role, values_by_role
from frazil_old.core.field_roles import fields_by_role
from frazil_old.core.parquet_types import type_values
from frazil_old.core.replaced_values import as_texts_where_lacking, replaced_texts
from frazil_old.core.rows_of_table import RowMasks, rows_of_table
from frazil_old.core.types import type_texts

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

COMMIT_TS = Column(COMMIT_TIME, "DATETIME", utc=True)
PLACE = ("file_order", "number")
"""The columns whose order is that of changes: the place of their file (`dms.file_order`) or partition, and `number`."""


@dataclass(frozen=True)
class Changes:
    """The good rows of one block, and the bad ones."""

    rows: pa.RecordBatch
    bad: tuple[BadRow, ...] = ()


def type_csv(
    fields: pa.RecordBatch, numbers: np.ndarray, roles: Sequence[str], spec: TableSpec, rules: ReadRules
) -> Changes:
    """Return the changes in records of CSV; `roles` has the role of each field.

    A role is `op`, `ts`, `seq`, `after:<column>`, `before:<column>`, `skip`, or one of `field_roles`.
    """
    at = fields_by_role(roles, fields.columns)
    texts = texts_by_role(fields, roles, spec, rules)
    return change_rows(texts, numbers, spec, absent_columns(at, spec, rules), rows_of_table(at, rules))


def type_parquet(
    columns: pa.RecordBatch, first: int, roles: Sequence[str], spec: TableSpec, rules: ReadRules
) -> Changes:
    """Return the changes in rows of Parquet; `first` is the first row's number in its file."""
    import numpy as np

    at = fields_by_role(roles, columns.columns)
    numbers = np.arange(first, first + columns.num_rows)
    values = values_by_role(columns, roles, rules)
    return change_rows(values, numbers, spec, which=rows_of_table(at, rules))


def no_changes(spec: TableSpec) -> pa.RecordBatch:
    """Return a block of changes without rows."""
    import numpy as np
    import pyarrow as pa

    fields = {"op": pa.array([], pa.string())} | {f"after:{name}": pa.array([], pa.string()) for name in spec.names}
    return change_rows(fields, np.array([], "int64"), spec).rows


def in_file(rows: pa.RecordBatch | pa.Table, order: int) -> pa.RecordBatch | pa.Table:
    """Return changes, or their events, with the place of their file in the order: the first column of `PLACE`."""
    import pyarrow as pa

    return rows.append_column(PLACE[0], pa.repeat(pa.scalar(order, pa.int32()), rows.num_rows))


def change_rows(
    texts: Mapping[str, pa.Array],
    numbers: np.ndarray,
    spec: TableSpec,
    absent: Mapping[str, pa.Array] | None = None,
    which: RowMasks | None = None,
) -> Changes:
    """Return changes from the texts, or the typed values, of each role.

    `absent`: which rows lack a column. `which`: the rows that are the table's; None: all. The first of several faults
    of a row is its reason, in the order in which they are checked here.
    """
    import numpy as np
    import pyarrow as pa

    nothing = pa.nulls(len(numbers), pa.string())
    op = texts["op"] if "op" in texts else pa.repeat(pa.scalar("I"), len(numbers))
    which = which or RowMasks(np.ones(len(numbers), bool), np.zeros(len(numbers), bool))
    commit_ts, time_fault = _typed(COMMIT_TS, texts.get("ts", nothing))
    faults = [
        bad_rows.fault_of_unknown_table(which.unknown),
        bad_rows.fault_of_operation(op),
        bad_rows.fault_of_missing_key(texts, spec, nothing),
        bad_rows.fault_of_unkept_times(time_fault) if which.of_load and spec.policy != "append" else time_fault,
        bad_rows.fault_of_missing_old_row(op, texts, spec),
    ]
    columns: dict[str, pa.Array] = {}
    for i, name in enumerate(spec.row_identity):
        columns[f"old_{i}"], fault = _typed(spec.column(name), texts.get(f"before:{name}", nothing), old=True)
        faults.append(fault)
    for i, column in enumerate(spec.columns):
        columns[f"new_{i}"], fault = _typed(column, texts.get(f"after:{column.name}", nothing))
        faults.append(fault)
    head = {"number": pa.array(numbers), "op": op, "commit_ts": commit_ts, "change_seq": texts.get("seq", nothing)}
    lacking = {f"absent_{spec.names.index(c)}": mask for c, mask in (absent or {}).items()}
    rows = pa.RecordBatch.from_pydict({**head, **columns, **lacking})
    return Changes(*bad_rows.separated(rows, numbers, [f for f in faults if f], which.mine, spec))


def _typed(column: Column, texts: pa.Array, old: bool = False) -> tuple[pa.Array, Fault | None]:
    import pyarrow as pa

    texts = _declared(column, texts) if column.replace else texts
    values, misfit = (type_texts if pa.types.is_string(texts.type) else type_values)(column, texts)
    is_text = pa.types.is_string(values.type)
    return values, None if misfit is None else bad_rows.fault_of_values(column, texts, misfit, is_text, old)


def _declared(column: Column, values: pa.Array) -> pa.Array:
    """Return values with what the column's `replace` declares; typed ones as texts, if some of them are affected."""
    import pyarrow as pa

    texts = values if pa.types.is_string(values.type) else as_texts_where_lacking(column, values)
    return values if texts is None else replaced_texts(column, texts)
