"""Finds the live rows of a batch's keys by a key index, which it keeps at the table's snapshot or builds again."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import TableSpec
from frazil_old.lake import index_store, jvm, jvm_maintenance, jvm_row_delta, jvm_schema
from frazil_old.lake.commit import MismatchError, RowDeltaUnsupportedError
from frazil_old.lake.data_file_writer import ROW_ID
from frazil_old.lake.delete_files import by_file, deleted_rows
from frazil_old.lake.index_segment import DamagedError
from frazil_old.lake.index_store import IndexStore
from frazil_old.lake.key_index import MANIFEST, KeyIndex, key_numbers_sql
from frazil_old.lake.rewrite_files import ORDER, file_name
from frazil_old.lake.row_delta_files import NewFile
from frazil_old.lake.small_frames import collect_arrow, frame

if TYPE_CHECKING:
    import numpy as np
    from pyarrow import Table
    from pyspark.sql import SparkSession

log = logging.getLogger("frazil")
SLICE = 5_000_000
"""The driver reads at most this many rows of an index at a time."""
SAVE_EVERY_S = 15.0
"""The index on disk may be this many seconds old; the next process catches up from there."""


def key_columns(rows: Table, name: str = "key_number") -> list[np.ndarray]:
    """Return the columns `key_number0` … of collected rows."""
    return [rows[c].to_numpy() for c in rows.column_names if c.startswith(name)]


def positions(bitmap: Any) -> np.ndarray:
    """Return the positions in a bitmap, in order."""
    import numpy as np

    return np.array(bitmap.to_array(), np.int64)


def require_no_equality_deletes(name: str, snapshot: jvm.JavaSnapshot) -> None:
    """Raise RowDeltaUnsupportedError if a table has equality deletes, which name rows by values: no row delta sees which they are."""
    if int(snapshot.summary().get("total-equality-deletes") or 0):
        raise RowDeltaUnsupportedError(f"{name} has equality deletes", "compact it")


def live_rows(snapshot: jvm.JavaSnapshot) -> int:
    """Return the number of rows of a snapshot by its summary: too low if position deletes of removed files remain."""
    summary = snapshot.summary()
    return int(summary.get("total-records")) - int(summary.get("total-position-deletes"))


@dataclass(frozen=True)
class StoredRows:
    """The stored rows of a batch's keys: their positions by data file.

    `row_ids` has the id that each row of the batch keeps, -1 for a new id; None if the table has no row ids.
    """

    positions: dict[str, np.ndarray]
    row_ids: np.ndarray | None


class Locator:
    """The live files of one table and the index of its keys, both at `snapshot`: `sync` follows commits or builds it again."""

    def __init__(self, spark: SparkSession, name: str, spec: TableSpec, folder: Path):
        self.spark, self.name, self.spec, self.folder = spark, name, spec, folder / name
        self.index: KeyIndex | None = None
        self.store, self.table = IndexStore(spark, self.folder), None
        self.live_files: dict[str, jvm_row_delta.LiveFile] = {}
        self.snapshot: int | None = None
        self.has_row_ids = False
        self.live, self._saved = 0, 0.0

    def stored_rows(self, table: jvm.JavaTable, rows: Table) -> StoredRows:
        """Return the rows that a table now stores under a batch's keys (see `sync`, `locate`). A damaged index is built again."""
        try:
            self.sync(table)
            return self.locate(rows)
        except DamagedError as e:
            log.warning("the key index of %s is built again: %s", self.name, e)
        self.drop()
        self.sync(table)
        return self.locate(rows)

    def sync(self, table: jvm.JavaTable) -> None:
        """Bring `live_files` and index to the table's current snapshot: from disk or store, by the changes since, or by a new build.

        Raise RowDeltaUnsupportedError if keys do not identify the table's rows.
        """
        self.table = table
        now = table.currentSnapshot()
        self.has_row_ids = now.firstRowId() is not None
        if not self.has_row_ids and jvm.format_version(table) >= 3:
            raise MismatchError(f"{self.name} was given format v3 after its last commit", "a MERGE writes this batch")
        if self.snapshot == now.snapshotId():
            return
        require_no_equality_deletes(self.name, now)
        known, self.snapshot = self.live_files, None
        self.live_files = jvm_row_delta.live_files(self.spark, table, now.snapshotId())
        for path, file in self.live_files.items():
            if path in known and known[path].mark == file.mark:
                file.vector = known[path].vector
        identity = self._identity(table)
        if self.index is None or self.index.identity != identity:
            self.index = self._opened(table, identity)
            if self.index.snapshot == now.snapshotId():
                self._settle(table, now)  # a segment may be missing from a manifest that looks complete
        if self.index.snapshot != now.snapshotId() and not self._follow(table, now):
            self._rebuild(table, now)
        self.snapshot, self.live = now.snapshotId(), live_rows(now)

    def _opened(self, table: jvm.JavaTable, identity: str) -> KeyIndex:
        """Return the index in the folder, or the one next to the table if that is of a later snapshot; empty if there is none."""
        index = KeyIndex(self.folder, identity, len(key_numbers_sql(self.spec)), self.has_row_ids)
        index.load()

        def is_newer(stored: int | None) -> bool:
            for s in jvm.ancestors(table):
                if s.snapshotId() in (stored, index.snapshot):
                    return s.snapshotId() != index.snapshot
            return False

        head = table.currentSnapshot()
        behind = index.snapshot != head.snapshotId() and live_rows(head) >= index_store.LEAST_ROWS
        if behind and self.store.take(table, identity, is_newer):
            index.load()
        return index

    def _identity(self, table: jvm.JavaTable) -> str:
        """Return what an index must agree on: the table, its key, how keys become numbers, and row ids."""
        ids = jvm_schema.ids(self.spark, table)
        keys = [ids[k] for k in self.spec.key]
        identity = f"{table.uuid()} {keys} {key_numbers_sql(self.spec)} {jvm.versions(self.spark)}"
        return identity + f" {ROW_ID}" * self.has_row_ids

    def _follow(self, table: jvm.JavaTable, now: jvm.JavaSnapshot) -> bool:
        """Catch up with commits after the index's snapshot; return False if that is not possible.

        Data files never change. After removed files and deleted rows are dropped, the remaining places are therefore
        right. If there are as many places as rows, none is missing.
        """
        index, since = self.index, []
        if index.snapshot is None:
            return False  # no index yet: no need to walk through the history
        for s in jvm.ancestors(table):
            if s.snapshotId() == index.snapshot:
                break
            since.append(s)
        else:
            return False  # rolled back, or too old to know
        index.snapshot = None  # a half-changed index belongs to no snapshot
        self._moved(table, since)
        removed = {index.number(p) for p in index.marks if p not in self.live_files}
        touched = [p for p, f in self.live_files.items() if p in index.marks and index.marks[p] != f.mark]
        index.forget(removed, ((index.number(p), positions(self._deleted(table, p))) for p in touched))
        self._read_keys(table, [p for p in self.live_files if p not in index.marks], now.snapshotId())
        return self._settle(table, now)

    def _moved(self, table: jvm.JavaTable, since: list[jvm.JavaSnapshot]) -> None:
        """Follow compactions directly after the index's snapshot that kept the rows' order: their new files need not be read.

        The live rows of the old files are those of the new one, in order. If rows of the new file were deleted later
        and `live_files` has that already, the numbers differ, and the file is read after all.
        """
        index, known = self.index, {*self.index.marks, *self.live_files}
        paths = {file_name(p): p for p in known}
        for s in reversed(since):
            order = json.loads(s.summary().get(ORDER) or "{}")
            if not order or len(paths) < len(known):
                return
            for new, old in order.items():
                target, *sources = (paths.get(name, "") for name in (new, *old))
                if target not in self.live_files or target in index.marks or not all(f in index.marks for f in sources):
                    return
                live = self._live_positions(table, target)
                if not index.move([index.number(f) for f in sources], index.number(target), live):
                    return
                index.marks[target] = self.live_files[target].mark

    def _rebuild(self, table: jvm.JavaTable, now: jvm.JavaSnapshot) -> None:
        self.index = KeyIndex(self.folder, self.index.identity, len(key_numbers_sql(self.spec)), self.has_row_ids)
        self._read_keys(table, list(self.live_files), now.snapshotId())
        if not self._settle(table, now):
            raise RowDeltaUnsupportedError(
                f"{self.name} has {self._rows(table):,} rows, but {self.index.count():,} keys",
                "look for rows with the same key",
            )

    def _rows(self, table: jvm.JavaTable) -> int:
        """Count the rows in the data files without those that are deleted."""
        return sum(f.rows - len(self._deleted(table, p)) for p, f in self.live_files.items())

    def _settle(self, table: jvm.JavaTable, now: jvm.JavaSnapshot) -> bool:
        """Accept the index for a snapshot if it has as many keys as the table has rows.

        The summary gives this number without a read. It is too low if others compacted a v2 table, whose delete files
        may stay.
        """
        count = self.index.count()
        if count != live_rows(now) and count != self._rows(table):
            self.index.snapshot = None
            return False
        self.index.snapshot, self.index.marks = now.snapshotId(), {p: f.mark for p, f in self.live_files.items()}
        return True

    def _deleted(self, table: jvm.JavaTable, path: str, own: bool = False) -> Any:
        """Return the bitmap of a data file's deleted rows; with `own`, only of deletes that belong to this file alone."""
        file = self.live_files[path]
        return deleted_rows(self.spark, table, path, file.own if own else file.deletes)

    def vector(self, table: jvm.JavaTable, path: str) -> Any:
        """Return the present deletion bitmap of a data file, which a new one replaces."""
        file = self.live_files[path]
        if file.vector is None:
            file.vector = self._deleted(table, path, own=True)
        return file.vector

    def _read_keys(self, table: jvm.JavaTable, paths: list[str], snapshot: int) -> None:
        """Add the keys, and row ids, of some data files to the index, without deleted rows.

        A partition reads one row group, in order. So the rows of a file by row group, and then by their order in the
        partition, are those that are not deleted.
        """
        import numpy as np
        from pyspark.sql import functions as F

        tasks = jvm_maintenance.Tasks(self.spark, table, snapshot, paths) if paths else None
        while paths:
            part, rows = [], 0
            while paths and (not part or rows + self.live_files[paths[-1]].rows <= SLICE):
                rows += self.live_files[paths[-1]].rows
                part.append(paths.pop())
            numbers = [(p, self.index.number(p)) for p in part]
            files = F.broadcast(frame(self.spark, numbers, "path string, file int"))
            keys = [F.expr(k).alias(f"key_number{i}") for i, k in enumerate(key_numbers_sql(self.spec))]
            nth = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1)).cast("int").alias("nth")
            place = [F.input_file_name().alias("path"), F.input_file_block_start().alias("start"), nth]
            with jvm_maintenance.staged(self.spark, table, [tasks.task(p) for p in part]) as read:
                got = collect_arrow(read.select(*keys, *place, *self._row_id).join(files, "path").drop("path"))
            file, pos = got["file"].to_numpy().astype(np.int32), np.empty(got.num_rows, np.int32)
            start, nth = got["start"].to_numpy(), got["nth"].to_numpy()
            for path, number in numbers:
                mine = np.flatnonzero(file == number)
                mine = mine[np.lexsort((nth[mine], start[mine]))]
                pos[mine] = self._checked_positions(table, path, start[mine], nth[mine])
            self.index.extend(key_columns(got), file, pos, *[got[c].fill_null(-1).to_numpy() for c in self._row_id])
        self.index.compact()

    @property
    def _row_id(self) -> list[str]:
        """The column to read for the rows' ids, if the table has them."""
        return [ROW_ID] * self.has_row_ids

    def _live_positions(self, table: jvm.JavaTable, path: str) -> np.ndarray:
        """Return the positions of a file's live rows, in order."""
        import numpy as np

        live = np.ones(self.live_files[path].rows, bool)
        if self.live_files[path].deletes:
            live[positions(self._deleted(table, path))] = False
        return np.flatnonzero(live)

    def _checked_positions(self, table: jvm.JavaTable, path: str, start: np.ndarray, nth: np.ndarray) -> np.ndarray:
        """Return the positions of a file's live rows; raise MismatchError unless each was read, by row group and order."""
        import numpy as np

        at = self._live_positions(table, path)
        first = np.searchsorted(start, start)  # of each row's row group
        if len(at) != len(nth) or not np.array_equal(nth, np.arange(len(nth)) - first):
            raise MismatchError(f"{self.name}: not all rows of {path} could be identified by their place", "run again")
        return at

    # --- a batch

    def locate(self, rows: Table) -> StoredRows:
        """Return the stored rows of a batch's keys.

        A row with another old key, whose number is `stored_key_number0` …, keeps the id of the row that is stored under that.
        """
        import numpy as np

        paths, (file, pos, *row_ids) = self.index.files, self.index.locate(key_columns(rows))
        if row_ids and "stored_key_number0" in rows.column_names:
            moved = np.flatnonzero(rows["stored_key_number0"].is_valid().to_numpy())
            old = self.index.locate([k[moved] for k in key_columns(rows, "stored_key_number")])[2]
            row_ids[0][np.isin(row_ids[0], old)] = -1  # these rows are now under other keys
            row_ids[0][moved] = np.where(old >= 0, old, row_ids[0][moved])
        found = {paths.get(number, f"file {number}"): rows for number, rows in by_file(file, pos) if number >= 0}
        return StoredRows(found, row_ids[0] if row_ids else None)

    def committed(
        self, rows: Table, files: list[tuple[str, int]], touched: Iterable[str], head: jvm.JavaSnapshot, live: int
    ) -> None:
        """Record a committed batch: its first rows fill the new files, one after the other; the other keys are deleted."""
        import numpy as np

        keys = self.index.count() + live - self.live
        self.snapshot, self.live = head.snapshotId(), live
        file, pos = np.full(rows.num_rows, -1, np.int32), np.zeros(rows.num_rows, np.int32)
        start = 0
        for path, count in files:
            file[start : start + count], pos[start : start + count] = self.index.number(path), np.arange(count)
            start += count
        try:
            self.index.add(key_columns(rows), file, pos, *[rows[c].fill_null(-1).to_numpy() for c in self._row_id])
        except DamagedError as e:  # in a merge of segments; the batch is committed
            log.warning("the key index of %s is built again with the next batch: %s", self.name, e)
            self.drop()
            return
        self.index.marks |= {p: self.live_files[p].mark for p in (*touched, *(path for path, _ in files))}
        self.index.snapshot, self.index.keys = head.snapshotId(), keys

    def merged(self, rows: Table, new: list[NewFile], old: list[str], head: jvm.JavaSnapshot) -> None:
        """Record a merge of small files: these existing rows fill the new files, one after the other, and the old files are removed."""
        for path in old:
            del self.live_files[path]
        self.live_files |= {f.path: jvm_row_delta.LiveFile(f.spec_id, f.partition, f.rows) for f in new}
        self.index.marks = {p: m for p, m in self.index.marks.items() if p in self.live_files}
        self.committed(rows, [(f.path, f.rows) for f in new], [], head, self.live)

    def save(self, at_once: bool = True) -> None:
        """Write the index to disk, and offer it to the store. Unless `at_once`, skip it if it was written recently."""
        if self.index is None or self.index.snapshot is None:
            return
        if at_once or time.monotonic() - self._saved > SAVE_EVERY_S:
            self._saved = time.monotonic()
            try:
                manifest = self.index.save(self.store.kept)
            except OSError as e:  # a full disk costs time at the next start, but not the batch
                log.warning("the key index of %s is not saved: %s", self.name, e)
                return
            self.store.offer(self.table, manifest, at_once)

    def drop(self) -> None:
        """Forget everything: the next batch builds the index again, from the table's rows."""
        self.live_files, self.snapshot, self.index, self.store.refused = {}, None, None, True
        (self.folder / MANIFEST).unlink(missing_ok=True)
