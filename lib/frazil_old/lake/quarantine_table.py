"""The table of quarantined rows, written exactly once together with their batches.

Records are staged on a branch of the quarantine's own table before their batch is committed. Afterwards one swap
publishes them to main and removes the branch. The next run of a table completes what a killed run left: it publishes
the records of committed batches and drops the others. So main has records of committed batches only.

A record's `id` is its place (`path:row_no`). Records never change: a new status is another record with that id, and the
one with the highest `sequence` (then `changed_at`) counts. `sequence` is the table's Iceberg sequence number on which
the batch was built: it orders batches.

Later changes of the same key make a row obsolete (`quarantine_status`). `later_key` and `later_old_key` name the batch that first brought a
later change of the row's key or old key (`later_part`: of some columns only). `later_any` names the first one with any
good change. It is kept if a key could not be read (`keyed` is false).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier, literal, uncompiled_integer
from frazil_old.dms.position import POSITION, Position
from frazil_old.errors import FrazilError
from frazil_old.lake import jvm
from frazil_old.lake.batch_branches import BATCH, BRANCH_PREFIX, is_dead, new_batch
from frazil_old.lake.commit_retry import until_committed
from frazil_old.lake.jvm import TAG
from frazil_old.lake.merge import as_view, insert
from frazil_old.lake.quarantine_columns import LATER, OPEN, RECORD, STATE, UNREADABLE
from frazil_old.lake.tables import TableState, create_namespaces

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


BATCH_TABLE, BATCH_BASE = "frazil.table", "frazil.base"
"""In the summary of staged records: the table of their batch, and the position and snapshot on which it was built."""
ATTEMPTS = 8
_one_at_a_time = threading.Lock()


class QuarantineError(FrazilError):
    """It is unknown whether the batch of quarantined rows was committed, or some of its quarantined rows are missing."""

    decision = True


def create(spark: SparkSession, name: str) -> None:
    """Create the quarantine's table if it is missing, with an empty first snapshot; add a column that an older one lacks."""
    with _one_at_a_time:
        if not spark.catalog.tableExists(name):
            create_namespaces(spark, [name])
            columns = ", ".join(f"{identifier(c)} {kind}" for c, kind in RECORD.items())
            properties = "'commit.retry.num-retries' = '20', 'write.metadata.delete-after-commit.enabled' = 'true'"
            spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
        if "target" not in spark.table(name).columns:  # an older version made it
            spark.sql(f"ALTER TABLE {name} ADD COLUMNS (target string)")
        table = jvm.load_table(spark, name)
        if table.currentSnapshot() is None:
            table.newAppend().commit()


def stage(spark: SparkSession, name: str, records: DataFrame, batch: str, target: str, base: TableState) -> None:
    """Write records to a branch of their batch; they become visible when `settle` finds it committed."""
    create(spark, name)
    branch = BRANCH_PREFIX + batch
    with _one_at_a_time:
        jvm.fork(spark, name, branch, jvm.load_table(spark, name).currentSnapshot().snapshotId())
    on = {"batch": base.position.batch, "snapshot": base.snapshot}
    summary = {BATCH: batch, BATCH_TABLE: target, BATCH_BASE: json.dumps(on)}
    add(spark, f"{name}.branch_{branch}", records, summary)


def add(spark: SparkSession, target: str, records: DataFrame, summary: dict[str, str] | None = None) -> None:
    """Write records to the quarantine's table, or to a branch of it (`target`)."""
    insert(spark, target, records.select(*RECORD).coalesce(1), summary or {})


def add_once(spark: SparkSession, name: str, records: DataFrame, admit: Callable[[int], None]) -> tuple[int, list[str]]:
    """Write records without a table to main, unless their `id` exists already; return their number, and the places of the first.

    They are written on a branch that becomes main only if nobody added anything meanwhile; otherwise the ids are
    checked again. `admit` gets the number of new records and may raise.
    """
    from pyspark.sql import functions as F

    create(spark, name)

    def attempt() -> tuple[int, list[str]]:
        head = jvm.load_table(spark, name).currentSnapshot().snapshotId()
        there = spark.read.option("versionAsOf", head).table(name).where("table_name is null").select("id")
        new = records.join(there, "id", "left_anti").persist()
        try:
            admit(count := new.count())
            if not count:
                return 0, []
            first = new.orderBy("path", F.length("row_no"), "row_no").select("path", "row_no").limit(3).collect()
            _forward(spark, name, new, head)
        finally:
            new.unpersist()
        return count, [f"{r.path} offset {r.row_no}" for r in first] + ["…"] * (count > len(first))

    return _repeated(attempt, alone=False)


