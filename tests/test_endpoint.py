"""Endpoint settings and table mappings: what the JSON says, and refusals that name setting and cure."""

import json

import pytest

from frazil.config.spec import parse_spec
from frazil.dms.endpoint import EndpointError, read_endpoint, read_mappings
from helpers import spec_of


def good() -> dict:
    return spec_of("public.t", "id INT8", "v WSTRING(9)", "n numeric(12,2)")


# --- endpoint settings and mappings


def endpoint(tmp_path, **settings):
    (tmp_path / "endpoint.json").write_text(json.dumps(settings))
    return read_endpoint(tmp_path / "endpoint.json")


def test_settings_are_read_bare_or_as_the_command_line_prints_them(tmp_path):
    s3 = {"CsvNullValue": "NULL", "CsvDelimiter": ";", "AddColumnName": True, "CdcMaxBatchInterval": 5}
    bare = endpoint(tmp_path, **s3)
    assert (bare.null_value, bare.delimiter, bare.header, bare.max_batch_interval_s) == ("NULL", ";", True, 5.0)
    assert endpoint(tmp_path, Endpoints=[{"S3Settings": s3}]) == endpoint(tmp_path, S3Settings=s3) == bare


def test_the_row_delimiter_is_unescaped(tmp_path):
    assert endpoint(tmp_path, CsvNullValue="", CsvRowDelimiter="\\r\\n").row_delimiter == "\r\n"


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(EndpointError, match="no file .*nothing.json"):
        read_endpoint(tmp_path / "nothing.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(EndpointError, match="broken.json is not JSON"):
        read_mappings(tmp_path / "broken.json")


def mappings(tmp_path, *rules):
    (tmp_path / "m.json").write_text(json.dumps({"rules": [{"rule-type": "transformation", **r} for r in rules]}))
    return read_mappings(tmp_path / "m.json")


def test_the_before_image_rule_names_its_columns(tmp_path):
    def names(**definition):
        rule = {"rule-action": "add-before-image-columns", "before-image-def": definition}
        return mappings(tmp_path, rule).before_image(spec).names(spec)

    spec = parse_spec({**good(), "key": ["id", "v"]})
    assert names() == {"id": "BI_id", "v": "BI_v"}
    assert names(**{"column-suffix": "_old"}) == {"id": "id_old", "v": "v_old"}
    assert list(names(**{"column-prefix": "old_", "column-filter": "all"}).values()) == ["old_id", "old_v", "old_n"]


def test_rules_hold_for_the_tables_that_they_name(tmp_path):
    rule = {"rule-action": "add-column", "value": "seq", "expression": "$AR_H_CHANGE_SEQ"}
    other = {**rule, "value": "no", "object-locator": {"schema-name": "public", "table-name": "u%"}}
    mine = {**rule, "object-locator": {"schema-name": "pub%", "table-name": "t"}}
    assert mappings(tmp_path, other, mine).added(parse_spec(good())) == {"seq": "$AR_H_CHANGE_SEQ"}
    assert read_mappings(None).before_image(parse_spec(good())) is None
