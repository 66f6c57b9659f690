"""Endpoint settings and table mappings: what the JSON says, and refusals that name setting and cure."""

import json

import pytest

from frazil_old.config.settings import SetupSettings
from frazil_old.config.spec import parse_spec
from frazil_old.dms import mappings as kinds
from frazil_old.dms.aws_json import TableStatistics, read_statistics, read_task_settings
from frazil_old.dms.endpoint import Endpoint, read_endpoint
from frazil_old.dms.mappings import Mappings, read_mappings
from frazil_old.dms.settings_lint import COST, LOSS, NOTE, lint
from frazil_old.dms.source_errors import EndpointError
from frazil_old.flows import setup
from helpers import WITH_BEFORE_IMAGE_AND_SEQUENCE, I, World, spec_of


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
    with pytest.raises(EndpointError, match="cannot be read: Is a directory"):
        read_endpoint(tmp_path)
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


# --- settings: every one of them, and those that make reading impossible

S3 = {"CsvNullValue": "NULL"}


def test_what_is_not_stated_is_as_dms_documents_it(tmp_path):
    assert endpoint(tmp_path, **S3) == Endpoint(null_value="NULL")
    assert endpoint(tmp_path, DataFormat="parquet") == Endpoint(null_value=None, data_format="parquet")


def test_every_setting_that_shapes_files_is_read(tmp_path):
    e = endpoint(
        tmp_path,
        CsvNullValue="", CsvDelimiter="\\t", CsvRowDelimiter="\\n", CompressionType="GZIP", DataFormat="CSV",
        UseCsvNoSupValue=True, CsvNoSupValue="?", DatePartitionEnabled=True, DatePartitionSequence="yyyymmddhh",
        DatePartitionDelimiter="DASH", DatePartitionTimezone="Asia/Kolkata", ParquetTimestampInMillisecond=True,
        CdcInsertsOnly=True, BucketName="b", BucketFolder="/a/b/", MaxFileSize="1000", Rfc4180="false", CannedAclForObjects="none",
        ParquetVersion="parquet-2-0", DetachTargetOnLobLookupFailureParquet=True, TimestampColumnName=None,
    )  # fmt: skip
    assert (e.null_value, e.delimiter, e.row_delimiter, e.compression, e.no_sup_value) == ("", "\t", "\n", "gzip", "?")
    assert (e.date_partition.enabled, e.date_partition.sequence, e.date_partition.delimiter) == (
        True,
        "YYYYMMDDHH",
        "DASH",
    )
    assert (e.max_file_kb, e.rfc4180, e.inserts_only) == (1000, False, True)
    assert (e.parquet_timestamp_ms, e.op_in_changes, e.timestamp_column) == (True, False, "")
    assert hash(e) == hash(endpoint(tmp_path, **json.loads((tmp_path / "endpoint.json").read_text())))


def test_a_header_is_a_matter_of_csv(tmp_path):
    assert not endpoint(tmp_path, DataFormat="parquet", AddColumnName=True).header


@pytest.mark.parametrize(
    ("settings", "own", "has_op"),
    [
        ({}, {}, True),
        ({"CdcInsertsOnly": True}, {}, False),
        ({"CdcInsertsOnly": True, "IncludeOpForFullLoad": True}, {}, True),
        ({"CdcInsertsAndUpdates": True, "IncludeOpForFullLoad": True}, {}, True),
        ({"CdcInsertsAndUpdates": True}, {"CdcHasOp": True}, True),
        ({"CdcInsertsAndUpdates": True}, {"CdcHasOp": False}, False),
        ({}, {"CdcHasOp": False}, False),
    ],
)
def test_change_files_have_an_operation_column_as_documented_or_stated(tmp_path, settings, own, has_op):
    assert endpoint(tmp_path, S3Settings={**S3, **settings}, FrazilSettings=own).op_in_changes is has_op


