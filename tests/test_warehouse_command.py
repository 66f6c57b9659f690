"""`frazil warehouse show`, `apply` and `undo`: on a driver that records, and on DuckDB."""

import json
import re
import time

import pyarrow as pa
import pytest
import yaml
from fake_driver import SERVERS, FakeServer
from frazil_old.cli.commands import main
from frazil_old.config.settings import resolve
from frazil_old.flows import warehouse_lateness
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from warehouse_world import ENTRIES, WarehouseWorld


@pytest.fixture
def server():
    SERVERS["fake"] = FakeServer()
    yield SERVERS["fake"]
    del SERVERS["fake"]


@pytest.fixture
def world(tmp_path, monkeypatch, server):
    snow = {"engine": "snowflake", **ENTRIES, "secret": "env:LOGIN", "options": {"user": "frazil", "port": 443}}
    monkeypatch.setenv("LOGIN", json.dumps({"password": "top-secret-word"}))
    return WarehouseWorld(tmp_path, monkeypatch, snow=snow)


def frazil(*words: str) -> int:
    return main(["warehouse", *words[:1], "--env", "wh", *words[1:]])


def changes(server: FakeServer) -> list[str]:
    return [" ".join(s.split('"')[0].split()[:3]) for s in server.sent if s.startswith(("CREATE", "DROP"))]


def test_show_prints_every_statement_in_order_and_the_steps_and_connects_to_nothing(world, server, capsys):
    assert frazil("show") == 0
    lines = capsys.readouterr().out.splitlines()
    starts = [line.split('"')[0].strip() for line in lines if line.startswith(("CREATE", "ALTER", "SELECT"))]
    assert starts == [
        "CREATE CATALOG INTEGRATION IF NOT EXISTS", "CREATE EXTERNAL VOLUME IF NOT EXISTS", "CREATE SCHEMA IF NOT EXISTS",
        *["CREATE ICEBERG TABLE IF NOT EXISTS"] * 2, *["ALTER ICEBERG TABLE"] * 2,
        *["SELECT SYSTEM$GET_ICEBERG_TABLE_INFORMATION('"] * 2,
    ]  # fmt: skip
    assert any("trust policy" in line for line in lines)
    assert server.sent == []


def test_apply_can_be_repeated_and_undo_drops_in_the_other_order_what_it_made(world, server, capsys):
    assert frazil("apply") == 0
    made = changes(server)
    assert made == [
        "CREATE CATALOG INTEGRATION",
        "CREATE EXTERNAL VOLUME",
        "CREATE SCHEMA IF",
        "CREATE ICEBERG TABLE",
        "CREATE ICEBERG TABLE",
    ]
    assert frazil("apply") == 0
    assert changes(server) == made
    assert capsys.readouterr().out.count("made earlier") == 5
    assert frazil("undo") == 0
    assert changes(server)[5:] == [
        "DROP ICEBERG TABLE",
        "DROP ICEBERG TABLE",
        "DROP SCHEMA IF",
        "DROP EXTERNAL VOLUME",
        "DROP CATALOG INTEGRATION",
    ]
    assert server.there == set()
    assert frazil("undo") == 0
    assert len(changes(server)) == 10
    assert server.closed == 4


def test_undo_leaves_what_was_there_before(world, server, capsys):
    server.there |= {"SHOP", "ORDERS"}
    assert frazil("apply") == 0
    assert "schema shop: was there, stays after undo" in capsys.readouterr().out
    assert frazil("undo") == 0
    assert server.there == {"SHOP", "ORDERS"}


def test_a_schema_of_the_same_name_is_not_taken_for_the_table(tmp_path, monkeypatch, server, capsys):
    """Snowflake's lists also name schema, database and owner of each object."""
    WarehouseWorld(tmp_path, monkeypatch, snow={"engine": "snowflake", **ENTRIES, "namespace": "orders"})
    other = [("2026-11-01", "OTHER", "ORDERS")]
    server.answers = [
        ("SHOW ICEBERG TABLES", other),
        ("SHOW SCHEMAS", [("2026-11-01", "INFORMATION_SCHEMA", "ORDERS")]),
    ]
    assert frazil("apply") == 0
    told = capsys.readouterr().out
    assert "schema orders: made" in told and "table orders: made" in told


