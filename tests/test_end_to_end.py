"""From a real database to the lake and back: embedded PostgreSQL, the DMS simulator, the flows, reconcile."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dms_writer import NO_RULES
from frazil_demo import shop
from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.simulator import DmsSimulator
from frazil_demo.workload import Workload
from frazil_old.config.settings import resolve
from frazil_old.flows import cdc, full_load, maintenance, reconcile, setup
from frazil_old.flows.workbook import Workbook
from frazil_old.results import raise_if_failed
from helpers import source_is

pytestmark = pytest.mark.spark
PARAMS = Path(__file__).parent.parent / "params"


@pytest.fixture(scope="module")
def world(tmp_path_factory, spark, catalog_options):
    """A small shop with its changes, loaded and merged once; (postgres, simulator, a function that opens the workbook)."""
    root = tmp_path_factory.mktemp("shop")
    shutil.copytree(PARAMS, root / "params")
    with pytest.MonkeyPatch.context() as patch, EmbeddedPostgres(root / "postgres") as postgres:
        patch.setenv("FRAZIL_PARAMS", str(root / "params"))
        source_is(postgres, patch)
        with postgres.connect() as connection:
            shop.make(connection, scale=0.02)

        def book(notebook: str, **parameters) -> Workbook:
            settings = resolve(notebook, {"env": "demo", **parameters}).settings
            return Workbook(replace(settings, catalog_options=catalog_options), progress=lambda text: None)

        with DmsSimulator(
            postgres.connect, PARAMS / "shop.endpoint.json", PARAMS / "shop.mappings.json", root / "runs/demo/s3"
        ) as simulator:
            simulator.full_load()
            for seed in (3, 4, 5):
                with postgres.connect() as connection:
                    Workload(connection, seed).run(50)
                simulator.pump()
                simulator.flush()
            raise_if_failed(setup.create_tables(book("setup")))
            raise_if_failed(full_load.run(book("full_load")))
            yield postgres, simulator, book


def compared(book) -> dict[str, int]:
    done, _ = reconcile.run(book("cdc_merge"))
    raise_if_failed(done)
    return {r.table: r.counts["differing_rows"] for r in done}


def test_load_and_changes_equal_the_source_value_by_value(world):
    _, _, book = world
    raise_if_failed(cdc.run(book("cdc_merge", max_batch_files=1, max_batches=1)))
    done = cdc.run(book("cdc_merge", max_batch_files=1, lane="rowdelta"))
    raise_if_failed(done)
    assert sum(r.counts["changes"] for r in done) > 300
    assert any(r.counts["batches"] > 1 for r in done)
    assert set(compared(book).values()) == {0}


def test_a_second_round_after_maintenance_is_equal_again(world):
    postgres, simulator, book = world
    raise_if_failed(cdc.run(book("cdc_merge")))
    raise_if_failed(maintenance.run(book("maintenance", max_small_files=1, keep_hours=0.0)))
    with postgres.connect() as connection:
        Workload(connection, seed=6).run(60)
    simulator.pump()
    simulator.flush()
    raise_if_failed(cdc.run(book("cdc_merge")))
    assert set(compared(book).values()) == {0}


def test_reconcile_names_a_row_that_differs_with_both_sides(world):
    postgres, _, book = world
    raise_if_failed(cdc.run(book("cdc_merge")))
    with postgres.connect(autocommit=True) as connection:
        key, email = connection.execute("update shop.customers set email = 'x@example.org' where customer_id = "
                                       "(select min(customer_id) from shop.customers) returning customer_id, email").fetchone()  # fmt: skip
    _, samples = reconcile.run(book("cdc_merge", tables=["shop.customers"]))
    (found,) = (s for s in samples if s["column"] == "email")
    assert (found["key"], found["source"]) == (f"customer_id={key}", email)
    assert found["lake"] != email


def test_tables_that_differ_are_named_and_one_of_all_changes_is_not_compared(open_world, tmp_path, monkeypatch):
    w, rows = open_world(), [(1, "a"), (2, None), (3, "c")]
    w.source.rules = NO_RULES
    w.table("log", key=(), without_key="append").source.load("log", *rows)
    w.table("keyed").source.load("keyed", (1, "a"), (2, "b"), (3, "c"))
    w.table("equal").source.load("equal", *rows)
    w.loaded()
    with EmbeddedPostgres(tmp_path / "postgres") as postgres:
        source_is(postgres, monkeypatch)
        with postgres.connect(autocommit=True) as c:
            for table in w.specs:
                c.execute(f"create table {table} (id bigint, v varchar(99))")
                c.cursor().executemany(f"insert into {table} values (%s, %s)", rows)
        done, samples = reconcile.run(Workbook(resolve("cdc_merge", {"env": "w"}).settings, progress=lambda text: None))
    got = {r.table.removeprefix("public."): (r.status, r.counts.get("differing_rows")) for r in done}
    assert got == {"log": ("not compared", None), "keyed": ("differs", 1), "equal": ("equal", 0)}
    assert {(s["table"], s["key"]) for s in samples} == {("public.keyed", "id=2")}
