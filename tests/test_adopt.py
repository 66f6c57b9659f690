"""Tables of another pipeline, taken over at a given position; state that older and newer versions have written."""

import json
from pathlib import Path

import pytest

from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.settings import MaintenanceSettings, SetupSettings
from frazil_old.errors import many
from frazil_old.flows import ledger, maintenance
from frazil_old.flows.adopt import AdoptError, adopt
from frazil_old.flows.ledger import LedgerError
from frazil_old.lake.tables import TableError
from helpers import FILE1, FILE2, FILE3, D, I, U

pytestmark = pytest.mark.spark
DATA = Path(__file__).parent / "data"
TXN = [f"CDC_TXN-20240101100{n}00000.csv" for n in range(3)]
TS = "2024-01-01 09:59:00.000000"


def foreign(world, table: str, *rows: tuple, version: int = 2) -> None:
    """Make a table as another Spark job does that knows nothing of Frazil: copy-on-write, every column nullable."""
    world.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{world.space}")
    world.spark.sql(f"CREATE TABLE {world.name(table)} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version' = '{version}')")  # fmt: skip
    if rows:
        world.spark.sql(f"INSERT INTO {world.name(table)} VALUES {', '.join(map(str, rows))}")


def taken(world, position: str, table: str = "t") -> str:
    return adopt(world.book(SetupSettings), f"public.{table}", position)


