"""A small batch of files or messages, read, ordered and collapsed in this process: the last change per key."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.core.key_numbers import key_numbers
from frazil.core.latest_per_key import latest_per_key
from frazil.core.masks import masked
from frazil.core.messages import MessageNames, type_messages
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import CHANGE_PHASE
from frazil.dms.newest import moment
from frazil.dms.objects import DmsObject
from frazil.dms.transactions import NAME
from frazil.engine.file_plan import plan_files
from frazil.engine.held_messages import HeldMessage
from frazil.engine.read_files import FileToRead, ReadPlan, read_changes

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

MOST_MB = 4
"""Larger batches of files are read by Spark, on all cores."""


@dataclass(frozen=True)
class Collapsed:
    """The last change per key: `op` and the row's columns `c0` … as the lake has them; and what a Spark job would have observed."""

    rows: pa.Table
    seen: dict[str, Any]


def why_not(spec: TableSpec) -> str:
    """Return why Spark reads the batches of a table whatever they hold; an empty text if it need not."""
    return "rows have no key, or may be partial" if spec.policy != "key" or spec.optional else ""


def are_small(files: Sequence[DmsObject], endpoint: Endpoint) -> bool:
    """Tell whether change files are a small batch, of whole rows of one table."""
    few = sum(f.size for f in files) <= MOST_MB * 10**6
    return few and endpoint.no_sup_value is None and not any(NAME.match(f.name) for f in files)


def collapse_files(
    spec: TableSpec, sent: tuple[Endpoint, Mappings], files: Sequence[DmsObject], quantiles: Sequence[float]
) -> Collapsed | None:
    """Return the last change per key of change files, and these `quantiles` of their delays.

    None where Spark has to judge them: for a bad row, a key that a row only passed, or no row at all. Raises FrazilError for a file that cannot be read.
    """
    in_order = sorted(files, key=lambda f: f.name)
    planned, read = plan_files(spec, *sent, in_order, CHANGE_PHASE)
    blocks, ages = [], _Ages()
    for file, listed in zip(planned, in_order, strict=True):
        rows = _rows_of(file, read)
        if rows is None:
            return None
        blocks += rows
        for block in rows:
            ages.add(block, moment(listed.name).replace(tzinfo=UTC).timestamp())
    return _collapsed(blocks, spec, ages.points(quantiles))


def collapse_messages(
    spec: TableSpec, names: MessageNames, messages: Sequence[HeldMessage], partitions: int, quantiles: Sequence[float]
) -> Collapsed | None:
    """Return the same of a table's own messages, which lie in so many partitions."""
    import numpy as np

    in_order = sorted(messages, key=lambda m: (m.partition, m.place))
    numbers = np.arange(len(in_order))  # places of Kinesis have more digits than any number has
    changes = type_messages([m.message for m in in_order], numbers, spec, names, partitions)
    if changes.bad:
        return None
    ages = _Ages()
    ages.add(changes.rows, _written_at_s(in_order))
    return _collapsed([changes.rows], spec, ages.points(quantiles))


def _written_at_s(messages: Sequence[HeldMessage]) -> np.ndarray:
    """Return when DMS built messages, in seconds; NaN where one does not tell it."""
    import numpy as np

    def seconds(built: str | None) -> float:
        try:
            at = datetime.fromisoformat(built or "")
        except ValueError:
            return math.nan
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()

    return np.array([seconds(m.message.built) for m in messages])


def _collapsed(blocks: list[pa.RecordBatch], spec: TableSpec, delays: dict[str, str | None]) -> Collapsed | None:
    import pyarrow as pa

    changes = pa.Table.from_batches(blocks) if blocks else None
    if not changes:
        return None
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
    columns = {f"c{i}": masked(c, latest.rows[f"new_{i}"].combine_chunks()) for i, c in enumerate(spec.columns)}
    return Collapsed(pa.table({"op": latest.rows["op"].combine_chunks(), **columns}), seen | delays)


def with_key_numbers(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return collapsed rows with the numbers of their keys, `key0` …, by which a row delta finds the old ones."""
    import pyarrow as pa

    keys = [rows[f"c{spec.names.index(k)}"].combine_chunks() for k in spec.key]
    for i, numbers in enumerate(key_numbers(keys)):
        rows = rows.append_column(f"key{i}", pa.array(numbers))
    return rows


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


class _Ages:
    """Two delays of changes in milliseconds: source commit → 1970, and source commit → DMS wrote the file or built the message."""

    def __init__(self) -> None:
        self.age: list[np.ndarray] = []
        self.dms: list[np.ndarray] = []

    def add(self, block: pa.RecordBatch, written_at_s: float | np.ndarray) -> None:
        """Take in changes, which DMS wrote at one time or each at its own; NaN is a time that nobody tells."""
        import numpy as np
        import pyarrow as pa

        known = block["commit_ts"].is_valid().to_numpy(zero_copy_only=False)
        committed_ms = np.floor_divide(block["commit_ts"].drop_null().cast(pa.int64()).to_numpy(), 1000)
        self.age.append(-committed_ms)
        written_ms = np.round(np.broadcast_to(written_at_s, len(known))[known] * 1000)
        told = ~np.isnan(written_ms)
        self.dms.append(written_ms[told].astype("int64") - committed_ms[told])

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
