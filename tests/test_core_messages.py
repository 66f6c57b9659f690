"""DMS's JSON messages become changes with every digit that they have; no Spark."""

import json
import random
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.core.bad_rows import COMMIT_TIME, FIELDS, KEY, OP
from frazil_old.core.messages import (
    MessageNames,
    columns_of,
    gather,
    parse_message,
    parse_unusual,
    seconds_of,
    type_messages,
    with_bytes,
)
from helpers import spec_of, type_parsed

SPEC = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(99)", "n NUMERIC(38,10)", "at DATETIME", "w REAL8"))
NAMES = MessageNames({n: n for n in SPEC.names}, {"id": "BI_id"}, {"v": ["old_v"]})


def message(
    operation="insert", old=None, committed="2024-01-01T00:00:00.123456Z", spread="schema-table", **data
) -> str:
    metadata = {
        "timestamp": "2024-01-01T00:00:01.000000Z", "record-type": "data", "operation": operation, "partition-key-type": spread,
        "schema-name": "public", "table-name": "t", "commit-timestamp": committed,
    }  # fmt: skip
    return json.dumps({"data": data, **({"before-image": old} if old is not None else {}), "metadata": metadata})


def typed(*texts, partitions=1):
    return type_parsed([parse_message(t) for t in texts], np.arange(100, 100 + len(texts)), SPEC, NAMES, partitions)


def test_a_message_says_which_table_it_is_of():
    m = parse_message(message(id=1).encode())
    assert (m.kind, m.operation, m.schema, m.table, m.data) == ("data", "insert", "public", "t", {"id": 1})


def test_numbers_keep_all_their_digits():
    digits = "1" * 27 + ".0123456789"
    text = message(id=1).replace('"id": 1', f'"id": 9223372036854775807, "n": {digits}, "w": 5, "v": 12.50')
    changes = typed(text)
    assert not changes.bad
    row = changes.rows.to_pylist()[0]
    assert (row["new_0"], row["new_1"], row["new_2"], row["new_4"]) == (2**63 - 1, "12.50", Decimal(digits), 5.0)


def test_numbers_inside_of_a_json_value_stay_numbers_with_all_their_digits():
    value = '{"a": 1.50, "b": [2, "x", true, null, {"c": -0.0, "d": "\\u00e9 \\"1\\""}], "e": 12345678901234567890123}'
    text = message(id=1, v="?").replace('"?"', value)
    for one in (text, text + " x"):  # what follows a message is read another way
        assert typed(one).rows.to_pylist()[0]["new_1"] == value
        ((key, rows),) = gather([one.encode()], "before-image").items()
        assert columns_of(key, rows, pa.array([0]))["data.v"].to_pylist() == [value]


@pytest.mark.parametrize("fraction", ["", ".9", ".915241", ".915241000", ".915241000000000"])
def test_moments_are_exact_whatever_zeros_follow(fraction):
    at = f"2022-09-01T18:21:36{fraction}Z"
    changes = typed(message(id=1, at=at, committed=at))
    assert not changes.bad
    micros = int((fraction[1:] + "000000")[:6])
    assert changes.rows["new_3"][0].as_py() == datetime(2022, 9, 1, 18, 21, 36, micros)
    assert changes.rows["commit_ts"][0].as_py().replace(tzinfo=None) == datetime(2022, 9, 1, 18, 21, 36, micros)


def test_a_time_that_is_kept_as_text_has_the_form_of_files():
    told = spec_of("public.t", "id INT8", "v WSTRING(99)", "n NUMERIC(38,10)", "at DATETIME", "w REAL8")
    told["columns"][3]["lake"] = "string"
    texts = [message(id=1, at=at) for at in ("2022-09-01T18:21:36.9152411Z", "2022-09-01T18:21:36", "TZ", "Z")]
    changes = type_parsed([parse_message(t) for t in texts], np.arange(4), parse_spec(told), NAMES)
    assert changes.rows["new_3"].to_pylist() == ["2022-09-01 18:21:36.9152411", "2022-09-01T18:21:36", " ", ""]


