"""The type of each column in the lake, as Spark names it."""

from __future__ import annotations

from frazil_old.config.columns import Column

LAKE_TYPES = {
    "BOOLEAN": "boolean", "INT1": "int", "INT2": "int", "INT4": "int", "INT8": "bigint",
    "UINT1": "int", "UINT2": "int", "UINT4": "bigint", "UINT8": "decimal(20,0)",
    "REAL4": "float", "REAL8": "double", "STRING": "string", "WSTRING": "string", "CLOB": "string", "NCLOB": "string",
    "BYTES": "binary", "BLOB": "binary", "DATE": "date", "TIME": "string",
}  # fmt: skip
"""DMS type → Spark SQL type of the lake's column; NUMERIC and DATETIME depend on the column (`lake_type`)."""

OPERATION_COLUMNS = {
    "_op": ("string", "I, U or D; a load row is an I"),
    "_commit_ts": ("timestamp", "When the source committed"),
    "_seq": ("string", "The sequence that DMS gave the change"),
    "_object": ("string", "The file that it came in: their order by name is the order of changes"),
    "_row": ("int", "The row in that file, from 1"),
}
"""The columns after the source's in tables with `without_key: append`: Spark type and comment."""


def lake_type(column: Column) -> str:
    """Return the Spark SQL type that a column has in the lake."""
    return "string" if column.mask else value_type(column)


def value_type(column: Column) -> str:
    """Return the Spark SQL type of a column's values, before any mask."""
    if column.lake:
        return column.lake
    if column.dms_type == "NUMERIC":
        return f"decimal({column.arguments[0]},{column.arguments[1]})"
    if column.dms_type == "DATETIME":
        return "timestamp" if column.utc else "timestamp_ntz"
    return LAKE_TYPES[column.dms_type]