def test_a_table_without_a_snapshot_is_said_and_the_others_are_looked_at(late, capsys):
    late.catalog.drop_table("shop.orders")
    late.catalog.create_table("shop.orders", late.catalog.load_table("shop.items").schema())
    assert frazil("refresh") == 6
    told = capsys.readouterr().out
    assert "duck: shop.orders has no rows yet" in told and "duck: public.items: served" in told


def test_a_warehouse_in_trouble_does_not_keep_the_others_from_their_refresh(tmp_path, monkeypatch, server, capsys):
    duck = {"engine": "duckdb", "database": str(tmp_path / "w.duckdb")}
    WarehouseWorld(
        tmp_path, monkeypatch, away={"engine": "snowflake", **ENTRIES, "connect": "nowhere:connect"}, duck=duck
    )
    for action, code in (("apply", 1), ("refresh", 1)):
        assert frazil(action) == code
    told = capsys.readouterr()
    assert (
        "the driver nowhere of warehouse 'away' is not installed" in told.err
        and "duck: public.orders: served" in told.out
    )


def test_undo_of_one_table_keeps_the_rest(world, server):
    frazil("apply")
    assert frazil("undo", "--table", "public.items") == 0
    assert [s for s in server.sent if s.startswith("DROP")] == [
        'DROP ICEBERG TABLE IF EXISTS "ANALYTICS"."SHOP"."ITEMS"'
    ]
    assert frazil("undo") == 0
    assert server.there == set()


def test_undo_needs_no_lake_and_names_a_table_for_which_nothing_was_made(tmp_path, monkeypatch, capsys):
    duck = {"engine": "duckdb", "database": str(tmp_path / "live.duckdb")}
    WarehouseWorld(tmp_path, monkeypatch, duck=duck)
    assert frazil("apply") == 0
    (tmp_path / "lake/catalog.db").unlink()
    assert frazil("undo", "--table", "public.items") == 0
    assert "duck: view items: dropped" in capsys.readouterr().out
    assert frazil("undo", "--table", "public.items") == 0
    assert capsys.readouterr().out == "duck: nothing was made for public.items\n"
    assert frazil("undo") == 0
    assert capsys.readouterr().out == "duck: view orders: dropped\nduck: schema shop: dropped\n"


def test_apply_of_one_table_makes_only_that_table(world, server):
    assert frazil("apply", "--table", "public.items") == 0
    assert [s for s in server.sent if "ORDERS" in s] == []


def test_an_object_that_is_not_dropped_stays_recorded(world, server, capsys):
    frazil("apply")
    server.answers = [("DROP SCHEMA", RuntimeError("schema is not empty\nmore"))]
    assert frazil("undo") == 1
    assert "schema shop: stays: warehouse 'snow': RuntimeError: schema is not empty" in capsys.readouterr().out
    server.answers = []
    assert frazil("undo") == 0
    assert server.there == set()


def test_a_statement_that_fails_is_shown_and_what_it_would_have_made_is_not_dropped(world, server, capsys):
    server.answers = [("CREATE SCHEMA", RuntimeError("no privilege"))]
    assert frazil("apply") == 1
    told = capsys.readouterr().err
    assert "WarehouseError: warehouse 'snow': RuntimeError: no privilege" in told
    assert 'the statement was CREATE SCHEMA IF NOT EXISTS "ANALYTICS"."SHOP"' in told
    frazil("undo")
    assert [s for s in server.sent if "DROP SCHEMA" in s] == []


def test_an_object_of_a_killed_apply_is_dropped(world, server):
    class Killed(BaseException):
        pass

    def kill(statement):
        server.there.add("SHOP")
        raise Killed

    server.answers = [("CREATE SCHEMA", kill)]
    with pytest.raises(Killed):
        frazil("apply")
    server.answers = []
    assert frazil("undo") == 0
    assert server.there == set()


