"""Real DMS files through the flows, every row of the end state compared with a replay in plain Python.

The replay imports nothing of Frazil: it has its own columns, its own order, its own idea of every type.
"""

import csv
import json
import os
from datetime import date
from pathlib import Path
from struct import pack, unpack

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.northwind]

SOURCE = os.environ.get("FRAZIL_NORTHWIND", "")
ROOT = Path(__file__).parent.parent
if not SOURCE:
    pytest.skip(
        "FRAZIL_NORTHWIND is unset: it names the folder of real DMS files that holds public/", allow_module_level=True
    )

# Width of the key, and a letter for each column: i whole number, t text, r real of 4 bytes, d day, x bytes.
TABLES = {
    "categories": (1, "ittx"), "customers": (1, "ttttttttttt"), "employees": (1, "ittttddtttttttxtit"),
    "employee_territories": (2, "it"), "order_details": (2, "iirir"), "orders": (1, "itidddirtttttt"),
    "products": (1, "itiitriiii"), "region": (1, "it"), "shippers": (1, "itt"), "suppliers": (1, "ittttttttttt"),
    "territories": (1, "tti"), "us_states": (1, "ittt"),
}  # fmt: skip

READ = {
    "i": int,
    "t": str,
    "r": lambda text: unpack("<f", pack("<f", float(text)))[0],
    "d": date.fromisoformat,
    "x": bytes.fromhex,
}


def replay(table: str) -> list[tuple]:
    """Return the rows that the files of a table come to: load files first, then change files by name, row by row."""
    width, types = TABLES[table]
    rows, files = {}, sorted((Path(SOURCE) / "public" / table).iterdir(), key=lambda f: (f.name[0] != "L", f.name))
    for file in files:
        with open(file, encoding="utf-8", newline="") as lines:
            for op, _committed, *fields in csv.reader(lines):
                values = fields[: len(types)]
                assert len(fields) == len(types) + 1, f"{file}: a sequence, and nothing else, follows the columns"
                row = tuple(READ[t](v) if v != "" else None for t, v in zip(types, values, strict=True))
                if op == "D":
                    rows.pop(row[:width], None)
                else:
                    rows[row[:width]] = row
    return sorted(rows.values(), key=repr)


@pytest.fixture(scope="module")
def book(spark, catalog_options, tmp_path_factory):
    """The Northwind environment, set up, loaded and merged, four change files per batch."""
    from frazil_old.config.settings import resolve
    from frazil_old.flows import cdc, full_load, setup
    from frazil_old.flows.workbook import Workbook

    cell = {
        "env": "northwind", "source": str(Path(SOURCE).absolute()), "catalog_options": catalog_options,
        "runs": str(tmp_path_factory.mktemp("runs")),
    }  # fmt: skip

    def opened(notebook, **more):
        return Workbook(resolve(notebook, {**cell, **more}).settings, lambda _: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAZIL_PARAMS", str(ROOT / "params"))
        books = [opened("setup"), opened("full_load"), opened("cdc_merge", max_batch_files=4)]
    for flow, book in zip((setup.create_tables, full_load.run, cdc.run), books, strict=True):
        assert [r.note for r in flow(book) if r.failed] == []
    return books[-1]


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_row_is_as_the_replay_has_it(book, table):
    rows = [
        tuple(bytes(v) if isinstance(v, bytearray) else v for v in r)
        for r in book.spark.table(f"lake.northwind.{table}").collect()
    ]
    assert sorted(rows, key=repr) == replay(table)


def test_all_tables_that_lie_there_are_taken(book):
    folders = {f.name for f in (Path(SOURCE) / "public").iterdir()}
    assert folders == set(TABLES) == {s.table_name for s in book.specs.values()}


def test_a_second_run_finds_nothing_to_do(book):
    from frazil_old.flows import cdc

    assert {r.status for r in cdc.run(book)} == {"unchanged"}


def test_real_files_contradict_their_own_sequence_nowhere(book):
    from frazil_old.lake import jvm

    snapshots = [
        s
        for s in jvm.ancestors(jvm.load_table(book.spark, "lake.northwind.orders"))
        if s.summary().get("frazil.kind") == "changes"
    ]
    counts = [json.loads(s.summary()["frazil.counts"]) for s in snapshots]
    assert len(counts) == 3
    assert {c["out_of_sequence"] for c in counts} == {0}
