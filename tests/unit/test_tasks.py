"""Spark's tasks do what this process does: a load by tasks has the same rows, bad rows and counts."""

from __future__ import annotations

import json

import pytest

import table_reader
from frazil.iceberg.side_files import stored
from frazil.pipeline import lake as lakes

COLUMNS = {"id": "INT8", "region": "STRING(9)", "price": "NUMERIC(9,2)", "secret": "STRING(9)"}
SPECS = {
    "key": {"key": ["id"], "partition": ["region"], "sort": ["price desc"], "on_bad_rows": "quarantine"},
    "append": {"without_key": "append"},
}


@pytest.fixture
def loaded(lake, tmp_path, monkeypatch):
    """Load files into a table, and return its result, rows, waiting rows, and number of data files."""

    def do(name: str, files: list[str], of: str = "key", border: int = 0):
        columns = [{"name": n, "type": t} for n, t in COLUMNS.items()]
        columns[-1] |= {"mask": "sha256"} if of == "append" else {}
        given = {"source": "source", "specs": "specs", "endpoint": "endpoint.json", "catalog": lake.name}
        texts = {f"source/public/t/LOAD{number:08X}.csv": text for number, text in enumerate(files, 1)} | {
            "endpoint.json": json.dumps({"TimestampColumnName": "ts", "CsvNullValue": "NULL"}),
            "params/t.yml": json.dumps(given | {"catalog_options": lake.options, "state": "state"}),
            "specs/t.yml": json.dumps({"source": "public.t", "target": f"db.{name}", "columns": columns, **SPECS[of]}),
        }
        for path, text in texts.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
        monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path / name / "params"))
        monkeypatch.setattr("frazil.pipeline.load.HERE", border)
        for place in ("LEAST", "MOST"):
            monkeypatch.setattr(f"frazil.engine.load_parts.{place}", border or 1 << 12)
        monkeypatch.setattr("frazil.engine.load_parts.BLOCK", 1 << 16)  # about what the first file has
        opened = lakes.open("01_full_load", "t")
        opened.setup()
        table, (result,) = opened["public.t"], opened.load()
        waiting = stored(opened.state, table.stored.position.quarantine)
        rows = sorted(table_reader.rows(lake.options, table.name), key=repr)
        return result, rows, waiting and waiting.drop(["since"]).to_pylist(), len(table.stored.live_files)

    return do


def rows_of(first: int, count: int, bad: int = 0) -> str:
    """Return rows of a load file, of which one in `bad` is bad."""
    prices = [(i, "x" if bad and i % bad == 0 else i) for i in range(first, first + count)]
    return "".join(f'2026-01-01 00:00:{i % 60:02d}.0,{i},r{i % 3},{price},"a,\n{i}"\n' for i, price in prices)


@pytest.mark.parametrize("of", SPECS)
def test_a_load_by_tasks_is_as_one_in_this_process(loaded, of):
    files = [rows_of(0, 900, 300 if of == "key" else 0), rows_of(900, 20), "", rows_of(920, 30)]
    result, *here, few = loaded(f"here_{of}", files, of, 1 << 30)
    by_tasks, *there, many = loaded(f"tasks_{of}", files, of)
    assert (result.status, result.counts, here) == ("loaded", by_tasks.counts, there) and many > few


def test_an_error_in_a_task_names_its_file(loaded):
    cut_off, twice = (
        loaded("cut_off", [rows_of(0, 9), rows_of(9, 9)[:-1]]),
        loaded("twice", [rows_of(0, 9), rows_of(8, 9)]),
    )
    assert cut_off[0].code == "row-borders" and "LOAD00000002.csv row 9" in cut_off[0].note
    assert twice[0].code == "load-duplicate-key" and "LOAD00000002.csv row 1" in twice[0].note
