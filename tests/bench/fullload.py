"""Figures: the rate of a full load over that of plain Spark, which casts the same CSV files and writes them as Parquet;
and the memory of the task that loads one large file."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import psutil

from bench._lake import COLUMNS, lake, link_files
from frazil_old.config.settings import FullLoadSettings, SetupSettings
from frazil_old.flows import full_load, setup


def _plain(world, table: str, to: str) -> float:
    kinds = ["bigint", "int", "int", "decimal(12,2)", "decimal(12,2)", "timestamp_ntz", "string", "string"]
    schema = ", ".join(["at string", *[f"{c.split()[0]} {k}" for c, k in zip(COLUMNS, kinds, strict=True)]])
    began = time.perf_counter()
    rows = world.spark.read.schema(schema).csv(str(world.root / f"source/public/{table}")).drop("at")
    rows.write.option("compression", "zstd").parquet(to)
    return time.perf_counter() - began


def _lines(numbers: range) -> str:
    return "".join(
        f"2026-01-01 00:00:00.000000,{i},{i % 200000},{i % 100},{i % 10000}.25,{i % 90000}.50,"
        f"2026-01-01 00:00:{i % 60:02d}.000000,paid,n{i % 50000}\n" for i in numbers
    )  # fmt: skip


@contextmanager
def _peak_of_tasks() -> Iterator[list[float]]:
    """Yield a list that gets the largest peak memory, in MB, of the Python processes of Spark's tasks meanwhile."""
    peaks, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error, OSError):
                    if "pyspark.daemon" in child.cmdline():
                        lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
                        peaks[0] = max([peaks[0], *(int(n.split()[1]) / 1024 for n in lines if n.startswith("VmHWM"))])

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield peaks
    finally:
        over.set()
        watching.join()


def _memory(world, megabytes: int) -> dict:
    """Load one file of a size."""
    world.table("large", *COLUMNS)
    world.write("large", "LOAD00000001.csv", "")
    rows, each = 0, 100_000
    with open(world.root / "source/public/large/LOAD00000001.csv", "a") as out:
        while out.tell() < megabytes << 20:
            out.write(_lines(range(rows, rows + each)))
            rows += each
    settings = {"tables": ["public.large"]}
    setup.create_tables(world.book(SetupSettings, **settings))
    with _peak_of_tasks() as peaks:
        (done,) = full_load.run(world.book(FullLoadSettings, **settings))
    assert done.status == "loaded", done.note
    assert peaks[0], "no task ran"
    told = f"largest Python process of a task that loads one CSV file of {megabytes:,} MB, {rows:,} rows"
    return {"name": "fullload_rss_mb", "value": round(peaks[0]), "unit": "MB", "conditions": told}


def run(quick: bool = False) -> list[dict]:
    """Load the same files by turns with plain Spark and with Frazil, each time into a new place."""
    files, per_file, repeats = (2, 100_000, 1) if quick else (20, 400_000, 4)
    ours, plain = [], []
    with lake() as world:
        for turn in range(repeats + 1):
            table = f"t{turn}"
            world.table(table, *COLUMNS)
            for f in range(files):
                if turn == 0:
                    text = _lines(range(f * per_file, (f + 1) * per_file))
                    world.write(table, f"LOAD{f + 1:08X}.csv", text)
            if turn:
                link_files(world, table, "t0")
            settings = {"tables": [f"public.{table}"]}
            setup.create_tables(world.book(SetupSettings, **settings))
            book = world.book(FullLoadSettings, **settings)

            def load(book=book) -> float:
                began = time.perf_counter()
                (done,) = full_load.run(book)
                assert done.status == "loaded", done.note
                return time.perf_counter() - began

            if turn % 2:  # who comes second meets what the other has left to be written to disk
                ours.append(load())
            plain.append(_plain(world, table, str(world.root / f"plain{turn}")))
            if not turn % 2:
                ours.append(load())
            print(f"  ours {ours[-1]:.1f} s, plain Spark {plain[-1]:.1f} s", flush=True)
        memory = _memory(world, 64 if quick else 1024)
    a, b = median(ours[1:] or ours), median(plain[1:] or plain)  # the first turn warms up
    told = f"{files * per_file:,} rows in {files} CSV files, zstd, median of {repeats} after one to warm up; {a:.1f} s against {b:.1f} s"
    return [{"name": "fullload_vs_raw", "value": round(b / a, 2), "unit": "×", "conditions": told}, memory]
