"""Sources and readers around Frazil, each a process of its own: who writes what by the clock, and when it is seen.

`python _pipeline.py simulator FOLDER` streams what PostgreSQL commits to Kafka. `… source FOLDER` commits transactions,
`… files FOLDER` writes change files, and both watch the lake. All take what they need from `pipeline.json` in the folder.
"""

from __future__ import annotations

import bisect
import json
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__)
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2] / "lib")]

TABLES = [f"t{n}" for n in range(6)]
COLUMNS = ("id INT8", "stamp INT8", "customer INT4", "price NUMERIC(12,2)", "at DATETIME", "note WSTRING(99)")
STEP_S, UPDATES, POLL_S = 0.01, 8, 0.1
"""A transaction of 8 updates, an insert and a delete every 10 ms; the simulator takes over what is committed every 100 ms."""
FILE_S, CHANGES = 0.2, 200
"""A file of 200 changes every 200 ms."""


class Place:
    """What the processes know of the world: addresses, sizes, and how to reach the database."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.__dict__ |= json.loads((folder / "pipeline.json").read_text())

    def connect(self, **options):
        import psycopg

        return psycopg.connect(self.database, **options)


def start(mode: str, folder: Path, **place) -> subprocess.Popen:
    """Start one of the processes."""
    (folder / "pipeline.json").write_text(json.dumps(place))
    return subprocess.Popen([sys.executable, str(HERE), mode, str(folder)], stdout=subprocess.PIPE, text=True)


def make_tables(connection, rows: int) -> None:
    """Create the six tables and fill them."""
    for t in TABLES:
        connection.execute(f"create table {t} (id bigint primary key, stamp bigint, customer int, price numeric(12,2), at timestamp, note varchar(99))")  # fmt: skip
        connection.execute(f"insert into {t} select i, -1, i % 977, i % 1000, now(), 'row ' || i from generate_series(1, {rows}) i")  # fmt: skip
    connection.commit()


def simulator(place: Place) -> None:
    """Stream what is committed until SIGTERM."""
    from frazil_demo.simulator import DmsSimulator

    stop, folder = threading.Event(), place.folder
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with DmsSimulator(place.connect, folder / "simulator.json", folder / "task.json", folder / "out") as s:
        s.full_load()
        (folder / "loaded").touch()
        s.run(stop, POLL_S)


def _by_the_clock(start: float, step_s: float, count: int) -> Iterator[tuple[int, float]]:
    """Yield each number at its time, and the time, whatever became of those before."""
    for k in range(count):
        time.sleep(max(0.0, start + k * step_s - time.time()))
        yield k, start + k * step_s


def _transactions(place: Place, start: float) -> dict[str, dict]:
    dice, fresh, warm = random.Random(7), [place.rows + 1] * len(TABLES), int(place.warm_s / STEP_S)
    due: dict[str, dict] = defaultdict(dict)
    with place.connect() as c:
        for k, at in _by_the_clock(start, STEP_S, warm + int(place.seconds / STEP_S)):
            t = k % len(TABLES)
            with c.pipeline():
                keys = dice.sample(range(1, place.rows), UPDATES)
                c.execute(f"update {TABLES[t]} set stamp = %s, price = %s, at = now() where id = any(%s)", (k, k % 1000, keys))  # fmt: skip
                c.execute(f"insert into {TABLES[t]} values (%s, %s, 1, 1, now(), 'new')", (fresh[t], k))
                if fresh[t] > place.rows + 10:
                    c.execute(f"delete from {TABLES[t]} where id = %s", (fresh[t] - 10,))
                c.commit()
            fresh[t] += 1
            if k >= warm:
                due[TABLES[t]][k] = at
    return due


class Stamps:
    """Reads by PyIceberg the newest `stamp` that each table's data files state."""

    def __init__(self):
        self.sequence = defaultdict(int)

    def __call__(self, table: str, at: str) -> int:
        from pyiceberg.table import StaticTable

        read, known = StaticTable.from_metadata(at), self.sequence[table]
        stamp = read.schema().find_field("stamp").field_id
        new = [m for m in read.current_snapshot().manifests(read.io) if m.content == 0 and m.sequence_number > known]
        bounds = [(e.data_file.upper_bounds or {}).get(stamp) for m in new for e in m.fetch_manifest_entry(read.io)]
        self.sequence[table] = max([known, *(m.sequence_number for m in new)])
        return max([int.from_bytes(b, "little", signed=True) for b in bounds if b], default=-1)


def _files(place: Place, start: float) -> dict[str, dict]:
    from bench._lake import Changes

    class Folder:
        """Where files appear whole, under their names, as on S3."""

        def write(self, table: str, name: str, text: str) -> None:
            (hidden := Path(place.root, f"source/.{name}")).write_text(text)
            hidden.rename(Path(place.root, f"source/public/{table}", name))

    made, times = Changes(place.rows, first_file=1000), _by_the_clock(start, FILE_S, int(place.seconds / FILE_S))
    return {"t": {made.write(Folder(), "t", CHANGES): at for _, at in times}}


def _position(table: str, at: str) -> str:
    """Return the last file in a table's position, which changes in the same swap as the rows: of the old library it is a property."""
    metadata = json.loads(Path(at.removeprefix("file:")).read_text())
    told = [metadata["properties"], *(s["summary"] for s in metadata["snapshots"][::-1])]
    position = next(facts["frazil.position"] for facts in told if "frazil.position" in facts)
    return Path(json.loads(position).get("last") or "").name


def observe(place: Place, write: Callable[[Place, float], dict], newest: Callable[[str, str], object]) -> None:
    """Let `write` write by the clock, watch the catalog until all is seen, and print each latency as JSON.

    `write` returns when each mark of a table was due. The newest mark that is seen of a table is asked for whenever its
    metadata in the catalog has changed, which is looked at every 10 ms.
    """
    seen, known, stop = defaultdict(list), {}, threading.Event()

    def watch() -> None:
        connection = sqlite3.connect(place.catalog, timeout=5)
        while not stop.wait(0.01):
            try:
                found = connection.execute("select table_name, metadata_location from iceberg_tables").fetchall()
            except sqlite3.OperationalError:
                continue
            now = time.time()
            for table, at in found:
                if table in place.tables and at != known.get(table):
                    known[table], mark = at, newest(table, at)
                    if not seen[table] or mark > seen[table][-1][1]:
                        seen[table].append((now, mark))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    due, until = write(place, time.time() + 1), time.time() + 60
    while time.time() < until and any(not seen[t] or seen[t][-1][1] < max(marks) for t, marks in due.items()):
        time.sleep(0.05)
    stop.set()
    watching.join()
    took = []
    for table, marks in due.items():
        reached = [mark for _, mark in seen[table]]
        places = {mark: bisect.bisect_left(reached, mark) for mark in marks}
        took += [seen[table][i][0] - marks[m] if i < len(reached) else None for m, i in places.items()]
    print(json.dumps(took), flush=True)


if __name__ == "__main__":
    modes = {
        "simulator": simulator,
        "source": lambda place: observe(place, _transactions, Stamps()),
        "files": lambda place: observe(place, _files, _position),
    }
    modes[sys.argv[1]](Place(Path(sys.argv[2])))
