"""Trino: a catalog file; each query sees the newest commit."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.config.sql import quoted
from frazil.config.warehouses import Warehouse
from frazil.warehouses.family import LakeTable, makes_nothing, reads_the_catalog, snapshot_in

NEEDS = ("database", "region")
DRIVER = "trino.dbapi:connect"
made = makes_nothing
refresh = reads_the_catalog
served = snapshot_in


def cloud_steps(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return what the coordinator and the workers need."""
    return [
        f"copy the file to etc/catalog/{w.entries.database}.properties on the coordinator and every worker, and restart them",
        "their AWS role: glue:GetDatabase(s), GetTable(s), and s3:GetObject, ListBucket on the lake",
        "format v3 with deletion vectors needs Trino 483 or newer; 476 refuses it",
    ]


def files(w: Warehouse) -> dict[str, dict[str, str]]:
    """Return the catalog file, for Glue."""
    e = w.entries
    properties = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "glue",
        "hive.metastore.glue.region": e.region,
        **({"hive.metastore.glue.catalogid": e.account} if e.account else {}),
        "fs.native-s3.enabled": "true",
        "s3.region": e.region,
        **({"s3.iam-role": e.role} if e.role else {}),
        "iceberg.security": "read_only",
    }
    return {f"{e.database}.properties": properties}


def read_back(w: Warehouse, table: LakeTable) -> str:
    """Return the query for the snapshot of main."""
    names = ".".join(map(quoted, (w.entries.database, table.namespace, f"{table.name}$refs")))
    return f"SELECT snapshot_id FROM {names} WHERE name = 'main'"
