"""DuckDB: a view for each table, bound to one metadata file, which must be refreshed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frazil_old.config.environment_file import find_params, root_of
from frazil_old.config.query_engines import DUCKDB_SETTING
from frazil_old.config.sql import quoted, standard_literal
from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.family import LakeTable, Made, metadata_in, namespace_of, no_files

NEEDS = ("database",)
PINNED = True
EXCLUSIVE = True
DRIVER = "frazil_old.warehouses.duckdb:connect"
ARGUMENTS = {"database": "database"}
files = no_files
served = metadata_in


def connect(database: str, **options: Any) -> Any:
    """Open a database file so that it reads Iceberg: with the extensions avro and iceberg, and without the file cache.

    A relative path starts at the folder that holds `params/`.
    """
    import duckdb

    file = database if database.startswith((":", "md:")) else str(root_of(find_params()) / database)
    db = duckdb.connect(file, **options)
    for name in ("avro", "iceberg"):
        db.execute(f"LOAD {standard_literal(_extension(name))}")
    db.execute(DUCKDB_SETTING)
    return db


def _extension(name: str) -> str:
    """Return the file of an extension that is installed as a Python package, else its name."""
    import importlib.util
    from pathlib import Path

    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    return str(next(Path(found.origin).parent.rglob("*.duckdb_extension"))) if found else name


def _view(w: Warehouse, table: LakeTable, begin: str) -> str:
    place = table.metadata.removeprefix("file:").replace("s3a://", "s3://", 1)
    name = f"{quoted(namespace_of(w, table))}.{quoted(table.name)}"
    return f"{begin} {name} AS SELECT * FROM iceberg_scan({standard_literal(place)})"


def made(w: Warehouse, tables: Sequence[LakeTable]) -> list[Made]:
    """Return a schema for each namespace and a view for each table."""
    found = []
    for schema in dict.fromkeys(namespace_of(w, t) for t in tables):
        find = f"SELECT schema_name FROM duckdb_schemas() WHERE schema_name = {standard_literal(schema)}"
        create, drop = (
            f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}",
            f"DROP SCHEMA IF EXISTS {quoted(schema)} RESTRICT",
        )
        found.append(Made("schema", schema, create, drop, find))
    for t in tables:
        drop = f"DROP VIEW IF EXISTS {quoted(namespace_of(w, t))}.{quoted(t.name)}"
        find = f"SELECT view_name FROM duckdb_views() WHERE schema_name = {standard_literal(namespace_of(w, t))}"
        found.append(Made("view", t.name, _view(w, t, "CREATE VIEW IF NOT EXISTS"), drop, find, t.source))
    return found


def cloud_steps(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return what readers of the file must do."""
    return [
        f"in each session: LOAD avro; LOAD iceberg; {DUCKDB_SETTING}",
        "DuckDB locks its file: other processes read it while no refresh is running, or open it READ_ONLY",
    ]


def refresh(w: Warehouse, table: LakeTable) -> list[str]:
    """Return the statement that binds the view to the newest metadata file, with its present columns."""
    return [_view(w, table, "CREATE OR REPLACE VIEW")]


def read_back(w: Warehouse, table: LakeTable) -> str:
    """Return the query for the view's text, which names the metadata file."""
    schema, name = standard_literal(namespace_of(w, table)), standard_literal(table.name)
    return f"SELECT sql FROM duckdb_views() WHERE schema_name = {schema} AND view_name = {name}"
