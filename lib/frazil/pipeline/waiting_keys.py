"""The keys of rows that wait. A later change takes its keys from all rows that wait; some changes wait behind such a row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.bad_rows import BAD, as_mask
from frazil.core.changes import BEFORE, OP, OPERATIONS, Changes, Reading, judged
from frazil.core.exact import as_text, typed
from frazil.core.key_changes import APPLY, Events, events
from frazil.core.rows import Rows
from frazil.dms.file_columns import FileColumns
from frazil.engine.read import TableReader
from frazil.engine.waiting_rows import WAITING, BatchFiles, Replay, as_files

BEHIND = "waits behind a row of its key"
NOT_STORED = "lacks columns, and its row is not stored"
OTHERWISE = "its key reads otherwise than when it was set aside"
Place = tuple[int, int]
"""The file and the number of a row in a batch."""


@dataclass(frozen=True)
class Step:
    """A change of keys: its number in the batch, its keys, whether each is deleted, and whether it lacks columns."""

    number: int
    keys: list[str]
    deleted: list[bool]
    lacks: bool

    @property
    def fills_from(self) -> str | None:
        """The key of the row whose values the change takes along to another key."""
        return self.keys[0] if self.lacks and len(self.keys) > 1 else None


@dataclass
class Waiting:
    """A row that waits: its place in the batch, where it stands among all, and the keys that are left to it."""

    at: int
    place: Place
    shown: Sequence[str]
    fills_from: str | None

    def __post_init__(self) -> None:
        self.keys = {*self.shown}

    @property
    def is_obsolete(self) -> bool:
        """Whether later changes took all its keys; a row whose keys are unknown keeps waiting."""
        return bool(self.shown) and not self.keys


class Walk:
    """Goes through a batch in order: its changes are applied, or wait.

    `aside` has why changes wait, by their numbers. `lost` are keys without a row that a change could be filled from.
    """

    def __init__(self, lost: Iterable[str]):
        self.rows: list[Waiting] = []
        self.aside: dict[int, str] = {}
        self.lost = {*lost}
        self._under: dict[str, list[Waiting]] = {}
        self._needing: dict[str, list[Waiting]] = {}

    def wait(self, row: Waiting) -> None:
        """Let a row wait."""
        self.rows.append(row)
        for key in row.shown:
            self._under.setdefault(key, []).append(row)
        if row.fills_from is not None:
            self._needing.setdefault(row.fills_from, []).append(row)

    def why_not(self, step: Step) -> str:
        """Return why a change may not be applied; empty if it may."""
        if step.lacks and self._under.get(step.keys[0]):
            return BEHIND
        if step.lacks and step.keys[0] in self.lost:
            return NOT_STORED
        needing = (row for key in step.keys for row in self._needing.get(key, ()))
        return BEHIND if any(row.keys - {row.fills_from} for row in needing) else ""

    def apply(self, step: Step) -> None:
        """Let a change take its keys from the rows that wait."""
        for key, deleted in zip(step.keys, step.deleted, strict=True):
            for row in self._under.pop(key, ()):
                row.keys.discard(key)
            (self.lost.add if deleted else self.lost.discard)(key)


def key_texts(keys: pa.Table) -> list[str]:
    """Return each key as a JSON text of its values' texts, which stays as it is if a column becomes wider."""
    columns = [_texts(column.combine_chunks()) for column in keys.columns]
    return [json.dumps(key, ensure_ascii=False) for key in zip(*columns, strict=True)]


def _texts(values: pa.Array) -> list[str | None]:
    """Return the texts of a key's column."""
    if pa.types.is_binary(values.type):
        return [None if value is None else value.hex() for value in values.to_pylist()]
    texts = (values if pa.types.is_string(values.type) else as_text(values)[0]).to_pylist()
    shorten = pa.types.is_decimal(values.type)
    return [text.rstrip("0").rstrip(".") if shorten and text and "." in text else text for text in texts]


def steps(changes: Changes, key: Sequence[str], wanted: set[str] | None = None) -> list[Step]:
    """Return the changes, in order; of some keys: also those of keys that a change of keys connects with them."""
    of = events(changes, key)
    lacks = np.any([np.zeros(len(of.place), bool), *(absent[of.place] for absent in changes.absent.values())], axis=0)
    near = np.arange(len(of.place))
    if wanted is not None:
        moved = key_texts(of.keys.take(pa.array(np.flatnonzero(of.step != APPLY))))
        wanted = _connected(wanted, [*zip(moved[::2], moved[1::2], strict=True)])
        near = np.flatnonzero(_may_be(of, wanted))
    found: dict[int, Step] = {}
    for event, text in zip(near.tolist(), key_texts(of.keys.take(pa.array(near))), strict=True):
        if wanted is None or text in wanted:
            number, deleted = int(of.place[event]), bool(of.deleted[event])
            step = found.setdefault(
                number, Step(number, [], [], bool(lacks[event] and (of.step[event] or not deleted)))
            )
            step.keys.append(text)
            step.deleted.append(deleted)
    return [*found.values()]


