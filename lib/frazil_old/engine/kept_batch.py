"""A collapsed batch that Spark keeps: its rows as blocks of Arrow, and the key of each as a row of the JVM.

A join with the table needs no more than keys. So no other value enters the JVM, unless a MERGE writes the batch.
`DriverBatch` is a batch whose rows this process has, in the same terms.

Several tasks see the events of one row that had another key before. Each reports the events of keys that rows left or
reached. The driver follows the rows from key to key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil_old.core.key_changes import EVENT_PLACE, keys_at_first
from frazil_old.core.latest_per_key import Latest
from frazil_old.engine.collapsed_batch import as_micros, can_be_bound, lake_values, merge_rows
from frazil_old.engine.row_form import RowForm, in_batches, packed
from frazil_old.engine.tasks import results_of, values_of
from frazil_old.lake.data_file_writer import ROW_ID
from frazil_old.lake.small_frames import of_arrow

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


BUCKET_BITS = 32
"""The number of a row in its batch is its bucket, shifted by this, plus its place in the bucket."""


def moving_of_bucket(bucket: int, latest: Latest, rows: pa.Table, form: RowForm) -> pa.Table | None:
    """Return the moving events of a bucket, with the numbers and the keys of their rows; None: no key changed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if latest.moving is None:
        return None
    place = latest.moving["row"]
    number = pc.add(place, pa.scalar(bucket << BUCKET_BITS))
    keys = rows.select(form.key_columns).take(place.combine_chunks())
    found = latest.moving.select([*EVENT_PLACE, "deleted"]).append_column("n", number)
    for name in keys.column_names:
        found = found.append_column(name, keys[name])
    return found


def moved_rows(parts: Sequence[pa.Table], form: RowForm) -> pa.Table | None:
    """Return the rows that had another key before the batch: their number `n`, and number and key of their old one.

    These are `stored_key_n` and `stored_key0` …. None: no row moved. `parts` are the results of `moving_of_bucket`.
    """
    import pyarrow as pa

    if not parts:
        return None
    moving = pa.concat_tables(parts).sort_by([(name, "ascending") for name in EVENT_PLACE])
    numbers = moving["n"].to_pylist()
    at_first = keys_at_first(moving, numbers)
    if not at_first:
        return None
    event = {n: i for i, n in enumerate(numbers)}
    now = sorted(at_first)
    before = [at_first[n] for n in now]
    keys = moving.select(form.key_columns).take(pa.array([event[n] for n in before]))
    keys = keys.rename_columns([f"stored_key{i}" for i in range(len(form.key_columns))])
    return keys.append_column("n", pa.array(now)).append_column("stored_key_n", pa.array(before))


Write = Callable[[Iterator[tuple["pa.Table", "pa.Array | None"]]], Any]
"""Writes rows, given in parts with the ids that they keep (None: the table has no row ids)."""


@dataclass(frozen=True)
class KeptIds:
    """The ids that some rows of a batch keep, by the numbers of the rows in ascending order."""

    numbers: np.ndarray
    ids: np.ndarray

    def of_rows(self, first: int, count: int) -> pa.Array:
        """Return the ids of that many rows from a number on; null: a new row."""
        import numpy as np
        import pyarrow as pa

        start, end = np.searchsorted(self.numbers, [first, first + count])
        values, is_new = np.zeros(count, "int64"), np.ones(count, bool)
        at = self.numbers[start:end] - first
        values[at], is_new[at] = self.ids[start:end], False
        return pa.array(values, mask=is_new)


