"""The values of a source table as texts, which the database makes: as DMS writes them, so that they are read as files are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from sqlalchemy import Dialect, Engine

from frazil.settings.column import Column

AT_ONCE = 20_000
"""Rows that are read at once."""
_MYSQL = {"first": "SET time_zone = '+00:00'", "": "CAST({} AS CHAR CHARACTER SET utf8mb4)", "BYTES": "hex({})",
          "REAL4": "CAST({} + 0e0 AS CHAR)", "BOOLEAN": "CAST({} + 0 AS CHAR)"}  # fmt: skip
_MOMENT = "'YYYY-MM-DD HH24:MI:SS.FF6'"
TEXTS = {
    "mysql": _MYSQL, "mariadb": _MYSQL,
    "postgresql": {"first": "SET datestyle = ISO", "": "CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END",
                   "BYTES": "encode({}, 'hex')", "UTC": "({} AT TIME ZONE 'UTC')::text"},
    "oracle": {"first": "ALTER SESSION SET nls_numeric_characters = '.,'", "": "to_char({}, 'TM9')", "TEXT": "{}", "TIME": "{}",
               "BYTES": "rawtohex({})", "DATE": "to_char({}, 'YYYY-MM-DD')", "UTC": f"to_char(sys_extract_utc({{}}), {_MOMENT})",
               "DATETIME": f"to_char(CAST({{}} AS timestamp(6)), {_MOMENT})"},
    "mssql": {"first": "SET NOCOUNT ON", "": "convert(nvarchar(max), {}, 2)", "REAL": "convert(nvarchar(max), {}, 3)",
              "BYTES": "convert(varchar(max), convert(varbinary(max), {}), 2)", "DATE": "convert(nvarchar(10), {}, 23)",
              "DATETIME": "convert(nvarchar(33), {}, 121)", "UTC": "convert(nvarchar(33), switchoffset({}, '+00:00'), 121)"},
}  # fmt: skip
"""What each database is told first, and how it gives a value as text: by DMS type, or by a group of types; empty: all others."""
GROUPS = {
    **dict.fromkeys(("STRING", "WSTRING", "CLOB", "NCLOB"), "TEXT"),
    "BLOB": "BYTES",
    "REAL4": "REAL",
    "REAL8": "REAL",
}
Pairs = Sequence[tuple[Column, str]]
"""Columns, each with its name in the source."""


def statement(dialect: Dialect, source: str, pairs: Pairs) -> str:
    """Return the query of a source table's values as texts."""
    quote, forms = dialect.identifier_preparer.quote, TEXTS[dialect.name]

    def form(column: Column) -> str:
        kind = "UTC" if column.utc else column.dms_type
        return forms.get(kind) or forms.get(GROUPS.get(kind, ""), forms[""])

    values = ", ".join(form(column).format(quote(name)) for column, name in pairs)
    return f"SELECT {values} FROM {'.'.join(map(quote, source.split('.', 1)))}"


def texts(engine: Engine, source: str, pairs: Pairs) -> Iterator[list[pa.Array]]:
    """Yield blocks of a source table's rows, as texts by column."""
    with engine.connect() as connection:
        connection.exec_driver_sql(TEXTS[engine.dialect.name]["first"])
        connection.execution_options(stream_results=True, yield_per=AT_ONCE, no_parameters=True)
        for rows in connection.exec_driver_sql(statement(engine.dialect, source, pairs)).partitions():
            yield [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
