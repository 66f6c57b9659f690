"""A replay of DMS's output in plain Python: bytes of files and messages go in, the rows that the lake must have come out.

It shares no code with the library, nor with what writes the bytes in tests. Left out: tables without a key, time zones,
masks, `lake`, `replace`, `layouts` and `exclude` in a spec, Rfc4180 off, nested JSON, times of day in Parquet and control
records, old files after a column took another's former name. Columns that go stay, whether a policy lets them or not.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import re
import struct
from collections import namedtuple
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import ROUND_DOWN, Context, Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


class Refused(Exception):
    """What the lake must not take, and why. The model is then to be restored: it may have applied what came before."""


class BadRow(Refused):
    """A row that cannot be applied: file, number there, and column (or `fields`, `op`, `key`, `timestamp`)."""


# --- values

BAD, NOT_LOGGED = Enum("Mark", "BAD NOT_LOGGED")
"""In the place of a value: what is no exact value of its type; CsvNoSupValue, for which the stored value stays."""
KINDS = {
    **dict.fromkeys(("INT1", "INT2", "INT4", "UINT1", "UINT2", "int8", "int16", "int32", "uint8", "uint16"), "int"),
    **dict.fromkeys(("INT8", "UINT4", "int64", "uint32"), "long"), **dict.fromkeys(("REAL4", "float"), "float"),
    **dict.fromkeys(("STRING", "WSTRING", "CLOB", "NCLOB", "string", "wstring"), "text"),
    **dict.fromkeys(("UINT8", "uint64", "NUMERIC", "numeric", "decimal", "decimal128"), "decimal"),
    **dict.fromkeys(("BYTES", "BLOB", "binary"), "bytes"), **dict.fromkeys(("BOOLEAN", "bool"), "truth"),
    **dict.fromkeys(("REAL8", "double"), "double"), **dict.fromkeys(("DATE", "date32"), "date"),
    **dict.fromkeys(("DATETIME", "timestamp"), "moment"), "TIME": "word",
}  # fmt: skip
"""The kind of each DMS type (upper case), and of the types of Parquet and of control records (lower case)."""
TEXT, BYTES, WORD, MOMENT = ("text",), ("bytes",), ("word",), ("moment",)
WIDER = {("int",): ("long",), ("float",): ("double",)}
TRUTH = {**dict.fromkeys(("true", "t", "1", "y", "yes"), True), **dict.fromkeys(("false", "f", "0", "n", "no"), False)}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
TIMES = {"date": r"\d{4}-\d\d-\d\d", "moment": r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6}0*)?"}
AS_TEXT = {bool: lambda v: str(v).lower(), datetime: lambda v: str(v.replace(tzinfo=None)), bytes: bytes.decode}


def kind_of(written: str) -> tuple:
    """Return what a type is in the lake: ("long",) for INT8, ("decimal", 12, 2) for NUMERIC(12,2)."""
    kind = KINDS[re.match(r"\w+", written)[0]]
    sizes = [int(n) for n in re.findall(r"\d+", written.partition("(")[2])]
    return (kind, *(sizes or [20, 0])) if kind == "decimal" else (kind,)


def wider(one: tuple, other: tuple) -> tuple | None:
    """Return the one of two kinds that the lake can widen the other to; None if neither holds the other's values."""
    if one[0] == other[0] == "decimal":
        return max(one, other) if one[2] == other[2] else None
    return one if one == other or WIDER.get(other) == one else other if WIDER.get(one) == other else None


def value_of(value: Any, kind: tuple) -> Any:
    """Return what a text, or a value of Parquet or JSON, means in a column, as PyIceberg gives it; or BAD."""
    if value is None or (kind == BYTES and isinstance(value, bytes)):
        return value
    try:
        return of_text(AS_TEXT.get(type(value), str)(value), *kind)
    except (ValueError, ArithmeticError):
        return BAD


def of_text(text: str, kind: str, *sizes: int) -> Any:
    if kind in ("int", "long", "decimal"):
        found, most = exact(text.strip(), *(sizes or (20, 0))), 1 << (31 if kind == "int" else 63)
        return found if sizes or found is BAD else int(found) if -most <= found < most else BAD
    if kind in ("float", "double"):
        return real(text.strip(), kind)
    if kind in TIMES:
        read = date.fromisoformat if kind == "date" else datetime.fromisoformat
        return read(text) if re.fullmatch(TIMES[kind], text, re.ASCII) else BAD
    if kind == "truth":
        return TRUTH.get(text.lower(), BAD)
    if kind == "bytes":
        digits = text[2:] if text[:2] in ("0x", "0X") else text
        return bytes.fromhex(digits) if re.fullmatch("[0-9a-fA-F]*", digits) else BAD
    text.encode()  # fails for half of a surrogate pair
    return BAD if "\ufffd" in text else text


