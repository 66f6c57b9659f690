"""The JSON schemas by which editors check YAML: equal to the models, true for every shipped file, false for wrong ones."""

import json
from datetime import date
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from frazil_old.cli import main, schema
from frazil_old.config.settings import ParameterError, resolve
from frazil_old.config.spec import SpecError, parse_spec

PARAMS = Path(__file__).parent.parent / "params"
COLUMNS = [{"name": "id", "type": "INT8"}]
SPEC = {"source": "public.t", "key": ["id"], "columns": COLUMNS}


def validator(document: str) -> Draft7Validator:
    made = json.loads((PARAMS / "schema" / f"{document}.json").read_text(encoding="utf-8"))
    Draft7Validator.check_schema(made)
    return Draft7Validator(made)


def wrong(document: str, content) -> list[str]:
    return [e.message for e in validator(document).iter_errors(content)]


@pytest.mark.parametrize("file", sorted(PARAMS.glob("*.endpoint.json")), ids=lambda f: f.name)
def test_every_shipped_endpoint_names_its_schema_and_fits_it(file):
    content = json.loads(file.read_text(encoding="utf-8"))
    assert content["$schema"] == "schema/endpoint.json"
    assert wrong("endpoint", content) == []


RIGHT_SPECS = [
    {"key": "id"},
    {"key": ["id"], "partition": ["id", "bucket(16, id)"], "sort": ["id desc"], "target": "lake.t", "comment": 5},
    {
        "columns": [{"name": 5, "type": "INT8"}, {"name": "n", "type": "numeric(12, 2)", "replace": {"NaN": 0}}],
        "key": 5,
    },
    {"changes": {"new": "add"}, "layouts": [{"until": 20240101, "columns": ["id"], "load": True}]},
    {"on_bad_rows": "quarantine", "max_bad_rows": 5, "max_bad_percent": 1},
]
WRONG_SPECS = [
    {"colums": COLUMNS},
    {"source": "t"},
    {"source": None},
    {"columns": []},
    {"columns": ["id INT8"]},
    {"columns": [{"name": "id"}]},
    {"columns": [{"name": "id", "type": "INT9"}]},
    {"columns": [{"name": "id", "type": "varchar(9)"}]},
    {"columns": [{"name": "id", "type": "NUMERIC"}]},
    {"columns": [{"name": "id", "type": "INT8", "nulable": True}]},
    {"columns": [{"name": "id", "type": "INT8", "utc": "yes"}]},
    {"columns": [{"name": "id", "type": "INT8", "mask": "md5"}]},
    {"key": True},
    {"key": [], "without_key": "apend"},
    {"partition": "id"},
    {"partition": ["days(id)"]},
    {"changes": {"now": "add"}},
    {"changes": {"new": "ad"}},
    {"changes": "add"},
    {"layouts": [{"columns": ["id"]}]},
    {"layouts": [{"until": "x", "columns": ["id"], "loads": True}]},
    {"on_bad_rows": "quarantin"},
    {"max_bad_rows": -1},
    {"max_bad_rows": 1.5},
    {"max_bad_percent": "5"},
]


@pytest.mark.parametrize("entries", RIGHT_SPECS, ids=str)
def test_schema_and_reader_take_the_same_specs(entries):
    assert wrong("spec", SPEC | entries) == []
    parse_spec(SPEC | entries)


@pytest.mark.parametrize("entries", WRONG_SPECS, ids=str)
def test_schema_and_reader_refuse_the_same_specs(entries):
    assert wrong("spec", SPEC | entries)
    with pytest.raises(SpecError, match="^specs/t.yml: .+\n  cure: .+"):
        parse_spec(SPEC | entries, "specs/t.yml")


def test_a_time_that_yaml_reads_as_one_is_taken_as_its_text():
    spec = parse_spec({**SPEC, "layouts": [{"until": date(2024, 1, 1), "columns": ["id"]}]})
    assert spec.layouts[0].until == "2024-01-01"


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Resolve an environment file's content."""
    monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path))

    def resolved(content):
        (tmp_path / "demo.yml").write_text(yaml.safe_dump(content))
        return resolve("cdc_merge", {}).settings

    return resolved


@pytest.mark.parametrize(
    "content",
    [
        {
            "common": {
                "catalog_options": {"type": "rest", "uri": "x", "clients": 4, "cache-enabled": False},
                "changes": {"new": "add"},
            }
        },
        {"cdc_merge": {"run_for_s": "inf", "trigger_s": 1, "lane": "auto"}, "maintenance": {"dry_run": True}},
        {"latency": {"prices": {"vcpu_hour": 0.05}}, "operate": {"table_max_lag_s": {"public.t": 5}}},
    ],
    ids=str,
)
def test_schema_and_reader_take_the_same_environments(environment, content):
    assert wrong("environment", content) == []
    environment(content)


@pytest.mark.parametrize(
    "content",
    [
        {"comon": {}},
        {"common": {"sorce": "x"}},
        {"common": {"env": "x"}},
        {"common": {"max_batch_mb": 1}},
        {"common": ["source"]},
        {"common": {"parallel_tables": "2"}},
        {"common": {"parallel_tables": 0}},
        {"common": {"tables": "public.t"}},
        {"common": {"on_bad_rows": "quarantin"}},
        {"common": {"changes": {"new": "ad"}}},
        {"common": {"follow_source": "yes"}},
        {"cdc_merge": {"run_for_s": "5"}},
        {"maintenance": {"keep_hours": "long"}},
        ["common"],
    ],
    ids=str,
)
def test_schema_and_reader_refuse_the_same_environments(environment, content):
    assert wrong("environment", content)
    with pytest.raises(ParameterError, match="\n  cure: .+"):
        environment(content)


def test_the_command_prints_one_schema_and_writes_all(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path))
    for document in schema.DOCUMENTS:
        assert main(["schema", document]) == 0
        assert capsys.readouterr().out == schema.text(document)
    assert main(["schema"]) == 0
    assert sorted(f.name for f in (tmp_path / "schema").iterdir()) == sorted(f"{d}.json" for d in schema.DOCUMENTS)
