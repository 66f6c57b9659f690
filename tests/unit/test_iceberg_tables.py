"""Tables of the Iceberg room: how they are created and taken over, how their columns change, and what others do to them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from frazil.core.latest import latest
from frazil.dms.position import Position
from frazil.iceberg import commits, expiry
from frazil.iceberg.columns import ColumnPlan, Known, OtherWriterError, evolved, known_columns
from frazil.iceberg.create import ForeignTableError, adopt, create_table
from frazil.iceberg.data_files import by_partition
from frazil.iceberg.delete_files import PartitionDroppedError
from frazil.iceberg.doubled_keys import DoubledInLoadError, DoubledKeyError
from frazil.iceberg.locate import require_unique_keys, scan_files
from frazil.iceberg.row_delta import write_batch, write_rows
from frazil.iceberg.soundness import RolledBackError, require_sound
from frazil.iceberg.table import LakeTable
from frazil.settings.spec import TableSpec
from unit.iceberg_world import Kept, replace_position

pytestmark = pytest.mark.spark
COLUMNS = [{"name": "id", "type": "INT8"}, {"name": "v", "type": "WSTRING(9)", "comment": "it's v"}, {"name": "at", "type": "DATETIME"}]  # fmt: skip


def spec_of(name: str, **more) -> TableSpec:
    return TableSpec.model_validate({"source": f"db.{name}", "key": ["id"], "columns": COLUMNS, **more})


def created(lake, spec: TableSpec, version: int = 3) -> tuple[LakeTable, bool]:
    return create_table(lake.catalog, spec, version, lambda: lake.session)


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_is_created_once_as_its_spec_says_with_a_position_and_known_columns(lake, version):
    name = f"made_v{version}"
    spec = spec_of(
        name, partition=["day(at)", "bucket(4, id)", "truncate(4,v)"], sort=["at desc", "id"], comment="it's"
    )
    table, is_new = created(lake, spec, version)
    assert is_new and created(lake, spec, version)[1] is False
    assert (table.position, require_sound(table), table.key) == (Position(schema=1), [], ["id"])
    made = lake.catalog.load_table(spec.target).metadata
    assert (made.format_version, made.properties["comment"]) == (version, "it's")
    assert [f.name for f in made.spec().fields] == ["at_day", "id_bucket", "v_trunc"]
    assert [str(f.direction) for f in made.sort_orders[-1].fields] == ["DESC", "ASC"]
    assert [made.schema().find_column_name(n) for n in made.schema().identifier_field_ids] == ["id"]
    assert [(f.name, str(f.field_type), f.required, f.doc) for f in made.schema().fields] == [
        ("id", "long", True, None), ("v", "string", False, "it's v"), ("at", "timestamp", False, None),
    ]  # fmt: skip
    assert [(k.id, k.name, k.dms, k.key) for k in known_columns(table.metadata).columns] == [
        (1, "id", "INT8", True), (2, "v", "WSTRING(9)", False), (3, "at", "DATETIME", False),
    ]  # fmt: skip


def test_a_table_of_another_spec_is_created_anew_only_while_it_was_never_loaded(lake):
    table, _ = created(lake, spec_of("anew"))
    changed = spec_of("anew", key=["id", "at"])
    lake.session.sql(f"ALTER TABLE {table.spark_name} SET TBLPROPERTIES ('x' = 'y')")
    again, is_new = created(lake, changed)
    assert is_new and again.key == ["id", "at"] and "x" not in again.metadata.properties
    rows = pa.table({"id": [1], "v": ["a"], "at": pa.array([0], pa.timestamp("us"))})
    change = write_rows(again, "append", [rows])
    commits.commit(again, commits.written(again, change), lambda: change, again.position, Position(load="x"))
    assert created(lake, spec_of("anew"))[1] is False


@pytest.mark.parametrize("name", ["my-table", "Größe", "a b", "quo'te"])
def test_a_table_may_have_any_name(lake, name):
    table, _ = created(lake, spec_of(name))
    assert expiry.remove_orphans(table, 3) == [] and not expiry.rewrite_manifests(table)
    rows = pa.table({"id": [1], "v": ["a"], "at": pa.array([0], pa.timestamp("us"))})
    change = write_rows(table, "append", [rows])
    commits.commit(table, commits.written(table, change), lambda: change, table.position, Position(load="x"))
    lake.session.sql(f"DELETE FROM {table.spark_name}")


def test_rows_of_many_partitions_are_told_apart(lake):
    fields = ", ".join(f"p{n} int" for n in range(5))
    lake.session.sql(f"create table lake.db.parts ({fields}) using iceberg partitioned by (p0, p1, p2, p3, p4)")
    table = LakeTable(lake.catalog, "db.parts", [], lambda: lake.session)
    rows = pa.table({f"p{n}": pa.array([(i * (n + 3)) % 9973 for i in range(9973)], pa.int32()) for n in range(5)})
    parts = [*by_partition(table.metadata, rows)]
    assert len(parts) == 9973 and all([*rows.slice(n, 1).to_pylist()[0].values()] == [p[i] for i in range(5)] for p, (n,) in parts)  # fmt: skip


def test_a_creation_that_was_killed_goes_on(lake, monkeypatch):
    spec = spec_of("killed", sort=["id"], partition=["größe"], columns=[*COLUMNS, {"name": "größe", "type": "INT4"}])
    with monkeypatch.context() as patch:
        patch.setattr("frazil.iceberg.create._begin", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            created(lake, spec)
    table, is_new = created(lake, spec)
    assert is_new and table.position.batch == 0 and [f.name for f in table.metadata.spec().fields] == ["gr_xF6_xDFe"]


def test_an_empty_table_of_others_is_refused_and_one_without_a_key_is_taken_over(lake):
    spec, w = spec_of("theirs", columns=COLUMNS[:2], key=(), without_key="append"), lake.session.sql
    w("CREATE TABLE lake.db.theirs (id BIGINT, v STRING) USING iceberg")
    with pytest.raises(ForeignTableError):
        created(lake, spec)
    w("INSERT INTO lake.db.theirs VALUES (1, 'a'), (1, 'a')")
    table = LakeTable(lake.catalog, "db.theirs", [], lambda: lake.session)
    adopt(table, spec, Position(load="all", last="f3"))
    assert (table.position.last, created(lake, spec)[1]) == ("f3", False)


# --- columns


def known(w: Kept) -> list[Known]:
    """Return what the table's columns are, as Frazil would know them."""
    return [Known(f.field_id, f.name, str(f.field_type), "INT8", key=f.name in w.key) for f in w.table.metadata.schema().fields]  # fmt: skip


