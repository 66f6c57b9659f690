"""Commits a batch as a row delta without a key index: a scan of the table's keys finds the old rows.

Spark's tasks write the new rows of a large batch, and the deletes of a very large one. So the driver's memory grows
with files, and with rows up to `MOST_FOUND` only. The time grows with the batch and with the table's key columns. A
MERGE would shuffle the whole table.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import TableSpec
from frazil_old.engine.collapsed_batch import Collapsed
from frazil_old.engine.deletes_in_tasks import Deleted, can_delete, delete_in_tasks, digest_of
from frazil_old.engine.kept_batch import DriverBatch, KeptBatch, KeptIds, Write
from frazil_old.engine.load_files import write_plan
from frazil_old.engine.row_form import RowForm
from frazil_old.engine.write_rows import WritePlan, new_writer
from frazil_old.lake import commit, jvm, jvm_data_files, jvm_row_delta
from frazil_old.lake.commit import Commit, CommitMetadata, MismatchError, commit_of, require_same_position
from frazil_old.lake.data_file_writer import LAST_UPDATED, ROW_ID
from frazil_old.lake.delete_files import by_file, deleted_rows, write_deletes
from frazil_old.lake.index_sync import live_rows, require_no_equality_deletes
from frazil_old.lake.key_scan import FoundRows, ScannedTable, find_rows, found_rows
from frazil_old.lake.tables import TableState, read_table_state

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MOST_BROADCAST = 5_000_000
"""The number of keys that a broadcast, or the driver, may hold."""
MOST_FOUND = 1_000_000
"""The number of keys whose old rows may be found in the driver: 28 bytes each. Tasks spare that, and take more CPU time."""


def commit_by_scan(
    spark: SparkSession, state: tuple[str, TableState], spec: TableSpec, collapsed: Collapsed, metadata: CommitMetadata
) -> Commit:
    """Commit a collapsed batch to a table, in one swap with its position; `state` is the table's name and state.

    Raise RowDeltaUnsupportedError if a MERGE has to write it. Nothing is deleted if the commit fails, as its outcome may
    be unknown: maintenance removes files that nothing names.
    """
    name, base = state
    written: list[dict[str, Any]] = []
    digest: int | None = None  # of the row ids in the files that are written
    if collapsed.kept is None and collapsed.keys > MOST_BROADCAST:
        raise MismatchError(f"{collapsed.keys:,} keys are too many for this process", "a MERGE writes this batch")

    def attempt(on: TableState) -> Commit:
        nonlocal written, digest
        table = jvm.load_table(spark, name)
        require_same_position(table, name, base)
        if table.currentSnapshot().snapshotId() != on.snapshot:  # others committed: check what they did
            read_table_state(spark, name)
        delta = _delta_of(_Target(spark, name, table, spec), collapsed)
        try:
            deleted = delta.delete()
            if deleted.digest != digest:  # another writer may have moved rows to other keys
                written, digest = [*chain.from_iterable(delta.write())], deleted.digest
            return _commit(delta.target, deleted, written, metadata)
        finally:
            delta.release()

    return commit.commit_exactly_once(spark, name, base, metadata.position.batch, attempt)


class _Target:
    """The table's current snapshot, to which one attempt commits the batch."""

    def __init__(self, spark: SparkSession, name: str, table: jvm.JavaTable, spec: TableSpec):
        self.spark, self.name, self.table, self.spec = spark, name, table, spec
        self.snapshot = table.currentSnapshot()
        require_no_equality_deletes(name, self.snapshot)
        then, now = table.schemas().get(self.snapshot.schemaId()), table.schema()
        ids = [[f.fieldId() if f else None for f in map(schema.findField, spec.key)] for schema in (then or now, now)]
        if ids[0] != ids[1]:  # a scan of the snapshot has the names of that time
            raise MismatchError(f"{name}: its key was renamed after its last commit", "a MERGE writes this batch")
        self.live_files = jvm_row_delta.live_files(spark, table, self.snapshot.snapshotId())
        self.has_row_ids = jvm.format_version(table) >= 3

    @property
    def scanned(self) -> ScannedTable:
        """The table as a scan of its keys reads it."""
        return ScannedTable(self.name, self.spec, self.snapshot.snapshotId(), list(self.live_files), self.has_row_ids)

    @cached_property
    def write_plan(self) -> WritePlan:
        """What writes files of the table."""
        return write_plan(self.spark, self.table)

    def writing(self) -> Write:
        """Return the function that writes rows as data files of the table."""
        return _writing(self.spec, self.write_plan, self.has_row_ids)


