"""Commits a batch as a row delta without a key index: a scan of the table's keys finds the old rows.

Spark's tasks write the new rows of a large batch. The time grows with the batch and with the table's key columns. A
MERGE would shuffle the whole table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.engine.collapsed_batch import Collapsed
from frazil.engine.kept_batch import DriverBatch, KeptBatch, Write
from frazil.engine.load_files import write_plan
from frazil.engine.row_form import RowForm
from frazil.engine.write_rows import WritePlan, new_writer
from frazil.lake import jvm, jvm_data_files, jvm_row_delta
from frazil.lake.commit import Commit, Facts, MismatchError, commit_of, once, require_same_position
from frazil.lake.data_file_writer import LAST_UPDATED, ROW_ID
from frazil.lake.key_scan import FoundRows, ScannedTable, find_rows
from frazil.lake.row_delta_files import deleted_rows, write_deletes
from frazil.lake.row_locator import live_rows, require_no_equality_deletes
from frazil.lake.tables import TableState, read_table_state

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import SparkSession

MOST_KEYS = 5_000_000
"""The number of keys that a broadcast, and the driver, may hold."""


def commit_by_scan(
    spark: SparkSession, state: tuple[str, TableState], spec: TableSpec, found: Collapsed, facts: Facts
) -> Commit:
    """Commit a collapsed batch to a table, in one swap with its position; `state` is the table's name and state.

    Raise RowDeltaUnsupportedError if a MERGE has to write it. Nothing is deleted if the commit fails, as its outcome may be unknown:
    maintenance removes files that nothing names.
    """
    name, base = state
    written: list[dict[str, Any]] = []
    kept: _RowIds | None = None  # the row ids in the files that are written
    batch = found.kept or DriverBatch(spark, found.rows, RowForm(spec))
    if found.keys > MOST_KEYS:
        raise MismatchError(f"{found.keys:,} keys are too many for a broadcast", "a MERGE writes this batch")

    def attempt(on: TableState) -> Commit:
        nonlocal written, kept
        table = jvm.load_table(spark, name)
        require_same_position(table, name, base)
        if table.currentSnapshot().snapshotId() != on.snapshot:  # others committed: check what they did
            read_table_state(spark, name)
        delta = _ScanDelta(spark, name, table, batch)
        old = delta.find(found.bounds)
        ids = _row_ids(old, batch)
        if kept is None or not ids.equals(kept):  # another writer may have moved rows to other keys
            written, kept = delta.write(ids), ids
        return delta.commit(old, written, facts)

    return once(spark, name, base, facts.position.batch, attempt)


class _ScanDelta:
    """One attempt to commit a batch on the table's current snapshot."""

    def __init__(self, spark: SparkSession, name: str, table: jvm.JavaTable, batch: KeptBatch | DriverBatch):
        self.spark, self.name, self.table, self.batch = spark, name, table, batch
        self.snapshot = table.currentSnapshot()
        require_no_equality_deletes(name, self.snapshot)
        self.plan = jvm_row_delta.plan(spark, table, self.snapshot.snapshotId())

    def find(self, bounds: tuple[Any, Any]) -> FoundRows:
        """Return the live rows of the batch's keys."""
        has_row_ids = int(jvm_row_delta.format_version(self.table)) >= 3
        spec, snapshot = self.batch.form.spec, self.snapshot.snapshotId()
        state = ScannedTable(self.name, spec, snapshot, list(self.plan), has_row_ids)
        return find_rows(self.spark, state, self.batch.keys(), bounds)

    def write(self, ids: _RowIds) -> list[dict[str, Any]]:
        """Write the batch's new rows as data files; return these in Iceberg's JSON form."""
        write = _writing(self.batch.form.spec, write_plan(self.spark, self.table), ids)
        return [entry for entries in self.batch.written(write) for entry in entries]

    def commit(self, found: FoundRows, written: list[dict[str, Any]], facts: Facts) -> Commit:
        """Commit new rows and deleted positions; raise MismatchError if the table would not have the expected rows."""
        from pyroaring import BitMap64

        paths, vectors = list(self.plan), {}
        for file, positions in found.by_file():
            own = self.plan[paths[file]].own
            vectors[paths[file]] = deleted_rows(self.spark, self.table, paths[file], own) | BitMap64(positions)
        entries = write_deletes(self.spark, self.table, self.plan, vectors)
        replaced = [d for path in vectors for d in self.plan[path].own]
        live = live_rows(self.snapshot) - len(found.n) + sum(entry["record-count"] for entry in written)

        def check(head: jvm.JavaSnapshot) -> None:
            if live_rows(head) != live:
                problem = f"{self.name} would have {live_rows(head):,} rows instead of {live:,}"
                raise MismatchError(problem, "look for rows with the same key")

        facts.before_commit()
        new = jvm_data_files.from_json(self.spark, self.table, written)
        delta = jvm_row_delta.Delta(new, list(entries.values()), replaced, list(vectors))
        base = self.snapshot.snapshotId()
        head = jvm_row_delta.commit(self.spark, self.table, base, delta, facts.stamp, check)
        return commit_of(self.spark, head, facts.position.batch)


