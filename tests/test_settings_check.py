"""What files show of the settings they were written with, and which settings a file proves wrong."""

import gzip
import os
import random
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from frazil_old.config.spec import load_specs, parse_spec
from frazil_old.dms.endpoint import DatePartition, Endpoint, SourceTable, read_endpoint
from frazil_old.dms.files_against_settings import check_files, evidence
from frazil_old.dms.listing import DmsObject, TableObjects, list_table
from frazil_old.dms.mappings import Mappings, read_mappings
from frazil_old.dms.source_errors import EndpointError
from helpers import WITH_BEFORE_IMAGE_AND_SEQUENCE, csv_field, spec_of

SPEC = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(99)", "n INT4"))
BOTH = Mappings(tuple(WITH_BEFORE_IMAGE_AND_SEQUENCE["rules"]))
T, SEQ = "2024-01-01 09:59:00.000000", "2024010109590000" + "0" * 19
LOAD, CHANGES = "LOAD00000001.csv", "20240101-100000000.csv"
STATED = Endpoint(null_value="", timestamp_column="ts")


class Files:
    """The files of a table, and what is found in them."""

    def __init__(self, table="t", **files):
        self.folder = Path(tempfile.mkdtemp()) / "public" / table
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def objects(self) -> TableObjects:
        paths = sorted(p for p in self.folder.rglob("*") if p.is_file())
        files = [DmsObject(p.name, str(p), p.stat().st_size, "e") for p in paths]
        return TableObjects(*(tuple(f for f in files if ("LOAD" in f.name) == load) for load in (True, False)))

    def found(self, spec=SPEC, mappings=None, endpoint=STATED) -> dict:
        """Return {setting: (proposed, certain)}; a setting of which the files differ has all of it."""
        answers = defaultdict(set)
        for e in evidence(self.objects(), SourceTable(spec, endpoint, mappings or Mappings())):
            answers[e.setting].add((e.proposed, e.certain))
        return {s: next(iter(a)) if len(a) == 1 else a for s, a in answers.items()}

    def wrong(self, endpoint, mappings=None, spec=SPEC) -> list:
        return wrong(evidence(self.objects(), SourceTable(spec, endpoint, mappings or Mappings())))


def wrong(found) -> list:
    return sorted({e.setting for e in found if e.contradicts})


def changes(*lines: str, end: str = "\n", name: str = CHANGES, table: str = "t") -> Files:
    return Files(table, **{name: "".join(line + end for line in lines)})


PLAIN = changes(f"I,{T},1,a,5", f"D,{T},1,,")


def test_a_plain_change_file_shows_its_form():
    assert PLAIN.found() == {
        "DataFormat": ("csv", True), "CompressionType": ("none", True), "CsvDelimiter": (",", False),
        "CsvRowDelimiter": ("\n", True), "AddColumnName": ("false", True), "CdcHasOp": ("true", True),
        "TimestampColumnName": ("any name", True), "CsvNullValue": ("", False),
    }  # fmt: skip
    assert PLAIN.wrong(STATED) == []


def test_no_files_show_nothing():
    assert Files().found() == {}
    assert changes().found() == {}


def test_compression_is_seen_by_its_magic_and_looked_through():
    files = Files(**{CHANGES + ".gz": gzip.compress(f"I,{T},1,a,5\nU,{T},1,b,6\n".encode())})
    found = files.found()
    assert (found["CompressionType"], found["CdcHasOp"]) == (("gzip", True), ("true", True))
    assert files.wrong(STATED) == ["CompressionType"]
    assert files.wrong(Endpoint(null_value="", timestamp_column="ts", compression="gzip")) == []


def test_a_head_of_a_long_compressed_file_is_enough():
    text = "".join(f"I,{T},{i},{os.urandom(99).hex()},{i}\n" for i in range(9000))
    files = Files(**{CHANGES + ".gz": gzip.compress(text.encode())})
    assert files.found()["CdcHasOp"] == ("true", True)


def test_parquet_is_seen_by_its_magic_whatever_its_name():
    files = changes("PAR1\x15\x04")
    assert files.found() == {"DataFormat": ("parquet", True)}
    assert files.wrong(STATED) == ["DataFormat"]
    assert files.wrong(Endpoint(data_format="parquet", compression="gzip")) == []
    assert PLAIN.wrong(Endpoint(data_format="parquet")) == ["DataFormat", "TimestampColumnName"]


