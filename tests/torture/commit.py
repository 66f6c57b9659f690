"""Faults in the middle of commits: the table must end equal to a replay, and no snapshot may ever hold a half-applied batch.

A case is one batch, a lane, a fault and a named point in the commit at which it strikes. `kill` runs the batch in a process
of its own (with its JVM) and ends both by SIGKILL, at the point or some moments later. Afterwards every snapshot that main
ever pointed at is compared with a replay, in plain Python, of the files up to the position that it carries.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__)
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2] / "lib")]

from frazil_old.config.settings import Settings  # noqa: E402
from frazil_old.config.spark_session import get_spark  # noqa: E402
from frazil_old.engine import scan_row_delta, small_batch  # noqa: E402
from frazil_old.lake import jvm, small_file_merge  # noqa: E402
from helpers import D, I, U, World  # noqa: E402

COUNT, ROWS, LIMIT_S = 200, 300, 900
MOST_MB, MOST_FOUND = small_batch.MOST_MB, scan_row_delta.MOST_FOUND
MERGE_AFTER = small_file_merge.MERGE_AFTER
POINTS = {
    "rowdelta": ["lake.row_delta:write_rows", "lake.row_delta:write_deletes", "lake.jvm_row_delta:commit", "lake.index_sync:Locator.save"],
    "scan": ["engine.scan_row_delta:find_rows", "engine.scan_row_delta:write_deletes", "lake.jvm_row_delta:commit"],
    "scan in tasks": ["engine.scan_row_delta:found_rows", "engine.scan_row_delta:delete_in_tasks", "lake.jvm_row_delta:commit"],
    "merge": ["lake.jvm:fork", "lake.merge:merge", "lake.jvm:publish"],
    "fold": ["lake.small_file_merge:write_rows", "lake.jvm_maintenance:commit_rewrite", "lake.row_delta:write_rows", "lake.jvm_row_delta:commit"],
}  # fmt: skip
LANES = {lane: {"lane": lane} for lane in ("rowdelta", "scan", "merge")}
LANES["scan in tasks"] = {"lane": "scan"}
LANES["fold"] = {"lane": "rowdelta", "max_batch_files": 1}
"""What a batch is merged with; of files that are to be folded there are several, each a batch."""
FAULTS = ["compaction", "second writer", "unknown outcome", "full disk", "foreign delete of nothing"]


def _prepare(lane: str) -> None:
    """Let Spark's tasks read and write small batches too, or merge small files after two commits, if the lane wants that."""
    small_file_merge.MERGE_AFTER = 2 if lane == "fold" else MERGE_AFTER
    in_tasks = lane == "scan in tasks"
    small_batch.MOST_MB = 0 if in_tasks else MOST_MB
    scan_row_delta.MOST_FOUND = 0 if in_tasks else MOST_FOUND


def _owner(point: str) -> tuple[object, str]:
    module, path = point.split(":")
    owner = importlib.import_module(f"frazil.{module}")
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return owner, name


def strike(point: str, before: Callable[[], None], after: Callable[[], None]) -> Callable[[], None]:
    """Let something happen once, just before or after a function is called; return how to take that away."""
    owner, name = _owner(point)
    real, open_ = getattr(owner, name), [True]

    def wrapped(*arguments, **named):
        mine, open_[:] = bool(open_), []
        if mine:
            before()
        result = real(*arguments, **named)
        if mine:
            after()
        return result

    setattr(owner, name, wrapped)
    return lambda: setattr(owner, name, real)


class Case:
    """One table, its files so far, and what a replay of them gives."""

    def __init__(self, world: World, seed: int, version: int):
        self.world, self.random, self.states, self.seen, self.number = world, random.Random(seed), {}, set(), 0
        self.now = dict.fromkeys(range(ROWS), "l")
        world.table("t").load("t", *self.now.items())
        troubles = [
            r.note
            for r in {**world.setup(query_engines=["spark" if version == 3 else "trino"]), **world.full_load()}.values()
            if r.failed
        ]
        assert not troubles, troubles
        self.states[""] = dict(self.now)

    def write(self) -> None:
        """Write the next change file: keys anywhere, used again, deleted though they are not there."""
        changes = []
        for _ in range(self.random.randrange(1, 40)):
            k, v = self.random.randrange(ROWS + 50), f"v{self.random.randrange(10**6)}"
            if self.random.random() < 0.3:
                changes.append(D(k))
                self.now.pop(k, None)
            else:
                changes.append((U if k in self.now else I)(k, v))
                self.now[k] = v
        self.number += 1
        name = f"20240101-{self.number // 3600:02d}{self.number // 60 % 60:02d}{self.number % 60:02d}000.csv"
        self.world.changes("t", *changes, name=name)
        self.states[name] = dict(self.now)

    def judge(self, finished: bool) -> None:
        """Compare every snapshot of main that is new with the replay up to its position; `finished`: nothing may be pending."""
        table = self.world.iceberg("t")
        position = json.loads(table.properties().get("frazil.position"))
        head = table.currentSnapshot()
        for number, snapshot in enumerate(jvm.ancestors(table)):
            told = snapshot.summary().get("frazil.position")
            if number == 0 and told:
                assert json.loads(told)["last"] == position["last"], "the property and the snapshot disagree"
            if snapshot.snapshotId() in self.seen:
                continue
            self.seen.add(snapshot.snapshotId())
            last = json.loads(told)["last"] if told else ""
            if not told or not (last or json.loads(told).get("load_digest")):
                continue  # the empty table before its load
            rows = self.world.spark.sql(
                f"SELECT * FROM {self.world.name('t')} VERSION AS OF {snapshot.snapshotId()}"
            ).collect()
            assert sorted(map(tuple, rows)) == sorted(self.states[last or ""].items()), (
                f"snapshot {snapshot.snapshotId()} is not the replay up to {last or 'the load'}"
            )
        if finished:
            assert position["last"] == max(self.states), "changes are pending"
            assert head.snapshotId() == position["snapshot"] or position["snapshot"] in {
                s.snapshotId() for s in jvm.ancestors(table)
            }
            assert not self.world.branches("t"), self.world.branches("t")


