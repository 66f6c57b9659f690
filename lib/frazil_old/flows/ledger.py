"""The ledger of commits and of maintenance: Iceberg tables in which a killed run can neither lose nor double a row.

`commits` is rebuilt from the snapshot summaries, by snapshot id, before they expire. `maintenance` has a row per
action, written by its id when it begins and again when it ends.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

from frazil_old.config.sql import literal
from frazil_old.config.timestamps import clock
from frazil_old.config.warehouses import declared
from frazil_old.dms.position import POSITION
from frazil_old.errors import FrazilError
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm, snapshot_expiry
from frazil_old.lake.commit_retry import until_committed
from frazil_old.lake.pyiceberg_catalog import SERVED, SERVED_COLUMNS, VISIBLE
from frazil_old.lake.small_frames import frame, of_arrow
from frazil_old.lake.snapshot_log import KeptSnapshot, read_kept_snapshots
from frazil_old.lake.tables import TableError, create_namespaces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTS = "changes long, files long, bytes long"
SKETCH = "picked_up long, read long, age array<long>, dms array<long>, land array<long>, wait array<long>"
_COMMITS = "name string, snapshot_id bigint, parent_id bigint, committed_at timestamp, operation string, summary map<string, string>"
_ACTIONS = (
    "id string, name string, action string, why string, status string, began timestamp, ended timestamp, counts string"
)
SERVED_DAYS = 30
"""Days for which `served` keeps rows."""
VERSIONED, VERSION = "frazil.ledger", 1
"""Raise the version if an older Frazil must not write to the tables. A new column needs none: it is added when it is missing."""
_one_at_a_time = threading.Lock()


class LedgerError(FrazilError):
    """The ledger belongs to a newer Frazil, and this version must not write to it."""


def _there(book: Workbook, which: str) -> str | None:
    """Return the name of a ledger table if it exists; raise LedgerError for one of a newer Frazil."""
    name = book.ops(which)
    if not book.spark.catalog.tableExists(name):
        return None
    version = int(jvm.load_table(book.spark, name).properties().get(VERSIONED) or 0)
    if version > VERSION:
        raise LedgerError(
            f"{name} was written by a newer Frazil (ledger {version}, known here is {VERSION})",
            "upgrade Frazil here, or name another `ops_namespace`",
        )
    return name


def _open(book: Workbook, which: str, columns: str) -> str:
    """Return the name of a ledger table; create it if it is missing, and add the columns that it lacks."""
    name = book.ops(which)
    version = f"TBLPROPERTIES ('{VERSIONED}' = '{VERSION}')"
    if not _there(book, which):
        create_namespaces(book.spark, [name])
        book.spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg {version}")
        return name
    table = jvm.load_table(book.spark, name)
    if lacks := [f"{c} {kind}" for c, kind in _kinds(columns).items() if not table.schema().findField(c)]:
        book.spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(lacks)})")
    if table.properties().get(VERSIONED) != str(VERSION):
        book.spark.sql(f"ALTER TABLE {name} SET {version}")
    return name


def _kinds(columns: str) -> dict[str, str]:
    """Return the type of each column of a list in SQL."""
    return dict(column.split(" ", 1) for column in re.split(r", (?=\w+ )", columns))


def _write(book: Workbook, which: str, columns: str, rows: DataFrame, on: list[str]) -> None:
    """Merge rows into a ledger table by their ids; repeat this if another run commits first."""
    with _one_at_a_time:
        name = _open(book, which, columns)
        view = f"frazil_ledger_{which}"
        rows.createOrReplaceTempView(view)
        own = rows.columns  # a newer Frazil may have added others, which stay null
        sets = ", ".join(f"l.{c} = r.{c}" for c in own)
        change = f"WHEN MATCHED THEN UPDATE SET {sets} " if which == "maintenance" else ""
        same = " AND ".join(f"l.{c} = r.{c}" for c in on)
        insert = f"WHEN NOT MATCHED THEN INSERT ({', '.join(own)}) VALUES (r.{', r.'.join(own)})"
        statement = f"MERGE INTO {name} l USING {view} r ON {same} {change}{insert}"
        until_committed(lambda: book.spark.sql(statement))  # by id, so a second time changes nothing


def _existing(book: Workbook) -> list[str]:
    return [book.name(spec) for spec in book.specs.values() if book.exists(spec)]


def _states(book: Workbook, name: str) -> list[KeptSnapshot]:
    """Return every kept snapshot that is or was main's state of a table."""
    return read_kept_snapshots(book.spark, name).of_main()