def test_operations_of_others_are_told_beside_the_settings(tmp_path):
    own = {"OpColumnName": "action", "OpValues": {"INSERT": "I", "DELETE": "D"}}
    e = endpoint(tmp_path, S3Settings=S3, FrazilSettings=own)
    assert (e.op_column, e.op_values) == ("action", {"INSERT": "I", "DELETE": "D"})
    plain = endpoint(tmp_path, **S3)
    assert (plain.op_column, plain.op_values) == ("Op", {"I": "I", "U": "U", "D": "D"})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"CsvNullValue": None}, "CsvNullValue is not set\n  cure: add"),
        ({"CsvNullValue": None, "DataFormat": "parquet", "PreserveTransactions": True, "CdcPath": "c"}, "CsvNullValue is not"),
        ({"DataFormat": "parqet"}, "unknown DataFormat 'parqet'\n  cure: did you mean 'parquet'"),
        ({"CompressionType": "zip"}, "unknown CompressionType 'zip'\n  cure: did you mean 'gzip'"),
        ({"DatePartitionSequence": "YYYYMMD"}, "DatePartitionSequence.*\n.*did you mean 'YYYYMMDD'"),
        ({"DatePartitionDelimiter": "SLSH"}, "DatePartitionDelimiter.*\n.*did you mean 'SLASH'"),
        ({"DatePartitionEnabled": True, "DatePartitionTimezone": "Europe/Berln"}, "DatePartitionTimezone .* not a known time zone"),
        ({"CdcInsertsOnly": True, "CdcInsertsAndUpdates": True}, "CdcInsertsOnly and CdcInsertsAndUpdates are both on"),
        ({"CdcInsertsAndUpdates": True}, "contradicts itself(.|\n)*CdcHasOp"),
        ({"UseCsvNoSupValue": True}, "CsvNoSupValue is not set"),
        ({"UseCsvNoSupValue": True, "CsvNoSupValue": "NULL", "CsvNullValue": "NULL"}, "are the same text"),
        ({"PreserveTransactions": True}, "CdcPath is not set"),
        ({"PreserveTransactions": True, "CdcPath": "c", "AddColumnName": True}, "PreserveTransactions and AddColumnName"),
        ({"PreserveTransactions": True, "CdcPath": "c", "DatePartitionEnabled": True}, "and DatePartitionEnabled are both on"),
        ({"AddColumnName": "yes"}, "AddColumnName: 'yes' should be a valid boolean\n  cure: write AddColumnName: true"),
        ({"CdcMaxBatchInterval": "soon"}, "CdcMaxBatchInterval: 'soon' should be a valid integer\n  cure: write CdcMaxBatchInterval: 60"),
    ],
)  # fmt: skip
def test_settings_that_make_reading_impossible_are_refused(tmp_path, settings, says):
    with pytest.raises(EndpointError, match=says):
        endpoint(tmp_path, **{**S3, **settings})


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"OpColumName": "x"}, "FrazilSettings: unknown entry 'OpColumName'\n  cure: did you mean 'OpColumnName'"),
        ({"OpValues": {"INSERT": "insert"}}, "FrazilSettings: unknown OpValues 'insert'\n  cure: known: D, I, U"),
        ({"OpValues": ["I"]}, "OpValues: .* dictionary\n  cure: write OpValues: {INSERT: I, UPDATE: U, DELETE: D}"),
        ({"CdcHasOp": 1}, "CdcHasOp: 1 should be a valid boolean"),
    ],
)
def test_wrong_settings_of_our_own_are_refused(tmp_path, own, says):
    with pytest.raises(EndpointError, match=says):
        endpoint(tmp_path, S3Settings=S3, FrazilSettings=own)


def test_a_clock_that_is_set_back_needs_a_sequence_column(tmp_path):
    def of(zone, enabled=True):
        return endpoint(tmp_path, **S3, DatePartitionEnabled=enabled, DatePartitionTimezone=zone)

    with_sequence, spec = Mappings(tuple(WITH_BEFORE_IMAGE_AND_SEQUENCE["rules"])), parse_spec(good())
    with pytest.raises(EndpointError, match="Europe/Berlin has daylight saving(.|\n)*of public.t\n  cure: remove"):
        of("Europe/Berlin").check_order(Mappings(), [spec])
    of("Europe/Berlin").check_order(with_sequence, [spec])
    for zone, enabled in (("Asia/Kolkata", True), ("UTC", True), ("Europe/Berlin", False), ("", True)):
        of(zone, enabled).check_order(Mappings(), [spec])


