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

BAD = type("Bad", (), {"__repr__": lambda self: "BAD"})()
"""Stands for a value that is none of its type, and for a row with such a one."""
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$")
_STAMP = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)[ T](\d\d?):(\d\d?):(\d\d?)(?:\.(\d{0,6})\d*)?$", re.ASCII)
_TRIM = "".join(map(chr, range(0x21))) + "\x7f"


def value_of(text: str | None, kind: str):
    """Return what a field's text means, or BAD. White space around a value means nothing, except in a text."""
    if text is None or kind.startswith(("NCLOB", "WSTRING")):  # in Parquet a text without its mark is bytes
        return text.decode(errors="replace") if isinstance(text, bytes) else text
    trimmed = text.strip(_TRIM)
    try:
        if kind in ("INT8", "INT4"):
            value, most = Decimal(trimmed) if _DECIMAL.match(trimmed) else None, 1 << (63 if kind == "INT8" else 31)
            return int(value) if value is not None and -most <= value < most and value == int(value) else BAD
        if kind.startswith("NUMERIC"):
            value = Decimal(trimmed) if _DECIMAL.match(trimmed) else None
            return value if value is not None and abs(value) < 10**10 and value == round(value, 2) else BAD
        if kind == "REAL8":
            value = float(trimmed) if _REAL.match(trimmed) else math.nan
            return value if math.isfinite(value) else BAD
        if kind == "DATE":
            return date.fromisoformat(trimmed) if re.match(r"\d{4}-\d\d-\d\d$", trimmed, re.ASCII) else BAD
        if kind == "DATETIME":
            parts = _STAMP.match(trimmed)
            return datetime(*map(int, parts.groups()[:6]), int((parts[7] or "").ljust(6, "0"))) if parts else BAD
        if kind == "BOOLEAN":
            yes, no = ("true", "t", "1", "y", "yes"), ("false", "f", "0", "n", "no")
            return text.lower() in yes or (False if text.lower() in no else BAD)
        return bytes.fromhex(text.removeprefix("0x").removeprefix("0X")) if not re.search(r"\s", text) else BAD
    except ValueError:
        return BAD


def records(text: str, dialect: Dialect) -> list[list[tuple[str, bool]]] | None:
    """Split a text into records of (field, quoted); None where a quoted field does not end as RFC 4180 has it.

    A quote in a field that does not begin with one stands for itself, as in every reader of CSV; white space behind a
    closing quote means nothing.
    """
    found, record, at = [], [], 0
    while at < len(text):
        if dialect.quotes and text[at] == '"':
            end = at + 1
            while (end := text.find('"', end)) >= 0 and text[end + 1 : end + 2] == '"':
                end += 2
            if end < 0:
                return None
            after = end + 1
            while text[after : after + 1] <= " " and text[after : after + 1] not in ("", "\n", dialect.delimiter):
                after += 1
            if text[after : after + 1] not in ("", "\n", dialect.delimiter):
                return None
            record.append((text[at + 1 : end].replace('""', '"'), True))
            at = after
        else:
            end = min((p for p in (text.find(dialect.delimiter, at), text.find("\n", at)) if p >= 0), default=len(text))
            record.append((text[at:end], False))
            at = end
        if text[at : at + 1] != dialect.delimiter:
            found.append(record)
            record = []
        elif at + 1 == len(text):
            found.append([*record, ("", False)])
        at += 1
    return found


def meaning(record: list[tuple[str, bool]], dialect: Dialect):
    """Return the row that a record is: a tuple of op and values, BAD, or None for a record without any value."""
    if all(f == "" and not q for f, q in record):
        return None
    if len(record) != len(COLUMNS) + 2:
        return BAD

    def text(field: str, quoted: bool, has_empty: bool) -> str | None:
        if not field:
            return field if has_empty and (quoted or dialect.null) else None
        return None if field == dialect.null else field

    op, ts = (text(*f, False) for f in record[:2])
    values = [value_of(text(*f, k in TEXTS), k) for f, k in zip(record[2:], KINDS, strict=True)]
    stamp = value_of(ts, "DATETIME")
    good = op in ("I", "U", "D") and values[0] is not None and not any(v is BAD for v in (*values, stamp))
    return (op, *values) if good else BAD


def _parquet(raw: bytes) -> list:
    """Return the rows of a Parquet file; where pyarrow minds what is beside the data (statistics), as DuckDB reads it."""
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = pq.read_table(pa.BufferReader(raw), page_checksum_verification=True)
        columns.validate(full=True)
        return [tuple(row.values()) for row in columns.to_pylist()]
    except OSError as e:
        if "size mismatch" not in str(e):
            raise
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(raw)
        file.flush()
        return duckdb.sql(f"select * from read_parquet('{file.name}')").fetchall()


def judge(raw: bytes, dialect: Dialect) -> list | None:
    """Return what the bytes say: each row's values or BAD; None where they are no sound file at all."""
    try:
        if dialect.ending == ".csv.gz":
            raw = gzip.decompress(raw) if raw else b""
        if dialect.ending == ".parquet":
            return [meaning([("" if v is None else v, v is not None) for v in row], dialect) for row in _parquet(raw)]
        text = raw.removeprefix(b"\xef\xbb\xbf").decode()
    except Exception:
        return None
    found = records(text, dialect)
    if found and dialect.header:
        if [f.rstrip("\r") for f, _ in found[0]] != ["Op", "ts", *NAMES]:
            return None
        found = found[1:]
    return None if found is None else [m for m in (meaning(x, dialect) for x in found) if m is not None]