def test_a_row_that_the_head_cuts_is_left_out():
    files = changes(*[f"I,{T},{i},{'ä' * 40},5" for i in range(2000)])
    assert files.objects().changes[0].size > 65536
    assert files.found()["CdcHasOp"] == ("true", True)


@pytest.mark.parametrize("delimiter", [";", "|", "\t"])
def test_another_delimiter_is_proposed_and_contradicts(delimiter):
    files = changes(*[line.replace(",", delimiter) for line in (f"I,{T},1,a,5", f"U,{T},1,b,6")])
    assert files.found()["CsvDelimiter"] == (delimiter, True)
    assert "CsvDelimiter" in files.wrong(STATED)
    assert files.wrong(Endpoint(null_value="", timestamp_column="ts", delimiter=delimiter)) == []


def test_a_delimiter_in_the_text_does_not_mislead():
    assert changes(f"I,{T},1,a;b;c;d,5", f"U,{T},1,e;f;g;h,6").wrong(STATED) == []


def test_a_delimiter_of_several_characters_is_read_as_stated():
    files = changes(*[line.replace(",", "||") for line in (f"I,{T},1,a,5", f"U,{T},1,b|,6")])
    endpoint = Endpoint(null_value="", timestamp_column="ts", delimiter="||")
    assert files.found(endpoint=endpoint)["CsvDelimiter"] == ("||", False)
    assert files.wrong(endpoint) == []


@pytest.mark.parametrize(("end", "stated"), [("\r\n", "\n"), ("\n", "\r\n"), ("\r", "\n"), ("\n", "@@")])
def test_another_row_delimiter_contradicts(end, stated):
    endpoint = Endpoint(null_value="", timestamp_column="ts", row_delimiter=stated)
    files = changes(f"I,{T},1,a,5", f"U,{T},1,b,6", end=end)
    assert files.wrong(endpoint) == ["CsvRowDelimiter"]


def test_a_row_delimiter_of_its_own_is_read_as_stated():
    endpoint = Endpoint(null_value="", timestamp_column="ts", row_delimiter="@@")
    assert changes(f"I,{T},1,a\nb,5", f"U,{T},1,b,6", end="@@").wrong(endpoint) == []


# --- header


HEADED = changes("Op,ts,id,v,n", f"I,{T},1,a,5")


def test_a_header_is_seen_and_names_the_time():
    found = HEADED.found(endpoint=Endpoint(null_value=""))
    assert (found["AddColumnName"], found["TimestampColumnName"]) == (("true", True), ("ts", True))


def test_a_header_that_is_stated_must_be_there_and_the_other_way_round():
    assert HEADED.wrong(STATED) == ["AddColumnName"]
    assert PLAIN.wrong(Endpoint(null_value="", timestamp_column="ts", header=True)) == ["AddColumnName"]


def test_a_header_in_another_case_is_still_one():
    assert changes("OP,TS,ID,V,N", f"I,{T},1,a,5").found()["AddColumnName"] == ("true", True)


def test_a_file_of_a_header_alone_is_no_trouble():
    assert changes("Op,ts,id,v,n").wrong(Endpoint(null_value="", timestamp_column="ts", header=True)) == []


def test_columns_that_a_header_lacks_contradict():
    endpoint = Endpoint(null_value="", timestamp_column="committed", header=True)
    assert HEADED.wrong(endpoint) == ["TimestampColumnName"]
    assert changes("ts,id,v,n", f"{T},1,a,5").wrong(Endpoint(null_value="", timestamp_column="ts", header=True)) == [
        "CdcHasOp"
    ]


def test_an_operation_column_of_another_name_is_proposed():
    files = changes("action,ts,id,v,n", f"INSERT,{T},1,a,5", f"DELETE,{T},1,,")
    endpoint = Endpoint(null_value="", timestamp_column="ts", header=True)
    assert files.found(endpoint=endpoint)["OpColumnName"] == ("action", False)
    words = {"INSERT": "I", "UPDATE": "U", "DELETE": "D"}
    stated = Endpoint(null_value="", timestamp_column="ts", header=True, op_column="action", op_values=words)
    assert files.wrong(stated) == []