# --- documents as AWS prints them

SOURCE = {
    "EndpointIdentifier": "shop-oracle", "EndpointType": "SOURCE", "EngineName": "oracle", "ServerName": "db.example.com",
    "Port": 1521, "Status": "active", "EndpointArn": "arn:aws:dms:eu-west-1:111122223333:endpoint:AAAA", "SslMode": "none",
}  # fmt: skip
TARGET = {
    "EndpointIdentifier": "shop-lake", "EndpointType": "TARGET", "EngineName": "s3", "EngineDisplayName": "Amazon S3",
    "ExtraConnectionAttributes": "bucketName=lake;addColumnName=true;timestampColumnName=other;csvNullValue=NULL;",
    "Status": "active", "EndpointArn": "arn:aws:dms:eu-west-1:111122223333:endpoint:BBBB", "SslMode": "none",
    "S3Settings": {
        "ServiceAccessRoleArn": "arn:aws:iam::111122223333:role/dms", "CsvRowDelimiter": "\\n", "CsvDelimiter": ",",
        "BucketFolder": "shop", "CompressionType": "NONE", "DataFormat": "csv", "EnableStatistics": True,
        "TimestampColumnName": "ts", "DatePartitionEnabled": False, "CdcMaxBatchInterval": 30,
    },
}  # fmt: skip
S3_SOURCE = {**TARGET, "EndpointIdentifier": "files", "EndpointType": "SOURCE"}
MAPPINGS = {"rules": [{"rule-type": "selection", "rule-action": "include", "object-locator": {"schema-name": "%"}}]}
TASK = {
    "ReplicationTaskIdentifier": "shop", "SourceEndpointArn": SOURCE["EndpointArn"], "MigrationType": "full-load-and-cdc",
    "TableMappings": json.dumps(MAPPINGS), "Status": "running", "RecoveryCheckpoint": "checkpoint:V1#1#000",
    "ReplicationTaskSettings": json.dumps({"TargetMetadata": {"BatchApplyEnabled": True}, "Logging": {"EnableLogging": True}}),
}  # fmt: skip


def saved(tmp_path, document, name="d.json"):
    (tmp_path / name).write_text(json.dumps(document))
    return tmp_path / name


@pytest.mark.parametrize(
    "document",
    [{"Endpoints": [TARGET]}, {"Endpoints": [SOURCE, S3_SOURCE, TARGET]}, {"Endpoint": TARGET}, TARGET],
    ids=["described", "described with others", "created", "bare"],
)
def test_the_s3_target_is_taken_from_what_describe_endpoints_prints(tmp_path, document):
    e = read_endpoint(saved(tmp_path, document))
    assert (e.timestamp_column, e.max_batch_interval_s) == ("ts", 30.0)
    assert (e.header, e.null_value) == (True, "NULL"), "told by ExtraConnectionAttributes"


def test_our_own_settings_may_stand_beside_the_list(tmp_path):
    document = {"Endpoints": [TARGET], "FrazilSettings": {"OpColumnName": "x"}}
    assert read_endpoint(saved(tmp_path, document)).op_column == "x"


def test_two_targets_or_none_are_refused(tmp_path):
    for endpoints, says in (([TARGET, {**TARGET, "EndpointIdentifier": "b"}], r"2 S3 targets \(shop-lake, b\)"),
                            ([SOURCE], "no S3 targets")):  # fmt: skip
        with pytest.raises(EndpointError, match=says):
            read_endpoint(saved(tmp_path, {"Endpoints": endpoints}))


