"""Figure: a batch with bad rows that are set aside, over the same batch without any."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "lib")]

from frazil_old.flows import cdc  # noqa: E402
from helpers import World  # noqa: E402

ROWS, TIMES, EVERY = 100_000, 5, 100
COLUMNS = ("id INT8", "customer INT4", "quantity INT4", "price NUMERIC(12,2)", "due DATE", "at DATETIME", "status WSTRING(20)",
           "note WSTRING(99)")  # fmt: skip


def _lines(rows: int, turn: int, bad: bool) -> str:
    """Write updates of every row of the table; of each hundredth of them the quantity is no number."""
    return "".join(
        f"U,2026-01-01 00:00:{i % 60:02d}.000000,{i},{i % 977},{'x' if bad and i % EVERY == turn else i % 100},{i % 1000}.{i % 100:02d},"
        f"2025-{i % 12 + 1:02d}-{i % 28 + 1:02d},2025-01-01 10:00:{i % 60:02d}.000000,status{turn},some text number {i}\n"
        for i in range(rows)
    )  # fmt: skip


def run(quick: bool = False) -> list[dict]:
    """Apply the same batches to two tables by turns, one of which gets bad rows in each; other ones each time."""
    rows, times = (20_000, 2) if quick else (ROWS, TIMES)
    os.environ["FRAZIL_MASTER"] = "local[2]"
    with tempfile.TemporaryDirectory(prefix="frazil-quarantine-") as folder:
        options = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
        world = World(Path(folder) / "w", "w", options)
        world.rules = {"rules": []}
        load = _lines(rows, 0, False).replace("U,2026", "2026")
        for name in ("clean", "bad"):
            world.table(name, *COLUMNS).write(name, "LOAD00000001.csv", load)
        world.book(spark_options={"spark.driver.memory": "3g"}).spark  # noqa: B018 the session that all share
        world.loaded()
        seconds: dict[str, list[float]] = {"clean": [], "bad": []}
        for turn in range(times + 1):
            for name, took in seconds.items():
                world.write(name, f"20260101-{turn:06d}000.csv", _lines(rows, turn, name == "bad"))
                began = time.perf_counter()
                (done,) = cdc.run(world.book(on_bad_rows="quarantine", tables=[f"public.{name}"]))
                took.append(time.perf_counter() - began)
                aside = done.counts.get("quarantined", 0)
                assert (done.status, done.counts["changes"], aside) == ("merged", rows, rows // EVERY * (name == "bad"))
        ratio = median(b / c for b, c in zip(seconds["bad"][1:], seconds["clean"][1:], strict=True))
        return [{
            "name": "quarantine_overhead", "value": round(ratio, 2), "unit": "ratio",
            "conditions": f"a batch of {rows:,} updates with 1 % bad over the same without any bad one ({median(seconds['clean'][1:]):.1f} s), into "
            f"a table of {rows:,} rows and {len(COLUMNS)} columns; waiting rows of the batch before are overtaken in it; local[2], "
            f"Spark {world.spark.version}, lane auto; median of {times} pairs",
        }]  # fmt: skip


if __name__ == "__main__":
    for entry in run("--quick" in sys.argv):
        print(entry["name"], entry["value"], entry["unit"], f"({entry['conditions']})")