class _InDriver:
    """An attempt whose old rows this process collects, as files, positions and ids; Spark may keep the new rows."""

    def __init__(self, target: _Target, collapsed: Collapsed):
        self.target, self.bounds = target, collapsed.bounds
        self.batch = collapsed.kept or DriverBatch(target.spark, collapsed.rows, RowForm(target.spec))
        self.old: FoundRows | None = None

    def delete(self) -> Deleted:
        """Find the old rows of the batch's keys, and write their deletes."""
        from pyroaring import BitMap64

        target = self.target
        old = self.old = find_rows(target.spark, target.scanned, self.batch.keys(), self.bounds)
        paths, vectors = list(target.live_files), {}
        for file, positions in by_file(old.file, old.position):
            path = paths[file]
            before = deleted_rows(target.spark, target.table, path, target.live_files[path].own)
            vectors[path] = before | BitMap64(positions)
        entries = write_deletes(target.spark, target.table, target.live_files, vectors)
        return Deleted(entries, len(old.n), digest_of(old.n, old.row_id))

    def write(self) -> list[list[dict[str, Any]]]:
        """Write the batch's new rows as data files; return those of each task in Iceberg's JSON form."""
        ids = None if self.old.row_id is None else _kept_row_ids(self.old, self.batch)
        return self.batch.written(self.target.writing(), ids)

    def release(self) -> None:
        """Free nothing: Spark keeps no old rows."""


class _InTasks:
    """The same where Spark keeps the old rows, and the new ones."""

    def __init__(self, target: _Target, collapsed: Collapsed):
        from pyspark.sql import functions as F

        self.target, self.batch = target, collapsed.kept
        keys = self.batch.keys()
        keys = F.broadcast(keys) if collapsed.keys <= MOST_BROADCAST else keys
        self.kept = found_rows(target.spark, target.scanned, keys, collapsed.bounds).persist()

    def delete(self) -> Deleted:
        target = self.target
        deleted = delete_in_tasks(target.spark, self.kept, target.live_files, target.write_plan, self.batch.partitions)
        if deleted.problem:
            raise MismatchError(f"{target.name}: {deleted.problem}", "run again")
        return deleted

    def write(self) -> list[list[dict[str, Any]]]:
        writing = self.target.writing()
        if self.target.has_row_ids:
            return self.batch.written_after_ids(writing, self.batch.kept_row_ids(self.kept))
        return self.batch.written(writing, None)

    def release(self) -> None:
        """Free the old rows."""
        self.kept.unpersist()


def _delta_of(target: _Target, collapsed: Collapsed) -> _InDriver | _InTasks:
    """Return the attempt for a batch; raise MismatchError if tasks cannot read the table's present deletes."""
    if collapsed.kept is None or collapsed.keys <= MOST_FOUND:
        return _InDriver(target, collapsed)
    if not can_delete(target.live_files):
        raise MismatchError(f"{target.name} has deletes in Avro or ORC files", "a MERGE writes this batch")
    return _InTasks(target, collapsed)


def _commit(target: _Target, deleted: Deleted, written: list[dict[str, Any]], metadata: CommitMetadata) -> Commit:
    """Commit new rows and deletes; raise MismatchError if the table would not have the expected rows."""
    spark, table, name = target.spark, target.table, target.name
    replaced = [d for path in deleted.entries for d in target.live_files[path].own]
    live = live_rows(target.snapshot) - deleted.count + sum(entry["record-count"] for entry in written)

    def check(head: jvm.JavaSnapshot) -> None:
        if live_rows(head) != live:
            problem = f"{name} would have {live_rows(head):,} rows instead of {live:,}"
            raise MismatchError(problem, "look for rows with the same key")

    metadata.before_commit()
    new = jvm_data_files.from_json(spark, table, written)
    delta = jvm_row_delta.Delta(new, list(deleted.entries.values()), replaced, list(deleted.entries))
    head = jvm_row_delta.commit(spark, table, target.snapshot.snapshotId(), delta, metadata.of_swap, check)
    return commit_of(spark, head)


def _kept_row_ids(found: FoundRows, batch: DriverBatch | KeptBatch) -> KeptIds:
    """Return the ids that the rows of a batch keep.

    A row whose key changed keeps the id that is stored under the old key.
    """
    import numpy as np

    numbers, ids = found.n, found.row_id
    if moved := batch.moved():
        known = dict(zip(numbers.tolist(), ids.tolist(), strict=True))
        kept = {n: known[before] for n, before in moved.items() if before in known}
        taken = {*kept.values()}
        known = {n: row_id for n, row_id in known.items() if row_id not in taken} | kept
        numbers, ids = (np.array([*values], "int64") for values in (known.keys(), known.values()))
    order = np.argsort(numbers)
    return KeptIds(numbers[order], ids[order])


def _writing(spec: TableSpec, plan: WritePlan, has_row_ids: bool) -> Write:
    """Return the function that writes rows as data files. A row keeps its known `_row_id`."""

    def write(parts: Iterator[tuple[pa.Table, pa.Array | None]]) -> list[dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        writer = new_writer(plan, lineage=has_row_ids)
        for rows, ids in parts:
            named = rows.select([f"c{i}" for i in range(len(spec.names))]).rename_columns(list(spec.names))
            if has_row_ids:
                named = named.append_column(ROW_ID, pa.nulls(len(rows), pa.int64()) if ids is None else ids)
                named = named.append_column(LAST_UPDATED, pa.nulls(len(rows), pa.int64()))
            upserts = named.filter(pc.not_equal(rows["op"], "D"))
            for some in upserts.combine_chunks().to_batches():
                writer.write(some)
        return writer.close()

    return write
