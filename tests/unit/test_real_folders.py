"""Every folder of DMS output is listed, ordered and read as the model has it: real files, those of public reports, and of their kinds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from frazil.discover.source_folders import SourceFolderError, require_schema_folder
from frazil.dms.storage import Storage
from model import Model
from test_known_kinds import of_kind  # noqa: F401
from test_reported_cases import CASES, TASKS, of_case  # noqa: F401


def test_the_small_folder_of_the_tests_is_read_as_the_model_has_it(shared_world):
    tiny = Path(__file__).parents[1] / "data/tiny"
    w = shared_world("tiny")
    w.table("person", "id INT4", "name WSTRING(50)", "balance NUMERIC(10,2)", "born DATE", source="app.person")
    w.table("visit", "person_id INT4", "place WSTRING(9)", "at DATETIME", key=("person_id", "place"), source="app.visit")  # fmt: skip
    w.source.settings = json.loads((tiny / "params/endpoint.json").read_text())["S3Settings"]
    w.source.rules = json.loads((tiny / "params/mappings.json").read_text())
    shutil.copytree(tiny / "s3", w.source.folder, dirs_exist_ok=True)
    w.loaded().merged()
    model = Model(w.specs, w.source.settings, w.source.rules)
    for table in w.specs:
        load, *files = sorted((w.source.folder / "app" / table).iterdir(), key=lambda f: (f.name[0] != "L", f.name))
        model.load(table, [load])
        model.apply(files, table)
        assert w.rows(table) == model.rows(table) and len(w.rows(table)) > 1, table


def test_a_row_may_begin_as_parquet_does(of_kind):  # noqa: F811
    w = of_kind("par1", {"TimestampColumnName": ""}).table("t", "id WSTRING(9)", "v WSTRING(9)")
    w.source.write("t", "LOAD00000001.csv", "PAR100,a\n")
    assert w.loaded().rows("t") == [("PAR100", "a")]


def test_the_files_before_a_stream_and_the_folders_of_two_tasks_are_listed(of_case):  # noqa: F811
    case = CASES / "load_by_files_changes_by_kafka"
    rows = of_case(case / "params/files", case / "dms").loaded().rows("retail")
    assert rows == [(1, "A1", 10), (2, "B2", 20), (3, "C3", 30)]
    with pytest.raises(SourceFolderError, match="cdc-load and .*initial-load has app/orders"):
        require_schema_folder(Storage(str(TASKS / "dms")), "app", "orders")
