"""The S3 target's per-table CSV files: names, row layout, buffers, and files that appear whole."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from frazil.demo.catalog import SourceTable
from frazil.demo.encode import CsvRows
from frazil.dms.endpoint import Endpoint, Mappings

_CHANGE_NAME = re.compile(r"\d{8}-\d{9}\.csv")


@dataclass(frozen=True)
class Change:
    """One changed row: `values` in column order, already in DMS's texts; `before` has old key values by column."""

    table: SourceTable
    op: str
    commit_time: datetime
    sequence: str
    transaction: int
    values: Sequence[str | None]
    before: dict[str, str | None] = field(default_factory=dict)


@dataclass
class _Buffer:
    table: SourceTable
    since: float
    transaction: int
    lines: list[bytes] = field(default_factory=list)
    size: int = 0


class _Part:
    """A file in the making: it lies elsewhere under a hidden name until it is whole."""

    def __init__(self, path: Path, target: Path):
        self._path, self._target, self.size = path, target, 0
        self._out = path.open("wb")

    def write(self, data: bytes) -> None:
        self._out.write(data)
        self.size += len(data)

    def publish(self) -> Path:
        self._out.close()
        self._target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._path, self._target)
        return self._target


class _Clock:
    """Gives each transferred row a timestamp of its own, one microsecond apart at least."""

    def __init__(self):
        self.last = datetime.min.replace(tzinfo=UTC)

    def next(self) -> str:
        self.last = max(datetime.now(UTC), self.last + timedelta(microseconds=1))
        return stamp(self.last)


def stamp(moment: datetime) -> str:
    """Write the timestamp column's text."""
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")


class CsvFiles:
    """Write LOAD files and change files below `<folder>/<schema>/<table>/`.

    Changes are kept in memory per table until `flush`; who calls it must not forget a change before that.
    Files are written beside the folder and moved into place, so that a reader sees whole files only.
    """

    def __init__(self, folder: Path, endpoint: Endpoint, mappings: Mappings):
        self.folder, self.endpoint, self.mappings = Path(folder), endpoint, mappings
        self._staging = self.folder.parent / f".{self.folder.name}.staging"
        self._rows = CsvRows(endpoint)
        self._buffers: dict[str, _Buffer] = {}
        self._last_name: dict[str, datetime] = {}

    def load(self, table: SourceTable, rows: Iterable[Sequence[str | None]]) -> int:
        """Write a table's rows as LOAD files, a new one whenever MaxFileSize is reached; return the row count.

        Earlier LOAD files of the same names are replaced, others stay. No rows: no folder.
        """
        head = self._header(table, self.endpoint.op_in_load)
        tail = [None] * (len(self.mappings.added(table.spec)) + len(self._before_names(table)))
        op = ["I"] if self.endpoint.op_in_load else []
        clock, limit = _Clock(), self.endpoint.max_file_kb * 1024
        stamps = bool(self.endpoint.timestamp_column)
        counter, count, part = 0, 0, None
        for row in rows:
            if part is None:
                counter += 1
                part = self._start(table, f"LOAD{counter:08X}.csv", head)
            part.write(self._rows.line([*op, *([clock.next()] if stamps else []), *table.encoded(row), *tail]).encode())
            count += 1
            if part.size >= limit:
                part.publish()
                part = None
        if part:
            part.publish()
        return count

    def add(self, change: Change) -> None:
        """Take one change into its table's buffer."""
        table = change.table
        buffer = self._buffers.get(table.name)
        if buffer is None:
            buffer = _Buffer(table, time.monotonic(), change.transaction)
            self._buffers[table.name] = buffer
        row = [change.op, *([stamp(change.commit_time)] if self.endpoint.timestamp_column else []), *change.values]
        row += [change.sequence] * len(self.mappings.added(table.spec))
        row += [change.before.get(column) for column in self._before_names(table)]
        line = self._rows.line(row).encode()
        buffer.lines.append(line)
        buffer.size += len(line)

    def full(self) -> list[str]:
        """Return the tables whose buffer has reached CdcMinFileSize."""
        return [name for name, b in self._buffers.items() if b.size >= self.endpoint.min_file_kb * 1024]

    def due(self) -> list[str]:
        """Return the tables whose first row in memory has waited for CdcMaxBatchInterval."""
        since = time.monotonic() - self.endpoint.max_batch_interval_s
        return [name for name, b in self._buffers.items() if b.since <= since]

    def buffered(self) -> list[str]:
        """Return the tables that have rows in memory only."""
        return list(self._buffers)

    def oldest(self) -> int | None:
        """Return the number of the first transaction that has rows in memory only."""
        return min((b.transaction for b in self._buffers.values()), default=None)

    def flush(self, name: str) -> Path:
        """Write a table's buffer as one change file, named by this moment in UTC; return the file."""
        buffer = self._buffers[name]
        head = self._header(buffer.table, True)
        part = self._start(buffer.table, self._change_name(buffer.table), head)
        for line in buffer.lines:
            part.write(line)
        file = part.publish()
        del self._buffers[name]
        return file

    def _before_names(self, table: SourceTable) -> dict[str, str]:
        rule = self.mappings.before_image(table.spec)
        return rule.names(table.spec) if rule else {}

    def _header(self, table: SourceTable, with_op: bool) -> str:
        if not self.endpoint.header:
            return ""
        stamps = [self.endpoint.timestamp_column] if self.endpoint.timestamp_column else []
        added, before = self.mappings.added(table.spec), self._before_names(table).values()
        return self._rows.line([*(["Op"] if with_op else []), *stamps, *table.spec.names, *added, *before])

    def _folder(self, table: SourceTable) -> Path:
        return self.folder / table.spec.schema_name / table.spec.table_name

    def _change_name(self, table: SourceTable) -> str:
        """Name a change file later than any that the table has, also across restarts and clock corrections."""
        last = self._last_name.get(table.name)
        if last is None:
            names = sorted(f.name for f in self._folder(table).glob("*.csv") if _CHANGE_NAME.fullmatch(f.name))
            if names:
                last = datetime.strptime(names[-1][:18] + "000", "%Y%m%d-%H%M%S%f").replace(tzinfo=UTC)
        now = datetime.now(UTC)
        now = now.replace(microsecond=now.microsecond // 1000 * 1000)
        if last is not None:
            now = max(now, last + timedelta(milliseconds=1))
        self._last_name[table.name] = now
        return now.strftime("%Y%m%d-%H%M%S%f")[:18] + ".csv"

    def _start(self, table: SourceTable, name: str, head: str) -> _Part:
        self._staging.mkdir(parents=True, exist_ok=True)
        part = _Part(self._staging / f".{table.name}.{name}.{os.getpid()}", self._folder(table) / name)
        part.write(head.encode())
        return part
