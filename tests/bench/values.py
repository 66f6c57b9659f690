"""What values cost on their way from bytes to the last change of each key, in CPU µs: both libraries in one run."""

from __future__ import annotations

import gc
import io
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.__main__ import ROOT
from bench.parse import COLUMNS
from frazil.core import csv, exact, messages, row_blocks
from frazil.core.changes import Reading, changes, concat
from frazil.core.latest import latest
from frazil.engine import parquet, transactions
from frazil.settings.spec import TableSpec
from frazil_old.config.columns import Column
from frazil_old.config.spec import parse_spec
from frazil_old.core import changes as old_changes
from frazil_old.core import csv as old_csv
from frazil_old.core import latest_per_key, parquet_types, types
from frazil_old.core import messages as old_messages
from frazil_old.core.field_meaning import ReadRules
from helpers import spec_of

FORMS: dict[str, tuple[str, str, Callable[[random.Random], object]]] = {
    "real_zeros": ("REAL8, half of them zeros", "REAL8", lambda r: "+0.0000000000000000e+00" if r.random() < 0.5 else f"{r.random():+.16e}"),
    "hex_bytes": ("BYTES with 0x", "BYTES", lambda r: f"0x{r.getrandbits(128):032x}"),
    "nine_digits": ("DATETIME with nine digits of a second", "DATETIME", lambda r: f"2024-06-{r.randint(1, 28):02d} 10:30:25.{r.randrange(10**6):06d}000"),
    "double_to_numeric": ("Parquet double to NUMERIC(12,2)", "NUMERIC(12,2)", lambda r: round(r.random() * 100, 2)),
}  # fmt: skip
"""Each form: what it is, its DMS type, and a value of it."""
ENTRIES = spec_of("public.orders", *COLUMNS)
SPEC, OLD_SPEC = TableSpec.model_validate(ENTRIES), parse_spec(ENTRIES)
NAMES = ("op", "committed", *(c.split()[0] for c in COLUMNS))
READING = Reading(SPEC, ("op", "committed", *(f"after {n}" for n in NAMES[2:])), "")
OF_PARQUET = Reading(SPEC, READING.roles)
OLD_ROLES = ["op", "ts", *(f"after:{n}" for n in NAMES[2:])]
SPARK_TYPES = "op string, ts timestamp, id bigint, customer int, quantity int, price decimal(12,2), weight float, due date, at timestamp_ntz, status string, note string, country string"  # fmt: skip


def cpu(work: Callable[[], object], count: int) -> float:
    """Return the CPU µs that one of `count` values takes: the best of some times."""
    times = []
    for _ in range(4):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return round(min(times) * 1e6 / count, 3)


def lines(count: int, bad: float = 0, note: str = "some text number {}") -> list[str]:
    """Return rows of twelve fields; a share of them has an integer that is none."""
    r = random.Random(1)
    return [
        f"U,2025-01-01 10:00:{i % 60:02d}.{i % 10**6:06d},{i},{r.randrange(10**6)},{'x' if r.random() < bad else i % 100},{r.randrange(10**6) / 100:.2f},"
        f"{r.random():+.8e},2025-{i % 12 + 1:02d}-{i % 28 + 1:02d},2025-01-01 10:00:{i % 60:02d}.123456,status{i % 7},{note.format(i)},DE"
        for i in range(count)
    ]  # fmt: skip


def new_rows(text: bytes) -> None:
    """Read and type all rows of a file."""
    for rows in csv.Reader(READING.types, row_blocks.Dialect(), "f").read([text]):
        changes(rows, READING)


def old_rows(text: bytes, table: tuple[str, str] | None = None) -> None:
    """Do the same with the old library; of a file of all tables for one of them."""
    roles = [OLD_ROLES[0], "table", "schema", *OLD_ROLES[1:]] if table else OLD_ROLES
    rules = ReadRules(table=table or ("", ""))
    for found in old_csv.read_records([text], len(roles), old_csv.Dialect(), "f", table=table):
        old_changes.type_csv(found.fields, found.numbers, roles, OLD_SPEC, rules)


def new_tables(text: bytes) -> None:
    """Split a file of all tables, and read and type the rows of each."""
    reading = Reading(SPEC, (READING.roles[0], "", "", *READING.roles[1:]), "")
    reader = csv.Reader(reading.types, row_blocks.Dialect(), "f")
    for block in row_blocks.blocks([text], reader.dialect, "f", size=transactions.SHARED_BLOCK):
        for part in transactions.split_by_table(block, reader.dialect)[0].values():
            changes(reader.parse(part), reading)