def test_before_image_columns_are_proposed_from_a_header():
    files = changes("Op,ts,id,v,n,seq,old_id", f"I,{T},1,a,5,{SEQ},")
    found = files.found(endpoint=Endpoint(null_value="", timestamp_column="ts", header=True))
    assert found["add-before-image-columns"] == ("column-prefix old_", False)
    assert found["$AR_H_CHANGE_SEQ"] == ("seq", False)


# --- operation and time, without a header


def test_an_operation_in_load_files_that_is_not_stated_contradicts():
    files = Files(**{LOAD: f"I,{T},1,a,5\nI,{T},2,b,6\n"})
    assert files.wrong(STATED) == ["IncludeOpForFullLoad"]
    assert files.wrong(Endpoint(null_value="", timestamp_column="ts", op_in_load=True)) == []


def test_an_operation_that_is_stated_must_be_there():
    files = Files(**{LOAD: f"{T},1,a,5\n{T},2,b,6\n"})
    assert files.wrong(Endpoint(null_value="", timestamp_column="ts", op_in_load=True)) == ["IncludeOpForFullLoad"]
    no_op = changes("1,a,5", "2,b,6")
    assert no_op.wrong(Endpoint(null_value="")) == ["CdcHasOp"]
    assert no_op.wrong(Endpoint(null_value="", inserts_only=True)) == []


def test_a_first_column_of_one_letter_is_not_taken_for_an_operation():
    spec = parse_spec(spec_of("public.t", "kind WSTRING(1)", "id INT8", "v WSTRING(9)"))
    assert Files(**{LOAD: "I,1,a\nD,2,b\n"}).wrong(Endpoint(null_value=""), spec=spec) == []


def test_a_first_column_of_times_is_not_taken_for_the_commit_time():
    spec = parse_spec(spec_of("public.t", "at DATETIME", "id INT8"))
    assert Files(**{LOAD: f"{T},1\n{T},2\n"}).wrong(Endpoint(null_value=""), spec=spec) == []


def test_the_commit_time_must_be_there_if_stated_and_the_other_way_round():
    assert changes("I,1,a,5", "D,1,,").wrong(STATED) == ["TimestampColumnName"]
    assert PLAIN.wrong(Endpoint(null_value="")) == ["TimestampColumnName"]


def test_the_count_is_made_with_added_columns():
    files = changes(f"I,{T},1,a,5,{SEQ},", f"U,{T},2,a,5,{SEQ},1")
    found = files.found(mappings=BOTH)
    assert (found["CdcHasOp"], found["$AR_H_CHANGE_SEQ"]) == (("true", True), ("field 6", False))
    assert "columns" not in found
    assert files.found()["columns"] == ("5", False)


@pytest.mark.parametrize("masked", [False, True])
def test_evidence_is_short_and_shows_no_value_of_a_table_that_hides_some(masked):
    given = spec_of("public.t", "id INT8", "v WSTRING(9999)", "n INT4")
    if masked:
        given["columns"][1]["mask"] = "sha256"
    files = changes(f"I,{T},1,{'secret' * 999},5")
    told = [e.evidence for e in evidence(files.objects(), SourceTable(parse_spec(given), STATED, Mappings()))]
    assert any("first line is data: I, " in t for t in told) and max(map(len, told)) < 200
    assert any("secret" in t for t in told) == (not masked)


def test_a_header_with_another_name_of_the_commit_time_proposes_that_name():
    files = changes("Op,at,id,v,n", f"I,{T},1,a,5")
    stated = replace(STATED, header=True)
    assert files.found(endpoint=stated)["TimestampColumnName"] == ("at", True)
    assert files.wrong(stated) == ["TimestampColumnName"]


# --- values


@pytest.mark.parametrize("word", ["NULL", "null", "\\N"])
def test_a_word_for_null_in_a_column_of_numbers_is_certain(word):
    files = changes(f"I,{T},1,a,5", f"I,{T},2,b,{word}")
    assert files.found()["CsvNullValue"] == (word, True)
    assert files.wrong(STATED) == ["CsvNullValue"]
    assert files.wrong(Endpoint(null_value=word, timestamp_column="ts")) == []
    assert files.wrong(Endpoint(null_value="", no_sup_value=word, timestamp_column="ts")) == []


