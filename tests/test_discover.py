"""What helps to begin: `peek`, `init --from-files`, `schema`, and what is said of settings and specs that cannot be right."""

from __future__ import annotations

import gzip
import json
import shutil
import time
from pathlib import Path

import pytest
import yaml

import table_reader
from dms_streams import Topic
from world import World

pytestmark = pytest.mark.acceptance
TINY = Path(__file__).parent / "data/tiny/s3"
HEAD, ROW = "Op,ts,id,zip,born,v\n", "I,2026-01-01 10:00:00.000000,{},{},{},{}\n"


@pytest.fixture
def home(tmp_path) -> World:
    """A world without a lake, whose folder `dms` has DMS's files of two tables."""
    w = World(tmp_path / "w", "w", {})
    shutil.copytree(TINY, w.root / "dms")
    return w


def peek(w: World, *arguments, **environment: str) -> tuple[int, str]:
    """Return the exit code of `frazil peek` and what it said, of which every line fits a terminal."""
    code, said = w.command("peek", *map(str, arguments), **environment)
    assert "Traceback" not in said, said
    long = [line for line in said.split("\n") if len(line) > 80 and not line.startswith(("/", "  frazil", "kafka:"))]
    assert [line for line in long if "source: kafka" not in line and "cure" not in line] == []
    return code, " ".join(said.split())


def init(w: World, *more: str, env: str = "own", path: str = "dms") -> tuple[int, str]:
    """Return the exit code of `frazil init --from-files`, and what it said."""
    return w.command("init", "--env", env, "--from-files", str(w.root / path), *more)


def specs(w: World, env: str = "own") -> dict[str, dict]:
    """Return the specs that were written, by table."""
    found = [yaml.safe_load(f.read_text()) for f in (w.root / "params" / env).glob("*.yml")]
    return {spec["source"]: spec for spec in found}


def types(spec: dict) -> list[str]:
    """Return the types of a spec's columns."""
    return [c["type"] for c in spec["columns"]]


def load_file(w: World, text: str, table: str = "t") -> None:
    """Write a load file of the table shop.t below `other`."""
    file = w.root / "other/shop" / table / "LOAD00000001.csv"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def damage(folder: Path) -> None:
    """Write tables with files that are damaged, each in another way."""
    good, later = HEAD + ROW.format(1, 2, 3, "x"), "20260101-100000000"
    files = {
        "cut_gzip/LOAD00000001.csv.gz": gzip.compress(good.encode() * 99)[:60], "no_gzip/LOAD00000001.csv.gz": b"x,1\n",
        "empty/LOAD00000001.csv": b"", "binary/LOAD00000001.csv": bytes(range(256)) * 9,
        "open_quote/LOAD00000001.csv": (good + 'I,"2026,1,2\n').encode(), "ragged/LOAD00000001.csv": (good + "1\n" + "," * 99 + "\n").encode(),
        "other_code/LOAD00000001.csv": good.replace("x", "ü").encode("latin-1"), "nul/LOAD00000001.csv": good.replace("x", "\0").encode(),
        "ünï cöde/LOAD00000001.csv": good.encode(), "no_parquet/LOAD00000001.parquet": b"PAR1 none PAR1",
        "wide/LOAD00000001.csv": (",".join(f"c{i}" for i in range(5000)) + "\n").encode(), f"no_time/{later}.csv": b"Op,ts,id\nU,2026-99-99 99:99:99.000000,1\n",
        "odd/20269999-999999999.csv": b"x", "odd/LOAD00000001.csv": good.encode(), "LOAD00000001.csv": b"1\n",
    }  # fmt: skip
    for name, data in files.items():
        file = folder / "shop" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (folder / "shop/odd/LOAD00000009.csv").symlink_to(folder / "gone")
    (folder / "shop/odd/LOAD0000000A.csv").mkdir()


# --- peek


def test_peek_says_all_that_a_folder_shows_with_the_next_command(home):
    code, said = peek(home, TINY)
    assert code == 0
    for part in (
        "2 tables, 5 files of DMS", "app.person ~4 ~8 ~240 1+2 id", "app.visit ~3 ~4 - 1+1 person_id, place ?",
        "app.person: 4: id INT8, name WSTRING, balance NUMERIC(38,2), born DATE", "proven AddColumnName true",
        "proven CsvNullValue NULL", "only likely: the key of 1 table: app.visit", f"frazil init --from-files {TINY} --env", "--take keys numbers",
    ):  # fmt: skip
        assert part in said, part
    for other in (TINY.parent.parent, TINY / "app/person"):
        code, said = peek(home, other)
        assert code == 0 and f"the source is {TINY}: it holds" in said and "app.person" in said


