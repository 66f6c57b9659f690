"""Faults at every request to catalog and storage: after the next run each batch is one snapshot, and the rows are right."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dms_writer import D, I, U, file_name
from faulty_s3 import FaultyS3, lake_options, rest_on_s3
from rest_catalog import FAULTS, RestCatalog
from world import Result, World, house

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]

FOREIGN, ROLLED, GONE = "another commit first", "rolled back first", "gone until the next run"
PATIENCE_S, EACH = 600, (5, 10**6, 10**6)
Case = tuple[int, str, str]  # the number of a request, the only text that counts (or none), and the kind of fault


class Fault:
    """A fault of the request number `at` of a run; with `of`, of the request number `at` among those of this text.

    The text `S3 ` stands for all requests to the store. `act` is what others do just before the request is served, or
    the event that it waits for.
    """

    def __init__(self, kind: str, at: int, of: str = "", act: Callable[[], None] | threading.Event | None = None):
        self.kind, self.at, self.of, self.act, self.reached = kind, at, of, act, threading.Event()
        self.twice = kind in FAULTS and (at + len(kind)) % 2 == 0
        """Whether the client's own repeat of the request meets it, too."""
        self.request, self.number, self.seen, self.shown, self.met = "", -1, 0, 0, False

    def __call__(self, number: int, request: str) -> str | threading.Event | Callable[[], str]:
        """Return what the catalog or the store shall do about a request."""
        if not self.request:
            counts = self.of in ("", request, request[:3])
            self.seen += counts
            if not counts or self.seen <= self.at:
                return ""
            self.request, self.number, self.met = request, number, not callable(self.act)
            self.reached.set()
        if self.kind == GONE and not self.act:
            return "cut before" if request.startswith("S3 ") else ""
        if request != self.request or self.shown > self.twice:
            return ""
        self.shown += 1
        return self._acted if callable(self.act) else self.act or self.kind

    def _acted(self) -> str:
        self.act()
        self.met = True
        return "cut before" if self.kind == GONE else ""

    def __str__(self) -> str:
        return f"{self.kind}{' twice' * self.twice} at request {self.number}: {self.request or 'no such request'}"

    def may_leave(self, file: str, commits: str) -> bool:
        """Return whether a run cannot know that a file is of no use: its commit or its upload had no answer."""
        if self.request.startswith("S3 "):
            return self.kind == GONE or file.endswith(self.request.split("/", 1)[-1])
        return self.kind == GONE or (self.kind in FAULTS and self.request == commits)


@dataclass
class Table:
    """What a table shall hold, the number of its change files, and the files that earlier faults left in it."""

    rows: dict[int, str] = field(default_factory=lambda: {1: "a", 2: "b"})
    files: int = 0
    left: set[str] = field(default_factory=set)


