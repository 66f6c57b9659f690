"""The keys of changes and of rows that wait: which changes wait behind a row, and which make it obsolete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.bad_rows import BAD, as_mask
from frazil.core.changes import OP, OPERATIONS, Changes, Reading, judged
from frazil.core.exact import as_text
from frazil.core.key_changes import APPLY, events
from frazil.core.rows import Rows
from frazil.engine.read import TableReader
from frazil.engine.waiting_rows import WAITING, BatchFiles, as_files

BEHIND = "waits behind a row of its key"
NOT_STORED = "lacks columns, and its row is not stored"
OTHERWISE = "its key reads otherwise than when the row began to wait"
Place = tuple[int, int]
"""The file and the number of a row in a batch."""


@dataclass(frozen=True)
class Touch:
    """A change, or a row that waits, and its keys: two if it changes a key, none if they are unknown.

    `at` is the number of a change among those of the batch; -1: a row. `lacks` says whether it lacks columns, `why` why it
    waits in any case.
    """

    place: Place
    keys: Sequence[str]
    why: str = ""
    at: int = -1
    lacks: bool = False


def in_order(touches: Iterable[Touch], doubted: Collection[str]) -> tuple[dict[int, str], set[Place]]:
    """Return why changes wait, by their numbers, and the places of rows that later changes made obsolete.

    A change waits behind a row of its key if it lacks columns, or if that row changes its key. A change that need not
    wait makes all rows of its keys obsolete. `doubted` are keys of which no row may be stored.
    """
    under: dict[str, list[Touch]] = defaultdict(list)
    aside, obsolete = {}, set()
    for touch in sorted(touches, key=lambda touch: touch.place):
        before = [row for key in touch.keys for row in under[key]]
        why = touch.why
        if not why and any(touch.lacks or len(row.keys) > 1 for row in before):
            why = BEHIND
        if not why and touch.lacks and not {*touch.keys}.isdisjoint(doubted):
            why = NOT_STORED
        if not why:
            obsolete |= {row.place for row in before}
        elif touch.at >= 0:
            aside[touch.at] = why
        for key in touch.keys:
            under[key] = [*under[key], touch] if why else []
    return aside, obsolete


def places_of(rows: pa.Table) -> list[Place]:
    """Return the places of rows, which have a `file` and a `number`."""
    return [*zip(rows["file"].to_pylist(), rows["number"].to_pylist(), strict=True)]


def key_texts(keys: pa.Table) -> pa.Array:
    """Return each key as one text, which stays as it is if a column becomes wider; null if a value is."""
    columns = [_texts(column.combine_chunks()) for column in keys.columns]
    return pc.binary_join_element_wise(*(pc.replace_substring(texts, "|", "||") for texts in columns), "|,")


def _texts(values: pa.Array) -> pa.Array:
    """Return the texts of a key's column."""
    if pa.types.is_binary(values.type):
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())
    if pa.types.is_string(values.type):
        return values
    return pc.replace_substring_regex(as_text(values)[0], r"(\.\d*[1-9])0+$|\.0*$", r"\1")


def keys_of(changes: Changes, key: Sequence[str], wanted: Iterable[str] | None = None) -> dict[int, list[str]]:
    """Return the keys of changes, by their numbers; only of those that touch wanted keys, or change a key."""
    of = events(changes, key)
    texts = key_texts(of.keys)
    changed = texts.filter(pa.array(of.step != APPLY))
    near = texts if wanted is None else pa.concat_arrays([changed, pa.array({*wanted}, pa.string())])
    is_near = pc.is_in(texts, near)
    found = defaultdict(list)
    for number, text in zip(of.place[as_mask(is_near)].tolist(), texts.filter(is_near).to_pylist(), strict=True):
        found[number].append(text)
    return found


def touches(changes: Changes, of: BatchFiles, key: Sequence[str], wanted: Collection[str]) -> Iterator[Touch]:
    """Yield the changes that touch wanted keys; of a replay all, under the keys that they had when they began to wait."""
    found = keys_of(changes, key, None if of.replay else wanted)
    facts = changes.facts.take(pa.array(found, pa.int64()))
    set_aside_with = of.replay.rows_at(facts)["keys"].to_pylist() if of.replay else [[]] * len(found)
    lacks = np.any([np.zeros(len(changes.rows), bool), *changes.absent.values()], axis=0)
    lacks &= as_mask(pc.not_equal(changes.facts[OP], "D"))
    for (at, keys), place, were in zip(found.items(), places_of(facts), set_aside_with, strict=True):
        yield Touch(place, were or keys, OTHERWISE if were and were != keys else "", at, bool(lacks[at]))


def set_aside(of: BatchFiles, bad: pa.Table) -> dict[Place, dict]:
    """Return bad rows of a batch as rows that wait, by their places, with their keys; those of a replay keep known ones."""
    new = {"batch": of.batch, "keys": [], "followed": False, "since": datetime.now(UTC)}
    rows: list[dict] = []
    for row in bad.to_pylist():
        its = of.columns[row["file"]]
        header = [*its.names] if its.dialect and its.dialect.header else None
        form = {"form": "csv" if its.dialect else "parquet", "header": header}
        rows.append(new | row | form | {"path": of.files[row["file"]].path})
    again = as_files(pa.Table.from_pylist(rows, WAITING), of.reader)
    reader = TableReader(again.storage, of.reader.table)
    for file, first in zip(again.files, again.first, strict=True):
        its = of.columns[rows[first]["file"]]
        for part in reader.rows(file, its):
            for number, keys in _known_keys(part, its.reading):
                rows[first + number - 1]["keys"] = keys
    if of.replay:
        for row, was in zip(rows, of.replay.rows_at(bad).to_pylist(), strict=True):
            row |= {**was, "column": row["column"], "reason": row["reason"], "keys": was["keys"] or row["keys"]}
    return dict(zip(places_of(bad), rows, strict=True))


def good_rows(of: BatchFiles, places: pa.Table, reasons: Iterable[str]) -> pa.Table:
    """Return good rows of a batch as `BAD` has bad ones, each with a reason; their files are read again."""
    raw: dict[Place, bytes] = {}
    for file in pc.unique(places["file"]).to_pylist():
        numbers = places["number"].filter(pc.equal(places["file"], file)).to_numpy()
        for part in of.reader.rows(of.files[file], of.columns[file], int(numbers.min()) - 1, int(numbers.max())):
            raw |= {(file, n): part.raw(n) for n in np.intersect1d(part.numbers, numbers).tolist()}
    nothing, bytes_of = [""] * len(places), [raw[place] for place in places_of(places)]
    return pa.table([places["file"], places["number"], nothing, [*reasons], bytes_of], schema=BAD)


def _known_keys(rows: Rows, reading: Reading) -> Iterator[tuple[int, list[str]]]:
    """Yield the known keys of rows, by their numbers; a row without a known operation may have changed its key."""
    if not (key := reading.spec.key):
        return
    values, facts, faults = judged(rows, reading)
    unknown = np.any([np.zeros(len(rows.numbers), bool), *(f.mask for f in faults if f.column in key)], axis=0)
    facts[OP] = pc.if_else(pc.is_in(facts[OP], pa.array(OPERATIONS)), facts[OP], "U")
    for at, keys in keys_of(Changes(pa.table(values), pa.table(facts), BAD.empty_table()), key).items():
        if not unknown[at]:
            yield int(rows.numbers[at]), keys
