"""BigQuery: a dataset over a Glue database, or a table for each metadata file, which must be refreshed."""

from __future__ import annotations

from collections.abc import Sequence

from frazil_old.config.sql import identifier, literal
from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.family import LakeTable, Made, metadata_in, namespace_of, no_files

NEEDS = ("database", "credential", "region")
PINNED = True  # unless a dataset over Glue is made
DRIVER = "google.cloud.bigquery.dbapi:connect"
files = no_files
served = metadata_in


def _connection(w: Warehouse) -> str:
    place = f"aws-{w.entries.region}" if w.entries.account else w.entries.region
    return ".".join(map(identifier, (w.entries.database, place, w.entries.credential)))


def _name(w: Warehouse, *parts: str) -> str:
    return ".".join(map(identifier, (w.entries.database, *parts)))


def _pinned(w: Warehouse, table: LakeTable, begin: str) -> str:
    place = table.metadata.replace("s3a://", "s3://", 1)
    name = _name(w, namespace_of(w, table), table.name)
    return f"{begin} {name} WITH CONNECTION {_connection(w)} OPTIONS (format = 'ICEBERG', uris = [{literal(place)}])"


def made(w: Warehouse, tables: Sequence[LakeTable]) -> list[Made]:
    """Return a dataset over each Glue database if `account` is given, else an external table for each table."""
    e, found = w.entries, []
    if not e.account:
        for t in tables:
            space = namespace_of(w, t)
            drop = f"DROP EXTERNAL TABLE IF EXISTS {_name(w, space, t.name)}"
            find = f"SELECT table_name FROM {_name(w, space, 'INFORMATION_SCHEMA')}.TABLES WHERE table_name = {literal(t.name)}"
            found.append(
                Made(
                    "external table", t.name, _pinned(w, t, "CREATE EXTERNAL TABLE IF NOT EXISTS"), drop, find, t.source
                )
            )
        return found
    for schema, database in dict.fromkeys((namespace_of(w, t), t.namespace) for t in tables):
        source = f"aws-glue://arn:aws:glue:{e.region}:{e.account}:database/{database}"
        create = (
            f"CREATE EXTERNAL SCHEMA IF NOT EXISTS {_name(w, schema)} WITH CONNECTION {_connection(w)} "
            f"OPTIONS (external_source = {literal(source)}, location = {literal(f'aws-{e.region}')})"
        )
        find = (
            f"SELECT schema_name FROM {_name(w, 'INFORMATION_SCHEMA')}.SCHEMATA WHERE schema_name = {literal(schema)}"
        )
        found.append(
            Made("external dataset", schema, create, f"DROP EXTERNAL SCHEMA IF EXISTS {_name(w, schema)}", find)
        )
    return found


def cloud_steps(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return what the connection needs."""
    steps = [f"connection {w.entries.credential}: made in BigQuery, its identity may read the lake's bucket"]
    if w.entries.account:
        return [
            *steps,
            "its IAM role trusts BigQuery's identity: glue:GetDatabase, GetTable, GetTables, s3:GetObject, ListBucket",
        ]
    return [*steps, "each table is bound to one metadata file: without the refresh after commits it serves old rows"]


def refresh(w: Warehouse, table: LakeTable) -> list[str]:
    """Return the statement that binds a table to its newest metadata file; none for a dataset over Glue."""
    return [] if w.entries.account else [_pinned(w, table, "CREATE OR REPLACE EXTERNAL TABLE")]


def read_back(w: Warehouse, table: LakeTable) -> str:
    """Return the query for the metadata file of an external table; empty for a dataset over Glue."""
    if w.entries.account:
        return ""
    views = _name(w, namespace_of(w, table), "INFORMATION_SCHEMA")
    return f"SELECT ddl FROM {views}.TABLES WHERE table_name = {literal(table.name)}"