def test_other_documents_are_refused(tmp_path):
    with pytest.raises(EndpointError, match="contains ReplicationTasks and no S3Settings"):
        read_endpoint(saved(tmp_path, {"ReplicationTasks": [TASK]}))
    with pytest.raises(EndpointError, match="contains no rules"):
        read_mappings(saved(tmp_path, {"Endpoints": [TARGET]}))
    with pytest.raises(EndpointError, match="not a JSON object"):
        read_mappings(saved(tmp_path, []))
    with pytest.raises(EndpointError, match="2 tasks"):
        read_mappings(saved(tmp_path, {"ReplicationTasks": [TASK, TASK]}))
    with pytest.raises(EndpointError, match="the string in .* is not JSON"):
        read_mappings(saved(tmp_path, {"ReplicationTasks": [{**TASK, "TableMappings": "{"}]}))
    with pytest.raises(EndpointError, match="no TableStatistics"):
        read_statistics(saved(tmp_path, {"ReplicationTasks": [TASK]}))


def test_mappings_and_settings_are_read_out_of_a_task(tmp_path):
    serverless = {"ReplicationConfigIdentifier": "shop", "TableMappings": TASK["TableMappings"],
                  "ReplicationSettings": TASK["ReplicationTaskSettings"]}  # fmt: skip
    for document in ({"ReplicationTasks": [TASK]}, {"ReplicationTask": TASK}, {"ReplicationConfigs": [serverless]}):
        file = saved(tmp_path, document)
        assert read_mappings(file).rules == tuple(MAPPINGS["rules"])
        assert read_task_settings(file)["TargetMetadata"] == {"BatchApplyEnabled": True}
    bare = {"TargetMetadata": {"SupportLobs": True}}
    assert read_task_settings(saved(tmp_path, bare)) == bare
    assert read_task_settings(saved(tmp_path, MAPPINGS)) == {}


STATISTICS = {
    "ReplicationTaskArn": "arn:aws:dms:eu-west-1:111122223333:task:CCCC",
    "TableStatistics": [
        {
            "SchemaName": "public", "TableName": "t", "Inserts": 5, "Deletes": 1, "Updates": 2, "Ddls": 0,
            "AppliedInserts": 5, "FullLoadRows": 1000, "FullLoadCondtnlChkFailedRows": 0, "FullLoadErrorRows": 0,
            "FullLoadStartTime": "2024-06-12T10:28:13+00:00", "FullLoadEndTime": "2024-06-12T10:28:20+00:00",
            "FullLoadReloaded": False, "LastUpdateTime": "2024-06-12T10:30:00+00:00", "TableState": "Table completed",
            "ValidationState": "Not enabled",
        },
        {"SchemaName": "public", "TableName": "bad", "TableState": "Table error", "FullLoadErrorRows": 3},
        {"SchemaName": "public", "TableName": "new", "TableState": "Before load"},
    ],
}  # fmt: skip


def test_statistics_are_read(tmp_path):
    found = read_statistics(saved(tmp_path, STATISTICS))
    t = found["public.t"]
    assert (t.loaded, t.failed, t.full_load_rows, t.full_load_errors) == (True, False, 1000, 0)
    assert (found["public.bad"].failed, found["public.bad"].loaded) == (True, False)
    assert (found["public.new"].failed, found["public.new"].loaded) == (False, False)


# --- mappings


def rule(action, target="table", schema="public", table="%", **more):
    at = {
        "schema-name": schema,
        "table-name": table,
        **({"column-name": more.pop("column")} if "column" in more else {}),
    }
    return {"rule-action": action, "rule-target": target, "object-locator": at, **more}


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("%", "any", True), ("ord%", "orders", True), ("ord%", "Orders", False), ("a_c", "abc", True), ("a[_]c", "abc", False),
        ("a[_]c", "a_c", True), ("[ab]x", "bx", True), ("[a-c]x", "dx", False), ("a.c", "abc", False), ("a(b", "a(b", True),
    ],
)  # fmt: skip
def test_patterns_are_those_of_dms(pattern, name, fits):
    assert kinds.like(pattern, name) is fits


