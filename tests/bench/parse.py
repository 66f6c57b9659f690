"""Figures: reading files into typed changes, against plain Spark reading the same bytes with the same schema."""

from __future__ import annotations

import gzip
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "lib")]

from frazil_old.config.settings import Settings  # noqa: E402
from frazil_old.config.spark_session import get_spark  # noqa: E402
from frazil_old.config.spec import parse_spec  # noqa: E402
from frazil_old.dms.endpoint import Endpoint, SourceTable  # noqa: E402
from frazil_old.dms.file_layout import CHANGE_PHASE  # noqa: E402
from frazil_old.dms.listing import DmsObject  # noqa: E402
from frazil_old.dms.mappings import Mappings  # noqa: E402
from frazil_old.engine.read_files import plan_files, read_changes  # noqa: E402
from helpers import spec_of  # noqa: E402

ROWS, FILES, TIMES = 800_000, 4, 5
COLUMNS = (
    "id INT8", "customer INT4", "quantity INT4", "price NUMERIC(12,2)", "weight REAL4", "due DATE", "at DATETIME",
    "status WSTRING(20)", "note NCLOB", "country WSTRING(2)",
)  # fmt: skip
SPEC = parse_spec(spec_of("public.orders", *COLUMNS))
BOTH = [SPEC, parse_spec(spec_of("public.returns", *COLUMNS[:-1]))]
TYPED = (
    "Op string, ts timestamp, id bigint, customer int, quantity int, price decimal(12,2), weight float, due date, "
    "at timestamp_ntz, status string, note string, country string"
)


def _lines(numbers: range, newlines: bool) -> bytes:
    r = random.Random(numbers.start)
    note = '"some text\nnumber {}"' if newlines else "some text number {}"
    return "".join(
        f"{r.choice('IUUUD')},2026-01-01 00:00:{i % 60:02d}.{i % 1000000:06d},{i},{r.randrange(10**6)},{r.randrange(100)},"
        f"{r.randrange(10**6) / 100:.2f},{r.random():+.8e},2025-{i % 12 + 1:02d}-{i % 28 + 1:02d},"
        f"2025-01-01 10:00:{i % 60:02d}.000000,status{i % 7},{note.format(i)},DE\n"
        for i in numbers
    ).encode()


def _write(spark, folder: Path, form: str, rows: int) -> list[DmsObject]:
    """Write the rows as change files of one form."""
    files, each = [], rows // FILES
    for n in range(FILES):
        raw = _lines(range(n * each, (n + 1) * each), form == "csv_multiline")
        file = folder / form / f"20260101-00000000{n}{'.csv.gz' if form == 'gzip' else '.csv'}"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(gzip.compress(raw, 6) if form == "gzip" else raw)
        if form == "parquet":
            import pyarrow.parquet as pq

            table = spark.read.schema(TYPED).csv(str(file)).toArrow()
            file.unlink()
            file = file.with_suffix(".parquet")
            pq.write_table(table, file)
        files.append(DmsObject(file.name, str(file), file.stat().st_size, ""))
    return files


def _shared(folder: Path, rows: int) -> tuple[list[list[str]], list[DmsObject]]:
    """Write the rows of two tables, one of them a column narrower, as files of their own and by turns in files of both."""
    own, files, each = [[], []], [], rows // FILES
    folder.mkdir()
    for n in range(FILES):
        rows_of = [
            _lines(range((2 * n + t) * each // 2, (2 * n + t + 1) * each // 2), False).decode().splitlines()
            for t in (0, 1)
        ]
        rows_of[1] = [line.rsplit(",", 1)[0] for line in rows_of[1]]
        for t, lines in enumerate(rows_of):
            path = folder / f"{t}-{n}.csv"
            path.write_text("\n".join(lines) + "\n")
            own[t].append(str(path))
        named = [
            [line.replace(",", f",{s.table_name},public,", 1) for line in lines]
            for s, lines in zip(BOTH, rows_of, strict=True)
        ]
        file = folder / f"CDC_TXN-2026010100000000{n}.csv"
        file.write_text("".join(f"{a}\n{b}\n" for a, b in zip(*named, strict=True)))
        files.append(DmsObject(file.name, str(file), file.stat().st_size, ""))
    return own, files


def _seconds(frames) -> float:
    """Return how long it takes until frames went into the no-op sink."""
    began = time.perf_counter()
    for frame in frames:
        frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _by_core(spark, spec, endpoint: Endpoint, files: list[DmsObject]):
    """Return a frame with the number of typed changes of each file: tasks read the files, as in a large batch."""
    import pyarrow as pa

    planned, read = plan_files(SourceTable(spec, endpoint, Mappings(())), files, CHANGE_PHASE)

    def run(batches):
        for number in (n for batch in batches for n in batch.column(0).to_pylist()):
            blocks = list(read_changes(planned[number], read))
            assert not any(changes.bad for changes in blocks)
            yield pa.RecordBatch.from_pydict({"rows": [sum(changes.rows.num_rows for changes in blocks)]})

    return spark.range(0, len(planned), 1, len(planned)).mapInArrow(run, "rows bigint")


def _ratio(spark, form: str, folder: Path, rows: int, times: int) -> tuple[float, float]:
    """Return plain Spark's time over ours and our seconds: medians of runs by turns, the first of each left out."""
    specs, narrow = (BOTH, TYPED.rsplit(",", 1)[0]) if form == "transactions" else ([SPEC], "")
    own, files = _shared(folder / form, rows) if narrow else ([], _write(spark, folder, form, rows))
    whole = form in ("csv_multiline", "gzip", "transactions")
    endpoint = Endpoint(null_value="", op_in_load=True, timestamp_column="ts")

    def base() -> list:
        if narrow:
            return [spark.read.schema(schema).csv(paths) for schema, paths in zip((TYPED, narrow), own, strict=True)]
        reader, paths = spark.read.schema(TYPED).option("multiLine", whole), [f.path for f in files]
        return [reader.parquet(*paths) if form == "parquet" else reader.csv(paths)]

    typed = [_by_core(spark, t, endpoint, files) for t in specs]
    assert sum(row.rows for frame in typed for row in frame.collect()) == rows
    plain, ours = [], []
    for _ in range(times + 1):
        plain.append(_seconds(base()))
        ours.append(_seconds(typed))
    return median(p / o for p, o in zip(plain[1:], ours[1:], strict=True)), median(ours[1:])


def run(quick: bool = False) -> list[dict]:
    """Read the same rows in each form by turns with plain Spark and into typed changes, both to the no-op sink."""
    rows, times = (80_000, 2) if quick else (ROWS, TIMES)
    os.environ["FRAZIL_MASTER"] = "local[2]"
    found = []
    with tempfile.TemporaryDirectory(prefix="frazil-parse-") as folder:
        spark = get_spark(Settings(root=folder, spark_options={"spark.driver.memory": "3g"}))
        for form in ("csv", "csv_multiline", "gzip", "parquet", "transactions"):
            ratio, seconds = _ratio(spark, form, Path(folder), rows, times)
            found.append({
                "name": f"parse_ratio_{form}", "value": round(ratio, 2), "unit": "ratio",
                "conditions": f"{rows:,} change rows of {len(SPEC.columns)} columns in {FILES} files, local[2], Spark {spark.version}; "
                f"{rows / seconds:,.0f} rows/s into typed changes; median of {times} pairs of runs",
            })  # fmt: skip
    return found


if __name__ == "__main__":
    for entry in run("--quick" in sys.argv):
        print(entry["name"], entry["value"], entry["unit"], f"({entry['conditions']})")
