"""The tables of `ops_namespace`: `commits`, `maintenance` and `quarantine`. Rows are only appended, without a JVM."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyiceberg import expressions

from frazil.iceberg.catalog import opened_table

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.table import Table

TYPES = {"id": pa.string(), "table_name": pa.string(), "at": pa.timestamp("us", "UTC"), "facts": pa.string()}
ON = ("commit.manifest-merge.enabled", "write.metadata.delete-after-commit.enabled")
MOST_SNAPSHOTS = 100
is_: Any = expressions  # their own types are not those of their arguments


class Row(NamedTuple):
    """What is known of a commit, of an action of maintenance, or of rows in quarantine."""

    id: str
    table_name: str
    at: datetime
    facts: dict[str, Any]


def append(lake: Lake, name: str, rows: list[Row]) -> None:
    """Append those rows that a table of `ops_namespace` lacks. A failure is said, and raises nothing."""
    try:
        since = min((row.at for row in rows), default=datetime.now(UTC)).isoformat()
        same = is_.GreaterThanOrEqual("at", since) & is_.In("id", [row.id for row in rows])
        known = read(lake, name, row_filter=same)
        new = [row._asdict() | {"facts": json.dumps(row.facts)} for row in rows if known.get(row.id) != row]
        if new:
            _add(lake, f"{lake.settings.ops_namespace}.{name}", pa.Table.from_pylist(new, pa.schema(TYPES)))
    except Exception as error:
        lake.say(f"{lake.settings.ops_namespace}.{name} is not kept: {type(error).__name__}: {error}")


def _add(lake: Lake, place: str, rows: pa.Table) -> None:
    if not lake.catalog.table_exists(place):
        if lake.catalog.properties.get("s3.sse.type", "none") != "none":  # else the metadata files were in clear
            lake.catalog.properties["py-io-impl"] = "frazil.iceberg.encrypted_io.EncryptedFileIO"
        lake.catalog.create_namespace_if_not_exists(lake.settings.ops_namespace)
        properties = dict.fromkeys(ON, "true") | {"commit.retry.num-retries": "10"}
        lake.catalog.create_table_if_not_exists(place, rows.schema, properties=properties)
    table = opened_table(lake.catalog, place)
    table.append(rows)
    if len(table.snapshots()) > MOST_SNAPSHOTS:
        table.maintenance.expire_snapshots().older_than(datetime.now(UTC) - timedelta(hours=1)).commit()


def read(lake: Lake, name: str, **scan: Any) -> dict[str, Row]:
    """Return the newest row of each id that a table of `ops_namespace` has, as PyIceberg's `scan` chooses."""
    place = f"{lake.settings.ops_namespace}.{name}"
    if not lake.catalog.table_exists(place):
        return {}
    found = opened_table(lake.catalog, place).scan(**scan).to_arrow().sort_by("at").to_pylist()
    return {row["id"]: Row(**row | {"facts": json.loads(row["facts"])}) for row in found}


def keep_commits(table: Table) -> None:
    """Record what a table's snapshots say of Frazil's commits."""
    rows = []
    for s in table.stored.ancestors():
        if facts := {name: value for name, value in s.summary.items() if name.startswith("frazil.")}:
            rows.append(Row(str(s.id), table.name, datetime.fromtimestamp(s.committed_ms / 1000, UTC), facts))
    append(table.lake, "commits", rows)