@dataclass(frozen=True)
class _RowIds:
    """The numbers of rows that keep their ids, in order, and these ids; None for tables without row ids."""

    numbers: np.ndarray
    ids: np.ndarray | None

    def equals(self, other: _RowIds) -> bool:
        """Return whether the same rows keep the same ids."""
        import numpy as np

        if self.ids is None or other.ids is None:
            return self.ids is other.ids
        return np.array_equal(self.numbers, other.numbers) and np.array_equal(self.ids, other.ids)


def _row_ids(found: FoundRows, batch: KeptBatch | DriverBatch) -> _RowIds:
    """Return which rows keep their ids. A row whose key changed keeps the id that is stored under the old key."""
    import numpy as np

    if found.row_id is None:
        return _RowIds(found.n, None)
    order = np.argsort(found.n)
    numbers, ids = found.n[order], found.row_id[order]
    moved = batch.moved()
    if not moved:
        return _RowIds(numbers, ids)
    known = dict(zip(numbers.tolist(), ids.tolist(), strict=True))
    kept = {n: known[before] for n, before in moved.items() if before in known}
    taken = {*kept.values()}
    known = {n: row_id for n, row_id in known.items() if row_id not in taken} | kept
    return _RowIds(np.array(sorted(known), "int64"), np.array([known[n] for n in sorted(known)], "int64"))


def _writing(spec: TableSpec, plan: WritePlan, known: _RowIds) -> Write:
    """Return the function that writes rows as data files. A row keeps its known `_row_id`."""

    def write(parts: Iterator[tuple[int, pa.Table]]) -> list[dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        writer = new_writer(plan, lineage=known.ids is not None)
        for number, rows in parts:
            named = rows.select([f"c{i}" for i in range(len(spec.names))]).rename_columns(list(spec.names))
            if known.ids is not None:
                named = named.append_column(ROW_ID, _kept_ids(number, len(rows), known))
                named = named.append_column(LAST_UPDATED, pa.nulls(len(rows), pa.int64()))
            upserts = named.filter(pc.not_equal(rows["op"], "D"))
            for some in upserts.combine_chunks().to_batches():
                writer.write(some)
        return writer.close()

    return write


def _kept_ids(first: int, count: int, known: _RowIds) -> pa.Array:
    """Return the `_row_id` of each row of a block, null for new rows."""
    import numpy as np
    import pyarrow as pa

    start, end = np.searchsorted(known.numbers, [first, first + count])
    values, is_new = np.zeros(count, "int64"), np.ones(count, bool)
    at = known.numbers[start:end] - first
    values[at], is_new[at] = known.ids[start:end], False
    return pa.array(values, mask=is_new)