def _connected(keys: set[str], pairs: Sequence[tuple[str, str]]) -> set[str]:
    beside: dict[str, list[str]] = {}
    for one, other in pairs:
        beside.setdefault(one, []).append(other)
        beside.setdefault(other, []).append(one)
    found, new = {*keys}, {*keys}
    while new:
        new = {other for key in new for other in beside.get(key, ())} - found
        found |= new
    return found


def _may_be(of: Events, wanted: set[str]) -> np.ndarray:
    """Return which events may be of some keys, by the first column of the key."""
    first = pa.array([json.loads(text)[0] for text in wanted], pa.string())
    return as_mask(pc.is_in(of.keys[0], typed(first, of.keys[0].type)[0]))


def set_aside(of: BatchFiles, bad: pa.Table) -> pa.Table:
    """Return bad rows of a batch as rows that wait, with the keys that they would change."""
    columns = [of.columns[file] for file in bad["file"].to_pylist()]
    about = {"batch": of.batch, "keyed": False, "keys": [], "followed": False, "since": datetime.now(UTC)}
    named = zip(of.original(bad).to_pylist(), columns, strict=True)
    rows = [about | row | {"path": of.paths[row["file"]], **_form(its)} for row, its in named]
    again = as_files(pa.Table.from_pylist(rows, WAITING), of.reader)
    reader = TableReader(again.storage, of.reader.table)
    for file, first in zip(again.files, again.first, strict=True):
        for part in reader.rows(file, columns[first]):
            for number, keys in _keys(part, columns[first].reading):
                rows[first + number - 1] |= keys
    if of.replay:
        for row, was in zip(rows, of.replay.rows_at(bad).to_pylist(), strict=True):
            names = ("batch", "since", "keyed", "keys", "fills_from") if was["keyed"] else ("batch", "since")
            row |= {name: was[name] for name in names}
    return pa.Table.from_pylist(rows, WAITING)


def good_rows(of: BatchFiles, places: pa.Table, reasons: Iterable[str]) -> pa.Table:
    """Return good rows of a batch as `BAD` has bad ones, each with a reason; their files are read again."""
    found: dict[tuple[int, int], bytes] = {}
    for file in pc.unique(places["file"]).to_pylist():
        numbers = places["number"].filter(pc.equal(places["file"], file)).to_numpy()
        for rows in of.reader.rows(of.files[file], of.columns[file], int(numbers.min()) - 1, int(numbers.max())):
            found |= {(file, n): rows.raw(n) for n in np.intersect1d(rows.numbers, numbers).tolist()}
    listed = zip(places.to_pylist(), reasons, strict=True)
    return pa.Table.from_pylist([{"file": p["file"], "number": p["number"], "column": "", "reason": why, "raw": found[p["file"], p["number"]]} for p, why in listed], BAD)  # fmt: skip


def _form(columns: FileColumns) -> dict:
    """Return the form of a file, and the names of its columns if a line of its own has them."""
    if columns.dialect is None:
        return {"form": "parquet", "header": None}
    return {"form": "csv", "header": [*columns.names] if columns.dialect.header else None}


def _keys(rows: Rows, reading: Reading) -> Iterator[tuple[int, dict]]:
    """Yield what rows would change, by their numbers; a row without a known operation may have changed its key."""
    values, facts, faults = judged(rows, reading)
    if not (key := reading.spec.key):
        yield from ((int(number), {"keyed": True}) for number in rows.numbers)
        return
    unknown = np.any([np.zeros(len(rows.numbers), bool), *(f.mask for f in faults if f.column in key)], axis=0)
    facts[OP] = pc.if_else(pc.is_in(facts[OP], pa.array(OPERATIONS)), facts[OP], "U")
    for step in steps(Changes(pa.table(values), pa.table(facts), BAD.empty_table()), key):
        if not unknown[step.number]:
            known = {"keyed": True, "keys": step.keys, "fills_from": step.fills_from}
            yield int(rows.numbers[step.number]), known


def own_changes(changes: Changes, replay: Replay, key: Sequence[str]) -> tuple[Changes, dict[int, list[str]]]:
    """Return what is still to be applied of changes that waited: a change of a key may have lost one of both.

    The second are the keys of those that show other keys now.
    """
    waited = replay.rows_at(changes.facts).select(["keyed", "keys"]).to_pylist()
    otherwise, leaves, arrives = {}, np.full(len(waited), False), np.full(len(waited), False)
    for step, was in zip(steps(changes, key), waited, strict=True):
        own = {*(was["keys"] if was["keyed"] else step.keys)}
        if own - {*step.keys}:
            otherwise[step.number] = was["keys"]
        elif len(step.keys) > 1:
            leaves[step.number], arrives[step.number] = step.keys[1] not in own, step.keys[0] not in own
    rows, facts, is_gone, is_new = changes.rows, changes.facts, pa.array(leaves), pa.array(leaves | arrives)
    for name in key:
        if (was := changes.fact(BEFORE + name)) is not None:
            rows = _with(rows, name, pc.if_else(is_gone, pc.coalesce(was, rows[name]), rows[name]))
            facts = _with(facts, BEFORE + name, pc.if_else(is_new, pa.scalar(None, was.type), was))
    return Changes(rows, _with(facts, OP, pc.if_else(is_gone, "D", facts[OP])), changes.bad), otherwise


def _with(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)