def test_integers_in_other_forms_are_read_and_parts_of_one_are_not():
    changes = typed(
        *(message(id=1).replace('"id": 1', f'"id": {n}') for n in ("12.0", "1e3", '"7"', "1.5", "1e-1", "true"))
    )
    assert changes.rows["new_0"].to_pylist() == [12, 1000, 7]
    assert [(b.number, b.column) for b in changes.bad] == [(103, "id"), (104, "id"), (105, "id")]


def test_what_is_no_message_is_a_bad_row_with_its_place():
    whole = message(id=2)
    changes = typed(
        message(id=1), whole[:40], "", "{}", whole + whole, '{"data": {"id": 1' + whole[whole.index(', "metadata"') :]
    )
    assert changes.rows["number"].to_pylist() == [100]
    assert [(b.number, b.column) for b in changes.bad] == [(n, FIELDS) for n in range(101, 106)]


def test_a_broken_row_still_says_whose_it_is():
    whole = message(id=2)
    m = parse_message('{"data": {"id": "x' + whole[whole.index(', "metadata"') :])
    assert (m.schema, m.table, bool(m.fault)) == ("public", "t", True)


def test_each_kind_of_fault_is_named():
    changes = typed(
        message(id=None), message("truncate", id=1), message(id=1, committed="2024-01-01 00:00:00"), message(id=1, n="abc"),
        message(id=1, v="\ud83d"), message(id=1, v="😀"), message(id=1, at="2024-01-01T00:00:00+02:00"),
    )  # fmt: skip
    assert [b.column for b in changes.bad] == [KEY, OP, COMMIT_TIME, "n", "v", "at"]
    assert changes.rows["new_1"].to_pylist() == ["😀"]


def test_old_keys_come_from_the_before_image_or_from_a_column_of_their_own():
    changes = typed(
        message("update", {"id": 7}, id=8), message("update", {}, id=8, BI_id=6), message("delete", {"id": 5}, id=8)
    )
    assert changes.rows["old_0"].to_pylist() == [7, 6, None]


def test_a_former_name_of_a_column_is_read():
    assert typed(message(id=1, old_v="x"), message(id=2, v="y", old_v="x")).rows["new_1"].to_pylist() == ["x", "y"]


def test_an_order_that_is_lost_makes_a_row_bad():
    moved = message("update", {"id": 1}, id=2, spread="primary-key")
    assert (
        not typed(moved).bad and not typed(message("update", {"id": 2}, id=2, spread="primary-key"), partitions=3).bad
    )
    assert typed(moved, message(id=1, spread="transaction-id"), partitions=3).rows.num_rows == 0


def test_what_the_quarantine_keeps_of_a_bad_message_is_known_but_for_its_bytes():
    changes = typed(
        message("update", {"id": 7}, id=8, n="x"), message(id=1, at="2024-13-01T00:00:00Z"), message(id=1, committed="2024"),
        message("update", {"id": "y"}, id=3), message("truncate", id=None), message(id=1)[:-9],
    )  # fmt: skip
    told = [(b.place, b.reason, b.kept.op, b.kept.key, b.kept.old_key, b.kept.misfit) for b in changes.bad]
    assert told == [
        ("100", "column 'n': 'x' does not fit NUMERIC(38,10) (decimal(38,10) in the lake)", "U", ("8",), ("7",), False),
        ("101", "column 'at': '2024-13-01T00:00:00Z' does not fit DATETIME (timestamp_ntz in the lake)", "I", ("1",), (None,), False),
        ("102", "commit timestamp '2024' is not yyyy-MM-ddTHH:mm:ss.SSSSSSZ", "I", ("1",), (None,), False),
        ("103", "old value of column 'id': 'y' does not fit INT8 (bigint in the lake)", "U", ("3",), ("y",), False),
        ("104", "unknown operation 'truncate', none of I, U, D or their OpValues", "truncate", (None,), (None,), False),
        ("105", "not JSON as DMS writes it", None, (None,), (None,), True),
    ]  # fmt: skip
    assert [b.kept.commit_ts for b in changes.bad[:3]] == ["2024-01-01 00:00:00.123456"] * 2 + [None]
    assert {b.kept.built for b in changes.bad[:5]} == {"2024-01-01T00:00:01.000000Z"}
    assert all(b.kept.has_key != b.kept.misfit for b in changes.bad)
    shown = with_bytes(changes.bad[5], b'{"data": \xff' + b"x" * 999, SPEC)
    assert shown.reason.startswith('not JSON as DMS writes it: {"data": \ufffdxxx') and len(shown.reason) == 300
    assert len(shown.kept.raw) == 1009
    hidden = replace(SPEC, columns=(SPEC.columns[0], replace(SPEC.columns[1], mask="sha256"), *SPEC.columns[2:]))
    assert "masked or left out" in with_bytes(changes.bad[5], b"secret", hidden).reason


