"""One failed answer of a REST catalog fails no run; if it goes on, the message names table and address, and no branch stays."""

import pytest

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.flows import cdc, maintenance
from frazil_old.lake import compaction, snapshot_expiry
from helpers import D, I, U, World, slow
from rest_catalog import FAULTS, RestCatalog

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    with RestCatalog(tmp_path_factory.mktemp("rest")) as running:
        yield running


@pytest.fixture
def world(spark, catalog, tmp_path, request):
    """A table of two rows in a catalog of its own, and a batch that was applied by the lane."""
    lane = getattr(request, "param", "merge")
    options = {"type": "rest", "uri": catalog.uri, "warehouse": str(catalog.folder), "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", "rest-metrics-reporting-enabled": "false"}  # fmt: skip
    w = World(tmp_path / "w", f"s{abs(hash(request.node.name)) % 10**6}", options)
    w.given = {"catalog": "faulty", "query_engines": ["athena"], "lane": lane}
    catalog.expect()
    w.table("t").load("t", (1, "a"), (2, "b"))
    w.given.pop("lane")
    w.loaded()
    w.lane, w.batches = lane, 0
    return w


def batch(world, book=None) -> dict:
    """Add a change file, apply it, and return what came of it."""
    world.batches += 1
    n = world.batches
    world.changes("t", U(1, f"v{n}"), I(100 + n, "new"), D(99 + n), name=f"20240101-10{n // 60:02d}{n % 60:02d}000.csv")
    (result,) = cdc.run(book or world.book(lane=world.lane))
    return result


def rows(world) -> list[tuple]:
    return sorted(tuple(r) for r in world.spark.table(world.name("t")).collect())


@pytest.mark.parametrize("world", [slow("merge"), "rowdelta"], indirect=True)
def test_a_fault_at_any_request_of_a_batch_fails_no_batch(world, catalog):
    book = world.book(lane=world.lane)
    assert batch(world, book).status == "merged"
    catalog.expect()
    assert batch(world, book).status == "merged"
    usual = list(catalog.requests)
    commits = [i for i, r in enumerate(usual) if r.startswith("POST")]
    assert commits
    looks = [i for i in range(len(usual)) if i not in commits][::6]
    cases = [*((i, f) for i in commits for f in FAULTS), *((i, FAULTS[n % 4]) for n, i in enumerate(looks))]
    for at, fault in cases:
        catalog.expect(**{f"_{at}": fault})
        result = batch(world, book)
        assert (result.status, result.counts["changes"]) == ("merged", 3), (usual[at], fault, result.note)
        assert world.history("t")[0].summary()["frazil.lane"] == world.lane, (usual[at], fault)
    catalog.expect()
    assert rows(world) == [(1, f"v{world.batches}"), (2, "b"), (100 + world.batches, "new")]
    assert world.branches("t") == []
    assert len(world.history("t")) == 2 + world.batches, "each batch is one snapshot"


@pytest.mark.slow
def test_a_fault_at_any_commit_of_a_load_or_of_maintenance_fails_neither(world, catalog, monkeypatch):
    monkeypatch.setattr(compaction, "WAIT_FOR_WRITER_S", 0.1)
    monkeypatch.setattr(snapshot_expiry, "LEAST_SNAPSHOTS", 1)

    def load():
        return world.full_load(on_changed_load="replay")["t"]

    def maintain():
        asked = {"dry_run": False, "max_small_files": 0, "keep_hours": 0.0}
        (result,) = maintenance.run(world.book(MaintenanceSettings, **asked))
        return result

    for work, status in ((load, "replayed"), (maintain, "maintained")):
        batch(world), batch(world)
        catalog.expect()
        assert work().status == status
        commits = [i for i, r in enumerate(catalog.requests) if r.startswith("POST")]
        for number, at in enumerate(commits):
            catalog.expect()
            assert not (batch(world).failed or batch(world).failed)
            expected = rows(world)
            catalog.expect(**{f"_{at}": FAULTS[number % 4]})
            result = work()
            assert not result.failed, (work.__name__, FAULTS[number % 4], result.note)
            catalog.expect()
            assert work is load or rows(world) == expected
    world.merged()
    assert rows(world) == [(1, f"v{world.batches}"), (2, "b"), (100 + world.batches, "new")] and not world.branches("t")


@pytest.mark.parametrize("world", ["merge", "rowdelta"], indirect=True)
def test_a_catalog_that_stays_away_is_named_and_no_branch_stays_when_it_is_back(world, catalog, monkeypatch):
    from frazil_old.lake import commit_retry, jvm

    monkeypatch.setattr(commit_retry, "PAUSES_S", (0.0, 0.0, 0.0))
    book = world.book(lane=world.lane)
    assert batch(world, book).status == "merged"
    real = jvm.fork if world.lane == "merge" else jvm.load_table

    def then_gone(*arguments):
        found = real(*arguments)
        if not catalog.down:
            catalog.stop()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(jvm, "fork" if world.lane == "merge" else "load_table", then_gone)
        result = batch(world, book)
    assert (
        result.failed and world.name("t") in result.note and catalog.uri in result.note and "run again" in result.note
    )
    catalog.start(catalog.port)
    assert batch(world, book).status == "merged"
    assert world.branches("t") == [] and rows(world) == [(1, "v3"), (2, "b"), (103, "new")]