def _snapshots(book: Workbook, names: list[str]) -> DataFrame | None:
    """Return every kept snapshot of these tables, with the time at which it became the current state: columns `_COMMITS`."""
    import pyarrow as pa

    if not names:
        return None
    rows = [(name, s) for name in names for s in _states(book, name)]
    utc, texts = pa.timestamp("ms", tz="UTC"), pa.map_(pa.string(), pa.string())
    columns = {
        "name": pa.array([name for name, _ in rows], pa.string()),
        "snapshot_id": pa.array([s.id for _, s in rows], pa.int64()),
        "parent_id": pa.array([s.parent for _, s in rows], pa.int64()),
        "committed_at": pa.array([s.committed_ms for _, s in rows], utc).cast(pa.timestamp("us", tz="UTC")),
        "operation": pa.array([s.operation for _, s in rows], pa.string()),
        "summary": pa.array([[(k, v) for k, v in s.summary.items() if k != POSITION] for _, s in rows], texts),
    }
    return of_arrow(book.spark, pa.table(columns))


def record(book: Workbook) -> None:
    """Add the commits in the tables' snapshots to `commits`; those already there stay as they are."""
    if (there := _snapshots(book, _existing(book))) is not None:
        _write(book, "commits", _COMMITS, there, ["name", "snapshot_id"])


@contextlib.contextmanager
def action(book: Workbook, mark: str, name: str, what: str, why: str) -> Iterator[dict[str, float]]:
    """Record one maintenance action in the ledger while it runs; the block puts its counts into the yielded dict.

    A row that still says `started` is an action that was killed or is running.
    """
    from pyspark.sql import functions as F

    began, facts = time.time(), {}

    def put(status: str, ended: float | None) -> None:
        row = [(mark, name, what, why, status, began, ended, json.dumps(facts))]
        rows = frame(book.spark, row, _ACTIONS.replace(" timestamp", " double"))
        times = {c: F.col(c).cast("timestamp") for c, kind in _kinds(_ACTIONS).items() if kind == "timestamp"}
        _write(book, "maintenance", _ACTIONS, rows.withColumns(times), ["id"])

    put("started", None)
    try:
        yield facts
    except BaseException:
        put("failed", time.time())
        raise
    put("done", time.time())


def add_served(book: Workbook, rows: list[tuple]) -> None:
    """Append rows about what warehouses serve, in the order of `SERVED_COLUMNS`; times are epoch milliseconds."""
    from pyspark.sql import functions as F

    kinds = {"int": "bigint", "text": "string", "time": "timestamp"}
    with _one_at_a_time:
        name = _open(book, SERVED, ", ".join(f"{c} {kinds[k]}" for c, k in SERVED_COLUMNS.items()))
        plain = ", ".join(f"{c} {'bigint' if k != 'text' else 'string'}" for c, k in SERVED_COLUMNS.items())
        times = {c: F.timestamp_millis(c) for c, k in SERVED_COLUMNS.items() if k == "time"}
        new = frame(book.spark, rows, plain).withColumns(times)
        until_committed(lambda: new.writeTo(name).append())


def holders(book: Workbook, name: str) -> list[Any]:
    """Return a row per warehouse: what it was last seen to serve of a table, and since when."""
    if not (kept := _there(book, SERVED)):
        return []
    known = f"name = {literal(name)} and (snapshot_id is not null or metadata <> '')"
    newest = "row_number() over (partition by warehouse order by seen_at desc)"
    since = "min(seen_at) over (partition by warehouse, snapshot_id, metadata)"
    rows = book.spark.table(kept).where(known).selectExpr("*", f"{newest} n", f"{since} since").where("n = 1")
    return rows.collect()


