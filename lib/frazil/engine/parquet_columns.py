"""The columns of a Parquet file by its footer, and whether they can have values of the spec's types."""

from __future__ import annotations

from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from frazil.core.changes import AFTER, BEFORE, COMMITTED, OP
from frazil.dms.column_roles import UnclearColumnError
from frazil.dms.file_columns import FileColumns
from frazil.engine.parquet import damage_named
from frazil.errors import FrazilError

_WRITTEN = {
    pa.bool_(): "BOOLEAN", pa.int8(): "INT1", pa.int16(): "INT2", pa.int32(): "INT4", pa.int64(): "INT8",
    pa.uint8(): "UINT1", pa.uint16(): "UINT2", pa.uint32(): "UINT4", pa.uint64(): "UINT8", pa.float32(): "REAL4",
    pa.float64(): "REAL8", pa.date32(): "DATE", pa.binary(): "BLOB", pa.string(): "WSTRING", pa.large_string(): "WSTRING",
}  # fmt: skip
_NUMBERS = {"INT1", "INT2", "INT4", "INT8", "UINT1", "UINT2", "UINT4", "UINT8", "NUMERIC", "REAL4", "REAL8"}
_TIMES, _BYTES, _TEXTS = {"DATE", "DATETIME"}, {"BYTES", "BLOB"}, {"STRING", "WSTRING", "CLOB", "NCLOB"}
_READ_FROM = {
    **dict.fromkeys(_NUMBERS, _NUMBERS), **dict.fromkeys(_TIMES, _TIMES), **dict.fromkeys(_BYTES, _BYTES),
    **dict.fromkeys(_TEXTS, {"BOOLEAN", "TIME", "BLOB"} | _NUMBERS | _TIMES), "BOOLEAN": {"BOOLEAN"} | _NUMBERS, "TIME": {"TIME"},
    OP: set(), COMMITTED: _TIMES,
}  # fmt: skip
"""The DMS types of files from which each DMS type of a spec is read, and DMS's own columns; a text may be a value of any type."""


class ColumnTypeError(FrazilError, code="column-type"):
    """A column of a Parquet file has a type that can have no value of the spec's type. Correct the type in the spec."""


def schema_of(file: BinaryIO, where: str) -> pa.Schema:
    """Return the columns of a Parquet file.

    Raises UnreadableFileError, and UnclearColumnError if two have one name: Parquet's columns are read by name.
    """
    with damage_named(where):
        schema = pq.ParquetFile(file).schema_arrow
    if twice := next((name for name in schema.names if schema.names.count(name) > 1), None):
        listed = ", ".join(str(place + 1) for place, name in enumerate(schema.names) if name == twice)
        cure = "rename one of the two by TimestampColumnName or a rule of the task, or let DMS write CSV, and have it write the file again"
        raise UnclearColumnError(f"{where}: the column '{twice}' stands at the places {listed}", cure)
    return schema


def dms_type(kind: pa.DataType) -> str:
    """Return the DMS type of a Parquet column; empty for a type that DMS does not write."""
    if types.is_decimal(kind):
        return f"NUMERIC({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        return "DATETIME"
    if types.is_time(kind):
        return "TIME"
    return "BYTES" if types.is_fixed_size_binary(kind) else _WRITTEN.get(kind, "")


def require_readable(columns: FileColumns, schema: pa.Schema) -> None:
    """Raise ColumnTypeError for columns in which no value can have the type that it is read as."""
    spec = columns.reading.spec
    known = {role + c.name: (c.dms_type, f"{c.type} in the spec") for c in spec.columns for role in (AFTER, BEFORE)}
    known |= {OP: (OP, "no text"), COMMITTED: (COMMITTED, "no time")}
    wrong = []
    for role, field in zip(columns.reading.roles, schema, strict=True):
        found = dms_type(field.type).split("(")[0]
        wanted, words = known.get(role, ("", ""))
        if not found:
            wrong.append(f"'{field.name}' is {field.type}, which DMS does not write")
        elif wanted and found not in _READ_FROM[wanted] | {"WSTRING"}:
            wrong.append(f"'{field.name}' is {field.type}, and {words}")
    if wrong:
        cure = f"correct the types in {spec.file}; if they are right, have DMS write the file again"
        raise ColumnTypeError(f"{columns.where}: {'; '.join(wrong)}", cure)
