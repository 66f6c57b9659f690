"""Bad rows that wait: which may wait, and what a batch applies beside them. `waiting_keys.in_order` has the rules."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.changes import OP, Changes
from frazil.core.latest import Latest, latest
from frazil.engine.read import BadRowError
from frazil.engine.replay_files import BatchFiles
from frazil.errors import NAMED, FrazilError, many
from frazil.pipeline.waiting_keys import BEHIND, Touch, bad_rows, good_rows, in_order, key_texts, places_of, touches
from frazil.settings.settings_model import Settings
from frazil.settings.spec import TableSpec

MOST_BYTES = 64 << 20
"""The most bytes of rows that wait: each batch that changes them writes them all."""


class TooManyBadRowsError(FrazilError, code="too-many-bad-rows"):
    """A batch has more bad rows than may wait. Correct the spec or the settings; or raise max_bad_rows."""


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
    """Raise BadRowError or TooManyBadRowsError if the bad rows of a batch may not wait."""
    bad = changes.bad
    if not len(bad):
        return
    first, problem = bad.slice(0, NAMED).to_pylist(), f"{spec.source}: {many(len(bad), 'bad row')}"
    shown = []
    for row in first:
        column = f"column '{row['column']}': " if row["column"] else ""
        shown.append(f"{files[row['file']]} row {row['number']}: {column}{row['reason']}")
    if len(bad) > 1 and not len(changes.rows) and pc.all(pc.equal(bad["column"], OP)).as_py():
        cure = "correct IncludeOpForFullLoad or CdcHasOp in the endpoint's JSON, or the columns in the spec"
        raise BadRowError(f"{problem}, and no row has an operation in its place", cure, shown)
    cures = [cure for cure in map(_wider, first) if cure][:1]
    cure = "; or ".join([*cures, f"correct {spec.file}, or fetch a damaged file again"])
    left_out = "leaves such rows out of the lake until they are replayed"
    if (spec.on_bad_rows or settings.on_bad_rows) == "stop":
        raise BadRowError(problem, f"{cure}; or on_bad_rows: quarantine {left_out}", shown)
    if hidden := [*(column.name for column in spec.columns if column.mask), *spec.exclude]:
        why = f"rows of a table with masked or excluded columns ({', '.join(hidden)}) may not wait"
        raise BadRowError(f"{problem}, and {why}", cure, shown)
    most = settings.max_bad_rows if spec.max_bad_rows is None else spec.max_bad_rows
    if len(bad) > most:
        cure = f"{cure}; or raise max_bad_rows, which {left_out}"
        raise TooManyBadRowsError(f"{problem}, and max_bad_rows is {most:,}", cure, shown)


def _wider(row: dict) -> str:
    """Return the cure of a number for which the type of its column can become wider; empty for other faults."""
    wider = "INT8" if re.match(r"(?i)'[+-]?\d{1,18}' does not fit U?INT[124] ", row["reason"]) else ""
    number = re.match(r"(?i)'[+-]?0*(\d+)\.?(\d*)' does not fit NUMERIC\(\d+, *(\d+)\) ", row["reason"])
    if number and len(number[2]) <= int(number[3]):
        wider = f"NUMERIC({len(number[1]) + int(number[3])},{number[3]})"
    return f"write type: {wider} for {row['column']}, which needs no new load" if wider else ""


def replayable(waiting: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that may be replayed, and those that stay: changes came after them, and their keys were unknown."""
    return waiting.filter(pc.invert(waiting["followed"])), waiting.filter(waiting["followed"])


def doubted_keys(last: Latest, places: np.ndarray) -> set[str]:
    """Return the keys of partial rows whose stored rows are missing; `NoStoredRowError.places` names the rows."""
    keys = last.keys.filter(pa.array(~last.deleted))
    return {*key_texts(keys.take(pa.array(places))).to_pylist()}


def kept(before: pa.Table, changes: Changes, of: BatchFiles, key: Sequence[str], doubted: Collection[str] = ()) -> Kept:
    """Return what a batch applies, and the rows that wait after it; `before` are those that waited, and are not replayed.

    Changes of `doubted` keys wait if they lack columns. Without a `key` all bad rows wait, as those of a load do.
    """
    places = [(-1, n) for n in range(len(before))] + places_of(changes.bad)
    if key and not (places or of.replay or doubted):
        return Kept(latest(changes, key), before, before, 0)
    rows = pa.concat_tables([before, bad_rows(of, changes)])
    if not key:
        return Kept(None, before, _waiting(rows, before, of), len(changes.bad))
    waiting = [Touch(place, keys, BEHIND) for place, keys in zip(places, rows["keys"].to_pylist(), strict=True)]
    touching = [*touches(changes, of, {key for row in waiting for key in row.keys}, {*doubted})]
    aside, obsolete = in_order([*waiting, *touching])
    if aside:
        behind = changes.facts.take(pa.array([*aside]))
        keys = {touch.place: touch.keys for touch in touching}
        rows, places = pa.concat_tables([rows, good_rows(of, behind, aside.values(), keys)]), places + places_of(behind)
        others = pa.array(np.delete(np.arange(len(changes.rows)), [*aside]))
        changes = replace(changes, rows=changes.rows.take(others), facts=changes.facts.take(others))
    last = max(places_of(changes.facts[-1:]), default=(-1, -1))
    live = [n for n in sorted(range(len(places)), key=places.__getitem__) if places[n] not in obsolete]
    left, passed = rows.take(pa.array(live, pa.int64())), pa.array([places[n] < last for n in live], pa.bool_())
    followed = pc.or_(left["followed"], pc.and_(passed, pc.equal(pc.list_value_length(left["keys"]), 0)))
    left = left.set_column(left.column_names.index("followed"), "followed", followed)
    added = sum(places[n][0] >= 0 for n in live)
    return Kept(latest(changes, key), before, _waiting(left, before, of), added, len(obsolete))


def _waiting(waiting: pa.Table, before: pa.Table, of: BatchFiles) -> pa.Table:
    """Return rows that wait: the table of before, if nothing changed."""
    if waiting.equals(before):
        return before
    if waiting.nbytes > MOST_BYTES:
        problem = f"{of.reader.table.spec.source}: rows of {waiting.nbytes >> 20} MB would wait, and {MOST_BYTES >> 20} MB may"
        raise QuarantineFullError(problem, "replay rows that wait, or discard them")
    return waiting