def test_words_in_texts_and_empty_fields_prove_nothing():
    assert "CsvNullValue" not in changes(f"I,{T},1,NULL,5").found()
    assert changes(f"I,{T},1,a,").wrong(Endpoint(null_value="NULL", timestamp_column="ts")) == []


def test_quotes_that_are_needed_contradict_their_absence():
    files = changes(f'I,{T},1,"a, b",5', f"I,{T},2,c,6")
    assert files.found()["Rfc4180"] == ("true", True)
    assert files.wrong(Endpoint(null_value="", timestamp_column="ts", rfc4180=False)) == ["Rfc4180"]


def test_a_lone_quote_contradicts_rfc_4180():
    files = changes(f"I,{T},1,a,5", f'I,{T},2,"6 inch,6', f"I,{T},3,c,7")
    assert files.found()["Rfc4180"] == ("false", True)
    assert files.wrong(STATED) == ["Rfc4180"]


# --- what lies where


def test_transaction_files_and_date_folders_are_told_by_their_place():
    assert changes("I,t,public,1", name="CDC_TXN-20240101100000000.csv").found()["PreserveTransactions"] == (
        "true",
        True,
    )
    for folder in ("2024/01/01", "2024/01/01/10", "2024-01-01", "2024_01", "01/2024/01", "01/01/2024", "20240101"):
        files = Files(**{f"{folder}/{CHANGES}": f"I,{T},1,a,5\n"})
        assert files.wrong(STATED) == ["DatePartitionEnabled"], folder
        assert files.wrong(replace(STATED, date_partition=DatePartition.of(folder))) == []
        assert files.wrong(replace(STATED, preserve_transactions=True)) == [], "they are from before it was on"


def test_folders_of_other_partitions_than_the_stated_ones_are_refused_with_the_setting():
    stated = replace(STATED, date_partition=DatePartition(True, "YYYYMMDD", "SLASH"))
    for folder, wrong in {
        "2024-01-01": ["DatePartitionDelimiter"],
        "2024/01": ["DatePartitionSequence"],
        "01012024": ["DatePartitionDelimiter", "DatePartitionSequence"],
        "2024/01/01": [],
        "": [],
        "p1": [],
    }.items():
        files = Files(**{f"{folder}/{CHANGES}".lstrip("/"): f"I,{T},1,a,5\n"})
        assert sorted(files.wrong(stated)) == wrong, folder
    other = Files(**{f"2024-01-01/{CHANGES}": f"I,{T},1,a,5\n"})
    with pytest.raises(
        EndpointError, match="Delimiter is 'SLASH', but .*is in 2024-01-01\n  cure: set Date.*Delimiter"
    ):
        check_files(other.objects(), SourceTable(SPEC, stated, Mappings()))


def test_a_table_that_is_named_like_a_date_lies_in_no_date_folder():
    spec = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(99)", "n INT4"))
    days = replace(spec, source="public.20240101")
    assert changes(f"I,{T},1,a,5", table="20240101").wrong(STATED, spec=days) == []


def test_files_of_all_tables_are_csv_whatever_is_stated():
    shared = changes("I,t,public,1", name="CDC_TXN-20240101100000000.csv")
    stated = Endpoint(null_value="", data_format="parquet", compression="gzip", preserve_transactions=True)
    assert shared.wrong(stated) == []


def test_only_the_first_and_the_last_file_of_a_kind_are_looked_into():
    rows = {f"2024010{i}-100000000.csv": f"I,{T},1,a,5\n" for i in range(1, 7)}
    odd = "Op,ts,id,v,n\n"
    assert Files(**rows, **{"20240103-110000000.csv": odd}).wrong(STATED) == []
    for name in ("20240101-090000000.csv", "20240106-110000000.csv"):
        assert Files(**rows, **{name: odd}).wrong(STATED) == ["AddColumnName"]


def test_a_refusal_names_setting_file_sight_and_cure():
    with pytest.raises(EndpointError) as e:
        check_files(HEADED.objects(), SourceTable(SPEC, STATED, Mappings()))
    assert str(e.value) == (
        f"AddColumnName is false, but {HEADED.folder}/20240101-100000000.csv: first line is column names: Op, ts, id, v\n"
        "  cure: set AddColumnName to true in the endpoint's JSON, as the task has it"
    )
    check_files(PLAIN.objects(), SourceTable(SPEC, STATED, Mappings()))


# --- any settings: what is written by them contradicts none of them

