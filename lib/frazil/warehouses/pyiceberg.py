"""PyIceberg: an entry in `.pyiceberg.yaml`; each load of a table sees the newest commit."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.config.warehouses import Warehouse
from frazil.warehouses.family import LakeTable, makes_nothing, reads_the_catalog, shows_nothing, unknown

NEEDS = ("database", "region")
DRIVER = ""
made = makes_nothing
refresh = reads_the_catalog
read_back = shows_nothing
served = unknown


def cloud_steps(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return how a table is read."""
    first = tables[0].target if tables else "shop.orders"
    return [
        "copy the entry into ~/.pyiceberg.yaml; the AWS role: glue:GetDatabase, GetTable, and s3:GetObject on the lake",
        f'pyiceberg.catalog.load_catalog("{w.entries.database}").load_table("{first}").scan().to_arrow()',
    ]


def files(w: Warehouse) -> dict[str, dict[str, str]]:
    """Return the entry of the catalog."""
    e, prefix = w.entries, f"catalog.{w.entries.database}"
    properties = {f"{prefix}.type": "glue", f"{prefix}.glue.region": e.region, f"{prefix}.s3.region": e.region}
    return {".pyiceberg.yaml": properties | ({f"{prefix}.glue.id": e.account} if e.account else {})}
