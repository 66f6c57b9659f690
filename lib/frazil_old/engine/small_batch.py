"""A small batch of files, read, ordered and collapsed in this process: the last change per key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from frazil_old.config.spec import TableSpec
from frazil_old.core.changes import PLACE, Changes, in_file, no_changes
from frazil_old.core.key_changes import keys_at_first
from frazil_old.core.key_numbers import key_numbers
from frazil_old.core.latest_per_key import latest_per_key, net_rows, transient_events
from frazil_old.core.partial_rows import fill
from frazil_old.dms.endpoint import Endpoint, SourceTable
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.file_order import in_order
from frazil_old.dms.listing import DmsObject
from frazil_old.engine.collapsed_batch import Collapsed, Tally, Wanted, bounds, lake_columns, with_stored_keys
from frazil_old.engine.read_files import plan_files, read_changes

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

MOST_MB, MOST_PACKED_MB = 32, 4
"""Spark's tasks read larger batches of files, on all cores. A gzip or Parquet file holds many times its own size."""


def must_be_small(spec: TableSpec, endpoint: Endpoint) -> bool:
    """Return whether only this process reads a table's batches: those of partial rows, and those of whole rows compared."""
    return spec.policy == "multiset" or endpoint.no_sup_value is not None


def are_small(files: Sequence[DmsObject]) -> bool:
    """Return whether change files are a small batch."""
    packed = sum(f.size for f in files if f.is_parquet or f.name.endswith(".gz"))
    return sum(f.size for f in files) <= MOST_MB << 20 and packed <= MOST_PACKED_MB << 20


def collapse_files(table: SourceTable, files: Sequence[DmsObject], wanted: Wanted) -> Collapsed:
    """Return the last change per key of change files, and their bad rows.

    Raises FrazilError for a file that cannot be read.
    """
    planned, read = plan_files(table, in_order(files), CHANGE_PHASE)
    spec, tally = table.spec, Tally(wanted.most_bad)
    parts = ((changes, f.order, f.written_at_s) for f in planned for changes in read_changes(f, read))
    changes = numbered(parts, spec, tally)
    collapse = (
        collapse_net if spec.policy == "multiset" else collapse_rows if read.rules.not_carried is None else _filled
    )
    return replace(collapse(changes, spec, wanted, tally), files=planned)


def numbered(parts: Iterable[tuple[Changes, int, float | np.ndarray]], spec: TableSpec, tally: Tally) -> pa.Table:
    """Return good changes with their `PLACE`, and count all of them.

    Each part is some changes, their place in the order, and when DMS wrote them.
    """
    import pyarrow as pa

    tables = []
    for changes, order, written_at_s in parts:
        tally.add(order, changes, written_at_s)
        tables.append(pa.Table.from_batches([in_file(changes.rows, order)]))
    none = pa.Table.from_batches([in_file(no_changes(spec), 0)])
    return pa.concat_tables(tables or [none], promote_options="default")


def collapse_rows(changes: pa.Table, spec: TableSpec, wanted: Wanted, tally: Tally) -> Collapsed:
    """Return the last change per key of changes, which are in order and have their `PLACE`."""
    latest = latest_per_key(changes, spec)
    counts = tally.counts_and_delays(latest.out_of_sequence, len(latest.transient_keys))
    rows = collapsed_columns(latest.rows, spec, PLACE if wanted.places else ())
    transient = collapsed_columns(latest.transient_keys, spec, ())
    if latest.moving is not None:
        at_first = keys_at_first(latest.moving, latest.moving["row"].to_pylist())
        rows = with_stored_keys(rows, [at_first.get(n) for n in range(len(rows))], spec)
    return Collapsed(counts, len(rows), tally.bad, rows=rows, bounds=bounds(rows, spec), transient_keys=transient)


def _filled(changes: pa.Table, spec: TableSpec, wanted: Wanted, tally: Tally) -> Collapsed:
    """Return the same for rows that may lack columns: what no change of the batch carries stays as it is stored."""
    import pyarrow as pa

    filled = fill(changes, spec)
    transient, out_of_sequence = transient_events(filled.steps, spec)
    counts = tally.counts_and_delays(out_of_sequence, len(transient))
    rows = collapsed_columns(filled.rows, spec, ())
    rows = rows.append_column("missing", pa.array([names or None for names in filled.missing], pa.list_(pa.string())))
    columns = lake_columns(filled.stored_keys, spec)
    for i, key in enumerate(spec.key):
        rows = rows.append_column(f"stored_key{i}", columns[f"c{spec.names.index(key)}"])
    return Collapsed(counts, len(rows), tally.bad, rows=rows, transient_keys=collapsed_columns(transient, spec, ()))


def collapse_net(changes: pa.Table, spec: TableSpec, wanted: Wanted, tally: Tally) -> Collapsed:
    """Return the distinct rows of a table without a key, each with the number of copies that it gains or loses (`net`)."""
    import pyarrow as pa

    counts = tally.counts_and_delays()
    rows = net_rows(changes, spec)
    names = [f"c{i}" for i in range(len(spec.names))]
    copies = pa.table({**lake_columns(rows, spec), "net": rows["net"].combine_chunks()})
    net = copies.group_by(names).aggregate([("net", "sum")]).rename_columns([*names, "net"])
    return Collapsed(counts, len(net), tally.bad, rows=net)


def collapsed_columns(rows: pa.Table, spec: TableSpec, more: Sequence[str]) -> pa.Table:
    """Return changes as `op`, the lake's columns `c0` …, and some `more` of their columns."""
    import pyarrow as pa

    others = {name: rows[name].combine_chunks() for name in more}
    return pa.table({"op": rows["op"].combine_chunks(), **lake_columns(rows, spec), **others})


def for_row_delta(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return collapsed rows with the numbers of their keys, `key_number0` …, by which a row delta finds the old rows.

    `stored_key_number0` … are those of the keys under which rows are stored, if a key changed.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = rows.drop_columns([name for name in PLACE if name in rows.column_names])
    keys = [rows[f"c{spec.names.index(k)}"].combine_chunks() for k in spec.key]
    for i, numbers in enumerate(key_numbers(keys)):
        rows = rows.append_column(f"key_number{i}", pa.array(numbers))
    if "stored_key0" in rows.column_names:
        stored = [rows[f"stored_key{i}"].combine_chunks() for i in range(len(keys))]
        known = stored[0].is_valid()
        for i, numbers in enumerate(key_numbers([s.filter(known) for s in stored])):
            stored_numbers = pc.replace_with_mask(pa.nulls(len(rows), pa.int64()), known, pa.array(numbers))
            rows = rows.append_column(f"stored_key_number{i}", stored_numbers)
        rows = rows.drop_columns([f"stored_key{i}" for i in range(len(keys))])
    return rows
