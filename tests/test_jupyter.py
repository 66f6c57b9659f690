"""Notebooks in kernels as Jupyter starts them: cell by cell, interrupted, one beside a running ingest."""

from __future__ import annotations

import contextlib
import gzip
import os
import queue
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel

from dms_writer import LOAD, I, U
from world import World, house

pytestmark = [pytest.mark.notebooks, pytest.mark.spark]
NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def second(number: int) -> str:
    return f"20240101-10{number // 60:02d}{number % 60:02d}000.csv"


class Kernel:
    """A kernel with a notebook, as a Jupyter server starts it; cells are sent one by one."""

    def __init__(self, notebook: str, **parameters):
        environment = {**os.environ, "JPY_SESSION_NAME": f"{notebook}.ipynb"}
        self.manager, self.client = start_new_kernel(kernel_name="python3", env=environment)
        self.cells, self.heard = [], []
        self.over, self.listener = threading.Event(), threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        for cell in nbformat.read(NOTEBOOKS / f"{notebook}.ipynb", as_version=4).cells:
            if cell.cell_type == "code":
                self.cells.append(cell.source)
                if "parameters" in cell.metadata.get("tags", []):
                    self.cells += [f"{name} = {value}" for name, value in {"env": "'w'", **parameters}.items()]

    def send(self, code: str) -> str:
        """Begin to run a cell and return the number of the request."""
        return self.client.execute(code, stop_on_error=False)

    def listen(self) -> None:
        """Take messages as they come: of a client that does not, some get lost."""
        while not self.over.is_set():
            with contextlib.suppress(queue.Empty):
                self.heard.append(self.client.get_iopub_msg(timeout=1))

    def wait(self, what: Callable[[dict], bool], seconds: float = 300.0) -> None:
        """Wait for a message."""
        until = time.monotonic() + seconds
        while not any(map(what, list(self.heard))):
            assert time.monotonic() < until, self.heard[-5:]
            time.sleep(0.1)

    def shown(self, number: str) -> list[dict]:
        """Wait until a cell has ended and return its outputs."""

        def of_cell(m: dict) -> bool:
            return m["parent_header"].get("msg_id") == number

        self.wait(lambda m: of_cell(m) and m["content"].get("execution_state") == "idle")
        return [{"type": m["msg_type"], **m["content"]} for m in self.heard if of_cell(m) and m["msg_type"] != "status"]

    def run(self, code: str) -> list[dict]:
        return self.shown(self.send(code))

    def open(self) -> None:
        """Run the first cells, up to the one that opens the environment."""
        opened = next(n for n, cell in enumerate(self.cells) if cell.startswith("book ="))
        assert not errors([o for cell in self.cells[: opened + 1] for o in self.run(cell)])

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def end(self) -> None:
        self.over.set()
        self.listener.join()
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def text(outputs: list[dict]) -> str:
    """Return what a cell shows; what it prints may come in several pieces."""
    return "".join(o.get("text") or o.get("data", {}).get("text/plain", "") + "\n" for o in outputs)


def errors(outputs: list[dict]) -> list[str]:
    return ["\n".join(o["traceback"]) for o in outputs if o["type"] == "error"]


@pytest.fixture(scope="module")
def world(shared_world):
    """A world with a loaded table."""
    options = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}
    w = shared_world("jupyter", spark_options=options)
    w.table("t").source.load("t", (0, "loaded"))
    house().prepare(w.loaded())
    return w


class Feed:
    """Writes a change file every two seconds, each with a row of its own and one for the row that all of them change."""

    def __init__(self, world: World):
        self.world, self.count, self.ended = world, 0, threading.Event()
        self.thread = threading.Thread(target=self.go)

    def go(self) -> None:
        self.world.specs["aside"] = self.world.specs["t"]
        while not self.ended.wait(2):
            number = self.count + 1
            file = self.world.source.changes("aside", I(number, "new"), U(0, f"v{number}"), name=second(number))
            os.replace(file, self.world.source.path("t", file.name))  # a file appears whole
            self.count = number

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()


