"""Inputs from public reports, each with its right result (see `reported_cases/README.md`), and real files of DMS."""

import json
import os
import re
import shutil
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from dms_streams import Shards, Topic
from dms_writer import NO_RULES
from model import Model
from world import World

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]

CASES, PARAMS = Path(__file__).parent / "reported_cases", Path(__file__).parent.parent / "params"
COPIES, TASKS = CASES / "copies_in_a_sub_folder", CASES / "load_and_changes_by_two_tasks"
DOUBLES, ROUNDED = CASES / "integers_as_doubles/params", "1.2345678901234568e+18"
MAPPED, TIMES, GZIP = CASES / "object_mapping/params", CASES / "time_24_00", CASES / "gzip_in_other_states"
REAL = os.environ.get("FRAZIL_NORTHWIND", "")


@pytest.fixture(scope="module")
def of_case(shared_world):
    """Make the world of an environment, which has specs, an endpoint, maybe rules; with its files, if they are given."""

    def make(params: Path, files: Path | None = None, space: str = "", **settings) -> World:
        space = space or f"{params.parent.parent.name}_{params.name}"
        w = shared_world(space, **settings)
        for file in sorted((params if params.exists() else params.with_name("case")).glob("*.yml")):
            spec = yaml.safe_load(file.read_text())
            name = spec["source"].split(".")[1]
            w.specs[name] = {**spec, "target": f"{space}.{name.lower()}"}
            w.declare(name)
        _, w.source.settings, w.source.rules = _documents(params)
        if files:
            shutil.copytree(files, w.source.folder, dirs_exist_ok=True)
        return w

    return make


@pytest.fixture(scope="module")
def of_stream(of_case, kafka, kinesis):
    """Make the world of an environment whose messages are in a stream of the kind that its endpoint has."""

    def make(params: Path, messages: str = "messages.jsonl", **world) -> World:
        w, (kind, settings, rules) = of_case(params, **world), _documents(params)
        stream = Topic(w, kafka, **settings) if kind == "KafkaSettings" else Shards(w, kinesis, **settings)
        stream.rules = rules
        for line in (params.parent.parent / messages).read_text().splitlines():
            stream.send(line)
        return w

    return make


def _documents(params: Path) -> tuple[str, dict, dict]:
    """Return the kind of an environment's endpoint, its settings, and the rules of the task."""
    endpoint, rules = (params.with_name(f"{params.name}.{kind}.json") for kind in ("endpoint", "mappings"))
    found = json.loads((endpoint if endpoint.exists() else params.with_name("case.endpoint.json")).read_text())
    kind = next(k for k in found if k.endswith("Settings"))
    return kind, found[kind], json.loads(rules.read_text()) if rules.exists() else NO_RULES


LOGIN, VIEW = (datetime(2026, 10, 1, 8), "login"), (datetime(2026, 10, 1, 8, 0, 1), "view")
COPIED = {
    "orders": ([(1, "paid", Decimal("10.00")), (3, "open", Decimal("30.00"))], "processed/20261002-091500123.csv"),
    "events": ([LOGIN, VIEW, VIEW, (datetime(2026, 10, 2, 9, 14, 32), "logout")], "archive/LOAD00000001.csv"),
    "plain": ([(1, "x")], ""),
}


@pytest.fixture(scope="module")
def copies(of_case):
    w = of_case(COPIES / "params/case", COPIES / "dms")
    w.results = w.through()
    return w


@pytest.mark.parametrize("table", COPIED)
def test_a_file_and_its_copy_are_one_file_or_stop_their_table_alone(copies, table):
    result, (right, copy) = copies.results[table], COPIED[table]
    rows = [r[: len(right[0])] for r in copies.rows(table)] if copies.exists(table) else []
    if result.failed:
        assert copy and len(rows) <= len(right), f"stopped after {rows}: {result.note}"
        both = f"{table}/{copy}", f"{table}/{Path(copy).name}"
        assert result.names(*both), f"stopped without both paths: {result.note}"
        return
    assert rows == right, f"{table} has {rows}"
    for applied in copies.source.folder.glob(f"app/{table}/20261002-092000456.csv"):
        applied.rename(applied.parent / "processed" / applied.name)  # as the other consumer does later
        assert copies.merge()[table].status == "unchanged" and copies.rows(table) == right


