"""Settings, specs and secrets: what is read, what is refused, and with which words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from frazil.errors import HIDDEN, FrazilError, safe
from frazil.settings import environment, secrets, state_folder
from frazil.settings.settings_model import SettingError, Settings
from frazil.settings.spec import load_specs, read_spec

DEMO = Path(__file__).parents[2] / "params"
SQLITE = {"type": "jdbc", "uri": "jdbc:sqlite:runs/lake.db", "warehouse": "runs/lake"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with an environment `e`, whose text a test writes."""
    (tmp_path / "params").mkdir()
    (tmp_path / "below/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "below/deep")
    monkeypatch.delenv("FRAZIL_PARAMS", raising=False)

    def write(text: str) -> Path:
        (tmp_path / "params/e.yml").write_text(text)
        return tmp_path

    return write


def refusal(read, *arguments) -> str:
    with pytest.raises(FrazilError) as raised:
        read(*arguments)
    return str(raised.value)


def test_arguments_win_over_the_file_and_the_file_over_defaults(project):
    root = project("source: dms\nmax_batch_mb: 64\nrun_for_s: .inf\n")
    s = environment.resolve("e", {"max_batch_mb": 32, "trigger_s": None})
    assert (s.source, s.max_batch_mb, s.trigger_s, s.run_for_s) == ("dms", 32, 3, float("inf"))
    origin = s.to_pandas().set_index("setting")["from"]
    assert dict(origin[origin != "default"]) == {"source": "e.yml", "max_batch_mb": "argument", "run_for_s": "e.yml"}
    assert s.place("source") == str(root / "dms") and s.env == "e"
    assert "argument" in s._repr_html_() and "max_batch_mb" in repr(s)
    assert "'specs' is not set" in refusal(s.place, "specs")
    with pytest.raises(Exception, match="frozen"):
        s.source = "other"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sourc: x", ["e.yml, line 1", "no entry 'sourc'", "write 'source'"]),
        ("\nmax_batch_mb: many", ["line 2: max_batch_mb", "'many' does not fit", "valid integer"]),
        ("source: x\nsource: y", ["line 2", "'source' stands there a second time"]),
        ("changes:\n\tnew: add", ["line 2", "indent with blanks"]),
        ("source: a: b", ["line 1", "quotes"]),
        ("- source", ["line 1", "does not fit"]),
        ("changes: {new: ad}", ["changes.new", "'ad' does not fit", "'add'"]),
        ("orphan_days: 1", ["orphan_days", "greater than or equal to 3"]),
        ("catalog: 7", ["catalog", "put it in quotes"]),
        ("keep_hours: true", ["keep_hours", "valid number"]),
        ("max_batch_mb: no", ["max_batch_mb", "valid integer"]),
        (
            "\ncatalog_options:\n  type: glue\n  x.version: 1.10",
            ["line 4: catalog_options.x.version", "put it in quotes"],
        ),
        ("\ncatalog_options:\n  type: glu", ["line 2: catalog_options", "'glu' is not known", "write 'glue'"]),
        ("catalog_options: {type: jdbc, uri: x}", ["no 'warehouse'"]),
        ("warehouses: {w: {engine: athena}}", ["line 1: warehouses.w", "w is athena", "write format_version: 2"]),
        ("warehouses: {w: {engine: athen}}", ["warehouses.w.engine", "'athena'"]),
        ("decide: {a.b: {acept: x}}", ["decide.a.b", "'accept'"]),
        ("decide: {a.b: {accept: x, stop: y}}", ["decide.a.b"]),
        ("catalog_options: {type: rest, uri: u, token: abc}", ["token holds a secret", "${TOKEN}"]),
        ("spark_options: {spark.x.password: abc}", ["spark.x.password holds a secret"]),
        ("spark_options: {spark.x.password: '${abc}'}", ["spark.x.password", "command line", "spark-defaults.conf"]),
        ("source: kafka://u:abc@h:9092/t", ["source holds a secret"]),
        ("source_database: postgresql://h/d?user=u&password=abc", ["source_database holds a secret"]),
        ("source_database: postgresql://u:x/abc@h/d", ["source_database holds a secret"]),
        (
            "\ncatalog_options:\n  type: rest\n  uri: u\n  jdbc.password: '${A}abc'",
            ["line 5: catalog_options.jdbc.password"],
        ),
        (
            "catalog_options: {type: rest, uri: u, header.Authorization: Bearer abc}",
            ["header.Authorization holds a secret"],
        ),
        ("catalog_options: {type: rest, uri: u, adls.auth.shared-key.account.key: abc}", ["holds a secret"]),
        ("warehouses: {w: {engine: duckdb, options: [{password: abc}]}}", ["password holds a secret"]),
        ("source_database: postgresql://u:abc@h/d", ["source_database holds a secret"]),
        ("warehouses: {w: {engine: duckdb, options: {password: abc}}}", ["password holds a secret"]),
    ],
)
def test_what_is_wrong_in_an_environment_is_named_with_file_line_and_cure(project, text, words):
    project(text)
    said = refusal(environment.resolve, "e")
    assert [w for w in words if w not in said] == [], said
    assert "cure: " in said and "[setting]" in said and "abc" not in said


