"""Messages by their tables, against Python's own JSON; what a control record says; what is none of DMS's."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from frazil.core.messages import OPERATIONS
from frazil.dms.message_tables import CONTROLS, NotOfDmsError, by_table, envelope
from unit.test_messages import GOOD, message

NAMES = ["t", "", 'a"b', "a{b}", "é", "metadata", "\\", "table-name"]
TEXTS = [
    '"}}"',
    r'"\",\"metadata\":{\"operation\":\"load\",\"schema-name\":\"z\",\"table-name\":\"z\"}}"',
    '{"operation":"insert","schema-name":"z","table-name":"z"}',
]
KEYS = ["a", "metadata", "schema-name", 'x,"metadata', "table-name", "operation"]


def random_message(dice: random.Random) -> bytes | None:
    if dice.random() < 0.05:
        return dice.choice([None, b"", b"null", b"{}", b"[1]", b'{"metadata":{}}', b'{"metadata":{"operation":"insert"}}', b"\xff", GOOD[:-9], b'{"data":{"x":' + GOOD + b"}}"])  # fmt: skip
    about = {"timestamp": "2024", "operation": dice.choice([*OPERATIONS, *OPERATIONS, *CONTROLS, "x"])}
    about |= {"schema-name": dice.choice(NAMES), "table-name": dice.choice(NAMES)}
    about |= {"stream-position": "0"} if dice.random() < 0.3 else {}
    about = dict(dice.choice([[*about.items()], sorted(about.items()), dice.sample([*about.items()], len(about))]))
    row = {dice.choice(KEYS): json.loads(dice.choice(TEXTS)) for _ in range(2)}
    parts = {"data": row, "before-image": row, dice.choice(["a", 'x"metadata', 'x,"metadata']): json.loads(TEXTS[2]), "metadata": about}  # fmt: skip
    parts = dict(dice.sample([*parts.items()], 4)) if dice.random() < 0.3 else parts
    text = json.dumps(parts, indent=dice.choice([None, "\t"]), ensure_ascii=dice.random() < 0.5)
    return (text + dice.choice(["", "\n"])).encode()


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_of_the_table_that_python_sees(seed):
    dice = random.Random(seed)
    messages = [random_message(dice) for _ in range(300)]
    right: dict = {}
    for place, value in enumerate(messages):
        try:
            about = json.loads(value)["metadata"]
            name = (about["schema-name"], about["table-name"]) if about["operation"] in OPERATIONS else None
        except (TypeError, KeyError, ValueError):
            name = None
        right.setdefault(name, []).append(place)
    found, others = by_table(pa.array([b"x", *messages], pa.binary())[1:])
    assert {name: places.tolist() for name, places in found.items()} | {None: others.tolist()} == right


def test_rows_that_are_broken_or_odd_are_still_of_their_table_and_nothing_is_of_none():
    half = message({"id": "1"}, **{"table-name": "\udc00"})
    some = [message('{"id":"2}'), message('{"id":NaN}'), message(r'{"t":"\ud800"}'), GOOD.strip() + GOOD, half, GOOD + b"x"]  # fmt: skip
    found, others = by_table(pa.array(some, pa.binary()))
    assert {n: p.tolist() for n, p in found.items()} == {("s", "t"): [0, 1, 2, 3, 5]}
    assert others.tolist() == [4]
    hidden = pa.Array.from_buffers(pa.binary(), 1, [pa.py_buffer(b"\0"), *pa.array([GOOD]).buffers()[1:]])
    for nothing in (hidden, *(pa.array(v, pa.binary()) for v in ([], [None, None], [b""]))):
        assert by_table(nothing)[0] == {}


def test_usual_messages_are_sorted_without_a_look_at_each(monkeypatch):
    monkeypatch.setattr("frazil.dms.message_tables.envelope", None)
    one = json.loads(message({"t": '"}{"'}, **{"stream-position": "x"}))
    some = [json.dumps(one, indent=indent).encode() for indent in (None, "\t")]
    assert {n: p.tolist() for n, p in by_table(pa.array(some, pa.binary()))[0].items()} == {("s", "t"): [0, 1]}


def test_an_envelope_has_what_a_control_record_says():
    about = {"operation": "add-column", "schema-name": "s", "table-name": "t", "timestamp": "2024"}
    found = envelope(json.dumps({"control": {"table-def": {"columns": {}}}, "metadata": about}).encode())
    assert (found.operation, found.schema, found.table, found.built, found.control) == ("add-column", "s", "t", "2024", {"table-def": {"columns": {}}})  # fmt: skip
    assert envelope(message({"t": r'"\ud800"'}, **{"transaction-id": 2**70})).transaction == 2**70
    words = (None, b"", b"secret", b'{"secret":1}', b'{"metadata":"secret"}', message({}, "secret"), message({"t": '"secret"'}, **{"schema-name": 5}))  # fmt: skip
    for value in words:
        with pytest.raises(NotOfDmsError) as error:
            envelope(value)
        assert "secret" not in str(error.value)