def test_secrets_and_options_reach_the_driver_and_no_file_and_no_message(world, server, capsys):
    frazil("apply")
    assert server.arguments == {"user": "frazil", "port": 443, "password": "top-secret-word"}
    server.answers = [("SHOW", RuntimeError("bad login top-secret-word"))]
    frazil("apply")
    assert "top-secret-word" not in "".join(capsys.readouterr())
    assert not [f for f in world.root.rglob("*") if f.is_file() and b"top-secret-word" in f.read_bytes()]


@pytest.mark.parametrize(
    ("change", "says"),
    [({"connect": "no_such_driver:connect"}, "the driver no_such_driver of warehouse 'snow' is not installed\n  cure: pip install 'frazil[snowflake]'"),
     ({"connect": "fake_driver:conect"}, "fake_driver has no function conect"), ({"secret": "env:NOT_SET"}, "NOT_SET is not set"),
     ({"options": {"server": "gone"}}, "cannot be reached: KeyError: 'gone'"), ({"tables": ["x.%"]}, "reads none of the tables"),
     ({"role": None}, "lacks role"), ({"account": 12}, "warehouse 'snow': account: '12'")],
)  # fmt: skip
def test_a_mistake_is_explained(tmp_path, monkeypatch, server, capsys, change, says):
    snow = {"engine": "snowflake", **ENTRIES, **change}
    WarehouseWorld(tmp_path, monkeypatch, snow={k: v for k, v in snow.items() if v is not None})
    assert frazil("apply") in (1, 2)
    assert says in capsys.readouterr().err


def test_an_environment_without_warehouses_and_an_unknown_name_are_explained(world, capsys):
    assert frazil("show", "--warehouse", "snwo") == 2
    assert "did you mean 'snow'?" in capsys.readouterr().err
    world.file.write_text(world.file.read_text().split("warehouses:")[0])
    assert frazil("show") == 2
    assert "declares no warehouse" in capsys.readouterr().err


def test_a_warehouse_may_be_called_like_a_parameter_of_an_earlier_version(tmp_path, monkeypatch, server):
    WarehouseWorld(tmp_path, monkeypatch, readers={"engine": "snowflake", **ENTRIES})
    assert frazil("show") == 0


@pytest.mark.parametrize("folder", ["Order Details", "o'brien", "a (1), b"])
def test_a_folder_with_a_blank_or_a_quote_is_not_late(tmp_path, monkeypatch, folder):
    world = WarehouseWorld(tmp_path, monkeypatch, duck={"engine": "duckdb", "database": str(tmp_path / "w.duckdb")})
    columns = pa.schema([("id", pa.int64())])
    there = world.catalog.create_table("shop.more", columns, location=f"file://{tmp_path}/lake/{folder}")
    there.append(pa.table({"id": [1]}))
    spec = {"source": "public.more", "target": "shop.more", "key": ["id"], "columns": [{"name": "id", "type": "INT8"}]}
    (tmp_path / "params/shop/more.yml").write_text(yaml.safe_dump(spec))
    assert [frazil("apply"), frazil("check"), frazil("refresh")] == [0, 0, 0]


def test_names_that_would_share_a_record_are_refused(tmp_path, monkeypatch, capsys):
    WarehouseWorld(tmp_path, monkeypatch, **{n: {"engine": "snowflake", **ENTRIES} for n in ("a-b", "A_b")})
    assert frazil("show") == 2
    assert "wh.yml: warehouses A_b, a-b: what they have" in capsys.readouterr().err


def test_a_damaged_record_is_named_with_a_remedy(world, capsys):
    frazil("apply")
    (record,) = (world.root / "runs/wh/warehouses").glob("*.json")
    record.write_text("")
    capsys.readouterr()
    assert (frazil("apply"), frazil("undo")) == (1, 1)
    assert capsys.readouterr().err.count(f"{record} is damaged\n  cure: restore it; or remove it") == 2


def test_down_says_that_it_leaves_what_warehouses_have(world, capsys):
    frazil("apply")
    main(["down", "--env", "wh"])
    assert "not deleted: what warehouses have: frazil warehouse undo --env wh drops it" in capsys.readouterr().out


