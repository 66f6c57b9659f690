"""PyIceberg: an entry in `.pyiceberg.yaml`; each load of a table sees the newest commit."""

from __future__ import annotations

from collections.abc import Sequence

from frazil_old.config.paths import rest_properties, sqlite_file, sqlite_properties
from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.family import (
    LakeTable,
    makes_nothing,
    reads_the_catalog,
    require_entries,
    shows_nothing,
    unknown,
    unreadable,
)

NEEDS = ("database",)
DRIVER = ""
made = makes_nothing
refresh = reads_the_catalog
read_back = shows_nothing
served = unknown


def cloud_steps(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return how a table is read."""
    first = tables[0].target if tables else "shop.orders"
    role = "; the AWS role: glue:GetDatabase, GetTable, and s3:GetObject on the lake" * (w.catalog_kind == "glue")
    return [
        f"copy the entry into ~/.pyiceberg.yaml{role}",
        f'pyiceberg.catalog.load_catalog("{w.entries.database}").load_table("{first}").scan().to_arrow()',
    ]


def files(w: Warehouse) -> dict[str, dict[str, str]]:
    """Return the entry of the catalog."""
    return {".pyiceberg.yaml": {f"catalog.{w.entries.database}.{name}": value for name, value in _entry(w).items()}}


def _entry(w: Warehouse) -> dict[str, str]:
    """Return the properties of the lake's catalog, without credentials."""
    e, kind = w.entries, w.catalog_kind
    given = w.lake.catalog_options if w.lake else {}
    if kind == "glue":
        require_entries(w, ("region",))
        owner = {"glue.id": e.account} if e.account else {}
        return {"type": "glue", "glue.region": e.region, "s3.region": e.region, **owner}
    region = {"s3.region": e.region} if e.region else {}
    if kind in ("rest", "s3tables"):
        return {**rest_properties(kind, given), **region}
    if kind == "jdbc" and sqlite_file(w.lake.root, given):
        return {**sqlite_properties(w.lake.root, given), **region}
    raise unreadable(w)