def _forward(spark: SparkSession, name: str, records: DataFrame, head: int) -> None:
    """Write records on top of main's snapshot `head`, if main is still there afterwards."""
    batch = new_batch()
    branch = BRANCH_PREFIX + batch
    jvm.fork(spark, name, branch, head)
    try:
        add(spark, f"{name}.branch_{branch}", records)
        jvm.forward(spark, name, branch, head)
    except Exception:
        jvm.drop_branch(spark, name, branch)
        raise


def settle(spark: SparkSession, name: str, target: str, ours: str = "") -> bool:
    """Publish the staged records of a table's committed batches; drop those of batches that will never be committed.

    `ours` is a batch of this run whose commit has ended, well or not; return whether its records were still staged.
    Records of other living runs are left alone, unless their batch is committed.
    """
    table = jvm.load_table(spark, name)
    there = jvm.branches(spark, table, BRANCH_PREFIX)
    for branch in there:
        batch, head = branch.removeprefix(BRANCH_PREFIX), table.snapshot(branch)
        summary = dict(head.summary())
        over = batch == ours or is_dead(branch)
        if summary.get(BATCH) != batch:  # nothing was staged there yet
            if over:
                _drop(spark, name, branch, head.snapshotId())
        elif summary[BATCH_TABLE] == target:
            committed = _is_committed(spark, target, batch, json.loads(summary[BATCH_BASE]))
            if committed:
                _publish(spark, name, branch, head.snapshotId())
            elif committed is False and over:
                _drop(spark, name, branch, head.snapshotId())
            elif committed is None:
                raise QuarantineError(
                    f"{target}: rows were quarantined with batch {batch}, and the table's history no longer shows whether that "
                    "was committed",
                    f"see SELECT * FROM {name}.branch_{branch}; then fast-forward main to it, or drop it",
                )
    return BRANCH_PREFIX + ours in there


def require_published(spark: SparkSession, name: str, target: str, batch: str) -> None:
    """Raise QuarantineError if no record names a batch. Another run may have published its records; otherwise they are lost."""
    of_batch = " or ".join(f"{c} = {literal(batch)}" for c in ("batch", *LATER))
    if spark.table(name).where(of_batch).isEmpty():
        raise QuarantineError(
            f"{target}: the rows that were quarantined with batch {batch} are not in {name}",
            "run 01_full_load with on_changed_load=replay, which applies all files of the table again and loses nothing",
        )


def _publish(spark: SparkSession, name: str, branch: str, head: int) -> None:
    """Move a branch's snapshot to main and remove the branch, unless another process already did."""

    def swap() -> None:
        table = jvm.load_table(spark, name)
        if table.refs().get(branch) is not None:
            table.manageSnapshots().cherrypick(head).removeBranch(branch).commit()

    _repeated(swap)


def _drop(spark: SparkSession, name: str, branch: str, head: int) -> None:
    """Remove a branch if it is still at the snapshot that was examined; newer records keep it."""

    def drop(table: jvm.JavaTable, refs: Any) -> Any:
        there = table.refs().get(branch)
        return refs.removeBranch(branch) if there is not None and there.snapshotId() == head else None

    with _one_at_a_time:
        jvm.change_refs(spark, name, drop)


def _repeated(do: Callable[[], Any], alone: bool = True) -> Any:
    """Repeat an idempotent commit that lost a race against batches of other tables; `alone` excludes those of this process."""

    def attempt() -> Any:
        with _one_at_a_time if alone else nullcontext():
            return do()

    return until_committed(attempt, attempts=ATTEMPTS)


def _is_committed(spark: SparkSession, target: str, batch: str, on: dict) -> bool | None:
    """Return whether a batch is in a table's history; None if that reaches back to neither the batch nor its base."""
    table = jvm.load_table(spark, target)
    position = Position.from_json(table.properties().get(POSITION))[0]
    if position.batch in (batch, on["batch"]):
        return position.batch == batch
    snapshot = None
    for snapshot in jvm.ancestors(table):
        if snapshot.summary().get(BATCH) == batch:
            return True
        if snapshot.snapshotId() == on["snapshot"]:
            return False
    if snapshot is not None and snapshot.parentId() is None:
        return False
    tagged = table.refs().get(TAG)
    return True if tagged and table.snapshot(tagged.snapshotId()).summary().get(BATCH) == batch else None


