"""What messages contain: no control character of a value, and no credential."""

import json
import re

import pytest
import yaml

import reference
from frazil_old import exit_codes
from frazil_old.cli import main
from frazil_old.config.settings import ParameterError, SetupSettings, resolve
from frazil_old.errors import FrazilError
from frazil_old.flows import setup
from frazil_old.report import notebook_output, runs
from frazil_old.report.notebook_output import Grid, finish
from frazil_old.results import TableResult
from helpers import I

CONTROL = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029", "\u202e"]
"""What a terminal, or who reads a log, takes as more than a character of a value."""
EVIL = "a" + "".join(CONTROL) + "z"
RAW = re.compile("[" + "".join(map(re.escape, set(CONTROL) - {"\n"})) + "]")


def lines_of(shown: str) -> list[str]:
    """Return the lines of what is shown, and insist that no control character is among them."""
    assert not RAW.findall(shown), RAW.findall(shown)
    return shown.split("\n")


def test_a_value_cannot_begin_a_line_or_move_the_cursor_in_any_message():
    error = FrazilError(f"{EVIL}: no such table", f"name another than {EVIL}")
    assert [line[:8] for line in lines_of(str(error))] == ["a\\x00\\x0", "  cure: "]
    grid = Grid([{EVIL: EVIL, "note": f"x\n{EVIL}"}])
    assert len(lines_of(repr(grid))) == 2 and "\\n" in repr(grid)
    assert len(lines_of(grid._repr_html_())) == 1
    failed = [TableResult(EVIL, "failed", str(error)), TableResult("t", "waiting", EVIL)]
    card = notebook_output.results(failed)
    assert len(lines_of(repr(card))) == 5, "the verdict, the head, two lines of one table, one of the other"
    lines_of(card._repr_html_())
    with pytest.raises(FrazilError) as all_of_them:
        finish("cdc_merge", failed)
    assert len(lines_of(str(all_of_them.value))) == 3


def test_records_and_pages_of_runs_hold_no_control_character(tmp_path):
    (folder := tmp_path / "r1").mkdir()
    facts = {"notebook": f"n{EVIL}", "outcome": "failed", "cause": EVIL, "began": 1.0, "pid": 1, "tables": {EVIL: {"note": EVIL}}}  # fmt: skip
    runs.write(folder, **facts)
    kept = json.loads((folder / runs.FILE).read_text())
    assert not RAW.search(json.dumps(kept, ensure_ascii=False).replace("\\n", "")), kept
    assert not RAW.search(runs.write_index(tmp_path).read_text())


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A folder with an environment whose options can be changed; gives what writes them."""
    place = reference.workspace(tmp_path)
    monkeypatch.setenv("FRAZIL_PARAMS", str(place / "params"))
    file = place / "params/demo.yml"

    def write(**more) -> None:
        given = yaml.safe_load(file.read_text())
        for name, value in more.items():
            given["common"][name] = {**given["common"].get(name, {}), **value} if isinstance(value, dict) else value
        file.write_text(yaml.safe_dump(given))

    write.file = file
    return write


def shown() -> str:
    rows = Grid(resolve("cdc_merge", {"env": "demo"}).rows())
    return repr(rows) + rows._repr_html_()


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("jdbc:postgresql://MARK0001:MARK0002@db:5432/lake?app_pw=MARK0003&x=MARK0004", "jdbc:postgresql://db:5432/lake"),
        ("jdbc:postgresql://u:p@ss/MARK0001?MARK0002@db/lake", "jdbc:postgresql://•••"),
        ("jdbc:sqlserver://db:1433;user=MARK0001;password=MARK0002;encrypt=true", "jdbc:sqlserver://db:1433"),
        ("jdbc:sqlserver://db;password=MARK@0001", "jdbc:sqlserver://•••"),
        ("jdbc:oracle:thin:MARK0001/MARK:0002@//db:1521/lake", "jdbc:oracle:thin://db:1521/lake"),
        ("jdbc:mysql://(host=db,user=MARK0001,password=MARK0002)/lake", "jdbc:mysql://"),
        ("https://MARK0001@host/catalog#MARK0002", "https://host/catalog"),
        ("https://host/a,https://MARK0001:MARK0002@other/b?t=MARK0003", "https://host/a,https://other/b"),
        ("thrift://host:9083", "thrift://host:9083"),
    ],
)  # fmt: skip
def test_addresses_are_shown_without_what_may_be_a_credential(environment, address, kept):
    environment(catalog_options={"uri": address}, source=address.split(",")[0])
    assert "MARK" not in shown() and kept in shown()


def test_only_options_that_are_known_to_be_harmless_are_shown(environment):
    catalog = {"s3.region": "eu-1", "io-impl": "org.x.IO", "a.new.one": "MARK0001", "s3.access-key-id": "MARK0002"}
    spark = {
        "spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "7", "spark.driver.extraJavaOptions": "-Da=MARK0003",
        "spark.sql.catalog.b.token": "MARK0004", "spark.sql.catalog.b.type": "rest", "sparkling": "MARK0005",
        "spark.hadoop.fs.s3a.endpoint": "http://MARK0006:MARK0007@host:9000",
    }  # fmt: skip
    environment(catalog_options=catalog, spark_options=spark)
    assert "MARK" not in shown()
    for harmless in ("eu-1", "org.x.IO", "'3g'", "'7'", "'spark.sql.catalog.b.type': 'rest'", "http://host:9000"):
        assert harmless in shown()
    for key in (*catalog, *spark):
        assert key in shown(), "the key itself is shown"


def test_an_error_in_the_environments_file_shows_no_value_of_an_option(environment, capsys):
    environment.file.write_text("common:\n  catalog_options: {uri: x, token: 'MARK0001}\n")
    assert main(["check", "--env", "demo"]) == exit_codes.WRONG
    environment.file.write_text("common:\n  catalog_options: [token, MARK0001]\n")
    assert main(["check", "--env", "demo"]) == exit_codes.WRONG
    told = capsys.readouterr().err
    assert "MARK" not in told and "not YAML" in told and "line 3" in told and "demo.yml: common: catalog_options: this should be" in told  # fmt: skip


def test_a_credential_is_hidden_wherever_a_text_repeats_it(environment, capsys):
    """As a path, as a driver's words, in another spelling."""
    secret = 'MARK "1"/ä+x'
    uri = "jdbc:sqlite:lake/x.db?pw=MARK-in-a-file"
    environment(catalog_options={"uri": uri, "my.own": secret, "jdbc.password": "MARKpw"})
    assert main(["check", "--env", "demo"]) == exit_codes.BREACH, "there is no catalog"
    told = capsys.readouterr().err
    assert "MARK" not in told and "x.db" in told
    for spelling in (secret, json.dumps(secret), repr(secret), "https://h/?MARK%20%221%22/%C3%A4%2Bx", "login MARKpw!"):
        assert "MARK" not in str(ParameterError(f"the driver says: {spelling}"))
    assert "MARKpwned" in str(ParameterError("a longer word MARKpwned stays"))


