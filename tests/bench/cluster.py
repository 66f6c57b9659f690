"""Figure: the CPU of a load and of a backlog on a standalone cluster of two workers, over that of the same in Spark's local mode."""

from __future__ import annotations

from statistics import median

import psutil

from bench._lake import COLUMNS, Changes, figure, lake, link_files, python
from bench.fullload import lines
from standalone import cluster
from world import house, house_name

RUN = """import frazil, psutil
lake, me = frazil.open('02_cdc_merge', 'w', tables=['public.{}']), psutil.Process()
[getattr(lake, verb)().raise_if_failed() for verb in ('setup', 'load', 'merge')]
print(sum(sum(p.cpu_times()[:4]) for p in (me, *me.children(recursive=True))))"""


def _spent(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:4]) for process in processes)


def run(quick: bool = False) -> list[dict]:
    """Load and merge the same files by turns; executors and their Python processes are counted when they have ended."""
    files, per_file, repeats = (3, 100_000, 1) if quick else (12, 400_000, 3)
    if house_name() == "old":
        return []
    took, changes = dict[str, list[float]](), Changes(files * per_file)
    with lake() as world, cluster(world.root) as (master, started):
        for f in range(files):
            world.source.write("t", f"LOAD{f + 1:08X}.csv", lines(range(f * per_file, (f + 1) * per_file)))
            changes.write(world.source, "t", per_file // 10)
        for number in range(2 * repeats):
            table, where = f"t{number}", (master, "local[2]")[number % 2]
            link_files(world.table(table, *COLUMNS), table, "t")
            house().prepare(world)
            before = _spent(started)
            driver = float(python(world, "-c", RUN.format(table), master=where).split()[-1])
            took.setdefault(where, []).append(driver + _spent(started) - before)
            print(f"  {where}: {took[where][-1]:.1f} s of CPU", flush=True)
    ours, local = map(median, took.values())
    told = f"{files * per_file:,} rows and {files * per_file // 10:,} changes of CSV, two workers of one core each; {ours:.0f} s against {local:.0f} s, start of Spark included; median of {repeats}"
    return [figure("cluster_cpu", ours / local, "ratio", told)]
