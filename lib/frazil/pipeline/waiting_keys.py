"""The keys of changes and of rows that wait: which changes wait behind a row, and which make it obsolete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.bad_rows import BAD, as_mask
from frazil.core.changes import OP, OPERATIONS, Changes, Reading, judged
from frazil.core.key_changes import APPLY, events
from frazil.core.rows import Rows
from frazil.engine.waiting_rows import WAITING, BatchFiles, as_files

BEHIND = "waits behind a row of its key"
NOT_STORED = "lacks columns, and its row is not stored"
OTHERWISE = "its key reads otherwise than when the row began to wait"
Place = tuple[int, int]
"""The file and the number of a row in a batch."""


@dataclass(frozen=True)
class Touch:
    """A change, or a row that waits, and its keys: two if it changes a key, none if they are unknown.

    `why` it waits in any case. `at` is the number of a change among those of the batch; `lacks`: it lacks columns.
    """

    place: Place
    keys: Sequence[str]
    why: str = ""
    at: int = -1
    lacks: bool = False


def in_order(touches: Iterable[Touch]) -> tuple[dict[int, str], set[Place]]:
    """Return why changes wait, by their numbers, and the places of rows that later changes made obsolete.

    A change waits behind a row of its key if it lacks columns, or if that row changes its key. A change that need not
    wait makes all rows of its keys obsolete.
    """
    under: dict[str, list[Touch]] = defaultdict(list)
    aside, obsolete = {}, set()
    for touch in sorted(touches, key=lambda touch: touch.place):
        before = [row for key in touch.keys for row in under[key]]
        is_behind = any(touch.lacks or len(row.keys) > 1 for row in before)
        why = BEHIND if is_behind else touch.why
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
    texts = []
    for column in keys.columns:
        if pa.types.is_binary(column.type):
            digits = [None if value is None else value.hex() for value in column.to_pylist()]
            column = pa.chunked_array([digits], pa.string())
        texts.append(pc.replace_substring(column.cast(pa.string()), "|", "||"))
    return pc.binary_join_element_wise(*texts, "|,").combine_chunks()


def keys_of(changes: Changes, key: Sequence[str], wanted: set[str] | None = None) -> dict[int, list[str]]:
    """Return the keys of changes, by their numbers; only of those that touch wanted keys, or change a key."""
    of = events(changes, key)
    texts = near = key_texts(of.keys)
    if wanted is not None:
        near = pa.concat_arrays([texts.filter(pa.array(of.step != APPLY)), pa.array(wanted, pa.string())])
    is_near = pc.is_in(texts, near)
    found = defaultdict(list)
    for number, text in zip(of.place[as_mask(is_near)].tolist(), texts.filter(is_near).to_pylist(), strict=True):
        found[number].append(text)
    return found


def touches(changes: Changes, of: BatchFiles, wanted: set[str], doubted: set[str]) -> Iterator[Touch]:
    """Yield the changes that touch wanted or doubted keys; of a replay all, under the keys with which they began to wait."""
    found = keys_of(changes, of.reader.table.spec.key, None if of.replay else wanted | doubted)
    facts = changes.facts.take(pa.array(found, pa.int64()))
    before = of.replay.rows_at(facts)["keys"].to_pylist() if of.replay else [[]] * len(found)
    lacks = np.any([np.zeros(len(changes.rows), bool), *changes.absent.values()], axis=0)
    lacks &= as_mask(pc.not_equal(changes.facts[OP], "D"))
    for (at, keys), place, were in zip(found.items(), places_of(facts), before, strict=True):
        why = NOT_STORED if lacks[at] and doubted & {*keys} else ""
        why = OTHERWISE if were and were != keys else why
        yield Touch(place, were or keys, why, at, bool(lacks[at]))


def set_aside(of: BatchFiles, bad: pa.Table) -> dict[Place, dict]:
    """Return rows of a batch, as `BAD` has them, as rows that wait, by their places; those of a replay keep what is known."""
    new, rows = {"batch": of.batch, "followed": False, "since": datetime.now(UTC), "keys": []}, list[dict]()
    for row in bad.to_pylist():
        its = of.columns[row["file"]]
        header = [*its.names] if its and its.dialect and its.dialect.header else None
        form = {"form": "csv" if its and its.dialect else "parquet", "header": header}
        rows.append(new | row | form | {"path": of.files[row["file"]].path})
    again = as_files(pa.Table.from_pylist(rows, WAITING), of.reader)
    reader = replace(of.reader, storage=again.storage)
    for file, first in zip(again.files, again.first, strict=True):
        columns = of.columns[rows[first]["file"]]
        for part in reader.rows(file, columns) if columns else ():
            for number, keys in _known_keys(part, columns.reading).items():
                rows[first + number - 1]["keys"] = keys
    if of.replay:
        for row, was in zip(rows, of.replay.rows_at(bad).to_pylist(), strict=True):
            row |= was | {"column": row["column"], "reason": row["reason"], "keys": was["keys"] or row["keys"]}
    return dict(zip(places_of(bad), rows, strict=True))


def good_rows(of: BatchFiles, places: pa.Table, reasons: Iterable[str]) -> pa.Table:
    """Return good rows of a batch as `BAD` has bad ones, each with a reason; their bytes are read again."""
    found: list[bytes] = []
    for file, own in groupby(places_of(places), key=itemgetter(0)):
        numbers = [number for _, number in own]
        for part in of.reader.rows(of.files[file], of.columns[file], numbers[0] - 1, numbers[-1]):
            found += [part.raw(number) for number in np.intersect1d(part.numbers, numbers).tolist()]
    return pa.table([places["file"], places["number"], [""] * len(places), [*reasons], found], schema=BAD)


def _known_keys(rows: Rows, reading: Reading) -> dict[int, list[str]]:
    """Return the known keys of rows, by their numbers; a row with a bad operation may change its key."""
    if not (key := reading.spec.key):
        return {}
    values, facts, faults = judged(rows, reading)
    facts[OP] = pc.if_else(pc.is_in(facts[OP], pa.array(OPERATIONS)), facts[OP], "U")
    found = keys_of(Changes(pa.table(values), pa.table(facts), BAD.empty_table()), key)
    unknown = {at for fault in faults if fault.column in key for at in np.flatnonzero(fault.mask).tolist()}
    return {int(rows.numbers[at]): keys for at, keys in found.items() if at not in unknown}
