"""What another writer does to a table between two runs: columns that change, keys that occur twice. Nothing goes wrong unsaid."""

import pytest
import yaml

from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.settings import FullLoadSettings, MaintenanceSettings, OperateSettings
from frazil_old.flows import lag, maintenance
from frazil_old.flows.plan import plan
from helpers import FILE2, FILE3, D, I, U
from lake_reader import duckdb_rows, lake_rows

pytestmark = pytest.mark.spark
COLUMNS = ("id INT8", "v WSTRING(50)", "w WSTRING(50)")


def planned(world) -> dict[str, str]:
    return {r["table"].split(".")[1]: r["decision"] for r in plan(world.book(FullLoadSettings))}


def checked(world) -> dict[str, str]:
    return {
        r["table"].split(".")[1]: f"{r['problem']}; {r['cure']}" for r in lag.per_table(world.book(OperateSettings))
    }


def lake(world, table: str) -> list[tuple]:
    return lake_rows(world.catalog_options, f"{world.space}.{table}")


def sql(world, table: str, *statements: str) -> None:
    for statement in statements:
        world.spark.sql(statement.format(t=world.name(table)))


SWAP = [f"ALTER TABLE {{t}} RENAME COLUMN {a} TO {b}" for a, b in (("v", "x"), ("w", "v"), ("x", "w"))]
CHANGED = {
    "swapped": (SWAP, ["'v'", "'w'"]),
    "dropped": (["ALTER TABLE {t} DROP COLUMN v", "ALTER TABLE {t} ADD COLUMN v STRING"], ["'v'", "dropped"]),
    "gone": (["ALTER TABLE {t} DROP COLUMN w"], ["'w'", "dropped"]),
    "key": (
        [f"ALTER TABLE {{t}} RENAME COLUMN {a} TO {b}" for a, b in (("id", "x"), ("n", "id"), ("x", "n"))],
        ["'id'", "'n'"],
    ),
}


@pytest.mark.slow
def test_changed_columns_stop_their_table_until_the_schema_is_restored(world, monkeypatch):
    for table in (*CHANGED, "fine"):
        columns = ("id INT8", "n INT8", "v WSTRING(50)") if table == "key" else COLUMNS
        rows = [(1, 10, "a"), (2, 20, "b")] if table == "key" else [(1, "a", "A"), (2, "b", "B")]
        world.table(table, *columns).load(table, *rows)
    world.loaded()
    for table in world.specs:
        values = (3, 30, "c") if table == "key" else (3, "c", "C")
        sql(world, table, *CHANGED.get(table, ([],))[0])
        world.changes(table, I(*values))
    before = {t: world.head(t) for t in CHANGED}
    by_merge, done = world.merge(lane="merge", tables=["public.swapped", "public.key"]), world.merge(lane="rowdelta")
    assert all(r.failed for r in by_merge.values())
    assert done["fine"].status == "merged" and len(lake(world, "fine")) == 3
    for said in ({t: r.note for t, r in done.items()}, planned(world), checked(world)):
        for table, (_, named) in CHANGED.items():
            restore, replay = said[table].find("frazil repair --table public." + table), said[table].find("replay")
            assert all(name in said[table] for name in named) and 0 < restore < replay, said[table]
    assert all(world.head(t) == head for t, head in before.items())
    asked = world.book(MaintenanceSettings, dry_run=False, max_small_files=0, tables=["public.gone"])
    assert maintenance.run(asked)[0].failed  # a compaction would drop the values for good

    world.environment(monkeypatch)
    assert main(["repair", "--env", "w"]) == exit_codes.OK
    world.merged(lane="rowdelta")
    for table in world.specs:
        wanted = (
            [(1, 10, "a"), (2, 20, "b"), (3, 30, "c")]
            if table == "key"
            else [(1, "a", "A"), (2, "b", "B"), (3, "c", "C")]
        )
        assert lake(world, table) == wanted, table
        assert duckdb_rows(world.catalog_options, f"{world.space}.{table}") == wanted, table


def test_a_replay_writes_all_rows_into_the_new_columns(world):
    for table in ("swapped", "dropped"):
        world.table(table, *COLUMNS).load(table, (1, "a", "A"), (2, "b", "B"))
    world.loaded()
    for table in world.specs:
        world.changes(table, U(2, "bb", "BB"))
    world.merged()
    for table in world.specs:
        sql(world, table, *CHANGED[table][0])
    assert {r.status for r in world.full_load(on_changed_load="reload").values()} == {
        "failed"
    }  # it would lose the update
    assert {r.status for r in world.full_load(on_changed_load="replay").values()} == {"replayed"}
    for table in world.specs:
        world.changes(table, I(3, "c", "C"), name=FILE2)
    world.merged()
    for table in world.specs:
        rows = world.spark.sql(f"SELECT id, v, w FROM {world.name(table)} ORDER BY id").collect()
        assert [tuple(r) for r in rows] == [(1, "a", "A"), (2, "bb", "BB"), (3, "c", "C")]
        assert len(lake(world, table)) == 3


