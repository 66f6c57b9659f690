"""DMS data types: the lake type of each, and how its text is cast without guessing."""

from __future__ import annotations

from datetime import datetime

from frazil.config.columns import unrepresentable, value_type
from frazil.config.spec import Column
from frazil.config.sql import literal
from frazil.core.texts import TIMES, in_utc, time_sql


def value_sql(column: Column, text: str) -> str:
    """Return the SQL expression that casts `text`, itself SQL, to the column's lake type as Spark does.

    A failed cast is null. It is SQL text because Spark 3.5 has `try_cast` only there. Spark also accepts inexact
    values: see `exact_sql`.
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
        # Spark parses a zone with regular expressions, for each row: none is written if the session's is UTC.
        anywhere = f"coalesce(try_cast(concat({text}, 'Z') as {target}), {typed})"
        return f"if(current_timezone() = 'UTC', {typed}, {anywhere})"
    return typed


def exact_sql(column: Column, text: str, value: str) -> str:
    """Return the SQL condition under which a cast `value` is exactly what its `text` says; empty: always.

    It rejects digits that would be rounded off, and a real that overflows or that only Java reads. It also rejects a
    date with a time after it, a bare year, a part of a microsecond, half a byte of hex, and a wall-clock time with a
    zone.

    DMS's usual form is recognized first where that is cheap; a pattern judges any other one. More conditions would make
    the code of a table of ten columns too long for the JVM to compile.
    """
    kind = column.dms_type if column.lake != "string" else "STRING"
    # Searched from the end, which is faster; all of the text if there is no point.
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
        return f"{text} rlike '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$' and {years_sql('date', value)}"
    if kind == "DATETIME":
        usual = f"octet_length({text}) = 26 and octet_length({fraction}) = 6"
        usual += "" if column.utc else f" and try_cast({fraction} as int) is not null"
        zone = "([^0-9.].*)?" if column.utc else " *"  # or none
        day, clock = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}", "[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}([.][0-9]{0,6}0*)?"
        return f"(({usual}) or {text} rlike '^{day}[ T]{clock}{zone}$') and {years_sql(value_type(column), value)}"
    return ""


def years_sql(kind: str, value: str) -> str:
    """Return the SQL of whether a date or time is in the years 1 to 9999, which every reader supports."""
    first, last = "0001-01-01", "9999-12-31"
    if kind != "date":
        first, last = f"{first} 00:00:00", f"{last} 23:59:59.999999"
    zone = "Z" if kind == "timestamp" else ""
    return f"{value} between {kind}'{first}{zone}' and {kind}'{last}{zone}'"


def replaced_sql(column: Column, value: str, kind: str) -> str:
    """Return the SQL of a raw value of a Spark type, after the column's `replace`.

    In a text each U+FFFD is replaced; any other value as a whole.
    """
    text, patterns, branches = _raw_text(value, kind), unrepresentable(column), []
    for name, new in column.replace:
        if name == "U+FFFD" and new is not None:
            stated = f"replace({value}, '\ufffd', {literal(new)})"
        else:
            zone = "Z" if kind == "timestamp" and new and datetime.fromisoformat(new).tzinfo is None else ""
            stated = "null" if new is None else f"cast({literal(new + zone)} as {kind})"
        branches.append(f"when {text} rlike {literal(patterns[name])} then {stated}")
    return f"case {' '.join(branches)} else {value} end" if branches else value


def _raw_text(value: str, kind: str) -> str:
    """The SQL of a raw value as text."""
    if kind == "binary":
        return f"lower(hex({value}))"
    return time_sql(value, kind) if kind in TIMES else f"cast({value} as string)"


def convert_sql(column: Column, value: str, kind: str) -> str:
    """Return the SQL expression that turns a typed value (Parquet's) into the lake's type, null if it does not fit.

    `kind` is its Spark type. `kept_sql` checks that the value is unchanged.
    """
    target = value_type(column)
    if kind == target:
        return value
    if kind == "string":
        return value_sql(column, value)
    if target == "string":
        return _raw_text(value, kind)
    if kind == "timestamp":
        return f"try_cast({in_utc(value)} as {target})"
    if target == "timestamp":
        return f"try_cast(concat({_raw_text(value, kind)}, {literal('Z' if kind != 'date' else ' 00:00:00Z')}) as timestamp)"
    return f"try_cast({value} as {target})"


def kept_sql(column: Column, value: str, typed: str, kind: str) -> str:
    """Return the SQL condition under which a value typed by `convert_sql` is unchanged; empty: always."""
    target = value_type(column)
    if target == "string":
        return ""
    if target == "boolean":
        return f"{value} in (0, 1)"
    if target.startswith("timestamp"):
        return years_sql(target, typed)
    if target == "date":
        moment = in_utc(value) if kind == "timestamp" else value
        return f"try_cast({typed} as timestamp_ntz) <=> {moment} and {years_sql(target, typed)}"
    same = f"try_cast({typed} as {kind}) <=> {value}"
    real = next((v for v, k in ((value, kind), (typed, target)) if k in ("float", "double")), "")
    if real and "bigint" in (kind, target):  # Spark caps too large values at the largest number
        return f"{same} and {real} < 9223372036854775808D"
    if kind in ("float", "double") and target.startswith("decimal"):  # by way of the shortest text
        return f"{same} and abs({value}) <= 9007199254740992D"
    return same


def mask_sql(column: Column, value: str) -> str:
    """Return the SQL of the lake's form of a typed value: itself, or the hash of its text.

    The hash is the same for every file format.
    """
    if not column.mask:
        return value
    kind = value_type(column)
    text = value if kind == "binary" else f"cast({f'unix_micros({value})' if kind == 'timestamp' else value} as string)"
    return f"sha2({text}, 256)"