TRICKY = ["", None, "a", "I", "NULL", "a,b;c|d", 'a "quoted" word', '"', "two\nlines", "\r\n", " ", T, "1", "Op", SEQ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("null", ["", "NULL", "~null~"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("op", [True, False])
@pytest.mark.parametrize("time", ["ts", ""])
@pytest.mark.parametrize("rules", [Mappings(), BOTH])
def test_files_agree_with_the_settings_that_wrote_them(delimiter, null, header, op, time, rules):
    endpoint = Endpoint(null_value=null, delimiter=delimiter, header=header, op_in_load=op, timestamp_column=time)
    chance = random.Random(repr((delimiter, null, header, op, time)))
    added = [*rules.added(SPEC), *(rules.before_image(SPEC).names(SPEC).values() if rules.rules else ())]

    def text(is_load: bool, count: int) -> str:
        has_op = op or not is_load
        names = [*["Op"] * has_op, *[time] * bool(time), *SPEC.names, *added]
        rows = [names] if header else []
        for i in range(count):
            letter = "I" if is_load else chance.choice("IUD")
            more = [None if is_load else SEQ, chance.choice([None, i])][: len(added)]
            value = [i, *((None, None) if letter == "D" else (chance.choice(TRICKY), chance.choice([None, 7, -1])))]
            rows.append([*[letter] * has_op, *[T] * bool(time), *value, *more])
        return "".join(delimiter.join(csv_field(f, null, delimiter) for f in row) + "\n" for row in rows)

    for count in (1, 2, 40):
        files = Files(**{LOAD: text(True, count), CHANGES: text(False, count)})
        assert files.wrong(endpoint, rules) == []


# --- real files

NORTHWIND = os.environ.get("FRAZIL_NORTHWIND", "")
ROOT = Path(__file__).parent.parent
PARAMS = ROOT / "params"


@pytest.fixture(scope="module")
def northwind():
    if not NORTHWIND:
        pytest.skip("FRAZIL_NORTHWIND names no folder")
    specs, mappings = load_specs(PARAMS / "northwind"), read_mappings(PARAMS / "northwind.mappings.json")
    return specs.values(), mappings


def of_northwind(northwind, endpoint, mappings=None):
    specs, told = northwind
    for spec in specs:
        yield spec, evidence(list_table(Path(NORTHWIND), spec), SourceTable(spec, endpoint, mappings or told))


def test_real_files_are_as_their_settings_say(northwind):
    endpoint = read_endpoint(PARAMS / "northwind.endpoint.json")
    for spec, found in of_northwind(northwind, endpoint):
        assert wrong(found) == [], spec.source
        proposed = {(e.setting, e.proposed) for e in found}
        assert {
            ("DataFormat", "csv"), ("CompressionType", "none"), ("CsvDelimiter", ","), ("CsvRowDelimiter", "\n"),
            ("AddColumnName", "false"), ("IncludeOpForFullLoad", "true"), ("TimestampColumnName", "any name"),
        } <= proposed, spec.source  # fmt: skip
        assert "columns" not in {e.setting for e in found}
        assert ("CsvNullValue", "NULL") not in proposed


def test_the_real_sequence_is_found(northwind):
    endpoint = read_endpoint(PARAMS / "northwind.endpoint.json")
    orders = next(found for spec, found in of_northwind(northwind, endpoint) if spec.source == "public.orders")
    assert {e.proposed for e in orders if e.setting == "$AR_H_CHANGE_SEQ"} == {"field 17"}
    assert {e.proposed for e in orders if e.setting == "CsvNullValue"} == {""}


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"header": True}, "AddColumnName"), ({"op_in_load": False}, "IncludeOpForFullLoad"),
        ({"data_format": "parquet"}, "DataFormat"), ({"compression": "gzip"}, "CompressionType"),
        ({"timestamp_column": ""}, "TimestampColumnName"), ({"row_delimiter": "\r\n"}, "CsvRowDelimiter"),
    ],
)  # fmt: skip
def test_real_files_contradict_what_is_wrong_in_every_table(northwind, settings, setting):
    given = {"null_value": "", "op_in_load": True, "timestamp_column": "ts", **settings}
    endpoint = Endpoint(**given)
    for spec, found in of_northwind(northwind, endpoint):
        assert wrong(found) == [setting], spec.source
