"""Mutated files: each must end as right rows, as rows set aside with a reason, or as a named error; never as a wrong or lost row.

The judge below reads the mutated bytes itself, in plain Python, and shares no code with Frazil.
"""

from __future__ import annotations

import gzip
import io
import math
import random
import re
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLongError
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "lib")]

from frazil.changes.changeset import change_set  # noqa: E402
from frazil.changes.quarantine import judged, set_aside  # noqa: E402
from frazil.config.spec import parse_spec  # noqa: E402
from frazil.dms.again import read_again  # noqa: E402
from frazil.dms.endpoint import Endpoint, Mappings  # noqa: E402
from frazil.dms.ends import look  # noqa: E402
from frazil.dms.objects import DmsObject  # noqa: E402
from frazil.dms.read import CHANGE_PHASE, may_hide_open_text, read_rows, reading  # noqa: E402
from frazil.errors import FrazilError  # noqa: E402
from helpers import spec_of  # noqa: E402

COLUMNS = ["id INT8", "n INT4", "price NUMERIC(12,2)", "w REAL8", "d DATE", "at DATETIME", "flag BOOLEAN", "raw BYTES(9)",
           "note NCLOB", "place WSTRING(9)"]  # fmt: skip
NAMES, KINDS = zip(*(c.split(" ") for c in COLUMNS), strict=True)
SPEC = parse_spec(spec_of("public.t", *COLUMNS))
TEXTS = ("NCLOB", "WSTRING(9)", "BYTES(9)")
NOTES = ["plain", "two\nlines", "Zürich 東京", 'say "hi"', "a,b", "a|b", " padded ", "", None, "NULL", "\\", "x" * 300]
LIMIT_S, CHUNK = 300, 500


@dataclass(frozen=True)
class Dialect:
    """How one kind of file is written."""

    name: str
    delimiter: str = ","
    null: str = ""
    quotes: bool = True
    header: bool = False
    ending: str = ".csv"

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(null_value=self.null, delimiter=self.delimiter, rfc4180=self.quotes, header=self.header, timestamp_column="ts")  # fmt: skip


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


def _valid(r: random.Random, dialect: Dialect) -> bytes:
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


def _mutated(r: random.Random, raw: bytes, dialect: Dialect) -> bytes:
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
_DIGITS = re.compile(r"[+-]?[0-9]+$")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE]\+?[0-9]{1,3})?$")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$")
_STAMP = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)[ T](\d\d?):(\d\d?):(\d\d?)(?:\.(\d{0,6})\d*)?$", re.ASCII)
_TRIM = "".join(map(chr, range(0x21))) + "\x7f"


def _value(text: str | None, kind: str):
    """Return what a field's text means, or BAD. White space around a value means nothing, except in a text."""
    if text is None or kind.startswith(("NCLOB", "WSTRING")):  # in Parquet a text without its mark is bytes
        return text.decode(errors="replace") if isinstance(text, bytes) else text
    trimmed = text.strip(_TRIM)
    try:
        if kind in ("INT8", "INT4"):
            value, most = int(trimmed) if _DIGITS.match(trimmed) else 1 << 99, 1 << (63 if kind == "INT8" else 31)
            return value if -most <= value < most else BAD
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


def _records(text: str, dialect: Dialect) -> list[list[tuple[str, bool]]] | None:
    """Split a text into records of (field, quoted); None where a quoted field does not end as RFC 4180 has it.

    A quote in a field that does not begin with one stands for itself, as in every reader of CSV; white space behind a
    closing quote means nothing.
    """
    records, record, at = [], [], 0
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
            records.append(record)
            record = []
        elif at + 1 == len(text):
            records.append([*record, ("", False)])
        at += 1
    return records


def _meaning(record: list[tuple[str, bool]], dialect: Dialect):
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
    values = [_value(text(*f, k in TEXTS), k) for f, k in zip(record[2:], KINDS, strict=True)]
    stamp = _value(ts, "DATETIME")
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
            return [_meaning([("" if v is None else v, v is not None) for v in row], dialect) for row in _parquet(raw)]
        text = raw.removeprefix(b"\xef\xbb\xbf").decode()
    except Exception:
        return None
    records = _records(text, dialect)
    if records and dialect.header:
        if [f.rstrip("\r") for f, _ in records[0]] != ["Op", "ts", *NAMES]:
            return None
        records = records[1:]
    return None if records is None else [m for m in (_meaning(x, dialect) for x in records) if m is not None]


# --- what Frazil makes of them


