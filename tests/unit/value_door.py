"""A house of one room: the files of cases go through `frazil.core` alone, and the rows of tables are kept in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dms_writer import Messages
from frazil.core import csv, messages
from frazil.core.changes import AFTER, BEFORE, COMMITTED, OP, SEQUENCE, Changes, Reading, changes, concat
from frazil.core.exact import arrow_type
from frazil.core.latest import latest
from frazil.core.row_blocks import Dialect, blocks
from frazil.engine import parquet
from frazil.engine.gzip_form import unpacked
from frazil.engine.transactions import split_by_table
from frazil.errors import FrazilError
from frazil.settings.spec import TableSpec
from world import Result, World

OWN = {"Op": OP, "seq": SEQUENCE}


class Door(World):
    """A world whose tables are dictionaries: key to row."""

    def __init__(self, root: Path, target: dict, **settings):
        super().__init__(root, "door", {}, target, **settings)
        self.tables: dict[str, dict[tuple, dict]] = {}
        self.bad: dict[str, list[dict]] = {}
        self.read: dict[str, set[Path]] = {}

    # --- what a case asks of its world

    def exists(self, table: str) -> bool:
        return table in self.tables

    def metadata(self, table: str):
        fields = [SimpleNamespace(name=c["name"], field_id=i) for i, c in enumerate(self.specs[table]["columns"])]
        return SimpleNamespace(schema=lambda: SimpleNamespace(fields=fields))

    def rows(self, table: str) -> list[tuple]:
        return [tuple(row.values()) for row in self.tables[table].values()]

    def quarantine(self, table: str) -> list[dict]:
        return [{**bad, "file": Path(bad["file"]).name, "row": bad["number"]} for bad in self.bad[table]]

    def through(self, tables: list[str] | None = None) -> dict[str, Result]:
        return {table: self._through(table) for table in tables or self.specs}

    def decide(self, table: str, replay: bool) -> Result:
        """Read the quarantined rows again: from their bytes and by the spec of now."""
        waiting, self.bad[table] = self.bad[table], []
        again = [(changes(*row), bad["file"]) for bad in waiting for row in self._again(table, bad)]
        self._applied(table, again)
        return Result(table, "replayed")

    # --- one table

    def _through(self, table: str) -> Result:
        self.tables.setdefault(table, {})
        self.bad.setdefault(table, [])
        known = self.read.setdefault(table, set())
        new = sorted((f for f in self._files(table) if f not in known), key=lambda f: f.name)
        try:
            if isinstance(self.source, Messages):
                self._applied(table, [(part, "topic") for part in self._messages(table, known)])
            for batch in ([f for f in new if _is_load(f)], [f for f in new if not _is_load(f)]):
                self._applied(table, [(part, str(f)) for f in batch for part in self._changes(table, f)])
                known.update(batch)
        except FrazilError as error:
            return Result(table, "failed", error.code, str(error))
        return Result(table, "merged")

    def _applied(self, table: str, found: list[tuple[Changes, str]]) -> None:
        bad = [{**row, "file": name} for part, name in found for row in part.bad.to_pylist()]
        said = [f"{b['file']} row {b['number']}: column '{b['column']}': {b['reason']}" for b in bad]
        if bad and (self.specs[table].get("on_bad_rows") or self.settings.get("on_bad_rows")) != "quarantine":
            raise BadRowError(f"{len(bad)} bad rows: " + "; ".join(said), "correct them")
        self.bad[table] += bad
        if parts := [part for part, _ in found]:
            self._apply(self.tables[table], concat(parts), self._spec(table).key)

    def _apply(self, rows: dict[tuple, dict], batch: Changes, key: tuple[str, ...]) -> None:
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

    def _spec(self, table: str) -> TableSpec:
        return TableSpec.model_validate({n: v for n, v in self.specs[table].items() if n != "max_bad_percent"})

    def _files(self, table: str) -> list[Path]:
        of_all = (self.root / "source" / self.source.settings.get("CdcPath", "none")).glob("*.csv")
        own = (self.root / f"source/public/{table}").rglob("*")
        return [
            f
            for f in [*own, *of_all]
            if re.match(r"(\d{8}-\d{9}|CDC_TXN-\d{17}|LOAD[0-9A-F]{8}|SEGMENT\w+)\.\w+(\.gz)?$", f.name)
        ]

    def _reading(self, table: str, names: list[str], of_load: bool) -> Reading:
        spec, told = self._spec(table), self.source.settings
        own = OWN | {told["TimestampColumnName"]: COMMITTED} | {f"BI_{k}": BEFORE + k for k in spec.key}
        roles = tuple(own.get(name) or AFTER + name * (name in {c.name for c in spec.columns}) for name in names)
        roles = tuple("" if role == AFTER else role for role in roles)
        if told.get("DataFormat") == "parquet":
            return Reading(spec, roles, of_load=of_load)
        return Reading(spec, roles, told["CsvNullValue"], told.get("CsvNoSupValue"), of_load)

    def _csv(self, reading: Reading, where: str) -> csv.Reader:
        told = self.source.settings
        dialect = Dialect(told.get("CsvDelimiter", ","), True, bool(told.get("AddColumnName")), told["CsvNullValue"])
        return csv.Reader(reading.types, dialect, where, reading.tells_empty)

    def _changes(self, table: str, file: Path) -> Iterator[Changes]:
        of_load, shared = _is_load(file), file.parent.name == self.source.settings.get("CdcPath", "?").split("/")[-1]
        names = self.source.names(of_load, table)
        if file.suffix == ".parquet":
            names = pq.read_schema(file).names
        reading = self._reading(table, [names[0], "", "", *names[1:]] if shared else names, of_load)
        if file.suffix == ".parquet":
            yield from (changes(r, reading) for r in parquet.Reader(names, file.name).read(file.open("rb")))
            return
        reader = self._csv(reading, file.name)
        pieces = unpacked([file.read_bytes()] if file.stat().st_size else [], file.name)
        if not shared:
            yield from (changes(r, reading) for r in reader.read(pieces))
            return
        for block in blocks(pieces, reader.dialect, file.name):
            own, nameless = split_by_table(block, reader.dialect)
            if len(nameless.numbers):
                raise BadRowError(f"{file.name} row {nameless.numbers[0]} names no table", "correct it")
            if ("public", table) in own:
                yield changes(reader.parse(own["public", table]), reading)

    def _again(self, table: str, bad: dict) -> Iterator[tuple]:
        """Yield the row that the bytes of a bad row have."""
        if bad["file"] == "topic":
            reader, reading = self._of_messages(table)
            yield reader.read(pa.array([bad["raw"]], pa.binary()), np.array([bad["number"]])), reading
            return
        of_load = _is_load(Path(bad["file"]))
        if bad["file"].endswith(".parquet"):
            batch = pa.ipc.open_stream(bad["raw"]).read_next_batch()
            rows = parquet.rows_of(batch, bad["number"])
            yield rows, self._reading(table, batch.schema.names, of_load)
            return
        reading = self._reading(table, self.source.names(of_load, table), of_load)
        for rows in csv.Reader(reading.types, Dialect(), "f").read([bad["raw"] + b"\n"]):
            yield rows, reading


class BadRowError(FrazilError, code="bad-row"):
    """A row cannot be applied."""


class KeyTakenError(FrazilError, code="key-taken"):
    """One statement changed keys among stored rows."""


def _is_load(file: Path) -> bool:
    return "LOAD" in file.name