def compaction_rate(book: Workbook, name: str) -> float:
    """Return the MB/s of the last three compactions of a table; 0 if there was none."""
    if not (kept := _there(book, "maintenance")):
        return 0.0
    read, rate = (f"cast(get_json_object(counts, '$.{x}') as double)" for x in ("rewritten_bytes", "mb_per_s"))
    done = book.spark.table(kept).where(f"action = 'compact' and name = {literal(name)} and {rate} > 0")
    last = done.orderBy("ended", ascending=False).limit(3)
    return last.selectExpr(f"sum({read}) / sum({read} / {rate})").first()[0] or 0.0


def tidy(book: Workbook) -> None:
    """Keep the ledger's own tables small: each run adds a snapshot."""
    for which in ("commits", "maintenance", "quarantine", VISIBLE, SERVED):
        if name := _there(book, which):
            if book.spark.sql(f"select count(*) from {name}.files").first()[0] > 20:
                catalog, table = name.split(".", 1)
                book.spark.sql(f"CALL {catalog}.system.rewrite_data_files({literal(table)})").collect()
            snapshot_expiry.expire_snapshots(jvm.load_table(book.spark, name), 24.0)
            if which == SERVED:
                _forget_served(book, name)


def _forget_served(book: Workbook, name: str) -> None:
    """Delete old rows about what warehouses served; the newest of each table of a warehouse stays."""
    newer = f"select 1 from {name} n where n.warehouse = o.warehouse and n.name = o.name and n.seen_at > o.seen_at"
    old = f"o.seen_at < current_timestamp() - interval {SERVED_DAYS} days"
    book.spark.sql(f"DELETE FROM {name} o WHERE {old} AND EXISTS ({newer})")


