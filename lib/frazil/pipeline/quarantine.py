"""Bad rows that wait: which rows wait after a batch, and which changes of the batch wait behind them.

A row waits under the keys that it would change. A later change takes its keys from all rows, and a row without keys is
obsolete. A change that lacks columns waits if a row of its key does. So does any change of a key whose values a row needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.changes import OP, Changes
from frazil.core.latest import Latest, latest
from frazil.engine.read import BadRowError
from frazil.engine.waiting_rows import WAITING, BatchFiles
from frazil.errors import NAMED, FrazilError, many
from frazil.pipeline.waiting_keys import (
    OTHERWISE,
    Place,
    Step,
    Waiting,
    Walk,
    good_rows,
    key_texts,
    own_changes,
    set_aside,
    steps,
)
from frazil.settings.parameters import Settings
from frazil.settings.spec import TableSpec

MOST_BYTES = 64 << 20
"""The most bytes of rows that wait: each batch that changes them writes them all."""
BEFORE_ALL: Place = (-1, 0)


class TooManyBadRowsError(FrazilError, code="too-many-bad-rows"):
    """A batch has more bad rows than may wait. Correct the spec or the settings; or raise max_bad_rows."""


class NoOperationsError(FrazilError, code="no-operations"):
    """No row of a file has an operation in its place. Correct the setting that says whether files have the column Op."""


class QuarantineFullError(FrazilError, code="quarantine-full", decision=True):
    """More bytes of rows would wait than may. Replay the rows that wait, or discard them."""


@dataclass(frozen=True)
class _Asked:
    """What decides which rows wait: those of before, and the changes of a batch.

    `missing` are keys without a stored row, and `looked_at` further keys that are looked at.
    """

    before: pa.Table
    changes: Changes
    of: BatchFiles
    key: Sequence[str]
    missing: frozenset[str] = frozenset()
    looked_at: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Kept:
    """What is applied of a batch, as `latest` has it (None: the table has no key), and the rows that wait afterwards.

    `ended` are rows that became obsolete. `added` of the batch's rows wait.
    """

    latest: Latest | None
    waiting: pa.Table
    ended: pa.Table
    added: int
    asked: _Asked


def require_admitted(changes: Changes, files: Sequence[str], spec: TableSpec, settings: Settings) -> None:
    """Raise BadRowError, TooManyBadRowsError or NoOperationsError if the bad rows of a batch may not wait."""
    bad, cure = changes.bad, f"correct {spec.file}, or fetch a damaged file again"
    if not len(bad):
        return
    rows = f"{spec.source}: {many(len(bad), 'bad row')}"
    shown = [f"{files[r['file']]} row {r['number']}: {_fault(r)}" for r in bad.slice(0, NAMED).to_pylist()]
    shown += [f"… and {len(bad) - len(shown):,} more"] * (len(bad) > len(shown))
    if names := _without_operations(changes, files):
        right = "correct IncludeOpForFullLoad or CdcHasOp in the endpoint's JSON, or the columns in the spec"
        raise NoOperationsError(f"{spec.source}: no row of {names[0]} has an operation in its place", right, shown)
    if wider := next(filter(None, (_wider(r, spec) for r in bad.slice(0, NAMED).to_pylist())), ""):
        cure = f"write type: {wider} there, which needs no new load; or {cure}"
    if (spec.on_bad_rows or settings.on_bad_rows) == "stop":
        other = "on_bad_rows: quarantine leaves such rows out of the lake until they are replayed"
        raise BadRowError(rows, f"{cure}; or {other}", shown)
    if hidden := [*(column.name for column in spec.columns if column.mask), *spec.exclude]:
        why = f"rows of a table with masked or excluded columns ({', '.join(hidden)}) may not wait"
        raise BadRowError(f"{rows}, and {why}", cure, shown)
    most = settings.max_bad_rows if spec.max_bad_rows is None else spec.max_bad_rows
    if len(bad) > most:
        other = "raise max_bad_rows, which leaves such rows out of the lake until they are replayed"
        raise TooManyBadRowsError(f"{rows}, and max_bad_rows is {most:,}", f"{cure}; or {other}", shown)


def replayable(waiting: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that may be replayed, and those that stay: changes came after them, and their keys are unknown."""
    stays = pc.and_(waiting["followed"], pc.invert(waiting["keyed"]))
    return waiting.filter(pc.invert(stays)), waiting.filter(stays)


