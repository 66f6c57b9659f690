"""The notebook of warehouses and what it shows: on DuckDB, and on a Snowflake that answers as a test says."""

import json
from pathlib import Path

import papermill
import pytest

from fake_driver import SERVERS, FakeServer
from frazil_old.config.settings import resolve
from frazil_old.flows import warehouses
from frazil_old.flows.workbook import Workbook
from frazil_old.report import notebook_output
from frazil_old.report.notebook_output import read_record
from warehouse_world import ENTRIES, WarehouseWorld

NOTEBOOK = Path(__file__).parent.parent / "notebooks/06_warehouses.ipynb"
DUCK = {"engine": "duckdb", "database": "readers.duckdb"}
SNOW = {"engine": "snowflake", **ENTRIES}


def book_of(**cell) -> Workbook:
    return Workbook(resolve("warehouses", {"env": "wh", **cell}).settings, lambda text: None)


@pytest.mark.notebooks
def test_the_notebook_sets_duckdb_up_and_shows_what_it_serves(tmp_path, monkeypatch):
    world = WarehouseWorld(tmp_path, monkeypatch, duck=DUCK)
    for expected in ("2 served", "1 served; 1 late"):
        papermill.execute_notebook(NOTEBOOK, tmp_path / "out.ipynb", {"env": "wh"}, kernel_name="python3", progress_bar=False)  # fmt: skip
        assert read_record(tmp_path / "out.ipynb")["tables"]["duck: public.orders"]["status"] == "served"
        assert expected in (tmp_path / "out.ipynb").read_text()
        world.commit("orders", 2)


def test_statements_are_shown_in_order_made_once_and_never_in_a_dry_run(tmp_path, monkeypatch):
    WarehouseWorld(tmp_path, monkeypatch, snow=SNOW)
    monkeypatch.setitem(SERVERS, "fake", FakeServer())
    sent = SERVERS["fake"].sent
    book = book_of(dry_run=True)
    shown = repr(notebook_output.Statements(warehouses.needs(book)))
    order = ["CREATE CATALOG", "CREATE EXTERNAL", "CREATE SCHEMA", "CREATE ICEBERG"]
    assert [shown.index(word) for word in order] == sorted(shown.index(word) for word in order)
    warehouses.set_up(book, book.settings.only_plans)
    assert sent == []
    warehouses.set_up(book, False)
    made = [s for s in sent if s.startswith("CREATE")]
    warehouses.set_up(book, False)
    assert len(made) == 5 and [s for s in sent if s.startswith("CREATE")] == made


def test_the_overview_says_how_a_commit_is_seen_and_names_tables_that_a_warehouse_cannot_read(tmp_path, monkeypatch):
    athena = {"engine": "athena", "region": "eu-west-1"}
    world = WarehouseWorld(tmp_path, monkeypatch, duck=DUCK, lake=athena, auto={**SNOW, "refresh": "auto"})
    metadata = Path(world.catalog.load_table("shop.items").metadata_location.removeprefix("file://"))
    facts = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({**facts, "format-version": 3, "next-row-id": 0}))
    rows = {r["warehouse"]: r for r in warehouses.overview(book_of())}
    sees = {name: r["sees_a_commit"] for name, r in rows.items()}
    assert sees == {"duck": "after a refresh", "lake": "at the next query", "auto": "when it refreshes by itself"}
    assert {n: r["why"] for n, r in rows.items()} == {"duck": "", "lake": "cannot read format v3 of shop.items", "auto": ""}  # fmt: skip


def test_without_warehouses_or_tables_the_notebook_says_what_to_do(tmp_path, monkeypatch):
    world = WarehouseWorld(tmp_path, monkeypatch, duck=DUCK)
    for table in ("orders", "items"):
        world.catalog.drop_table(f"shop.{table}")
    (row,) = warehouses.looks(book_of(), True)
    assert row["status"] == "failed" and "00_setup" in row["why"]
    world.file.write_text(world.file.read_text().split("warehouses:")[0])
    book = book_of()
    assert warehouses.looks(book, True) == [] and "params/wh.yml" in repr(notebook_output.warehouses(warehouses.overview(book), env="wh"))  # fmt: skip
