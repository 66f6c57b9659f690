"""Files in DMS's forms with one thing wrong in each, and a plain reader that says what their bytes mean.

The reader shares no code with Frazil: what Frazil makes of a file is held against it.
"""

from __future__ import annotations

import gzip
import io
import math
import random
import re
import tempfile
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

COLUMNS = ["id INT8", "n INT4", "price NUMERIC(12,2)", "w REAL8", "d DATE", "at DATETIME", "flag BOOLEAN", "raw BYTES(9)",
           "note NCLOB", "place WSTRING(9)"]  # fmt: skip
NAMES, KINDS = zip(*(c.split(" ") for c in COLUMNS), strict=True)
TEXTS = ("NCLOB", "WSTRING(9)", "BYTES(9)")
NOTES = ["plain", "two\nlines", "Zürich 東京", 'say "hi"', "a,b", "a|b", " padded ", "", None, "NULL", "\\", "x" * 300]


@dataclass(frozen=True)
class Dialect:
    """How one kind of file is written."""

    name: str
    delimiter: str = ","
    null: str = ""
    quotes: bool = True
    header: bool = False
    ending: str = ".csv"


DIALECTS = [
    Dialect("plain"),
    Dialect("header", "|", "NULL", header=True),
    Dialect("unquoted", "\t", "NULL", quotes=False),
    Dialect("gzip", ending=".csv.gz"),
    Dialect("parquet", ending=".parquet"),
]

# --- valid files


def _row(r: random.Random, number: int) -> list:
    note = r.choice(NOTES)
    return [
        r.choice("IUUD"), f"2026-01-01 00:00:{number % 60:02d}.{r.randrange(10**6):06d}", str(number), str(r.randrange(-99, 10**6)),
        f"{r.randrange(10**6) / 100:.2f}", repr(r.random()), f"2025-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}",
        f"2025-01-01 10:00:{r.randrange(60):02d}.000000", r.choice(["true", "false"]), f"{r.randrange(256):02x}",
        note, r.choice(["DE", "Köln", None]),
    ]  # fmt: skip


def _field(value: str | None, dialect: Dialect) -> str:
    if value is None:
        return dialect.null
    if not dialect.quotes:
        return re.sub(r"[\t\n]", " ", value) or "-"
    if value in ("", dialect.null) or any(c in value for c in dialect.delimiter + '"\n'):
        return '"' + value.replace('"', '""') + '"'
    return value


def valid_file(r: random.Random, dialect: Dialect) -> bytes:
    rows = [_row(r, n) for n in range(r.randint(1, 12))]
    if dialect.ending == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({n: [row[i] for row in rows] for i, n in enumerate(["Op", "ts", *NAMES])}, pa.schema([(n, pa.string()) for n in ["Op", "ts", *NAMES]]))  # fmt: skip
        out = io.BytesIO()
        pq.write_table(
            table, out, compression=r.choice(["none", "gzip", "snappy"]), write_page_checksum=r.random() < 0.5
        )
        return out.getvalue()
    lines = [["Op", "ts", *NAMES]] if dialect.header else []
    return "".join(dialect.delimiter.join(_field(f, dialect) for f in row) + "\n" for row in lines + rows).encode()


# --- mutations


def mutated_file(r: random.Random, raw: bytes, dialect: Dialect) -> bytes:
    """Return the file with one thing wrong with it (now and then nothing)."""
    kind, at = r.randrange(12), r.randrange(len(raw))
    packed = dialect.ending == ".csv.gz"
    if packed and kind % 2:  # break the archive itself
        raw = gzip.compress(raw, mtime=0)
        at = r.randrange(len(raw))
        return r.choice(
            [raw[:at], raw[:at] + bytes([raw[at] ^ (1 << r.randrange(8))]) + raw[at + 1 :], raw[at:], raw + b"\0junk"]
        )
    if dialect.ending == ".parquet":
        kind = r.choice([0, 1, 2, 3, 10, 11])
    if kind == 0:
        raw = raw[:at] + bytes([raw[at] ^ (1 << r.randrange(8))]) + raw[at + 1 :]
    elif kind == 1:
        raw = raw[:at]
    elif kind == 2:
        raw = raw[:at] + r.randbytes(r.randint(1, 4)) + raw[at + r.randint(0, 4) :]
    elif kind == 3:
        raw = b""
    elif kind == 4:
        lines = raw.decode().split("\n")
        n = r.randrange(len(lines))
        fields = lines[n].split(dialect.delimiter)
        r.shuffle(fields)
        lines[n] = dialect.delimiter.join(fields)
        raw = "\n".join(lines).encode()
    elif kind == 5:
        raw = raw.decode().encode(r.choice(["utf-16", "latin-1", "cp1252", "utf-8-sig"]), errors="replace")
    elif kind == 6:
        raw = raw[:at] + r.choice([b"x", b'"', b",", b"9", b"\n"]) * r.choice([70_000, 25_000]) + raw[at:]
    elif kind == 7:
        raw = (
            raw[:at]
            + r.choice([b'"', b"\r", b"\r\n", b"\n", b"\0", b"\\", dialect.delimiter.encode(), b" "])
            + raw[at:]
        )
    elif kind == 8:
        raw = raw[:at] + raw[at + r.randint(1, 40) :]
    elif kind == 9:
        other = r.randrange(len(raw))
        raw = raw[:at] + raw[other : other + 60] + raw[at:]
    elif kind == 10:
        raw = raw + r.randbytes(8)
    return gzip.compress(raw, mtime=0) if packed else raw


