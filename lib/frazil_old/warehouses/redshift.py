"""Redshift: an external schema over each Glue database; each query sees the newest commit."""

from __future__ import annotations

from collections.abc import Sequence

from frazil_old.config.sql import quoted, standard_literal
from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.family import (
    LakeTable,
    Made,
    namespace_of,
    no_files,
    reads_the_catalog,
    shows_nothing,
    unknown,
)

NEEDS = ("database", "region", "account", "role")
DRIVER = "redshift_connector:connect"
ARGUMENTS = {"database": "database"}
files = no_files
refresh = reads_the_catalog
read_back = shows_nothing
served = unknown


def made(w: Warehouse, tables: Sequence[LakeTable]) -> list[Made]:
    """Return an external schema for each namespace of the lake."""
    spaces = dict.fromkeys((namespace_of(w, t), t.namespace) for t in tables)
    return [
        Made(
            "external schema",
            schema,
            f"CREATE EXTERNAL SCHEMA IF NOT EXISTS {quoted(schema)} FROM DATA CATALOG DATABASE {standard_literal(database)} "
            f"REGION {standard_literal(w.entries.region)} IAM_ROLE {standard_literal(w.entries.role)} "
            f"CATALOG_ID {standard_literal(w.entries.account)}",
            f"DROP SCHEMA IF EXISTS {quoted(schema)} RESTRICT",
            f"SELECT schemaname FROM svv_external_schemas WHERE schemaname = {standard_literal(schema)}",
        )
        for schema, database in spaces
    ]


def cloud_steps(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return what the IAM role needs."""
    return [
        f"IAM role {w.entries.role}: trusted by redshift.amazonaws.com, attached to the cluster or workgroup; glue:GetDatabase, "
        "GetDatabases, GetTable, GetTables, GetPartitions, and s3:GetObject, ListBucket on the lake",
        "format v3 needs Graviton (RG) nodes or Serverless; elsewhere tables must be v2",
        "Redshift shows no snapshot of an external table: what it serves is not read back",
    ]
