"""JSON messages: both ways of reading a block against Python's own JSON, and each oddity that a block may have."""

from __future__ import annotations

import json
import math
import random
import struct
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from frazil.core.exact import typed
from frazil.core.messages import OPERATIONS, Reader

TYPES = {
    "id": pa.int64(), "n": pa.int32(), "d": pa.decimal128(38, 2), "wide": pa.decimal128(38, 38), "r": pa.float64(), "f": pa.float32(),
    "b": pa.bool_(), "t": pa.string(), "a.b": pa.string(), "day": pa.date32(), "at": pa.timestamp("us", "UTC"), "x": pa.binary(),
}  # fmt: skip
OLD = ("id", "d")
UUID = '"3e550e84-00e2-3e5a-1e99-3e5550e84000"'
USUAL = {
    "id": ["1", "-5", "9223372036854775807"], "n": ["0", "7"], "d": ["1.5", "-0.25", "1" + "0" * 35, "9007199254740993"], "wide": ["0.1", "0", "0." + "9" * 38],
    "r": ["0", "-0.0", "1.5e-05", "20.2", "5e-9", "1e-7", "9007199254740993"], "f": ["2.20000005", "0", "0.0e0", "1234567900"], "b": ["true", "false"], "t": ['"a"', '""', UUID, r'"\"x\":{1e99"', r'"\ud83d\ude00\u0000"', '"é"', r'"{\"id\":1e5}"'],
    "a.b": ['"3e5"', r'",\"metadata\":{\"table-name\":\"z\"}}"'], "day": ['"2024-02-29"'], "at": ['"2024-02-29T00:00:00Z"', '"2024-02-29T00:00:00.123456Z"'], "x": ['"0x0aff"'],
}  # fmt: skip
ODD = {
    "id": ["1.5", "9223372036854775808", "1e3", '"7"', '" 8"', "true", "-0"], "n": ["3000000000", "1.2e+18", "1.0"], "b": ["1", '"t"', "2"],
    "d": ["1.2e+18", "1e2", '"1.50"', "1.505", "1.500", "12345678901234567e1", "-9e15", "-9.1e15", "9" * 76, "9" * 38 + "e9", "0e-150", "NaN", "1e2000000000"],
    "wide": ["9" * 76, "1" + "0" * 70, "1e39", "0." + "1" * 39], "r": ["1e-400", "-1e-400", "NaN", "Infinity", "1e400", "0." + "0" * 330 + "1", "-0", "0e-400", "1e999"],
    "f": ["1e39", "1e-46", "0.00000000000000000000000000000000000001e-9", "0.000000000000000000000000000000000000001e-9", "1e-60", "1e38"], "t": ["5", "1.50", "1E5", "true", r'"\ud800"', r'"\udc00"', "123456789012345678901234567890"], "day": ["20240229"], "at": ['"2024-02-29T00:00:00.1234567Z"'],
}  # fmt: skip
ODD_CASES = [(name, value) for name, values in ODD.items() for value in values]
BAD = "no exact value"


def written(row: str | dict) -> str:
    return row if isinstance(row, str) else "{" + ",".join(f"{json.dumps(n)}:{v}" for n, v in row.items()) + "}"


def message(data: str | dict, operation: str = "insert", old: str | dict | None = None, **more) -> bytes:
    """Return a message with values as they are written."""
    about = {"timestamp": "2024-01-01T00:00:00.000001Z", "record-type": "data", "operation": operation, "schema-name": "s", "table-name": "t", "transaction-id": 7} | more  # fmt: skip
    before = "" if old is None else f'"before-image":{written(old)},'
    return f'{{"data":{written(data)},{before}"metadata":{json.dumps(about)}}}\n'.encode()