def test_what_is_no_secret_or_only_names_one_is_taken(project):
    options = {
        "uri": "u", "type": "rest", "token": "${LAKE_TOKEN}", "token-refresh-enabled": "false", "oauth2-server-uri": "http://h",
        "client.credentials-provider": "some.Class", "credential": "${A}:${secret:prod/lake#b}", "glue.id": "012",
        "client.refresh-credentials-enabled": "true", "client.refresh-credentials-endpoint": "/v1/c",
    }  # fmt: skip
    project(f"source_database: 'postgresql://u:${{PW}}@h/d'\ncatalog_options: {json.dumps(options)}")
    assert environment.resolve("e").catalog_options == options


def test_texts_stay_as_they_are_written_and_arguments_of_no_weight_count(project):
    project(
        "catalog_options: {type: glue, glue.id: 012345670123, x: yes, y: 1:30, z: 2026-11-29}\ndry_run: true\ntrigger_s: 5"
    )
    s = environment.resolve("e", {"dry_run": False, "trigger_s": 0})
    assert s.catalog_options == {"type": "glue", "glue.id": "012345670123", "x": "yes", "y": "1:30", "z": "2026-11-29"}
    assert (s.dry_run, s.trigger_s) == (False, 0)
    project("warehouses: {w: {engine: athena}}")
    assert "e.yml, line 1" in refusal(environment.resolve, "e", {"tables": "a.b"})


def test_an_argument_that_is_wrong_is_named_as_one(project):
    project("")
    assert "e.yml with arguments: max_batch: there is no entry 'max_batch'" in refusal(
        environment.resolve, "e", {"max_batch": 1}
    )
    assert "token holds a secret" in refusal(environment.resolve, "e", {"catalog_options": {"type": "rest", "uri": "u", "token": "x"}})  # fmt: skip
    assert "write 'e'" in refusal(environment.resolve, "E")
    project("- source")
    assert "e.yml, line 1: list does not fit" in refusal(environment.resolve, "e", {"max_batch_mb": 1})


def test_a_file_that_cannot_be_read_is_named(project, tmp_path, monkeypatch):
    (project("") / "params/e.yml").write_bytes(b"source: \xff")
    assert "e.yml is not UTF-8" in refusal(environment.resolve, "e")
    monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path / "below/parms"))
    assert "correct FRAZIL_PARAMS" in refusal(environment.resolve, "e")


def test_references_become_what_they_name_and_no_message_shows_it(monkeypatch):
    monkeypatch.setenv("LAKE_TOKEN", "s3cr3t-value")
    assert secrets.expanded("Bearer ${LAKE_TOKEN}!", "catalog_options.token") == "Bearer s3cr3t-value!"
    assert safe("refused: s3cr3t-value") == f"refused: {HIDDEN}"
    monkeypatch.setenv("LAKE_TOKEN", "s3cr3t-value-and-more")
    assert secrets.expanded("${LAKE_TOKEN}", "x") and safe("s3cr3t-value-and-more") == HIDDEN
    assert "s3cr" not in repr(SettingError("s3cr3t-value", ""))
    assert HIDDEN in str(SettingError("x s3cr3t-value", "y", ["z s3cr3t-value"])) and "s3cr" not in str(SettingError("s3cr3t-value", ""))  # fmt: skip
    assert "catalog_options.uri names the variable NOT_SET" in refusal(
        secrets.expanded, "${NOT_SET}", "catalog_options.uri"
    )


