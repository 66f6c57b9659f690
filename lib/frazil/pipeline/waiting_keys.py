"""The keys of changes and of rows that wait: which changes wait behind a row, and which make it obsolete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.bad_rows import BAD, as_mask
from frazil.core.changes import AFTER, OP, Changes
from frazil.core.key_changes import APPLY, events
from frazil.engine.replay_files import WAITING, BatchFiles

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
        if pa.types.is_string(column.type):
            column = pc.replace_substring(column, "|", "||")
        texts.append(column.cast(pa.string()))
    return (pc.binary_join_element_wise(*texts, "|,") if texts[1:] else texts[0]).combine_chunks()


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


def bad_rows(of: BatchFiles, changes: Changes) -> pa.Table:
    """Return the bad rows of a batch as rows that wait. A row with a bad operation may change its key."""
    facts, key, keys = changes.bad_facts, of.reader.table.spec.key, dict[Place, Sequence[str]]()
    if key and len(facts):
        rows, places = pa.table({name: facts[AFTER + name] for name in key}), places_of(facts)
        keys = {places[at]: own for at, own in keys_of(Changes(rows, facts, changes.bad), key).items()}
    return _as_waiting(of, changes.bad, keys)


def good_rows(of: BatchFiles, places: pa.Table, reasons: Iterable[str], keys: dict[Place, Sequence[str]]) -> pa.Table:
    """Return good rows of a batch as rows that wait, each with a reason and its keys; their bytes are read again."""
    found: list[bytes] = []
    for file, own in groupby(places_of(places), key=itemgetter(0)):
        numbers = [number for _, number in own]
        for part in of.reader.rows(of.files[file], of.columns[file], numbers[0] - 1, numbers[-1]):
            found += [part.raw(number) for number in np.intersect1d(part.numbers, numbers).tolist()]
    rows = [places["file"], places["number"], [""] * len(places), [*reasons], found]
    return _as_waiting(of, pa.table(rows, schema=BAD), keys)


def _as_waiting(of: BatchFiles, rows: pa.Table, keys: dict[Place, Sequence[str]]) -> pa.Table:
    """Return rows of a batch, as `BAD` has them, as rows that wait; those of a replay keep what is known of them."""
    were = of.replay.rows_at(rows) if of.replay else _new(of, rows)
    found = [own or keys.get(place, ()) for own, place in zip(were["keys"].to_pylist(), places_of(rows), strict=True)]
    told = {"column": rows["column"], "reason": rows["reason"], "keys": pa.array(found, WAITING.field("keys").type)}
    for name, values in told.items():
        were = were.set_column(were.column_names.index(name), WAITING.field(name), values)
    return were


def _new(of: BatchFiles, rows: pa.Table) -> pa.Table:
    """Return rows as they begin to wait, with their places, and how their bytes are read again."""
    forms = ["csv" if its and its.dialect else "parquet" for its in of.columns]
    headers = [[*its.names] if its and its.dialect and its.dialect.header else None for its in of.columns]
    known = {name: rows[name].combine_chunks() for name in rows.column_names}
    for name, of_files in {"path": of.paths, "form": forms, "header": headers}.items():
        known[name] = pa.array(of_files, WAITING.field(name).type).take(known["file"])
    for name, value in {"batch": of.batch, "keys": [], "followed": False, "since": datetime.now(UTC)}.items():
        known[name] = pa.array([value] * len(rows), WAITING.field(name).type)
    return pa.table(known, schema=WAITING)