def with_columns(w: Kept, steps: list[dict], columns: list[Known]):
    """Commit a batch with which columns change, and return it."""
    after = evolved(w.table, ColumnPlan(tuple(steps), tuple(columns)))
    planned = w.table.position
    change = commits.Change("row delta", columns=after.steps, properties=after.properties)
    return commits.commit(w.table, commits.written(w.table, change), lambda: change, planned, replace_position(planned))


def test_a_batch_is_written_with_the_columns_that_it_brings(lake):
    w = Kept(lake, "brings", "bigint")
    w.apply_random()
    before = w.table.head_id
    steps = [{"step": "add", "name": "x", "to": "int"}, {"step": "rename", "name": "v", "to": "w"}, {"step": "widen", "name": "n", "to": "long"}, {"step": "rename", "name": "k0", "to": "id"}]  # fmt: skip
    names = {"v": "w", "k0": "id"}
    columns = [structs.replace(k, name=names.get(k.name, k.name)) for k in known(w)] + [Known(0, "x", "int", "INT4")]
    new, gone = w.changes(100, 40)
    batch = w.latest(new, gone)
    rows = batch.rows.rename_columns(["id", "region", "day", "n", "w"])
    rows = rows.set_column(3, "n", rows["n"].cast("int64")).append_column("x", pa.array(range(len(rows)), pa.int32()))
    batch = replace(batch, rows=rows, keys=batch.keys.rename_columns(["id"]))
    change = write_batch(w.table, w.segments, batch, ColumnPlan(tuple(steps), tuple(columns)))
    planned = w.table.position
    commits.commit(
        w.table, commits.written(w.table, change), lambda: pytest.fail("again"), planned, replace_position(planned)
    )
    assert w.table.head.parent == before and w.table.key == ["id"]
    told = known_columns(w.table.metadata)
    assert told.columns[-1].id == w.table.metadata.schema().find_field("x").field_id
    assert w.table.position.schema == told.schema == w.table.metadata.current_schema_id
    for key in gone:
        w.rows.pop(key, None)
    w.rows = {k: (*v, None) for k, v in w.rows.items()} | {k: (*v, n) for n, (k, v) in enumerate(new.items())}
    w.key = ["id"]
    w.check()


