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
SHOWN = ("path", "number", "column", "reason", "since")
"""What is kept of a row that waits: its bytes are in its file, and in the side file."""


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


def keep_facts(table: Table) -> None:
    """Append Frazil's commits and the rows that began to wait since the last time, before their snapshots expire."""
    commits, waiting = [], []
    for s in table.stored.ancestors():
        if facts := {name: value for name, value in s.summary.items() if name.startswith("frazil.")}:
            commits.append(row(str(s.id), table, s.committed_ms / 1000, facts))
    for one in table.waiting(table.stored.position).to_pylist():
        shown = {name: one[name] for name in SHOWN}
        waiting.append(row(f"{one['path']} {one['number']}", table, one["since"].timestamp(), shown))
    for name, rows in (("commits", commits), ("quarantine", waiting)):
        newest = _newest(table, name) if rows else 0
        append(table.lake, name, [row for row in rows if round(row["at"].timestamp() * 1e6) > newest])


def _newest(table: Table, name: str) -> int:
    """Return the time of a table's newest row in one of the tables, in epoch microseconds; 0: there is none."""
    if not table.lake.catalog.table_exists(f"{table.lake.settings.ops_namespace}.{name}"):
        return 0
    query = f"SELECT unix_micros(max(at)) FROM {_place(table.lake, name)} WHERE table_name = {literal(table.name)}"
    return table.lake.spark.sql(query).collect()[0][0] or 0


def keep_small(lake: Lake) -> None:
    """Make few files of many in the tables of `ops_namespace`, and expire their old snapshots."""
    older = f"older_than => timestamp '{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d %H:%M:%S}'"
    for place in (f"{lake.settings.ops_namespace}.{name}" for name in NAMES):
        if lake.catalog.table_exists(place):
            of = f"table => {literal(quoted(place))}"
            for call in (f"rewrite_data_files({of})", f"expire_snapshots({of}, {older})"):
                lake.spark.sql(f"CALL {quoted(lake.settings.catalog)}.system.{call}")


def _place(lake: Lake, name: str) -> str:
    return quoted(f"{lake.settings.catalog}.{lake.settings.ops_namespace}.{name}")