def test_what_the_spec_itself_changes_is_no_change_by_others(world):
    """Names may pass from one column to another by `renamed_from`; a column that others add and the spec then lists is guarded too."""
    world.table("t", *COLUMNS).load("t", (1, "a", "A")).loaded()
    spec = world.specs["t"]
    spec["columns"][1]["name"], spec["columns"][1]["renamed_from"] = "x", "v"
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(spec))
    world.changes("t", U(1, "b", "B")).merged()
    sql(world, "t", "ALTER TABLE {t} ADD COLUMN more STRING")
    spec["columns"].append({"name": "more", "type": "WSTRING(50)"})
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(spec))
    world.changes("t", U(1, "c", "C", "m"), name=FILE2).merged()
    assert lake(world, "t") == [(1, "c", "C", "m")]
    sql(world, "t", "ALTER TABLE {t} DROP COLUMN more", "ALTER TABLE {t} ADD COLUMN more STRING")
    world.changes("t", U(1, "d", "D", "n"), name=FILE3)
    assert "'more'" in world.merge()["t"].note


TWICE = {
    "same count": (["DELETE FROM {t} WHERE id = 7", "INSERT INTO {t} VALUES (8, 'theirs', 'X')"], ["id=8"]),
    "one more": (["INSERT INTO {t} VALUES (3, 'theirs', 'X'), (5, 'theirs', 'X'), (99, 'new', 'X')"], ["id=3", "id=5"]),
    "updated": (["UPDATE {t} SET id = 4 WHERE id = 6"], ["id=4"]),
}


@pytest.mark.slow
def test_a_nested_column_of_another_writer_is_named_and_may_be_moved_to_another_table(world):
    world.table("t").table("fine").load("t", (1, "a")).load("fine", (1, "a")).loaded()
    sql(world, "t", "ALTER TABLE {t} ADD COLUMN info STRUCT<n: INT>", "UPDATE {t} SET info = named_struct('n', 7)")
    world.changes("t", U(1, "b")).changes("fine", U(1, "b"))
    for gone in ("refuse", "keep"):
        done = world.merge(changes={"gone": gone})
        assert "another writer added the column 'info' of type struct" in done["t"].note and done["t"].decision
    sql(
        world,
        "t",
        "CREATE TABLE {t}_info USING iceberg AS SELECT id, info FROM {t}",
        "ALTER TABLE {t} DROP COLUMN info",
    )
    world.merged()
    assert world.rows("t") == world.rows("fine") == [(1, "b")]
    assert [r.info.n for r in world.spark.table(world.name("t_info")).collect()] == [7]


def test_keys_that_others_doubled_are_reported_and_no_row_is_removed(world):
    names = {kind: kind.replace(" ", "_") for kind in TWICE}
    for table in (*names.values(), "unharmed"):
        world.table(table, *COLUMNS).load(table, *[(i, f"v{i}", "X") for i in range(1, 10)])
    world.loaded()
    for table in world.specs:
        world.changes(table, U(1, "first", "X"))
    world.merged(lane="rowdelta")
    for kind, (statements, _) in TWICE.items():
        sql(world, names[kind], *statements)
    sql(world, "unharmed", "INSERT INTO {t} VALUES (50, 'theirs', 'X')", "DELETE FROM {t} WHERE id = 2")
    idle = world.merge(lane="merge")
    planned_, checked_ = planned(world), checked(world)
    for table in world.specs:
        world.changes(table, U(8, "ours", "X"), D(3), name=FILE2)
    before = {t: lake(world, t) for t in names.values()}
    done = world.merge(lane="rowdelta")
    assert done["unharmed"].status == "merged"
    for said in ({t: r.note for t, r in idle.items()}, planned_, checked_, {t: r.note for t, r in done.items()}):
        for kind, (_, keys) in TWICE.items():
            assert all(f"{k} (2 rows)" in said[names[kind]] for k in keys), (kind, said[names[kind]])
            assert "id=99" not in said[names[kind]]
    assert {t: lake(world, t) for t in before} == before
    for table in ("same_count", "one_more"):
        sql(world, table, "DELETE FROM {t} WHERE id <> 99 AND v = 'theirs'")
    sql(world, "updated", "UPDATE {t} SET id = 6 WHERE v = 'v6'")
    world.merged(lane="rowdelta")
    for table in world.specs:
        ids = [r[0] for r in lake(world, table)]
        assert len(set(ids)) == len(ids) and (8, "ours", "X") in lake(world, table), table
