"""What the value of a step shows in a cell: a sentence, and a small table of its files or of its first rows.

The values are those of `pipeline.batch`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa

from frazil.core.changes import COMMITTED, OP
from frazil.dms.position import Position
from frazil.errors import many
from frazil.report.tables import with_sentence
from frazil.results import Shown

SAMPLE, WIDEST, LONGEST = 10, 12, 60
"""The most rows, columns, and signs of a value that a cell shows."""
Rows = list[dict[str, Any]]


class Step(Shown):
    """What a step came to: `value` is what the table's own step returned, or the Results that say why there is nothing."""

    def __init__(self, value: Any):
        self.value, self._shown = value, value.to_pandas()

    def to_pandas(self) -> pd.DataFrame:
        """Return what a cell shows, also when the value is gone."""
        return self._shown


def shown(value: Any) -> pd.DataFrame:
    """Return what the value of a step shows."""
    table, sentence = _OF[type(value).__name__](value)
    return with_sentence(pd.DataFrame(table), sentence)


def _of_batch(batch: Any) -> tuple[Rows, str]:
    files = [
        {"file": f.path, "after_row": 0, "to_row": "end", "mb": f.size / 1e6, "landed": _time(f.landed)}
        for f in batch.files.values()
    ]
    files[0]["after_row"], files[-1]["to_row"] = batch.begin, batch.end or "end"
    counts = f"{batch.kind} of {many(len(files), 'file')}, {many(len(batch.left), 'file')} left"
    return files, f"{batch.table}: {counts}; position {_place(batch.planned)} → {_place(batch.after)}"


def _of_columns(columns: Any) -> tuple[Rows, str]:
    file = next(filter(None, columns.files.columns), None)
    types = {column.name: column.lake_type for column in columns.spec.columns}
    roles = zip(file.names, file.reading.roles, strict=True) if file else ()
    rows = [{"in_file": n, "role": r or "not read", "type": types.get(r.partition(" ")[2], "")} for n, r in roles]
    steps = [" ".join(step.values()) for step in (columns.plan.steps if columns.plan else ())]
    return rows, f"{columns.spec.source}: {', '.join(steps) or 'the columns stay as they are'}"


def _of_changes(found: Any) -> tuple[Rows, str]:
    changes, of = found.changes, found.columns.files
    facts, paths = of.original(changes.facts.slice(0, SAMPLE)).to_pylist(), of.paths
    places = [{"op": f[OP], "committed": f.get(COMMITTED), "file": paths[f["file"]], "row": f["number"]} for f in facts]
    counts = {one["values"]: one["counts"] for one in changes.facts[OP].value_counts().to_pylist()}
    told = [many(counts.get(op, 0), noun) for op, noun in (("I", "insert"), ("U", "update"), ("D", "delete"))]
    sentence = f"{found.batch.table}: {', '.join(told)}, {many(len(changes.bad), 'bad row')}"
    return [place | row for place, row in zip(places, _sample(changes.rows), strict=True)], sentence


def _of_latest(found: Any) -> tuple[Rows, str]:
    latest, deleted = found.latest, found.latest.deleted
    gone = iter(_sample(latest.keys.filter(pa.array(deleted))) if deleted.any() else ())
    stay = iter(_sample(latest.rows))
    rows = [{"does": "delete", **next(gone)} if d else {"does": "write", **next(stay)} for d in deleted[:SAMPLE]]
    told = f"{many(int((~deleted).sum()), 'row')} to write, {many(int(deleted.sum()), 'row')} to delete"
    return rows, f"{found.changes.batch.table}: {told}; {many(len(found.kept.waiting), 'row')} in quarantine afterwards"


def _of_written(written: Any) -> tuple[Rows, str]:
    change = written.written.change
    both: list[tuple[str, Any]] = [("rows", file) for file in change.add]
    both += [("deletes", delete) for delete in change.add_deletes]
    files = [{"file": f.path.rpartition("/")[2], "holds": what, "rows": f.rows, "bytes": f.size} for what, f in both]
    size = sum({file.path: file.size for _, file in both}.values())
    told = f"{written.batch.table}: {many(len(files), 'file')}, {many(size, 'byte')}"
    return files[:SAMPLE], f"{told}; no reader sees them before the commit"


def _of_commit(commit: Any) -> tuple[Rows, str]:
    row = {"committed": _time(commit.snapshot.committed_ms / 1000), **commit.counts, "seconds": commit.seconds}
    return [row], f"{commit.table}: snapshot {commit.snapshot.id}, position {_place(commit.position)}"


def _sample(rows: pa.Table) -> Rows:
    few = rows.slice(0, SAMPLE).select(rows.column_names[:WIDEST]).to_pylist()
    return [{n: v if v is None else str(v)[:LONGEST] for n, v in row.items()} for row in few]


def _place(position: Position) -> str:
    return f"{position.last or 'none'}" + (f" row {position.rows:,}" if position.rows else "")


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


_OF: dict[str, Callable[[Any], tuple[Rows, str]]] = {
    "Batch": _of_batch, "BatchColumns": _of_columns, "BatchChanges": _of_changes,
    "BatchLatest": _of_latest, "WrittenBatch": _of_written, "Commit": _of_commit,
}  # fmt: skip
