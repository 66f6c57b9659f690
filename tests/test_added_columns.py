"""Columns that rules of the task add: the lake has those that the spec lists, and plan and setup name the others."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil_old.config.settings import SetupSettings
from frazil_old.flows.plan import plan
from frazil_old.flows.setup import check_source
from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, World, csv_field
from lake_reader import duckdb_rows, lake_rows
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark
ADDED = {"_source": "$AR_M_SOURCE_SCHEMA", "seq": "$AR_H_CHANGE_SEQ", "zone": "'eu'", "_op": "$AR_H_OPERATION"}
SEQUENCE = "2024010109590000000000000000000000{}"
BEFORE = {"rule-type": "transformation", "rule-action": "add-before-image-columns", "before-image-def": {"column-prefix": "BI_"}}  # fmt: skip


def rule(name: str, expression: str) -> dict:
    return {"rule-type": "transformation", "rule-target": "column", "rule-action": "add-column", "value": name, "expression": expression}  # fmt: skip


def rules() -> dict:
    return {"rules": [*(rule(n, e) for n, e in ADDED.items()), BEFORE]}


def declare(world: World) -> World:
    """Make a table that lists all added columns, one that has some in its key and out of order, and one that lists none."""
    world.rules = rules()
    world.table("listed", "id INT8", "v WSTRING(9)", *[f"{n} WSTRING(50)" for n in ADDED])
    world.table("keyed", "_source WSTRING(50)", "id INT8", "zone WSTRING(2)", "v WSTRING(9)", key=("_source", "id"))
    world.table("unlisted").table("excluded", "id INT8", "v WSTRING(9)", *[f"{n} WSTRING(50)" for n in ADDED])
    world.specs["excluded"]["exclude"] = [*ADDED]
    return world.table_file("excluded")


def write(world: World, table: str, name: str, *rows: tuple) -> None:
    """Write rows (op, id, v, added values, old key) as a file of the world's form."""
    names = [*([] if name.startswith("LOAD") else ["Op"]), "ts", "id", "v", *ADDED, "BI_id"]
    lines = [[*([] if name.startswith("LOAD") else [op]), ONE_COMMIT, key, v, *added, was] for op, key, v, added, was in rows]  # fmt: skip
    if world.s3.get("DataFormat") == "parquet":
        kinds = {"id": pa.int64(), "BI_id": pa.int64()}
        columns = [pa.array(c, kinds.get(n, pa.string())) for n, c in zip(names, zip(*lines, strict=True), strict=True)]
        file = world.root / "source/public" / table / name.replace(".csv", ".parquet")
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_arrays(columns, names=names), file)
        return
    lines = [names, *lines] if world.s3.get("AddColumnName") else lines
    world.write(table, name, "".join(",".join(csv_field(f) for f in line) + "\n" for line in lines))


def added(operation: str, number: int | None = None) -> tuple:
    return ("public", SEQUENCE.format(number) if number else None, "eu", operation)


@pytest.mark.parametrize(
    "settings", [{"AddColumnName": True}, {}, {"DataFormat": "parquet"}], ids=["header", "no header", "parquet"]
)
def test_a_listed_column_that_a_rule_adds_has_its_value(new_world, settings):
    world = declare(new_world(**settings))
    for table in world.specs:
        write(world, table, LOAD1, ("I", 1, "a", added("INSERT"), None), ("I", 2, "b", added("INSERT"), None))
        write(world, table, FILE1, ("U", 9, "z", added("UPDATE", 1), 1), ("I", 3, "c", added("INSERT", 2), None))
        write(world, table, FILE2, ("D", 2, "b", added("DELETE", 3), None))
    world.setup()
    notes = {r["table"].removeprefix("public."): r["notes"] for r in plan(world.book())}
    assert "_source" in notes["unlisted"] and "zone" in notes["unlisted"] and "_op" in notes["unlisted"]
    assert "_op" in notes["keyed"] and "_source" not in notes["keyed"]
    assert notes["listed"] == notes["excluded"] == ""
    said = [r["value"] for r in check_source(world.book(SetupSettings)) if r["setting"] == "add-column"]
    assert any("public.unlisted" in v and "_source" in v for v in said) and not any("public.listed" in v for v in said)
    world.loaded().merged()
    rows = {t: lake_rows(world.catalog_options, f"{world.space}.{t}") for t in world.specs}
    assert rows["listed"] == [(3, "c", *added("INSERT", 2)), (9, "z", *added("UPDATE", 1))]
    assert rows["keyed"] == [("public", 3, "eu", "c"), ("public", 9, "eu", "z")]
    assert rows["unlisted"] == rows["excluded"] == [(3, "c"), (9, "z")]
    assert duckdb_rows(world.catalog_options, f"{world.space}.keyed") == rows["keyed"]


class AddingWorld(KafkaWorld):
    """A stream with added columns among a message's data."""

    def book(self, *kind, **settings):
        (self.root / "mappings.json").write_text(json.dumps(self.rules))
        return super().book(*kind, mappings="mappings.json", **settings)


def test_a_listed_column_that_a_rule_adds_has_its_value_from_a_stream(kafka, catalog_options, tmp_path):
    world = declare(AddingWorld(kafka, tmp_path / "w", "added_in_stream", catalog_options))

    def send(operation: str, key: int, v: str, number: int | None = None, was: int | None = None) -> None:
        values = dict(zip(ADDED, added(operation.upper(), number), strict=True))
        for table in world.specs:
            world.message(operation, table, id=key, v=v, **values, **({"BI_id": was} if was else {}))

    send("load", 1, "a")
    send("load", 2, "b")
    world.loaded()
    send("update", 9, "z", 1, was=1)
    send("insert", 3, "c", 2)
    send("delete", 2, "b", 3)
    notes = {r["table"].removeprefix("public."): r["notes"] for r in plan(world.book())}
    assert "_source" in notes["unlisted"] and notes["listed"] == ""
    assert any("public.unlisted" in r["value"] for r in check_source(world.book(SetupSettings)) if r["setting"] == "add-column")  # fmt: skip
    world.merged()
    rows = {t: lake_rows(world.catalog_options, f"{world.space}.{t}") for t in world.specs}
    assert rows["listed"] == [(3, "c", *added("INSERT", 2)), (9, "z", *added("UPDATE", 1))]
    assert rows["keyed"] == [("public", 3, "eu", "c"), ("public", 9, "eu", "z")]
    assert rows["unlisted"] == rows["excluded"] == [(3, "c"), (9, "z")]
