"""What describes a DMS task: the target's settings, AWS's documents, and whether DMS calls a load completed."""

from __future__ import annotations

import json
import re

import boto3
import pytest
from botocore.session import get_session
from botocore.stub import Stubber

from frazil.core.row_blocks import Dialect
from frazil.dms.aws_documents import rules, s3_target, stream_target
from frazil.dms.date_partition import DatePartition
from frazil.dms.load_gate import statistics
from frazil.errors import FrazilError
from frazil.settings.settings_model import Settings

CSV = {"CsvNullValue": "NULL"}
PARTIAL, SHARED = {**CSV, "UseCsvNoSupValue": True}, {**CSV, "PreserveTransactions": True, "CdcPath": "/all/"}
SOURCE = {"EndpointType": "SOURCE", "S3Settings": {"CsvDelimiter": ";"}, "ExtraConnectionAttributes": "csvDelimiter=;"}
OWN = {"FrazilSettings": {"cdcHasOp": False}}
TASK, SERVERLESS = (f"arn:aws:dms:eu-west-1:111111111111:{kind}:ABC" for kind in ("task", "replication-config"))


@pytest.fixture
def read(tmp_path):
    """Return what a function reads from a document, or the words of its refusal."""

    def read(by, document):
        (tmp_path / "e.json").write_text(document if isinstance(document, str) else json.dumps(document))
        try:
            return by(tmp_path / "e.json")
        except FrazilError as refused:
            return str(refused)

    return read


def test_settings_are_read_in_any_case_and_as_texts_and_say_where_an_op_column_is(read):
    settings = {"CSVNULLVALUE": "", "csvDelimiter": "\\t", "CsvRowDelimiter": "\\n", "Rfc4180": "False", "DataFormat": "CSV", "DatePartitionEnabled": "true", "datePartitionDelimiter": "dash"}  # fmt: skip
    found = read(s3_target, {"S3Settings": settings})
    assert found.dialect(header=True) == Dialect("\t", False, True, "")
    assert found.date_partition.before("2024-03-01") == "2024-02-29"
    assert read(s3_target, SHARED).cdc_path == "all" and read(s3_target, {"DataFormat": "parquet"}).null == ""
    only, both, op = {"CdcInsertsOnly": True}, {"CdcInsertsAndUpdates": True}, {"IncludeOpForFullLoad": True}
    found = [read(s3_target, {**CSV, **s}) for s in ({}, only, {**only, **op}, {**both, **op})]
    assert [(t.op_in_load, t.op_in_changes) for t in found] == [(False, True), (False, False), (True, True), (True, True)]  # fmt: skip
    assert not read(s3_target, {**CSV, **both, **OWN}).op_in_changes
    assert [read(s3_target, {**s, "CsvNoSupValue": "?"}).not_carried for s in (PARTIAL, CSV)] == ["?", None]


def test_every_name_that_aws_knows_is_taken(read):
    known = get_session().get_service_model("dms").shape_for
    words = {"CsvDelimiter": ",", "CsvRowDelimiter": "\n", "DataFormat": "csv", "DatePartitionDelimiter": "NONE", "DatePartitionSequence": "YYYYMM", "DatePartitionTimezone": "UTC"}  # fmt: skip
    texts = dict.fromkeys(known("S3Settings").members, "0") | words | {"compressiontype": "GZIP", "WriteBufferSize": 9}
    assert read(s3_target, {"S3Settings": texts}).null == "0"
    stated = dict.fromkeys([*known("KafkaSettings").members, *known("KinesisSettings").members], "1")
    found = read(stream_target, {"KafkaSettings": stated})
    assert found.no_hex_prefix and found.use_large_integer_value


