"""Trino: a catalog file; each query sees the newest commit."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.config.sql import quoted
from frazil.config.warehouses import Warehouse
from frazil.warehouses.family import (
    LakeTable,
    makes_nothing,
    reads_the_catalog,
    require_entries,
    snapshot_in,
    unreadable,
)

NEEDS = ("database",)
DRIVER = "trino.dbapi:connect"
made = makes_nothing
refresh = reads_the_catalog
served = snapshot_in


def cloud_steps(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return what the coordinator and the workers need."""
    glue = "glue:GetDatabase(s), GetTable(s), and " * (w.catalog_kind == "glue")
    return [
        f"copy the file to etc/catalog/{w.entries.database}.properties on the coordinator and every worker, and restart them",
        f"their AWS role: {glue}s3:GetObject, ListBucket on the lake",
        "format v3 with deletion vectors needs Trino 483 or newer; 476 refuses it",
    ]


def files(w: Warehouse) -> dict[str, dict[str, str]]:
    """Return the catalog file, for Glue or a REST catalog, without credentials."""
    e = w.entries
    properties = {
        "connector.name": "iceberg",
        **_catalog(w),
        "fs.native-s3.enabled": "true",
        **({"s3.region": e.region} if e.region else {}),
        **({"s3.iam-role": e.role} if e.role else {}),
        "iceberg.security": "read_only",
    }
    return {f"{e.database}.properties": properties}


def _catalog(w: Warehouse) -> dict[str, str]:
    """Return the properties that name the lake's catalog."""
    e = w.entries
    if w.catalog_kind == "glue":
        require_entries(w, ("region",))
        owner = {"hive.metastore.glue.catalogid": e.account} if e.account else {}
        return {"iceberg.catalog.type": "glue", "hive.metastore.glue.region": e.region, **owner}
    if w.catalog_kind == "rest":
        given = w.lake.catalog_options
        places = {f"iceberg.rest-catalog.{name}": given[name] for name in ("uri", "warehouse") if name in given}
        return {"iceberg.catalog.type": "rest", **places}
    raise unreadable(w)


def read_back(w: Warehouse, table: LakeTable) -> str:
    """Return the query for the snapshot of main."""
    names = ".".join(map(quoted, (w.entries.database, table.namespace, f"{table.name}$refs")))
    return f"SELECT snapshot_id FROM {names} WHERE name = 'main'"