def test_messages_of_another_table_of_this_name_are_left_out_and_those_that_tell_none_are_bad():
    names = replace(NAMES, origin={"src": "mine"})
    texts = [
        message(id=1, src="mine"),
        message(id=2, src="other"),
        message(id=3),
        message(id=4, src="mine", n="x"),
        "no JSON",
    ]
    changes = type_parsed([parse_message(t) for t in texts], np.arange(5), SPEC, names)
    assert changes.rows["new_0"].to_pylist() == [1]
    assert [(b.number, b.reason) for b in changes.bad][::2] == [
        (2, "no value in src, which names its table"), (4, "not JSON as DMS writes it")
    ]  # fmt: skip
    assert changes.bad[1].column == "n"


def test_a_column_that_a_rule_adds_has_its_new_value_in_an_old_row():
    spec = parse_spec(spec_of("public.t", "id INT8", "src WSTRING(9)", key=("id", "src")))
    names = MessageNames({n: n for n in spec.names}, added=frozenset({"src"}))
    texts = [message("update", {"id": 7}, id=8, src="a"), message("update", id=8, src="a"), message(id=9, src="a")]
    changes = type_parsed([parse_message(t) for t in texts], np.arange(3), spec, names)
    assert not changes.bad and changes.rows["old_1"].to_pylist() == ["a", None, None]


def test_names_that_differ_in_upper_and_lower_case_only_are_other_names():
    spec = parse_spec(spec_of("public.t", "id INT8", "v WSTRING(9)", "other WSTRING(9)"))
    names = MessageNames({"id": "id", "v": "v", "other": "V"})
    changes = type_parsed([parse_message(message(id=1, v="a", V="b"))], np.arange(1), spec, names)
    assert [changes.rows[f"new_{i}"][0].as_py() for i in range(3)] == [1, "a", "b"]


def test_a_mutated_message_is_read_right_or_is_bad():
    """Each mutant is either the same row as its JSON says, or a bad row; none is lost."""
    r, read = random.Random(3), json.JSONDecoder(parse_float=Decimal).raw_decode
    source = message("update", {"id": 1}, id=12, v='say "hi"\n', n="1.50", at="2024-01-01T00:00:00Z", w=0.5)
    texts = []
    for _ in range(1500):
        at = r.randrange(len(source))
        texts.append(
            source[:at] + r.choice(["", '"', "{", "}", "9", "e", ".", "\\", ",", "x"]) + source[at + r.randrange(2) :]
        )
    for text in texts:
        changes = typed(text)
        assert changes.rows.num_rows + len(changes.bad) == 1, text
        if changes.rows.num_rows:
            said = read(text)[0]["data"]  # what stands after a whole message changes nothing
            row = changes.rows.to_pylist()[0]
            assert row["new_0"] == Decimal(said["id"]), text
            assert row["new_1"] == said.get("v"), text
            assert row["new_2"] == (Decimal(said["n"]) if said.get("n") is not None else None), text


# --- many messages as columns

ODD = [
    None, b"", b"null", b"[]", b"7", b'"x"', b"{}", b"\xff", b"\xef\xbb\xbf{}", b"{" * 5000, b'{"metadata": {}}', b'{"metadata": []}',
    b'{"metadata": {"record-type": "data"}}', b'{"data": null, "metadata": {"record-type": "data", "operation": "insert"}}',
    b'{"data": [], "metadata": {"record-type": "data", "operation": 5, "table-name": {"a": [1]}}}',
]  # fmt: skip
VALUES = [
    "null", "true", "false", "0", "-0.0", "1", "-5", "1.50", "1e3", "1E400", "1e-400", "9" * 25, "9" * 5000, "0." + "1" * 400, "NaN", "-Infinity",
    '""', '"x"', '"7"', '"\\u0000"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00x"', '"\\ud83d\\u0041"', '"\u00e9"', '"\U0001f600"', '"\ufffd"', "[1]", '{"a": 1.5}',
    '"2024-01-01T00:00:00Z"', '"2024-01-01T00:00:00.123456789Z"', '"2024-01-01 00:00:00"', '"Z"', '"ZZ"', '"00ff"',
]  # fmt: skip


