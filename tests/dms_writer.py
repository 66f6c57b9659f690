"""What DMS writes, as a test says it: change rows, CSV and Parquet files, files of all tables, JSON messages."""

from __future__ import annotations

import gzip
import io
import json
from collections import namedtuple
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LOAD = "LOAD00000001.csv"
COMMITTED = "2024-01-01 09:59:00.000000"
STAMP = "2026-01-01T10:00:00Z"
Change = namedtuple("Change", "op values was seq ts")


def file_name(number: int, ending: str = ".csv") -> str:
    """Return the name of the change file that is written `number` minutes after ten o'clock."""
    return f"20240101-{10 + number // 60:02d}{number % 60:02d}00000{ending}"


FILE1, FILE2, FILE3 = (file_name(n) for n in range(3))


def I(*values, seq="", ts=COMMITTED):  # noqa: E743
    """An insert of a row."""
    return Change("I", values, None, seq, ts)


def U(*values, was=None, seq="", ts=COMMITTED):
    """An update to a row; `was` is the old key where it changed (a tuple for a composite key)."""
    return Change("U", values, was, seq, ts)


def D(*values, seq="", ts=COMMITTED):
    """A delete, of which the key is enough."""
    return Change("D", values, None, seq, ts)


BEFORE_IMAGE = {"rules": [
    {"rule-type": "transformation", "rule-action": "add-column", "value": "seq", "expression": "$AR_H_CHANGE_SEQ"},
    {"rule-type": "transformation", "rule-action": "add-before-image-columns", "before-image-def": {"column-prefix": "BI_"}},
]}  # fmt: skip
"""Rules of a task that adds DMS's sequence and the old key to each row."""
NO_RULES = {"rules": []}


def columns_of(*columns: str) -> list[dict]:
    """Return columns written as `name TYPE` as a spec lists them."""
    return [dict(zip(("name", "type"), c.split(" ", 1), strict=True)) for c in columns]


