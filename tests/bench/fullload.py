"""Figure: the rate of a full load over that of plain Spark, which casts the same CSV files and writes them as Parquet."""

from __future__ import annotations

from statistics import median

from bench._lake import COLUMNS, TYPED, figure, lake, link_files, seconds, timed


def _plain(world, table: str, to: str) -> None:
    rows = world.session.read.schema(f"at string, {TYPED}").csv(str(world.root / f"source/public/{table}")).drop("at")
    rows.write.option("compression", "zstd").parquet(to)


def lines(numbers: range) -> str:
    return "".join(
        f"2026-01-01 00:00:00.000000,{i},{i % 200000},{i % 100},{i % 10000}.25,{i % 90000}.50,"
        f"2026-01-01 00:00:{i % 60:02d}.000000,paid,n{i % 50000}\n" for i in numbers
    )  # fmt: skip


def run(quick: bool = False) -> list[dict]:
    """Load the same files by turns with plain Spark and with Frazil, each time into a new place; the first turn warms up."""
    files, per_file, repeats = (2, 100_000, 1) if quick else (20, 400_000, 4)
    ours, plain = [], []
    with lake() as world:
        world.table("t0", *COLUMNS)
        for f in range(files):
            world.source.write("t0", f"LOAD{f + 1:08X}.csv", lines(range(f * per_file, (f + 1) * per_file)))
        for turn in range(repeats + 1):
            table = f"t{turn}"
            if turn:
                world.table(table, *COLUMNS)
                link_files(world, table, "t0")
            world.setup(tables=[table])
            ways = [
                lambda: ours.append(timed(world, "load", table)[1]),  # noqa: B023
                lambda: plain.append(seconds(lambda: _plain(world, table, str(world.root / f"plain-{table}")))),  # noqa: B023
            ]
            for way in ways if turn % 2 else ways[::-1]:  # who comes second meets what the other left to write to disk
                way()
            print(f"  ours {ours[-1]:.1f} s, plain Spark {plain[-1]:.1f} s", flush=True)
    a, b = median(ours[1:]), median(plain[1:])
    told = f"{files * per_file:,} rows in {files} CSV files, zstd, median of {repeats} after one to warm up; {a:.1f} s against {b:.1f} s"
    return [figure("fullload_vs_raw", b / a, "×", told)]