def _collected(spark, dialect: Dialect, files: list[DmsObject]) -> dict[str, list]:
    """Return each file's rows in order: its values, or BAD; raise FrazilError where a file cannot be read."""
    with reading(SPEC, dialect.header):
        hidden = may_hide_open_text(SPEC, files, dialect.endpoint, Mappings(()), CHANGE_PHASE)
        all_end = look(SPEC, dialect.endpoint, files, hidden)
        raw = read_rows(spark, SPEC, dialect.endpoint, Mappings(()), files, CHANGE_PHASE)
        rows = change_set(raw, SPEC)
        found: dict[str, list] = {f.name: [] for f in files}
        right = "if(bad is null, after, null) as after"
        for r in rows.selectExpr("object", "block", "row_no", "op", right).collect():
            after = r.after and tuple(bytes(v) if isinstance(v, bytearray) else v for v in r.after)
            found[r.object].append((r.block, r.row_no, (r.op, *after) if after else BAD))
        all_end(True)
        _set_aside(raw, dialect, sum(row[2] is BAD for rows in found.values() for row in rows))
    return {name: [row for *_, row in sorted(rows, key=lambda r: r[:2])] for name, rows in found.items()}


def _set_aside(raw, dialect: Dialect, bad: int) -> None:
    """Put the bad rows into records, as a quarantine does, and read them again: each is there, and none is good by that."""
    if not bad:
        return
    records = set_aside(raw, raw, SPEC, "batch", 1)
    again = judged(read_again(records.drop("place"), SPEC, dialect.endpoint, Mappings(()), ""), SPEC)
    told = again.selectExpr(
        "count(*)", "count(distinct r.id)", "count_if(outcome <> 'still bad')", "count(r.reason)"
    ).first()
    assert tuple(told) == (bad, bad, 0, bad), f"{dialect.name}: {bad} bad rows, read again {told}"


def _outcomes(spark, dialect: Dialect, files: list[DmsObject]) -> dict[str, list | str]:
    """Read files together; where that fails, without the one that the error names, or by halves until it stands alone."""
    try:
        return dict(_collected(spark, dialect, files))
    except FrazilError as e:
        if len(files) == 1:
            return {files[0].name: str(e)}
        named = [f for f in files if f.path in str(e)]
        if len(named) == 1:
            rest = [f for f in files if f is not named[0]]
            return {named[0].name: str(e)} | _outcomes(spark, dialect, rest)
    half = len(files) // 2
    return _outcomes(spark, dialect, files[:half]) | _outcomes(spark, dialect, files[half:])


def _verdict(said: list | None, got: list | str) -> str:
    if isinstance(got, str):
        return "named error"
    if said is not None and len(said) == len(got) and all(g is BAD or g == s for s, g in zip(said, got, strict=True)):
        return "rows set aside" if BAD in got else "right rows"
    return "rows set aside" if said is None and BAD in got else "WRONG"


COUNT = 10_000


def run(count: int, seed: int = 1, spark=None) -> dict[str, int]:
    """Mutate `count` files and judge what becomes of each; raise AssertionError with the first that went wrong."""
    if spark is None:
        from frazil.config.session import get_spark
        from frazil.config.settings import Settings

        spark = get_spark(Settings(root=tempfile.mkdtemp(prefix="frazil-torture-")))
    r, counts, wrong = random.Random(seed), Counter(), []
    pool = ThreadPoolExecutor(1)
    for first in range(0, count, CHUNK):
        dialects = [r.choice(DIALECTS) for _ in range(min(CHUNK, count - first))]
        for dialect in DIALECTS:
            with tempfile.TemporaryDirectory(prefix="frazil-torture-") as folder:
                files = {}
                for number in range(dialects.count(dialect)):
                    name, raw = f"20260101-{number:09d}{dialect.ending}", _mutated(r, _valid(r, dialect), dialect)
                    Path(folder, name).write_bytes(raw)
                    files[DmsObject(name, f"{folder}/{name}", len(raw), "")] = raw
                if not files:
                    continue
                try:
                    got = pool.submit(_outcomes, spark, dialect, list(files)).result(LIMIT_S)
                except TooLongError:
                    raise AssertionError(
                        f"{dialect.name}: a batch of files hangs (seed {seed}, from {first})"
                    ) from None
            for file, raw in files.items():
                said = judge(raw, dialect)
                verdict = _verdict(said, got[file.name])
                counts[verdict] += 1
                if verdict == "WRONG":
                    wrong.append(
                        f"{dialect.name}: {raw[:3000]!r}\n  the bytes say {str(said)[:2000]}\n  Frazil reads {str(got[file.name])[:2000]}"
                    )
        if (first + CHUNK) % 1000 == 0:
            print(f"  {first + CHUNK:,} files, {len(wrong)} read wrong", flush=True)
    pool.shutdown()
    assert not wrong, f"{len(wrong)} file(s) read wrong, seed {seed}:\n" + "\n".join(wrong[:8])
    return dict(counts)