REFUSED = [
    (s3_target, {"S3Settings": {}}, ["CsvNullValue is not set", '"CsvNullValue": "NULL"', "check how your files write a null"]),
    (s3_target, {"DataFormat": "parquet", "PreserveTransactions": True, "CdcPath": "c"}, ["CsvNullValue is not set"]),
    (s3_target, {**CSV, "CsvDelimitr": ";"}, ["'CsvDelimitr'", "write CsvDelimiter"]),
    (s3_target, {**CSV, "CsvDelimiter": "§"}, ["CsvDelimiter", "'§'", "ASCII", "load the tables again"]),
    (s3_target, {**CSV, "CsvRowDelimiter": "\r\n"}, ["CsvRowDelimiter", "load the tables again"]),
    (s3_target, {**CSV, "DatePartitionTimezone": "Berlin"}, ["DatePartitionTimezone", "'Berlin'", "Europe/Berlin", "tzdata"]),
    (s3_target, PARTIAL, ["CsvNoSupValue is not set", "log does not carry"]),
    (s3_target, {**PARTIAL, "CsvNoSupValue": "NULL"}, ["are the same", "at the endpoint too, and load the tables again"]),
    (s3_target, {**CSV, "PreserveTransactions": True}, ["CdcPath is not set"]),
    (s3_target, {"Endpoints": [{"EndpointIdentifier": n, "S3Settings": CSV} for n in "ab"]}, ["2 of S3Settings", "a, b", "--filters Name=endpoint-id"]),
    (s3_target, {"Endpoints": [SOURCE]}, ["no S3Settings, but Endpoints", "describe-endpoints"]),
    (s3_target, {"S3Settings": {"Rfc4180": True, **CSV}, "ExtraConnectionAttributes": "csvNullValue=x;rfc4180=TRUE"}, ["CsvNullValue", "'x' in ExtraConnectionAttributes and 'NULL'"]),
    (stream_target, {"Endpoints": [{"KafkaSettings": {}}, {"KinesisSettings": {}}]}, ["2 of KafkaSettings or KinesisSettings"]),
    (lambda file: statistics(Settings(load_complete_when=str(file))), {"rules": []}, ["no TableStatistics", "but rules", "describe-table-statistics"]),
    (rules, "{", ["cannot be read as JSON", "line 1"]),
    (rules, "[1]", ["no JSON object"]),
    (lambda file: rules(file.parent / "other/e.json"), "", ["No such file"]),
]  # fmt: skip


@pytest.mark.parametrize(("by", "document", "words"), REFUSED)
def test_what_cannot_be_read_is_refused_with_the_file_what_it_says_and_a_cure(read, by, document, words):
    said = read(by, document)
    assert [w for w in ("e.json", "[endpoint]", "cure: ", *words) if w not in said] == [], said


def test_a_date_partition_has_one_before_it_and_names_tell_their_time_but_in_the_hour_that_autumn_repeats():
    for sequence, delimiter, folder, before in [
        ("YYYYMMDDHH", "NONE", "2024010100", "2023123123"),
        ("YYYYMM", "DASH", "2024-01", "2023-12"),
        ("DDMMYYYY", "SLASH", "01/03/2024", ""),
    ]:
        partition = DatePartition(enabled=True, sequence=sequence, delimiter=delimiter)
        assert partition.before(folder) == before and DatePartition(sequence=sequence).before(folder) == ""
        assert {partition.before(name) for name in (folder + "1", "processed", folder.replace("0", "", 1))} == {""}
    berlin, one = DatePartition(enabled=True, timezone="Europe/Berlin"), 1729983600  # 2024-10-27 01:00 in Berlin
    assert berlin.written_s("20241027-010000500.csv") == one + 0.5
    assert DatePartition(timezone="Europe/Berlin").written_s("20241027-010000000.csv") == one + 7200
    times = ("1027-015959999", "1027-020000000", "1027-025959999", "1027-030000000", "0331-023000000")
    assert [berlin.repeats(f"2024{time}.csv") for time in times] == [False, True, True, False, False]


