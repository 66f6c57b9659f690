"""Databricks: a connection to Glue and a foreign catalog; each table is refreshed by a statement."""

from __future__ import annotations

from collections.abc import Sequence

from frazil_old.config.sql import identifier, literal
from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.family import LakeTable, Made, metadata_in, no_files

NEEDS = ("database", "region", "account", "credential", "location")
DRIVER = "databricks.sql:connect"
files = no_files
served = metadata_in


def _table(w: Warehouse, table: LakeTable) -> str:
    return ".".join(map(identifier, (w.entries.database, table.namespace, table.name)))


def made(w: Warehouse, tables: Sequence[LakeTable]) -> list[Made]:
    """Return the connection and the foreign catalog."""
    e, name = w.entries, f"{w.prefix}_glue"
    connection = (
        f"CREATE CONNECTION IF NOT EXISTS {identifier(name)} TYPE glue OPTIONS (aws_region {literal(e.region)}, "
        f"aws_account_id {literal(e.account)}, credential {literal(e.credential)})"
    )
    catalog = (
        f"CREATE FOREIGN CATALOG IF NOT EXISTS {identifier(e.database)} USING CONNECTION {identifier(name)} "
        f"OPTIONS (authorized_paths {literal(e.location)})"
    )
    drop = f"DROP CATALOG IF EXISTS {identifier(e.database)} CASCADE"  # of a foreign catalog: only what it shows
    return [
        Made("connection", name, connection, f"DROP CONNECTION IF EXISTS {identifier(name)}", "SHOW CONNECTIONS"),
        Made("foreign catalog", e.database, catalog, drop, "SHOW CATALOGS"),
    ]


def cloud_steps(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return what Unity Catalog needs before."""
    e = w.entries
    return [
        f"service credential {e.credential}: an IAM role that trusts Unity Catalog and itself, with glue:GetDatabase(s), GetTable(s), "
        "GetPartition(s)",
        f"an external location for {e.location}, with a storage credential that may read it",
        "the user: CREATE CONNECTION and CREATE CATALOG; foreign Iceberg tables need runtime 16.4, format v3 runtime 18.0",
    ]


def refresh(w: Warehouse, table: LakeTable) -> list[str]:
    """Return the refresh of one table."""
    return [] if w.entries.refresh == "auto" else [f"REFRESH FOREIGN TABLE {_table(w, table)}"]


def read_back(w: Warehouse, table: LakeTable) -> str:
    """Return the query whose answer names the metadata file, as far as Databricks shows it."""
    return f"DESCRIBE TABLE EXTENDED {_table(w, table)}"
