"""`make demo`: a real database, its changes, seven notebooks, and the proof that source and lake are equal.

    python -m frazil_demo.run [--scale 1.0] [--transactions 240]

Everything stays in `runs/demo`: executed notebooks, `report.html`, `summary.json`, the lake itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import frazil_old
from frazil_demo import engines, shop
from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.report import write_report
from frazil_demo.simulator import DmsSimulator
from frazil_demo.workload import Workload
from frazil_old.cli import visible
from frazil_old.config.environment_file import find_params, root_of
from frazil_old.config.settings import resolve
from frazil_old.config.spec import TableSpec, load_specs
from frazil_old.errors import FrazilError
from frazil_old.flows import lag
from frazil_old.flows.workbook import Workbook, print_line
from frazil_old.report.notebook_output import Grid, read_record

ENV, NOTEBOOKS = "demo-old", Path(frazil_old.__file__).parent / "notebooks"
RATE = 4.0
"""The workload's transactions per second."""
EARLY = 20
"""Transactions while the tables are set up and loaded."""
ROUNDS, FURTHER = 9, 60
"""Rounds of changes while maintenance runs, and the transactions of each round after the first."""
IDLE_S, PATIENCE_S = 12.0, 600.0
"""Seconds without a change after which ingestion ends, and the most that it may take."""


class DemoError(FrazilError):
    """A part of the demo failed: the message says which, and why."""


@dataclass
class Demo:
    """One run of the demo: its folders, and its results so far."""

    root: Path
    folder: Path
    began: float = field(default_factory=time.monotonic)
    notebooks: dict[str, dict[str, Any]] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        print_line(f"[{time.monotonic() - self.began:6.1f} s] {text}")

    def notebook(self, name: str, label: str = "", **parameters: Any) -> dict[str, Any]:
        """Run one notebook under papermill and return its record; a failure ends the demo with its cause."""
        import papermill

        label = label or name
        out, began = self.folder / "notebooks" / f"{label}.ipynb", time.monotonic()
        out.parent.mkdir(parents=True, exist_ok=True)
        self.say(f"{label} …")
        status, cause = "ok", ""
        try:
            papermill.execute_notebook(
                NOTEBOOKS / f"{name}.ipynb", out, parameters={"env": ENV, **parameters},
                cwd=self.root, kernel_name="python3", progress_bar=False,
            )  # fmt: skip
        except papermill.PapermillExecutionError as e:
            status, cause = "failed", f"{e.ename}: {e.evalue}"
        seconds = round(time.monotonic() - began, 1)
        self.notebooks[label] = {"status": status, "seconds": seconds}
        self.say(f"{label} {status} in {seconds} s")
        if status == "failed":
            raise DemoError(f"notebook {label} failed: {' | '.join(cause.split(chr(10)))}", f"see {out}")
        return read_record(out) or {}