def replaced(before: pa.Table, of: BatchFiles, bad: pa.Table) -> Kept:
    """Return what waits after a load, which replaces all rows: its own bad rows."""
    none = Changes(pa.table({}), pa.table({}), bad)
    new = set_aside(of, bad)
    return Kept(None, _bounded(new, of), before, len(new), _Asked(before, none, of, ()))


def kept(before: pa.Table, changes: Changes, of: BatchFiles, key: Sequence[str]) -> Kept:
    """Return what a batch applies, and the rows that wait after it; `before` are those that waited, and are not replayed.

    Raises QuarantineFullError.
    """
    return _kept(_Asked(before, changes, of, key))


def without_stored(found: Kept, places: np.ndarray) -> Kept:
    """Return what is left if partial rows wait whose stored rows are missing: `NoStoredRowError.places` names them."""
    last, asked = found.latest, found.asked
    if last is None or last.partial is None:
        return found
    lost = last.partial.lost[places]
    own = last.keys.filter(pa.array(~last.deleted)).take(pa.array(places[lost]))
    missing = frozenset(key_texts(last.partial.stored.take(pa.array(places[~lost]))))
    looked_at = frozenset(key_texts(own))
    return _kept(replace(asked, missing=asked.missing | missing, looked_at=asked.looked_at | looked_at))


def _kept(asked: _Asked) -> Kept:
    before, of, changes = asked.before, asked.of, asked.changes
    new = set_aside(of, changes.bad)
    if not asked.key:
        rows = pa.concat_tables([before, new])
        return Kept(None, _bounded(rows, of) if len(new) else before, new[:0], len(new), asked)
    if not (len(before) or len(new) or of.replay or asked.missing or asked.looked_at):
        return Kept(latest(changes, asked.key), before, before, 0, asked)
    changes, otherwise = own_changes(changes, of.replay, asked.key) if of.replay else (changes, {})
    walk = _walked(asked, changes, new, otherwise)
    applied = np.full(len(changes.rows), True)
    applied[[*walk.aside]] = False
    if walk.aside:
        places = changes.facts.select(["file", "number"]).take(pa.array([*walk.aside]))
        new = pa.concat_tables([new, set_aside(of, good_rows(of, places, walk.aside.values()))])
        rows, facts = (table.filter(pa.array(applied)) for table in (changes.rows, changes.facts))
        changes = Changes(rows, facts, changes.bad)
    live = [row for row in walk.rows if not row.is_obsolete]
    rows = pa.concat_tables([before, new])
    last = max(_places(changes.facts.slice(max(0, len(changes.facts) - 1))), default=BEFORE_ALL)
    waiting = _with(rows.take(pa.array([row.at for row in live], pa.int64())), live, last)
    ended = rows.take(pa.array([row.at for row in walk.rows if row.is_obsolete], pa.int64()))
    added = sum(row.at >= len(before) for row in live)
    waiting = before if waiting.equals(before) else _bounded(waiting, of) if added else waiting
    return Kept(latest(changes, asked.key), waiting, ended, added, asked)


