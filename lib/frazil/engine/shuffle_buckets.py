"""Bucket numbers that Spark hashes to a given partition: as many buckets as partitions, one in each."""

from __future__ import annotations

from functools import cache
from itertools import count

_MASK = 0xFFFF_FFFF
SEED = 42
"""The seed of Spark's hash partitioning."""


@cache
def bucket_of_each_partition(partitions: int) -> list[int]:
    """Return, for each partition of `repartition(partitions, "bucket")`, the smallest number that Spark puts there."""
    found: dict[int, int] = {}
    for number in count():
        found.setdefault(spark_hash(number) % partitions, number)
        if len(found) == partitions:
            return [found[p] for p in range(partitions)]
    raise AssertionError("unreachable")


def spark_hash(number: int) -> int:
    """Return Spark's hash of an `int`: Murmur3 of its four bytes, as a signed 32-bit number."""
    block = _turned(number * 0xCC9E_2D51 & _MASK, 15) * 0x1B87_3593 & _MASK
    mixed = _turned(SEED ^ block, 13) * 5 + 0xE654_6B64 & _MASK
    mixed ^= 4  # bytes
    mixed = (mixed ^ mixed >> 16) * 0x85EB_CA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2_AE35 & _MASK
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _turned(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _MASK
