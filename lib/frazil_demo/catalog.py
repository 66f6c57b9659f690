"""The source tables in PostgreSQL's catalog, in the terms of DMS."""

from __future__ import annotations

from dataclasses import dataclass, field

from frazil_demo.encode import Encoder, encoder
from frazil_old.config.spec import Column, TableSpec

_TYPES = {
    "int2": "INT2", "int4": "INT4", "int8": "INT8", "float4": "REAL4", "float8": "REAL8", "bool": "BOOLEAN",
    "text": "NCLOB", "json": "NCLOB", "jsonb": "NCLOB", "hstore": "NCLOB", "xml": "CLOB", "tsvector": "CLOB",
    "bytea": "BLOB", "date": "DATE", "money": "NUMERIC(38,4)", "time": "TIME", "timetz": "TIME", "timestamp": "DATETIME", "timestamptz": "DATETIME",
}  # fmt: skip

_COLUMNS = """
SELECT a.attname, coalesce(b.typname, t.typname), CASE WHEN b.oid IS NULL THEN a.atttypmod ELSE t.typtypmod END,
       NOT a.attnotnull, coalesce(b.typcategory, t.typcategory) = 'A', format_type(a.atttypid, a.atttypmod),
       coalesce(col_description(c.oid, a.attnum), ''), a.attnum
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
     JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = nullif(t.typbasetype, 0)
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
     CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
     JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE n.nspname = %s AND c.relname = %s AND i.indisprimary ORDER BY k.place
"""
_TABLES = """
SELECT n.nspname, c.relname, coalesce(obj_description(c.oid, 'pg_class'), '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' ORDER BY 1, 2
"""


@dataclass(frozen=True)
class SourceTable:
    """A table of the source; `spec` has its columns with DMS types (the key is empty if it has none)."""

    spec: TableSpec
    sql_types: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    """The columns' numbers, which a rename does not change."""
    encoders: dict[int, Encoder] = field(default_factory=dict)
    """By column index; the values of other columns are written as PostgreSQL writes them."""

    @property
    def name(self) -> str:
        """`schema.table`, as in specs and mappings."""
        return self.spec.source

    def encoded(self, values) -> list[str | None]:
        """Turn a row of PostgreSQL's texts into DMS's; other values (None, UNCHANGED) stay as they are."""
        row = list(values)
        for i, encode in self.encoders.items():
            if isinstance(row[i], str):
                row[i] = encode(row[i])
        return row


def quoted(*names: str) -> str:
    """Quote a (qualified) name for SQL."""
    return ".".join('"' + n.replace('"', '""') + '"' for n in names)


def dms_type(name: str, modifier: int, array: bool) -> str:
    """Return the DMS data type of a PostgreSQL type, by the DMS guide's table for PostgreSQL sources."""
    if array:
        return "NCLOB"
    if name == "numeric":
        precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 1024) - 1024
        if modifier == -1:
            return "NUMERIC(28,6)"
        return f"NUMERIC({precision},{scale})" if precision <= 38 and scale >= 0 else "STRING"
    if name in ("varchar", "bpchar"):
        return f"WSTRING({modifier - 4})" if modifier > 4 else "WSTRING"
    return _TYPES.get(name, "STRING")


def read_table(connection, schema: str, table: str, comment: str = "") -> SourceTable:
    """Read one table's columns and primary key."""
    rows = connection.execute(_COLUMNS, (schema, table)).fetchall()
    key = tuple(k for (k,) in connection.execute(_KEY, (schema, table)))
    columns = tuple(
        Column(name, dms_type(kind, modifier, array), nullable, note, kind == "timestamptz")
        for name, kind, modifier, nullable, array, _, note, _ in rows
    )
    encoders = {i: e for i, (_, kind, modifier, *_) in enumerate(rows) if (e := encoder(kind, modifier))}
    spec = TableSpec(f"{schema}.{table}", f"{schema}.{table}", key, columns, comment, "<catalog>")
    return SourceTable(spec, tuple(r[5] for r in rows), tuple(r[7] for r in rows), encoders)


def read_tables(connection) -> dict[str, SourceTable]:
    """Read every ordinary table outside PostgreSQL's own schemas, by `schema.table`."""
    found = connection.execute(_TABLES).fetchall()
    return {f"{schema}.{table}": read_table(connection, schema, table, note) for schema, table, note in found}
