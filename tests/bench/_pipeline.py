"""A source and a reader around Frazil, each a process of its own: PostgreSQL transactions → simulator → Kafka, and who sees them when.

`python _pipeline.py simulator FOLDER` streams what PostgreSQL commits, `python _pipeline.py source FOLDER` commits by the clock
and watches the lake. Both take what they need from `pipeline.json` in the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

HERE = Path(__file__)
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2] / "lib")]

TABLES = [f"t{n}" for n in range(6)]
COLUMNS = ("id INT8", "stamp INT8", "customer INT4", "price NUMERIC(12,2)", "at DATETIME", "note WSTRING(99)")
STEP_S, UPDATES, POLL_S = 0.01, 8, 0.1
"""A transaction of 8 updates, an insert and a delete every 10 ms; the simulator takes over what is committed every 100 ms."""


class Place:
    """What both processes know of the world: addresses, sizes, and how to reach the database."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.__dict__ |= json.loads((folder / "pipeline.json").read_text())

    def connect(self, **options):
        import psycopg

        return psycopg.connect(self.database, **options)


def make_tables(connection, rows: int) -> None:
    """Create the six tables and fill them."""
    for t in TABLES:
        connection.execute(
            f"create table {t} (id bigint primary key, stamp bigint, customer int, price numeric(12,2), at timestamp, note varchar(99))"
        )
        connection.execute(
            f"insert into {t} select i, -1, i % 977, i % 1000, now(), 'row ' || i from generate_series(1, {rows}) i"
        )
    connection.commit()


def simulator(place: Place) -> None:
    """Stream what is committed until SIGTERM."""
    from frazil_demo.simulator import DmsSimulator

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with DmsSimulator(
        place.connect, place.folder / "simulator.json", place.folder / "task.json", place.folder / "out"
    ) as s:
        s.full_load()
        (place.folder / "loaded").touch()
        s.run(stop, POLL_S)


def commit_by_the_clock(place: Place, start: float, count: int) -> float:
    """Run transaction k at `start + k * STEP_S`, whatever became of those before; return by how much the last one was late."""
    import random

    dice, fresh = random.Random(7), [place.rows + 1] * len(TABLES)
    with place.connect() as c:
        for k in range(count):
            time.sleep(max(0.0, start + k * STEP_S - time.time()))
            t = k % len(TABLES)
            with c.pipeline():
                c.execute(
                    f"update {TABLES[t]} set stamp = %s, price = %s, at = now() where id = any(%s)",
                    (k, k % 1000, dice.sample(range(1, place.rows), UPDATES)),
                )
                c.execute(f"insert into {TABLES[t]} values (%s, %s, 1, 1, now(), 'new')", (fresh[t], k))
                if fresh[t] > place.rows + 10:
                    c.execute(f"delete from {TABLES[t]} where id = %s", (fresh[t] - 10,))
                c.commit()
            fresh[t] += 1
    return time.time() - (start + (count - 1) * STEP_S)


class Observer:
    """Looks at the catalog every 10 ms, and reads by PyIceberg the newest `stamp` that each table's data files state."""

    def __init__(self, catalog: str):
        self.catalog, self.seen = catalog, {t: [] for t in TABLES}
        self._at: dict[str, str] = {}
        self._sequence = dict.fromkeys(TABLES, 0)

    def watch(self, stop: threading.Event) -> None:
        """Note for each table `(time, newest stamp)` as they change."""
        connection = sqlite3.connect(self.catalog, timeout=5)
        while not stop.wait(0.01):
            try:
                found = connection.execute("select table_name, metadata_location from iceberg_tables").fetchall()
            except sqlite3.OperationalError:
                continue
            now = time.time()
            for table, at in found:
                if table in self.seen and at != self._at.get(table):
                    self._at[table] = at
                    self._read(table, at, now)

    def _read(self, table: str, at: str, now: float) -> None:
        from pyiceberg.table import StaticTable

        read = StaticTable.from_metadata(at)
        stamp = read.schema().find_field("stamp").field_id
        manifests = [
            m for m in read.current_snapshot().manifests(read.io)
            if m.content == 0 and m.sequence_number > self._sequence[table]
        ]  # fmt: skip
        for m in manifests:
            for e in m.fetch_manifest_entry(read.io):
                if bound := (e.data_file.upper_bounds or {}).get(stamp):
                    newest = int.from_bytes(bound, "little", signed=True)
                    if not self.seen[table] or newest > self.seen[table][-1][1]:
                        self.seen[table].append((now, newest))
        self._sequence[table] = max([self._sequence[table], *(m.sequence_number for m in manifests)])


def source(place: Place) -> None:
    """Commit for the time that was asked, watch until all is seen, and print each transaction's latency as JSON, but those of `warm_s`."""
    observer, stop = Observer(place.catalog), threading.Event()
    watching = threading.Thread(target=observer.watch, args=(stop,), daemon=True)
    watching.start()
    warm = int(place.warm_s / STEP_S)
    count, start = warm + int(place.seconds / STEP_S), time.time() + 1
    late = commit_by_the_clock(place, start, count)
    last, until = (
        {t: max(k for k in range(count) if k % len(TABLES) == i) for i, t in enumerate(TABLES)},
        time.time() + 60,
    )
    while time.time() < until and any(not s or s[-1][1] < last[t] for t, s in observer.seen.items()):
        time.sleep(0.05)
    stop.set()
    watching.join()
    took = []
    for i, t in enumerate(TABLES):
        seen = iter(observer.seen[t])
        at, newest = next(seen, (None, None))
        for k in range(i, count, len(TABLES)):
            while at is not None and newest < k:
                at, newest = next(seen, (None, None))
            took.append([k, None if at is None else at - (start + k * STEP_S)])
    print(json.dumps({"late_s": late, "took": [x for k, x in sorted(took) if k >= warm]}), flush=True)


def start(mode: str, folder: Path) -> subprocess.Popen:
    """Start one of the two processes."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2] / "lib")}
    return subprocess.Popen(
        [sys.executable, str(HERE), mode, str(folder)], stdout=subprocess.PIPE, text=True, env=environment
    )


def cpu_s(pid: int, family: bool = False) -> float:
    """Return the CPU seconds of a process, or also of those that it started (those that have ended are in its own count)."""
    me = psutil.Process(pid)
    total = sum(me.cpu_times()[: 4 if family else 2])
    for p in me.children(recursive=True) if family else []:
        try:
            total += sum(p.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


if __name__ == "__main__":
    {"simulator": simulator, "source": source}[sys.argv[1]](Place(Path(sys.argv[2])))
