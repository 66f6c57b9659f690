"""Figure: a batch with bad rows that are set aside, over the same batch without any."""

from __future__ import annotations

from statistics import median

from bench._lake import figure, lake, timed

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
    seconds: dict[str, list[float]] = {"clean": [], "bad": []}
    with lake("local[2]") as world:
        load = _lines(rows, 0, False).replace("U,2026", "2026")
        for name in seconds:
            world.table(name, *COLUMNS).source.write(name, "LOAD00000001.csv", load)
        world.loaded()
        for turn in range(times + 1):
            for name, took in seconds.items():
                world.source.write(name, f"20260101-{turn:06d}000.csv", _lines(rows, turn, name == "bad"))
                counts, s = timed(world, "merge", name, on_bad_rows="quarantine")
                took.append(s)
                assert (counts["changes"], counts.get("quarantined", 0)) == (rows, rows // EVERY * (name == "bad"))
    ratio = median(b / c for b, c in zip(seconds["bad"][1:], seconds["clean"][1:], strict=True))
    told = (
        f"a batch of {rows:,} updates with 1 % bad over the same without any bad one ({median(seconds['clean'][1:]):.1f} s), into "
        f"a table of {rows:,} rows and {len(COLUMNS)} columns; waiting rows of the batch before are overtaken in it; local[2]; "
        f"median of {times} pairs"
    )
    return [figure("quarantine_overhead", ratio, "ratio", told)]
