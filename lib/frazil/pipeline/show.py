"""What the value of a step shows in a cell: a sentence, and a small table of its files or of its first rows."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import singledispatch
from typing import Any

import pandas as pd
import pyarrow as pa

from frazil.core.changes import COMMITTED, OP
from frazil.dms.position import Position, read_position
from frazil.errors import many
from frazil.iceberg.live_files import Delete, LiveFile
from frazil.iceberg.snapshots import POSITION
from frazil.pipeline.batch import Batch, BatchChanges, BatchColumns, BatchLatest, Commit, WrittenBatch

SAMPLE, WIDEST, LONGEST = 10, 12, 60
"""The most rows, columns, and signs of a value that a cell shows."""
Rows = list[dict[str, Any]]


def shown(value: Any) -> pd.DataFrame:
    """Return what the value of a step shows."""
    from frazil.report.tables import with_sentence

    table, *sentence = _told(value)
    return with_sentence(pd.DataFrame(table), *sentence)


@singledispatch
def _told(value: Any) -> tuple[Rows, str]:
    raise TypeError(type(value))


@_told.register
def _(batch: Batch) -> tuple[Rows, str]:
    files = [
        {"file": f.path, "after_row": 0, "to_row": "end", "mb": f.size / 1e6, "landed": _time(f.landed)}
        for f in batch.files.values()
    ]
    files[0]["after_row"], files[-1]["to_row"] = batch.begin, batch.end or "end"
    counts = f"{batch.kind} of {many(len(files), 'file')}, {many(len(batch.left), 'file')} left"
    return files, f"{batch.table}: {counts}; position {_place(batch.planned)} → {_place(batch.after)}"


@_told.register
def _(columns: BatchColumns) -> tuple[Rows, str]:
    file = next(filter(None, columns.of_files), None)
    types = {column.name: column.lake_type for column in columns.spec.columns}
    roles = zip(file.names, file.reading.roles, strict=True) if file else ()
    rows = [{"in_file": n, "role": r or "not read", "type": types.get(r.partition(" ")[2], "")} for n, r in roles]
    steps = [" ".join(step.values()) for step in (columns.plan.steps if columns.plan else ())]
    return rows, f"{columns.spec.source}: {', '.join(steps) or 'the columns stay as they are'}"


@_told.register
def _(found: BatchChanges) -> tuple[Rows, str]:
    changes, of = found.changes, found.files
    facts, paths = of.original(changes.facts.slice(0, SAMPLE)).to_pylist(), of.paths
    places = [{"op": f[OP], "committed": f.get(COMMITTED), "file": paths[f["file"]], "row": f["number"]} for f in facts]
    counts = {one["values"]: one["counts"] for one in changes.facts[OP].value_counts().to_pylist()}
    told = [many(counts.get(op, 0), noun) for op, noun in (("I", "insert"), ("U", "update"), ("D", "delete"))]
    sentence = f"{found.batch.table}: {', '.join(told)}, {many(len(changes.bad), 'bad row')}"
    return [place | row for place, row in zip(places, _sample(changes.rows), strict=True)], sentence


@_told.register
def _(found: BatchLatest) -> tuple[Rows, str]:
    latest, deleted = found.latest, found.latest.deleted
    gone = iter(_sample(latest.keys.filter(pa.array(deleted))) if deleted.any() else ())
    stay = iter(_sample(latest.rows))
    rows = [{"does": "delete", **next(gone)} if d else {"does": "write", **next(stay)} for d in deleted[:SAMPLE]]
    told = f"{many(int((~deleted).sum()), 'row')} to write, {many(int(deleted.sum()), 'row')} to delete"
    return rows, f"{found.changes.batch.table}: {told}; {many(len(found.kept.waiting), 'row')} in quarantine afterwards"


@_told.register
def _(written: WrittenBatch) -> tuple[Rows, str]:
    change = written.written.change
    both: list[tuple[str, LiveFile | Delete]] = [("rows", file) for file in change.add]
    both += [("deletes", delete) for delete in change.add_deletes]
    files = [{"file": f.path.rpartition("/")[2], "holds": what, "rows": f.rows, "bytes": f.size} for what, f in both]
    size = sum({file.path: file.size for _, file in both}.values())
    told = f"{written.batch.table}: {many(len(files), 'file')}, {many(size, 'byte')}"
    return files[:SAMPLE], f"{told}; no reader sees them before the commit"


@_told.register
def _(commit: Commit) -> tuple[Rows, str]:
    position = read_position(commit.snapshot.summary[POSITION], commit.table)
    row = {"committed": _time(commit.snapshot.committed_ms / 1000), **commit.counts, "seconds": commit.seconds}
    return [row], f"{commit.table}: snapshot {commit.snapshot.id}, position {_place(position)}"


def _sample(rows: pa.Table) -> Rows:
    few = rows.slice(0, SAMPLE).select(rows.column_names[:WIDEST]).to_pylist()
    return [{n: v if v is None else str(v)[:LONGEST] for n, v in row.items()} for row in few]


def _place(position: Position) -> str:
    return f"{position.last or 'none'}" + (f" row {position.rows:,}" if position.rows else "")


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