def test_secrets_of_aws_are_read_whole_or_by_entry(monkeypatch):
    held = {"whole": "w-h-o-l-e", "json": json.dumps({"token": "t-o-k-e-n"})}

    class Client:
        def get_secret_value(self, SecretId):  # noqa: N803
            return {"SecretString": held[SecretId]}

    monkeypatch.setattr("boto3.client", lambda name: Client())
    assert secrets.expanded("${secret:whole} ${secret:json#token}", "x") == "w-h-o-l-e t-o-k-e-n"
    assert safe("w-h-o-l-e t-o-k-e-n") == f"{HIDDEN} {HIDDEN}"
    assert "has no entry 'b'" in refusal(secrets.expanded, "${secret:json#b}", "x")
    assert "has no entry 'b'" in refusal(secrets.expanded, "${secret:whole#b}", "x")
    assert "'gone' cannot be read" in refusal(secrets.expanded, "${secret:gone}", "x")


def test_paths_of_the_catalog_and_of_the_state_folder_start_at_the_project(project, monkeypatch):
    root = project(f"catalog_options: {json.dumps(SQLITE)}")
    s = environment.resolve("e")
    assert s.catalog_properties()["uri"] == f"jdbc:sqlite:{root}/runs/lake.db"
    assert state_folder.state_address(s) == f"{root}/runs/lake/_frazil"
    assert state_folder.state_address(environment.resolve("e", {"state": "s3://b/f/"})) == "s3://b/f"
    owned = {
        "catalog_options": {"type": "rest", "uri": "https://x", "warehouse": "arn:aws:s3tables:eu-west-1:1:bucket/b"}
    }
    assert "write state: s3://" in refusal(state_folder.state_address, environment.resolve("e", owned))
    assert environment.resolve("e", owned).catalog_properties()["warehouse"].startswith("arn:")


def test_the_demo_reads_under_the_new_model(monkeypatch):
    monkeypatch.setenv("FRAZIL_PARAMS", str(DEMO))
    s, specs = environment.resolve("demo"), load_specs(DEMO / "shop")
    assert s.source and len(specs) == 7 and len(Settings.model_fields) <= 41


SPEC = """source: a.t
key: id
columns:
  - {name: id, type: INT8}
  - {name: n, type: "NUMERIC(12,2)"}
  - {name: at, type: DATETIME}
"""


def spec_in(tmp_path, text: str):
    (tmp_path / "t.yml").write_text(text)
    return read_spec(tmp_path / "t.yml")