# --- the judge


@dataclass(frozen=True)
class Bad:
    """A row that cannot be applied: the column of its first fault, or FIELDS, OP, KEY or TIME."""

    column: str


@dataclass(frozen=True)
class Refused:
    """A file that cannot be read: why, and in which row its quotes fail."""

    why: str
    row: int = 0


FIELDS, OP, KEY, TIME = "<fields>", "<op>", "<key>", "<timestamp>"
DAMAGED, HEADER, OPEN, AFTER_QUOTE = "damaged", "header", "a text does not end", "text after a closing quote"
CUT_OFF = "the last row does not end"
BAD = type("Bad", (), {"__repr__": lambda self: "BAD"})()
"""Stands for a value that is none of its type."""
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_STAMP = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)[ T](\d\d?):(\d\d?):(\d\d?)(?:\.(\d{0,6})0*)?\s*", re.ASCII)


def value_of(text: str | None, kind: str):
    """Return what a field's text means, or BAD. White space around a number means nothing."""
    if text is None:
        return None
    if kind.startswith(("NCLOB", "WSTRING")):
        return BAD if "\ufffd" in text else text
    try:
        return _value_of(text, kind)
    except (ValueError, ArithmeticError):
        return BAD


def _value_of(text: str, kind: str):
    if kind in ("INT8", "INT4", "REAL8") or kind.startswith("NUMERIC"):
        return _number_of(text.strip(), kind)
    if kind == "DATE":
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else BAD
    if kind == "DATETIME":
        parts = _STAMP.fullmatch(text)
        return datetime(*map(int, parts.groups()[:6]), int((parts[7] or "").ljust(6, "0"))) if parts else BAD
    if kind == "BOOLEAN":
        yes, no = ("true", "t", "1", "y", "yes"), ("false", "f", "0", "n", "no")
        return text.lower() in yes or (False if text.lower() in no else BAD)
    return bytes.fromhex(text.removeprefix("0x").removeprefix("0X")) if not re.search(r"\s", text) else BAD


def _number_of(text: str, kind: str):
    """Return the number that a text is in all its digits, or the nearest real."""
    if not _NUMBER.fullmatch(text):
        return float(text) if kind == "REAL8" and re.fullmatch("(?i)nan|[+-]?inf(inity)?", text) else BAD
    if kind == "REAL8":
        value = float(text)
        vanished = not value and set("123456789") & set(text.lower().split("e")[0])
        return value if math.isfinite(value) and not vanished else BAD
    value, places = Decimal(text), 2 if kind.startswith("NUMERIC") else 0
    most = 10**10 if places else 1 << (63 if kind == "INT8" else 31)
    if value.adjusted() > 20 or not (abs(value) < most or (value == -most and not places)):
        return BAD
    cut = round(value, places) if places else int(value)
    return cut if value == cut else BAD


class _QuotesError(Exception):
    """Quotes after which nothing shows where rows end; the row counts from 1, the header too."""

    def __init__(self, why: str, row: int):
        self.why, self.row = why, row


def records(text: str, dialect: Dialect) -> list[list[tuple[str, bool]]]:
    """Split a text into records of (field, quoted), without empty lines; a quote within a field stands for itself."""
    found, record, at = [], [], 0
    while at < len(text):
        if dialect.quotes and text[at] == '"':
            end = at + 1
            while (end := text.find('"', end)) >= 0 and text[end + 1 : end + 2] == '"':
                end += 2
            if end < 0:
                raise _QuotesError(OPEN, len(found) + 1)
            if text[end + 1 : end + 2] not in ("", "\n", dialect.delimiter):
                raise _QuotesError(AFTER_QUOTE, len(found) + 1)
            record.append((text[at + 1 : end].replace('""', '"'), True))
            at = end + 1
        else:
            end = min((p for p in (text.find(dialect.delimiter, at), text.find("\n", at)) if p >= 0), default=len(text))
            record.append((text[at:end], False))
            at = end
        if text[at : at + 1] != dialect.delimiter:
            found += [record] if record != [("", False)] else []
            record = []
        elif at + 1 == len(text):
            found.append([*record, ("", False)])
        at += 1
    if text[-1:] not in ("", "\n"):
        raise _QuotesError(CUT_OFF, len(found))
    return found


