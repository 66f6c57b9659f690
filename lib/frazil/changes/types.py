"""DMS data types: what each becomes in the lake, and how its text is cast without ever guessing."""

from __future__ import annotations

from frazil.config.spec import Column

LAKE_TYPES = {
    "BOOLEAN": "boolean", "INT1": "int", "INT2": "int", "INT4": "int", "INT8": "bigint",
    "UINT1": "int", "UINT2": "int", "UINT4": "bigint", "UINT8": "decimal(20,0)",
    "REAL4": "float", "REAL8": "double", "STRING": "string", "WSTRING": "string", "CLOB": "string", "NCLOB": "string",
    "BYTES": "binary", "BLOB": "binary", "DATE": "date", "TIME": "string",
}  # fmt: skip
"""DMS type → Spark SQL type of the lake's column; NUMERIC and DATETIME depend on the column (`lake_type`)."""


def lake_type(column: Column) -> str:
    """Return the Spark SQL type that a column has in the lake."""
    if column.dms_type == "NUMERIC":
        return f"decimal({column.arguments[0]},{column.arguments[1]})"
    if column.dms_type == "DATETIME":
        return "timestamp" if column.utc else "timestamp_ntz"
    return LAKE_TYPES[column.dms_type]


def cast_sql(column: Column, text: str) -> str:
    """Return the SQL expression that casts `text`, itself SQL, to the column's lake type; null where it does not fit exactly.

    "Exactly" is stricter than Spark's own cast: digits that would be rounded off, a real that overflows, a date with a
    time behind it, a bare year, half a byte of hex, a wall-clock time with a zone are all refused. (SQL text, as only there
    Spark 3.5 has `try_cast`.)
    """
    kind, target = column.dms_type, lake_type(column)
    typed = f"try_cast({text} as {target})"
    if target == "string":
        return text
    if kind == "BOOLEAN":
        yes, no = "('true', 't', '1', 'y', 'yes')", "('false', 'f', '0', 'n', 'no')"
        return f"case when lower({text}) in {yes} then true when lower({text}) in {no} then false end"
    if kind in ("NUMERIC", "UINT8"):
        scale = column.arguments[1] if kind == "NUMERIC" else 0
        fraction = f"length(rtrim('0', substring_index({text}, '.', -1)))"
        whole = f"instr(lower({text}), 'e-') = 0 and (instr({text}, '.') = 0 or {fraction} <= {scale})"
        return f"case when {whole} then {typed} end"
    if kind in ("REAL4", "REAL8"):
        java = f"right(lower({text}), 1) in ('d', 'f') or instr(lower({text}), 'x') > 0"  # '1d' and '0x1p3' are reals to Java
        finite = f"abs({typed}) < double('infinity') and not ({java})"
        return f"case when {finite} or instr(lower({text}), 'inf') > 0 or isnan({typed}) then {typed} end"
    if kind in ("BYTES", "BLOB"):
        return f"case when length({text}) % 2 = 0 then unhex(regexp_replace({text}, '^0[xX]', '')) end"
    if kind == "DATE":
        return f"case when length({text}) = 10 and substring({text}, 5, 1) = '-' and substring({text}, 8, 1) = '-' then {typed} end"
    if kind == "DATETIME":
        zoned = f"coalesce(try_cast(concat({text}, 'Z') as {target}), {typed})" if column.utc else typed
        tail = f"substring({text}, 11)"
        zone = (
            ""
            if column.utc
            else f" and instr({tail}, '+') = 0 and instr({tail}, '-') = 0 and lower({tail}) not rlike '[a-z]$'"
        )
        return f"case when length({text}) >= 19 and substring({text}, 5, 1) = '-'{zone} then {zoned} end"
    return typed
