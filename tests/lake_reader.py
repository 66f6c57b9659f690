"""Read a lake's tables as another engine does: no Spark, none of Frazil's own code, only the SQLite catalog and PyIceberg or DuckDB."""

import importlib.util
import sqlite3
from pathlib import Path
from urllib.parse import quote

import duckdb
import pyarrow as pa
from pyiceberg.table import StaticTable


def metadata_of(catalog_options: dict, table: str) -> str:
    """Return the address of the current metadata file of `namespace.table` in a SQLite catalog."""
    namespace, name = table.rsplit(".", 1)
    file = Path(catalog_options["uri"].removeprefix("jdbc:sqlite:"))
    with sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True) as catalog:
        found = catalog.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
            (namespace, name),
        ).fetchone()
    assert found, f"the catalog has no table {table}"
    return found[0]


def lake_tables(catalog_options: dict) -> list[str]:
    """Return the names of all tables in a SQLite catalog, as `namespace.table`, in order."""
    file = Path(catalog_options["uri"].removeprefix("jdbc:sqlite:"))
    with sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True) as catalog:
        rows = catalog.execute("SELECT table_namespace, table_name FROM iceberg_tables").fetchall()
    return sorted(f"{namespace}.{name}" for namespace, name in rows)


def lake_table(catalog_options: dict, table: str) -> StaticTable:
    """Open a table of a SQLite catalog in PyIceberg."""
    return StaticTable.from_metadata(metadata_of(catalog_options, table))


def lake_rows(catalog_options: dict, table: str, columns: tuple[str, ...] = ()) -> list[tuple]:
    """Return a table's rows as PyIceberg reads them, sorted; only some columns, if they are named."""
    return _tuples(lake_table(catalog_options, table).scan(selected_fields=columns or ("*",)).to_arrow())


def duckdb_rows(catalog_options: dict, table: str, columns: str = "*") -> list[tuple]:
    """Return a table's rows as DuckDB reads them, sorted; `columns` is SQL. Its file cache is off: with it DuckDB reads v3 tables wrongly."""
    with duckdb.connect() as db:
        for name in ("avro", "iceberg"):
            package = Path(importlib.util.find_spec(f"duckdb_extension_{name}").origin).parent
            db.execute(f"LOAD '{next(package.rglob('*.duckdb_extension'))}'")
        db.execute("SET enable_external_file_cache = false; SET TimeZone = 'UTC'")
        place = metadata_of(catalog_options, table).removeprefix("file:").replace("'", "''")
        return _tuples(db.execute(f"SELECT {columns} FROM iceberg_scan('{place}')").to_arrow_table())


def _tuples(rows: pa.Table) -> list[tuple]:
    columns = [column.to_pylist() for column in rows.columns]
    return sorted(zip(*columns, strict=True), key=repr)