@dataclass(frozen=True)
class KeptBatch:
    """A frame of `kept_rows`, which Spark keeps, and the form of the rows in its blocks.

    Spark has the rows in `partitions`. `stored_keys` are the `moved_rows`, None if no key changed.
    """

    frame: DataFrame
    form: RowForm
    partitions: int
    stored_keys: pa.Table | None = None

    def reports(self) -> tuple[list[Any], int, tuple[Any, Any]]:
        """Run the job of the batch; return its reports, the number of keys, and the bounds of the first key.

        The bounds are None if no literal can express them.
        """
        from pyspark.sql import functions as F

        first = self.form.key_columns[0]
        has_ends = can_be_bound(self.form.spec)
        ends = (F.min(first), F.max(first)) if has_ends else (F.lit(None), F.lit(None))
        reports, keys, low, high = self.frame.agg(F.collect_list("report"), F.count("op"), *ends).first()
        return values_of(reports), keys, (low, high)

    def keys(self) -> DataFrame:
        """Return the number of each row (`n`), and its key (`key0` …) with the lake's types."""
        return _with_typed_keys(self.frame.where("op is not null"), self.form)

    def _blocks(self) -> DataFrame:
        return self.frame.where("block is not null and n is not null").select("n", "block")

    def moved(self) -> dict[int, int]:
        """Return, by the numbers of rows whose keys changed, those of the rows with the keys that they had before."""
        if self.stored_keys is None:
            return {}
        return dict(zip(self.stored_keys["n"].to_pylist(), self.stored_keys["stored_key_n"].to_pylist(), strict=True))

    def written(self, write: Write, row_ids: KeptIds | None) -> list[Any]:
        """Return what `write` returns for the rows of each task, which keep these ids; None: the table has no row ids."""
        sent = None if row_ids is None else self.frame.sparkSession.sparkContext.broadcast(row_ids)

        def parts(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, pa.Array | None]]:
            for number, rows in _rows_of_blocks(batches):
                yield rows, None if sent is None else sent.value.of_rows(number, len(rows))

        try:
            return results_of(self._blocks(), lambda batches: write(parts(batches)))
        finally:
            if sent is not None:
                sent.destroy()

    def written_after_ids(self, write: Write, row_ids: DataFrame) -> list[Any]:
        """Return what `write` returns for the rows of each task; `row_ids` are the `kept_row_ids`."""
        return results_of(self._with_row_ids(row_ids), lambda batches: write(_rows_and_ids(batches)))

    def _with_row_ids(self, row_ids: DataFrame) -> DataFrame:
        """Return blocks (`n`, `block`), each after the ids of its rows (`n`, `_row_id`) and in the same partition."""
        from pyspark.sql import functions as F

        ids = row_ids.select("n", F.lit(None).cast("binary").alias("block"), ROW_ID)
        both = self._blocks().withColumn(ROW_ID, F.lit(None).cast("bigint")).unionByName(ids)
        bucket = F.shiftright("n", BUCKET_BITS)
        return both.repartition(self.partitions, bucket).sortWithinPartitions(bucket, F.isnotnull("block"), "n")

    def kept_row_ids(self, found: DataFrame) -> DataFrame:
        """Return the ids that rows keep (`n`, `_row_id`), of rows that `key_scan.found_rows` found by their keys.

        A row whose key changed keeps the id that is stored under the old key. A row without an id gets one: its table
        became v3, and no commit has given it any.
        """
        from pyspark.sql import functions as F

        ids = found.select("n", ROW_ID).where(F.isnotnull(ROW_ID))
        if self.stored_keys is None:
            return ids
        moved = F.broadcast(of_arrow(ids.sparkSession, self.stored_keys.select(["n", "stored_key_n"]).combine_chunks()))
        of_moved = moved.join(ids.withColumnRenamed("n", "stored_key_n"), "stored_key_n")
        others = ids.join(of_moved.select(F.col("stored_key_n").alias("n")), "n", "left_anti")
        others = others.join(of_moved.select("n"), "n", "left_anti")
        return others.unionByName(of_moved.select("n", ROW_ID))

    def rows(self) -> DataFrame:
        """Return the rows in the form of a MERGE; each use unpacks the blocks again."""
        return self._unpacked(self._blocks(), self.stored_keys)

    def transient_keys(self) -> DataFrame:
        """Return the rows of `Latest.transient_keys`, in the same form."""
        return self._unpacked(self.frame.where("block is not null and n is null").select("n", "block"), None)

    def _unpacked(self, blocks: DataFrame, stored_keys: pa.Table | None) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = self.form.schema
        for field in [] if stored_keys is None else stored_keys.drop_columns(["n", "stored_key_n"]).schema:
            schema = schema.append(field)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, rows in _rows_of_blocks(batches):
                yield from in_batches(_with_stored_keys(rows, number, stored_keys))

        return merge_rows(blocks.mapInArrow(run, from_arrow_schema(schema)), self.form.spec)


@dataclass(frozen=True)
class DriverBatch:
    """A collapsed batch whose rows (`op`, `c0` …) this process has."""

    spark: SparkSession
    latest: pa.Table
    form: RowForm

    def keys(self) -> DataFrame:
        """Return the number of each row (`n`), and its key (`key0` …) with the lake's types."""
        import numpy as np
        import pyarrow as pa

        columns = {name: as_micros(self.latest[name]) for name in self.form.key_columns}
        numbered = pa.table({"n": np.arange(len(self.latest)), **columns})
        return _with_typed_keys(of_arrow(self.spark, numbered), self.form)

    def moved(self) -> dict[int, int]:
        """Return, by the numbers of rows whose keys changed, those of the rows with the keys that they had before."""
        if "stored_key0" not in self.latest.column_names:
            return {}
        before = [f"stored_key{i}" for i in range(len(self.form.key_columns))]
        now, then = (
            zip(*[as_micros(self.latest[name]).to_pylist() for name in names], strict=True)
            for names in (self.form.key_columns, before)
        )
        numbers = {key: n for n, key in enumerate(now)}
        return {n: numbers[key] for n, key in enumerate(then) if key in numbers}

    def written(self, write: Write, row_ids: KeptIds | None) -> list[Any]:
        """Return what `write` returns for the rows, which keep these ids; None: the table has no row ids."""
        count = len(self.latest)
        return [write(iter([(self.latest, None if row_ids is None else row_ids.of_rows(0, count))]))]


