"""The notebooks through a real Jupyter server: kernels started over HTTP, cells run, interrupts, during a running ingest."""

import contextlib
import json
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from pathlib import Path

import nbformat
import pytest
import yaml

import reference
from dms_writer import I, U
from helpers import World

pytestmark = pytest.mark.notebooks
ROOT = Path(__file__).parent.parent
TOKEN = "for-this-test"


def second(number: int) -> str:
    return f"20240101-10{number // 60:02d}{number % 60:02d}000.csv"


class Kernel:
    """A kernel as JupyterLab has it: made for a notebook by a session, spoken to through its web socket."""

    def __init__(self, port: int, notebook: str):
        import websocket

        self.port = port
        asked = {"path": notebook, "name": notebook, "type": "notebook", "kernel": {"name": "python3"}}
        self.id = self.post("sessions", asked)["kernel"]["id"]
        address = f"ws://127.0.0.1:{port}/api/kernels/{self.id}/channels?token={TOKEN}"
        self.socket = websocket.create_connection(address)
        self.heard: queue.Queue[dict] = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Take messages as they come: a client that does not answer the server's pings is cut off."""
        import websocket

        with contextlib.suppress(websocket.WebSocketException, OSError):  # the server has gone: the tests are over
            while message := self.socket.recv():
                self.heard.put(json.loads(message))

    def post(self, path: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/{path}", json.dumps(body or {}).encode(),
                                         {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"})  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"{}")

    def send(self, code: str, **about) -> str:
        """Begin to run a cell and return the number of the request; `about`: what the client says of the cell."""
        number = uuid.uuid4().hex
        header = {"msg_id": number, "msg_type": "execute_request", "session": "test", "username": "", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": False}
        self.socket.send(json.dumps({"channel": "shell", "header": header, "parent_header": {}, "metadata": about, "content": content}))  # fmt: skip
        return number

    def shown(self, number: str) -> list[dict]:
        """Wait until a cell has ended and return its outputs."""
        found = []
        while True:
            message = self.heard.get(timeout=600)
            if message["parent_header"].get("msg_id") != number or message["channel"] != "iopub":
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return found
            found.append({"type": kind, **content})

    def run(self, code: str, **about) -> list[dict]:
        return self.shown(self.send(code, **about))

    def end(self) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/kernels/{self.id}", headers={"Authorization": f"token {TOKEN}"}, method="DELETE")  # fmt: skip
        urllib.request.urlopen(request, timeout=60).close()

    def interrupt(self) -> None:
        self.post(f"kernels/{self.id}/interrupt")


def text(outputs: list[dict]) -> str:
    """Return what a cell shows; what it prints may come in several pieces."""
    return "".join(o.get("text") or o.get("data", {}).get("text/plain", "") + "\n" for o in outputs)


def errors(outputs: list[dict]) -> list[str]:
    return ["\n".join(o["traceback"]) for o in outputs if o["type"] == "error"]


@pytest.fixture(scope="module")
def world(spark, catalog_options, tmp_path_factory) -> World:
    """A loaded table, and parameters by which other processes find it."""
    w = World(tmp_path_factory.mktemp("jupyter") / "w", "jupyter", catalog_options)
    w.table("t").load("t", (0, "loaded")).loaded()
    (w.root / "params").mkdir()
    for name in ("endpoint.json", "mappings.json"):  # the world writes its own again whenever it is asked
        shutil.copy(w.root / name, w.root / "params")
    quick = (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a session of half a minute ends before thorough compilation pays
    )
    params = {
        "source": "source", "specs": "specs", "endpoint": "params/endpoint.json", "mappings": "params/mappings.json",
        "catalog_options": catalog_options, "query_engines": ["spark"],
        "spark_options": {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1", "spark.driver.extraJavaOptions": quick},
    }  # fmt: skip
    (w.root / "params/demo.yml").write_text(yaml.safe_dump({"common": params}))
    return w


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> int:
    """A Jupyter server with no notebooks of its own; gives its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path_factory.mktemp("server")
    environment = {**os.environ, "FRAZIL_MASTER": "local[1]", "PYTHONPATH": str(ROOT / "lib"), "JUPYTER_CONFIG_DIR": str(home)}  # fmt: skip
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={home}"]  # fmt: skip
    with open(home / "server.log", "wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", *options], env=environment, stdout=log, stderr=log)  # fmt: skip
    try:
        until = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < until, (home / "server.log").read_text()[-2000:]
            time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait(20)


# --- without Spark: what an interrupt and an error of the user do to a cell

STUB = """
import os, threading, time
from types import SimpleNamespace
os.environ["FRAZIL_PARAMS"] = {params!r}
from frazil_old.config.settings import resolve
from frazil_old.results import TableResult
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm
jvm.use = lambda spark: None
cancelled, begun = set(), []
context = SimpleNamespace(
    setJobGroup=lambda group, told: None, cancelJobGroup=cancelled.add,
    statusTracker=lambda: SimpleNamespace(getJobIdsForGroup=lambda group: [1], getJobInfo=lambda job: SimpleNamespace(
        stageIds=[1], status="RUNNING"), getStageInfo=lambda stage: SimpleNamespace(numCompletedTasks=2, numTasks=5)),
)
book = Workbook(resolve("cdc_merge", {{"env": "demo"}}).settings)
book.spark = SimpleNamespace(sparkContext=context)

def job(seconds):
    def work(spec):
        begun.append(spec.source)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if spec.source in cancelled:
                raise RuntimeError("the job was cancelled")
            time.sleep(0.05)
        return TableResult(spec.source, "merged")
    return work
"""


@pytest.fixture(scope="module")
def light(server, tmp_path_factory) -> tuple[Kernel, Path]:
    """A kernel with a workbook of two tables, one after the other, whose Spark jobs are but told of."""
    place, kernel = reference.workspace(tmp_path_factory.mktemp("light")), Kernel(server, "02_cdc_merge.ipynb")
    assert not errors(kernel.run(STUB.format(params=str(place / "params"))))
    return kernel, place


def begun(kernel: Kernel, code: str) -> str:
    """Begin to run a cell and wait until it shows a bar: then a table is at work."""
    cell = kernel.send(code)
    while True:
        message = kernel.heard.get(timeout=60)
        if "<progress" in json.dumps(message.get("content", {})):
            return cell


def test_an_interrupt_lets_end_what_is_under_way_and_begins_nothing_more(light):
    kernel, _ = light
    cell = begun(kernel, "done = book.each_table(job(3))")
    kernel.interrupt()
    shown = kernel.shown(cell)
    assert not errors(shown) and "SIGINT: stopping once the batches in progress are committed" in text(shown)
    assert text(kernel.run("print([r.status for r in done], len(begun))")).strip() == "['merged', 'stopped'] 1"
    assert (
        text(kernel.run("print([r.status for r in book.each_table(job(0))])")).splitlines()[-1]
        == "['merged', 'merged']"
    )


def test_the_second_interrupt_cancels_the_jobs_and_says_so_in_two_lines(light):
    kernel, _ = light
    cell, began = begun(kernel, "done = book.each_table(job(100))"), time.monotonic()
    kernel.interrupt()
    while "stopping once" not in text([{**kernel.heard.get(timeout=60)["content"]}]):
        assert time.monotonic() - began < 60
    kernel.interrupt()
    (told,) = errors(kernel.shown(cell))
    assert told.splitlines() == ["StoppedError: stopped: what was not committed is discarded", "  cure: run the notebook again: it continues from there"]  # fmt: skip
    assert time.monotonic() - began < 60 and "app.person" in text(kernel.run("print(cancelled)"))


def test_an_error_of_the_user_is_two_lines_and_its_trace_is_in_the_log(light):
    kernel, place = light
    (told,) = errors(kernel.run('resolve("cdc_merge", {"env": "dmeo"})'))
    assert [line.split(":")[0] for line in told.splitlines()] == ["ParameterError", "  cure"]
    assert "did you mean 'demo'?" in told
    assert "Traceback" in (place / "runs/demo/frazil.log").read_text()


# --- with Spark: one notebook ingests, another one looks


OPEN = """
import os
os.environ["FRAZIL_PARAMS"] = {params!r}
from frazil_old.config.settings import resolve
from frazil_old.flows import cdc
from frazil_old.flows.workbook import Workbook
from frazil_old.report import notebook_output
run_for_s, trigger_s, max_batch_files = {run_for_s}, 1.0, 1
book = Workbook(resolve("cdc_merge", globals()).settings)
done = cdc.run(book)
notebook_output.results(done)
"""


class Feed:
    """Writes a change file every two seconds, each with a row of its own and one for the row that all of them change."""

    def __init__(self, world: World):
        self.world, self.count, self.ended = world, 0, threading.Event()
        self.thread = threading.Thread(target=self.go)

    def go(self) -> None:
        folder, self.world.specs["aside"] = self.world.root / "source/public", self.world.specs["t"]
        while not self.ended.wait(2):
            number = self.count + 1
            self.world.changes("aside", I(number, "new"), U(0, f"v{number}"), name=second(number))
            os.replace(folder / "aside" / second(number), folder / "t" / second(number))  # a file appears whole
            self.count = number

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()


@pytest.fixture(scope="module")
def ingest(world, server):
    """A notebook that ingests until it is stopped, beside it one that looks; gives their kernels, the cell and what feeds it."""
    looking, ingesting = Kernel(server, "05_explore.ipynb"), Kernel(server, "ingest.ipynb")
    params = str(world.root / "params")
    cell = ingesting.send(OPEN.format(params=params, run_for_s='float("inf")'))
    looking.run(f'import os\nos.environ["FRAZIL_PARAMS"] = {params!r}')
    feed = Feed(world)
    feed.thread.start()
    yield looking, ingesting, cell, feed
    feed.stop()


def moved(world: World, kernel: Kernel) -> int:
    """Wait for the next commit of the kernel that ingests and return it."""
    head, until = world.head("t"), time.monotonic() + 60
    while (now := world.head("t")) == head:
        heard = list(kernel.heard.queue)
        failed = any(m["header"]["msg_type"] == "error" for m in heard)
        assert not failed and time.monotonic() < until, [m["content"] for m in heard[-5:]]
        time.sleep(0.2)
    return now


@pytest.mark.spark
@pytest.mark.slow
def test_the_explore_notebook_shows_all_beside_a_running_ingest_and_can_write_nothing(world, ingest):
    looking, ingesting, *_ = ingest
    cells = [c for c in nbformat.read(ROOT / "notebooks/05_explore.ipynb", as_version=4).cells if c.cell_type == "code"]
    before = moved(world, ingesting)
    outputs = [looking.run(cell.source) for cell in cells]
    assert [e for o in outputs for e in errors(o)] == []
    assert world.head("t") != before, "ingestion stood still meanwhile"
    assert sum("text/html" in o.get("data", {}) for cell in outputs for o in cell) >= 8
    assert any("application/vnd.frazil.result+json" in o.get("data", {}) for o in outputs[-1])
    name = world.name("t")
    for statement in (f"INSERT INTO {name} VALUES (99, 'no')", f"ALTER TABLE {name} CREATE TAG mine", f"DROP TABLE {name}", "CREATE NAMESPACE lake.mine"):  # fmt: skip
        (refused,) = errors(looking.run(f"book.spark.sql({statement!r})"))
        assert re.search("read.?only", refused, re.I), f"{refused[:1500]} … {refused[-500:]}"
    (wrong,) = errors(looking.run('row_history.key_history(book, "public.tt", ["1"])'))
    assert wrong.splitlines() == ["ExploreError: no table 'public.tt'", "  cure: did you mean 'public.t'?"]
    assert "Traceback" in (world.root / "runs/demo/frazil.log").read_text()


@pytest.mark.spark
def test_an_interrupted_ingest_ends_with_what_is_under_way_and_the_next_run_goes_on(world, ingest):
    _, kernel, cell, feed = ingest
    moved(world, kernel)
    kernel.interrupt()
    shown = kernel.shown(cell)
    assert not errors(shown) and "SIGINT: stopping once" in text(shown) and "✔ 1 table merged" in text(shown)
    assert any("changes/s" in str(o.get("data")) for o in shown if o["type"] == "update_display_data")
    last = int(world.position("t")["last"][11:13]) * 60 + int(world.position("t")["last"][13:15])
    assert world.rows("t") == sorted([(0, f"v{last}"), *[(n, "new") for n in range(1, last + 1)]], key=repr)
    assert world.branches("t") == []
    feed.stop()
    assert not errors(kernel.run("max_batch_files, run_for_s = 500, 0.0\ndone = cdc.run(Workbook(resolve('cdc_merge', globals()).settings))"))  # fmt: skip
    assert len(world.rows("t")) == 1 + feed.count


ENDLESS = "select count(*) from range(1000000000000000) where sqrt(id) < 0"
WATCH = """
import threading, time
from pathlib import Path
def tell():
    while not book.spark.sparkContext.statusTracker().getActiveStageIds():
        time.sleep(0.1)
    Path({mark!r}).touch()
threading.Thread(target=tell).start()
"""
STILL = """
until = time.monotonic() + 30
while (still := book.spark.sparkContext.statusTracker().getActiveStageIds()) and time.monotonic() < until:
    time.sleep(0.1)
print('still at work:', list(still), 'rows:', len(book.first_rows('public.t')))
"""


def interrupted(kernel: Kernel, mark: Path, code: str) -> list[dict]:
    """Run a cell, interrupt it once Spark is at work on it, and return what it shows."""
    kernel.run(WATCH.format(mark=str(mark)))
    cell, until = kernel.send(code), time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < until, [m["content"] for m in kernel.heard.queue]
        time.sleep(0.1)
    kernel.interrupt()
    return kernel.shown(cell)


CUT_OFF = {"KeyboardInterrupt", "Py4JNetworkError"}
"""What an interrupted cell shows: the second where pyspark's own tidying up finds the connection closed by the first."""


@pytest.mark.spark
def test_an_interrupted_query_ends_in_spark_too_and_the_next_cell_works(world, ingest, tmp_path):
    """A query of the library's and one of the user's own."""
    looking, *_ = ingest
    setup = "from frazil_old.config.settings import resolve\nfrom frazil_old.flows import explore\nfrom frazil_old.flows.workbook import Workbook\nbook = Workbook(resolve('explore', {}).settings)\nbook.spark"
    slow = "import frazil_old.flows.explore as looked\nread = looked.history.read\nlooked.history.read = lambda *given: read(*given).join(book.spark.range(10**13).selectExpr('id n').where('sqrt(n) < 0'))"
    before = world.rows("t"), world.head("t"), world.position("t")
    assert not errors(looking.run(setup))
    looking.run(slow)
    queries = {"own": f"book.spark.sql({ENDLESS!r}).collect()", "library": "explore.difference(book, 'public.t', 'oldest', 'newest')"}  # fmt: skip
    for name, query in queries.items():
        shown = interrupted(looking, tmp_path / name, query)
        assert errors(shown) and {o["ename"] for o in shown if o["type"] == "error"} <= CUT_OFF, errors(shown)
        assert text(looking.run(STILL)).splitlines()[-1] == f"still at work: [] rows: {min(5, len(before[0]))}"
    looking.run("looked.history.read = read")
    assert "Changed" in text(looking.run(queries["library"]))
    assert (world.rows("t"), world.head("t"), world.position("t")) == before
