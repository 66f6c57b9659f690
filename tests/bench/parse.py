"""Figures: reading files into typed changes, against plain Spark reading the same bytes with the same schema."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from statistics import median

from bench._lake import by_turns, figure, lake, to_nothing
from frazil_old.config.spec import parse_spec
from frazil_old.dms.endpoint import Endpoint, SourceTable
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.mappings import Mappings
from frazil_old.engine.read_files import plan_files, read_changes
from helpers import spec_of

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


def _lines(numbers: range, newlines: bool = False) -> list[str]:
    r = random.Random(numbers.start)
    note = '"some text\nnumber {}"' if newlines else "some text number {}"
    return [
        f"{r.choice('IUUUD')},2026-01-01 00:00:{i % 60:02d}.{i % 1000000:06d},{i},{r.randrange(10**6)},{r.randrange(100)},"
        f"{r.randrange(10**6) / 100:.2f},{r.random():+.8e},2025-{i % 12 + 1:02d}-{i % 28 + 1:02d},"
        f"2025-01-01 10:00:{i % 60:02d}.000000,status{i % 7},{note.format(i)},DE\n"
        for i in numbers
    ]


def _write(spark, folder: Path, form: str, rows: int) -> list[Path]:
    """Write the rows as change files of one form."""
    files, each = [], rows // FILES
    for n in range(FILES):
        raw = "".join(_lines(range(n * each, (n + 1) * each), form == "csv_multiline")).encode()
        file = folder / f"20260101-00000000{n}{'.csv.gz' if form == 'gzip' else '.csv'}"
        file.write_bytes(gzip.compress(raw, 6) if form == "gzip" else raw)
        if form == "parquet":
            import pyarrow.parquet as pq

            table = spark.read.schema(TYPED).csv(str(file)).toArrow()
            file.unlink()
            file = file.with_suffix(".parquet")
            pq.write_table(table, file)
        files.append(file)
    return files


def _shared(folder: Path, rows: int) -> tuple[list[list[str]], list[Path]]:
    """Write the rows of two tables, one of them a column narrower, as files of their own and by turns in files of both."""
    own, files, half = [[], []], [], rows // FILES // 2
    for n in range(FILES):
        rows_of = [_lines(range((2 * n + t) * half, (2 * n + t + 1) * half)) for t in (0, 1)]
        rows_of[1] = [line.rsplit(",", 1)[0] + "\n" for line in rows_of[1]]
        for t, lines in enumerate(rows_of):
            path = folder / f"{t}-{n}.csv"
            path.write_text("".join(lines))
            own[t].append(str(path))
            rows_of[t] = [line.replace(",", f",{BOTH[t].table_name},public,", 1) for line in lines]
        files.append(folder / f"CDC_TXN-2026010100000000{n}.csv")
        files[-1].write_text("".join(a + b for a, b in zip(*rows_of, strict=True)))
    return own, files


def _by_core(spark, spec, files: list[Path]):
    """Return a frame with the number of typed changes of each file: tasks read the files, as in a large batch."""
    import pyarrow as pa

    endpoint = Endpoint(null_value="", op_in_load=True, timestamp_column="ts")
    objects = [DmsObject(f.name, str(f), f.stat().st_size, "") for f in files]
    planned, read = plan_files(SourceTable(spec, endpoint, Mappings(())), objects, CHANGE_PHASE)

    def run(batches):
        for number in (n for batch in batches for n in batch.column(0).to_pylist()):
            blocks = list(read_changes(planned[number], read))
            assert not any(changes.bad for changes in blocks)
            yield pa.RecordBatch.from_pydict({"rows": [sum(changes.rows.num_rows for changes in blocks)]})

    return spark.range(0, len(planned), 1, len(planned)).mapInArrow(run, "rows bigint")


def _plain(spark, form: str, own: list[list[str]], files: list[Path]) -> list:
    """Return plain Spark's frames over the same rows."""
    if own:
        return [spark.read.schema(s).csv(p) for s, p in zip((TYPED, TYPED.rsplit(",", 1)[0]), own, strict=True)]
    reader, paths = spark.read.schema(TYPED).option("multiLine", form in ("csv_multiline", "gzip")), [*map(str, files)]
    return [reader.parquet(*paths) if form == "parquet" else reader.csv(paths)]


def run(quick: bool = False) -> list[dict]:
    """Read the same rows in each form by turns with plain Spark and into typed changes, both to the no-op sink."""
    rows, times = (80_000, 2) if quick else (ROWS, TIMES)
    found = []
    with lake("local[2]") as world:
        spark = world.session
        for form in ("csv", "csv_multiline", "gzip", "parquet", "transactions"):
            (folder := world.root / form).mkdir()
            own, files = _shared(folder, rows) if form == "transactions" else ([], _write(spark, folder, form, rows))
            typed = [_by_core(spark, t, files) for t in (BOTH if own else [SPEC])]
            assert sum(row.rows for frame in typed for row in frame.collect()) == rows
            plain, ours = by_turns(times, lambda: to_nothing(*_plain(spark, form, own, files)), lambda: to_nothing(*typed))  # noqa: B023  # fmt: skip
            told = (
                f"{rows:,} change rows of {len(SPEC.columns)} columns in {FILES} files, local[2], Spark {spark.version}; "
                f"{rows / median(ours):,.0f} rows/s into typed changes; median of {times} pairs of runs"
            )
            found.append(figure(f"parse_ratio_{form}", median(p / o for p, o in zip(plain, ours, strict=True)), "ratio", told))  # fmt: skip
    return found