class Trial:
    """A world whose lake and source are on the stage, what its tables shall hold, and what was found wrong, by kind."""

    def __init__(self, stage: Stage, world: World):
        self.stage, self.world = stage, world
        self.tables = {t: Table() for t in world.specs}
        self.wrong: dict[str, list[str]] = {"rows": [], "left": [], "raw": []}
        self.cases = self.met = 0

    def run(self, verb: str, *tables: str, fault: Fault | None = None) -> dict[str, Result]:
        """Do a verb to some tables under a fault."""
        self.stage.open(self.world, fault)
        try:
            return getattr(self.world, verb)(**({"tables": [*tables]} if tables else {}))
        finally:
            self.usual = self.stage.requests()

    def went_well(self, verb: str, *tables: str) -> None:
        """Do a verb without a fault, and insist that it went well."""
        assert not [r for r in self.run(verb, *tables).values() if not r.went_well]

    def change(self, *tables: str) -> None:
        """Write the next change file of some tables."""
        for table in tables:
            t = self.tables[table]
            n, t.files = t.files, t.files + 1
            self.world.source.changes(table, U(1, f"v{n}"), I(100 + n, f"new {n}"), D(99 + n), name=file_name(n))
            t.rows |= {1: f"v{n}", 100 + n: f"new {n}"}
            t.rows.pop(99 + n, None)

    def prepare(self, *tables: str, batches: int = 3) -> None:
        """Load some tables, and apply batches."""
        self.went_well("load", *tables)
        for _ in range(batches):
            self.change(*tables)
            self.went_well("merge", *tables)

    def commits(self, table: str) -> str:
        """Return the text of the requests that commit to a table."""
        return f"POST namespaces/{self.world.space}/tables/{table}"

    def fault(self, table: str, case: Case) -> Fault:
        """Return the fault of a case."""
        at, of, kind = case
        acts = {(FOREIGN, of): self.another_commit(table), (GONE, self.commits(table)): self.stage.catalog.stop}
        return Fault(kind, at, of, acts.get((kind, of)))

    def another_commit(self, table: str) -> Callable[[], None]:
        """Return what another writer does: every second time it inserts a row, else it rewrites all files."""
        name, session, key = self.world.name(table), self.world.session, 1000 + self.cases
        rows, arguments = self.tables[table].rows, f"table => '{name}', options => map('rewrite-all', 'true')"

        def insert() -> None:
            session.sql(f"INSERT INTO {name} VALUES ({key}, 'foreign')")
            rows[key] = "foreign"

        def rewrite() -> None:
            session.sql(f"CALL faulty.system.rewrite_data_files({arguments})")

        return insert if key % 2 else rewrite

    def case(self, verb: str, table: str, fault: Fault) -> None:
        """Do a verb under a fault, then again without one, and note what is wrong."""
        before, new = self.batches(table), verb != "maintain"
        try:
            said = self.run(verb, table, fault=fault)[table]
        except Exception as e:  # whatever a library raised
            said = Result(table, "failed", type(e).__name__, str(e))
            self.wrong["raw"].append(f"{verb} of {table}, {fault}: {type(e).__name__}: {str(e)[:200]}")
        done = len(self.batches(table) - before)
        wrong = [f"it says so, but there are {done} batches"] if said.went_well and done != new else []
        self.cases, self.met = self.cases + 1, self.met + fault.met
        if self.cases % 5 == 0:
            self.world.new_process()
        after = self.run(verb, table)[table]
        wrong += [] if after.went_well else [f"the next run: {after.status} {after.code} {after.note}"]
        done = len(self.batches(table) - before)
        wrong += [f"{done} batches instead of {new:d}"] if done != new else []
        told, left = f"{verb} of {table}, {fault} ({said.status} {said.code})", self.world.leftovers(table)
        self.wrong["rows"] += [f"{told}: {x}" for x in wrong + self.differences(table, left)]
        since = [x for x in left if x.startswith("file ") and x not in self.tables[table].left]
        self.tables[table].left.update(since)
        self.wrong["left"] += [f"{told}: {x}" for x in since if not fault.may_leave(x, self.commits(table))]

    def batches(self, table: str) -> set[int]:
        """Return the ids of a table's snapshots of loads and batches, of which compaction may remove old ones."""
        return {s.snapshot_id for s in self.world.history(table) if house().is_batch(s)}

    def differences(self, table: str, left: list[str] | None = None) -> list[str]:
        """Return what of rows and position differs from what they shall be, and which branches stay."""
        t, w = self.tables[table], self.world
        found, wanted = w.rows(table), list(t.rows.items())
        last, named = w.position(table)["last"], file_name(t.files - 1) if t.files else ""
        return [
            *(f"row {r} too many" for r in found if found.count(r) > wanted.count(r)),
            *(f"row {r} missing" for r in wanted if r not in found),
            *([f"the position is '{last}', not '{named}'"] if last != named else []),
            *(f"{x} stays" for x in (w.leftovers(table) if left is None else left) if x.startswith("branch ")),
        ]