def test_a_spec_has_names_types_and_a_policy(tmp_path):
    spec = spec_in(tmp_path, SPEC + "exclude: [at]\nmax_lag_s: 5\non_bad_rows: quarantine\n")
    assert (spec.target, spec.key, spec.lake_names, spec.policy) == ("a.t", ("id",), ("id", "n"), "key")
    assert [c.lake_type for c in spec.columns] == ["bigint", "decimal(12,2)", "timestamp_ntz"]
    assert (spec.max_lag_s, spec.on_bad_rows, spec.max_bad_rows, spec.file) == (5, "quarantine", None, str(tmp_path / "t.yml"))  # fmt: skip
    keyless = spec_in(tmp_path, SPEC.replace("key: id\n", ""))
    assert keyless.policy == "refuse"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("key: id", "key: ID", ["line 2: key", "no column 'ID'", "write 'id'"]),
        ("INT8", "INT9", ["line 4: columns.0.type", "'INT9' is no DMS type", "write 'INT"]),
        ("NUMERIC(12,2)", "NUMERIC(40,2)", ["columns.1.type", "no usable digits"]),
        ("NUMERIC(12,2)", "NUMERIC", ["columns.1.type", "no usable digits"]),
        ("type: DATETIME", "type: DATETIME, lake: date", ["columns.2.lake", "write string"]),
        ("INT8}", "INT8, lake: decimal}", ["columns.0.lake"]),
        ('"NUMERIC(12,2)"', '"NUMERIC(12,2)", lake: "decimal(12,3)"', ["columns.1.lake"]),
        ("type: DATETIME", "type: DATETIME, replace: {NaN: null}", ["columns.2.replace", "'NaN'"]),
        ("type: INT8", "type: INT8, nullable: true", ["columns.0.nullable", "no entry 'nullable'"]),
        ("name: n,", "name: id,", ["'id' is listed twice"]),
        ("source: a.t", "source: t", ["line 1: source", "'t' is no name of a table"]),
        ("key: id", "key: id\nwithout_key: append", ["line 3: without_key", "stand together"]),
        ("key: id", "key: id\nexclude: id", ["exclude"]),
        ("key: id", "key: id\nexclude: [id]", ["'id' is in the key and excluded"]),
        ("key: id", "key: at", None),
        ("key: id", "key: id\ncolumns_until: {orders: [id]}", ["columns_until", "'orders' is no file with columns"]),
        ("key: id", "key: id\npartition: [week(at)]", ["partition", "'week(at)' is no transform"]),
        ("key: id", "key: id\npartition: [day(when)]", ["partition", "no column 'when'"]),
        ("key: id", "key: id\nsort: [n down]", ["sort", "no column 'n down'"]),
        ("key: id", "without_key: multiset", ["without_key", "'append'"]),
        ("name: n,", "name: 7,", ["columns.1.name", "put it in quotes"]),
        ("key: id", "key: id\nsort: ['']", ["sort", "no column ''"]),
        ("key: id", "key: id\ntarget: a..b", ["line 3: target", "no name of a table"]),
        ("columns:", "max_bad_rows: -1\ncolumns:", ["line 3: max_bad_rows"]),
    ],
)
def test_what_is_wrong_in_a_spec_is_named_with_file_line_and_cure(tmp_path, old, new, words):
    assert old in SPEC
    if words is None:
        assert spec_in(tmp_path, SPEC.replace(old, new)).key == ("at",)
        return
    said = refusal(spec_in, tmp_path, SPEC.replace(old, new))
    assert [w for w in ["t.yml", "[spec]", "cure: ", *words] if w not in said] == [], said


def test_types_that_hold_all_values_are_taken(tmp_path):
    for old, new in (("INT8", "INT4, lake: bigint"), ('"NUMERIC(12,2)"', '"NUMERIC(12,2)", lake: "decimal(14, 4)"'), ("type: DATETIME", "type: DATETIME, utc: true, replace: {zero_date: null}")):  # fmt: skip
        spec_in(tmp_path, SPEC.replace(old, new))
    spec = spec_in(tmp_path, SPEC + "partition: [day(at), 'bucket(4, id)', n]\nsort: [at desc, n]\ncolumns_until: {20240101-100000000.csv: [id]}\n")  # fmt: skip
    assert spec.columns_until == {"20240101-100000000.csv": ("id",)}


def test_two_specs_of_one_table_and_a_folder_without_specs_are_refused(tmp_path):
    assert "cannot be read" in refusal(load_specs, tmp_path / "nowhere") and "run frazil init" in refusal(
        load_specs, tmp_path
    )
    (tmp_path / "a.yml").write_text(SPEC)
    for other in (SPEC, SPEC.replace("a.t", "b.t\ntarget: A.T")):
        (tmp_path / "b.yml").write_text(other)
        said = refusal(load_specs, tmp_path)
        assert "b.yml" in said and "a.yml" in said and "one spec with an added column" in said


def test_the_library_is_imported_without_pyspark_and_pandas():
    code = "import sys, frazil, frazil.settings.environment, frazil.settings.spec, frazil.results; print([m for m in ('pyspark', 'pandas', 'boto3', 'sqlalchemy') if m in sys.modules])"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