def test_targets_mappings_and_settings_are_found_in_every_form_that_aws_prints(read):
    pipe, texts = {**CSV, "CsvDelimiter": "|"}, "csvdelimiter=|;csvNullValue=NULL; addColumnName=False"
    several = {"Endpoints": [SOURCE, {"EndpointType": "TARGET", "S3Settings": CSV, "ExtraConnectionAttributes": texts, **OWN}]}  # fmt: skip
    nothing = {"S3Settings": {**pipe, "CdcPath": None}, "KafkaSettings": None, "ExtraConnectionAttributes": None, **OWN}
    for document in (pipe | OWN, {"Endpoint": {"S3Settings": pipe}, **OWN}, several, nothing):
        found = read(s3_target, document)
        assert found.csv_delimiter == "|" and not found.op_in_changes
    kafka = {"Endpoints": [SOURCE, {"KafkaSettings": {"Broker": "a:1"}, "ExtraConnectionAttributes": "topic=t"}]}
    kinesis = {"Endpoint": {"KinesisSettings": {"StreamArn": "arn:aws:kinesis:eu-west-1:1:stream/s"}}}
    streams = [read(stream_target, d).address for d in ({"Broker": "a:1, b:2"}, kafka, kinesis, {"KafkaSettings": {}})]
    assert streams == ["kafka://a:1,b:2/kafka-default-topic", "kafka://a:1/t", "kinesis://eu-west-1/s", ""]
    bare = {"rules": [{"rule-type": "selection"}]}
    of_task, serverless = ({name: [{"TableMappings": json.dumps(bare)}]} for name in ("ReplicationTasks", "ReplicationConfigs"))  # fmt: skip
    assert [read(rules, d) for d in (bare, of_task, serverless)] == [bare["rules"]] * 3


CALLS = {
    TASK: ("describe_replication_tasks", "ReplicationTasks", "replication-task-arn", "describe_table_statistics", "TableStatistics", "ReplicationTaskArn", {"LastFailureMessage": "slow"}),
    SERVERLESS: ("describe_replications", "Replications", "replication-config-arn", "describe_replication_table_statistics", "ReplicationTableStatistics", "ReplicationConfigArn", {"FailureMessages": ["slow"]}),
}  # fmt: skip


@pytest.fixture
def dms(monkeypatch):
    """DMS in eu-west-1, as its model describes it: what does not fit the model fails."""
    client = boto3.client("dms", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    monkeypatch.setattr(boto3, "client", lambda name, region_name: {"eu-west-1": client}[region_name])
    with Stubber(client) as answers:
        yield answers


def told(states: dict[str, str]) -> list[dict]:
    return [{"SchemaName": "public", "TableName": n, "TableState": s, "FullLoadRows": 2} for n, s in states.items()]  # fmt: skip


@pytest.mark.parametrize("arn", CALLS)
def test_a_table_waits_until_dms_calls_its_load_completed_and_a_dms_that_refuses_is_named(dms, arn):
    about, task, filtered, tables, listed, named, why = CALLS[arn]
    stopped = {"Status": "stopped", "StopReason": "Stop Reason FATAL_ERROR", **why}
    dms.add_response(about, {task: [stopped]}, {"Filters": [{"Name": filtered, "Values": [arn]}]})
    dms.add_response(tables, {listed: told({"a": "Table completed"}), "Marker": "m"}, {named: arn})
    dms.add_response(tables, {listed: told({"b": "Full load", "c": "Table error"})}, {named: arn, "Marker": "m"})
    dms.add_client_error(about, "AccessDeniedException", "not allowed")
    asks = Settings(load_complete_when=f"dms:{arn}")
    found, state = statistics(asks), "is stopped, .*FATAL_ERROR, slow:"
    assert (found.waits("public.a"), found.tables["public.a"]["FullLoadRows"]) == ("", 2)
    said = " ".join(found.waits(f"public.{name}") for name in "bcx")
    assert re.search(f"'Full load'.*{state} mend.*'Table error'.*{state} reload.*not know.*{state} mend", said), said
    actions = " and ".join(f"dms:{call.title().replace('_', '')}" for call in (about, tables))
    with pytest.raises(FrazilError, match=f"(?s){arn}.*AccessDenied.*dms-silent.*{actions}"):
        statistics(asks)


def test_statistics_may_stand_in_a_file_and_there_may_be_no_load_to_wait_for(dms, read):
    tables = {"TableStatistics": told({"a": "Before load", "b": "Table cancelled"})}
    found = read(lambda file: statistics(Settings(load_complete_when=str(file))), tables)
    assert found.waits("public.a") == "DMS reports 'Before load': run again when its load is completed"
    assert found.waits("public.b").endswith("reload the table in DMS")
    dms.add_response("describe_replication_tasks", {"ReplicationTasks": [{"MigrationType": "cdc"}]})
    assert statistics(Settings(load_complete_when=f"dms:{TASK}")) is None and statistics(Settings()) is None
    assert "names no task" in read(lambda file: statistics(Settings(load_complete_when="dms:x")), "")
