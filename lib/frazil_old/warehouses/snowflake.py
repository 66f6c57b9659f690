"""Snowflake: a catalog integration with Glue, an external volume, and tables or a catalog-linked database.

Pages of docs.snowflake.com, read 2026-11: create-catalog-integration-rest, -glue, create-external-volume,
create-iceberg-table-aws-glue, -rest, alter-iceberg-table-refresh, system_auto_refresh_status.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frazil_old.config.sql import literal, quoted
from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.family import LakeTable, Made, Served, namespace_of, no_files, object_in

NEEDS = ("database", "region", "account", "role", "location")
DRIVER = "snowflake.connector:connect"
files = no_files


def _name(*parts: str) -> str:
    """Quote a name in upper case, so that it is the same with and without quotes."""
    return ".".join(quoted(p.upper()) for p in parts)


def _table(w: Warehouse, table: LakeTable) -> str:
    database = _name(w.entries.database)
    if w.entries.linked:  # names are as in Glue
        return f"{database}.{quoted(table.namespace)}.{quoted(table.name)}"
    return f"{database}.{_name(namespace_of(w, table), table.name)}"


def _integration(w: Warehouse, tables: Sequence[LakeTable]) -> Made:
    e, name = w.entries, f"{w.prefix}_catalog"
    begin = f"CREATE CATALOG INTEGRATION IF NOT EXISTS {_name(name)}"
    if e.integration == "glue":
        body = (
            f"CATALOG_SOURCE = GLUE TABLE_FORMAT = ICEBERG GLUE_AWS_ROLE_ARN = {literal(e.role)} "
            f"GLUE_CATALOG_ID = {literal(e.account)} GLUE_REGION = {literal(e.region)} "
            f"CATALOG_NAMESPACE = {literal(tables[0].namespace)}"
        )
    else:
        uri = f"https://glue.{e.region}.amazonaws.com/iceberg"
        body = (
            f"CATALOG_SOURCE = ICEBERG_REST TABLE_FORMAT = ICEBERG CATALOG_NAMESPACE = {literal(tables[0].namespace)} "
            f"REST_CONFIG = (CATALOG_URI = {literal(uri)} CATALOG_API_TYPE = AWS_GLUE CATALOG_NAME = {literal(e.account)}) "
            f"REST_AUTHENTICATION = (TYPE = SIGV4 SIGV4_IAM_ROLE = {literal(e.role)} SIGV4_SIGNING_REGION = {literal(e.region)})"
        )
    drop = f"DROP CATALOG INTEGRATION IF EXISTS {_name(name)}"
    return Made("catalog integration", name, f"{begin} {body} ENABLED = TRUE", drop, "SHOW CATALOG INTEGRATIONS")


def _volume(w: Warehouse) -> Made:
    e, name = w.entries, f"{w.prefix}_volume"
    create = (
        f"CREATE EXTERNAL VOLUME IF NOT EXISTS {_name(name)} STORAGE_LOCATIONS = ((NAME = 'lake' STORAGE_PROVIDER = 'S3' "
        f"STORAGE_BASE_URL = {literal(e.location)} STORAGE_AWS_ROLE_ARN = {literal(e.role)})) ALLOW_WRITES = FALSE"
    )
    return Made(
        "external volume", name, create, f"DROP EXTERNAL VOLUME IF EXISTS {_name(name)}", "SHOW EXTERNAL VOLUMES"
    )


def made(w: Warehouse, tables: Sequence[LakeTable]) -> list[Made]:
    """Return the integration, the volume, and the linked database, or a schema and a table for each table."""
    e, catalog, volume = w.entries, _integration(w, tables), _volume(w)
    found = [catalog, volume]
    if e.linked:
        spaces = ", ".join(literal(n) for n in dict.fromkeys(t.namespace for t in tables))
        create = (
            f"CREATE DATABASE IF NOT EXISTS {_name(e.database)} LINKED_CATALOG = (CATALOG = {literal(catalog.name.upper())}, "
            f"ALLOWED_NAMESPACES = ({spaces})), EXTERNAL_VOLUME = {literal(volume.name.upper())}"
        )
        drop = f"DROP DATABASE IF EXISTS {_name(e.database)}"
        return [*found, Made("linked database", e.database, create, drop, "SHOW DATABASES")]
    database = _name(e.database)
    for schema in dict.fromkeys(namespace_of(w, t) for t in tables):
        name = _name(e.database, schema)
        create, drop = f"CREATE SCHEMA IF NOT EXISTS {name}", f"DROP SCHEMA IF EXISTS {name} RESTRICT"
        found.append(Made("schema", schema, create, drop, f"SHOW SCHEMAS IN DATABASE {database}"))
    for t in tables:
        create = (
            f"CREATE ICEBERG TABLE IF NOT EXISTS {_table(w, t)} EXTERNAL_VOLUME = {literal(volume.name.upper())} "
            f"CATALOG = {literal(catalog.name.upper())} CATALOG_TABLE_NAME = {literal(t.name)} "
            f"CATALOG_NAMESPACE = {literal(t.namespace)} AUTO_REFRESH = {'TRUE' if e.refresh == 'auto' else 'FALSE'}"
        )
        find = f"SHOW ICEBERG TABLES IN SCHEMA {_name(e.database, namespace_of(w, t))}"
        found.append(Made("table", t.name, create, f"DROP ICEBERG TABLE IF EXISTS {_table(w, t)}", find, t.source))
    return found


def cloud_steps(w: Warehouse, tables: Sequence[LakeTable]) -> list[str]:
    """Return the trust and the permissions that the IAM role needs."""
    e, catalog, volume = w.entries, _name(f"{w.prefix}_catalog"), _name(f"{w.prefix}_volume")
    user = (
        "GLUE_AWS_IAM_USER_ARN and GLUE_AWS_EXTERNAL_ID"
        if e.integration == "glue"
        else "API_AWS_IAM_USER_ARN and API_AWS_EXTERNAL_ID"
    )
    return [
        f"IAM role {e.role}: allow glue:GetCatalog, GetDatabase, GetDatabases, GetTable, GetTables on the catalog of {e.account}, "
        f"and s3:GetObject, GetObjectVersion, ListBucket, GetBucketLocation on {e.location}",
        f"after the first `apply`: DESC CATALOG INTEGRATION {catalog} shows {user}; DESC EXTERNAL VOLUME {volume} shows "
        "STORAGE_AWS_IAM_USER_ARN and STORAGE_AWS_EXTERNAL_ID. Put both pairs into the role's trust policy, and run `apply` again",
        "the role that Frazil uses in Snowflake must own the tables: SYSTEM$GET_ICEBERG_TABLE_INFORMATION asks for OWNERSHIP",
    ]


def refresh(w: Warehouse, table: LakeTable) -> list[str]:
    """Return the refresh of one table, unless Snowflake refreshes by itself."""
    by_itself = w.entries.linked or w.entries.refresh == "auto"
    return [] if by_itself else [f"ALTER ICEBERG TABLE {_table(w, table)} REFRESH"]


def read_back(w: Warehouse, table: LakeTable) -> str:
    """Return the call of the function that shows the snapshot or metadata file in use."""
    by_itself = w.entries.linked or w.entries.refresh == "auto"
    function = "SYSTEM$AUTO_REFRESH_STATUS" if by_itself else "SYSTEM$GET_ICEBERG_TABLE_INFORMATION"
    return f"SELECT {function}({literal(_table(w, table))})"


def served(rows: Sequence[Sequence[Any]]) -> Served:
    """Return what Snowflake says of its refreshes."""
    said = object_in(rows)
    state = said.get("executionState") or said.get("status") or ""
    stopped = "" if str(state).upper() in ("RUNNING", "SUCCESS", "") else str(state)
    if stopped and said.get("invalidExecutionStateReason"):
        stopped += f": {said['invalidExecutionStateReason']}"
    snapshot = said.get("currentSnapshotId")
    place = said.get("metadataLocation") or said.get("currentMetadataFile") or ""
    return Served(int(snapshot) if str(snapshot or "").isdigit() else None, place, stopped)