@pytest.fixture
def shared(new_world):
    """What the article's Glue job has: files of all tables, a load that it inserted, one file that it merged."""
    world = new_world(PreserveTransactions=True, CdcPath="changes/all")
    world.rules = {"rules": []}
    world.table("t").load("t", (1, "a"), (2, "b"), (3, "c"))
    texts = (f"U,t,public,{TS},1,theirs\nD,t,public,{TS},2,\n", f"I,t,public,{TS},2,back\n", f"U,t,public,{TS},3,c3\n")
    for name, text in zip(TXN, texts, strict=True):
        file = world.root / "source/changes/all" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
    foreign(world, "t", (1, "a"), (2, "b"), (3, "c"))
    name = world.name("t")
    world.spark.sql(f"DELETE FROM {name} WHERE id IN (2)")
    world.spark.sql(f"MERGE INTO {name} t USING (SELECT 1L id, 'theirs' v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
    return world


def test_a_table_of_the_glue_article_goes_on_from_its_last_file_exactly_once(shared, monkeypatch, capsys):
    assert "carries no position" in shared.merge()["t"].note
    assert "frazil adopt" in shared.setup()["t"].note
    assert taken(shared, TXN[0]).endswith("2 change files pending")
    assert shared.setup()["t"].status == "exists" and shared.full_load()["t"].status == "unchanged"
    shared.merged(max_batch_files=1)
    assert shared.rows("t") == [(1, "theirs"), (2, "back"), (3, "c3")]
    head = shared.head("t")
    assert shared.merge()["t"].status == "unchanged" and shared.head("t") == head
    with pytest.raises(TableError, match="carries a position already"):
        taken(shared, TXN[0])
    shared.environment(monkeypatch)
    assert main(["down", "--env", "w"]) == exit_codes.NOTHING  # what another pipeline has made is not ours to delete
    assert f"not deleted: table {shared.space}.t: Frazil did not create it" in capsys.readouterr().out


@pytest.mark.parametrize(("position", "pending"), [("load", 3), (FILE1, 2), ("2024-01-01 10:01", 1), ("20231231-230000000.csv", 3)])  # fmt: skip
def test_a_position_is_a_file_a_time_or_the_load(world, position, pending):
    world.table("t").load("t", (1, "a"))
    for name in (FILE1, FILE2, FILE3):
        world.changes("t", U(1, name), name=name)
    foreign(world, "t", (1, "a"), version=1)
    assert f"{many(pending, 'change file')} pending" in taken(world, position)
    world.merged()
    assert world.rows("t") == [(1, FILE3)]


def test_a_time_is_compared_with_names_in_the_time_zone_of_the_files(new_world):
    """A file with the name of 10:02 in Bogota was written at 15:02 UTC, so nothing of it is in the table."""
    w = new_world(DatePartitionEnabled=True, DatePartitionTimezone="America/Bogota")
    w.table("t").load("t", (1, "a")).changes("t", U(1, "b"), name=f"2024/01/01/{FILE3}")
    foreign(w, "t", (1, "a"), version=1)
    assert "1 change file pending" in taken(w, "2024-01-01 14:00")
    assert w.merged().rows("t") == [(1, "b")]


def test_what_is_no_position_and_what_is_no_table_of_the_spec_is_refused(world):
    world.table("t").load("t", (1, "a")).changes("t", U(1, "b"), name=FILE1)
    foreign(world, "t", (1, "a"), (1, "b"), (2, "c"))
    before = world.head("t")
    with pytest.raises(AdoptError, match=f"did you mean '{FILE1}'"):
        taken(world, FILE1.replace("-1000", "-1009"))
    for text in ("the end", "20231399-100000000.csv"):
        with pytest.raises(AdoptError, match="is no position"):
            taken(world, text)
    with pytest.raises(TableError, match=r"id=1 \(2 times\)"):
        taken(world, FILE1)
    world.spark.sql(f"ALTER TABLE {world.name('t')} ADD COLUMN more INT")
    with pytest.raises(TableError, match="more: table int, spec"):
        taken(world, FILE1)
    assert world.head("t") == before and "frazil" not in world.iceberg("t").refs()


def test_a_table_that_spark_cannot_write_is_refused_and_a_copy_of_it_is_taken(world):
    world.table("t").load("t", (1, "a")).changes("t", U(1, "b"))
    name = world.name("t")
    world.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{world.space}")
    world.spark.sql(f"CREATE TABLE {name} (id BIGINT, v STRING, p STRING) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('format-version' = '1')")  # fmt: skip
    world.spark.sql(f"INSERT INTO {name} VALUES (1, 'a', 'x')")
    world.spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD p")
    world.spark.sql(f"ALTER TABLE {name} DROP COLUMN p")
    with pytest.raises(TableError, match="the column of its partition field p was dropped"):
        taken(world, "load")
    world.spark.sql(f"CREATE TABLE {name}_copy USING iceberg AS SELECT * FROM {name}")
    world.specs["t"]["target"] += "_copy"
    world.table_file("t")
    taken(world, "load")
    world.merged()
    assert world.rows("t_copy") == [(1, "b")]


@pytest.mark.parametrize(("then", "now"), [({}, {"mask": "sha256"}), ({"mask": "sha256"}, {})])
def test_a_mask_that_comes_or_goes_on_a_table_that_was_taken_over_stops_it(world, then, now):
    def masked(mask: dict) -> None:
        world.specs["t"]["columns"][1] = {"name": "v", "type": "WSTRING(99)"} | mask
        world.table_file("t")

    world.table("t").load("t", (1, "a"))
    foreign(world, "t", (1, "a"))
    masked(then)
    taken(world, "load")
    world.changes("t", I(2, "b")).merged()
    masked(now)
    note = world.changes("t", I(3, "c"), name=FILE2).merge()["t"].note
    assert "masked in" in note and len(world.rows("t")) == 2


# --- state of other versions


def test_a_table_with_a_position_of_version_1_goes_on_and_one_of_a_newer_version_is_refused(world):
    world.table("t").load("t", (1, "a")).changes("t", I(2, "b"), name=FILE1).loaded().merged()
    first = json.loads((DATA / "position_v1.json").read_text())
    now = world.position("t")
    written = {name: now[name] for name in first} | {"version": 1}

    def put(position):
        text = json.dumps(position).replace("'", "\\'")
        world.spark.sql(f"ALTER TABLE {world.name('t')} SET TBLPROPERTIES ('frazil.position' = '{text}')")

    put(written)
    world.changes("t", D(1), name=FILE2).merged()
    assert world.rows("t") == [(2, "b")]
    put(written | {"version": 99})
    failed = world.changes("t", I(3, "c"), name=FILE3).merge()["t"]
    assert failed.failed and failed.decision and "written by a newer Frazil" in failed.note
    assert world.rows("t") == [(2, "b")]


def test_a_ledger_of_version_1_is_kept_and_written_on_and_a_newer_one_is_refused(new_world):
    world = new_world().table("t").load("t", (1, "a")).changes("t", U(1, "b"), name=FILE1)
    world.loaded().merged()
    ops = f"{world.space}_ops"
    book = world.book(
        MaintenanceSettings,
        ops_namespace=ops,
        dry_run=False,
        hourly_tags=0,
        daily_tags=0,
        max_small_files=99,
        max_deleted_share=1.0,
    )
    first = json.loads((DATA / "ledger_v1.json").read_text())
    world.spark.sql(f"CREATE NAMESPACE lake.{ops}")
    for table, facts in first.items():
        world.spark.sql(f"CREATE TABLE lake.{ops}.{table} ({facts['columns']}) USING iceberg")
        for row in facts["rows"]:
            row = row.replace("NAME", world.name("t"))
            world.spark.sql(f"INSERT INTO lake.{ops}.{table} SELECT {row}")
    maintenance.run(book)
    told = {r.snapshot_id: r for r in ledger.commits(book).collect()}
    assert told[4137462311225348095].latency_ms[-1] == 2000 + 2500 and len(told) == 2
    assert [r.action for r in ledger.actions(book).collect()][0] == "expire snapshots"
    properties = {r.key: r.value for r in world.spark.sql(f"SHOW TBLPROPERTIES lake.{ops}.commits").collect()}
    assert properties["frazil.ledger"] == str(ledger.VERSION)
    newer = ledger.VERSION + 1
    world.spark.sql(f"ALTER TABLE lake.{ops}.commits SET TBLPROPERTIES ('frazil.ledger' = '{newer}')")
    for use in (ledger.commits, ledger.record):
        with pytest.raises(LedgerError, match="written by a newer Frazil"):
            use(book)