def test_hooks_hear_neither_credentials_nor_control_characters_and_are_not_shown(environment, tmp_path, capsys):
    environment(catalog_options={"uri": "jdbc:sqlite:lake/x.db?pw=MARK-in-a-file"})
    given = yaml.safe_load(environment.file.read_text())
    hook = f"cat > {tmp_path}/told; false MARK-of-a-command"
    given["operate"] = {"on_trouble": hook, "webhook": "nowhere://MARK-of-an-address"}
    environment.file.write_text(yaml.safe_dump(given))
    assert main(["check", "--env", "demo"]) == exit_codes.BREACH
    out = capsys.readouterr()
    told = (tmp_path / "told").read_text()
    assert "MARK" not in told + out.err + out.out and "x.db" in told
    assert "on_trouble: the command ended with exit code 1" in out.err and "webhook: " in out.err


@pytest.mark.spark
def test_no_value_key_name_or_path_of_a_source_brings_a_control_character_into_what_is_shown(new_world):
    """Every control character in a value of a column INT4, in a key that comes twice, in names of a table, a column and a file."""
    w = new_world(CsvNullValue="NULL")
    evil, odd = EVIL + "\nFORGED line", "\x1b[2J\x1b]0;x\x07\u202e\x9b"
    w.table("t", "id INT8", "n INT4").load("t", (1, 1)).changes("t", I(2, evil))
    w.table("twice", "id WSTRING(200)", "v INT4").load("twice", (evil, 1), (evil, 2))
    w.table("column", "id INT8", f"c{odd} INT4").load("column", (1, evil))
    w.table(f"name{odd}").load(f"name{odd}", (1, "a")).changes(f"name{odd}", I("x", "y"))
    w.write("t", f"{evil.replace('/', '').replace(chr(0), '')}.csv", "")
    done = [w.setup(), w.full_load(), w.merge()]
    noted = [r.note for results in done for r in results.values() if r.note]
    failed = {name for results in done for name, r in results.items() if r.failed}
    assert {"t", "twice", "column"} <= failed, noted
    look = setup.files_by_table(w.book(SetupSettings))
    shown = [
        *noted,
        *w.said,
        repr(Grid(look)),
        Grid(look)._repr_html_(),
        repr(notebook_output.results(list(done[2].values()))),
    ]
    with pytest.raises(FrazilError) as error:
        finish("cdc_merge", list(done[2].values()))
    log = (w.root / "runs/test/frazil.log").read_text()
    for text in [*shown, str(error.value), log]:
        assert not [line for line in lines_of(text) if line.startswith("FORGED")]
    assert "\\x1b" in log and any("\\x1b" in text for text in noted)
