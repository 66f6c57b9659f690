"""Athena: Glue is its catalog, so nothing is made, and each query sees the newest commit."""

from __future__ import annotations

from collections.abc import Sequence

from frazil_old.config.sql import quoted
from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.family import LakeTable, makes_nothing, no_files, reads_the_catalog, snapshot_in

NEEDS = ("region",)
DRIVER = "pyathena:connect"
ARGUMENTS = {"region_name": "region"}
files = no_files
made = makes_nothing
refresh = reads_the_catalog
served = snapshot_in


def cloud_steps(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return what Athena needs besides the catalog."""
    return [
        "the lake's catalog must be Glue (`type: glue` in catalog_options)",
        "a workgroup with engine version 3 and a folder for results: give `work_group` or `s3_staging_dir` in `options`",
        "the caller: athena:StartQueryExecution, GetQueryExecution, GetQueryResults; glue:GetDatabase, GetTable; s3:GetObject on the lake",
        "tables must be format v2: Athena reads no v3 (list it in query_engines before the tables are created)",
    ]


def read_back(w: Warehouse, table: LakeTable) -> str:
    """Return the query for the snapshot of main."""
    return f"SELECT snapshot_id FROM {quoted(table.namespace)}.{quoted(f'{table.name}$refs')} WHERE name = 'main'"