@pytest.mark.parametrize("others", [["add column theirs int"], ["add column theirs int", "drop column theirs"]])
def test_a_new_column_has_the_id_of_its_swap_whatever_others_add_meanwhile(lake, others):
    w = Kept(lake, f"meanwhile_{len(others)}", "bigint")
    columns = ColumnPlan(({"step": "add", "name": "x", "to": "int"},), (*known(w), Known(0, "x", "int", "INT4")))
    planned, batch = w.table.position, w.latest({(1,): ("eu", None, 1, "v")}, [])
    batch = replace(batch, rows=batch.rows.append_column("x", pa.array([7], pa.int32())))
    first = commits.written(w.table, write_batch(w.table, w.segments, batch, columns))
    for change in others:
        w.sql(f"alter table {{t}} {change}")
    commits.commit(w.table, first, lambda: write_batch(w.table, w.segments, batch, columns), planned, replace_position(planned))  # fmt: skip
    assert w.sql("select x from {t}").collect() == [(7,)]


@pytest.mark.parametrize(
    ("others", "named"),
    [
        (["rename column v to x", "rename column region to v", "rename column x to region"], ["'v'", "'region'"]),
        (["rename column k0 to x", "rename column n to k0", "rename column x to n"], ["'k0'", "'n'"]),
        (["drop column v", "add column v string"], ["'v'"]), (["drop column n"], ["'n'"]), (["add column info struct<a: int>"], ["'info'"]),
    ],
)  # fmt: skip
def test_columns_that_others_changed_stop_the_table_with_their_names(lake, others, named):
    w = Kept(lake, f"columns_{len(others)}_{len(named[0])}_{named[0][1]}", "bigint")
    w.apply_random()
    with_columns(w, [], known(w))
    for change in others:
        w.sql(f"alter table {{t}} {change}")
    w.table.refresh()
    with pytest.raises(OtherWriterError) as stopped:
        require_sound(w.table)
    assert all(name in str(stopped.value) for name in named)


@pytest.mark.parametrize("version", [2, 3])
def test_values_in_columns_of_others_stay_with_their_rows(lake, version):  # B6
    w = Kept(lake, f"note_v{version}", "bigint", version=version)
    w.apply_random(60, 60)
    w.sql("alter table {t} add column note string")
    w.sql("update {t} set note = concat('note ', k0)")
    noted = {k: (*v, f"note {k[0]}") for k, v in w.rows.items()}
    w.table.refresh()
    new, gone = w.changes(90, 50)
    changes = w.changes_of({k: (*v, None) for k, v in new.items()}, gone)
    backwards = list(range(len(changes.rows)))[::-1]  # deletes come first
    rows, facts = changes.rows.drop("note").take(backwards), changes.facts.take(backwards)
    w.commit(latest(replace(changes, rows=rows, facts=facts), w.key))
    w.rows = {k: v for k, v in noted.items() if k not in gone}
    w.rows |= {k: (*v, noted[k][4] if k in noted else None) for k, v in new.items()}
    w.check()
    w.commit_change(lambda: write_rows(w.table, "replace", [rows.filter(pc.is_valid(rows["n"]))]))
    w.rows, w.ids = {k: (*v, None) for k, v in new.items()}, {}
    w.check()


@pytest.mark.parametrize("version", [2, 3])
def test_rows_of_sorted_tables_are_found_again(lake, version):  # B1
    w = Kept(lake, f"sorted_v{version}", "string", partitioned="region", version=version)
    w.sql("alter table {t} write ordered by v desc, n")
    w.table.refresh()
    for _ in range(4):
        w.apply_random(200, 80)
    w.check()
    for file in w.table.live_files.values():
        values = pq.read_table(file.path.removeprefix("file://"), columns=["v"])["v"].to_pylist()
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("version", [2, 3])
def test_files_in_partitions_by_a_dropped_column_stop_a_batch_until_they_are_rewritten(lake, version):  # B5
    w = Kept(lake, f"parted_v{version}", "bigint", version=version)
    for change in ("add partition field region", "drop partition field region", "drop column region"):
        new, gone = w.changes(100, 50)
        w.apply({k: (None, *v[1:]) for k, v in new.items()}, gone)  # in the partition null
        w.sql(f"alter table {{t}} {change}")
        w.table.refresh()
    w.rows = {k: v[1:] for k, v in w.rows.items()}
    new, gone = w.changes(100, 50)
    w.apply({k: v[1:] for k, v in new.items()}, gone)
    w.check(duckdb=False)  # which ends its process on such files
    for change in ("add partition field v", "drop partition field v", "drop column v"):
        w.sql(f"alter table {{t}} {change}")
        w.table.refresh()
        if change.startswith("add"):
            w.apply(({(n,): (None, n, f"v{n % 3}") for n in range(9)}), [])
    w.rows = {k: v[:-1] for k, v in w.rows.items()}
    batch = {(n,): (None, 2 * n) for n in range(5)}
    with pytest.raises(PartitionDroppedError):
        w.apply(batch, [])
    w.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
    w.table.refresh()
    w.apply(batch, [])
    w.check()


