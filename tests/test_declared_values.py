"""Values that the lake's type does not have: refused, then taken as the spec declares, also out of the quarantine."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from frazil_old.config.settings import CdcMergeSettings
from frazil_old.config.spec import SpecError, parse_spec
from frazil_old.flows import quarantine_replay
from helpers import I, U, spec_of
from lake_reader import lake_rows
from stream_world import KafkaWorld

BAD = {
    "ship": ("DATETIME", {
        "zero_date": ["0000-00-00 00:00:00", "2024-00-15 00:00:00", "2024-05-00"],
        "before_year_1": ["-4712-01-01 00:00:00", "0000-01-01 00:00:00", "4713-01-01 00:00:00 BC"],
        "after_year_9999": ["12024-01-01 00:00:00"],
        "infinity": ["infinity"],
        "-infinity": ["-infinity"],
    }),
    "day": ("DATE", {
        "zero_date": ["0000-00-00"], "before_year_1": ["-4712-01-01", "0001-02-03 BC"], "after_year_9999": ["10000-01-01"],
        "infinity": ["Infinity"], "-infinity": ["-Infinity"],
    }),
    "price": ("NUMERIC(10,2)", {"NaN": ["NaN"], "infinity": ["Infinity"], "-infinity": ["-inf"]}),
    "note": ("WSTRING(99)", {"U+FFFD": ["a\ufffdb"]}),
}  # fmt: skip
"""{column: (its type, {what the spec may declare: texts that are it})}."""
DECLARED = {
    "ship": {"zero_date": None, "before_year_1": "0001-01-01 00:00:00", "after_year_9999": "9999-12-31 23:59:59.999999",
             "infinity": "9999-12-31 23:59:59.999999", "-infinity": None},
    "day": {"zero_date": "1970-01-01", "before_year_1": None, "after_year_9999": None, "infinity": "9999-12-31", "-infinity": None},
    "price": {"NaN": None, "infinity": "99999999.99", "-infinity": "-1"},
    "note": {"U+FFFD": "?"},
}  # fmt: skip
IN_LAKE = {
    "0001-01-01 00:00:00": dt.datetime.min, "9999-12-31 23:59:59.999999": dt.datetime.max, "1970-01-01": dt.date(1970, 1, 1),
    "9999-12-31": dt.date.max, "99999999.99": Decimal("99999999.99"), "-1": Decimal("-1.00"), "?": "a?b",
}  # fmt: skip
GOOD = {"ship": "2024-05-06 00:00:00", "day": "2024-05-06", "price": "1.50", "note": "c"}
GOOD_ROW = (dt.datetime(2024, 5, 6), dt.date(2024, 5, 6), Decimal("1.50"), "c")
ROWS = [(c, name, text) for c, (_, names) in BAD.items() for name, texts in names.items() for text in texts]
"""One bad value a row; all else in the row is good."""
LIMITS = {"on_bad_rows": "quarantine", "max_bad_rows": 99, "max_bad_percent": 100}


def row(column: str, text: str) -> tuple:
    return tuple((GOOD | {column: text}).values())


def wanted(start: int) -> list[tuple]:
    """Return the lake's rows once the spec has declared what the bad values become."""
    told = [(dict(zip(GOOD, GOOD_ROW, strict=True)) | {c: IN_LAKE.get(DECLARED[c][name])}) for c, name, _ in ROWS]
    return [(n, *values.values()) for n, values in enumerate(told, start)]


def declare(w, table: str) -> None:
    for c in w.specs[table]["columns"]:
        if c["name"] in DECLARED:
            c["replace"] = DECLARED[c["name"]]
    (w.root / f"specs/{table}.yml").write_text(yaml.safe_dump(w.specs[table]))