@pytest.mark.parametrize(
    ("rules", "folders"),
    [
        ([], ("public", "t")),
        ([rule("rename", "schema", value="lake")], ("lake", "t")),
        ([rule("rename", "table", table="t", value="T2"), rule("convert-uppercase", "schema")], ("PUBLIC", "T2")),
        ([rule("add-prefix", value="p_")], ("public", "p_t")),
        ([rule("add-suffix", value="_s")], ("public", "t_s")),
        ([rule("remove-prefix", "schema", value="pub")], ("lic", "t")),
        ([rule("replace-prefix", "schema", **{"value": "re", "old-value": "pub"})], ("relic", "t")),
        ([rule("replace-suffix", "schema", **{"value": "ish", "old-value": "ic"})], ("publish", "t")),
        ([rule("rename", "table", table="other", value="x")], ("public", "t")),
        ([rule("convert-lowercase"), rule("convert-lowercase", table="t")], ("public", "t")),
        ([rule("rename", "column", column="t", value="x")], ("public", "t")),
    ],
)
def test_folders_are_named_as_the_rules_rename_them(tmp_path, rules, folders):
    assert mappings(tmp_path, *rules).target_name(parse_spec(good())) == folders


def test_two_rules_that_rename_a_table_differently_are_refused(tmp_path):
    both = mappings(tmp_path, rule("add-prefix", value="p_"), rule("rename", table="t", value="x"))
    with pytest.raises(EndpointError, match="several rules rename the table 't' of public.t(.|\n)*DMS applies one"):
        both.target_name(parse_spec(good()))


def test_columns_are_renamed_removed_and_chosen(tmp_path):
    def columns(*rules):
        return mappings(tmp_path, *rules).file_columns(parse_spec(good()))

    assert columns() == {"id": "id", "v": "v", "n": "n"}
    assert columns(rule("rename", "column", column="v", value="w")) == {"id": "id", "v": "w", "n": "n"}
    assert columns(rule("convert-uppercase", "column", column="%")) == {"id": "ID", "v": "V", "n": "N"}
    assert columns(rule("remove-column", "column", column="v")) == {"id": "id", "n": "n"}
    assert columns(*[rule("include-column", "column", column=c) for c in ("id", "n")]) == {"id": "id", "n": "n"}


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("$AR_H_CHANGE_SEQ", kinds.SEQUENCE), ("ar_h_change_seq", kinds.SEQUENCE), ("$AR_H_STREAM_POSITION", ""),
        ("$AR_H_COMMIT_TIMESTAMP", ""), ("$AR_H_TIMESTAMP", ""), ("$AR_H_USER", ""), ("$AR_H_OPERATION", ""),
        ("$AR_M_SOURCE_TABLE_NAME", ""), ("operation_indicator('D', 'U', 'I')", kinds.INDICATOR), ("$v || 'x'", ""),
    ],
)  # fmt: skip
def test_added_columns_are_told_apart(tmp_path, expression, kind):
    assert [k for k in (kinds.SEQUENCE, kinds.INDICATOR) if kinds.is_expression(k, expression)] == [kind] * bool(kind)
    found = mappings(tmp_path, {"rule-action": "add-column", "value": "c", "expression": expression})
    assert found.sequence_column(parse_spec(good())) == ("c" if kind == kinds.SEQUENCE else "")


def test_selection_rules_say_which_tables_the_task_takes():
    def selects(*rules):
        return Mappings(tuple({"rule-type": "selection", **r} for r in rules)).selects(parse_spec(good()))

    assert selects()
    assert selects(rule("include"))
    assert not selects(rule("include", table="u%"))
    assert not selects(rule("include"), rule("exclude", table="t"))


def test_an_unknown_column_filter_is_refused(tmp_path):
    wrong = {"rule-action": "add-before-image-columns", "before-image-def": {"column-filter": "pk"}}
    with pytest.raises(EndpointError, match="column-filter = 'pk'"):
        mappings(tmp_path, wrong).before_image(parse_spec(good()))


# --- what will hurt

SOUND = {
    "CsvNullValue": "~", "AddColumnName": True, "IncludeOpForFullLoad": True, "TimestampColumnName": "ts", "MaxFileSize": 100_000,
    "UseCsvNoSupValue": True, "CsvNoSupValue": "?",
}  # fmt: skip
RULES = Mappings(tuple(WITH_BEFORE_IMAGE_AND_SEQUENCE["rules"]))


