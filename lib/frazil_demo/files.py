"""The S3 target's files: load files, change files per table or for whole transactions, and their buffers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from frazil_demo.catalog import SourceTable
from frazil_demo.formats import CsvFile, RowFile, open_file, suffix
from frazil_demo.layout import Change, Clock, Field, Layout
from frazil_demo.names import Names, utc_now
from frazil_demo.place import Place
from frazil_demo.rules import Rules
from frazil_demo.settings import SimulatorError, Target


@dataclass
class _Buffer:
    table: SourceTable
    folder: str
    since: float
    transaction: int
    rows: list[list[Field]] = field(default_factory=list)
    size: int = 0


class Files:
    """Writes a task's files below a place, by its settings and table mappings.

    Changes are kept in memory per table until `flush`; until then the caller must be able to repeat them. With
    PreserveTransactions one buffer, named by CdcPath, holds the changes of all tables. Files are written in `hidden`
    and placed when they are complete.

    Assumed for transaction files: they end by CdcMaxBatchInterval and CdcMinFileSize like others, never within a
    transaction, and CompressionType applies to them too.
    """

    def __init__(self, place: Place, hidden: Path, target: Target, rules: Rules, now: Callable[[], datetime] = utc_now):
        self.target, self.rules, self.layout = target, rules, Layout(target, rules)
        self._place, self._hidden = place, hidden
        self._names = Names(target, place, now)
        self._buffers: dict[str, _Buffer] = {}
        self._cdc = target.cdc_path.strip("/") if target.preserve_transactions else ""

    def load(self, table: SourceTable, rows: Iterable[Sequence[str | None]]) -> int:
        """Write a table's rows as LOAD files, a new one whenever MaxFileSize is reached; return the row count.

        Earlier LOAD files of the same names are replaced, others stay. Without rows there is no folder.
        """
        folder, columns = self.rules.of(table.spec).folder, self.layout.columns(table, self.target.op_in_load)
        clock, limit = Clock(), self.target.max_file_kb * 1024
        counter, count, part = 0, 0, None
        for row in rows:
            if part is None:
                counter += 1
                path = f"{folder}/LOAD{counter:08X}{suffix(self.target)}"
                hidden = self._start(path)
                part = open_file(hidden, self.target, columns)
            part.write(self.layout.loaded(table, table.encoded(row), clock.next()))
            count += 1
            if part.size >= limit:
                self._finish(part, hidden, path)
                part = None
        if part:
            self._finish(part, hidden, path)
        return count

    def add(self, change: Change) -> None:
        """Add one change to a buffer; a change for another date folder first flushes the table's buffer."""
        if change.op not in self.target.ops:
            return
        table, date = change.table, self._names.date_folder(change.commit_time)
        key, folder = self._cdc or table.name, self._cdc or f"{self.rules.of(table.spec).folder}/{date}"
        buffer = self._buffers.get(key)
        if buffer and buffer.folder != folder:
            self.flush(key)
            buffer = None
        if buffer is None:
            buffer = self._buffers[key] = _Buffer(table, folder, time.monotonic(), change.transaction)
        row = self.layout.in_transaction(change) if self._cdc else self.layout.changed(change)
        buffer.rows.append(row)
        buffer.size += sum(len(v) + 1 if isinstance(v, str) else 1 for v in row)

    def altered(self, was: SourceTable, now: SourceTable) -> None:
        """End the table's current file: a file has one layout."""
        if was.name in self._buffers:
            self.flush(was.name)

    def full(self) -> list[str]:
        """Return the buffers that have reached CdcMinFileSize."""
        return [name for name, b in self._buffers.items() if b.size >= self.target.min_file_kb * 1024]

    def due(self) -> list[str]:
        """Return the buffers whose first row in memory has waited for CdcMaxBatchInterval."""
        since = time.monotonic() - self.target.max_batch_interval_s
        return [name for name, b in self._buffers.items() if b.since <= since]

    def buffered(self) -> list[str]:
        """Return the names of buffers with rows that are only in memory: by table, or the one for all."""
        return list(self._buffers)

    def oldest(self) -> int | None:
        """Return the number of the first transaction with rows that are only in memory."""
        return min((b.transaction for b in self._buffers.values()), default=None)

    def flush(self, name: str) -> Any:
        """Write a buffer as one change file, named by the present time; return the place's name for it."""
        buffer = self._buffers[name]
        table, target = buffer.table, self.target
        root = self._cdc or self.rules.of(table.spec).folder
        path = f"{buffer.folder.rstrip('/')}/{self._names.next(root)}{suffix(target, bool(self._cdc))}"
        hidden = self._start(path)
        if self._cdc:
            part: RowFile = CsvFile(hidden, target)
        else:
            part = open_file(hidden, target, self.layout.columns(table, target.op_in_changes))
        for row in buffer.rows:
            part.write(row)
        placed = self._finish(part, hidden, path)
        del self._buffers[name]
        return placed

    def _start(self, path: str) -> Path:
        self._hidden.mkdir(parents=True, exist_ok=True)
        return self._hidden / f".{path.replace('/', '.')}.{os.getpid()}"

    def _finish(self, part: RowFile, hidden: Path, path: str) -> Any:
        part.close()
        return self._place.place(path, hidden)


def check_folders(rules: Rules, tables: Iterable[SourceTable]) -> None:
    """Refuse two tables that the rules give the same folder: their files would replace each other."""
    taken: dict[str, str] = {}
    for table in tables:
        folder = rules.of(table.spec).folder
        if folder in taken:
            raise SimulatorError(
                f"{taken[folder]} and {table.name} both go to {folder}", "rename one of them otherwise"
            )
        taken[folder] = table.name
