"""`frazil init --from-files`: an environment from DMS's files alone. Every guess is marked, and none loses a value."""

import json
import random
import shutil
import time
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.settings import resolve
from frazil_old.config.spec import load_specs
from frazil_old.flows.workbook import Workbook
from lake_reader import duckdb_rows
from mutated_files import DIALECTS, mutated_file, valid_file

TINY = Path(__file__).parent / "data/tiny/s3"
HEAD = "Op,ts,id,zip,born,v\n"
ROW = "I,2026-01-01 10:00:00.000000,{},{},{},{}\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with `params/`, and the tiny files in `dms/`."""
    (tmp_path / "params").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path / "params"))
    shutil.copytree(TINY, tmp_path / "dms")
    return tmp_path


def init(home, *more, path="dms"):
    return main(["init", "--env", "own", "--from-files", str(path), *more])


def load(home, *rows):
    """Write one load file of the table shop.t, and return the source."""
    file = home / "other/shop/t/LOAD00000001.csv"
    file.parent.mkdir(parents=True)
    file.write_text(HEAD + "".join(ROW.format(*row) for row in rows))
    return home / "other"


def test_what_is_proven_is_taken_and_every_guess_is_marked(home, capsys):
    assert init(home) == exit_codes.OK
    out, err = capsys.readouterr()
    specs = load_specs(home / "params/own")
    person, visit = specs["app.person"], specs["app.visit"]
    assert (person.key, visit.key) == (("id",), ()), "images of one column prove a key; two may have more than the key"
    assert [c.type for c in person.columns] == ["WSTRING", "WSTRING", "WSTRING", "DATE"]
    assert "app.visit: no primary key" in err and "guess not taken: 3 columns with values like numbers" in err
    assert "next: frazil plan --env own" in out
    for file in (home / "params/own").glob("*.yml"):
        lines = file.read_text().splitlines()
        assert all(
            "  # guess: " in line or "  # proven: " in line for line in lines if line.startswith(("key:", "  - "))
        )
    settings = json.loads((home / "params/own.endpoint.json").read_text())["S3Settings"]
    text = (home / "params/own.yml").read_text()
    assert all(f"# proven: {name} " in text or f"# guess: {name} " in text for name in settings)
    book = Workbook(resolve("setup", {"env": "own"}).settings, lambda text: None)
    assert book.endpoint.null_value == "NULL" and book.endpoint.timestamp_column == "committed"
    assert book.mappings.before_image(person).names(person) == {"id": "BI_id"}


def test_guesses_that_the_user_confirms_are_taken(home):
    assert init(home, "--take", "keys", "numbers") == exit_codes.OK
    specs = load_specs(home / "params/own")
    assert specs["app.visit"].key == ("person_id", "place")
    assert [c.type for c in specs["app.person"].columns] == ["INT8", "WSTRING", "NUMERIC(38,2)", "DATE"]


def test_nothing_is_written_over_and_nothing_without_a_null_token(home, capsys):
    source = load(home, (1, "10115", "2020-01-01", ""), (2, "80331", "2020-01-02", "x"))
    assert init(home, path=source) == exit_codes.EXIT_CODES["wrong parameters"]
    assert "do not prove how a null is written" in (said := capsys.readouterr().err) and "--null" in said
    assert list((home / "params").iterdir()) == []
    assert init(home, "--null", "NULL", path=source) == exit_codes.OK
    assert "guess: CsvNullValue 'NULL': given by --null" in (home / "params/own.yml").read_text()
    assert init(home, "--null", "NULL", path=source) == exit_codes.EXIT_CODES["wrong parameters"]
    said = capsys.readouterr().err
    assert "own.yml exists already" in said and all(
        f"params/{n}" in said for n in ("own.yml", "own.endpoint.json", "own\n")
    )
    assert (
        main(["init", "--env", "two", "--from-files", "dms", "--null", ""]) == exit_codes.EXIT_CODES["wrong parameters"]
    )
    assert "but app.person: balance has NULL" in capsys.readouterr().err


