"""Names of columns that are also SQL, paths or patterns: wherever a name comes from, it stays a name."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from frazil_old.config.settings import CdcMergeSettings, ExploreSettings, MaintenanceSettings
from frazil_old.flows import explore, maintenance, quarantine_replay, row_history
from frazil_old.flows.plan import plan
from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, csv_field
from lake_reader import lake_table
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark

DELETES_ALL = "z` = '1' WHEN NOT MATCHED BY SOURCE THEN DELETE --"
SELECTS_ALL = "x`, (select 1)) --"
LANES = ("merge", "rowdelta")
ODD = ["a`b", "x` string, `y", "dot.ted", "sp ace", "quo'te", 'dq"x', "semi;--", "back\\slash", "per%cent", "com,ma",
       "(paren)", "$dollar", "gro\u00df", "`", "a/b", "[x]", "{y}", "*", "?", "#", ":", "=", "<&>", "select", "\u540d\u524d"]  # fmt: skip


def declare(world, table: str, columns: list[tuple[str, str]], key: list[str], **more):
    spec = {
        "source": f"public.{table}", "target": f"{world.space}.{table}", "key": key,
        "columns": [{"name": n, "type": t} for n, t in columns], **more,
    }  # fmt: skip
    world.specs[table] = spec
    (world.root / f"specs/{table}.yml").write_text(yaml.safe_dump(spec, allow_unicode=True))


def line(*fields) -> str:
    return ",".join(csv_field(f) for f in fields) + "\n"


def as_dicts(world, table: str) -> dict:
    """The rows by id, as PyIceberg reads them."""
    rows = lake_table(world.catalog_options, f"{world.space}.{table}").scan().to_arrow().to_pylist()
    return {r["id"]: {k: v for k, v in r.items() if k != "id"} for r in rows}


def lane_of(world, table: str) -> str:
    return lake_table(world.catalog_options, f"{world.space}.{table}").current_snapshot().summary["frazil.lane"]


def test_a_column_name_in_a_header_is_no_sql(new_world):
    world = new_world(AddColumnName=True)
    world.rules = {"rules": []}
    header = line("Op", "ts", "id", "v", DELETES_ALL, SELECTS_ALL, "z")
    for lane in LANES:
        declare(world, lane, [("id", "INT8"), ("v", "WSTRING(50)")], ["id"], changes={"new": "add"})
        world.write(lane, LOAD1, "ts,id,v\n" + "".join(line(ONE_COMMIT, i, f"v{i}") for i in range(100)))
    world.loaded()
    for lane in LANES:
        world.write(lane, FILE1, header + line("U", ONE_COMMIT, 7, "new", "h", "s", "z7"))
        world.merged(tables=[f"public.{lane}"], lane=lane)
        assert lane_of(world, lane) == lane
        rows = as_dicts(world, lane)
        assert (len(rows), rows[7]) == (100, {"v": "new", DELETES_ALL: "h", SELECTS_ALL: "s", "z": "z7"})


def test_a_column_name_in_a_parquet_schema_is_no_sql(new_world):
    world = new_world(DataFormat="parquet")
    world.rules = {"rules": []}
    declare(world, "t", [("id", "INT8"), ("k`", "WSTRING(9)")], ["id", "k`"], changes={"new": "add"})
    keys = {"id": pa.array([1, 2], pa.int64()), "k`": ["a", "b"]}
    folder = world.root / "source/public/t"
    folder.mkdir()
    pq.write_table(pa.table({"ts": [ONE_COMMIT] * 2, **keys}), folder / "LOAD00000001.parquet")
    new = {DELETES_ALL: [7, 8], SELECTS_ALL: ["x", "y"]}
    pq.write_table(pa.table({"Op": ["U"] * 2, "ts": [ONE_COMMIT] * 2, **keys, **new}), folder / FILE1.replace("csv", "parquet"))  # fmt: skip
    world.loaded().merged()
    assert as_dicts(world, "t") == {
        1: {"k`": "a", DELETES_ALL: 7, SELECTS_ALL: "x"}, 2: {"k`": "b", DELETES_ALL: 8, SELECTS_ALL: "y"},
    }  # fmt: skip


@pytest.mark.slow
def test_a_column_name_in_a_control_record_is_no_sql(kafka, catalog_options, spark, tmp_path):
    world = KafkaWorld(kafka, tmp_path / "w", "hostile_stream", catalog_options)
    declare(world, "t", [("id", "INT8"), ("k`", "WSTRING(9)"), ("v", "WSTRING(9)")], ["id", "k`"])
    world.message("load", id=1, v="a", **{"k`": "x"}).message("load", id=2, v="b", **{"k`": "y"}).loaded()
    was = {"id": "INT64", "k`": "STRING"}
    world.control("rename-column", primary_key=("id", "k`"), **was, **{SELECTS_ALL: "STRING"})
    world.control("add-column", primary_key=("id", "k`"), **was, **{SELECTS_ALL: "STRING", DELETES_ALL: "INT32"})
    world.message("update", id=1, **{"k`": "x", SELECTS_ALL: "A", DELETES_ALL: 7})
    world.merged(changes={"new": "add"})
    assert as_dicts(world, "t") == {
        1: {"k`": "x", SELECTS_ALL: "A", DELETES_ALL: 7}, 2: {"k`": "y", SELECTS_ALL: "b", DELETES_ALL: None},
    }  # fmt: skip


@pytest.mark.slow
def test_every_name_of_a_spec_stays_a_name_through_all_notebooks(new_world):
    world = new_world()
    world.rules = {"rules": []}
    columns = [("id", "INT8"), *[(n, "WSTRING(50)") for n in ODD], ("n`o", "INT4"), ("k`2", "WSTRING(9)")]
    laid_out = {"partition": ["a`b", "bucket(2, dot.ted)"], "sort": ["x` string, `y desc", "sp ace"]}
    kept = {"on_bad_rows": "quarantine", "ops_namespace": f"{world.space}_ops"}

    def row(op: tuple, i: int, mark: str, n: int = 5) -> str:
        return line(*op, ONE_COMMIT, i, *[f"{c}{mark}" for c in ODD], n, f"k{i}")

    for lane in LANES:
        declare(world, lane, columns, ["id", "k`2"], **laid_out)
        world.write(lane, LOAD1, "".join(row((), i, str(i)) for i in range(4)))
        world.write(lane, FILE1, row("U", 1, "!") + row("D", 2, "") + row("I", 5, "5", 3_000_000_000))
        world.write(lane, FILE2, row("I", 9, "9"))
    world.loaded()
    assert not [r for r in plan(world.book(CdcMergeSettings)) if r["action"].startswith("cannot")]
    for lane in LANES:
        world.merged(tables=[f"public.{lane}"], lane=lane, **kept)
        assert lane_of(world, lane) == lane
        declare(world, lane, [(n, "INT8" if n == "n`o" else t) for n, t in columns], ["id", "k`2"], **laid_out)
    assert [r.status for r in quarantine_replay.run(world.book(quarantine="replay", **kept))] == ["replayed"] * 2
    assert not [
        r.note for r in maintenance.run(world.book(MaintenanceSettings, target_file_mb=256, **kept)) if r.failed
    ]
    expected = {
        i: {**{c: f"{c}{mark}" for c in ODD}, "n`o": n, "k`2": f"k{i}"}
        for i, mark, n in [(0, "0", 5), (1, "!", 5), (3, "3", 5), (5, "5", 3_000_000_000), (9, "9", 5)]
    }
    for lane in LANES:
        assert as_dicts(world, lane) == expected
        book = world.book(ExploreSettings)
        events = row_history.key_history(book, f"public.{lane}", ["1", "k1"])
        assert [(e["operation"], e["a`b"]) for e in events] == [("update", "a`b!"), ("load", "a`b1")]
        counts = explore.difference(book, f"public.{lane}", "oldest", "newest").counts
        assert counts == {"inserted": 5, "updated": 0, "deleted": 0}
        assert len(book.first_rows(f"public.{lane}")) == 5
