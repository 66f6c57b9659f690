"""The table of rows set aside, exactly once together with the batches that they come from.

Records are staged on a branch of the quarantine's own table before their batch is committed, and published to its main, in one swap
that removes the branch, once it is. Whoever comes to a table next takes up what a killed run left: it publishes what
belongs to a committed batch and drops what belongs to none. So main tells of committed batches only.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from frazil.changes.quarantine import newest
from frazil.config.sql import identifier, literal
from frazil.dms.position import Position
from frazil.errors import FrazilError
from frazil.lake import jvm
from frazil.lake.commit import is_dead, new_batch
from frazil.lake.tables import BATCH, BRANCH_PREFIX, POSITION, TAG, Base, create_namespaces
from frazil.source.quarantined import LATER, OPEN, RECORD, UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BESIDE, ON = "frazil.table", "frazil.base"
"""In the summary of staged records: the table of their batch, and the position and snapshot that it was built on."""
_one_at_a_time = threading.Lock()


class QuarantineError(FrazilError):
    """Rows set aside of which it cannot be told whether their batch was committed, or that were not set aside whole."""

    decision = True


def create(spark: SparkSession, name: str) -> None:
    """Create the quarantine's table if it is missing, with an empty first snapshot."""
    with _one_at_a_time:
        if not spark.catalog.tableExists(name):
            create_namespaces(spark, [name])
            columns = ", ".join(f"{identifier(c)} {kind}" for c, kind in RECORD.items())
            properties = "'commit.retry.num-retries' = '20', 'write.metadata.delete-after-commit.enabled' = 'true'"
            spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
        table = jvm.load_table(spark, name)
        if table.currentSnapshot() is None:
            table.newAppend().commit()


def stage(spark: SparkSession, name: str, records: DataFrame, batch: str, target: str, base: Base) -> None:
    """Write records to a branch of their batch: until `settle` finds it committed, nobody sees them."""
    create(spark, name)
    branch = BRANCH_PREFIX + batch
    _patiently(lambda: jvm.fork(spark, name, branch, jvm.load_table(spark, name).currentSnapshot().snapshotId()))
    on = {"batch": base.position.batch, "snapshot": base.snapshot}
    summary = {BATCH: batch, BESIDE: target, ON: json.dumps(on)}
    _insert(spark, f"{name}.branch_{branch}", records, batch, summary)


def add(spark: SparkSession, name: str, records: DataFrame, batch: str) -> None:
    """Write records that belong to no batch of their table straight to main."""
    _insert(spark, name, records, batch, {})


def add_once(spark: SparkSession, name: str, records: DataFrame, admit: Callable[[int], None]) -> tuple[int, list[str]]:
    """Write those of some records of no table to main of which there is none with their `id` yet; return how many, and where the first lie.

    They are written on a branch that becomes main only if nobody has added anything meanwhile: else they are looked up again.
    `admit` is told how many they are, and may raise.
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

    return _patiently(attempt, alone=False)


def _forward(spark: SparkSession, name: str, records: DataFrame, head: int) -> None:
    """Write records behind the snapshot `head` of main, if main is still there when they are written."""
    batch = new_batch()
    branch = BRANCH_PREFIX + batch
    jvm.fork(spark, name, branch, head)
    try:
        _insert(spark, f"{name}.branch_{branch}", records, batch, {})
        jvm.forward(spark, name, branch, head)
    except Exception:
        jvm.drop_branch(spark, name, branch)
        raise


def _insert(spark: SparkSession, target: str, records: DataFrame, batch: str, summary: dict[str, str]) -> None:
    view = "frazil_quarantine_" + batch
    records.coalesce(1).createOrReplaceTempView(view)
    try:
        columns = ", ".join(identifier(c) for c in RECORD)
        jvm.sql_with_commit_properties(spark, f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {view}", summary)
    finally:
        spark.catalog.dropTempView(view)


def settle(spark: SparkSession, name: str, target: str, ours: str = "") -> bool:
    """Publish what was staged beside committed batches of a table; drop what was staged beside batches that never will be.

    `ours` is a batch of this run whose commit is over, well or not; returns whether its records were still staged. What other
    living runs have staged is left to them, unless their batch is committed.
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
        elif summary[BESIDE] == target:
            committed = _is_committed(spark, target, batch, json.loads(summary[ON]))
            if committed:
                _publish(spark, name, branch, head.snapshotId())
            elif committed is False and over:
                _drop(spark, name, branch, head.snapshotId())
            elif committed is None:
                raise QuarantineError(
                    f"{target}: rows were set aside beside batch {batch}, and the table's history no longer tells whether that "
                    "was committed",
                    f"see SELECT * FROM {name}.branch_{branch}; then fast-forward main to it, or drop it",
                )
    return BRANCH_PREFIX + ours in there


