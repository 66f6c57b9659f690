"""The tables `commits`, `maintenance` and `quarantine` of `ops_namespace`: facts that outlive their snapshots. Rows are only appended.

A row has an `id`, which may be there twice after a kill: the newest row counts.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frazil.iceberg.sql_text import literal, quoted

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.steps import Table

COLUMNS = "id STRING, table_name STRING, at TIMESTAMP, facts STRING"
NAMES = ("commits", "maintenance", "quarantine")


def row(number: str, table: Table, at_s: float, facts: dict[str, Any]) -> dict[str, Any]:
    """Return a row: its id, its table, its time in epoch seconds, and facts."""
    at = datetime.fromtimestamp(at_s, UTC)
    return {"id": number, "table_name": table.name, "at": at, "facts": json.dumps(facts, default=str)}


def append(lake: Lake, name: str, rows: list[dict[str, Any]]) -> None:
    """Append rows to one of the tables. A failure is said, and stops nothing."""
    try:
        if rows:
            lake.spark.sql(f"CREATE TABLE IF NOT EXISTS {_place(lake, name)} ({COLUMNS}) USING iceberg")
            lake.spark.createDataFrame(pa.Table.from_pylist(rows)).writeTo(_place(lake, name)).append()
    except Exception as error:
        lake.say(f"{lake.settings.ops_namespace}.{name} is not kept: {type(error).__name__}: {error}")


def keep_commits(table: Table) -> None:
    """Append what a table's snapshots say of Frazil's commits since the last time."""
    lake, since = table.lake, 0
    if lake.catalog.table_exists(f"{lake.settings.ops_namespace}.commits"):
        newest = f"SELECT unix_millis(max(at)) FROM {_place(lake, 'commits')} WHERE table_name = {literal(table.name)}"
        ((since,),) = lake.spark.sql(newest).collect()
    rows = []
    for s in table.stored.ancestors():
        facts = {name: value for name, value in s.summary.items() if name.startswith("frazil.")}
        if facts and s.committed_ms > (since or 0):
            rows.append(row(str(s.id), table, s.committed_ms / 1000, facts))
    append(lake, "commits", rows)


def keep_small(lake: Lake) -> None:
    """Make few files of many in the tables of `ops_namespace`, and expire their old snapshots."""
    system, yesterday = f"{quoted(lake.settings.catalog)}.system", datetime.now(UTC) - timedelta(days=1)
    for place in (f"{lake.settings.ops_namespace}.{name}" for name in NAMES):
        if lake.catalog.table_exists(place):
            of = f"table => {literal(quoted(place))}"
            lake.spark.sql(f"CALL {system}.rewrite_data_files({of})")
            lake.spark.sql(
                f"CALL {system}.expire_snapshots({of}, older_than => timestamp '{yesterday:%Y-%m-%d %H:%M:%S}')"
            )


def _place(lake: Lake, name: str) -> str:
    return quoted(f"{lake.settings.catalog}.{lake.settings.ops_namespace}.{name}")
