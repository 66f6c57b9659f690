"""The notebook of warehouses and what it shows: on DuckDB, and on a Snowflake that answers as a test says."""

import json
import subprocess
import sys
import time
from pathlib import Path

import papermill
import pytest
from fake_driver import SERVERS, FakeServer
from frazil_old.config.settings import resolve
from frazil_old.config.warehouses import declared
from frazil_old.flows import warehouses
from frazil_old.flows.workbook import Workbook
from frazil_old.report import notebook_output
from frazil_old.report.notebook_output import Statements, read_record
from frazil_old.warehouses.family import LakeTable
from frazil_old.warehouses.refresher import Refresher, State
from warehouse_world import ENTRIES, WarehouseWorld

NOTEBOOK = Path(__file__).parent.parent / "notebooks/06_warehouses.ipynb"
DUCK = {"engine": "duckdb", "database": "readers.duckdb"}
SNOW = {"engine": "snowflake", **ENTRIES}


def book_of(**cell) -> Workbook:
    return Workbook(resolve("warehouses", {"env": "wh", **cell}).settings, lambda text: None)


@pytest.mark.notebooks
def test_the_notebook_sets_duckdb_up_and_shows_what_it_serves_before_and_after_a_refresh(tmp_path, monkeypatch):
    world = WarehouseWorld(tmp_path, monkeypatch, duck=DUCK)

    def run(**parameters) -> dict:
        given = {"env": "wh", **parameters}
        papermill.execute_notebook(NOTEBOOK, tmp_path / "out.ipynb", given, kernel_name="python3", progress_bar=False)
        return read_record(tmp_path / "out.ipynb")

    assert run()["status"] == "ok"
    world.commit("orders", 2)
    told = run()
    assert told["tables"]["duck: public.orders"]["status"] == "served"
    text = (tmp_path / "out.ipynb").read_text()
    assert "1 served; 1 late" in text and "data:image/png" in text
    assert (tmp_path / "runs/wh/charts/served.png").exists()


def test_a_dry_run_makes_nothing_and_connects_only_to_look(tmp_path, monkeypatch):
    WarehouseWorld(tmp_path, monkeypatch, snow=SNOW)
    SERVERS["fake"] = FakeServer()
    book = book_of(dry_run=True)
    made = warehouses.set_up(book, book.settings.only_plans)
    assert {r["status"] for r in made} == {"to be made, if it is not there"} and len(made) == 5
    assert SERVERS["fake"].sent == []
    warehouses.set_up(book, False)
    assert {r["status"] for r in warehouses.set_up(book, True)} == {"made earlier"}
    assert not [s for s in SERVERS["fake"].sent if s.endswith("REFRESH")]
    del SERVERS["fake"]


def test_a_warehouse_in_trouble_is_a_row_and_the_others_are_done(tmp_path, monkeypatch):
    WarehouseWorld(tmp_path, monkeypatch, duck=DUCK, snow={**SNOW, "connect": "no_such_driver:connect"})
    book = book_of()
    made, looks = warehouses.set_up(book, False), warehouses.looks(book, True)
    assert [r["status"] for r in looks if r["warehouse"] == "duck"] == ["served", "served"]
    (row,) = [r for r in looks if r["warehouse"] == "snow"]
    assert row["status"] == "failed" and "no_such_driver" in row["why"]
    with pytest.raises(Exception, match="1 of 3 tables failed\nsnow: the driver no_such_driver"):
        notebook_output.finish("warehouses", warehouses.results(made, looks))
    shown = notebook_output.warehouses(looks, "warehouse", "table", "status", "why")
    assert repr(shown).startswith("✘ 2 warehouses; 2 served; 1 failed")