def csv_field(value, null: str = "", delimiter: str = ",") -> str:
    """Write one value as DMS does: null as its token, an empty text quoted, quotes doubled."""
    if value is None:
        return null
    text = str(value)
    if text in ("", null) or any(c in text for c in (delimiter, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


class Folder:
    """A folder that DMS writes to: the settings of the S3 target, the rules of the task, and the files of tables."""

    def __init__(self, folder: Path, specs: dict[str, dict], **settings):
        self.folder, self.specs, self.rules = folder, specs, BEFORE_IMAGE
        self.settings = {"CsvNullValue": "", "TimestampColumnName": "ts", **settings}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def ending(self) -> str:
        """The ending of the files of this target."""
        if self.settings.get("DataFormat") == "parquet":
            return ".parquet"
        return ".csv.gz" if self.settings.get("CompressionType") == "GZIP" else ".csv"

    def named(self, name: str) -> str:
        """Return a file's name with the ending of this target."""
        return name.removesuffix(".csv") + self.ending

    def path(self, table: str, name: str) -> Path:
        """Return the path of a table's file."""
        return self.folder / "public" / table / name

    def load(self, table: str, *rows: tuple, name: str = LOAD) -> Path:
        """Write a load file of some rows."""
        op = ["I"] if self.settings.get("IncludeOpForFullLoad") else []
        return self._file(table, name, True, [(*op, *self._time(), *r, *self._tail(table, "", None)) for r in rows])

    def changes(self, table: str, *changes: Change, name: str = FILE1) -> Path:
        """Write a change file of some changes."""
        rows = []
        for c in changes:
            rows.append((c.op, *self._time(c.ts), *self._whole(table, c), *self._tail(table, c.seq, c.was)))
        return self._file(table, name, False, rows)

    def of_all_tables(self, name: str, *changes: tuple[str, Change]) -> Path:
        """Write a file of all tables (PreserveTransactions): pairs of a table and its change."""
        lines = [self._line((c.op, t, "public", *self._time(c.ts), *self._whole(t, c), *self._tail(t, c.seq, c.was))) for t, c in changes]  # fmt: skip
        return self._put(self.folder / self.settings["CdcPath"] / name, "".join(lines).encode())

    def write(self, table: str, name: str, data: str | bytes) -> Path:
        """Write a file of a table as it stands."""
        return self._put(self.path(table, name), data.encode() if isinstance(data, str) else data)

    def names(self, load: bool, table: str) -> list[str]:
        """Return the names of a file's columns, in order."""
        op = [] if load and not self.settings.get("IncludeOpForFullLoad") else ["Op"]
        time = [self.settings["TimestampColumnName"]] if self.settings["TimestampColumnName"] else []
        extra = [*(["seq"] * self._has("$AR_H_CHANGE_SEQ")), *[f"BI_{k}" for k in self.specs[table]["key"] * self._has("before-image")]]  # fmt: skip
        return [*op, *time, *[c["name"] for c in self.specs[table]["columns"]], *extra]

    def _has(self, what: str) -> bool:
        """Return whether a rule adds the sequence, or the old key: those columns stand behind all others."""
        return what in str(self.rules["rules"])

    def _whole(self, table: str, change: Change) -> tuple:
        return (*change.values, *[None] * (len(self.specs[table]["columns"]) - len(change.values)))

    def _file(self, table: str, name: str, load: bool, rows: list[tuple]) -> Path:
        if self.ending == ".parquet":
            return self.write(table, self.named(name), parquet_bytes(self.names(load, table), rows))
        header = [self.names(load, table)] if self.settings.get("AddColumnName") else []
        raw = "".join(self._line(r) for r in [*header, *rows]).encode()
        return self.write(table, self.named(name), gzip.compress(raw, mtime=0) if self.ending == ".csv.gz" else raw)

    def _time(self, committed: str = COMMITTED) -> tuple[str, ...]:
        return (committed,) if self.settings["TimestampColumnName"] else ()

    def _tail(self, table: str, seq: str, was) -> tuple:
        keys = self.specs[table]["key"]
        old = [None] * len(keys) if was is None else [was] if len(keys) == 1 else list(was)
        return (*[seq or None] * self._has("$AR_H_CHANGE_SEQ"), *old * self._has("before-image"))

    def _line(self, fields) -> str:
        delimiter, null = self.settings.get("CsvDelimiter", ","), self.settings["CsvNullValue"]
        return delimiter.join(csv_field(f, null, delimiter) for f in fields) + "\n"

    @staticmethod
    def _put(file: Path, data: bytes) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file


def parquet_bytes(names: list[str], rows: list[tuple], **options) -> bytes:
    """Return a Parquet file of rows; a column's type is that of its Python values, texts of times are texts."""
    columns = [[r[i] for r in rows] for i in range(len(names))]
    out = io.BytesIO()
    pq.write_table(pa.table([_parquet_column(c) for c in columns], names=names), out, **options)
    return out.getvalue()


def typed_parquet(**columns: list) -> bytes:
    """Return a Parquet file of columns, each `[type, value, …]`; a number is what is stored, also of dates and times."""
    arrays = [pa.array(values).cast(kind) if kind == "binary" else _stored(kind, values) for kind, *values in columns.values()]  # fmt: skip
    pq.write_table(pa.table(arrays, names=list(columns)), out := io.BytesIO(), store_schema=False)
    return out.getvalue()


def _stored(kind: str, values: list) -> pa.Array:
    if kind.startswith(("int", "uint", "float", "double", "string", "bool")):
        return pa.array(values, kind)
    of = pa.timestamp("us", "UTC") if kind == "instant" else pa.type_for_alias(kind)
    return pa.array(values, pa.int32() if of.bit_width == 32 else pa.int64()).cast(of)


def _parquet_column(values: list) -> pa.Array:
    kinds = {type(v) for v in values if v is not None}
    plain = kinds <= {int} or kinds <= {float} or kinds <= {bool} or kinds <= {bytes} or kinds <= {Decimal} or kinds <= {datetime}  # fmt: skip
    if kinds and plain:
        return pa.array(values)
    return pa.array([None if v is None else str(v) for v in values], pa.string())


def data_message(operation: str, table: str, row: dict, was: dict | None = None, **metadata: str) -> str:
    """Return a data message as DMS writes it; `was` is its before-image, and `metadata` (with `_` for `-`) is what differs."""
    usual = {
        "timestamp": STAMP, "record-type": "data", "operation": operation, "partition-key-type": "schema-table",
        "schema-name": "public", "table-name": table, "commit-timestamp": STAMP,
    }  # fmt: skip
    image = {"before-image": was} if was is not None else {}
    told = usual | {name.replace("_", "-"): text for name, text in metadata.items()}
    return json.dumps({"data": row, **image, "metadata": told}, default=_json_value)


class Messages:
    """What DMS puts into a stream: the texts of messages, each with the partition that it goes to."""

    def __init__(self, specs: dict[str, dict], **settings):
        self.specs, self.settings = specs, {"IncludeNullAndEmpty": True, **settings}
        self.sent: list[tuple[int, bytes]] = []

    def send(self, text: str | bytes, partition: int = 0) -> None:
        """Put a message into the stream; a subclass also sends it."""
        self.sent.append((partition, text.encode() if isinstance(text, str) else text))

    def load(self, table: str, *rows: tuple, partition: int = 0) -> None:
        """Send load records of some rows."""
        for row in rows:
            self.data("load", table, dict(zip(self._columns(table), row, strict=False)), partition=partition)

    def changes(self, table: str, *changes: Change, partition: int = 0) -> None:
        """Send some changes; one whose key changed has its old key as before-image."""
        words = {"I": "insert", "U": "update", "D": "delete"}
        for c in changes:
            row = dict(zip(self._columns(table), c.values, strict=False))
            keys = self.specs[table]["key"]
            was = None if c.was is None else dict(zip(keys, [c.was] if len(keys) == 1 else c.was, strict=True))
            self.data(words[c.op], table, row, was, partition)

    def data(self, operation: str, table: str, row: dict, was: dict | None = None, partition: int = 0) -> None:
        """Send one data message."""
        self.send(data_message(operation, table, row, was), partition)

    def control(self, operation: str, table: str, partition: int = 0, stamp=STAMP, primary_key=None, **columns) -> None:
        """Send a control record; `columns` are those of the table after it (`id="INT64"`)."""
        metadata = {"timestamp": stamp, "record-type": "control", "operation": operation, "schema-name": "public", "table-name": table}  # fmt: skip
        defined = {n: {"nullable": True, "type": t} for n, t in columns.items()}
        key = primary_key or list(self.specs[table]["key"])
        details = {"control": {"table-def": {"columns": defined, "primary-key": key}}} if columns else {}
        self.send(json.dumps({**details, "metadata": metadata}), partition)

    def _columns(self, table: str) -> list[str]:
        return [c["name"] for c in self.specs[table]["columns"]]


def _json_value(value) -> str:
    if isinstance(value, Decimal | datetime):
        return str(value)
    raise TypeError(f"{value!r} has no form in a message")