def _compact(world: World) -> None:
    world.call("rewrite_data_files", "t", ", options => map('rewrite-all', 'true')")


def _in_process(case: Case, lane: str, fault: str, point: str) -> str:
    """Let a fault strike in this process; then run again until all is applied."""
    world, nothing = case.world, lambda: None

    def fail(error: OSError) -> Callable[[], None]:
        def raises() -> None:
            raise error

        return raises

    before, after = {
        "compaction": (lambda: _compact(world), nothing),
        "second writer": (lambda: world.merged(lane=case.random.choice(["merge", "scan", "rowdelta"])), nothing),
        "unknown outcome": (nothing, fail(OSError("the answer was lost"))),
        "full disk": (fail(OSError(errno.ENOSPC, "No space left on device")), nothing),
        "foreign delete of nothing": (lambda: world.spark.sql(f"DELETE FROM {world.name('t')} WHERE id < 0"), nothing),
    }[fault]
    world.book().lanes.missing(world.name("t"))  # the self-test comes by the points too, and holds a lock
    _prepare(lane)
    undo = strike(point, before, after)
    try:
        status = world.merge(**LANES[lane])["t"].status
    finally:
        undo()
    case.judge(finished=False)
    world.merged(**LANES[lane])
    case.judge(finished=True)
    return status


def child(root: str, space: str, lane: str, point: str, delay: float, options: str) -> None:
    """Apply what is pending, and end this process and its JVM by SIGKILL at the point, or `delay` seconds after it."""
    from frazil_old.config.settings import CdcMergeSettings
    from frazil_old.flows import cdc
    from frazil_old.flows.workbook import Workbook

    def die() -> None:
        os.killpg(0, signal.SIGKILL)

    def later() -> None:
        if delay < 0:
            return
        threading.Timer(delay, die).start() if delay else die()

    given = {"root": root, "source": "source", "specs": "specs", "endpoint": "endpoint.json", "mappings": "mappings.json",
             "query_engines": ["spark"], "catalog_options": json.loads(options), **LANES[lane],
             "spark_options": {"spark.driver.memory": "1g"}}  # fmt: skip
    book = Workbook(CdcMergeSettings(**given), lambda text: None)
    book.lanes.missing(book.name(next(iter(book.specs.values()))))  # not in the self-test
    _prepare(lane)
    if delay < 0:
        strike(point, lambda: None, die)
    else:
        strike(point, later, lambda: None)
    (done,) = cdc.run(book)
    sys.stderr.write(f"{done.status}: {done.note}")
    os._exit(1 if done.status != "merged" else 0)


def _killed(case: Case, lane: str, point: str, delay: float) -> str:
    """Run a batch in a process that kills itself; then apply what is left here."""
    world = case.world
    world.book()
    command = [
        sys.executable,
        str(HERE),
        str(world.root),
        world.space,
        lane,
        point,
        str(delay),
        json.dumps(world.catalog_options),
    ]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2] / "lib"), "FRAZIL_MASTER": "local[1]"}
    ran = subprocess.run(
        command, env=environment, start_new_session=True, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert ran.returncode in (-signal.SIGKILL, 0), ran.stderr[-2000:]
    committed = "committed" if world.position("t")["last"] == max(case.states) else "not committed"
    case.judge(finished=False)
    world.merged(**LANES[lane])
    case.judge(finished=True)
    return f"killed, {committed}" if ran.returncode else "done before the kill"


def run(count: int, seed: int = 1, spark=None, catalog_options: dict | None = None) -> dict[str, int]:
    """Run so many cases and return how often each outcome was met; one of ten is a kill in short runs, half in long ones."""
    rng, counts = random.Random(seed), Counter()
    with tempfile.TemporaryDirectory(prefix="frazil-torture-") as folder:
        options = catalog_options or {
            "type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}  # fmt: skip
        spark or get_spark(Settings(root=folder, catalog_options=options, spark_options={"spark.driver.memory": "2g"}))
        case, began = None, time.monotonic()
        for number in range(count):
            if number % 25 == 0:
                world = World(Path(folder) / f"w{number}", f"torture_{seed}_{number}", options)
                case = Case(world, seed * 1000 + number, 3 if number % 50 == 0 else 2)
            lane = rng.choice(["rowdelta", "scan", "fold", "merge"])
            point, kill = rng.choice(POINTS[lane]), number % 10 == 5 if count < 50 else number % 2
            for _ in range(4 if lane == "fold" else 1):
                case.write()
            if kill:
                outcome = _killed(case, lane, point, rng.choice([0, -1, rng.random() * 0.5]))
            else:
                fault = rng.choice(FAULTS)
                outcome = f"{fault}: {_in_process(case, lane, fault, point)}"
            counts[outcome] += 1
            if count >= 50 and number % 20 == 19:
                print(f"  {number + 1} cases, {time.monotonic() - began:.0f} s", flush=True)
    return dict(counts)


if __name__ == "__main__":
    child(*sys.argv[1:5], float(sys.argv[5]), sys.argv[6])