def test_the_overview_says_how_a_commit_is_seen_and_names_tables_that_a_warehouse_cannot_read(tmp_path, monkeypatch):
    athena = {"engine": "athena", "region": "eu-west-1"}
    world = WarehouseWorld(tmp_path, monkeypatch, duck=DUCK, lake=athena, auto={**SNOW, "refresh": "auto"})
    metadata = Path(world.catalog.load_table("shop.items").metadata_location.removeprefix("file://"))
    facts = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({**facts, "format-version": 3, "next-row-id": 0}))
    rows = {r["warehouse"]: r for r in warehouses.overview(book_of())}
    sees = {name: r["sees_a_commit"] for name, r in rows.items()}
    assert sees == {"duck": "after a refresh", "lake": "at the next query", "auto": "when it refreshes by itself"}
    assert {n: r["why"] for n, r in rows.items()} == {
        "duck": "",
        "lake": "cannot read format v3 of shop.items",
        "auto": "",
    }


def test_a_warehouse_is_shown_before_any_of_its_tables_is_in_the_lake(tmp_path, monkeypatch):
    world = WarehouseWorld(tmp_path, monkeypatch, duck=DUCK)
    for table in ("orders", "items"):
        world.catalog.drop_table(f"shop.{table}")
    book = book_of()
    row = {"warehouse": "duck", "status": "failed", "why": "none of its tables is in the lake; run 00_setup first"}
    assert [warehouses.overview(book), warehouses.set_up(book, False), warehouses.looks(book, True)] == [[row]] * 3


def test_without_warehouses_the_notebook_says_in_one_line_what_to_do(tmp_path, monkeypatch):
    WarehouseWorld(tmp_path, monkeypatch)
    book = book_of()
    rows = warehouses.overview(book)
    told = repr(notebook_output.warehouses(rows, env="wh"))
    assert (
        told
        == "· no warehouse is declared: to have one, add a section `warehouses` to params/wh.yml, as params/README.md shows"
    )
    assert (
        warehouses.needs(book),
        warehouses.set_up(book, False),
        warehouses.looks(book, True),
        warehouses.history(book),
    ) == ([], [], [], [])
    assert notebook_output.finish("warehouses", warehouses.results([], [])).facts["status"] == "ok"


def test_statements_are_shown_in_order_and_of_many_all_but_two_are_folded(tmp_path, monkeypatch):
    WarehouseWorld(tmp_path, monkeypatch, duck=DUCK, snow=SNOW)
    shown = Statements(warehouses.needs(book_of()))
    assert [k for k in shown.groups if k[0] == "snow"] == [
        ("snow", w) for w in ("by you", "apply", "after commits", "read back")
    ]
    assert repr(shown).index("CREATE CATALOG INTEGRATION") < repr(shown).index("CREATE ICEBERG TABLE")
    page = shown._repr_html_()
    assert page.count("<summary>3 more</summary>") == 1 and page.count("CREATE ICEBERG TABLE") == 2
    assert "<script>" not in Statements([{"warehouse": "<script>", "when": "apply", "what": "<script>"}])._repr_html_()


def test_another_process_reads_the_duckdb_file_while_a_run_goes_on(tmp_path, monkeypatch):
    world = WarehouseWorld(tmp_path, monkeypatch, duck=DUCK)
    book = book_of()
    warehouses.set_up(book, False)
    world.commit("orders", 2)
    table, seen = world.catalog.load_table("shop.orders"), []
    state = State(table.current_snapshot().snapshot_id, 1, table.metadata_location)
    refresher = Refresher(declared(book.settings)["duck"], lambda t: state, seen.append)
    refresher.committed(LakeTable("public.orders", "shop.orders"))
    end = time.monotonic() + 60
    while (not seen or refresher._connection) and time.monotonic() < end:
        time.sleep(0.05)
    code = f"import duckdb; duckdb.connect({str(tmp_path / 'readers.duckdb')!r}, read_only=True); print('read')"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (seen[0].status, told.stdout) == ("served", "read\n"), told.stderr
    refresher.end()
    assert refresher.join() == []


def test_a_reader_of_the_catalog_needs_nothing_made_and_is_not_called_undeclared(tmp_path, monkeypatch):
    WarehouseWorld(tmp_path, monkeypatch, lake={"engine": "athena", "region": "eu-west-1"})
    book = book_of()
    assert repr(notebook_output.warehouses(warehouses.overview(book), env="wh")).startswith("✔ 1 warehouse")
    assert repr(notebook_output.warehouses(warehouses.set_up(book, True))) == "· nothing to do"
