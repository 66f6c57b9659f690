"""A mistake in a first spec: 00_setup names it where files show it, and a corrected spec costs nothing while no load is applied."""

import pytest

from frazil_old.cli import main
from helpers import ONE_COMMIT, I, World
from lake_reader import duckdb_rows, lake_rows, lake_tables

pytestmark = pytest.mark.spark
RIGHT = ("id INT8", "code WSTRING(9)", "status WSTRING(10)")
WRONG = {
    "lacks": ("id INT8", "code WSTRING(9)"),
    "named": ("id INT8", "cod WSTRING(9)", "status WSTRING(10)"),
    "typed": ("id INT8", "code INT4", "status WSTRING(10)"),
    "many": ("id INT8", "code WSTRING(9)", "status WSTRING(10)", "more DATE"),
}
ROWS = [(1, "x1", "open"), (2, "x2", None)]


def _parquet(w: World, table: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids, codes, states = zip(*ROWS, strict=True)
    columns = {"Op": ["I"] * 2, "ts": [ONE_COMMIT] * 2, "id": ids, "code": codes, "status": states}
    file = w.root / f"source/public/{table}/LOAD00000001.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), file)


@pytest.mark.parametrize("form", ["header", "plain", "parquet"])
def test_a_mistake_in_a_first_spec_is_named_and_its_correction_costs_nothing(new_world, form, catalog_options):
    settings = {"header": {"AddColumnName": True}, "plain": {}, "parquet": {"DataFormat": "parquet"}}[form]
    w = new_world(IncludeOpForFullLoad=True, **settings)
    w.rules = {"rules": []}
    for t in (*WRONG, "fine"):
        w.table(t, *RIGHT)
        _parquet(w, t) if form == "parquet" else w.load(t, *ROWS)
    for t, columns in WRONG.items():
        w.table(t, *columns)
    first = w.setup()
    assert first["fine"].status == "created"
    seen = {"lacks", "named", "many"} if form != "plain" else set()
    assert {t for t, r in first.items() if r.failed and r.decision} == seen
    for t in seen:
        assert f"public/{t}/LOAD00000001" in first[t].note and f"{t}.yml" in first[t].note
        assert f"{w.space}.{t}" not in lake_tables(catalog_options)
        assert {"lacks": "status", "named": "code", "many": "more"}[t] in first[t].note
    unseen = {"named"} if form == "plain" else set()  # nothing names a column there
    loaded = w.full_load(tables=[f"public.{t}" for t in ("fine", *WRONG) if t not in unseen])
    assert loaded["fine"].status == "loaded" and all(loaded[t].failed for t in WRONG if t not in unseen)

    for t in WRONG:
        w.table(t, *RIGHT)
    again = w.setup()
    assert {t: r.status for t, r in again.items()} == {"fine": "exists"} | dict.fromkeys(WRONG, "created")
    assert {t: r.status for t, r in w.full_load().items()} == {"fine": "unchanged"} | dict.fromkeys(WRONG, "loaded")
    for t in (*WRONG, "fine"):
        assert lake_rows(catalog_options, f"{w.space}.{t}") == ROWS
    assert {r.status for r in w.setup().values()} == {"exists"}


def test_a_corrected_spec_keeps_its_place_and_a_loaded_table_is_never_made_anew(world, catalog_options):
    w = world.table("t", "id INT8", "v INT4").table("u")
    w.load("u", (1, "a")).setup()
    w.full_load()  # t is empty: its changes are applied as they come
    w.changes("t", I(1, "text"))
    assert w.merge()["t"].failed
    w.table("t", "id INT8", "v WSTRING(9)").table("u", "id INT8", "v INT4")
    done = w.setup()
    assert (done["t"].status, done["u"].status) == ("created", "failed")
    w.merge()
    assert (lake_rows(catalog_options, f"{w.space}.t"), duckdb_rows(catalog_options, f"{w.space}.u")) == (
        [(1, "text")],
        [(1, "a")],
    )


def test_one_table_is_dropped_with_its_files_and_nothing_else(world, monkeypatch, capsys, catalog_options):
    w = world.table("t").table("u").load("t", (1, "a")).load("u", (1, "a")).loaded()
    w.environment(monkeypatch)
    down = ["table", "drop", "public.t", "--env", "w"]
    assert main([*down, "--yes"]) != 0  # nothing was listed yet
    assert main(down) == 0
    listed = capsys.readouterr().out
    assert f"table {w.space}.t" in listed and f"{w.space}/u" not in listed and "namespace" not in listed.split("\n")[1]
    assert main([*down, "--yes"]) == 0
    assert f"{w.space}.t" not in lake_tables(catalog_options)
    assert duckdb_rows(catalog_options, f"{w.space}.u") == [(1, "a")]
    assert main(["table", "drop", "public.none", "--env", "w"]) != 0
    assert {t: r.status for t, r in w.setup().items()} == {"t": "created", "u": "exists"}
    assert w.full_load()["t"].status == "loaded"
    assert lake_rows(catalog_options, f"{w.space}.t") == [(1, "a")]
