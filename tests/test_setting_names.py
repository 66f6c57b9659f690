"""Names of endpoint settings: known in any case, refused with the right spelling if misspelt, reported if unknown."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from frazil_old.config.settings import SetupSettings
from frazil_old.dms.endpoint import read_endpoint
from frazil_old.dms.source_errors import EndpointError
from frazil_old.flows.setup import check_source
from frazil_old.flows.stream_position import findings
from helpers import LOAD1, World

SETTINGS = {
    "CsvNullValue": "NULL", "CsvDelimiter": "|", "CsvRowDelimiter": "\\r\\n", "Rfc4180": False, "AddColumnName": True,
    "IncludeOpForFullLoad": True, "TimestampColumnName": "dms_ts", "DataFormat": "csv", "CompressionType": "GZIP",
    "CdcInsertsAndUpdates": True, "UseCsvNoSupValue": True, "CsvNoSupValue": "?", "DatePartitionEnabled": True,
    "DatePartitionSequence": "MMYYYYDD", "DatePartitionDelimiter": "DASH", "DatePartitionTimezone": "Asia/Tokyo",
    "ParquetTimestampInMillisecond": True, "BucketName": "lake", "BucketFolder": "shop", "CdcMaxBatchInterval": 30,
    "CdcMinFileSize": 64000, "MaxFileSize": 200000,
}  # fmt: skip
"""Every setting that changes how files are read, none at its default."""
SHARED = {"CsvNullValue": "", "PreserveTransactions": True, "CdcPath": "changes/all"}
CASES = {
    "pascal (the API, CloudFormation)": lambda n: n,
    "camel (CDK, attributes)": lambda n: n[0].lower() + n[1:],
    "lower": str.lower,
    "upper": str.upper,
}


def snake(name: str) -> str:
    """Write a name as Terraform does."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=[0-9])", "_", name).lower()


def saved(tmp_path: Path, document: dict) -> Path:
    (tmp_path / "endpoint.json").write_text(json.dumps(document))
    return tmp_path / "endpoint.json"


def attributes(settings: dict) -> str:
    return "".join(f"{n}={str(v).lower() if isinstance(v, bool) else v};" for n, v in settings.items())


@pytest.mark.parametrize("settings", [SETTINGS, SHARED], ids=["files per table", "files of all tables"])
@pytest.mark.parametrize("case", CASES)
def test_names_are_known_in_any_case(tmp_path, case, settings):
    stated = read_endpoint(saved(tmp_path, {"S3Settings": settings}))
    spelt = {CASES[case](n): v for n, v in settings.items()}
    described = {CASES[case]("EngineName"): "s3", CASES[case]("EndpointType"): "TARGET"}
    documents = (
        spelt,
        {CASES[case]("S3Settings"): spelt},
        {CASES[case]("ExtraConnectionAttributes"): attributes(spelt)},
        {CASES[case]("Endpoints"): [{**described, CASES[case]("ExtraConnectionAttributes"): attributes(spelt), "S3Settings": {}}]},
    )  # fmt: skip
    for document in documents:
        assert read_endpoint(saved(tmp_path, document)) == stated, document


@pytest.mark.parametrize("name", [*SETTINGS, "PreserveTransactions", "CdcPath", "AddTrailingPaddingCharacter"])
def test_a_misspelt_name_is_refused_with_the_right_spelling(tmp_path, name):
    for wrong in {snake(name), f"{name[:-1]}", f"{name[:-2]}{name[-1]}{name[-2]}"} - {name.lower()}:
        for document in ({"S3Settings": {"CsvNullValue": "", wrong: "x"}}, {"ExtraConnectionAttributes": f"csvNullValue=;{wrong}=x"}):  # fmt: skip
            with pytest.raises(EndpointError) as error:
                read_endpoint(saved(tmp_path, document))
            assert wrong in error.value.problem and name in error.value.cure


@pytest.mark.parametrize("name", ["s3_settings", "extra_connection_attributes", "S3Setting"])
def test_a_misspelt_document_is_refused_and_not_passed_by(tmp_path, name):
    with pytest.raises(EndpointError, match=name):
        read_endpoint(saved(tmp_path, {"EndpointIdentifier": "lake", name: {"CsvNullValue": ""}}))


def test_two_values_of_one_setting_are_refused(tmp_path):
    with pytest.raises(EndpointError, match="CsvNullValue .*twice"):
        read_endpoint(saved(tmp_path, {"S3Settings": {"CsvNullValue": "", "csvNullValue": "NULL"}}))
    read_endpoint(saved(tmp_path, {"S3Settings": {"CsvNullValue": "", "csvNullValue": ""}}))


@pytest.mark.parametrize("stream", ["KafkaSettings", "KinesisSettings"])
def test_names_of_stream_targets_are_known_in_any_case(tmp_path, stream, monkeypatch):
    from frazil_old.dms.aws_json import stream_settings

    wanted = {"IncludeNullAndEmpty": True, "IncludeTransactionDetails": True}
    for case in CASES.values():
        spelt = {case(n): v for n, v in wanted.items()}
        for document in (spelt, {case(stream): spelt}, {"Endpoints": [{case(stream): spelt}]}):
            assert stream_settings(saved(tmp_path, document))[0] == wanted
    with pytest.raises(EndpointError, match="include_null_and_empty"):
        stream_settings(saved(tmp_path, {stream: {"include_null_and_empty": True}}))


def test_setup_reports_unknown_settings_and_two_values_of_one(tmp_path):
    world = World(tmp_path / "w", "w", {}, DetachTargetOnLobLookupFailureParquet=True)
    world.s3 = {
        "csvnullvalue": "NULL",
        "CSVDELIMITER": "|",
        "addColumnName": True,
        "timestampColumnName": "dms_ts",
        **world.s3,
    }
    world.s3 = {n: v for n, v in world.s3.items() if n not in ("CsvNullValue", "TimestampColumnName")}
    world.rules = {"rules": []}
    world.table("t", "id INT8", "n INT4").write("t", LOAD1, "dms_ts|id|n\n2024-01-01 00:00:00.000000|1|NULL\n")
    rows = check_source(world.book(SetupSettings))
    assert any("DetachTargetOnLobLookupFailureParquet" in r["setting"] for r in rows)
    proved = {r["setting"] for r in rows if r["kind"] == "confirmed"}
    assert {"CsvNullValue", "CsvDelimiter", "AddColumnName", "TimestampColumnName"} <= proved
    assert not [r for r in rows if "csvnullvalue" in r["setting"]]


@pytest.mark.parametrize("switch", [True, "true"])
def test_switches_of_a_stream_that_lose_something_are_found_and_wrong_ones_refused(tmp_path, switch):
    def found(value):
        path = saved(tmp_path, {"KafkaSettings": {"includeNullAndEmpty": value}})
        return [r["setting"] for r in findings(SimpleNamespace(settings=SimpleNamespace(path=lambda name: path)))]

    assert found(switch) == ["IncludeTransactionDetails", "IncludeTableAlterOperations"]
    with pytest.raises(EndpointError, match="IncludeNullAndEmpty: 'yes' should be"):
        found("yes")
