"""A small batch of files or messages, read, ordered and collapsed in this process: the last change per key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec
from frazil.core.key_numbers import key_numbers
from frazil.core.latest_per_key import latest_per_key
from frazil.core.messages import MessageNames, seconds_of, type_messages
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import CHANGE_PHASE
from frazil.dms.newest import moment
from frazil.dms.objects import DmsObject
from frazil.dms.transactions import NAME
from frazil.engine.collapsed import Ages, Collapsed, bounds, lake_columns, operations
from frazil.engine.file_plan import plan_files
from frazil.engine.held_messages import HeldMessage
from frazil.engine.read_files import FileToRead, ReadPlan, read_changes

if TYPE_CHECKING:
    import pyarrow as pa

MOST_MB, MOST_PACKED_MB = 32, 4
"""Spark's tasks read larger batches of files, on all cores. A gzip or Parquet file holds many times its own size."""


def why_not(spec: TableSpec) -> str:
    """Return why Spark reads all batches of a table; empty if it need not."""
    return "rows have no key, or may be partial" if spec.policy != "key" or spec.optional else ""


def are_small(files: Sequence[DmsObject]) -> bool:
    """Return whether change files are a small batch."""
    packed = sum(f.size for f in files if f.is_parquet or f.name.endswith(".gz"))
    return sum(f.size for f in files) <= MOST_MB * 10**6 and packed <= MOST_PACKED_MB * 10**6


def are_plain(files: Sequence[DmsObject], endpoint: Endpoint) -> bool:
    """Return whether change files hold whole rows of one table."""
    return endpoint.no_sup_value is None and not any(NAME.match(f.name) for f in files)


def collapse_files(
    spec: TableSpec, sent: tuple[Endpoint, Mappings], files: Sequence[DmsObject], quantiles: Sequence[float]
) -> Collapsed | None:
    """Return the last change per key of change files, and these `quantiles` of their delays.

    None if Spark has to judge them: for a bad row, a key that a row only passed, or no row at all. Raises FrazilError
    for a file that cannot be read.
    """
    in_order = sorted(files, key=lambda f: f.name)
    planned, read = plan_files(spec, *sent, in_order, CHANGE_PHASE)
    blocks, ages = [], Ages()
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
    """Return the same for a table's own messages, given the number of their partitions."""
    import numpy as np
    import pyarrow as pa

    in_order = sorted(messages, key=lambda m: (m.partition, m.place))
    numbers = np.arange(len(in_order))  # Kinesis's sequence numbers are too long for any number type
    changes = type_messages([m.message for m in in_order], numbers, spec, names, partitions)
    if changes.bad:
        return None
    ages = Ages()
    ages.add(changes.rows, seconds_of(pa.array([m.message.built for m in in_order], pa.string())))
    return _collapsed([changes.rows], spec, ages.points(quantiles))


def _collapsed(blocks: list[pa.RecordBatch], spec: TableSpec, delays: dict[str, str | None]) -> Collapsed | None:
    import pyarrow as pa

    changes = pa.Table.from_batches(blocks) if blocks else None
    if not changes:
        return None
    latest = latest_per_key(changes, spec)
    if latest.reused:
        return None
    seen = {"changes": len(changes), "bad": 0, **operations(changes["op"].combine_chunks())}
    seen |= {"out_of_sequence": latest.out_of_sequence, "passed": 0, **delays}
    rows = pa.table({"op": latest.rows["op"].combine_chunks(), **lake_columns(latest.rows, spec)})
    return Collapsed(seen, len(rows), rows, bounds=bounds(rows, spec))


def with_key_numbers(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return collapsed rows with the numbers of their keys, `key0` …, by which a row delta finds the old rows."""
    import pyarrow as pa

    if "key0" in rows.column_names:
        return rows
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