def _with_typed_keys(rows: DataFrame, form: RowForm) -> DataFrame:
    return rows.selectExpr("n", *[f"{value} as key{i}" for i, value in enumerate(_key_values(form))])


def _key_values(form: RowForm) -> list[str]:
    values = lake_values(form.spec)
    return [values[form.spec.names.index(name)] for name in form.spec.key]


def _with_stored_keys(rows: pa.Table, first: int | None, stored_keys: pa.Table | None) -> pa.Table:
    """Add the keys under which rows are stored (`stored_key0` …), if keys changed; `first` is the number of the first row."""
    import numpy as np
    import pyarrow as pa

    if stored_keys is None:
        return rows
    numbers = stored_keys["n"].to_numpy()
    start, end = np.searchsorted(numbers, [first, first + len(rows)])
    at = np.full(len(rows), -1)
    at[numbers[start:end] - first] = np.arange(start, end)
    places = pa.array(at, mask=at < 0)
    for name in stored_keys.drop_columns(["n", "stored_key_n"]).column_names:
        rows = rows.append_column(name, stored_keys[name].take(places))
    return rows


def rows_here(blocks: pa.Table, form: RowForm, stored_keys: pa.Table | None = None) -> pa.Table:
    """Return the rows of blocks (`n`, `block`) in one table, with times as times."""
    import pyarrow as pa

    parts = [_with_stored_keys(rows, first, stored_keys) for first, rows in _rows_of_blocks(blocks.to_batches())]
    return form.typed(pa.concat_tables(parts or [form.schema.empty_table()]).combine_chunks())


def _rows_of_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the number of its first row, and the rows of each block."""
    import pyarrow as pa

    for batch in batches:
        for number, block in zip(batch["n"].to_pylist(), batch["block"], strict=True):
            yield number, pa.ipc.open_stream(block.as_buffer()).read_all()


def _rows_and_ids(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Yield the rows of each block with their ids; the ids come first, in order, and blocks in order too."""
    import numpy as np

    numbers, ids = np.array([], "int64"), np.array([], "int64")
    for batch in batches:
        some = batch.filter(batch["block"].is_null())
        numbers, ids = np.append(numbers, some["n"].to_numpy()), np.append(ids, some[ROW_ID].to_numpy())
        for first, rows in _rows_of_blocks(iter([batch.filter(batch["block"].is_valid())])):
            yield rows, KeptIds(numbers, ids).of_rows(first, len(rows))
            used = np.searchsorted(numbers, first + len(rows))
            numbers, ids = numbers[used:], ids[used:]


def schema_of(form: RowForm) -> pa.Schema:
    """Return the columns of a kept batch.

    A row has either a report of a task, or a number (`n`), an operation and a key, or a number and a block. A block
    without a number has rows of transient keys.
    """
    import pyarrow as pa

    keys = [form.schema.field(name) for name in form.key_columns]
    return pa.schema([("report", pa.binary()), ("n", pa.int64()), ("op", pa.string()), *keys, ("block", pa.binary())])


def kept_rows(bucket: int, rows: pa.Table, form: RowForm, with_keys: bool) -> Iterator[pa.RecordBatch]:
    """Yield a bucket's rows in the columns of `schema_of`: blocks with whole rows, and their keys if wanted."""
    import numpy as np
    import pyarrow as pa

    number = bucket << BUCKET_BITS
    for some in in_batches(rows):
        if with_keys:
            numbers = pa.array(np.arange(number, number + some.num_rows))
            keys = {name: some[name] for name in ("op", *form.key_columns)}
            yield _filled(form, some.num_rows, {"n": numbers, **keys})
        block = packed(pa.Table.from_batches([some]))
        yield _filled(form, 1, {"n": pa.array([number]), "block": pa.array([block], pa.binary())})
        number += some.num_rows


def transient_key_rows(rows: pa.Table, form: RowForm) -> Iterator[pa.RecordBatch]:
    """Yield the rows of transient keys in the columns of `schema_of`."""
    import pyarrow as pa

    if len(rows):
        yield _filled(form, 1, {"block": pa.array([packed(rows)], pa.binary())})


def report_row(report: bytes, form: RowForm) -> pa.RecordBatch:
    """Return a task's report in the columns of `schema_of`."""
    import pyarrow as pa

    return _filled(form, 1, {"report": pa.array([report], pa.binary())})


def _filled(form: RowForm, count: int, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return columns with nulls for the others."""
    import pyarrow as pa

    schema = schema_of(form)
    arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