def exact(text: str, digits: int, scale: int) -> Any:
    """Return a number that has nothing but zeros after its last place."""
    number = Decimal(text) if NUMBER.fullmatch(text) else None
    if number is None or (number and number.adjusted() >= digits - scale):
        return BAD
    cut = number.quantize(Decimal(1).scaleb(-scale), ROUND_DOWN, Context(prec=100))
    return BAD if cut != number else cut or abs(cut)


def real(text: str, kind: str) -> Any:
    """Return the nearest real; BAD if the digits become infinite or zero."""
    if re.fullmatch("nan|[+-]?inf(inity)?", text, re.I):
        return float(text)
    if not NUMBER.fullmatch(text):
        return BAD
    found = float(text) if kind == "double" else struct.unpack("f", struct.pack("f", float(text)))[0]
    return BAD if abs(found) == float("inf") or (not found and re.match("[^eE]*[1-9]", text)) else found


Field = namedtuple("Field", "text quoted")  # of CSV
Row = namedtuple("Row", "file row raw fields names load place op values key keys column", defaults=[None, 0, 0, 0, 0, 0, (), ""])  # fmt: skip
"""A row that was written, and what it says. `names` of its fields: None if the present spec has them. `place`: its own
among all rows of its table. `keys`: the new one and the old one; none if one cannot be read. `column`: its first fault."""


def lines_of(text: str, delimiter: str, file: str) -> Iterator[tuple[str, tuple[Field, ...]]]:
    """Yield each line and its fields; a quote within a field stands for itself, an empty line is no row."""
    d, start, at, fields = re.escape(delimiter), 0, 0, []
    form = re.compile(rf'(?:"((?:[^"]|"")*)"|((?!")[^{d}\n]*))({d}|\n)')
    while start < len(text):
        found = form.match(text, at)
        if not found:
            raise Refused(f"{file}: nothing shows where this row ends: {text[start : start + 99]}")
        quoted, unquoted, end = found.groups()
        fields.append(Field(unquoted, False) if quoted is None else Field(quoted.replace('""', '"'), True))
        at = found.end()
        if end == "\n":
            if fields != [("", False)]:
                yield text[start : at - 1], tuple(fields)
            start, fields = at, []


class Table:
    """A table of the lake, and what must be known to go on with it.

    `touched`: the place of the last row that was applied to each key. `former`: the present name of a column by each
    earlier one. `dropped`: columns that a control record dropped.
    """

    def __init__(self, key: list[str]):
        self.key, self.columns, self.rows, self.waiting = key, {}, {}, []
        self.touched, self.former, self.dropped, self.place, self.messages = {}, {}, set(), 0, 0

    def named(self, name: str) -> str:
        """Return the column that has or had a name; empty if there is none."""
        now = name if name in self.columns else self.former.get(name, "")
        return now if now in self.columns else ""

    def rename(self, old: str, new: str) -> None:
        def now(names: dict) -> dict:
            return {new if n == old else n: value for n, value in names.items()}

        self.columns, self.rows = now(self.columns), {k: now(row) for k, row in self.rows.items()}
        self.key = [new if k == old else k for k in self.key]
        self.former = {n: new if c == old else c for n, c in self.former.items() if n != new} | {old: new}

    def open_keys(self, row: Row) -> list[tuple]:
        """Return the keys of a row to which no later one was applied."""
        return [key for key in row.keys if self.touched.get(key, 0) < row.place]

    def lacking(self, row: Row) -> str:
        """Return a column for which a partial row must wait: a waiting row of its key has it, or no row is stored."""
        unlogged = [c for c, value in row.values.items() if value is NOT_LOGGED]
        for before in self.waiting:
            lacks = unlogged or [c for c in before.values if c not in row.values]
            if lacks and {*before.keys} & {*row.keys}:
                return lacks[0]
        is_stored = row.keys[-1] in self.rows and row.keys[-1] in self.open_keys(row)
        return unlogged[0] if unlogged and not is_stored else ""

    def put(self, row: Row) -> None:
        """Apply a row to its open keys; what it replaces waits no longer."""
        keys = self.open_keys(row)
        stored = self.rows.pop(row.keys[-1], {}) if row.keys[-1] in keys else {}
        if row.op != "D" and row.key in keys:
            self.rows[row.key] = stored | {c: v for c, v in row.values.items() if v is not NOT_LOGGED}
        self.touched |= dict.fromkeys(keys, row.place)
        self.waiting = [w for w in self.waiting if not w.keys or self.open_keys(w)]