@pytest.fixture(scope="module")
def ingest(world):
    """A kernel that ingests until it is stopped, beside it one that looks; gives them, the cells that were sent and what feeds them."""
    limits = {"run_for_s": 'float("inf")', "trigger_s": 1.0, "max_batch_files": 1, "max_batches": 0}
    looking, ingesting = Kernel("05_explore"), Kernel("02_cdc_merge", **limits)
    sent = [ingesting.send(cell) for cell in ingesting.cells]
    feed = Feed(world)
    feed.thread.start()
    yield looking, ingesting, sent, feed
    feed.stop()
    looking.end()
    ingesting.end()


def moved(world: World) -> str:
    """Wait for the next commit and return the file of metadata that it made."""
    head, until = world.metadata_file("t"), time.monotonic() + 90
    while (now := world.metadata_file("t")) == head:
        assert time.monotonic() < until, "nothing is committed"
        time.sleep(0.2)
    return now


@pytest.mark.slow
def test_the_explore_notebook_shows_all_beside_a_running_ingest_and_can_write_nothing(world, ingest):
    looking, *_ = ingest
    before = moved(world)
    outputs = [looking.run(cell) for cell in looking.cells]
    assert [e for o in outputs for e in errors(o)] == []
    assert world.metadata_file("t") != before, "ingestion stood still meanwhile"
    assert sum("text/html" in o.get("data", {}) for cell in outputs for o in cell) >= 8
    assert any("application/vnd.frazil.result+json" in o.get("data", {}) for o in outputs[-1])
    name = world.name("t")
    for statement in (f"INSERT INTO {name} VALUES (99, 'no')", f"ALTER TABLE {name} CREATE TAG mine", f"DROP TABLE {name}", "CREATE NAMESPACE lake.mine"):  # fmt: skip
        (refused,) = errors(looking.run(f"book.spark.sql({statement!r})"))
        assert re.search("read.?only", refused, re.I), f"{refused[:1500]} … {refused[-500:]}"
    (wrong,) = errors(looking.run('row_history.key_history(book, "public.tt", ["1"])'))
    assert wrong.splitlines() == ["ExploreError: no table 'public.tt'", "  cure: did you mean 'public.t'?"]
    assert "Traceback" in (world.root / "runs/w/frazil.log").read_text()


def test_an_interrupted_ingest_ends_with_what_is_under_way_and_the_next_run_goes_on(world, ingest):
    _, kernel, sent, feed = ingest
    moved(world)
    kernel.interrupt()
    shown = [o for number in sent for o in kernel.shown(number)]
    assert not errors(shown) and "SIGINT: stopping once" in text(shown) and "✔ 1 table merged" in text(shown)
    assert any("changes/s" in str(o.get("data")) for o in shown if o["type"] == "update_display_data")
    last = int(world.position("t")["last"][11:13]) * 60 + int(world.position("t")["last"][13:15])
    assert world.rows("t") == sorted([(0, f"v{last}"), *[(n, "new") for n in range(1, last + 1)]], key=repr)
    assert [x for x in world.leftovers("t") if "branch" in x] == []
    feed.stop()
    again = [cell.replace('float("inf")', "0.0") for cell in kernel.cells]
    assert [e for cell in again for e in errors(kernel.run(cell))] == []
    assert len(world.rows("t")) == 1 + feed.count


def test_the_second_interrupt_discards_what_is_not_committed_and_says_so_in_two_lines(open_world):
    w = open_world(target={"CompressionType": "GZIP"}).table("long")
    w.source.write("long", f"{LOAD}.gz", gzip.compress(b"2024-01-01 09:59:00.000000,1,a,,\n" * 10_000_000, 1))
    assert w.setup()["long"].status == "created"
    kernel = Kernel("01_full_load")
    try:
        kernel.open()
        cell = kernel.send("done = full_load.run(book)")
        kernel.wait(lambda m: "<progress" in str(m["content"]))
        began = time.monotonic()
        for _ in range(2):
            kernel.interrupt()
            time.sleep(2)
        shown = kernel.shown(cell)
        (told,) = errors(shown)
        assert "SIGINT: stopping once the batches in progress are committed" in text(shown)
        assert told.splitlines() == ["StoppedError: stopped: what was not committed is discarded", "  cure: run the notebook again: it continues from there"]  # fmt: skip
        assert time.monotonic() - began < 60 and (w.rows("long"), w.batches("long")) == ([], 0)
    finally:
        kernel.end()