@contextmanager
def _kernel_log(file: Path):
    """Redirect what kernels print to the terminal's stderr to a file while notebooks run."""
    kept = os.dup(2)
    with open(file, "ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def changes_going_on(postgres: EmbeddedPostgres, simulator: DmsSimulator, transactions: int, seed: int):
    """While the block runs, let the workload commit at the source and the simulator write change files; then finish both."""
    stop, problems, done = threading.Event(), [], Counter()

    def guarded(work) -> threading.Thread:
        def body() -> None:
            try:
                work()
            except Exception as e:
                problems.append(e)

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        return thread

    connection = postgres.connect()
    source = guarded(lambda: done.update(Workload(connection, seed).run(transactions, RATE)))
    writer = guarded(lambda: simulator.run(stop))
    try:
        yield done
        source.join()
    finally:
        stop.set()
        writer.join()
        if not source.is_alive():
            connection.close()
    if problems:
        raise DemoError(f"workload or simulator failed: {type(problems[0]).__name__}: {problems[0]}")


@contextmanager
def _seen_by_pyiceberg():
    """Let a second engine watch for commits while the block runs, for the last stage of the latency notebook."""
    book, stop = Workbook(resolve("latency", {"env": ENV}).settings), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(visible.watch, book, stop)
        try:
            yield
        finally:
            stop.set()
            watching.result()


def _wait_until_fresh(demo: Demo, merging: Future) -> float:
    """Wait until the merge notebook has applied everything that lay there; return the time (epoch seconds)."""
    book = Workbook(resolve("latency", {"env": ENV}).settings, lambda text: None)
    while any(row["pending"] for row in lag.per_table(book)):
        if merging.done():
            merging.result()  # raises what ended it
        time.sleep(0.5)
    demo.say("the lake has caught up: now changes for a minute or more, with maintenance at the same time")
    return time.time()


def _source_rows(postgres: EmbeddedPostgres, spec: TableSpec) -> list[tuple]:
    """Return a source table's rows, each value in PostgreSQL's own text form, which DMS uses too; times are in UTC.

    A cast to text would instead extend `inet` and cut `char`.
    """
    with postgres.connect(autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        texts = ", ".join(f"""CASE WHEN "{c}" IS NOT NULL THEN format('%s', "{c}") END""" for c in spec.names)
        return connection.execute(f"select {texts} from {spec.source}").fetchall()


def _proof(demo: Demo, postgres: EmbeddedPostgres, compared: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Compare the source row by row with the lake as each engine reads it; count rows, and those that differ in any engine."""
    specs = load_specs(find_params() / "shop")
    catalog, by_table = demo.folder / "lake" / "catalog.db", {row["table"]: row for row in compared}
    if missing := set(specs) - set(by_table):
        raise DemoError(f"not reconciled: {', '.join(sorted(missing))}", "see the executed notebook 02_cdc_merge")
    proof = {}
    for name, spec in specs.items():
        source, by_spark = _source_rows(postgres, spec), by_table[name]
        with engines.duckdb() as db:
            engines.by_duckdb(db, catalog, spec.target)
            duck, duck_differ = engines.compare(db, spec.names, source)
            engines.by_pyiceberg(db, catalog, spec.target)
            py, py_differ = engines.compare(db, spec.names, source)
        proof[name] = {
            "source_rows": len(source), "lake_rows": by_spark["lake_rows"],
            "differing_rows": by_spark["differing_rows"] + duck_differ + py_differ, "duckdb_rows": duck, "pyiceberg_rows": py,
        }  # fmt: skip
    return proof


def _reconciled(row: dict[str, int]) -> bool:
    counts = {row[k] for k in ("source_rows", "lake_rows", "duckdb_rows", "pyiceberg_rows")}
    return row["differing_rows"] == 0 and len(counts) == 1


def _ingest(demo: Demo, postgres: EmbeddedPostgres, simulator: DmsSimulator, transactions: int) -> dict[str, Any]:
    """Apply changes as they come, with maintenance at the same time, and compare at the end; return what came of it."""
    with ThreadPoolExecutor(2) as beside:
        merging = beside.submit(
            demo.notebook, "02_cdc_merge", run_for_s=PATIENCE_S, trigger_s=1.0, idle_s=IDLE_S, check_source=True
        )
        began = _wait_until_fresh(demo, merging)
        with _seen_by_pyiceberg():
            maintaining = beside.submit(demo.notebook, "03_maintenance", max_small_files=3)
            kinds = _changes_until(maintaining, postgres, simulator, transactions)
        maintaining.result()
        compared = merging.result().get("compared", [])
    return {"began": began, "kinds": kinds, "compared": compared}


def _changes_until(
    maintaining: Future, postgres: EmbeddedPostgres, simulator: DmsSimulator, transactions: int
) -> Counter:
    """Run the workload's transactions, then more until maintenance has ended, at most `ROUNDS` times; return their kinds."""
    kinds: Counter = Counter()
    for number in range(ROUNDS):
        with changes_going_on(postgres, simulator, transactions if not number else FURTHER, seed=8 + number) as done:
            pass
        kinds.update(done)
        if maintaining.done():
            break
    return kinds


def _look(demo: Demo, began: float) -> dict[str, Any] | None:
    """Run the notebooks that only read, two at a time; return the latency of all changes since `began` (epoch seconds)."""
    with ThreadPoolExecutor(2) as beside:
        looking = beside.submit(demo.notebook, "05_explore")
        found = demo.notebook("04_latency", hours=round((time.time() - began) / 3600, 5))
        looking.result()
    demo.notebook("06_warehouses", "06_warehouses_2")
    return next(iter(found.get("latency", [])), None)


def run(demo: Demo, scale: float, transactions: int) -> bool:
    """Run the whole demo and return whether everything is equal."""
    params = find_params()
    with EmbeddedPostgres(demo.folder / "postgres") as postgres:
        with postgres.connect() as connection:
            rows = shop.make(connection, scale=scale)
        demo.say(f"source: PostgreSQL with {sum(rows.values()):,} rows in {len(rows)} tables")
        os.environ.update(
            FRAZIL_PARAMS=str(params), FRAZIL_SOURCE_URL=postgres.jdbc_url, FRAZIL_SOURCE_USER=postgres.user,
            FRAZIL_SOURCE_PASSWORD=postgres.password,
        )  # fmt: skip
        with DmsSimulator(
            postgres.connect, params / "shop.endpoint.json", params / "shop.mappings.json", demo.folder / "s3"
        ) as simulator:
            simulator.full_load()
            demo.say("full load written by the DMS simulator (it imitates AWS DMS; it is not AWS DMS)")
            with changes_going_on(postgres, simulator, EARLY, seed=7) as kinds:
                demo.notebook("00_setup")
                demo.notebook("06_warehouses", "06_warehouses_1")
                demo.notebook("01_full_load")
            ingested = _ingest(demo, postgres, simulator, transactions)
            kinds.update(ingested["kinds"])
            demo.say(f"{kinds.total():,} transactions of {len(kinds)} kinds, rolled back ones among them")
            tables = _proof(demo, postgres, ingested["compared"])
            latency = _look(demo, ingested["began"])
    equal = all(_reconciled(row) for row in tables.values())
    summary = {
        "reconciled": equal, "seconds": round(time.monotonic() - demo.began, 1), "tables": tables,
        "notebooks": demo.notebooks, "transactions": dict(kinds), "latency": latency,
    }  # fmt: skip
    (demo.folder / "summary.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")
    write_report(demo.folder, summary, demo.root / "lib/docs/flow.svg")
    print()
    print(Grid([{"table": name, **row} for name, row in tables.items()]))
    print(f"\n{'equal' if equal else 'NOT EQUAL'}: see {(demo.folder / 'report.html').relative_to(demo.root)}")
    return equal


def main() -> int:
    """Run the demo from the command line; on failure print one line with the reason, and return exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="1.0 is about 100,000 rows")
    parser.add_argument("--transactions", type=int, default=240, help="during ingestion, four a second")
    options = parser.parse_args()
    try:
        root = root_of(find_params())
        folder = root / "runs" / "demo"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)  # as runs make it: PostgreSQL, of another user, must not begin in it
        with _kernel_log(folder / "kernel.log"):
            equal = run(Demo(root, folder), options.scale, options.transactions)
    except KeyboardInterrupt:
        print("demo stopped", file=sys.stderr)
        return 130
    except Exception as e:
        cause = str(e) if isinstance(e, FrazilError) else f"{type(e).__name__}: {e}"
        print(f"demo failed: {' '.join(cause.split())}", file=sys.stderr)
        return 1
    if not equal:
        print("demo failed: source and lake are not equal, see the table above", file=sys.stderr)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