def test_two_folders_that_hold_one_table_are_named(of_case):
    w = of_case(TASKS / "params/case", TASKS / "dms")
    told = f"{w.through()['orders'].note}\n{w.findings()}"
    assert "initial-load" in told and "cdc-load" in told, f"not both folders are named: {told}"
    assert re.search("app[./]orders", told), f"not named as two folders of one table: {told}"


@pytest.mark.parametrize("folder", ["joined", "bare"])
def test_load_files_may_lack_the_column_of_times_that_change_files_have(of_case, folder):
    w = of_case(TASKS / "params" / folder, TASKS / folder)
    result = w.through()["orders"]
    if result.failed:
        assert result.names("LOAD00000001.csv"), f"the load file is not named: {result.note}"
        way = "columns_until: {LOAD00000001.csv: [id, status, total]}"
        assert way in result.note, f"no way to declare it: {result.note}"
    else:
        assert w.rows("orders") == [(1, "paid", 10), (2, "paid", 20), (3, "open", 30), (4, "open", 40)]


def test_a_number_that_only_a_double_has_is_reported_and_a_bad_row(of_stream):
    w = of_stream(DOUBLES / "case")
    told, stopped = w.findings(), w.loaded().merge()["accounts"]
    assert stopped.failed, f"a rounded number was applied: {w.rows('accounts')}; found before: {told}"
    assert stopped.code == "bad-row" and stopped.names("id", ROUNDED), stopped.note
    assert w.rows("accounts") == [(1, 1000, "one"), (3, 78, "three")]
    w.merge(on_bad_rows="quarantine")
    assert w.rows("accounts") == [(1, 1000, "one"), (3, 2**53, "source ref 9007199254740993")]
    waiting = w.quarantine("accounts")
    assert [r["column"] for r in waiting] == ["id", "id", "ref"] and all(ROUNDED.encode() in r["raw"] for r in waiting)
    assert "UseLargeIntegerValue" in told and "ref" in told, f"the setting and its columns are not named: {told}"


def test_a_load_record_with_such_a_number_stops_the_load(of_stream):
    w = of_stream(DOUBLES / "load", "messages-load.jsonl")
    result = w.through()["accounts"]
    assert result.failed, f"a rounded number was loaded: {w.rows('accounts')}"
    assert result.names("ref", ROUNDED), result.note


def test_large_integers_of_a_stream_that_keeps_them_are_exact(of_stream):
    w = of_stream(DOUBLES / "on", "messages-on.jsonl")
    assert "UseLargeIntegerValue" not in w.findings()
    large = 123456789012345677
    assert w.loaded().merged().rows("accounts") == [(1, 2**53 + 1, "one"), (large, 5, "a"), (large + 1, 6, "b")]


def test_columns_that_a_rule_leaves_out_of_messages_are_reported(of_stream):
    w = of_stream(MAPPED / "case")
    told, result = w.findings(), w.through()["People"]
    if not result.failed:
        assert w.rows("people") == [(1, "Ada", None, None), (2, "Bea", None, None), (3, None, None, None)]
    told = f"{told} {result.note}"
    assert "ssn" in told and "born" in told, f"left out without a word: {told}"


def test_attributes_that_a_rule_combines_arrive_as_messages_have_them(of_stream):
    w = of_stream(MAPPED / "attr", "messages-attr.jsonl")
    rows, sent = w.loaded().merged().rows("customers"), [json.loads(raw)["data"] for _, raw in w.source.sent[1:]]
    assert [r[:3] for r in rows] == [("5", "02/29/1988", "Doe, Jo"), ("6", "01/01/1990", 'Roe, "Al"')]
    assert [json.loads(r[3]) for r in rows] == [data["ContactDetails"] for data in sent]


