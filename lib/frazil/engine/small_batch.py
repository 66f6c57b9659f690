"""A small batch of change files, read, ordered and collapsed in this process: its rows as a row delta takes them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.core.key_numbers import has_numbers, key_numbers
from frazil.core.latest_per_key import latest_per_key
from frazil.core.masks import masked
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import CHANGE_PHASE
from frazil.dms.newest import moment
from frazil.dms.objects import DmsObject
from frazil.dms.transactions import NAME
from frazil.engine.file_plan import plan_files
from frazil.engine.read_files import FileToRead, ReadPlan, read_changes

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

MOST_MB = 4
"""Larger batches are read by Spark, on all cores."""


@dataclass(frozen=True)
class Collapsed:
    """The last change per key: `op`, the key's numbers `key0` …, the row's columns `c0` …; and what a Spark job would have observed."""

    rows: pa.Table
    seen: dict[str, Any]


def why_not(spec: TableSpec, endpoint: Endpoint, files: Sequence[DmsObject]) -> str:
    """Return why such files are read by Spark whatever they hold; an empty text if they need not be."""
    if not files or sum(f.size for f in files) > MOST_MB * 10**6:
        return "they are no files, or not small"
    if any(NAME.match(f.name) for f in files):
        return "a file holds rows of several tables"
    if spec.policy != "key" or spec.optional or endpoint.no_sup_value is not None:
        return "rows have no key, or may be partial"
    return "" if has_numbers(spec) else "the key has a type that only Spark writes as the key index has it"


def collapse_files(
    spec: TableSpec, sent: tuple[Endpoint, Mappings], files: Sequence[DmsObject], quantiles: Sequence[float]
) -> Collapsed | None:
    """Return the last change per key of change files, and these `quantiles` of their delays.

    None where Spark has to judge them: for a bad row, a key that a row only passed, or no row at all. Raises FrazilError for a file that cannot be read.
    """
    import pyarrow as pa

    in_order = sorted(files, key=lambda f: f.name)
    planned, read = plan_files(spec, *sent, in_order, CHANGE_PHASE)
    blocks, ages = [], _Ages()
    for file, listed in zip(planned, in_order, strict=True):
        rows = _rows_of(file, read)
        if rows is None:
            return None
        blocks += rows
        ages.add(rows, moment(listed.name).replace(tzinfo=UTC).timestamp())
    if not blocks:
        return None
    changes = pa.Table.from_batches(blocks)
    latest = latest_per_key(changes, spec)
    if latest.reused:
        return None
    seen = {
        "changes": len(changes),
        "bad": 0,
        **_operations(changes),
        "out_of_sequence": latest.out_of_sequence,
        "passed": 0,
    }
    return Collapsed(_as_row_delta(latest.rows, spec), seen | ages.points(quantiles))


def _rows_of(file: FileToRead, read: ReadPlan) -> list[pa.RecordBatch] | None:
    blocks = []
    for changes in read_changes(file, read):
        if changes.bad:
            return None
        if changes.rows.num_rows:
            blocks.append(changes.rows)
    return blocks


def _operations(changes: pa.Table) -> dict[str, int]:
    import pyarrow.compute as pc

    counted = {row["values"]: row["counts"] for row in pc.value_counts(changes["op"].combine_chunks()).to_pylist()}
    return {op: counted.get(op, 0) for op in ("I", "U", "D")}


def _as_row_delta(latest: pa.Table, spec: TableSpec) -> pa.Table:
    import pyarrow as pa

    columns = [masked(c, latest[f"new_{i}"].combine_chunks()) for i, c in enumerate(spec.columns)]
    numbers = key_numbers([columns[spec.names.index(k)] for k in spec.key])
    named = {f"key{i}": pa.array(n) for i, n in enumerate(numbers)} | {f"c{i}": c for i, c in enumerate(columns)}
    return pa.table({"op": latest["op"].combine_chunks(), **named})


class _Ages:
    """Two delays of changes in milliseconds: source commit → 1970, and source commit → DMS wrote the file."""

    def __init__(self) -> None:
        self.age: list[np.ndarray] = []
        self.dms: list[np.ndarray] = []

    def add(self, blocks: list[pa.RecordBatch], written_at_s: float) -> None:
        """Take in the changes of a file."""
        import numpy as np
        import pyarrow as pa

        for block in blocks:
            known = block["commit_ts"].drop_null().cast(pa.int64()).to_numpy()
            committed_ms = np.floor_divide(known, 1000)
            self.age.append(-committed_ms)
            self.dms.append(round(written_at_s * 1000) - committed_ms)

    def points(self, quantiles: Sequence[float]) -> dict[str, str | None]:
        """Return the points of both as JSON arrays; None where no change has a commit time."""
        return {"age": _points(self.age, quantiles), "dms": _points(self.dms, quantiles)}


def _points(delays: list[np.ndarray], quantiles: Sequence[float]) -> str | None:
    import numpy as np

    ordered = np.sort(np.concatenate(delays)) if delays else np.array([])
    if not len(ordered):
        return None
    places = [max(math.ceil(q * len(ordered)), 1) - 1 for q in quantiles]
    return json.dumps([int(ordered[p]) for p in places])