def found(settings=SOUND, rules=RULES, spec=None, **more) -> dict:
    specs = [parse_spec(spec or good())]
    source = more.pop("source", "")
    findings = lint({"S3Settings": settings, "SourceEngineName": source}, rules, specs, **more)
    assert all(f.effect and f.cure and f.severity in (LOSS, COST, NOTE) for f in findings)
    order = [(LOSS, COST, NOTE).index(f.severity) for f in findings]
    assert order == sorted(order)
    return {f.setting: f.severity for f in findings}


def test_sound_settings_give_nothing_to_say():
    assert found() == {}


@pytest.mark.parametrize(
    ("settings", "setting", "severity"),
    [
        ({"CdcInsertsOnly": True}, "CdcInsertsOnly", LOSS),
        ({"CdcInsertsAndUpdates": True}, "CdcInsertsAndUpdates", LOSS),
        ({"DatePartitionEnabled": True, "DatePartitionTimezone": "Europe/Berlin"}, "DatePartitionTimezone", LOSS),
        ({"AddTrailingPaddingCharacter": True}, "AddTrailingPaddingCharacter", LOSS),
        ({"CdcPath": "c"}, "CdcPath", NOTE),
        ({"PreserveTransactions": True, "CdcPath": "c", "AddColumnName": False}, "PreserveTransactions", COST),
        ({"TimestampColumnName": ""}, "TimestampColumnName", COST),
        ({"Rfc4180": False}, "Rfc4180", LOSS),
        ({"CsvNullValue": ""}, "CsvNullValue", LOSS),
        *[({"CsvNullValue": token}, "CsvNullValue", COST) for token in ("NULL", "null", "n/a", "\\N", "-", "missing")],
        ({"UseCsvNoSupValue": False}, "UseCsvNoSupValue", NOTE),
        ({"AddColumnName": False}, "AddColumnName", COST),
        ({"IncludeOpForFullLoad": False}, "IncludeOpForFullLoad", NOTE),
        ({"CdcMaxBatchInterval": 600}, "CdcMaxBatchInterval", COST),
        ({"CdcMaxBatchInterval": 2}, "CdcMaxBatchInterval", NOTE),
        ({"CdcMinFileSize": 32}, "CdcMinFileSize", COST),
        ({"CdcMinFileSize": 512_000}, "CdcMinFileSize", COST),
        ({"MaxFileSize": 1_048_576}, "MaxFileSize", NOTE),
        ({"DataFormat": "parquet", "ParquetTimestampInMillisecond": True}, "ParquetTimestampInMillisecond", LOSS),
    ],
)
def test_a_setting_that_hurts_is_found_alone(settings, setting, severity):
    assert found({**SOUND, **settings}) == {setting: severity}


def test_partial_logs_depend_on_the_source():
    off = {**SOUND, "UseCsvNoSupValue": False}
    assert found(off, source="oracle") == {"UseCsvNoSupValue": LOSS}
    assert found(off, source="aurora-postgresql") == {}


def test_costs_are_told_in_seconds_and_files():
    def effects(**settings):
        return [f.effect for f in lint({"S3Settings": {**SOUND, **settings}}, RULES)]

    assert effects(CdcMaxBatchInterval=600) == [
        "a change waits up to 600 s, 300 s on average, before its file is written"
    ]
    assert effects(CdcMaxBatchInterval=2) == ["up to 1,800 change files per table and hour"]
    assert effects(CdcMinFileSize=100) == ["a busy table gets 10,000 files for each GB of changes"]


def test_rules_that_are_missing_or_hurt_are_found():
    assert found(rules=Mappings()) == {"add-before-image-columns": LOSS, "add-column": COST}

    def with_rule(**more):
        return Mappings((*RULES.rules, {"rule-type": "transformation", **more}))

    assert found(rules=with_rule(**rule("remove-column", "column", column="v"))) == {"remove-column": NOTE}
    assert found(rules=with_rule(**rule("remove-column", "column", column="id"))) == {"remove-column": LOSS}
    soft = {"rule-action": "add-column", "value": "gone", "expression": "operation_indicator('D', 'U', 'I')"}
    assert found(rules=with_rule(**soft)) == {"operation_indicator": LOSS}
    elsewhere = {"rule-type": "selection", **rule("include", table="u")}
    assert found(rules=Mappings((*RULES.rules, elsewhere))) == {"selection": LOSS}


