"""A house of three rooms: the files of cases go through `frazil.dms`, `frazil.engine` and `frazil.core`; tables are kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from time import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from dms_writer import NO_RULES, Messages
from frazil.core import csv, messages
from frazil.core.changes import AFTER, BEFORE, COMMITTED, OP, Changes, Reading, changes, concat
from frazil.core.exact import arrow_type
from frazil.core.latest import latest
from frazil.dms.applied import Applied, Batch, applied_files, batch_of, summary_of
from frazil.dms.endpoint import S3Target
from frazil.dms.file_header import UnclearColumnError
from frazil.dms.file_marks import mark_of
from frazil.dms.listing import list_shared, list_table
from frazil.dms.load_rule import last_before, require_one_load, require_same_load
from frazil.dms.mappings import resolve
from frazil.dms.pending import findings, pending_files
from frazil.dms.position import Position
from frazil.dms.source_file import SourceTable
from frazil.dms.storage import DmsFile, Storage
from frazil.engine import parquet
from frazil.engine.empty_load import require_load
from frazil.engine.file_batches import FileBatch
from frazil.engine.read import BadRowError, TableReader
from frazil.errors import FrazilError
from frazil.settings.spec import TableSpec
from world import Result, World


class Door(World):
    """A world whose tables are dictionaries: key to row."""

    def __init__(self, root: Path, target: dict, **settings):
        super().__init__(root, "door", {}, target, **settings)
        self.tables: dict[str, dict[tuple, dict]] = {}
        self.bad: dict[str, list[dict]] = {}
        self.sent: dict[str, set[int]] = {}
        self.positions: dict[str, Position] = {}
        self.batches: dict[str, list[Batch]] = {}

    # --- what a case asks of its world

    def exists(self, table: str) -> bool:
        return table in self.tables

    def metadata(self, table: str):
        fields = [SimpleNamespace(name=c["name"], field_id=i) for i, c in enumerate(self.specs[table]["columns"])]
        return SimpleNamespace(schema=lambda: SimpleNamespace(fields=fields))

    def rows(self, table: str) -> list[tuple]:
        return sorted((tuple(row.values()) for row in self.tables[table].values()), key=str)

    def quarantine(self, table: str) -> list[dict]:
        return [{**bad, "file": Path(bad["file"]).name, "row": bad["number"]} for bad in self.bad[table]]

    def through(self, tables: list[str] | None = None) -> dict[str, Result]:
        return {table: self._through(table) for table in tables or self.specs}

    def do(self, verb: str, **settings) -> dict[str, Result]:
        self.settings |= settings
        return {} if verb == "setup" else self.through()

    def decide(self, table: str, replay: bool) -> Result:
        """Read the quarantined rows again: from their bytes and by the spec of now."""
        waiting, self.bad[table] = self.bad[table], []
        again = [(changes(*row), bad["dms"]) for bad in waiting for row in self._again(table, bad)]
        self._applied(table, again)
        return Result(table, "replayed")

    # --- one table

    def _through(self, table: str) -> Result:
        self.tables.setdefault(table, {})
        self.bad.setdefault(table, [])
        was = self.positions.get(table)
        try:
            if isinstance(self.source, Messages):
                known = self.sent.setdefault(table, set())
                self._applied(table, [(part, None) for part in self._messages(table, known)])
            else:
                self._files(table)
        except FrazilError as error:
            if isinstance(error, UnclearColumnError) and table not in self.positions:
                del self.tables[table]
            return Result(table, "failed", error.code, str(error))
        return Result(table, "unchanged" if was and was == self.positions[table] else "merged")

    def _applied(self, table: str, found: list[tuple[Changes, DmsFile | None]]) -> None:
        bad = [row | {"file": f.path if f else "topic", "dms": f} for part, f in found for row in part.bad.to_pylist()]
        said = [f"{b['file']} row {b['number']}: column '{b['column']}': {b['reason']}" for b in bad]
        if bad and (self.specs[table].get("on_bad_rows") or self.settings.get("on_bad_rows")) != "quarantine":
            raise BadRowError(f"{len(bad)} bad rows: " + "; ".join(said), "correct them")
        self.bad[table] += bad
        if parts := [part for part, _ in found]:
            self._apply(self.tables[table], concat(parts), self._spec(table).key)

    def _apply(self, rows: dict[tuple, dict], batch: Changes, key: tuple[str, ...]) -> None:
        if not key:
            rows.update(((len(rows) + at,), row) for at, row in enumerate(batch.rows.to_pylist()))
            return
        found, before = latest(batch, key), dict(rows)
        keys = [tuple(row.values()) for row in found.keys.to_pylist()]
        if taken := [key for key in found.transient.to_pylist() if tuple(key.values()) in before]:
            text = ", ".join(f"{name}={value}" for name, value in taken[0].items())
            raise KeyTakenError(f"the key {text} is taken", "load the table again")
        new = found.rows.to_pylist()
        for name, lacks in (found.partial.missing if found.partial else {}).items():
            stored = [tuple(k.values()) for k in found.partial.stored.to_pylist()]
            for row, lack, at in zip(new, lacks, stored, strict=True):
                row[name] = before[at][name] if lack else row[name]
        for at in keys:
            rows.pop(at, None)
        rows.update(zip((k for k, gone in zip(keys, found.deleted, strict=True) if not gone), new, strict=True))

    # --- messages

    def _messages(self, table: str, known: set) -> Iterator[Changes]:
        sent = [
            (n, value)
            for n, (_, value) in enumerate(self.source.sent)
            if n not in known and f'"{table}"'.encode() in value
        ]
        known.update(n for n, _ in sent)
        reader, reading = self._of_messages(table)
        block = pa.array([value for _, value in sent], pa.binary())
        yield changes(reader.read(block, np.array([n for n, _ in sent], "int64")), reading)

    def _of_messages(self, table: str) -> tuple[messages.Reader, Reading]:
        spec = self._spec(table)
        names = {column.name: arrow_type(column.value_type) for column in spec.columns}
        roles = (OP, COMMITTED, *(AFTER + name for name in names), *(BEFORE + key for key in spec.key))
        return messages.Reader(names, spec.key), Reading(spec, roles)

    # --- files

    def _files(self, table: str) -> None:
        """Load a table once, and apply the change files that are pending then."""
        reader, position = self._reader(table), self.positions.get(table, Position())
        written, storage = reader.table.written, reader.storage
        partition = reader.table.target.date_partition
        folder, known = reader.table.target.cdc_path, position if position.last else None
        shared = list_shared(storage, folder, position.last) if folder else ()
        there = list_table(storage, f"{written.schema}/{written.table}", partition, known, shared)
        others = [*[*there.loads.values()][:1], *there.changes[:1]]
        if not position.load:
            require_one_load(there, self._known(table), table)
            began = self._read(table, reader, there.loads, others, Position())
            position = Position(batch=1, load=mark_of(storage, there.loads), last=last_before(there, began))
            self._commit(table, position, storage, there.loads)
        require_same_load(there, position, self._known(table), table)
        for finding in findings(there, position, self._known(table)):
            raise finding.raised(table)
        if files := pending_files(there, position, self._known(table)):
            self._read(table, reader, {f.name: f for f in files}, others, position)
            now = FileBatch(tuple(files), ()).position_after(position, there.below(files[-1]))
            self._commit(table, now, storage, {f.name: f for f in files})

    def _read(self, table: str, reader: TableReader, files: dict, others: list, position: Position) -> float | None:
        """Apply the rows of files; return the earliest of their times."""
        columns = {file: reader.columns(file, others=others) for file in files.values()}
        numbered = ((n, file, its) for n, (file, its) in enumerate(columns.items()) if its)
        parts = [(part, file) for n, file, its in numbered for part in reader.read(file, its, number=n)]
        if parts and position.load:
            stored = lambda keys: np.array([tuple(k.values()) in self.tables[table] for k in keys.to_pylist()], bool)  # noqa: E731
            require_load(concat([part for part, _ in parts]), position, reader.table.spec.key, [*files], table, stored)
        self._applied(table, parts)
        times = [t for part, _ in parts for t in part.fact(COMMITTED) or [] if t.is_valid]
        return min(t.as_py() for t in times).replace(tzinfo=UTC).timestamp() if times else None

    def _commit(self, table: str, position: Position, storage: Storage, files: dict[str, DmsFile]) -> None:
        batch = batch_of(position, summary_of(storage, files), time())
        self.positions[table], self.batches[table] = position, [batch, *self.batches.get(table, [])]

    def _known(self, table: str) -> Applied:
        return applied_files(self.batches.get(table, []))

    def _spec(self, table: str) -> TableSpec:
        said = {n: v for n, v in self.specs[table].items() if n not in ("max_bad_percent", "layouts")}
        said["columns"] = [{n: v for n, v in column.items() if n != "nullable"} for column in said["columns"]]
        written = resolve(getattr(self.source, "rules", NO_RULES)["rules"], TableSpec.model_validate(said))
        names = [*dict.fromkeys([*written.columns, *written.added, *written.images])]
        for layout in self.specs[table].get("layouts", []):
            has = [name for name in layout.get("columns") or names if name not in layout.get("without", [])]
            said.setdefault("columns_until", {})[layout["until"]] = has
        return TableSpec.model_validate(said)

    def _reader(self, table: str) -> TableReader:
        spec, target = self._spec(table), S3Target.model_validate(self.source.settings)
        (self.root / "source").mkdir(exist_ok=True)
        source = SourceTable(spec, resolve(self.source.rules["rules"], spec), target)
        return TableReader(Storage(f"{self.root}/source"), source)

    def _again(self, table: str, bad: dict) -> Iterator[tuple]:
        """Yield the row that the bytes of a bad row have."""
        if not bad["dms"]:
            reader, reading = self._of_messages(table)
            yield reader.read(pa.array([bad["raw"]], pa.binary()), np.array([bad["number"]])), reading
            return
        columns = self._reader(table).columns(bad["dms"])
        if columns.dialect is None:
            rows = [parquet.rows_of(pa.ipc.open_stream(bad["raw"]).read_next_batch(), bad["number"])]
        else:
            dialect = replace(columns.dialect, header=False)
            rows = csv.Reader(columns.reading.types, dialect, "f").read([bad["raw"] + b"\n"])
        yield from ((one, columns.reading) for one in rows)


class KeyTakenError(FrazilError, code="key-taken"):
    """One statement changed keys among stored rows."""