class Stage:
    """A catalog and a store in this process, with one numbering of their requests."""

    def __init__(self, catalog: RestCatalog, s3: FaultyS3, root: Path):
        self.catalog, self.s3, self.root, self.lake = catalog, s3, root, lake_options(catalog, s3)

    def trial(self, space: str, version: int, tables: list[str]) -> Trial:
        """Make a world with empty tables, for each of which a load of two rows lies there."""
        settings = {"catalog": "faulty", "source": f"s3://dms/{space}", "format_version": version}
        world = World(self.root / space, space, self.lake, **settings)
        for table in tables:
            world.table(table).source.load(table, (1, "a"), (2, "b"))
        trial = Trial(self, world)
        made = trial.run("setup").values()
        assert {r.status for r in made} == {"created"}, [r.note for r in made]
        return trial

    def open(self, world: World, fault: Fault | None = None) -> None:
        """Bring the source's new files to the store, and count requests from here on, with a fault."""
        self.s3.mirror(world.root / "source", world.settings["source"])
        self.catalog.expect()
        self.catalog.choose = fault

    def requests(self) -> list[str]:
        """Return the requests since then; there are no faults from here on."""
        found = list(self.catalog.requests)
        if self.catalog.down:
            self.catalog.start(self.catalog.port)
        self.catalog.expect()
        return found


@pytest.fixture(scope="module")
def stage(spark, tmp_path_factory):
    with rest_on_s3("s3://lake/tables", "lake", "dms") as running:
        yield Stage(*running, tmp_path_factory.mktemp("faults"))
    house().forget()


def sample(requests: list[str], commit: str, of_commit: int, others: int, gone: int) -> list[Case]:
    """Return at most so many cases of each commit, of the other requests, and of a catalog or store that goes away."""
    kinds, chosen = (*FAULTS, FOREIGN), random.Random(17)
    commits = [[(n, commit, k) for k in kinds] for n in range(requests.count(commit))]
    rest = [(n, "", k) for n, r in enumerate(requests) if r != commit for k in kinds]
    refused = [(n, "S3 ", GONE) for n in range(sum(r.startswith("S3 ") for r in requests))]
    found = [case for of_one in commits for case in chosen.sample(of_one, min(of_commit, len(of_one)))]
    found += chosen.sample(rest, min(others, len(rest)))
    return found + ([(0, commit, GONE), *chosen.sample(refused, min(gone - 1, len(refused)))] if gone else [])


def in_both_formats(function):
    """Give a fixture the format, and whether all faults are tried or a sample."""
    long = [pytest.param((v, True), id=f"v{v}-all", marks=pytest.mark.torture) for v in (3, 2)]
    return pytest.fixture(scope="module", params=[pytest.param((3, False), id="v3"), *long])(function)


# --- a fault at a request