def test_a_table_that_cannot_be_refreshed_is_said_and_the_others_are(world, server, capsys):
    def information(statement):
        metadata = world.catalog.load_table(f"shop.{'items' if 'ITEMS' in statement else 'orders'}").metadata_location
        return [(json.dumps({"metadataLocation": metadata, "status": "success"}),)]

    server.answers = [('"ORDERS" REFRESH', RuntimeError("091968 no")), ("REFRESH$", []), ("GET_ICEBERG", information)]
    assert frazil("refresh") == 6
    told = capsys.readouterr().out
    assert "snow: public.orders: failed: warehouse 'snow': RuntimeError: 091968 no" in told
    assert "snow: public.items: served" in told


@pytest.fixture
def late(tmp_path, monkeypatch):
    """A DuckDB that was refreshed once, and whose limits are a commit and an hour."""
    duck = {"engine": "duckdb", "database": str(tmp_path / "w.duckdb"), "max_late_commits": 1, "max_late_s": 3600}
    world = WarehouseWorld(tmp_path, monkeypatch, duck=duck)
    frazil("apply")
    frazil("refresh")
    return world


def found_late() -> list[str]:
    book = Workbook(resolve("operate", {"env": "wh"}).settings, lambda text: None)
    return [": ".join(found) for found in warehouse_lateness.late(book)]


def test_check_reports_a_table_that_is_late_by_more_commits_than_allowed_and_a_refresh_cures_it(late):
    late.commit("orders", 2)
    assert found_late() == [], "one commit is allowed"
    late.commit("orders", 3)
    (line,) = found_late()
    said = (
        r"public\.orders: warehouse duck is late by 2 commits and [\d.]+ s, limits 1 and 60\.0 min; last seen: served"
    )
    assert re.match(said, line)
    command = line.split(": ")[-1]
    assert main(command.split()[1:]) == 0
    assert found_late() == []


def test_a_look_that_failed_does_not_make_a_warehouse_later_than_it_is(late):
    late.commit("orders", 2)
    settings = resolve("operate", {"env": "wh"}).settings
    name, now = pyiceberg_catalog.served(settings)[-1]["name"], int(time.time() * 1000)
    look = ("duck", name, 1, now, None, "", "failed", "no way to it", now)
    pyiceberg_catalog.append(pyiceberg_catalog.open_catalog(settings), settings.ops_namespace, "served", [look])
    assert found_late() == [], "the commit before it was served"
    late.commit("orders", 3)
    (line,) = found_late()
    assert "is late by 2 commits" in line and "last seen: failed: no way to it" in line


def test_a_table_that_is_not_in_the_lake_is_named_and_the_others_are_looked_at(late, capsys):
    assert main(["table", "drop", "public.orders", "--env", "wh"]) == 10, "Frazil did not make the tables of this world"
    undo = "frazil warehouse undo --env wh --warehouse duck --table public.orders"
    assert f"not deleted: what warehouse duck has of it: {undo} drops it" in capsys.readouterr().out
    pyiceberg_catalog.open_catalog(resolve("operate", {"env": "wh"}).settings).drop_table("shop.orders")
    for action in ("check", "refresh"):
        assert frazil(action) == 6
        told = capsys.readouterr().out
        assert "duck: table shop.orders does not exist; run 00_setup first" in told
        assert "duck: public.items: served" in told
    assert frazil("apply") == 1
    assert main(undo.split()[1:]) == 0
    assert "duck: view orders: dropped" in capsys.readouterr().out


def test_check_knows_what_a_late_look_said_of_the_metadata_file(late):
    late.commit("orders", 2)
    frazil("check")
    assert found_late() == []
    late.commit("orders", 3)
    assert "last seen: late: it serves an older state" in found_late()[0]


def test_a_warehouse_that_shows_nothing_is_not_reported(tmp_path, monkeypatch):
    WarehouseWorld(tmp_path, monkeypatch, red={"engine": "redshift", **ENTRIES, "max_late_s": 0, "max_late_commits": 0})
    assert found_late() == []


def test_frazil_check_has_a_line_for_it(late, capsys):
    late.commit("orders", 2)
    late.commit("orders", 3)
    assert main(["check", "--env", "wh"]) == 6
    assert "public.orders: warehouse duck is late by 2 commits" in capsys.readouterr().err