def new_parquet(data: bytes) -> None:
    """Read and type all rows of a Parquet file."""
    for rows in parquet.Reader(NAMES, "f").read(io.BytesIO(data)):
        changes(rows, OF_PARQUET)


def old_parquet(data: bytes) -> None:
    """Do the same with the old library."""
    for rows in pq.ParquetFile(io.BytesIO(data)).iter_batches(1 << 17, use_threads=False):
        old_changes.type_parquet(parquet_types.with_valid_texts(rows), 1, OLD_ROLES, OLD_SPEC, ReadRules())


def forms(count: int) -> Iterator[tuple]:
    """Yield of each form of a value: name, conditions, unit, and what both libraries do with how many."""
    for name, (what, kind, value) in FORMS.items():
        r, column = random.Random(name), Column("v", kind)
        values, target = pa.array([value(r) for _ in range(count)]), types.arrow_type(column)
        few = values[: count // 10]
        yield name, what, "µs a value", lambda v=values, t=target: exact.typed(v, t), lambda c=column, v=few: parquet_types.type_values(c, v), len(few)  # fmt: skip


def files(count: int) -> Iterator[tuple]:
    """Yield the same of each form of a file."""
    for name, rows in {"csv": lines(count), "csv_one_percent_bad": lines(count, 0.01), "csv_quoted": lines(count, note='"two\nlines {}"')}.items():  # fmt: skip
        text = ("\n".join(rows) + "\n").encode()
        yield name, "CSV of 12 columns to changes", "µs a row", lambda t=text: new_rows(t), lambda t=text: old_rows(t), count  # fmt: skip
    text = "".join(f"{line.replace(',', f',t{i % 10},s,', 1)}\n" for i, line in enumerate(lines(count))).encode()
    old = lambda t=text: [old_rows(t, ("s", f"t{i}")) for i in range(10)]  # noqa: E731
    yield "all_tables_10", "a file of 10 tables to changes", "µs a row", lambda t=text: new_tables(t), old, count
    data = as_parquet("\n".join(lines(count)) + "\n")
    yield "parquet", "Parquet of 12 columns to changes", "µs a row", lambda: new_parquet(data), lambda: old_parquet(data), count  # fmt: skip


def streams(count: int) -> Iterator[tuple]:
    """Yield the same of messages of ten columns."""
    from bench.streams import _message

    r, kinds = random.Random(1), ("insert", "update", "update", "delete")
    usual = [_message(i, i, r.choice(kinds), "t", r).encode() for i in range(count)]
    names = old_messages.MessageNames({n: n for n in SPEC.lake_names}, {"id": "id"})
    types_of = {c.name: exact.arrow_type(c.value_type) for c in SPEC.columns}
    reading = Reading(SPEC, ("op", "committed", *(f"after {n}" for n in types_of), "before id"))

    def new() -> None:
        reader = messages.Reader(types_of, ("id",))
        for at in range(0, count, 20_000):
            block = pa.array(usual[at : at + 20_000], pa.binary())
            changes(reader.read(block, np.arange(len(block))), reading)

    def old() -> None:
        for at in range(0, count, 20_000):
            for key, rows in old_messages.gather(usual[at : at + 20_000], "before-image").items():
                table = old_messages.columns_of(key, rows, pa.array([row[0] for row in rows]))
                old_messages.type_messages(table, OLD_SPEC, names)

    yield "messages", "messages of 600 bytes, ten columns, to changes", "µs a message", new, old, count


def as_parquet(text: str) -> bytes:
    """Return rows of CSV as a Parquet file."""
    found = [changes(r, READING) for r in csv.Reader(READING.types, row_blocks.Dialect(), "f").read([text.encode()])]
    all_rows = concat(found)
    own = all_rows.facts.select(["op", "committed"])
    table = pa.table([*own.columns, *all_rows.rows.columns], names=NAMES)
    pq.write_table(table, out := io.BytesIO())
    return out.getvalue()


def keys(count: int) -> Iterator[tuple]:
    """Yield the same of the last change of each key, of which each changes twice and a half."""
    r, some = random.Random(2), count * 2 // 5
    known = [str(uuid.UUID(int=r.getrandbits(128))) for _ in range(some)]
    kinds = {"int64": ("INT8", [r.randrange(some) for _ in range(count)]), "uuid": ("STRING", r.choices(known, k=count))}  # fmt: skip
    for name, (kind, ids) in kinds.items():
        spec, old_spec = (make({**ENTRIES, "columns": [{"name": "id", "type": kind}, {"name": "v", "type": "INT4"}]}) for make in (TableSpec.model_validate, parse_spec))  # fmt: skip
        columns = {"op": pa.array(["U"] * count), "id": pa.array(ids), "v": pa.array(range(count), pa.int32())}
        batch = pa.RecordBatch.from_pydict(columns)
        new = changes(parquet.rows_of(batch, 1), Reading(spec, ("op", "after id", "after v")))
        old = pa.Table.from_batches([old_changes.type_parquet(batch, 1, ["op", "after:id", "after:v"], old_spec, ReadRules()).rows])  # fmt: skip
        yield f"latest_{name}", f"last of {count:,} changes of 0.4 times as many keys", "µs a row", lambda n=new, s=spec: latest(n, s.key), lambda o=old, s=old_spec: latest_per_key.latest_per_key(o, s), count  # fmt: skip


def of_spark(count: int, quick: bool) -> list[dict]:
    """Return by how much one core reads files faster than plain Spark, which reads the same into the same types."""
    from pyspark.sql import SparkSession

    found, text = [], "\n".join(lines(count)) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        both = {"csv": (text.encode(), new_rows), "parquet": (as_parquet(text), new_parquet)}
        for name, (data, work) in both.items():
            file = Path(folder, f"f.{name}")
            file.write_bytes(data)
            read = spark.read.schema(SPARK_TYPES) if name == "csv" else spark.read
            times = []
            for _ in range(3 if quick else 7):
                taken = []
                for one in (lambda f=file, r=read, n=name: getattr(r, n)(str(f)).write.format("noop").mode("overwrite").save(), lambda d=data, w=work: w(d)):  # fmt: skip
                    start = time.perf_counter()
                    one()
                    taken.append(time.perf_counter() - start)
                times.append(taken[0] / taken[1])
            found.append({"name": f"values_against_spark_{name}", "value": round(statistics.median(times[1:]), 2), "unit": "times", "conditions": f"one core each, {count:,} rows", "house": "new"})  # fmt: skip
    return found


SPARSE = """
import re, sys
from frazil.engine import parquet
from frazil.core.changes import Reading, changes
from frazil.settings.spec import TableSpec
spec = TableSpec.model_validate({"source": "s.t", "key": ["c0"], "columns": [{"name": f"c{i}", "type": "INT8"} for i in range(300)]})
reading, rows = Reading(spec, tuple(f"after c{i}" for i in range(300))), 0
for part in parquet.Reader(spec.lake_names, "f").read(open(sys.argv[1], "rb")):
    rows += len(changes(part, reading).rows)
print(rows, int(re.search(r"VmHWM:\\s*([0-9]+)", open("/proc/self/status").read())[1]) // 1024)
"""
"""Reads a file and prints its rows and the most megabytes that the process had."""


def sparse(count: int) -> list[dict]:
    """Return the memory in which a file of 300 columns is read, of which each row has three."""
    with tempfile.TemporaryDirectory() as folder:
        file, part = Path(folder, "f.parquet"), 100_000
        nothing = pa.nulls(part, pa.int64())
        columns = {f"c{i}": pa.array(range(part)) if i in (0, 100, 200) else nothing for i in range(300)}
        with pq.ParquetWriter(file, pa.table(columns).schema) as writer:
            for _ in range(count // part):
                writer.write_table(pa.table(columns))
        start = time.perf_counter()
        said = subprocess.run([sys.executable, "-c", SPARSE, str(file)], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT / "lib")})  # fmt: skip
        rows, most = map(int, said.stdout.split())
        assert rows == count
        what = f"300 columns, 3 of them filled, {count:,} rows, in {time.perf_counter() - start:.0f} s"
    return [{"name": "values_sparse_mb", "value": most, "unit": "MB", "conditions": what, "house": "new"}]


def run(quick: bool) -> list[dict]:
    """Measure each form and return the figures."""
    found, count = [], 20_000 if quick else 200_000
    gc.disable()
    for name, what, unit, new, old, old_count in (*forms(count), *files(count), *streams(count // 5), *keys(5 * count)):
        for house, work, number in (
            ("new", new, count if unit == "µs a value" else old_count),
            ("old", old, old_count),
        ):
            value = {"value": cpu(work, number), "unit": unit, "conditions": what, "house": house}
            found.append({"name": f"values_{name}_us" + "_old" * (house == "old"), **value})
    gc.enable()
    return [*found, *of_spark(4 * count, quick), *sparse(100_000 if quick else 5_000_000)]