@in_both_formats
def applied(stage, request):
    """Batches and compactions of one table, each under a fault."""
    version, whole = request.param
    trial = stage.trial(f"b{version}{whole:d}", version, ["t"])
    trial.prepare("t")
    batches = sample(trial.usual, trial.commits("t"), *(EACH if whole else (5, 4, 1)))
    trial.went_well("maintain", "t")
    compactions = sample(trial.usual, trial.commits("t"), *((5, 100, 10) if whole else (1, 0, 0)))
    share = -(-len(batches) // len(compactions))
    for n, compaction in enumerate(compactions):
        for case in batches[n * share :][:share] or batches[:1]:
            trial.change("t")
            trial.case("merge", "t", trial.fault("t", case))
        trial.case("maintain", "t", trial.fault("t", compaction))
    return trial


@in_both_formats
def loaded(stage, request):
    """Loads of many tables, each under a fault."""
    version, whole = request.param
    first = stage.trial(f"m{version}{whole:d}", version, ["t", "u"])
    first.went_well("load", "t")
    first.went_well("load", "u")
    cases = sample(first.usual, first.commits("u"), *(EACH if whole else (1, 3, 0)))
    trial = stage.trial(f"l{version}{whole:d}", version, [f"t{n}" for n in range(len(cases))])
    for n, (at, of, kind) in enumerate(cases):
        trial.case("load", f"t{n}", trial.fault(f"t{n}", (at, of and trial.commits(f"t{n}"), kind)))
    return trial


def nothing_wrong(trial: Trial, kind: str) -> None:
    assert trial.met > trial.cases * 0.8, f"only {trial.met} of {trial.cases} faults were met"
    assert not trial.wrong[kind], "\n".join(trial.wrong[kind])


def test_after_a_fault_of_a_batch_or_a_compaction_the_next_run_makes_all_right(applied):
    nothing_wrong(applied, "rows")


def test_a_batch_or_a_compaction_that_certainly_failed_leaves_no_file(applied):
    nothing_wrong(applied, "left")


def test_a_batch_or_a_compaction_tells_a_fault_as_its_own_error(applied):
    nothing_wrong(applied, "raw")


def test_after_a_fault_of_a_load_the_next_run_makes_all_right(loaded):
    nothing_wrong(loaded, "rows")


def test_a_load_that_certainly_failed_leaves_no_file(loaded):
    nothing_wrong(loaded, "left")


def test_a_file_that_vanishes_between_listing_and_reading_stops_its_batch(stage):
    trial = stage.trial("vanish", 3, ["t"])
    trial.prepare("t", batches=1)
    file = trial.world.root / "source/public/t" / file_name(trial.tables["t"].files)
    trial.change("t")
    trial.change("t")
    text, address = file.read_text(), f"dms/vanish/public/t/{file.name}"

    def vanish() -> None:
        file.unlink()
        stage.s3.delete(f"s3://{address}")

    fault = Fault("vanished", 0, f"S3 GET {address}", vanish)
    said = trial.run("merge", fault=fault)["t"]
    assert fault.met and said.code == "file-vanished" and said.names(file.name), said
    assert [v for k, v in trial.world.rows("t") if k == 1] == ["v0"]
    file.write_text(text)
    trial.went_well("merge", "t")
    assert trial.differences("t") == []


# --- main is rolled back, and two at once

ROLLBACKS = [("merge", 1), ("merge", 2), ("maintain", 1)]
PAIRS = [("merge", "maintain"), ("maintain", "merge")]


@pytest.fixture(scope="module", params=[3, pytest.param(2, marks=pytest.mark.torture)], ids=["v3", "v2"])
def steady(stage, request):
    """Tables with a load, two batches, and a change file that is not applied."""
    tables = [*(f"back_{verb}_{n}" for verb, n in ROLLBACKS), *(f"{a}_{b}" for a, b in PAIRS)]
    trial = stage.trial(f"steady{request.param}", request.param, tables)
    trial.prepare(*tables, batches=2)
    trial.change(*tables)
    return trial


@pytest.mark.parametrize(("verb", "back"), ROLLBACKS)
def test_nothing_is_applied_to_a_state_that_was_rolled_back(steady, verb, back):
    w, table = steady.world, f"back_{verb}_{back}"
    newest = [x.snapshot_id for x in w.history(table) if house().is_batch(x)]
    gone, kept = newest[:back], newest[back:]
    fault = Fault(ROLLED, 0, steady.commits(table), lambda: steady.stage.catalog.roll_back(w.space, table, kept[0]))
    said = steady.run(verb, table, fault=fault)[table]
    assert fault.met, f"{verb} committed nothing"
    assert steady.batches(table) <= {*kept}, f"{fault}: {said}"
    if said.code != "rolled-back":
        said = steady.run("merge", table)[table]
    assert (said.failed, said.code) == (True, "rolled-back"), f"{fault}: {said}"
    w.cure(said)
    steady.went_well("merge", table)
    assert steady.differences(table) == []
    assert 1 <= len(steady.batches(table) - {*kept}) <= back + 1
    assert not steady.batches(table) & {*gone}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_batch_and_a_compaction_at_once_both_come_out_right(steady, first, second):
    table, said, do = f"{first}_{second}", [], getattr(steady.world, second)
    before = steady.batches(table)
    fault = Fault(FOREIGN, 0, steady.commits(table), lambda: said.extend(do(tables=[table]).values()))
    said += steady.run(first, table, fault=fault).values()
    assert fault.met, f"{first} committed nothing"
    assert [r for r in said if not r.went_well] == []
    assert steady.differences(table) == []
    assert len(steady.batches(table) - before) == 1
    assert steady.run("merge", table)[table].status == "unchanged"


# --- other processes, which are killed or come too late

KILLS = [("merge", "after"), ("load", "before"), ("maintain", "after")]
EVERYWHERE = [(v, ("before", "after")[n % 2], 12 * n) for v in ("merge", "load", "maintain") for n in range(15)]


class Child:
    """A process that does a verb to a table of its own under a fault."""

    def __init__(self, stage: Stage, version: int, verb: str, case: Case):
        self.verb, (self.at, self.of, self.kind) = verb, case
        self.trial = stage.trial("_".join((verb, *self.kind.split(), f"{self.at}v{version}")), version, ["t"])
        if verb != "load":
            self.trial.prepare("t", batches=2 if verb == "maintain" else 0)
        self.trial.change(*["t"] * (verb == "merge"))
        self.before = self.trial.batches("t")

    def start(self) -> Fault:
        """Start the process, and return its fault."""
        self.trial.stage.open(self.trial.world)
        self.process = self.trial.world.process(self.verb, tables=["t"])
        kind, of = self.kind.replace("kill", f"kill {self.process.pid}"), self.of and self.trial.commits("t")
        self.fault = Fault(kind, self.at, of, threading.Event() if kind == "hold" else None)
        return self.fault

    def is_made_good(self) -> None:
        """Insist that the next run makes good what the process left."""
        self.trial.went_well(self.verb, "t")
        assert self.trial.differences("t") == [], str(self.fault)
        assert len(self.trial.batches("t") - self.before) == (self.verb != "maintain"), str(self.fault)


def results(stage: Stage, *children: Child) -> list[tuple[Child, dict[str, Result]]]:
    """Let processes run at the same time; once one is held, this process does its work first."""
    faults = [child.start() for child in children]
    stage.catalog.choose = lambda number, request: next((found for f in faults if (found := f(number, request))), "")
    try:
        for child in (c for c in children if c.fault.act):
            assert child.fault.reached.wait(PATIENCE_S), "the process does not commit"
            child.mine = getattr(child.trial.world, child.verb)(tables=["t"])
            child.fault.act.set()
        return [(child, child.process.results(PATIENCE_S)) for child in children]
    finally:
        stage.requests()
        for process in (c.process for c in children if c.process.child.poll() is None):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def ended(stage):
    """Processes that have run at the same time, and what they said: one for each kill, and one that was held."""
    kinds = [*((verb, f"kill {when}") for verb, when in KILLS), ("merge", "hold")]
    return results(stage, *[Child(stage, 3, verb, (0, "commits", kind)) for verb, kind in kinds])


@pytest.mark.parametrize("n", range(len(KILLS)), ids=[" ".join(k) for k in KILLS])
def test_what_a_killed_process_did_counts_once(ended, n):
    child, said = ended[n]
    assert child.fault.met and (said, child.process.child.returncode) == ({}, -signal.SIGKILL)
    child.is_made_good()


def test_of_two_processes_one_applies_the_batch_and_the_other_skips_it(ended):
    child, said = ended[-1]
    assert child.mine["t"].status == "merged"
    assert (said["t"].status, said["t"].code) in (("skipped", "position-moved"), ("unchanged", ""))
    child.is_made_good()


@pytest.mark.torture
@pytest.mark.parametrize("version", [3, 2])
@pytest.mark.parametrize(("verb", "when", "at"), EVERYWHERE)
def test_what_a_process_did_that_was_killed_anywhere_counts_once(stage, version, verb, when, at):
    ((child, said),) = results(stage, Child(stage, version, verb, (at, "", f"kill {when}")))
    assert (said == {}) == child.fault.met, f"{child.fault}: {said}"
    child.is_made_good()
