"""Figures: how long it takes from the time at which a change file should be written until another process sees its rows.

One table of 5 M rows, a file of 200 changes every 200 ms for 150 s (the shape at which Flink was measured), triggers back to
back. Writer and observer are a process of their own; the observer asks the catalog every 10 ms for its newest metadata and
takes from it the position, which changes in the same swap as the rows. Latency counts from the intended time of each write.
"""

from __future__ import annotations

import bisect
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__)
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2] / "lib")]

from bench._lake import Changes, fill, lake, scan_s  # noqa: E402
from frazil.flows.cdc import run as merge  # noqa: E402

STEP_S, CHANGES = 0.2, 200


def feed(root: str, rows: int, seconds: float, catalog: str) -> None:
    """Write files by the clock, watch the catalog, and print each file's latency as JSON."""
    seen, stop, made = {}, threading.Event(), Changes(rows, first_file=1000)

    def watch() -> None:
        connection, last = sqlite3.connect(catalog, timeout=5), None
        while not stop.wait(0.01):
            try:
                (at,) = connection.execute(
                    "select metadata_location from iceberg_tables where table_name = 't'"
                ).fetchone()
            except sqlite3.OperationalError:
                continue
            if at != last:
                now, last = time.time(), at
                position = json.loads(
                    json.loads(Path(at.removeprefix("file:")).read_text())["properties"]["frazil.position"]
                )
                seen.setdefault(position["last"] or "", now)

    class Folder:
        """Where files appear whole, under their names, as on S3."""

        def write(self, table: str, name: str, text: str) -> None:
            hidden = Path(root) / "source" / f".{name}"
            hidden.write_text(text)
            os.rename(hidden, Path(root) / "source/public" / table / name)

    threading.Thread(target=watch, daemon=True).start()
    start, due = time.time() + 1, {}
    for k in range(int(seconds / STEP_S)):
        time.sleep(max(0.0, start + k * STEP_S - time.time()))
        due[made.write(Folder(), "t", CHANGES)] = start + k * STEP_S
    until = time.time() + 60
    while max(seen, default="") < max(due) and time.time() < until:
        time.sleep(0.05)
    stop.set()
    marks = sorted(seen)
    places = {name: bisect.bisect_left(marks, name) for name in due}
    print(json.dumps([seen[marks[i]] - due[n] if (i := places[n]) < len(marks) else None for n in due]), flush=True)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(quick: bool = False) -> list[dict]:
    """Let the feed run beside continuous ingestion; return the latency's quantiles and what a scan costs afterwards."""
    rows, files, seconds = (200_000, 4, 15) if quick else (5_000_000, 12, 150)
    with lake() as world:
        fill(world, "t", rows, files)
        clean, warm = scan_s(world, "t"), Changes(rows, seed=9)
        for _ in range(8):
            warm.write(world, "t", CHANGES)
            world.merged(lane="rowdelta")
        catalog = world.catalog_options["uri"].removeprefix("jdbc:sqlite:")
        command = [sys.executable, str(HERE), str(world.root), str(rows), str(seconds), catalog]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2] / "lib")}
        other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        began, before = time.time(), os.times()
        (done,) = merge(world.book(lane="rowdelta", run_for_s=float(seconds + 8), trigger_s=0.0))
        took, after, feed_cpu = time.time() - began, os.times(), _cpu_s(other.pid)
        assert not done.failed, done.note
        late = json.loads(other.communicate(timeout=90)[0])
        scanned = scan_s(world, "t")
        counted = world.spark.table(world.name("t")).selectExpr("count(*) n", "count(distinct id) k").first()
    assert None not in late and counted.n == counted.k, "changes were not seen, or rows are there twice"
    late.sort()
    share = f"CPU of {took:.0f} s: Python {after.user - before.user:.0f} s, feed and observer {feed_cpu:.0f} s"
    told = (f"{rows:,} rows, a file of {CHANGES} changes every {STEP_S} s for {seconds} s, triggers back to back, "
            f"{done.counts['batches']} commits, p50 {late[len(late) // 2]:.2f} s, max {late[-1]:.2f} s; {share}")  # fmt: skip
    return [
        {"name": "visible_s_p99_1k_flink_shape", "value": round(late[int((len(late) - 1) * 0.99)], 3), "unit": "s", "conditions": told},
        {"name": "scan_after_flink_shape", "value": round(scanned / clean, 2), "unit": "×",
         "conditions": f"full scan after that ({scanned:.2f} s) over one of the freshly made table"},
    ]  # fmt: skip


if __name__ == "__main__":
    feed(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
