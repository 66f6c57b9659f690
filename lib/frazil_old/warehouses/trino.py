"""Trino: a catalog file; each query sees the newest commit."""

from __future__ import annotations

from collections.abc import Sequence

from frazil_old.config.paths import rest_properties
from frazil_old.config.sql import quoted
from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.family import (
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
    if w.catalog_kind in ("rest", "s3tables"):
        given = rest_properties(w.catalog_kind, w.lake.catalog_options)
        places = {f"iceberg.rest-catalog.{name}": given[name] for name in ("uri", "warehouse") if name in given}
        return {"iceberg.catalog.type": "rest", **places, **_signing(given)}
    raise unreadable(w)


def _signing(given: dict[str, str]) -> dict[str, str]:
    """Return what lets Trino sign its calls to a REST catalog of AWS, which has no views."""
    if given.get("rest.sigv4-enabled") != "true":
        return {}
    name, region = given.get("rest.signing-name", "execute-api"), given.get("rest.signing-region")
    return {
        "iceberg.rest-catalog.security": "SIGV4",
        "iceberg.rest-catalog.signing-name": name,
        "iceberg.rest-catalog.view-endpoints-enabled": "false",
        **({"s3.region": region} if region else {}),
    }


def read_back(w: Warehouse, table: LakeTable) -> str:
    """Return the query for the snapshot of main."""
    names = ".".join(map(quoted, (w.entries.database, table.namespace, f"{table.name}$refs")))
    return f"SELECT snapshot_id FROM {names} WHERE name = 'main'"