# --- keys that occur twice


@pytest.mark.parametrize("kept", [True, False], ids=["segments", "a scan"])
def test_keys_that_others_doubled_are_named_also_where_no_change_is_of_them(lake, kept):
    w = Kept(lake, f"twice_{kept}".lower(), "bigint")
    for key in (3, 5, 8):
        w.apply({(key,): ("eu", None, key, "x")}, [])
    segments = w.segments if kept else scan_files
    require_unique_keys(w.table, segments)
    insert = "insert into {t} values "
    others = {
        "k0=3, k0=5": insert + "(3, 'eu', null, 1, 'theirs'), (5, 'eu', null, 1, 'theirs'), (99, 'eu', null, 1, 'new')",
        "k0=7": insert + "(7, 'eu', null, 1, 'theirs'), (7, 'us', null, 1, 'theirs')",
        "k0=8": "update {t} set k0 = 8, v = 'theirs' where k0 = 5",
    }
    for named, statement in others.items():
        w.sql(statement)
        w.table.refresh()
        commits.pass_others(w.table)  # which looks at no keys, as a compaction; nor does a decision
        w.commit_change(lambda: commits.Change("row delta"))
        with pytest.raises(DoubledKeyError, match=named):
            write_batch(w.table, segments, w.latest({(1,): ("us", None, 1, "y")}, []))
        w.sql("delete from {t} where v = 'theirs'")
        w.table.refresh()
        require_unique_keys(w.table, segments)
    w.rows = {(3,): ("eu", None, 3, "x"), (8,): ("eu", None, 8, "x"), (99,): ("eu", None, 1, "new")}
    w.apply({(8,): ("us", None, 9, "ours")}, [(3,)])
    w.check()


@pytest.mark.parametrize("at_once", [1 << 25, 7])
def test_a_load_with_one_key_twice_is_refused_with_the_key(lake, at_once, monkeypatch):
    monkeypatch.setattr("frazil.iceberg.doubled_keys.AT_ONCE", at_once)
    w = Kept(lake, f"load_twice_{at_once}", "bigint", "string", partitioned="region")
    blocks = [{(n, "a"): (region, None, n, "v") for n in range(first, first + 10)} for first, region in ((0, "eu"), (9, "us"))]  # fmt: skip
    rows = [w.changes_of(block, []).rows for block in blocks]
    with pytest.raises(DoubledInLoadError, match=r"\(k0=9, k1=a\)"):
        write_rows(w.table, "replace", rows)
    w.commit_change(lambda: write_rows(w.table, "append", rows[:1]))
    with pytest.raises(DoubledInLoadError, match="k0=9"):
        write_rows(w.table, "append", rows[1:])
    w.rows = blocks[0]
    w.check()


# --- histories


def test_a_table_that_is_rolled_forward_again_repeats_no_batch(lake):
    w = Kept(lake, "forward", "bigint")
    first, second = w.apply_random(), w.apply_random()
    for procedure, to in (("rollback_to_snapshot", first), ("set_current_snapshot", second)):
        w.call(procedure, f", snapshot_id => {to.id}")
        w.table.refresh()
        with pytest.raises(RolledBackError) as stopped:
            require_sound(w.table)
        lake.session.sql(stopped.value.cure)
        w.table.refresh()
        assert require_sound(w.table) == [] and w.table.own.id == to.id
    w.apply_random()
    w.check()


def test_own_expiry_keeps_what_others_committed_since_and_an_empty_commit_passes_it(lake):  # A3
    w = Kept(lake, "passed", "bigint")
    for _ in range(3):
        w.apply_random()
    for rest in (3, 5):
        w.sql(f"delete from {{t}} where n % {rest} = 0")
    w.rows = {k: v for k, v in w.rows.items() if v[2] % 3 and v[2] % 5}
    w.table.refresh()
    assert expiry.expire(w.table, 0.0) == 2 and len(require_sound(w.table)) == 2
    position = w.table.position
    done = commits.pass_others(w.table)
    assert (w.table.tags["frazil"], w.table.position, require_sound(w.table)) == (done.id, position, [])
    w.apply_random()
    w.check()