def require_published(spark: SparkSession, name: str, target: str, batch: str) -> None:
    """Raise QuarantineError if no record names a batch. Another run may have published its records; else they are lost."""
    of_batch = " or ".join(f"{c} = {literal(batch)}" for c in ("batch", *LATER))
    if spark.table(name).where(of_batch).isEmpty():
        raise QuarantineError(
            f"{target}: the rows that were set aside beside batch {batch} are not in {name}",
            "run 01_full_load with on_changed_load=replay, which applies all files of the table again and loses nothing",
        )


def _publish(spark: SparkSession, name: str, branch: str, head: int) -> None:
    """Take a branch's snapshot over into main, and remove the branch; somebody else may be faster."""

    def swap() -> None:
        table = jvm.load_table(spark, name)
        if table.refs().get(branch) is not None:
            table.manageSnapshots().cherrypick(head).removeBranch(branch).commit()

    _patiently(swap)


def _drop(spark: SparkSession, name: str, branch: str, head: int) -> None:
    """Remove a branch that still is at the snapshot by which it was judged; records that came since keep it."""

    def drop() -> None:
        table = jvm.load_table(spark, name)
        if (there := table.refs().get(branch)) is not None and there.snapshotId() == head:
            table.manageSnapshots().removeBranch(branch).commit()

    _patiently(drop)


def _patiently(do: Callable[[], Any], alone: bool = True) -> Any:
    """Do again what lost a race: other tables' batches change the quarantine's refs at the same time, of this process not while `alone`."""
    for attempt in range(8):
        try:
            with _one_at_a_time if alone else nullcontext():
                return do()
        except Exception as error:
            if attempt == 7 or not jvm.is_known_failure(error):
                raise
        time.sleep(0.05 * 2**attempt)
    return None


def _is_committed(spark: SparkSession, target: str, batch: str, on: dict) -> bool | None:
    """Tell whether a batch is in a table's history; None: that reaches back neither to it nor to what it was built on."""
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


def waiting(spark: SparkSession, name: str, source: str) -> DataFrame:
    """Return the records of a source table's rows that still wait."""
    rows = newest(spark.table(name).where(f"table_name = {literal(source)}"))
    return rows.where(f"status in {OPEN}")


def records(spark: SparkSession, name: str) -> list[dict[str, Any]]:
    """Return how each row stands, as `lookup.records` does where the catalog can be read without Spark."""
    if not spark.catalog.tableExists(name):
        return []
    columns = ("table_name", "id", "status", "sequence", "set_aside_at", "changed_at")
    return [r.asDict() for r in newest(spark.table(name)).select(*columns).collect()]


def unreadable(spark: SparkSession, name: str) -> DataFrame:
    """Return the records of messages that tell no table and were not given up."""
    return newest(spark.table(name).where("table_name is null")).where(f"status = '{UNREADABLE}'")


def forget(spark: SparkSession, name: str, source: str, first: int, last: int) -> None:
    """Remove the records of batches that a rollback of their table took away, by their `sequence`."""
    spark.sql(f"DELETE FROM {name} WHERE table_name = {literal(source)} AND sequence BETWEEN {first} AND {last}")


def ended(spark: SparkSession, name: str, days: float) -> DataFrame:
    """Return the rows (`table_name`, `id`) that were replayed, discarded or became obsolete more than so many days ago."""
    old = f"changed_at < current_timestamp() - make_interval(0, 0, 0, 0, 0, 0, {days * 86_400:.0f})"
    return newest(spark.table(name)).where(f"status not in {OPEN} and {old}").select("table_name", "id")


def purge(spark: SparkSession, name: str, source: str, days: float) -> int:
    """Remove all records of a source table's rows that `ended` names, and return how many rows those were."""
    view, of = f"frazil_ended_{uuid.uuid4().hex}", f"table_name = {literal(source)}"
    rows = ended(spark, name, days).where(of).persist()
    rows.createOrReplaceTempView(view)
    try:
        if count := rows.count():
            _patiently(lambda: spark.sql(f"DELETE FROM {name} WHERE {of} AND id IN (SELECT id FROM {view})"))
        return count
    finally:
        spark.catalog.dropTempView(view)
        rows.unpersist()
