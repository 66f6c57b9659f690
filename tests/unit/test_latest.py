"""The last change per key: examples, and random batches against a plain replay."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from frazil.core.bad_rows import BAD
from frazil.core.changes import Changes
from frazil.core.latest import Latest, latest

ABSENT, LOST = "?", "!"
VALUES = ("v", "w")
KEYS = {
    "integers": ([pa.int64()], [(i,) for i in range(5)]),
    "texts and integers": ([pa.string(), pa.int32()], [(t, i) for t in ("", "ä") for i in range(3)]),
    "reals": ([pa.float32()], [(0.0,), (-0.0,), (1.5,), (float("inf"),)]),
    "decimals and bytes": ([pa.decimal128(9, 2), pa.binary()], [(Decimal(i), b) for i in range(2) for b in (b"", b"\0")]),
    "days and truths": ([pa.date32(), pa.bool_()], [(date(2024, 1, d), b) for d in (1, 2) for b in (True, False)]),
}  # fmt: skip


def changes(rows: list[tuple], types: list[pa.DataType], cut: int = 0) -> Changes:
    """Return changes, in two chunks, of rows: op, key, old key or None, values, second, sequence."""

    def column(values: list, kind: pa.DataType) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(values[:cut], kind), pa.array(values[cut:], kind)])

    names = [f"k{i}" for i in range(len(types))]
    keys = {n: column([r[1][i] for r in rows], types[i]) for i, n in enumerate(names)}
    both = [(r[1], r[2] or r[1]) for r in rows]
    facts = {f"before {n}": column([o[i] if o[i] != k[i] else None for k, o in both], types[i]) for i, n in enumerate(names)}  # fmt: skip
    for i, n in enumerate(VALUES):
        if any(lacks := [r[3][i] == ABSENT for r in rows]):
            facts[f"absent {n}"] = column(lacks, pa.bool_())
    values = {n: column([r[3][i].strip(ABSENT) or None for r in rows], pa.string()) for i, n in enumerate(VALUES)}
    facts["op"] = column([r[0] for r in rows], pa.string())
    facts["committed"] = column([datetime(2024, 1, 1, second=r[4]) for r in rows], pa.timestamp("us", "UTC"))
    facts["sequence"] = column([r[5] for r in rows], pa.string())
    return Changes(pa.table({**keys, **values}), pa.table(facts), BAD.empty_table())


def keys_in(table: pa.Table) -> list[tuple]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def shown(found: Latest) -> dict[tuple, list | None]:
    """Return the values of each key, None after a delete; (key, column) is what is stored there, empty is null."""
    rows, partial = ([v or "" for v in row.values()] for row in found.rows.select(VALUES).to_pylist()), found.partial
    result = {k: None if gone else next(rows) for k, gone in zip(keys_in(found.keys), found.deleted, strict=True)}
    for i, row in enumerate([row for row in result.values() if row] if partial else []):
        for at, name in enumerate(VALUES):
            if name in partial.missing and partial.missing[name][i]:
                assert not row[at]
                row[at] = (keys_in(partial.stored)[i], name)
        row += [LOST] * int(partial.lost[i])
    return result


class Replay:
    def __init__(self, rows: list[tuple]):
        self.rows, self.place, self.freed, self.steps, self.orders = {}, {}, set(), {}, {}
        self.transient, self.contradicting = [], []
        for place, (op, key, old, values, *about) in enumerate(rows):
            row, moves = self.row(key), op == "U" and old not in (None, key)
            if moves:
                row, self.rows[old] = self.row(old), None
                self.event(old, "leave", place, *about)
            self.event(key, "arrive" if moves else op, place, *about)
            new = [before if v == ABSENT else v for before, v in zip(row or [LOST, LOST], values, strict=True)]
            self.rows[key] = None if op == "D" else new
        if not any(ABSENT in r[3] for r in rows):  # then rows that came after made the key right
            self.transient = [t for t in self.transient if (self.place[t[0]], self.steps[t[0]][0]) == (t[1], "leave")]
        self.transient = [key for key, _ in self.transient]

    def row(self, key: tuple) -> list | None:
        return self.rows.get(key, [(key, n) for n in VALUES])

    def event(self, key: tuple, step: str, place: int, second: int, order: str | None) -> None:
        if step == "leave" and self.steps.get(key) == ("arrive", second):
            self.transient += [(key, place)] * (key not in self.freed)
        elif step in ("leave", "D"):
            self.freed.add(key)
        if order and (before := self.orders.get(key)) and order[:16] < before[:16]:
            self.contradicting.append(key)
        self.place[key], self.steps[key], self.orders[key] = place, (step, second), order

    def shown(self) -> dict[tuple, list | None]:
        return {k: row and [v.strip(LOST) if v == LOST else v for v in row] + [LOST] * (LOST in row) for k, row in self.rows.items()}  # fmt: skip


def random_rows(dice: random.Random, keys: list[tuple]) -> list[tuple]:
    """Return rows as `changes` takes them: some have key changes, lack values, or contradict their sequence."""
    moves, lacks, disorder = (dice.choice((0, 0.4)) for _ in range(3))
    second, rows = 0, []
    for i in range(dice.randrange(25)):
        second += dice.random() < 0.3
        op, old = dice.choice("IUUUD"), dice.choice(keys) if dice.random() < moves else None
        values = [ABSENT if op == "U" and dice.random() < lacks else dice.choice(("", f"{n}{i}")) for n in VALUES]
        time = f"20240101{dice.randrange(9) if dice.random() < disorder else i:08}"
        order = dice.choice((None, time, time, f"{time}{9 - i % 9:019}"))
        rows.append((op, dice.choice(keys), old, values, second, order))
    return rows


@pytest.mark.parametrize("kind", KEYS)
def test_random_batches_are_as_a_replay_has_them(kind: str):
    dice, (types, keys) = random.Random(kind), KEYS[kind]
    for _ in range(1500):
        rows = random_rows(dice, keys)
        found, wanted = (
            latest(changes(rows, types, dice.randrange(9)), [f"k{i}" for i in range(len(types))]),
            Replay(rows),
        )
        assert shown(found) == wanted.shown(), rows
        assert dict(zip(keys_in(found.keys), found.place.tolist(), strict=True)) == wanted.place
        assert (np.diff(found.place) >= 0).all()
        assert (keys_in(found.transient), keys_in(found.contradicting)) == (wanted.transient, wanted.contradicting)


@pytest.mark.parametrize(
    "rows, wanted, transient",
    [
        ("U2<1aa U3<2bb", "1- 2- 3bb", [2]),  # a chain, or one statement; it stops the table if 2 is stored
        ("U2<1aa U3<2bb U2cc", "1- 2cc 3bb", []),
        ("U2<1aa U3<2bb U2?c", "1- 2.c! 3bb", [2]),
        ("D2 U2<1aa U3<2bb", "1- 2- 3bb", []),
        ("U3<1aa U1<2bb U2<3aa", "1bb 2aa 3-", [3]),  # a swap
        ("U2<1aa I1nn D3 I3aa I4bb D4", "1nn 2aa 3aa 4-", []),
        ("U1a? U1?b U2a? U2.? U3ab D3 U3?c", "1ab 2.2 3.c!", []),  # null is a value; nothing outlives a delete
        ("U1<0?? U2<1?x U3<2??", "0- 1- 2- 30x", [1, 2]),
        ("U9<2?? U2<3?? U3<9?x", "233 32x 9-", [9]),
    ],
)
def test_what_becomes_of_keys(rows: str, wanted: str, transient: list[int]):
    """`U2<1ab` is an update of 2, which was 1, to two values: `.` is null, and a digit is what is stored for that key."""
    made = []
    for op, key, *rest in rows.split():
        old, values = ((int(rest[1]),), rest[2:]) if rest[:1] == ["<"] else (None, rest)
        made.append((op, (int(key),), old, [v.strip(".") for v in values or ".."], 0, None, None))
    found = latest(changes(made, [pa.int64()]), ["k0"])
    texts = {k: [str(v[0][0]) if isinstance(v, tuple) else v or "." for v in row or "-"] for (k,), row in shown(found).items()}  # fmt: skip
    assert " ".join(f"{key}{''.join(texts[key])}" for key in sorted(texts)) == wanted
    assert keys_in(found.transient) == [(key,) for key in transient]
