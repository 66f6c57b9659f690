"""A collapsed batch, with only the last change of each key: its rows, in the driver or as a frame, and what was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil_old.config.lake_types import OPERATION_COLUMNS, lake_type
from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier, literal
from frazil_old.config.time_sql import from_micros
from frazil_old.core.bad_rows import OPERATIONS, SHOWN, BadRows
from frazil_old.core.changes import PLACE, Changes
from frazil_old.core.masks import masked
from frazil_old.engine.latency_sketch import Ages
from frazil_old.engine.read_files import FileToRead, PartitionRead
from frazil_old.lake.small_frames import of_arrow

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from frazil_old.engine.kept_batch import KeptBatch


OPERATION_SOURCES = ("commit_ts", "change_seq", "object", "number")
"""The columns from which a table that keeps every change has those after its own; see `OPERATION_COLUMNS`."""


@dataclass(frozen=True)
class Wanted:
    """What to return besides the last change per key."""

    rows_in_driver: bool = True
    """Whether the rows are collected in the driver; else they are a frame."""
    places: bool = False
    """Whether the rows have their `PLACE`."""
    most_bad: int = SHOWN
    """How many bad rows of each file are kept; all are counted."""
    read_here: bool = False
    """Whether this process reads the batch, however large it is."""


@dataclass(frozen=True)
class Collapsed:
    """The last change per key: `rows` in the driver (`op`, and the lake's columns `c0` …), or a `frame` for a MERGE.

    `counts_and_delays` are those of `Tally`. `files` are the batch's files, or partitions, in the order by which `bad`
    names them. `bounds` are the smallest and the largest first key, None if no literal can express them.
    `transient_keys` are those of `Latest`, in the form of the rows. `kept` is what the frame is made of, if Spark's
    tasks collapsed the batch; `release` frees it.
    """

    counts_and_delays: dict[str, Any]
    keys: int
    bad: BadRows
    files: Sequence[FileToRead | PartitionRead] = ()
    rows: pa.Table | None = None
    frame: DataFrame | None = None
    kept: KeptBatch | None = None
    bounds: tuple[Any, Any] = (None, None)
    transient_keys: pa.Table | DataFrame | None = None
    release: Callable[[], Any] = lambda: None


def lake_columns(latest: pa.Table, spec: TableSpec) -> dict[str, pa.Array]:
    """Return the columns of a table's rows, `c0` …, with the lake's types."""
    return {f"c{i}": masked(c, latest[f"new_{i}"].combine_chunks()) for i, c in enumerate(spec.columns)}


def with_stored_keys(rows: pa.Table, places: Sequence[int | None], spec: TableSpec) -> pa.Table:
    """Add `stored_key0` …, the keys under which rows are stored: those of the rows at `places`; null: the row's own key."""
    import pyarrow as pa

    at = pa.array(places, pa.int64())
    for i, key in enumerate(spec.key):
        rows = rows.append_column(f"stored_key{i}", rows[f"c{spec.names.index(key)}"].take(at))
    return rows


def as_micros(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return times as microseconds, others as they are: Spark would shift times by its session's zone."""
    import pyarrow as pa

    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


# --- frames for a MERGE


def frame_of(spark: SparkSession, rows: pa.Table | DataFrame, spec: TableSpec) -> DataFrame:
    """Return rows of the driver as the frame for a MERGE; a frame stays as it is."""
    import pyarrow as pa

    if not isinstance(rows, pa.Table):
        return rows
    for i, name in enumerate(rows.column_names):
        rows = rows.set_column(i, name, as_micros(rows[name]))
    return merge_rows(of_arrow(spark, rows), spec)


def merge_rows(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Return rows (`op`, `c0` …, times as microseconds) in the form of a MERGE:

    `op`, the row `after`, and its key `key0` …; also `place`, if the rows have one. Rows with `net` have only `after`
    and `net`. Tables that keep every change have their own columns instead. For rows that may lack columns, `missing`
    names these. `stored_key` is the key under which a row is stored, if it is another one.
    """
    values = lake_values(spec)
    row = ", ".join(f"{literal(c.name)}, {value}" for c, value in zip(spec.columns, values, strict=True))
    keys = [f"{values[spec.names.index(k)]} as key{i}" for i, k in enumerate(spec.key)]
    if OPERATION_SOURCES[0] in rows.columns:
        return _every_change(rows, spec, values)
    if "net" in rows.columns:
        return rows.selectExpr(f"named_struct({row}) as after", "net")
    more = [f"{place_sql()} as place"] if PLACE[0] in rows.columns else []
    more += [name for name in ("missing",) if name in rows.columns]
    if "stored_key0" in rows.columns:
        more.append(f"{_stored_key_sql(spec)} as stored_key")
    return rows.selectExpr("op", f"named_struct({row}) as after", *keys, *more)


def _every_change(rows: DataFrame, spec: TableSpec, values: Sequence[str]) -> DataFrame:
    """Return each change as a row of the table; a message is counted in its partition, as a row in its file."""
    columns = [f"{value} as {identifier(c.name)}" for c, value in zip(spec.columns, values, strict=True)]
    count = "cast(row_number() over (partition by object order by number) as int)"
    own = ("op", "timestamp_micros(commit_ts)", "change_seq", "object", count)
    named = [f"{value} as {name}" for name, value in zip(OPERATION_COLUMNS, own, strict=True)]
    return rows.selectExpr(*columns, *named)


def _stored_key_sql(spec: TableSpec) -> str:
    """Return the SQL of the key under which a row is stored; null if it is the row's own, or none is."""
    places = [spec.names.index(key) for key in spec.key]
    values = [from_micros(lake_type(spec.column(k)), f"stored_key{i}") for i, k in enumerate(spec.key)]
    key = ", ".join(f"{literal(name)}, {value}" for name, value in zip(spec.key, values, strict=True))
    same = " and ".join(f"stored_key{i} = c{place}" for i, place in enumerate(places))
    return f"if(stored_key0 is null or {same}, null, named_struct({key}))"


def place_sql() -> str:
    """Return the SQL of a row's place in its batch, in the form that the quarantine compares."""
    order, number = (f"lpad(cast({name} as string), 60, '0')" for name in PLACE)
    return f"named_struct('phase', 1L, 'object', {order}, 'row_no', {number})"


def lake_values(spec: TableSpec) -> list[str]:
    """Return the SQL of a table's columns, which are given as `c0` … with times as microseconds."""
    return [from_micros(lake_type(column), f"c{i}") for i, column in enumerate(spec.columns)]


def can_be_bound(spec: TableSpec) -> bool:
    """Return whether literals can express values of the first key: whole numbers, decimals and texts."""
    return lake_type(spec.column(spec.key[0])).startswith(("int", "bigint", "decimal", "string"))


def bounds(rows: pa.Table, spec: TableSpec) -> tuple[Any, Any]:
    """Return the smallest and the largest first key if literals can express them, else None, None."""
    import pyarrow.compute as pc

    if not can_be_bound(spec):
        return None, None
    found = pc.min_max(rows[f"c{spec.names.index(spec.key[0])}"]).as_py()
    return found["min"], found["max"]


class Tally:
    """A count of what was read: `most_bad` bad rows of each file are kept, and every `every`-th change has its delays."""

    def __init__(self, most_bad: int = SHOWN, every: int = 1):
        self.good: Counter[str] = Counter()
        self.bad, self.ages = BadRows(most_bad), Ages(every)

    @property
    def rows(self) -> int:
        """The number of good rows."""
        return self.good.total()

    def add(self, order: int, changes: Changes, written_at_s: float | np.ndarray) -> None:
        """Add a block of changes: its file's place in the order, and when DMS wrote them."""
        import pyarrow.compute as pc

        self.bad.add(order, changes.bad)
        self.ages.add(changes.rows, written_at_s)
        for found in pc.value_counts(changes.rows["op"]).to_pylist():
            self.good[found["values"]] += found["counts"]

    def counts_and_delays(self, out_of_sequence: int = 0, transient_keys: int = 0) -> dict[str, Any]:
        """Return the counts of a batch, bad rows included, what contradicts its order, and the points of its delays."""
        ops = {op: self.good[op] + self.bad.operations.get(op, 0) for op in OPERATIONS}
        counts = {"changes": self.rows + self.bad.count, "bad": self.bad.count, **ops}
        return counts | {"out_of_sequence": out_of_sequence, "transient_keys": transient_keys} | self.ages.points()

    def with_parts(self, parts: Iterable[Tally]) -> Tally:
        """Add the tallies of parts of the batch, and return the whole."""
        for part in parts:
            self.good += part.good
            self.bad.add_part(part.bad)
            self.ages.add_part(part.ages)
        return self
