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


def value_sql(column: Column, text: str) -> str:
    """Return the SQL expression that casts `text`, itself SQL, to the column's lake type as Spark does: null if it cannot.

    SQL text, as only there Spark 3.5 has `try_cast`. Spark also takes what is no exact value: see `exact_sql`.
    """
    kind, target = column.dms_type, value_type(column)
    if target == "string":
        return text
    if kind == "BOOLEAN":
        yes, no = "('true', 't', '1', 'y', 'yes')", "('false', 'f', '0', 'n', 'no')"
        return f"case when lower({text}) in {yes} then true when lower({text}) in {no} then false end"
    if kind in ("BYTES", "BLOB"):
        return f"unhex(if(lower(substring({text}, 1, 2)) = '0x', substring({text}, 3), {text}))"
    typed = f"try_cast({text} as {target})"
    if kind == "DATETIME" and column.utc:
        # Spark looks up a zone with regular expressions, for each row: where the session's is UTC, none is written.
        anywhere = f"coalesce(try_cast(concat({text}, 'Z') as {target}), {typed})"
        return f"if(current_timezone() = 'UTC', {typed}, {anywhere})"
    return typed


def exact_sql(column: Column, text: str, value: str) -> str:
    """Return the SQL condition under which a cast `value` is exactly what its `text` says; empty: always.

    Refused are digits that would be rounded off, a real that overflows or that only Java reads, a date with a time behind
    it, a bare year, a part of a microsecond, half a byte of hex, a wall-clock time with a zone. The form that DMS writes is
    told first where that is cheap, and of any other one a pattern decides: conditions in words would make the code of a
    table of ten columns too long for the JVM to compile.
    """
    kind = column.dms_type if column.lake != "string" else "STRING"
    # Found from behind, which takes less time; all of the text, where there is no point.
    fraction = f"substring_index({text}, '.', -1)"
    if kind in ("NUMERIC", "UINT8"):
        scale = column.arguments[1] if kind == "NUMERIC" else 0
        usual = f"octet_length({fraction}) <= {min(scale, 2)}"  # no room for an exponent
        return f"{usual} or {text} rlike '^[^.eE]*([.][0-9]{{0,{scale}}}0*)?([eE][+]?[0-9]+)? *$'"
    if kind in ("REAL4", "REAL8"):
        finite = f"abs({value}) < double('infinity') and not {text} rlike '[fFdDxX]'"
        return f"({finite}) or {text} rlike '(?i)^(nan|[+-]?inf(inity)?)$'"
    if kind in ("BYTES", "BLOB"):
        return f"octet_length({text}) % 2 = 0"
    if kind == "DATE":
        return f"{text} rlike '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$'"
    if kind == "DATETIME":
        time = value_type(column)
        years = f"{value} between {time}'0001-01-01 00:00:00' and {time}'9999-12-31 23:59:59.999999'"  # of four digits
        usual = f"octet_length({text}) = 26 and octet_length({fraction}) = 6 and {years}"
        usual += "" if column.utc else f" and try_cast({fraction} as int) is not null"
        zone = "([^0-9.].*)?" if column.utc else " *"  # or none
        day, clock = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}", "[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}([.][0-9]{0,6}0*)?"
        return f"({usual}) or {text} rlike '^{day}[ T]{clock}{zone}$'"
    return ""


def convert_sql(column: Column, value: str, kind: str) -> str:
    """Return the SQL expression that turns an already typed value (Parquet's) into the lake's type, null where it does not fit.

    `kind` is its Spark type. Whether nothing was rounded tells `kept_sql`.
    """
    target = value_type(column)
    if kind == target:
        return value
    if kind == "string":
        return value_sql(column, value)
    if target == "string":
        return f"cast({value} as string)"
    if kind == "timestamp" and target == "timestamp_ntz":
        return f"timestampadd(MICROSECOND, unix_micros({value}), timestamp_ntz'1970-01-01 00:00:00')"
    return f"try_cast({value} as {target})"


def kept_sql(column: Column, value: str, typed: str) -> str:
    """Return the SQL condition under which a value that `convert_sql` typed is the same as before; empty: always."""
    return f"{typed} = {value}" if value_type(column).startswith(("decimal", "int", "bigint")) else ""


def mask_sql(column: Column, value: str) -> str:
    """Return the SQL of what the lake holds of a typed value: itself, or the hash of its text, the same in every form of file."""
    if not column.mask:
        return value
    kind = value_type(column)
    text = value if kind == "binary" else f"cast({f'unix_micros({value})' if kind == 'timestamp' else value} as string)"
    return f"sha2({text}, 256)"
