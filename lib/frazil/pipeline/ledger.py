"""What is known about tables, in tables: `commits`, `maintenance` and `quarantine` of the namespace `ops_namespace`.

Rows are only appended, without a JVM. A killed run may append a row again: readers take each id once, the newest.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import pyarrow as pa
from pyiceberg import expressions

from frazil.iceberg.catalog import opened_table
from frazil.iceberg.snapshots import POSITION, Snapshot
from frazil.iceberg.sql_text import literal, quoted
from frazil.iceberg.upkeep import MOST_METADATA

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.table import Table

COLUMNS = {"id": pa.string(), "table_name": pa.string(), "at": pa.timestamp("us", "UTC"), "facts": pa.string()}
PROPERTIES = {"commit.retry.num-retries": "10", "write.metadata.delete-after-commit.enabled": "true"}
TABLES, MOST_SNAPSHOTS = ("commits", "maintenance", "quarantine"), 100
is_: Any = expressions  # their own types are not those of their arguments
_one_at_a_time = threading.Lock()
_told: WeakSet[Lake] = WeakSet()
_kept: WeakKeyDictionary[Table, Snapshot] = WeakKeyDictionary()
"""The newest recorded snapshot of each table, as far as this process knows."""


@dataclass(frozen=True)
class Row:
    """What is known of a commit, of an action of maintenance, or of rows in quarantine."""

    id: str
    table: str
    at: datetime
    facts: dict[str, Any]


def append(lake: Lake, name: str, rows: Sequence[Row]) -> bool:
    """Append rows to one of the tables; return whether they are there. A failure is said once, and raises nothing."""
    if not rows:
        return True
    told = [{"id": r.id, "table_name": r.table, "at": r.at, "facts": json.dumps(r.facts)} for r in rows]
    with _forgiving(lake, name), _one_at_a_time:
        catalog, place = lake.catalog, f"{lake.settings.ops_namespace}.{name}"
        if catalog.properties.get("s3.sse.type", "none") != "none":  # else the metadata files were in clear
            catalog.properties["py-io-impl"] = "frazil.iceberg.encrypted_io.EncryptedFileIO"
        if not catalog.table_exists(place):
            catalog.create_namespace_if_not_exists(lake.settings.ops_namespace)
            catalog.create_table_if_not_exists(place, pa.schema(COLUMNS), properties=PROPERTIES)
        opened_table(catalog, place).append(pa.Table.from_pylist(told, pa.schema(COLUMNS)))
        return True
    return False


def read(lake: Lake, name: str, since: datetime | None = None, table: str = "") -> list[Row]:
    """Return the rows of one of the tables since a time, oldest first; with `table` those about one table."""
    place, first = f"{lake.settings.ops_namespace}.{name}", since or datetime(1970, 1, 1, tzinfo=UTC)
    if not lake.catalog.table_exists(place):
        return []
    wanted = is_.GreaterThanOrEqual("at", first.isoformat())
    wanted = wanted & is_.EqualTo("table_name", table) if table else wanted
    rows = opened_table(lake.catalog, place).scan(wanted).to_arrow().sort_by("at").to_pylist()
    newest = {r["id"]: Row(r["id"], r["table_name"], r["at"], json.loads(r["facts"])) for r in rows}
    return sorted(newest.values(), key=lambda row: row.at)


def keep_commits(table: Table, if_due: bool = False) -> None:
    """Record what a table's snapshots say, each once; with `if_due` only if some may expire that are not recorded."""
    lake, kept = table.lake, _kept.get(table)
    old_ms = (time.time() - lake.settings.keep_hours * 3600) * 1000
    if if_due and (table.stored.metadata_bytes <= MOST_METADATA or (kept and kept.committed_ms > old_ms)):
        return  # nothing expires, or what may expire is recorded
    chain = takewhile(lambda s: kept is None or s.id != kept.id, table.stored.ancestors())
    if not (new := [s for s in chain if POSITION in s.summary]):
        return
    rows = []
    for s in new:
        facts = {name: value for name, value in s.summary.items() if name.startswith("frazil.")}
        rows.append(Row(str(s.id), table.name, datetime.fromtimestamp(s.committed_ms / 1000, UTC), facts))
    with _forgiving(lake, "commits"):
        known = {row.id for row in read(lake, "commits", rows[-1].at, table.name)}
        if append(lake, "commits", [row for row in rows if row.id not in known]):
            _kept[table] = new[0]


def tidy(lake: Lake) -> None:
    """Compact and expire those of the tables that have many snapshots."""
    hour_ago = datetime.fromtimestamp(time.time() - 3600, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    for name in TABLES:
        with _forgiving(lake, name):
            place = f"{lake.settings.ops_namespace}.{name}"
            if lake.catalog.table_exists(place) and len(opened_table(lake.catalog, place).snapshots()) > MOST_SNAPSHOTS:
                call, of = f"CALL {quoted(lake.settings.catalog)}.system", f"table => {literal(quoted(place))}"
                lake.spark.sql(f"{call}.rewrite_data_files({of})").collect()
                lake.spark.sql(f"{call}.expire_snapshots({of}, older_than => TIMESTAMP '{hour_ago}')").collect()


@contextmanager
def _forgiving(lake: Lake, name: str) -> Iterator[None]:
    """Say once what goes wrong, and go on: no table stops for it."""
    try:
        yield
    except Exception as error:
        if lake not in _told:
            lake.say(f"{lake.settings.ops_namespace}.{name} is not kept: {type(error).__name__}: {error}")
        _told.add(lake)