@pytest.fixture
def world(new_world):
    w = new_world()
    w.rules = {"rules": []}
    for table in ("loaded", "changed"):
        w.table(table, "id INT8", *[f"{c} {kind}" for c, (kind, _) in BAD.items()])
    bad = [(n, *row(c, text)) for n, (c, _, text) in enumerate(ROWS, 10)]
    w.load("loaded", (1, *GOOD.values()), *bad).load("changed", *[(n, *GOOD.values()) for n in (1, 10)])
    w.changes("changed", U(*bad[0]), *[I(*r) for r in bad[1:]])
    return w


@pytest.mark.spark
def test_each_value_is_refused_then_declared_then_replayed_from_the_quarantine(world, catalog_options):
    world.setup()
    assert "LOAD00000001.csv row 2: column 'ship': '0000-00-00 00:00:00'" in (note := world.full_load()["loaded"].note)
    assert "lake: string at column 'ship'" in note
    assert note.index("lake: string") < note.index("replace: {zero_date: null}")
    assert "replace: {zero_date: null}" in world.merge(tables=["public.changed"])["changed"].note
    assert world.full_load(**LIMITS)["loaded"].counts == {"rows": 1, "quarantined": len(ROWS)}
    assert world.merge(**LIMITS)["changed"].counts["quarantined"] == len(ROWS)
    assert lake_rows(catalog_options, f"{world.space}.loaded") == [(1, *GOOD_ROW)]
    for table in ("loaded", "changed"):
        declare(world, table)
    results = quarantine_replay.run(world.book(CdcMergeSettings, quarantine="replay"))
    assert [r.counts for r in results] == [{"replayed": len(ROWS)}] * 2, results
    for table in ("loaded", "changed"):
        assert lake_rows(catalog_options, f"{world.space}.{table}") == sorted([(1, *GOOD_ROW), *wanted(10)], key=repr)


@pytest.mark.spark
def test_what_is_declared_beforehand_is_taken_at_once(world, catalog_options):
    for table in ("loaded", "changed"):
        declare(world, table)
    world.loaded().merged()
    for table in ("loaded", "changed"):
        assert lake_rows(catalog_options, f"{world.space}.{table}") == sorted([(1, *GOOD_ROW), *wanted(10)], key=repr)


