"""Figure: the rate of a full load over that of plain Spark, which casts the same CSV files and writes them as Parquet."""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from bench._lake import COLUMNS, lake, link_files
from frazil.config.settings import FullLoadSettings, SetupSettings
from frazil.flows import full_load, setup


def _plain(world, table: str, to: str) -> float:
    kinds = ["bigint", "int", "int", "decimal(12,2)", "decimal(12,2)", "timestamp_ntz", "string", "string"]
    schema = ", ".join(["at string", *[f"{c.split()[0]} {k}" for c, k in zip(COLUMNS, kinds, strict=True)]])
    began = time.perf_counter()
    rows = world.spark.read.schema(schema).csv(str(world.root / f"source/public/{table}")).drop("at")
    rows.write.option("compression", "zstd").parquet(to)
    return time.perf_counter() - began


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
                    ids = np.arange(f * per_file, (f + 1) * per_file)
                    text = "".join(
                        f"2026-01-01 00:00:00.000000,{i},{i % 200000},{i % 100},{i % 10000}.25,{i % 90000}.50,"
                        f"2026-01-01 00:00:{i % 60:02d}.000000,paid,n{i % 50000}\n" for i in ids.tolist()
                    )  # fmt: skip
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
    a, b = median(ours[1:] or ours), median(plain[1:] or plain)  # the first turn warms up
    told = f"{files * per_file:,} rows in {files} CSV files, zstd, median of {repeats} after one to warm up; {a:.1f} s against {b:.1f} s"
    return [{"name": "fullload_vs_raw", "value": round(b / a, 2), "unit": "×", "conditions": told}]