def test_a_document_in_place_of_columns_is_refused_by_its_rule(of_stream):
    w = of_stream(MAPPED / "doc", "messages-doc.jsonl")
    told = f"{w.findings()} {w.through()['Customers'].note}"
    assert "map-record-to-document" in told and "map-record-to-record" in told, f"the rule is not named: {told}"


def test_a_table_goes_on_from_files_to_a_stream_by_a_decision(of_case, of_stream):
    case = CASES / "load_by_files_changes_by_kafka"
    files = of_case(case / "params/files", case / "dms", space="retail").loaded()
    assert files.rows("retail") == [(1, "A1", 10), (2, "B2", 20), (3, "C3", 30)]
    w = of_stream(case / "params/stream", space="retail")
    w.setup()
    refused = w.merge()["retail"]
    assert refused.failed, f"{refused.status} {refused.note}: {w.rows('retail')}"
    adopted = w.decide("retail", adopt="earliest")
    for _ in range(2):
        result = w.merge()["retail"]
        assert not result.failed, f"no way on: after '{adopted.note}': {result.note}"
        assert w.rows("retail") == [(1, "A1", 10), (2, "B2", 21), (4, "D4", 41)]


@pytest.mark.parametrize("params", ["case", "string", "csv"])
def test_midnight_at_the_end_of_a_day_is_kept(of_case, params):
    w = of_case(TIMES / "params" / params, TIMES / ("dms-bare" if params == "csv" else "dms"))
    rows, last = w.loaded().merged().rows("shops"), "23:59:59.999999" if params == "csv" else "23:59:59.999"
    right = [(1, "24:00:00"), (2, "22:00:00.5"), (3, last), (4, None), (5, "00:00:00")]
    assert rows == right, f"the lake has {rows}"


def test_times_outside_of_a_day_are_bad_rows(of_case):
    w = of_case(TIMES / "params/case", TIMES / "dms", space="beyond").loaded().merged()
    shutil.copytree(TIMES / "then", w.source.folder, dirs_exist_ok=True)
    stopped = w.merge()["shops"]
    assert stopped.failed, f"taken for values: {w.rows('shops')}"
    assert stopped.code == "bad-row" and stopped.names("20240506-071000000.parquet", "closes"), stopped.note
    w.merge(on_bad_rows="quarantine")
    assert len(w.quarantine("shops")) == 2 and [r for r in w.rows("shops") if r[0] > 5] == [(8, "01:00:00")]


def test_gzip_is_read_whole_or_stops_its_table_alone_by_name(of_case):
    w, wrong = of_case(GZIP / "params/case", GZIP / "dms"), {}
    for folder in (GZIP / "dms/app").iterdir():
        w.table(folder.name, "id INT8", "v WSTRING(9)", source=f"app.{folder.name}")
    for table, result in w.through().items():
        named = result.names(f"{table}/20240506-070900000.csv.gz", "gzip") and result.code != "bad-row"
        may_stop = table in ("unpacked", "packed_twice") and named
        if not may_stop if result.failed else w.rows(table) != [(1, "a2"), (2, "b2"), (3, "c")]:
            wrong[table] = result.note or w.rows(table)
    assert not wrong, f"{sorted(wrong)} neither read nor named as gzip: {wrong}"


@pytest.mark.northwind
@pytest.mark.skipif(not REAL, reason="FRAZIL_NORTHWIND, the folder of real files that holds public/, is unset")
def test_every_row_of_real_files_is_as_the_model_has_it(of_case):
    w = of_case(PARAMS / "northwind", Path(REAL), space="northwind", max_batch_files=4).loaded().merged()
    model = Model(w.specs, w.source.settings, w.source.rules)
    assert {f.name for f in Path(REAL, "public").iterdir()} == {*w.specs} and len(w.specs) == 12
    for table in w.specs:
        files = sorted((w.source.folder / "public" / table).iterdir())
        model.load(table, [f for f in files if f.name.startswith("LOAD")])
        model.apply([f for f in files if not f.name.startswith("LOAD")], table)
        assert w.rows(table) == model.rows(table), table
    assert len(w.rows("orders")) == 839
    assert {r.status for r in w.merge().values()} == {"unchanged"}
