"""Bad rows that wait: which may wait, and what a batch applies beside them. `waiting_keys.in_order` has the rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.changes import OP, Changes
from frazil.core.latest import Latest, latest
from frazil.engine.read import BadRowError
from frazil.engine.waiting_rows import WAITING, BatchFiles
from frazil.errors import NAMED, FrazilError, many
from frazil.pipeline.waiting_keys import BEHIND, Touch, good_rows, in_order, key_texts, places_of, set_aside, touches
from frazil.settings.parameters import Settings
from frazil.settings.spec import TableSpec

MOST_BYTES = 64 << 20
"""The most bytes of rows that wait: each batch that changes them writes them all."""


class TooManyBadRowsError(FrazilError, code="too-many-bad-rows"):
    """A batch has more bad rows than may wait. Correct the spec or the settings; or raise max_bad_rows."""


class NoOperationsError(FrazilError, code="no-operations"):
    """No row of a file has an operation in its place. Correct the setting that says whether files have the column Op."""


class QuarantineFullError(FrazilError, code="quarantine-full", decision=True):
    """More bytes of rows would wait than may. Replay the rows that wait, or discard them."""


@dataclass(frozen=True)
class Kept:
    """What is applied of a batch, as `latest` has it (None: the table has no key), and the rows that wait afterwards.

    `added` of the batch's rows wait. `obsolete` counts rows that later changes replaced. `before` are rows that waited.
    """

    latest: Latest | None
    before: pa.Table
    waiting: pa.Table
    added: int
    obsolete: int = 0


def require_admitted(changes: Changes, files: Sequence[str], spec: TableSpec, settings: Settings) -> None:
    """Raise BadRowError, TooManyBadRowsError or NoOperationsError if the bad rows of a batch may not wait."""
    bad, cure = changes.bad, f"correct {spec.file}, or fetch a damaged file again"
    if not len(bad):
        return
    rows, first = f"{spec.source}: {many(len(bad), 'bad row')}", bad.slice(0, NAMED).to_pylist()
    faults = [f"column '{r['column']}': {r['reason']}" if r["column"] else r["reason"] for r in first]
    shown = [f"{files[r['file']]} row {r['number']}: {fault}" for r, fault in zip(first, faults, strict=True)]
    shown += [f"… and {len(bad) - len(shown):,} more"] * (len(bad) > len(shown))
    if names := _without_operations(changes, files):
        right = "correct IncludeOpForFullLoad or CdcHasOp in the endpoint's JSON, or the columns in the spec"
        raise NoOperationsError(f"{spec.source}: no row of {names[0]} has an operation in its place", right, shown)
    if wider := next(filter(None, (_wider(r, spec) for r in first)), ""):
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
    """Return the rows that may be replayed, and those that stay: changes came after them, and their keys were unknown."""
    return waiting.filter(pc.invert(waiting["followed"])), waiting.filter(waiting["followed"])


def doubted_keys(last: Latest, places: np.ndarray) -> set[str]:
    """Return the keys of partial rows whose stored rows are missing; `NoStoredRowError.places` names the rows."""
    stored = [last.partial.stored.take(pa.array(places))] if last.partial else []
    own = last.keys.filter(pa.array(~last.deleted)).take(pa.array(places))
    return {key for keys in (own, *stored) for key in key_texts(keys).drop_null().to_pylist()}


def kept(before: pa.Table, changes: Changes, of: BatchFiles, key: Sequence[str], doubted: Collection[str] = ()) -> Kept:
    """Return what a batch applies, and the rows that wait after it; `before` are those that waited, and are not replayed.

    Changes of `doubted` keys wait if they lack columns. Without a `key` all bad rows wait, as those of a load do.
    Raises QuarantineFullError.
    """
    rows = {(-1, n): row for n, row in enumerate(before.to_pylist())} | set_aside(of, changes.bad)
    if not key:
        return Kept(None, before, _waiting(rows.values(), before, of), len(changes.bad))
    if not (rows or of.replay or doubted):
        return Kept(latest(changes, key), before, before, 0)
    waiting = [Touch(place, row["keys"], BEHIND) for place, row in rows.items()]
    wanted = {*doubted, *(key for row in waiting for key in row.keys)}
    aside, obsolete = in_order([*waiting, *touches(changes, of, key, wanted)], doubted)
    if aside:
        numbers = pa.array(aside, pa.int64())
        rows |= set_aside(of, good_rows(of, changes.facts.take(numbers), aside.values()))
        applied = pc.invert(pc.is_in(pa.array(np.arange(len(changes.rows))), numbers))
        changes = Changes(changes.rows.filter(applied), changes.facts.filter(applied), changes.bad)
    live = sorted(rows.keys() - obsolete)
    for place in live:
        rows[place]["followed"] |= not rows[place]["keys"] and [place] < places_of(changes.facts[-1:])
    left = _waiting((rows[place] for place in live), before, of)
    return Kept(latest(changes, key), before, left, sum(file >= 0 for file, _ in live), len(obsolete))


def _waiting(rows: Iterable[dict], before: pa.Table, of: BatchFiles) -> pa.Table:
    """Return rows that wait: the table of before, if nothing changed."""
    waiting = pa.Table.from_pylist([*rows], WAITING)
    if waiting.equals(before):
        return before
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


def _without_operations(changes: Changes, files: Sequence[str]) -> list[str]:
    """Return the files of several rows, none of which has an operation."""
    faults = Counter(zip(changes.bad["file"].to_pylist(), pc.equal(changes.bad["column"], OP).to_pylist(), strict=True))
    good = {*pc.unique(changes.facts["file"]).to_pylist()}
    return [files[f] for (f, none), n in faults.items() if none and n > 1 and not (f in good or faults[f, False])]
