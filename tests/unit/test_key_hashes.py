"""Keys as numbers: equal keys have equal ones in every type that holds them, and others have others."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DoubleType, LongType, StringType
from pyroaring import BitMap64

from frazil.iceberg.key_bounds import may_hold
from frazil.iceberg.key_hashes import NullKeyError, key_numbers
from frazil.iceberg.key_segments import Rows
from frazil.iceberg.live_files import LiveFile


def numbers(*columns):
    return [
        tuple(int(half[i]) for half in key_numbers([pa.chunked_array([c]) for c in columns]))
        for i in range(len(columns[0]))
    ]


@pytest.mark.parametrize(
    "narrow, wide",
    [
        (pa.array([1, -2], pa.int32()), pa.array([1, -2], pa.int64())),
        (pa.array([1.5, -0.0], pa.float32()), pa.array([1.5, 0.0], pa.float64())),
        (
            pa.array([Decimal("1.20"), Decimal("-3.00")], pa.decimal128(10, 2)),
            pa.array([Decimal("1.20"), Decimal("-3.00")], pa.decimal128(30, 2)),
        ),
        (pa.array(["a", "ü" * 99]), pa.array(["a", "ü" * 99], pa.large_string())),
    ],
)
def test_a_widened_key_has_the_same_number(narrow, wide):
    assert numbers(narrow) == numbers(wide)
    assert numbers(narrow, narrow) == numbers(wide, wide)


def test_different_keys_have_different_numbers():
    texts = ["", "\0", "\0\0", "a", "a\0", "aa", "a" * 8, "a" * 9, "a" * 16, "b" + "a" * 15, "aaaaaaab", "aaaaaaaab"]
    assert len({*numbers(pa.array(texts))}) == len(texts)
    pairs = [("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc"), ("bc", "a")]
    assert len({*numbers(*map(pa.array, zip(*pairs, strict=True)))}) == len(pairs)
    grid = [(i, j) for i in range(-300, 300) for j in range(-300, 300)]
    both = key_numbers([pa.chunked_array([pa.array(c, pa.int32())]) for c in zip(*grid, strict=True)])
    assert all(len(np.unique(half)) == len(grid) for half in both)  # even each half alone
    texts = pa.chunked_array([[f"customer {i}" for i in range(200_000)]])
    assert all(len(np.unique(half)) == 200_000 for half in key_numbers([texts]))


def test_sliced_and_chunked_columns():
    texts = pa.array([f"t{i}" * (i % 5) for i in range(50)])
    whole = key_numbers([pa.chunked_array([texts])])
    parts = key_numbers([pa.chunked_array([texts[:7], texts[7:7], texts[7:]])])
    cut = key_numbers([pa.chunked_array([texts.slice(10, 20)])])
    assert all((a == b).all() for a, b in zip(whole, parts, strict=True))
    assert all((a[10:30] == b).all() for a, b in zip(whole, cut, strict=True))
    assert [len(h) for h in key_numbers([pa.chunked_array([pa.array([], pa.string())])])] == [0, 0]


def test_dates():
    days = pa.array([date(1960, 1, 1), date(2024, 2, 29)])
    assert numbers(days) == numbers(days.cast(pa.int32()))


def test_a_key_without_a_value_is_refused():
    with pytest.raises(NullKeyError):
        key_numbers([pa.chunked_array([[1, 2]]), pa.chunked_array([["a", None]])])


@pytest.mark.parametrize(
    ("kind", "type_", "bounds", "keys", "held"),
    [
        (LongType(), pa.int64(), (5, 9), [4, 10], False), (LongType(), pa.int64(), (5, 9), [4, 9], True), (LongType(), pa.int64(), (None, None), [1], True),
        (StringType(), pa.string(), ("b", "c"), ["a", "bx"], True), (StringType(), pa.string(), ("b", "c"), ["a", "d"], False),
        (DoubleType(), pa.float64(), (0.0, 1.0), [-0.0], True), (DoubleType(), pa.float64(), (0.0, 1.0), [5.0, float("nan")], True),
        (DateType(), pa.date32(), (10, 12), [11], True), (DateType(), pa.date32(), (10, 12), [13], False),
    ],
)  # fmt: skip
def test_a_file_may_hold_keys_that_are_between_its_bounds(kind, type_, bounds, keys, held):
    low, high = (None if bound is None else to_bytes(kind, bound) for bound in bounds)
    file = LiveFile("f", 1, 1, 0, Record(), 1, None, bounds=((low, high), (None, None)))
    column = pa.chunked_array([pa.array(keys, type_)])
    assert bool(may_hold([file], [kind, LongType()], [column, pa.chunked_array([[1]])])) is held


def test_row_ids_beyond_32_bits_follow_from_the_positions_of_rows_that_are_left():
    rows = Rows("f", [np.arange(4, dtype=np.uint64)]).live(BitMap64([0, 2]))
    position, stored = rows.places(np.array([0, 1]))
    assert (position + 3 * 10**9).tolist() == [3 * 10**9 + 1, 3 * 10**9 + 3] and stored.tolist() == [-1, -1]