def test_types_of_the_source_are_taken_from_a_list_of_its_columns(home, capsys):
    rows = ["schema,table,column,type,key", "app,person,id,bigint unsigned,1", "app,person,name,varchar(50),"]
    rows += ['app,person,balance,"decimal(10,2)",', "app,person,born,date,", "app,visit,other,int,1"]
    (home / "c.csv").write_text("\n".join(rows))
    assert init(home, "--columns", "c.csv") == exit_codes.EXIT_CODES["wrong parameters"]
    assert "--columns needs --engine" in capsys.readouterr().err
    assert init(home, "--columns", "c.csv", "--engine", "mysql") == exit_codes.OK
    person = load_specs(home / "params/own")["app.person"]
    assert ([c.type for c in person.columns], person.key) == (
        ["UINT8", "WSTRING(50)", "NUMERIC(10,2)", "DATE"],
        ("id",),
    )
    assert "# mysql: bigint unsigned" in (home / "params/own/app.person.yml").read_text()
    (home / "c.csv").write_text("\n".join(rows).replace("date", "odd"))
    assert (
        main(["init", "--env", "odd", "--from-files", "dms", "--columns", "c.csv", "--engine", "mysql"])
        == exit_codes.OK
    )
    assert load_specs(home / "params/odd")["app.person"].columns[3].type == "WSTRING"
    assert "app.visit: its columns are not those of c.csv" in capsys.readouterr().err


def test_stated_settings_and_rules_are_taken_as_they_are(home):
    stated = {
        "CsvNullValue": "NULL",
        "AddColumnName": True,
        "IncludeOpForFullLoad": True,
        "TimestampColumnName": "committed",
    }
    (home / "e.json").write_text(json.dumps({"S3Settings": {**stated, "BucketName": "b"}}))
    (home / "m.json").write_text(json.dumps({"rules": []}))
    assert init(home, "--endpoints", "e.json", "--task", "m.json") == exit_codes.OK
    assert json.loads((home / "params/own.mappings.json").read_text()) == {"rules": []}
    assert json.loads((home / "params/own.endpoint.json").read_text())["S3Settings"]["BucketName"] == "b"
    assert yaml.safe_load((home / "params/own.yml").read_text())["common"]["source"] == "dms"


def test_hostile_names_stay_names(home):
    file = home / "other/shop/t: #x/LOAD00000001.csv"
    file.parent.mkdir(parents=True)
    file.write_text(
        'Op,dms_ts,"id # : ""q""","a\tb"\nI,2026-01-01 10:00:00.000000,1,NULL\nI,2026-01-01 10:00:00.000000,2,x\n'
    )
    assert init(home, "--take", "keys", "nulls", path="other") == exit_codes.OK
    spec = load_specs(home / "params/own")["shop.t: #x"]
    assert spec.names == ['id # : "q"', "a\tb"] and spec.key == ('id # : "q"',)


@pytest.mark.parametrize("seed", range(10))
def test_damaged_files_give_an_environment_or_one_clear_line(home, capsys, seed):
    r = random.Random(seed)
    for table in ("one", "two", "three"):
        dialect = r.choice(DIALECTS)
        for name in ("LOAD00000001", "20260101-100000000"):
            file = home / "other/shop" / table / (name + dialect.ending)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(mutated_file(r, valid_file(r, dialect), dialect))
    code = init(home, "--null", "NULL", "--take", "keys", path="other")
    said = capsys.readouterr().err
    assert "Traceback" not in said
    if code == exit_codes.OK:
        load_specs(home / "params/own")
    else:
        assert code == exit_codes.EXIT_CODES["wrong parameters"] and "cure: " in said


def test_a_first_row_of_too_many_fields_is_called_damaged(home, capsys):
    file = home / "other/shop/t/LOAD00000001.csv"
    file.parent.mkdir(parents=True)
    file.write_text(",".join(f"c{i}" for i in range(5_000)) + "\n" + ",".join("1" for _ in range(5_000)) + "\n")
    assert init(home, path="other") == exit_codes.EXIT_CODES["wrong parameters"]
    assert "has no files of DMS that can be read" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.notebooks
def test_own_files_answer_sql_after_a_few_commands(home, capsys):
    """The shortest way of `get-started`, timed: peek, init, three runs, and SQL by DuckDB."""
    began = time.monotonic()
    commands = [
        ["peek", "dms"],
        ["init", "--from-files", "dms", "--env", "own", "--take", "keys", "numbers"],
        *(["run", n, "--env", "own"] for n in ("00_setup", "01_full_load", "02_cdc_merge")),
    ]
    marks = []
    for command in commands:
        assert main(command) == exit_codes.OK, capsys.readouterr()
        marks.append(f"{' '.join(command[:2])}: {time.monotonic() - began:.0f} s")
    lake = {"uri": f"jdbc:sqlite:{home}/runs/own/lake/catalog.db"}
    answer = duckdb_rows(lake, "app.person", "count(*), sum(balance), max(born)")
    assert answer == [(4, Decimal("30.25"), date(1930, 5, 11))]
    assert duckdb_rows(lake, "app.visit", "person_id, place") == [(1, "Paris"), (2, "Arlington")]
    with capsys.disabled():
        print("\nown files to SQL:", "; ".join(marks))
    assert time.monotonic() - began < 600