def meaning(record: list[tuple[str, bool]], dialect: Dialect) -> tuple | Bad:
    """Return the row that a record is: a tuple of op and values, or a bad row."""
    if len(record) != len(COLUMNS) + 2:
        return Bad(FIELDS)

    def text(field: str, quoted: bool, has_empty: bool) -> str | None:
        if not field:
            return field if has_empty and (quoted or dialect.null) else None
        return None if field == dialect.null else field

    op, stamp = (text(*f, False) for f in record[:2])
    values = [value_of(text(*f, k in TEXTS), k) for f, k in zip(record[2:], KINDS, strict=True)]
    if op not in ("I", "U", "D"):
        return Bad(OP)
    if values[0] is None:
        return Bad(KEY)
    if value_of(stamp, "DATETIME") is BAD:
        return Bad(TIME)
    wrong = [name for name, value in zip(NAMES, values, strict=True) if value is BAD]
    return Bad(wrong[0]) if wrong else (op, *values)


def _parquet(raw: bytes) -> tuple[list[str], list[tuple]]:
    """Return names and rows of a Parquet file; where pyarrow minds what is beside the data (statistics), as DuckDB reads it."""
    import duckdb

    try:
        table = _by_arrow(raw)
        _require_readable_types(table)
        columns = (_parquet_values(name, table[name]) for name in table.column_names)
        return table.column_names, list(zip(*columns, strict=True))
    except OSError as e:
        if "size mismatch" not in str(e):
            raise
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(raw)
        file.flush()
        found = duckdb.sql(f"select * from read_parquet('{file.name}')")
        return found.columns, found.fetchall()


def _by_arrow(raw: bytes):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(raw), page_checksum_verification=True)
    table.validate()
    return table


def is_damaged_beside_rows(raw: bytes) -> bool:
    """Return whether pyarrow minds the statistics of a Parquet file: its rows may be read or refused."""
    try:
        _by_arrow(raw)
    except Exception as e:
        return "size mismatch" in str(e)
    return False


class _OtherTypeError(Exception):
    """A column of bytes, which lost its annotation as text, where the spec has a number, a time or a yes-or-no."""


def _require_readable_types(table) -> None:
    import pyarrow as pa

    for name, kind in zip(["ts", *NAMES], ["DATETIME", *KINDS], strict=True):
        if name in table.column_names and pa.types.is_binary(table.schema.field(name).type) and kind not in TEXTS:
            raise _OtherTypeError(name)


def _parquet_values(name: str, column) -> list:
    """Return values of a column of texts, whose bytes may be anything; where damage made the column `raw` one of bytes, as hex."""
    import pyarrow as pa

    if pa.types.is_string(column.type):
        return column.cast(pa.binary()).to_pylist()
    is_bytes = name == "raw" and pa.types.is_binary(column.type)
    return [v.hex() if is_bytes and v is not None else v for v in column.to_pylist()]


def _parquet_field(value: bytes | str | None) -> tuple[str, bool]:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return text or "", text is not None


def _records_of(raw: bytes, dialect: Dialect) -> list[list[tuple[str, bool]]]:
    if dialect.ending == ".csv.gz":
        raw = gzip.decompress(raw) if raw else b""
    if dialect.ending == ".parquet":
        names, rows = _parquet(raw)
        return [[(n, False) for n in names], *([_parquet_field(value) for value in row] for row in rows)]
    return records(raw.removeprefix(b"\xef\xbb\xbf").decode(errors="replace"), dialect)


def _in_order(names: list[str], found: list[list[tuple[str, bool]]]) -> list[list[tuple[str, bool]]] | None:
    """Return records with their fields in DMS's order; None if the header lacks a column. A header may lack the commit time."""
    expected, without_time = ["Op", "ts", *NAMES], "ts" not in names
    if sorted([*names, *["ts"] * without_time]) != sorted(expected):
        return None
    places = [len(names) if name not in names else names.index(name) for name in expected]
    no_row = [("", False)] * (len(expected) + 1)
    return [[[*x, ("", False)][p] for p in places] if len(x) == len(names) else no_row for x in found]


def judge(raw: bytes, dialect: Dialect) -> list[tuple[int, tuple | Bad]] | Refused:
    """Return what the bytes say: each row's number and meaning; or why they are no sound file at all."""
    has_header = dialect.header or dialect.ending == ".parquet"
    try:
        found = _records_of(raw, dialect)
    except _QuotesError as e:
        return Refused(e.why, e.row - has_header) if e.row > has_header else Refused(HEADER)
    except _OtherTypeError:
        return Refused(HEADER)
    except Exception:
        return Refused(DAMAGED)
    if has_header and found:
        names = [field for field, _ in found.pop(0)]
        names[-1] = names[-1].rstrip("\r")
        names[0] = "Op" if names[0].lower() == "op" else names[0]
        found = _in_order(names, found)
        if found is None:
            return Refused(HEADER)
    return [(number, meaning(record, dialect)) for number, record in enumerate(found, 1)]
