"""`frazil peek`: what it says of folders of every form, of damaged ones, and of settings that the files contradict."""

import json
import random
import shutil
from pathlib import Path

import pytest

from frazil_old import exit_codes
from frazil_old.cli import main
from mutated_files import DIALECTS, mutated_file, valid_file

DATA = Path(__file__).parent / "data"
TINY = DATA / "tiny/s3"


def peek(capsys, *arguments):
    """Return the exit code and what was printed, of which every line fits the terminal."""
    code = main(["peek", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err, err
    assert [line for line in out.split("\n") if len(line) > 80 and not line.startswith(("/", "  frazil"))] == []
    return code, out + err


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