def actions(book: Workbook) -> DataFrame:
    """Return the maintenance of the tables: one row per file group of a compaction and per other action.

    Times are epoch milliseconds; `ended_ms` is null for an action that was killed or is running.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    parts = []
    if kept := _there(book, "maintenance"):
        other = book.spark.table(kept).where("action <> 'compact'")
        parts.append(
            other.selectExpr("name", "action", "unix_millis(began) began_ms", "unix_millis(ended) ended_ms", "counts")
        )
    began = "cast(get_json_object(summary['frazil.counts'], '$.began') as bigint) began_ms"
    compactions = _every_commit(book).where("summary['frazil.kind'] = 'compact'")
    parts.append(
        compactions.selectExpr(
            "name", "'compact' action", began, "unix_millis(committed_at) ended_ms", "summary['frazil.counts'] counts"
        )
    )
    names = [book.name(spec) for spec in book.specs.values()]
    return reduce(DataFrame.unionAll, parts).where(F.col("name").isin(names)).orderBy("began_ms")


def _every_commit(book: Workbook) -> DataFrame:
    """Return every commit in the ledger or in a snapshot, once.

    The ledger's rows are taken first: once main's log is cut, a snapshot's own time is that before its publication.
    """
    from pyspark.sql import functions as F

    found = _snapshots(book, _existing(book))
    if found is None:
        raise TableError("none of the tables exists", "run 00_setup first")
    if kept := _there(book, "commits"):
        names = [book.name(spec) for spec in book.specs.values()]
        recorded = book.spark.table(kept).where(F.col("name").isin(names))
        found = found.join(recorded, ["name", "snapshot_id"], "left_anti")
        found = recorded.unionByName(found, allowMissingColumns=True)
    return found


def _first_seen(book: Workbook) -> DataFrame:
    """Return the time when a second engine first saw each commit, as far as one watched (`frazil visible`)."""
    from pyspark.sql import functions as F

    name = _there(book, VISIBLE)
    if not name:
        return frame(book.spark, [], "name string, snapshot_id long, visible_ms long")
    first = F.min(F.unix_millis("seen_at")).alias("visible_ms")
    return book.spark.table(name).groupBy("name", "snapshot_id").agg(first)


def _with_served(book: Workbook, found: DataFrame) -> DataFrame:
    """Add `served_ms` to commits: when each declared warehouse was first seen to serve it, or a newer state."""
    from pyspark.sql import functions as F

    readers, name = list(declared(book.settings)), _there(book, SERVED)
    if not (readers and name):
        return found.withColumn("served_ms", F.lit(None).cast("map<string, bigint>"))
    looks = book.spark.table(name).where("status = 'served'").where(F.col("warehouse").isin(readers))
    looks = looks.groupBy("name", "newest_id", "warehouse").agg(
        F.min("committed_at").alias("committed_at"), F.min(F.unix_millis("seen_at")).alias("seen")
    )
    both = found.unionByName(looks.withColumnRenamed("newest_id", "snapshot_id"), allowMissingColumns=True)
    # A look has the snapshot's own time, which is before that of its publication on main.
    published = "max(if(warehouse is null, committed_at, null)) over (partition by name, snapshot_id)"
    both = both.withColumn("at", F.expr(f"coalesce({published}, committed_at)"))
    newer = "over (partition by name order by at desc range unbounded preceding)"
    firsts = [F.expr(f"min(if(warehouse = {literal(w)}, seen, null)) {newer}") for w in readers]
    of_all = F.map_from_arrays(F.array(*map(F.lit, readers)), F.array(*firsts))
    both = both.withColumn("served_ms", F.map_filter(of_all, lambda _, ms: ms.isNotNull()))
    return both.where("warehouse is null").drop("warehouse", "seen", "at")


def commits(book: Workbook, hours: float = 0.0) -> DataFrame:
    """Return one row per commit of changes of every table; `hours` > 0 takes only the last hours before this call.

    Times are epoch milliseconds. Three columns are quantiles (`latency_sketch.QUANTILES`) of the time since the source commit:
    `latency_ms`, `age_ms` (until picked up) and `dms_ms` (until DMS wrote). They are null if DMS writes no timestamp
    column.

    `land_ms` (written → landed) and `wait_ms` (landed → picked up) are those of its files (`latency_sketch.OF_FILES`).
    `read_ms` is the duration of reading, and `visible_ms` the time when a second engine saw the commit; both are null
    if not measured. `served_ms` has the time when each warehouse served it.

    Commits whose snapshot has expired are included if maintenance recorded them in the ledger before.
    """
    from pyspark.sql import functions as F

    since_ms = round((time.time() - hours * 3600) * 1000)  # before Spark starts
    found = _every_commit(book).where("summary['frazil.kind'] = 'changes'")  # needs Spark, and so does F
    sources = F.create_map(*[F.lit(x) for spec in book.specs.values() for x in (book.name(spec), spec.source)])
    found = _with_served(book, found).join(F.broadcast(_first_seen(book)), ["name", "snapshot_id"], "left")
    found = found.withColumn("table", sources[F.col("name")])
    if hours > 0:
        found = found.where(f"committed_at >= timestamp_millis({since_ms})")
    parts = {"c": ("frazil.counts", COUNTS), "s": ("frazil.latency", SKETCH)}
    parsed = {part: F.from_json(F.expr(f"summary['{of}']"), kind) for part, (of, kind) in parts.items()}
    found = found.withColumns({"committed_ms": F.unix_millis("committed_at"), **parsed})
    points = [f"if(size(s.{n}) > 0, s.{n}, null) {n}_ms" for n in ("age", "dms", "land", "wait")]
    latency = "if(size(s.age) > 0, transform(s.age, a -> committed_ms - s.picked_up + a), null) latency_ms"
    times = ["committed_ms", "visible_ms", "served_ms", "s.picked_up picked_up_ms", "s.read read_ms"]
    return found.selectExpr("table", "snapshot_id", "c.changes", "c.files", "c.bytes", *times, *points, latency)


def history(book: Workbook, table: str, newest: int = 5) -> list[dict[str, Any]]:
    """Return the newest snapshots of a source table's lake table, including loads and maintenance, one row each."""
    if not book.exists(book.specs[table]):
        return []
    states = sorted(_states(book, book.name(book.specs[table])), key=lambda s: s.committed_ms, reverse=True)
    return [
        {
            "committed": clock(s.committed_ms)[:19], "kind": s.summary.get("frazil.kind", s.operation),
            "rows_added": int(s.summary.get("added-records", 0)), "batch": s.summary.get("frazil.batch", "–"),
        }
        for s in states[:newest]
    ]  # fmt: skip
