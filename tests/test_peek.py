"""`frazil peek`: what it says of folders of every form, of damaged ones, and of settings that the files contradict."""

import gzip
import json
import os
import random
import shutil
from pathlib import Path

import pytest

from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.cli import peek as peek_command
from frazil_old.dms.found_files import find
from frazil_old.dms.guesses import guess, guess_type, parquet_type, wider
from mutated_files import DIALECTS, mutated_file, valid_file

DATA = Path(__file__).parent / "data"
TINY = DATA / "tiny/s3"
NORTHWIND = os.environ.get("FRAZIL_NORTHWIND", "")


def peek(capsys, *arguments):
    """Return the exit code and what was printed, of which every line fits the terminal."""
    code = main(["peek", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err, err
    assert [line for line in out.split("\n") if len(line) > 80 and not line.startswith(("/", "  frazil"))] == []
    return code, out + err


def guessed(folder):
    return guess(find(str(folder)))


def written(folder: Path, **files) -> Path:
    """Write files of the table shop.t: LOAD for the load file, T1 and T2 for change files."""
    names = {"LOAD": "LOAD00000001.csv", "T1": "20260101-100000000.csv", "T2": "20260101-110000000.csv"}
    for name, text in files.items():
        file = folder / "shop/t" / names[name]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_all_that_a_folder_shows_is_said_with_the_next_command(capsys, monkeypatch):
    monkeypatch.setenv("FRAZIL_PARAMS", "/nonexistent")
    code, said = peek(capsys, TINY)
    assert code == exit_codes.OK
    for line in (
        "2 tables, 5 files of DMS",
        "app.person  ~4    ~8       ~240     1+2    id\n",
        "app.visit   ~3    ~4       -        1+1    person_id, place ?\n",
        "app.person: 4: id INT8, name WSTRING, balance NUMERIC(38,2), born DATE",
        "proven       AddColumnName            true           5 files",
        "proven       CsvNullValue             NULL",
        "1.0 s before it was written",
        "only likely: the key of 1 table: app.visit",
        f"frazil init --from-files {TINY} --env prod",
        "--take keys numbers",
    ):
        assert line in said


@pytest.mark.parametrize(
    "below", ["tests/data", "tests/data/tiny", "tests/data/tiny/s3/app", "tests/data/tiny/s3/app/person"]
)
def test_the_source_is_found_from_a_folder_above_or_below_it(capsys, below):
    code, said = peek(capsys, DATA.parent.parent / below)
    assert code == exit_codes.OK and f"the source is {TINY}: it holds" in " ".join(said.split())
    assert f"--from-files {TINY} --env" in said and "app.person" in said


@pytest.mark.parametrize("folder", ["keyindex_v1", "tiny/params"])
def test_a_folder_without_files_of_dms_is_called_so(capsys, folder):
    code, said = peek(capsys, DATA / folder)
    assert code == exit_codes.NOTHING and "nothing that DMS writes is there" in said


def test_a_path_that_is_no_folder_is_called_so(capsys):
    code, said = peek(capsys, DATA / "none")
    assert code == exit_codes.EXIT_CODES["wrong parameters"] and "does not exist" in said and "cure:" in said
    assert "neither a folder nor on S3" in peek(capsys, "gs://bucket/dms")[1]
    assert "is a file" in peek(capsys, DATA / "ledger_v1.json")[1]


@pytest.mark.skipif(not NORTHWIND, reason="FRAZIL_NORTHWIND names no folder of real DMS files")
def test_files_of_a_real_task_without_headers_are_described(capsys):
    code, said = peek(capsys, NORTHWIND)
    assert code == exit_codes.OK and "12 tables, 21 files" in said
    assert (
        "the columns' names: the files have no header" in said and "proven       AddColumnName            false" in said
    )
    found = guessed(NORTHWIND)
    assert {t.sequence for t in found.tables.values()} == {"dms_change_seq"}
    assert (found.null, found.proposed_null) == (None, "")
    assert found.tables["public.territories"].columns[0].type == "WSTRING", "01581 is no number"


def test_settings_that_the_files_contradict_are_named_first(capsys, tmp_path):
    stated = {"CsvNullValue": "NULL", "AddColumnName": False, "IncludeOpForFullLoad": True, "TimestampColumnName": "ts"}
    (tmp_path / "e.json").write_text(json.dumps({"S3Settings": stated}))
    _, said = peek(capsys, TINY, "--endpoints", tmp_path / "e.json")
    assert "contradicted AddColumnName" in said
    assert said.index("contradicted") < said.index("proven ") and "stated: 'false'" in " ".join(said.split())


def test_older_files_of_other_settings_are_named(capsys, tmp_path):
    shutil.copytree(TINY, tmp_path / "s3")
    (tmp_path / "s3/app/visit/20260301-080103000.csv").unlink()
    (tmp_path / "s3/app/visit/LOAD00000001.csv").write_text("I,2026-03-01 08:00:00.000001,1,London,NULL,NULL,NULL\n")
    _, said = peek(capsys, tmp_path / "s3")
    assert "contradicted" in said and "first line is data" in said


def test_forms_are_recognised(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "p/shop/t"
    folder.mkdir(parents=True)
    columns = {
        "Op": ["I", "I"],
        "dms_ts": ["2026-01-01 10:00:00.000000"] * 2,
        "id": pa.array([1, 2], pa.int32()),
        "v": ["a", None],
    }
    pq.write_table(pa.table(columns), folder / "LOAD00000001.parquet")
    found = guessed(tmp_path / "p")
    table = found.tables["shop.t"]
    assert found.settings == {"DataFormat": "parquet", "IncludeOpForFullLoad": True, "TimestampColumnName": "dms_ts"}
    assert [(g.name, g.type, g.certain) for g in table.columns] == [("id", "INT4", True), ("v", "WSTRING", True)]
    assert (table.key, table.rows) == (("id",), 2)

    day = tmp_path / "d/shop/t/2026/01/01"
    day.mkdir(parents=True)
    (day / "20260101-100000000.csv.gz").write_bytes(gzip.compress(b"I;2026-01-01 09:00:00.000000;1;a\n" * 9))
    found = guessed(tmp_path / "d")
    wanted = {
        "CsvDelimiter": ";",
        "CompressionType": "gzip",
        "DatePartitionEnabled": True,
        "DatePartitionSequence": "YYYYMMDD",
    }
    assert wanted.items() <= found.settings.items() and list(found.tables) == ["shop.t"]

    shared = tmp_path / "s/changes"
    shared.mkdir(parents=True)
    rows = "I,t,shop,2026-01-01 09:00:00.000000,1,a\nI,u,shop,2026-01-01 09:00:00.000000,1\n"
    (shared / "CDC_TXN-20260101100000000.csv").write_text(rows)
    found = guessed(tmp_path / "s")
    assert found.settings["PreserveTransactions"] is True and found.settings["CdcPath"] == "changes"
    assert {n: len(t.columns) for n, t in found.tables.items()} == {"shop.t": 2, "shop.u": 1}


def test_a_guessed_type_never_changes_a_value():
    def types(*values):
        found = guess_type("c", values)
        return found.type, found.likely

    assert types("1", "22") == ("WSTRING", "INT8") and types("01", "22") == ("WSTRING", "") == types("+1")
    assert types("1.50", "2") == ("WSTRING", "NUMERIC(38,2)") and types("9" * 25) == ("WSTRING", "NUMERIC(38,0)")
    assert (
        types("2026-01-01") == ("DATE", "")
        and types("2026-13-01") == ("WSTRING", "")
        and types("true") == ("WSTRING", "")
    )
    assert (
        types("2026-01-01 10:00:00.1") == ("DATETIME", "")
        and types("x" * 5000) == ("NCLOB", "")
        and types() == ("WSTRING", "")
    )
    assert types("+3.2e+01") == ("WSTRING", "REAL8")
    pa = pytest.importorskip("pyarrow")
    small, long, text = (parquet_type("c", k) for k in (pa.int16(), pa.uint32(), pa.string()))
    assert wider(small, long).type == "INT8" and wider(small, text).type == "WSTRING" == wider(long, text).type
    assert wider(None, small) == small and parquet_type("c", pa.decimal256(50, 2)).type == "WSTRING"


def test_a_null_token_is_proven_by_times_or_by_two_columns_of_numbers(tmp_path):
    def nulls(name, *rows):
        lines = ("I,2026-01-01 10:00:00.000000," + ",".join(r) + "\n" for r in rows)
        found = guessed(written(tmp_path / name, LOAD="Op,dms_ts,id,n,m,v\n" + "".join(lines)))
        return found.null, found.proposed_null

    first = ("1", "5", "6", "a")
    assert nulls("numbers", first, ("2", "NULL", "NULL", "b")) == ("NULL", "NULL")
    assert nulls("number", first, ("2", "NULL", "7", "b")) == (None, "NULL")
    assert nulls("time", ("1", "2020-01-01", "6", "a"), ("2", "NULL", "7", "b")) == ("NULL", "NULL")
    assert nulls("text", first, ("2", "6", "7", "NULL")) == (None, "NULL")
    assert nulls("empty", first, ("2", "", "7", "b")) == (None, "")
    assert nulls("none", ("1", "5", "6", ""), ("2", "6", "7", "b")) == (None, None)


def test_only_before_image_columns_prove_a_key(tmp_path):
    row = "I,2026-01-01 10:00:00.000000,{0},a,\n"
    plain = guessed(written(tmp_path / "1", LOAD="Op,ts,id,v,old_id\n" + row.format(1) + row.format(2)))
    image = guessed(written(tmp_path / "2", LOAD="Op,ts,id,v,BI_id\n" + row.format(1) + row.format(2)))
    table, proven = plain.tables["shop.t"], image.tables["shop.t"]
    assert (table.key, table.key_is_proven, len(table.columns)) == (("id",), False, 4)
    assert (proven.key, proven.key_is_proven, len(proven.columns)) == (("id",), True, 3)
    twice = guessed(written(tmp_path / "4", LOAD="Op,ts,id,v,BI_id\n" + 2 * row.format(1))).tables["shop.t"]
    assert (twice.key, twice.key_is_proven) == (("id",), False), "two rows with one key disprove it"
    filled = "I,2026-01-01 10:00:00.000000,{0},a,{0}\n"
    own = guessed(written(tmp_path / "3", LOAD="Op,ts,id,v,BI_id\n" + filled.format(1) + filled.format(2)))
    assert [g.name for g in own.tables["shop.t"].columns] == ["ts", "id", "v", "BI_id"], (
        "old values of inserts are null"
    )


def test_a_column_is_the_commit_time_only_if_it_cannot_be_a_tables_own(tmp_path):
    row = "{},2026-01-01 10:00:00.000000,1,{},{}\n"
    head, insert, delete = "Op,at,id,a,b\n", row.format("I", "x", "y"), row.format("D", "", "")
    one = guessed(written(tmp_path / "1", T1=head + insert + row.format("D", "x", "y")))
    deleted = guessed(written(tmp_path / "2", T1=head + insert + delete))
    unnamed = guessed(written(tmp_path / "3", T1=insert))
    written(tmp_path / "4/", T1=head + insert)
    shutil.copytree(tmp_path / "4/shop/t", tmp_path / "4/shop/u")
    two, named = guessed(tmp_path / "4"), guessed(written(tmp_path / "5", T1=head.replace("at", "dms_at") + insert))
    usual = guessed(written(tmp_path / "6", T1=head.replace("at", "dms_commit_ts") + insert))
    found = [g.settings.get("TimestampColumnName") for g in (one, deleted, unnamed, two, named, usual)]
    assert found == [None, "at", None, "at", "dms_at", "dms_commit_ts"]
    assert one.tables["shop.t"].columns[0].name == "at" and unnamed.tables["shop.t"].columns[0].type == "DATETIME"


def test_times_that_are_none_and_files_without_a_table_are_passed_over(capsys, tmp_path):
    row = "Op,dms_ts,id,v\nU,2026-99-99 99:99:99.000000,1,a\n"
    code, said = peek(capsys, written(tmp_path, T1=row, T2=row))
    assert code == exit_codes.OK and "last commit seen" not in said and "20260101-11" not in said.split("settings")[0]
    (tmp_path / "LOAD00000001.csv").write_text("1\n")
    code, said = peek(capsys, tmp_path)
    assert code == exit_codes.OK


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_folder_is_described_without_a_trace(capsys, tmp_path, seed):
    r = random.Random(seed)
    for table in ("one", "two", "ünï cöde"):
        dialect = r.choice(DIALECTS)
        for name in ("LOAD00000001", "20260101-100000000", "20260101-110000000"):
            file = tmp_path / "shop" / table / (name + dialect.ending)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(mutated_file(r, valid_file(r, dialect), dialect))
    odd = tmp_path / "shop/one"
    if seed % 3 == 0:
        (odd / "20269999-999999999.csv").write_text("x")
        (odd / "LOAD00000009.csv").symlink_to(tmp_path / "gone")
        (odd / "LOAD0000000A.csv").mkdir()
    code, said = peek(capsys, tmp_path)
    assert code == exit_codes.OK and "next" in said and "3 tables" in said, said


def test_a_slow_listing_ends_in_time_and_says_so(capsys, monkeypatch):
    monkeypatch.setattr(peek_command, "SECONDS", 0)
    code, said = peek(capsys, TINY)
    assert code == exit_codes.OK and "numbers are minimums" in said


def test_a_folder_on_s3_is_read(capsys, monkeypatch):
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        for name, value in (("ENDPOINT_URL_S3", "http://{}:{}".format(*server.get_host_and_port())), ("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("DEFAULT_REGION", "eu-west-1")):  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", value)
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="peek-bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        for file in (f for f in TINY.rglob("*.csv")):
            s3.put_object(Bucket="peek-bucket", Key=f"dms/{file.relative_to(TINY)}", Body=file.read_bytes())
        code, said = peek(capsys, "s3://peek-bucket")
        assert (
            code == exit_codes.OK
            and "the source is s3://peek-bucket/dms:" in said
            and "--from-files s3://peek-bucket/dms --env prod" in said
        )
        assert "app.person  ~4    ~8       ~240     1+2    id\n" in said
    finally:
        server.stop()


@pytest.mark.parametrize("seconds, rate", [(2, "-"), (40, "~9090")])
def test_a_rate_an_hour_needs_files_over_half_a_minute(tmp_path, capsys, seconds, rate):
    folder = tmp_path / "app/t"
    folder.mkdir(parents=True)
    for at in (0, seconds):
        rows = "".join(f"I,2026-03-01 08:00:{at:02d}.000000,{n},name\n" for n in range(100))
        (folder / f"20260301-0800{at:02d}000.csv").write_text(f"Op,committed,id,name\n{rows}")
    code, out = peek(capsys, tmp_path)
    (line,) = (line for line in out.splitlines() if line.startswith("app.t"))
    assert code == exit_codes.OK and line.split()[3] == rate, out