class Model:
    """The tables of a lake as DMS's output makes them; `specs` is read anew at each call, as the library does.

    `target`: the settings of the S3 target. `rules`: the task's mappings. `quarantines`: bad rows wait; else one raises
    BadRow. A row with values that were not logged waits behind a waiting row of its key, and if its row is not stored.
    """

    def __init__(self, specs: dict, target=None, rules=None, quarantines: bool = False):
        self.specs, self.target, self._tables, self.quarantines = specs, target or {}, {}, quarantines
        actions = [(r.get("rule-action"), r) for r in (rules or {}).get("rules", [])]
        self.added = [r["value"] for action, r in actions if action == "add-column"]
        images = [r["before-image-def"] for action, r in actions if action == "add-before-image-columns"]
        self.has_images, self.prefix = bool(images), images[0]["column-prefix"] if images else "before-image "

    def load(self, table: str, files: list[Path]) -> None:
        """Replace all rows, also those that wait, by those of load files."""
        t = self.correct_columns(table)
        t.rows, t.waiting, t.touched = {}, [], {}
        for path in sorted(files):
            self._apply_file(path, table, load=True)

    def apply(self, files: list[Path], table: str | None = None) -> None:
        """Apply change files in the order of their names; those of all tables go to `table` only, if it is given."""
        for path in sorted(files, key=lambda p: p.name):
            if path.name.startswith("CDC_TXN-"):
                self._apply_shared(path, [table] if table else list(self.specs))
            else:
                found = (n for n in self.specs if f"/{'/'.join(self._source(n))}/" in path.as_posix())
                self._apply_file(path, table or next(found))

    def message(self, raw: bytes, file: str = "") -> None:
        """Apply one message; its number is that among the messages of its table, from 0."""
        message = json.loads(raw, parse_int=str, parse_float=str, parse_constant=str)
        about = message["metadata"]
        for table in [n for n in self.specs if self._source(n) == (about["schema-name"], about["table-name"])]:
            t = self.correct_columns(table)
            if about["record-type"] == "control":
                self._define(table, about["operation"], message.get("control", {}).get("table-def", {}))
            else:
                self._settle(table, self._of_message(table, message, Row(file, t.messages, raw, ())))
            t.messages += 1

    def replay(self, table: str) -> None:
        """Read the waiting rows again, in their order; what later rows replaced is left out."""
        t = self.correct_columns(table)
        before, t.waiting = t.waiting, []
        for row in before:
            self._settle(table, row)

    def discard(self, table: str) -> None:
        self._table(table).waiting = []

    def correct_columns(self, table: str) -> Table:
        """Take the columns that the spec lists now: renamed, added after the one before, or wider. Others stay."""
        t, at, entries = self._table(table), 0, self.specs[table]["columns"]
        for entry in entries:
            name, kind, olds = entry["name"], kind_of(entry["type"]), entry.get("renamed_from", [])
            for old in [olds] if isinstance(olds, str) else olds:
                if old in t.columns and name not in t.columns:
                    t.rename(old, name)
                t.former.setdefault(old, name)
            now = t.named(name)
            if not now or (now != name and now in [e["name"] for e in entries]):
                now, names = name, list(t.columns)
                t.columns = {n: t.columns.get(n, kind) for n in (*names[:at], name, *names[at:])}
            at = list(t.columns).index(now) + 1
            if not wider(t.columns[now], kind):
                raise Refused(f"no promotion leads from {t.columns[now]} to {kind} of {now}")
            t.columns[now] = wider(t.columns[now], kind)
        return t

    def foreign_delete(self, table: str, where: Callable[[dict], bool]) -> None:
        """Do what another writer did: delete rows."""
        t = self._table(table)
        t.rows = {k: r for k, r in t.rows.items() if not where({c: r.get(c) for c in t.columns})}

    def foreign_put(self, table: str, *rows: tuple) -> None:
        """Do what another writer did: put rows, whose values are in the order of the columns, by their keys."""
        t = self._table(table)
        found = [dict(zip(t.columns, row, strict=True)) for row in rows]
        t.rows = t.rows | {tuple(r[k] for k in t.key): r for r in found}

    def rows(self, table: str) -> list[tuple]:
        t = self._table(table)
        return sorted((tuple(row.get(c) for c in t.columns) for row in t.rows.values()), key=repr)

    def keys(self, table: str) -> set[tuple]:
        return set(self._table(table).rows)

    def waiting(self, table: str) -> list[Row]:
        return list(self._table(table).waiting)

    def state(self, table: str | None = None) -> dict[str, Table]:
        """Return what `restore` takes: the state of one table, or of all."""
        return copy.deepcopy({name: self._table(name) for name in ([table] if table else self.specs)})

    def restore(self, *given) -> None:
        """Go back to a state: `restore(state)`, or `restore(table, state)`."""
        self._tables |= copy.deepcopy(given[-1])

    def _table(self, table: str) -> Table:
        return self._tables.setdefault(table, Table(list(self.specs[table]["key"])))

    def _source(self, table: str) -> tuple[str, ...]:
        return tuple(self.specs[table]["source"].split(".", 1))

    def _apply_file(self, path: Path, table: str, load: bool = False) -> None:
        """Apply a file of one table, whose columns are followed first, if it names them."""
        self.correct_columns(table)
        if path.read_bytes()[:4] == b"PAR1":
            found = pq.read_table(io.BytesIO(path.read_bytes()))
            lines = ((values, values) for values in zip(*(c.to_pylist() for c in found.columns), strict=True))
            kinds = {f.name: kind_of(str(f.type)) for f in found.schema}
        else:
            lines = self._lines(path)
            header = next(lines, ("", ()))[1] if self.target.get("AddColumnName") else ()
            kinds = {f.text: TEXT for f in header}
        self._follow(table, kinds)
        for number, (raw, fields) in enumerate(lines, 1):
            self._settle(table, Row(path.name, number, raw, fields, tuple(kinds) or None, load))

    def _apply_shared(self, path: Path, tables: list[str]) -> None:
        """Apply a file of all tables: each row has its table and schema after the operation."""
        for number, (line, fields) in enumerate(self._lines(path), 1):
            place = tuple(self._meaning(f, WORD) for f in fields[2:0:-1])
            if len(place) < 2 or None in place:
                raise Refused(f"{path.name} row {number} names no table")
            for table in [n for n in tables if self._source(n) == place]:
                self.correct_columns(table)
                self._settle(table, Row(path.name, number, line, (fields[0], *fields[3:])))

    def _lines(self, path: Path) -> Iterator[tuple[str, tuple[Field, ...]]]:
        raw = path.read_bytes()
        raw = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).removeprefix(b"\xef\xbb\xbf")
        return lines_of(raw.decode(errors="replace"), self.target.get("CsvDelimiter", ","), path.name)

    def _of_message(self, table: str, message: dict, row: Row) -> Row:
        """Return the row of a message; a column that it leaves out is null, unless a control record dropped it."""
        t, data, images = self._table(table), message["data"], message.get("before-image") or {}
        self._follow(table, {"Op": WORD, **dict.fromkeys(data)})
        absent = [c for c in t.columns if c not in t.dropped | {t.named(n) for n in data}]
        op = {"load": "I", "insert": "I", "update": "U", "delete": "D"}.get(message["metadata"]["operation"])
        names = ("Op", *data, *(self.prefix + n for n in images), *absent)
        return row._replace(names=names, fields=(op, *data.values(), *images.values(), *[None] * len(absent)))

    def _follow(self, table: str, there: dict[str, tuple]) -> None:
        """Add the columns that a file or a control record brings, as the policy says, and widen those that are there."""
        t, policy = self._table(table), self.specs[table].get("changes", {}).get("new")
        for name, kind in [(t.named(n), kind) for n, kind in there.items() if kind and t.named(n)]:
            t.columns[name] = wider(t.columns[name], kind) or t.columns[name]
        for name in [n for at, n in enumerate(there) if self._role(t, n, at)[0] == "unknown"]:
            if policy == "add" and there[name]:
                t.columns[name] = there[name]
            elif policy != "ignore":
                raise Refused(f"{table}: unknown column {name}")

    def _define(self, table: str, operation: str, definition: dict) -> None:
        """Follow a control record, which has all columns that the table has after it."""
        t, told = self._table(table), definition.get("columns", {})
        there = {n: kind_of(f"{c['type'].lower()}({c.get('precision')},{c.get('scale')})") for n, c in told.items()}
        new, lost = [n for n in there if not t.named(n)], {*t.columns} - {t.named(n) for n in there} - t.dropped
        if operation == "rename-column" and len(lost) == len(new) == 1:
            t.rename(*lost, *new)
        elif not {*t.key} & lost:  # else it is no definition of this table
            self._follow(table, there)
            t.dropped = (t.dropped | (lost if operation in ("drop-column", "change-columns") else set())) - {*there}

    def _settle(self, table: str, row: Row) -> None:
        """Apply a row, let it wait, or leave it out if later ones replaced it."""
        t = self._table(table)
        t.place += 1
        row = self._read(t, table, row._replace(place=row.place or t.place))
        if row.keys and not t.open_keys(row):
            return
        column = row.column or (t.lacking(row) if row.op != "D" else "")
        if not column:
            t.put(row)
        elif self.quarantines:
            t.waiting.append(row._replace(column=column))
        else:
            raise BadRow(row.file, row.row, column)

    def _read(self, t: Table, table: str, row: Row) -> Row:
        """Return a row with what it says; its first fault counts: of op, key, time, old values, new ones."""
        names = row.names or self._layout(table, row.load)
        if len(names) != len(row.fields):
            return row._replace(values={}, key=(), keys=(), column="fields")
        found = {"op": {}, "time": {}, "new": {}, "old": {}, "none": {}, "unknown": {}}
        for at, (name, value) in enumerate(zip(names, row.fields, strict=True)):
            role, column = self._role(t, name, at)
            kind = MOMENT if role == "time" else t.columns.get(column, WORD)
            found[role][column] = self._meaning(value, kind, row.load, role == "old")
        op = found["op"].get("", "I") or ("I" if row.load else "")
        new, old, unknown = found["new"], found["old"], (None, NOT_LOGGED)
        key = tuple(new.get(k) for k in t.key)
        was = tuple(new.get(k) if op != "U" or old.get(k) in unknown else old[k] for k in t.key)
        wrong = [("op", op not in ("I", "U", "D")), ("key", any(v in unknown for v in key))]
        wrong += [("timestamp", BAD in found["time"].values() and not row.load)]
        wrong += [(c, old.get(c) is BAD) for c in t.key] + [(c, new.get(c) is BAD) for c in t.columns]
        keys = () if any(v in (BAD, *unknown) for v in key + was) else tuple(dict.fromkeys((key, was)))
        return row._replace(op=op, values=new, key=key, keys=keys, column=next((c for c, is_so in wrong if is_so), ""))

    def _layout(self, table: str, load: bool) -> list[str]:
        """Return the names of fields that are not named in their file, by the settings and the present spec."""
        names = [c["name"] for c in self.specs[table]["columns"] if c["name"] not in self.added]
        has_op = self.target.get("IncludeOpForFullLoad") or not (load or self.target.get("CdcInsertsOnly"))
        time, olds = self.target.get("TimestampColumnName"), self.specs[table]["key"] if self.has_images else []
        return [*["Op"] * bool(has_op), *[time] * bool(time), *names, *self.added, *(self.prefix + n for n in olds)]

    def _role(self, t: Table, name: str, at: int) -> tuple[str, str]:
        """Return the role of a field (op, time, new, old, none, unknown), and the column."""
        old = t.named(name.removeprefix(self.prefix)) if name.startswith(self.prefix) else ""
        if at == 0 and name.lower() == "op":
            return "op", ""
        if at < 2 and name == self.target.get("TimestampColumnName"):
            return "time", ""
        if t.named(name) or name in self.added:
            return ("new" if t.named(name) else "none"), t.named(name)
        return ("old" if old else "unknown"), old

    def _meaning(self, value: Any, kind: tuple, load: bool = False, old: bool = False) -> Any:
        """Return what a field means: CsvNullValue, quotes and its type tell null and empty apart."""
        if not isinstance(value, Field):
            return value_of(value.removesuffix("Z") if kind == MOMENT and isinstance(value, str) else value, kind)
        (text, quoted), target = value, self.target
        if target.get("UseCsvNoSupValue") and not load and text == target["CsvNoSupValue"]:
            return NOT_LOGGED
        is_null = text == target.get("CsvNullValue", "") and not (quoted and not text)
        is_nothing = not text and (kind not in (TEXT, BYTES) or (old and not quoted))
        return None if is_null or is_nothing else value_of(text, kind)