def _odd_message(r: random.Random) -> bytes | None:
    if r.random() < 0.1:
        return r.choice(ODD)
    names = r.sample(["id", "v", "n", "at", "w", "old_v", "BI_id", "new", "\u00f6"], r.randint(1, 8))
    data = ", ".join(f'"{n}": {"1" if n == "id" and r.random() < 0.8 else r.choice(VALUES)}' for n in names)
    old = f', "before-image": {{"id": {r.choice(VALUES)}}}' if r.random() < 0.3 else ""
    about = {
        "record-type": r.choice(["data"] * 9 + ["control", None, 5]), "operation": r.choice(["insert", "update", "delete", "load", "truncate", None]),
        "schema-name": "p", "table-name": r.choice(["t", "u", None]), "timestamp": r.choice(["2024-01-01T00:00:00Z", "soon", None]),
        "commit-timestamp": r.choice(["2024-01-01T00:00:00.5Z", "2024-01-01 00:00:00", "", None, "Z"]), "transaction-id": r.choice([1, None, "x"]),
        "partition-key-type": r.choice(["schema-table", "primary-key", "transaction-id", None]),
    }  # fmt: skip
    raw = f'{{"data": {{{data}}}{old}, "metadata": {json.dumps(about)}}}'.encode()
    at = r.randrange(len(raw))
    return r.choice([raw] * 6 + [
        raw[:at], raw[:at] + bytes([raw[at] ^ 1 << r.randrange(8)]) + raw[at + 1 :], raw + raw, raw + b" x", raw + b"\n", b"\x0b" + raw,
        raw[:at] + r.choice([b'"', b"{", b"\xff", b"\n", b"\\", b"\xed\xa0\xbd"]) + raw[at:],
    ])  # fmt: skip


def _outcome(changes) -> tuple[list, list]:
    rows = changes.rows.sort_by("number")
    return [str(row) for row in rows.to_pylist()], [(b.number, b.column) for b in changes.bad]  # NaN equals its text


@pytest.mark.parametrize("partitions", [1, 3])
def test_many_messages_as_columns_mean_what_each_means_alone(partitions):
    r = random.Random(partitions)
    values = [_odd_message(r) for _ in range(500)]
    alone = [parse_unusual(value, "before-image") for value in values]
    found = gather(values, "before-image")
    assert sorted(row[0] for rows in found.values() for row in rows) == list(range(len(values)))
    for key, rows in found.items():
        places = [row[0] for row in rows]
        for name in ("kind", "operation", "schema", "table", "spread"):
            assert {getattr(alone[i], name) for i in places} == {getattr(key, name)}, key
        assert {(alone[i].fault or None, tuple(alone[i].data), tuple(alone[i].old)) for i in places} == {key[5:]}
        columns = columns_of(key, rows, pa.array(places))
        one_by_one = type_parsed([alone[i] for i in places], np.array(places), SPEC, NAMES, partitions)
        assert _outcome(type_messages(columns, SPEC, NAMES, partitions)) == _outcome(one_by_one), key
    assert [parse_message(v).fault for v in values] == [m.fault for m in alone]
    assert len(found) > 100 and sum(not m.fault for m in alone) > 250


def test_when_dms_built_messages_is_known_to_the_microsecond():
    times = ["2024-01-01T00:00:00.000001Z", None, "2024-01-01T00:00:00+02:00"]
    assert seconds_of(pa.array(times)).tolist()[::2] == [1704067200.000001, 1704060000.0]
    mixed = seconds_of(pa.array([*times, "2024-01-01T00:00:00", "soon"]))
    assert (
        mixed[[0, 2, 3]].tolist() == [1704067200.000001, 1704060000.0, 1704067200.0] and np.isnan(mixed[[1, 4]]).all()
    )
