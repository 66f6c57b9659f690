"""Row deltas: new rows as data files, old rows as deleted positions, one commit. The cost grows with the batch alone."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import TableSpec
from frazil_old.lake import commit, jvm, jvm_maintenance, jvm_row_delta, jvm_schema
from frazil_old.lake.commit import Commit, CommitMetadata, MismatchError, commit_of, require_same_position
from frazil_old.lake.delete_files import write_deletes
from frazil_old.lake.index_sync import Locator, StoredRows, live_rows
from frazil_old.lake.row_delta_files import NewFile, in_order, write_rows
from frazil_old.lake.row_ids import with_new_ids, with_row_ids
from frazil_old.lake.small_file_merge import SmallFileMerge
from frazil_old.lake.tables import TableState, read_table_state

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql import SparkSession


class RowDelta:
    """Commits batches of one table, the `nth` of its run, as row deltas."""

    def __init__(self, spark: SparkSession, name: str, spec: TableSpec, folder: Path, nth: int = 0):
        self.spark, self.name, self.spec = spark, name, spec
        self.small = SmallFileMerge(nth)
        self.locator = Locator(spark, name, spec, folder)

    def commit_by_index(self, base: TableState, rows: Table, metadata: CommitMetadata) -> Commit:
        """Commit a collapsed batch (`small_batch.for_row_delta`) in one swap with its position and other properties.

        Raise what `commit_exactly_once` raises, and RowDeltaUnsupportedError if a MERGE has to write the batch.
        """
        import numpy as np

        name, given, written = self.name, rows, []
        made_with: tuple[Any, Any] = None, None  # the partition fields and row ids in the files that are written

        def attempt(on: TableState) -> Commit:
            nonlocal written, made_with
            table = jvm.load_table(self.spark, name)
            require_same_position(table, name, base)
            if table.currentSnapshot().snapshotId() != on.snapshot:  # others committed: check what they did
                read_table_state(self.spark, name)
            fields = jvm_schema.partition_fields(self.spark, table)
            rows = in_order(with_partition_values(self.spark, table, given, self.spec) if fields else given)
            stored = self.locator.stored_rows(table, rows)
            mine = with_row_ids(rows, stored.row_ids)
            # Others may have changed the partition spec, or given a key to another row meanwhile.
            if not written or fields != made_with[0] or not np.array_equal(made_with[1], stored.row_ids):
                written = write_rows(self.spark, table, mine, self.spec, fields)
                made_with = fields, stored.row_ids
            done = self._commit(table, mine, (stored, written), metadata)
            if self.small.due:  # if that fails, the batch is found in the table
                self.small.merge(self.spark, self.locator, self.spec, fields)
            return done

        # A batch that is only found is not in the index yet: the next batch catches up.
        return commit.commit_exactly_once(self.spark, name, base, metadata.position.batch, attempt)

    def _commit(
        self, table: jvm.JavaTable, rows: Table, places: tuple[StoredRows, list[NewFile]], metadata: CommitMetadata
    ) -> Commit:
        """Commit new files and the deletes of the stored rows (`places`)."""
        from pyroaring import BitMap64

        at, files, (stored, written) = self.locator, self.locator.live_files, places
        old = stored.positions
        if strange := [p for p in old if p not in files]:  # a vector for such a file would be ignored, and rows doubled
            at.drop()
            raise MismatchError(f"{self.name}: its index names {strange[0]}, which is not live", "run again")
        vectors = {p: at.vector(table, p) | BitMap64(positions.tolist()) for p, positions in old.items()}
        entries = write_deletes(self.spark, table, files, vectors)
        replaced = [d for p in vectors for d in files[p].own]
        live = at.live - sum(map(len, old.values())) + sum(f.rows for f in written)

        def check(head: jvm.JavaSnapshot) -> None:
            if live_rows(head) != live:
                at.drop()
                raise MismatchError(
                    f"{self.name} would have {live_rows(head):,} rows, its index {live:,}", "run again: it is rebuilt"
                )

        metadata.before_commit()
        delta = jvm_row_delta.Delta([f.file for f in written], list(entries.values()), replaced, list(vectors))
        head = jvm_row_delta.commit(self.spark, table, at.snapshot, delta, metadata.of_swap, check)
        for path, vector in vectors.items():
            files[path].deletes = [d for d in files[path].deletes if d not in files[path].own] + [entries[path]]
            files[path].vector = vector
        for file in written:
            files[file.path] = jvm_row_delta.LiveFile(file.spec_id, file.partition, file.rows)
        if stored.row_ids is not None:
            rows = with_new_ids(rows, stored.row_ids, self._first_row_ids(head, written), written)
        at.committed(rows, [(f.path, f.rows) for f in written], vectors, head, live)
        at.save(at_once=False)
        self.small.remember(rows, written, head.snapshotId())
        return commit_of(self.spark, head)

    def _first_row_ids(self, head: jvm.JavaSnapshot, written: list[NewFile]) -> list[int]:
        """Return the id of each new file's first row.

        A snapshot numbers the rows of its new manifests. If these hold older files too, only the manifests show it.
        """
        if head.addedRows() == sum(f.rows for f in written):
            return [*accumulate((f.rows for f in written), initial=head.firstRowId())][:-1]
        table = jvm.load_table(self.spark, self.name)
        files = jvm_maintenance.added_files(self.spark, table, {head.snapshotId()})
        return [files[f.path].firstRowId() for f in written]


def with_partition_values(spark: SparkSession, table: jvm.JavaTable, rows: Table, spec: TableSpec) -> Table:
    """Return collapsed rows of the driver (`c0` …) with their partition values, `p0` …."""
    columns = {name: rows[f"c{i}"].combine_chunks() for i, name in enumerate(spec.names)}
    for i, values in enumerate(jvm_schema.partitioning(spark, table).values(columns)):
        rows = rows.append_column(f"p{i}", values)
    return rows
