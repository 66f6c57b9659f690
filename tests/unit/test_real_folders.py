"""Every folder of DMS output is listed, ordered and read as the model has it: real files, those of public reports, and of their kinds."""

# ruff: noqa: F401, F811, I001
from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from frazil.discover.source_folders import SourceFolderError, require_schema_folder
from frazil.dms.storage import Storage
from model import Model
from test_known_kinds import (
    csv, of_kind, test_a_bad_row_is_kept_by_its_bytes, test_a_copy_that_appears_later_is_not_another_file,
    test_a_form_that_changes_in_mid_life_is_seen_from_the_files_or_named_as_that,
    test_changes_without_a_load_are_the_whole_table_only_if_each_row_was_inserted, test_files_of_one_name_and_other_bytes_stop_their_table,
    test_no_cure_leads_to_the_opposite_of_itself,
)  # fmt: skip
from test_reported_cases import (
    CASES, TASKS, copies, of_case, test_a_file_and_its_copy_are_one_file_or_stop_their_table_alone, test_every_row_of_real_files_is_as_the_model_has_it,
    test_gzip_is_read_whole_or_stops_its_table_alone_by_name, test_load_files_may_lack_the_column_of_times_that_change_files_have,
    test_midnight_at_the_end_of_a_day_is_kept, test_times_outside_of_a_day_are_bad_rows,
)  # fmt: skip
from unit.value_door import Door


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory):
    return lambda space, **settings: Door(tmp_path_factory.mktemp(space) / "w", settings.pop("target", {}), **settings)


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


def test_a_row_may_begin_as_parquet_does(of_kind):
    w = of_kind("par1", {"TimestampColumnName": ""}).table("t", "id WSTRING(9)", "v WSTRING(9)")
    w.source.write("t", "LOAD00000001.csv", "PAR100,a\n")
    assert w.loaded().rows("t") == [("PAR100", "a")]


def test_the_files_before_a_stream_and_the_folders_of_two_tasks_are_listed(of_case):
    case = CASES / "load_by_files_changes_by_kafka"
    rows = of_case(case / "params/files", case / "dms").loaded().rows("retail")
    assert rows == [(1, "A1", 10), (2, "B2", 20), (3, "C3", 30)]
    with pytest.raises(SourceFolderError, match="cdc-load and .*initial-load has app/orders"):
        require_schema_folder(Storage(str(TASKS / "dms")), "app", "orders")