@pytest.mark.spark
def test_in_parquet_the_same_values_are_declared_by_the_same_names(new_world, catalog_options):
    w = new_world(DataFormat="parquet", TimestampColumnName="")
    w.rules = {"rules": []}
    w.table("t", "id INT8", *[f"{c} {kind}" for c, (kind, _) in BAD.items()])
    days = [-719163, 2932897]  # before year 1, and after year 9999
    file = w.root / "source/public/t/LOAD00000001.parquet"
    file.parent.mkdir(parents=True)
    columns = {
        "id": pa.array([1, 2, 3, 4]), "ship": pa.array([d * 86_400_000_000 for d in days] + [0, 0], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "day": pa.array([*days, 0, 0], pa.int32()).cast(pa.date32()), "price": [math.nan, math.inf, -math.inf, 1.5],
        "note": ["a\ufffdb", "a", "b", "c"],
    }  # fmt: skip
    pq.write_table(pa.table(columns), file, store_schema=False)
    w.setup()
    assert w.full_load(**LIMITS)["t"].counts["quarantined"] == 3
    declare(w, "t")
    quarantine_replay.run(w.book(CdcMergeSettings, quarantine="replay"))
    start = (dt.datetime(1970, 1, 1), dt.date(1970, 1, 1))
    rows = [
        (1, dt.datetime.min, None, None, "a?b"), (2, dt.datetime.max, None, Decimal("99999999.99"), "a"),
        (3, *start, Decimal("-1.00"), "b"), (4, *start, Decimal("1.50"), "c"),
    ]  # fmt: skip
    assert lake_rows(catalog_options, f"{w.space}.t") == rows
    w.full_load(on_changed_load="reload")
    (w.root / "source/public/t/LOAD00000001.parquet").touch()
    assert w.full_load(on_changed_load="reload")["t"].status in ("reloaded", "unchanged")
    assert lake_rows(catalog_options, f"{w.space}.t") == rows


@pytest.mark.spark
def test_in_a_stream_the_same_values_are_declared_by_the_same_names(kafka, spark, catalog_options, tmp_path):
    w = KafkaWorld(kafka, tmp_path / "w", "declared_stream", catalog_options)
    w.table("t", "id INT8", *[f"{c} {kind}" for c, (kind, _) in BAD.items()])
    some = [r for r in ROWS if r[2] not in ("4713-01-01 00:00:00 BC", "2024-05-00")]
    for operation, rows in (("load", some[::2]), ("insert", some[1::2])):
        for c, _, text in rows:
            text = text.replace(" 00:00:00", "T00:00:00Z") if c == "ship" else text
            good = GOOD | {"ship": "2024-05-06T00:00:00Z", "price": 1.5}
            w.message(
                operation, id=10 + some.index((c, _, text.replace("T00:00:00Z", " 00:00:00"))), **(good | {c: text})
            )
    w.setup()
    aside = w.full_load(**LIMITS)["t"].counts["quarantined"]
    aside += w.merge(**LIMITS)["t"].counts["quarantined"]
    assert aside == len(some)
    declare(w, "t")
    quarantine_replay.run(w.book(CdcMergeSettings, quarantine="replay"))
    told = [(dict(zip(GOOD, GOOD_ROW, strict=True)) | {c: IN_LAKE.get(DECLARED[c][name])}) for c, name, _ in some]
    expected = [(n, *values.values()) for n, values in enumerate(told, 10)]
    assert lake_rows(catalog_options, f"{w.space}.t") == sorted(expected, key=repr)


@pytest.mark.spark
def test_other_misfits_stay_bad_rows_and_a_text_may_keep_the_character(new_world, catalog_options):
    w = new_world()
    w.rules = {"rules": []}
    w.table("t", "id INT8", *[f"{c} {kind}" for c, (kind, _) in BAD.items()])
    declare(w, "t")
    w.specs["t"]["columns"][-1]["replace"] = {"U+FFFD": "\ufffd"}
    (w.root / "specs/t.yml").write_text(yaml.safe_dump(w.specs["t"]))
    junk = [
        ("ship", "yesterday"),
        ("ship", "2024-13-01 00:00:00"),
        ("day", "2023-02-29"),
        ("price", "1.505"),
        ("price", "nano"),
    ]
    w.load("t", (1, *row("note", "a\ufffdb")), *[(n, *row(*bad)) for n, bad in enumerate(junk, 2)]).setup()
    assert w.full_load(**LIMITS)["t"].counts == {"rows": 1, "quarantined": len(junk)}
    assert lake_rows(catalog_options, f"{w.space}.t") == [(1, *GOOD_ROW[:3], "a\ufffdb")]


@pytest.mark.parametrize(
    ("kind", "replace", "says"),
    [
        ("DATETIME", {"zero": None}, "zero_date"),
        ("DATETIME", {"zero_date": "never"}, "9999-12-31"),
        ("INT4", {"NaN": None}, "leave it out"),
        ("NUMERIC(5,2)", {"NaN": "1.005"}, "write null"),
        ("DATE", ["zero_date"], "replace: {zero_date: null}"),
    ],
)
def test_a_declaration_that_cannot_hold_is_refused(kind, replace, says):
    spec = spec_of("public.t", "id INT8", f"v {kind}")
    spec["columns"][1]["replace"] = replace
    with pytest.raises(SpecError, match=r"column 'v'") as error:
        parse_spec(spec)
    assert says in str(error.value)


def test_a_key_column_takes_no_declaration():
    spec = spec_of("public.t", "id DATE", "v INT4")
    spec["columns"][0]["replace"] = {"zero_date": None}
    with pytest.raises(SpecError, match="lake: string"):
        parse_spec(spec)
