"""SQL of dates and times: made from microseconds, and turned into texts.

Neither Arrow nor Python carries them between Spark and this process: Spark shifts Arrow's times by its session's zone.
Python has no date or time before year 1 or after 9999, and shifts an instant to the machine's zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frazil_old.config.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMES = ("timestamp", "timestamp_ntz")
"""Spark's types of times: an instant, and a wall-clock time."""
DAY_MICROS = 86_400_000_000


def is_time(kind: str) -> bool:
    """Return whether a Spark type is a time, which crosses between Spark and this process as microseconds."""
    return kind in TIMES


def micros_type(kind: str) -> str:
    """Return the Spark type in which a column crosses: `bigint` for times."""
    return "bigint" if is_time(kind) else kind


def from_micros(kind: str, micros: str) -> str:
    """Return the SQL of a column of a Spark type that crossed as `micros`; one of another type stays as it is."""
    if kind == "timestamp":
        return f"timestamp_micros({micros})"
    return wall_clock(micros) if is_time(kind) else micros


def wall_clock(micros: str) -> str:
    """Return the SQL of a wall-clock time that is given as microseconds since 1970.

    Spark 3.5 adds 32-bit numbers only, and cuts larger ones silently. So days, seconds and the rest are added.
    """
    rest = f"pmod({micros}, {DAY_MICROS}L)"
    day = f"timestampadd(DAY, int(({micros} - {rest}) div {DAY_MICROS}L), timestamp_ntz'1970-01-01 00:00:00')"
    return f"timestampadd(MICROSECOND, int({rest} % 1000000), timestampadd(SECOND, int({rest} div 1000000), {day}))"


def time_text(value: str, kind: str) -> str:
    """Return the SQL of the text of a date or time of a Spark type; for an instant in UTC."""
    shown = wall_clock(f"unix_micros({value})") if kind == "timestamp" else value  # in any session's zone
    return f"cast({shown} as string)"


def key_text(value: str, kind: str) -> str:
    """Return the SQL of a key's value as a unique text."""
    if kind == "binary":
        return f"hex({value})"
    return time_text(value, kind) if kind == "date" or is_time(kind) else f"cast({value} as string)"


def driver_rows(rows: DataFrame) -> DataFrame:
    """Return rows in a form that the driver can collect: dates and times as texts, also inside structs."""
    texts = {f.name: _sql(identifier(f.name), f.dataType) for f in rows.schema}
    if all(text == identifier(name) for name, text in texts.items()):
        return rows
    return rows.selectExpr(*[f"{text} as {identifier(name)}" for name, text in texts.items()])


def _sql(value: str, kind: Any) -> str:
    name = kind.simpleString()
    if name == "date" or is_time(name):
        return time_text(value, name)
    if not name.startswith("struct"):
        return value
    parts = {f.name: (f"{value}.{identifier(f.name)}", f.dataType) for f in kind}
    if all(_sql(*part) == part[0] for part in parts.values()):
        return value
    fields = ", ".join(f"{literal(n)}, {_sql(*part)}" for n, part in parts.items())
    return f"if({value} is null, null, named_struct({fields}))"