@cache
def judged(text: str | None, kind: pa.DataType) -> object:
    """Return the value of a text in a type of the lake, of numbers by plain Python."""
    if text is None or not (pa.types.is_decimal(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        found, misfit = typed(pa.array([text], pa.string()), kind)
        return found[0].as_py() if misfit is None else BAD
    try:
        number = Decimal(text)
        real = struct.unpack("f", struct.pack("f", float(text)))[0] if kind == pa.float32() else float(text)
    except (InvalidOperation, OverflowError):
        return BAD
    if pa.types.is_floating(kind):
        return BAD if number.is_finite() and (math.isinf(real) or (real == 0) != (number == 0)) else repr(real + 0.0)
    if not number.is_finite() or not (-99 <= number.adjusted() <= 40 or not number and number.adjusted() < 0):
        return BAD
    exact, scale = Fraction(number or 0), getattr(kind, "scale", 0)
    most = 10**38 if pa.types.is_decimal(kind) else 2 ** (kind.bit_width - 1)
    is_rounded = "e" in text.lower() and abs(number) > 2**53
    fits = -most <= exact * 10**scale < most and (exact * 10**scale).denominator == 1
    return exact if fits and not is_rounded else BAD


def wanted(value: bytes) -> list:
    """Return the values of a message as Python's own JSON reads it."""
    found = json.loads(value.decode("utf-8", "replace"), parse_float=str, parse_int=str, parse_constant=str)
    parts = (found["data"], TYPES), (found.get("before-image") or {}, OLD)
    texts = [(part.get(n), TYPES[n]) for part, names in parts for n in names]
    texts = [(str(v).lower() if isinstance(v, bool) else v, kind) for v, kind in texts]
    return [judged(v and v.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), kind) for v, kind in texts]


def fields(reader: Reader, messages: list, at_once: bool | None = None) -> list[pa.Array]:
    """Return the fields of messages, read at once or decoded one by one (None: as the reader decides)."""
    block = pa.array([b"", *messages], pa.binary())[1:]
    if at_once is None:
        return reader._parsed(block) or reader._decoded(block)[0]
    return reader._parsed(block) if at_once else reader._decoded(block)[0]


def values(found: list[pa.Array]) -> list[list]:
    """Return the typed values of fields."""
    columns = []
    for column, kind in zip(found[2:], [*TYPES.values(), *(TYPES[n] for n in OLD)], strict=True):
        column.validate(full=True)
        exact, misfit = typed(column, kind)
        as_wanted = (
            (lambda v: repr(v + 0.0))
            if pa.types.is_floating(kind)
            else Fraction
            if pa.types.is_decimal(kind)
            else lambda v: v
        )  # -0.0 is 0.0
        lost = misfit.to_pylist() if misfit else [False] * len(exact)
        shown = [v if v is None else as_wanted(v) for v in exact.to_pylist()]
        columns.append([BAD if bad else v for v, bad in zip(shown, lost, strict=True)])
    return [list(row) for row in zip(*columns, strict=True)]


def block(dice: random.Random, count: int = 30, **fixed: str) -> list[bytes]:
    """Return messages of usual values; some lack names, or have a null."""

    def row() -> dict:
        found = {n: "null" if dice.random() < 0.1 else dice.choice(USUAL[n]) for n in TYPES if dice.random() < 0.9}
        return dict(dice.sample([*found.items()], len(found)))

    olds = [None, "{}", "null", row()]
    return [message(row() | fixed, dice.choice([*OPERATIONS]), dice.choice(olds)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(12))
def test_a_usual_block_is_parsed_at_once_as_python_reads_it(seed):
    dice = random.Random(seed)
    messages = block(dice, dice.choice((1, 9, 200)))
    found = fields(Reader(TYPES, OLD), messages, at_once=True)
    assert values(found) == values(fields(Reader(TYPES, OLD), messages, at_once=False)) == [wanted(m) for m in messages]
    assert found[0].to_pylist() == [OPERATIONS[json.loads(m)["metadata"]["operation"]] for m in messages]


@pytest.mark.parametrize(("name", "odd"), ODD_CASES, ids=[f"{n}-{v[:25]}" for n, v in ODD_CASES])
def test_an_odd_value_is_exact_or_refused_and_its_neighbours_are_as_ever(name, odd):
    dice = random.Random(odd)
    for old, count in ((None, 80), ({name: odd}, 3)):
        messages = block(dice, count, **{name: dice.choice(USUAL[name])})
        messages.insert(dice.choice((0, 1)), message({name: odd}, "update", old))
        for at_once in (None, False):
            assert values(fields(Reader(TYPES, OLD), messages, at_once)) == [wanted(m) for m in messages]


def random_number(dice: random.Random) -> str:
    def digits(*most: int) -> str:
        return "".join(dice.choices("0000123456789", k=dice.randint(1, dice.choice(most))))

    exponent = dice.choice("eE") + dice.choice(["", "+", "-"]) + str(dice.randint(0, dice.choice((4, 30, 60)))).zfill(dice.randint(1, 3))  # fmt: skip
    return dice.choice(["", "-"]) + str(int(digits(2, 17, 45))) + dice.choice(["", f".{digits(3, 50)}"]) + dice.choice(["", "", exponent])  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_random_numbers_are_exact_or_refused(seed):
    dice = random.Random(seed)
    for number in (random_number(dice) for _ in range(100)):
        messages = [message({name: number}, "update", {name: number}) for name in ("id", "d", "wide", "r", "f")]
        assert [values(fields(Reader(TYPES, OLD), [m]))[0] for m in messages] == [wanted(m) for m in messages], number


@pytest.mark.parametrize("odd", ["1e-2000000000", '"1e-2000000000"', "-1.5E-0200000000", '"1e-150"', "9" * 76])
def test_numbers_at_which_arrow_errs_or_ends_the_process_stay_texts(odd):
    usual = [message({"d": "1.5"})] * 70
    found = fields(Reader(TYPES, OLD), [*usual, message({"d": odd}), *usual])
    assert found[2 + list(TYPES).index("d")][70].as_py() == odd.strip('"')


def test_numbers_and_booleans_that_are_texts_are_parsed_at_once():
    one = {"id": '"1"', "n": '"2.0"', "d": '"1.50"', "r": '"1e-9"', "f": '"0.1"', "b": '"true"'}
    found = fields(Reader(TYPES, OLD), [message(one)] * 3, at_once=True)
    assert values(found)[0][:7] == [1, 2, Fraction(3, 2), None, repr(1e-9), repr(float(np.float32("0.1"))), True]
    reader, some = Reader(TYPES, OLD), [message({"id": "1"}, later=i) for i in range(9)]
    assert [bool(fields(reader, some, at_once)) for at_once in (True, False, True)] == [False, True, True]


GOOD, NEW = message({"id": "1"}), {"id": "2", "new": '"x"'}
BLOCKS = {
    "a new name": (message(NEW), False, {"new"}), "a new name that is null": (message(NEW | {"new": "null"}), False, {"new"}), "a new name with parts": (message(NEW | {"new": "[{}]"}), False, {"new"}),
    "a nest": (message(NEW | {"new": "[" * 200_000 + "]" * 200_000}), True, set()), "twice": (message('{"id":1,"id":2}'), False, set()), "no JSON": (message('{"id":"2}'), True, set()),
    "a null": (None, True, set()), "null": (b"null", True, set()), "two objects": (message({"id": "2"}) * 2, True, set()), "a list": (b"[1]", True, set()),
    "more metadata": (message({"id": "2"}, later={"x": 1}), False, set()), "spaces": (b" " + message({"id": "2"}), False, set()), "an empty one": (b"", True, set()),
}  # fmt: skip


@pytest.mark.parametrize("what", BLOCKS)
def test_what_cannot_be_read_is_named_by_its_number(what):
    (odd, is_bad, unknown), reader = BLOCKS[what], Reader(TYPES, OLD)
    rows = reader.read(pa.array([GOOD, odd, GOOD], pa.binary()), np.array([7, 8, 11]))
    assert (rows.numbers.tolist(), [n for n, _ in rows.unreadable]) == (([7, 11], [8]) if is_bad else ([7, 8, 11], []))
    assert {*reader.unknown} == unknown
    assert [rows.raw(n) for n in (7, 8, 11)] == [GOOD, odd, GOOD]
    assert rows.fields.column(2).cast(pa.int64()).to_pylist() == ([1, 1] if is_bad else [1, 2, 1])


def test_what_is_no_value_has_none():
    texts = ['"a?"', "{}", "[1]"]
    messages = [message({"id": "1", "t": text}) for text in texts] + [message("null"), message('"x"'), message({"id": "1"}, "truncate")]  # fmt: skip
    messages[0] = messages[0].replace(b"?", b"\xff")
    found = fields(Reader(TYPES, OLD), messages)
    at = list(TYPES).index("t")
    assert [row[at] for row in values(found)] == [BAD, BAD, BAD, None, None, None]
    assert found[2].to_pylist()[3:5] == [None, None]
    assert found[0].to_pylist() == ["I"] * 5 + ["truncate"]


@pytest.mark.parametrize(("one", "other"), [('{"id":1,"t":"}', '{","d":1}'), ('{"id":1}', ""), ("", '{"id":1}')])
def test_halves_of_messages_are_not_put_together(one, other):
    halves = f'{{"data":{one}'.encode(), f'{other},"metadata":{{"operation":"insert"}}}}'.encode()
    messages = [GOOD, *halves, GOOD, GOOD.strip() + GOOD.strip(), *[GOOD] * 9]
    rows = Reader(TYPES, OLD).read(pa.array(messages, pa.binary()), np.arange(len(messages)))
    assert [number for number, _ in rows.unreadable] == [1, 2, 4]