# --- records


def record_columns() -> list[Column]:
    """Return the columns of records, with their types."""
    from pyspark.sql import functions as F

    return [F.col(c).cast(kind).alias(c) for c, kind in RECORD.items()]


def changed(records: DataFrame, batch: str, sequence: int, **new) -> DataFrame:
    """Return records as they are after a batch; `new` has their new values."""
    from pyspark.sql import functions as F

    values = {k: F.lit(v) if isinstance(v, str) else v for k, v in new.items()}
    return records.withColumns({**values, **changed_by(batch, sequence)}).select(*record_columns())


def changed_by(batch: str, sequence: int) -> dict[str, Column]:
    """Return the columns that say which batch gave a record its status, and when."""
    from pyspark.sql import functions as F

    number = F.expr(uncompiled_integer(literal(str(sequence)), "path"))
    return {"changed_by": F.lit(batch), "sequence": number, "changed_at": now()}


def now() -> Column:
    """Return the present time, which Spark keeps outside the code that it compiles."""
    from pyspark.sql import functions as F

    return F.expr(f"timestamp_micros({uncompiled_integer(literal(str(round(time.time() * 1e6))), 'path')})")


def newest(spark: SparkSession, name: str, of: str = "true") -> DataFrame:
    """Return the current record of each id among those `of` a table; `began` is the `sequence` of its batch."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    records = spark.table(name)
    if "target" not in records.columns:
        records = records.withColumn("target", F.lit(None).cast("string"))
    same, once = (Window.partitionBy("table_name", "target", "id", *more) for more in ([], ["batch"]))
    last = F.row_number().over(same.orderBy(F.desc("sequence"), F.desc("changed_at")))
    both = records.where(of).withColumns({"began": F.min("sequence").over(once), "nth": last})
    return both.where("nth = 1").drop("nth")


def of_table(spec: TableSpec) -> str:
    """Return the SQL that finds the records of a table; older ones do not name the lake's."""
    target = literal(spec.target)
    return f"(table_name = {literal(spec.source)} and coalesce(target, {target}) = {target})"


def waiting(spark: SparkSession, name: str, spec: TableSpec) -> DataFrame:
    """Return the records of a table's rows that still wait."""
    return newest(spark, name, of_table(spec)).where(f"status in {OPEN}")


def records(spark: SparkSession, name: str) -> list[dict[str, Any]]:
    """Return the present state of each row, like `pyiceberg_catalog.records`, but through Spark."""
    if not spark.catalog.tableExists(name):
        return []
    return [r.asDict() for r in newest(spark, name).select(*STATE).collect()]


def unreadable(spark: SparkSession, name: str, paths: Sequence[str]) -> DataFrame:
    """Return the records of messages that name no table and were not discarded; their paths begin with one of `paths`."""
    begins = " or ".join(f"startswith(path, {literal(path)})" for path in paths) or "false"
    return newest(spark, name, "table_name is null").where(f"status = '{UNREADABLE}' and ({begins})")


def forget(spark: SparkSession, name: str, spec: TableSpec, first: int, last: int) -> None:
    """Remove the records of batches that a rollback of their table undid, by their `sequence`."""
    create(spark, name)
    spark.sql(f"DELETE FROM {name} WHERE {of_table(spec)} AND sequence BETWEEN {first} AND {last}")


def ended(spark: SparkSession, name: str, days: float) -> DataFrame:
    """Return the rows (`table_name`, `target`, `id`) that were replayed, discarded or became obsolete more than `days` ago."""
    old = f"changed_at < current_timestamp() - make_interval(0, 0, 0, 0, 0, 0, {days * 86_400:.0f})"
    return newest(spark, name).where(f"status not in {OPEN} and {old}").select("table_name", "target", "id")


def purge(spark: SparkSession, name: str, spec: TableSpec, days: float) -> int:
    """Remove all records of a table's rows that `ended` returns; return the number of these rows."""
    of = of_table(spec)
    rows = ended(spark, name, days).where(of).persist()
    try:
        with as_view(spark, rows) as view:
            if count := rows.count():
                create(spark, name)
                _repeated(lambda: spark.sql(f"DELETE FROM {name} WHERE {of} AND id IN (SELECT id FROM {view})"))
            return count
    finally:
        rows.unpersist()