def test_peek_names_what_is_no_source(home):
    code, said = peek(home, Path(__file__).parent / "cases")
    assert code != 0 and "nothing that DMS writes is there" in said
    for path, says in (("/none", "does not exist"), ("gs://bucket/dms", "neither a folder nor on S3"), (__file__, "is a file")):  # fmt: skip
        code, said = peek(home, path)
        assert code != 0 and says in said


def test_peek_names_settings_that_the_files_contradict_and_older_files_of_other_settings(home):
    stated = {"CsvNullValue": "NULL", "AddColumnName": False, "IncludeOpForFullLoad": True, "TimestampColumnName": "ts"}
    (home.root / "e.json").write_text(json.dumps({"S3Settings": stated}))
    _, said = peek(home, TINY, "--endpoints", home.root / "e.json")
    assert said.index("contradicted AddColumnName") < said.index("proven CsvNullValue")
    (home.root / "dms/app/visit/20260301-080103000.csv").unlink()
    (home.root / "dms/app/visit/LOAD00000001.csv").write_text("I,2026-03-01 08:00:00.000001,1,London,NULL,NULL,NULL\n")
    _, said = peek(home, home.root / "dms")
    assert "contradicted" in said and "first line is data" in said


def test_damaged_files_are_described_and_give_an_environment_or_one_clear_line(home):
    damage(home.root / "other")
    code, said = peek(home, home.root / "other")
    assert code == 0 and "next" in said and "ünï cöde" in said
    code, said = init(home, "--null", "NULL", "--take", "keys", path="other")
    assert "Traceback" not in said and (code == 0 or "cure: " in said)
    assert code != 0 or specs(home)