def _walked(asked: _Asked, changes: Changes, new: pa.Table, otherwise: Mapping[int, list[str]]) -> Walk:
    """Return what a batch does to rows that wait; `otherwise` has the keys of changes that show others now."""
    walk = Walk(asked.missing)
    waiting = pa.concat_tables([asked.before, new]).select(["keys", "fills_from"]).to_pylist()
    places = [*[BEFORE_ALL] * len(asked.before), *_places(asked.changes.bad)]
    rows = [Waiting(n, p, r["keys"], r["fills_from"]) for n, (p, r) in enumerate(zip(places, waiting, strict=True))]
    wanted = {*asked.missing, *asked.looked_at, *(key for row in rows for key in row.shown)}
    found = steps(changes, asked.key, None if asked.of.replay else wanted)
    at = _places(changes.facts.take(pa.array([step.number for step in found], pa.int64())))
    both: list[tuple[Place, Waiting | Step]] = [*((row.place, row) for row in rows), *zip(at, found, strict=True)]
    for place, one in sorted(both, key=lambda entry: entry[0]):
        if isinstance(one, Waiting):
            walk.wait(one)
        elif why := OTHERWISE if one.number in otherwise else walk.why_not(one):
            walk.wait(Waiting(len(rows) + len(walk.aside), place, otherwise.get(one.number, one.keys), one.fills_from))
            walk.aside[one.number] = why
        else:
            walk.apply(one)
    return walk


def _places(rows: pa.Table) -> list[Place]:
    return [*zip(rows["file"].to_pylist(), rows["number"].to_pylist(), strict=True)]


def _with(waiting: pa.Table, rows: Sequence[Waiting], last: Place) -> pa.Table:
    """Return rows that wait, with the keys that are left to them, and whether changes to the `last` place came after them."""
    keys = pa.array([[key for key in row.shown if key in row.keys] for row in rows], WAITING.field("keys").type)
    later = [row.place < last for row in rows]
    followed = pc.or_(waiting["followed"], pc.and_(pa.array(later, pa.bool_()), pc.invert(waiting["keyed"])))
    places = {name: waiting.column_names.index(name) for name in ("keys", "followed")}
    return waiting.set_column(places["keys"], "keys", keys).set_column(places["followed"], "followed", followed)


def _bounded(waiting: pa.Table, of: BatchFiles) -> pa.Table:
    if waiting.nbytes > MOST_BYTES:
        problem = f"{of.reader.table.spec.source}: rows of {waiting.nbytes >> 20} MB would wait, and {MOST_BYTES >> 20} MB may"
        raise QuarantineFullError(problem, "replay rows that wait, or discard them")
    return waiting


def _wider(row: dict, spec: TableSpec) -> str:
    """Return the type that holds a number which is too large for its column, with the column; empty for other faults."""
    column = next((c for c in spec.columns if c.name == row["column"]), None)
    number = re.match(r"'[+-]?0*(\d+)(?:\.(\d+))?' does not fit", row["reason"])
    if column is None or number is None or not column.dms_type.startswith(("INT", "UINT", "NUMERIC")) or column.mask:
        return ""
    scale = max(column.arguments[1] if column.arguments else 0, len(number[2] or ""))
    if not scale and column.dms_type != "NUMERIC" and int(number[1]) < 2**63:
        return f"INT8 for {column.name}"
    whole = max(len(number[1]), column.arguments[0] - column.arguments[1] if column.arguments else 0)
    return f"NUMERIC({whole + scale},{scale}) for {column.name}" if whole + scale <= 38 else ""


def _fault(row: dict) -> str:
    return f"column '{row['column']}': {row['reason']}" if row["column"] else row["reason"]


def _without_operations(changes: Changes, files: Sequence[str]) -> list[str]:
    """Return the files of several rows, none of which has an operation."""
    good, bad = changes.facts["file"], changes.bad["file"]
    damaged = pc.value_counts(bad.filter(pc.equal(changes.bad["column"], OP))).to_pylist()
    counts = {one["values"]: one["counts"] for one in damaged if one["counts"] > 1}
    sums = {file: sum(pc.sum(pc.equal(of, file)).as_py() or 0 for of in (good, bad)) for file in counts}
    return [files[file] for file, count in counts.items() if count == sums[file]]