@pytest.mark.parametrize(
    ("task", "findings"),
    [
        ({"TargetMetadata": {"BatchApplyEnabled": True}}, {"BatchApplyEnabled": LOSS, "LobMaxSize": LOSS}),
        ({"TargetMetadata": {"SupportLobs": False}}, {"SupportLobs": LOSS}),
        ({"TargetMetadata": {"SupportLobs": True, "FullLobMode": True}}, {"FullLobMode": LOSS}),
        ({"TargetMetadata": {"LimitedSizeLobMode": True, "LobMaxSize": 64}}, {"LobMaxSize": LOSS}),
        ({"FullLoadSettings": {"TargetTablePrepMode": "DO_NOTHING"}}, {"TargetTablePrepMode": LOSS}),
        ({"FullLoadSettings": {"TargetTablePrepMode": "DROP_AND_CREATE"}}, {}),
        ({"ErrorBehavior": {"DataErrorPolicy": "LOG_ERROR"}}, {"DataErrorPolicy": LOSS}),
        ({"ChangeProcessingDdlHandlingPolicy": {"HandleSourceTableTruncated": True}}, {"HandleSourceTableTruncated": NOTE}),
        ({"BeforeImageSettings": {"EnableBeforeImage": True}, "ErrorBehavior": None}, {"BeforeImageSettings": NOTE}),
    ],
)  # fmt: skip
def test_task_settings_that_hurt_are_found(task, findings):
    with_lob = spec_of("public.t", "id INT8", "text NCLOB")
    assert found(spec=with_lob, task=task) == findings


def test_tables_that_dms_gave_up_or_does_not_know_are_found():
    name = "table statistics: public.t"
    assert found(statistics={"public.t": TableStatistics("Table completed")}) == {}
    for statistics in ({}, {"public.t": TableStatistics("Table error")}, {"public.t": TableStatistics("Full load")},
                       {"public.t": TableStatistics("Table completed", full_load_errors=2)}):  # fmt: skip
        assert found(statistics=statistics) == {name: LOSS}


# --- the setup flow


def test_setup_shows_what_hurts_and_what_the_files_show(tmp_path):
    world = World(tmp_path, "w", {}).table("t").load("t", (1, "a")).changes("t", I(2, "b"))
    task = TASK | {"TableMappings": json.dumps(world.rules)}
    (tmp_path / "task.json").write_text(json.dumps({"ReplicationTasks": [task]}))
    (tmp_path / "statistics.json").write_text(json.dumps(STATISTICS))
    rows = setup.check_source(world.book(SetupSettings, mappings="task.json", statistics="statistics.json"))
    kinds_of = {(r["setting"], r["kind"]) for r in rows}
    assert {("BatchApplyEnabled", LOSS), ("CsvNullValue", LOSS), ("IncludeOpForFullLoad", NOTE)} <= kinds_of
    assert {("CsvDelimiter", "confirmed"), ("TimestampColumnName", "confirmed"), ("CdcHasOp", "confirmed")} <= kinds_of
    assert ("$AR_H_CHANGE_SEQ", "proposed") not in kinds_of, "no row of these files has one"
    (delimiter,) = [r for r in rows if r["setting"] == "CsvDelimiter"]
    assert (delimiter["value"], delimiter["files"]) == (",", 2)
    assert len({tuple(r) for r in rows}) == 1, "one grid"


def test_setup_refuses_what_a_file_contradicts(tmp_path):
    world = World(tmp_path, "w", {}).table("t").changes("t", I(2, "b"))
    world.s3["AddColumnName"] = True
    with pytest.raises(EndpointError, match="AddColumnName is true, but .*20240101-100000000.csv: first line is data"):
        setup.check_source(world.book(SetupSettings))