def test_peek_reads_a_bucket(home, moto):
    import boto3

    where, login = {"AWS_ENDPOINT_URL_S3": moto, "AWS_DEFAULT_REGION": "eu-west-1"}, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}  # fmt: skip
    s3 = boto3.client("s3", endpoint_url=moto, region_name="eu-west-1", **{k.lower(): v for k, v in login.items()})
    s3.create_bucket(Bucket="peek-bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    for file in TINY.rglob("*.csv"):
        s3.put_object(Bucket="peek-bucket", Key=f"dms/{file.relative_to(TINY)}", Body=file.read_bytes())
    code, said = peek(home, "s3://peek-bucket", **where, **login)
    assert code == 0 and "the source is s3://peek-bucket/dms:" in said and "app.person ~4 ~8 ~240 1+2 id" in said


@pytest.mark.spark
def test_peek_shows_the_tables_of_a_topic_and_what_is_odd(home, kafka):
    s = Topic(home.table("t"), kafka, name="peeked", partitions=2)
    s.control("create-table", "t", id="INT64", v="STRING")
    s.load("t", (1, "a"), (2, "b"))
    for n in range(11):
        s.data("update", "t", {"id": n, "v": "c"}, {"id": n})
    code, said = peek(home, home.stream)
    assert code == 0 and "2 partitions, 14 messages kept; 14 read in" in said and "wrong or odd" not in said
    for part in ("public.t 2 11", "public.t: 2: id INT8, v WSTRING", "unknown_tables: create", "stream_start: earliest", "last commit seen"):  # fmt: skip
        assert part in said, part
    s.data("insert", "new", {"id": 1, "price": 1.5})
    s.send(s.sent[-1][1].replace(b'"commit-timestamp": "2', b'"commit-timestamp": "soon 2'))
    for odd, partition in (("junk \x1b[31m", 1), (None, 0)):
        s.send(odd, partition)
    code, said = peek(home, home.stream)
    assert code == 0 and "\x1b" not in said
    for part in ("peeked/1 at offset 0: no message of DMS: 'junk", "types and key of public.new: no create-table record", "commit timestamp 'soon 2"):  # fmt: skip
        assert part in said, part


@pytest.mark.spark
def test_peek_names_a_topic_that_is_empty_or_not_there(home, kafka):
    Topic(home, kafka, name="bare")
    code, said = peek(home, home.stream)
    assert code != 0 and "it is empty" in said
    code, said = peek(home, home.stream.replace("/bare", "/bear"))
    assert code != 0 and "no topic 'bear'" in said


# --- init --from-files


def test_init_takes_what_is_proven_and_marks_every_guess(home):
    code, said = init(home)
    person, visit = (specs(home)[f"app.{t}"] for t in ("person", "visit"))
    assert code == 0 and "next: frazil plan --env own" in said and "app.visit: no primary key" in said
    assert (person["key"], visit["key"]) == (["id"], []), "images of one column prove a key; two may have more"
    assert types(person) == ["WSTRING", "WSTRING", "WSTRING", "DATE"]
    for file in (home.root / "params/own").glob("*.yml"):
        lines = [line for line in file.read_text().splitlines() if line.startswith(("key:", "  - "))]
        assert lines and all("  # guess: " in line or "  # proven: " in line for line in lines)
    written = json.loads((home.root / "params/own.endpoint.json").read_text())["S3Settings"]
    assert (written["CsvNullValue"], written["TimestampColumnName"]) == ("NULL", "committed")
    assert init(home, "--take", "keys", "numbers", env="taken")[0] == 0
    assert specs(home, "taken")["app.visit"]["key"] == ["person_id", "place"]
    assert types(specs(home, "taken")["app.person"]) == ["INT8", "WSTRING", "NUMERIC(38,2)", "DATE"]


def test_init_writes_nothing_over_and_nothing_without_a_null_token(home):
    load_file(home, HEAD + ROW.format(1, "10115", "2020-01-01", "") + ROW.format(2, "80331", "2020-01-02", "x"))
    code, said = init(home, path="other")
    assert code != 0 and "do not prove how a null is written" in said and "--null" in said
    assert not (home.root / "params/own.yml").exists()
    assert init(home, "--null", "NULL", path="other")[0] == 0
    assert types(specs(home)["shop.t"])[1] == "WSTRING", "a number with a leading zero elsewhere is a text"
    code, said = init(home, "--null", "NULL", path="other")
    assert code != 0 and "own.yml exists already" in said
    code, said = init(home, "--null", "", env="two")
    assert code != 0 and "app.person: balance has NULL" in said


def test_init_takes_types_from_a_list_of_the_sources_columns_and_settings_as_they_are_stated(home):
    rows = ["schema,table,column,type,key", "app,person,id,bigint unsigned,1", "app,person,name,varchar(50),"]
    rows += ['app,person,balance,"decimal(10,2)",', "app,person,born,date,", "app,visit,other,int,1"]
    listed = home.root / "c.csv"
    listed.write_text("\n".join(rows))
    code, said = init(home, "--columns", str(listed))
    assert code != 0 and "--columns needs --engine" in said
    stated = {"CsvNullValue": "NULL", "AddColumnName": True, "IncludeOpForFullLoad": True, "TimestampColumnName": "committed", "BucketName": "b"}  # fmt: skip
    for name, content in (("e", {"S3Settings": stated}), ("m", {"rules": []})):
        (home.root / f"{name}.json").write_text(json.dumps(content))
    more = ("--endpoints", str(home.root / "e.json"), "--task", str(home.root / "m.json"))
    code, said = init(home, "--columns", str(listed), "--engine", "mysql", *more)
    assert code == 0 and "app.visit: its columns are not those of" in said
    assert types(specs(home)["app.person"]) == ["UINT8", "WSTRING(50)", "NUMERIC(10,2)", "DATE"]
    assert json.loads((home.root / "params/own.mappings.json").read_text()) == {"rules": []}
    assert json.loads((home.root / "params/own.endpoint.json").read_text())["S3Settings"]["BucketName"] == "b"


def test_hostile_names_stay_names(home):
    load_file(home, 'Op,dms_ts,"id # : ""q""","a\tb"\nI,2026-01-01 10:00:00.000000,1,NULL\nI,2026-01-01 10:00:00.000000,2,x\n', "t: #x")  # fmt: skip
    assert init(home, "--take", "keys", "nulls", path="other")[0] == 0
    spec = specs(home)["shop.t: #x"]
    assert [c["name"] for c in spec["columns"]] == ['id # : "q"', "a\tb"] and spec["key"] == ['id # : "q"']


@pytest.mark.spark
@pytest.mark.notebooks
def test_own_files_answer_sql_after_a_few_commands(home, capsys):
    """The shortest way of the first page, timed: peek, init, three runs, and a query."""
    began, own = time.monotonic(), ("--env", "own")
    for command in (
        ("peek", str(home.root / "dms")), ("init", "--from-files", str(home.root / "dms"), *own, "--take", "keys", "numbers"),
        *(("run", n, *own) for n in ("00_setup", "01_full_load", "02_cdc_merge")),
    ):  # fmt: skip
        code, said = home.command(*command)
        assert code == 0, said
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{home.root}/runs/own/lake/catalog.db", "warehouse": f"{home.root}/runs/own/lake"}  # fmt: skip
    person = table_reader.rows(lake, "app.person")
    assert (len(person), str(sum(r[2] for r in person)), str(max(r[3] for r in person))) == (4, "30.25", "1930-05-11")
    assert sorted(r[:2] for r in table_reader.rows(lake, "app.visit")) == [(1, "Paris"), (2, "Arlington")]
    with capsys.disabled():
        print(f"\nown files to SQL: {time.monotonic() - began:.0f} s")


# --- what cannot be right


def test_schema_prints_what_editors_check_yaml_by(home):
    from jsonschema import Draft7Validator

    right = {"source": "public.t", "key": ["id"], "columns": [{"name": "id", "type": "INT8"}]}
    code, said = home.command("schema", "spec")
    check = Draft7Validator(json.loads(said))
    assert code == 0 and not list(check.iter_errors(right))
    for wrong in ({"colums": []}, {"columns": [{"name": "id", "type": "INT9"}]}, {"key": True}, {"on_bad_rows": "quarantin"}):  # fmt: skip
        assert list(check.iter_errors(right | wrong)), wrong
    home.command("schema")
    assert {"spec.json", "environment.json", "endpoint.json"} <= {f.name for f in (home.root / "params/schema").iterdir()}  # fmt: skip


def test_an_unknown_entry_of_a_spec_names_the_nearest(home):
    home.table("t").declare("t", colums=[])
    code, said = home.command("plan")
    assert code != 0 and "colums" in said and "'columns'" in said


@pytest.mark.spark
def test_what_two_tables_cannot_both_be_is_refused(open_world):
    w = open_world().table("t").table("u").table("own")
    w.source.load("t", (1, "a"))
    w.declare("u", target=w.specs["t"]["target"])
    assert w.setup()["t"].failed and not w.exists("t"), "two tables with one target"
    w.declare("u", target=f"{w.space}.t.inner")
    assert w.setup()["t"].failed and not w.exists("t"), "the files of one inside the folder of another"
    w.declare("u", target=f"{w.space}.u").declare("own", target=f"{w.space}_ops.commits")
    done = w.setup()
    assert done["t"].status == done["u"].status == "created" and done["own"].failed, f"the library's own name: {done}"


@pytest.mark.spark
def test_setup_names_settings_that_a_file_contradicts_or_nobody_knows_and_takes_them_in_any_case(open_world):
    w = open_world().table("t", "id INT8", "n INT4")
    w.source.settings = {"csvnullvalue": "NULL", "CSVDELIMITER": "|", "addColumnName": True, "timestampColumnName": "dms_ts", "DetachTargetOnLobLookupFailureParquet": True}  # fmt: skip
    w.source.rules = {"rules": []}
    w.source.write("t", "LOAD00000001.csv", "dms_ts|id|n\n2024-01-01 00:00:00.000000|1|NULL\n")
    found = w.findings()
    assert "DetachTargetOnLobLookupFailureParquet" in found and "csvnullvalue" not in found
    assert w.loaded().rows("t") == [(1, None)]
    w.source.write("t", "20240101-100000000.csv", "I|2024-01-01 00:00:00.000000|2|NULL\n")
    assert "AddColumnName" in (found := w.findings()) and "20240101-100000000.csv" in found


@pytest.mark.spark
def test_setup_refuses_tables_of_others_and_runs_without_setup_name_it(open_world):
    w = open_world().table("theirs").table("empty").table("t")
    for table in w.specs:
        w.source.load(table, (1, "a"))
    assert {r.code for r in w.load().values()} == {r.code for r in w.merge().values()} == {"no-table"}
    w.sql(f"CREATE NAMESPACE IF NOT EXISTS {w.catalog}.{w.space}")
    for table in ("theirs", "empty"):
        w.sql("CREATE TABLE {t} (id BIGINT, v STRING, theirs INT) USING iceberg", table)
    w.sql("INSERT INTO {t} VALUES (9, 'theirs', 1)", "theirs")
    for _ in range(2):
        done = w.setup()
        assert done["theirs"].code == done["empty"].code == "foreign-table" and not done["t"].failed
    assert w.load()["theirs"].failed and w.rows("theirs") == [(9, "theirs", 1)]
    assert [f.name for f in w.metadata("empty").schema().fields] == ["id", "v", "theirs"]
