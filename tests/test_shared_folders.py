"""Source tables that rules rename to one folder: an added column with the source of each row separates them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil_old.flows import quarantine_replay
from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, World
from lake_reader import duckdb_rows, lake_rows
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark
TXN = "CDC_TXN-20240101100000000.csv"
YEARS = ("year_1", "year_2")
WAYS = {
    "no header": {},
    "header": {"AddColumnName": True},
    "parquet": {"DataFormat": "parquet"},
    "transactions": {"PreserveTransactions": True, "CdcPath": "txn"},
}


def rules(expressions: dict[str, str]) -> dict:
    """Rename both tables to `years`, and add a column `src` with an expression of each."""
    found = []
    for table, expression in expressions.items():
        at = {"object-locator": {"schema-name": "public", "table-name": table}, "rule-type": "transformation"}
        found.append({**at, "rule-target": "table", "rule-action": "rename", "value": "years"})
        found.append({**at, "rule-target": "column", "rule-action": "add-column", "value": "src", "expression": expression})  # fmt: skip
    return {"rules": found}


BY_NAME = rules(dict.fromkeys(YEARS, "$AR_M_SOURCE_TABLE_NAME"))
BY_TEXT = rules({"year_1": "'it''s one'", "year_2": "'two'"})


def declare(world: World) -> None:
    """Make two tables with the rows of one folder: the first one has the added column in the lake, too."""
    world.table("year_1", "id INT8", "v WSTRING(99)", "src WSTRING(30)").table("year_2")


def write(world: World, name: str, *rows: tuple) -> None:
    """Write rows (op, id, v, src) into the folder that both tables share."""
    load, parquet = name.startswith("LOAD"), world.s3.get("DataFormat") == "parquet"
    names = ["ts", "id", "v", "src"] if load else ["Op", "ts", "id", "v", "src"]
    lines = [[*([] if load else [op]), ONE_COMMIT, key, v, src] for op, key, v, src in rows]
    if parquet:
        columns = [pa.array(c, pa.int64() if n == "id" else pa.string()) for n, c in zip(names, zip(*lines, strict=True), strict=True)]  # fmt: skip
        file = world.root / "source/public/years" / name.replace(".csv", ".parquet")
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_arrays(columns, names=names), file)
        return
    if world.s3.get("PreserveTransactions") and not load:
        name = name.replace("-", "")
        file = world.root / "source/txn" / f"CDC_TXN-{name}"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [[op, "years", "public", *rest] for op, *rest in lines]
        file.write_text("".join(",".join(str(f or "") for f in line) + "\n" for line in lines))
        return
    header = ",".join(names) + "\n" if world.s3.get("AddColumnName") else ""
    world.write("years", name, header + "".join(",".join(str(f or "") for f in line) + "\n" for line in lines))


def lake(world: World, table: str) -> list[tuple]:
    return lake_rows(world.catalog_options, f"{world.space}.{table}")


@pytest.mark.parametrize("way", WAYS)
def test_each_table_has_its_own_rows_of_the_folder_it_shares(new_world, way):
    world = new_world(**WAYS[way])
    world.rules = BY_NAME
    declare(world)
    write(
        world, LOAD1, ("I", 1, "a", "year_1"), ("I", 1, "A", "year_2"), ("I", 2, "b", "year_1"), ("I", 9, "?", "year_3")
    )
    world.loaded()
    assert lake(world, "year_1") == [(1, "a", "year_1"), (2, "b", "year_1")]
    assert lake(world, "year_2") == [(1, "A")]
    write(world, FILE1, ("D", 1, "a", "year_1"), ("U", 1, "B", "year_2"), ("I", 3, "c", "year_2"))
    write(world, FILE2, ("I", 3, "d", "year_1"), ("U", 3, "C", "year_2"))
    world.merged()
    assert lake(world, "year_1") == [(2, "b", "year_1"), (3, "d", "year_1")]
    assert lake(world, "year_2") == [(1, "B"), (3, "C")]
    assert duckdb_rows(world.catalog_options, f"{world.space}.year_1") == lake(world, "year_1")


@pytest.mark.parametrize("way", ["no header", "parquet", "transactions"])
def test_a_row_that_tells_no_table_stops_all_that_share_the_folder(new_world, way):
    world = new_world(**WAYS[way])
    world.rules = BY_TEXT
    declare(world)
    write(world, LOAD1, ("I", 1, "a", "it's one"), ("I", 1, "A", "two"))
    world.loaded()
    write(world, FILE1, ("U", 1, "B", "two"), ("U", 1, "b", "it's one"), ("I", 5, "whose?", None))
    results = world.merge()
    for table in YEARS:
        assert results[table].failed and "names no table" in results[table].note, results[table]
        assert " row 3: names no table" in results[table].note
    world.merged(on_bad_rows="quarantine", ops_namespace=f"{world.space}_ops", max_bad_percent=100.0)
    assert lake(world, "year_1") == [(1, "b", "it's one")] and lake(world, "year_2") == [(1, "B")]
    shown = quarantine_replay.plan(world.book(ops_namespace=f"{world.space}_ops"))
    assert {r["table"]: r.get("rows", r) for r in shown} == {f"public.{t}": 1 for t in YEARS}


def test_tables_that_a_stream_gives_one_name_are_told_apart(kafka, catalog_options, tmp_path):
    class SharedWorld(KafkaWorld):
        def book(self, *kind, **settings):
            (self.root / "mappings.json").write_text(json.dumps(self.rules))
            return super().book(*kind, mappings="mappings.json", **settings)

    world = SharedWorld(kafka, tmp_path / "w", "shared_in_stream", catalog_options)
    world.rules = BY_NAME
    declare(world)
    for src, v in (("year_1", "a"), ("year_2", "A")):
        world.message("load", "years", id=1, v=v, src=src)
    world.loaded()
    world.message("update", "years", id=1, v="b", src="year_1").message("insert", "years", id=2, v="B", src="year_2")
    world.merged()
    assert lake(world, "year_1") == [(1, "b", "year_1")] and lake(world, "year_2") == [(1, "A"), (2, "B")]
    world.message("insert", "years", id=3, v="whose?")
    results = world.merge()
    assert all(results[t].failed and "which names its table" in results[t].note for t in YEARS), results


def test_a_column_with_the_same_value_in_both_tables_tells_nothing(new_world):
    world = new_world()
    world.rules = rules(dict.fromkeys(YEARS, "$AR_M_SOURCE_SCHEMA"))
    declare(world)
    assert all("read the same rows" in r.note for r in world.setup().values())
