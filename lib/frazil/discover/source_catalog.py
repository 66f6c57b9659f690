"""The catalog of the source database: tables, columns, keys and comments, as SQLAlchemy reads them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Engine, MetaData, Table, inspect

from frazil.errors import nearest
from frazil.settings.source_database import SourceDatabaseError

SYSTEM = {"information_schema", "pg_catalog", "mysql", "performance_schema", "sys"}
"""Schemas of the databases themselves."""


def tables(engine: Engine, schemas: Iterable[str] = ()) -> list[Table]:
    """Return the tables of some schemas, by name; of all but the database's own if none is named."""
    found, there = MetaData(), inspect(engine).get_schema_names()
    for schema in schemas or [s for s in there if s.lower() not in SYSTEM]:
        if schema not in there:
            raise SourceDatabaseError(f"the source has no schema '{schema}'", nearest(schema, there))
        found.reflect(engine, schema=schema, resolve_fks=False)
    return sorted(found.tables.values(), key=lambda table: table.fullname)
