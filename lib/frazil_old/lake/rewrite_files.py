"""Rewrites data files of a table: their live rows, in order or sorted as the table is, go to new data files and keep their row ids.

It needs only the table's metadata, so it runs in a Spark task or in this process. It commits nothing. Before it returns,
it reads old and new files again and compares every value.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from frazil_old.lake.data_file_writer import LAST_UPDATED, LINEAGE, ROW_ID, DataFileWriter
from frazil_old.lake.same_rows import ChangedRowsError, require_same_rows

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

ROWS_AT_ONCE = 1 << 16
ORDER = "frazil.order"
"""In a file group's summary, if rows kept their order: the names of its new files, each with the old files whose rows it has."""


def file_name(path: str) -> str:
    """Return a path without its folder."""
    return path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class OldFile:
    """A data file, the bitmap of its deleted rows (empty: none), and what its rows inherit: first row id and sequence number."""

    path: str
    deleted: bytes = b""
    first_row_id: int | None = None
    sequence: int | None = None


@dataclass(frozen=True)
class RewritePlan:
    """Data files to rewrite as one table's, whose metadata and storage properties are given.

    `has_row_ids`: the table has format v3. The new files have about `target_bytes`.
    """

    metadata: str
    io_properties: dict[str, str]
    files: tuple[OldFile, ...]
    target_bytes: int
    has_row_ids: bool


@dataclass(frozen=True)
class Rewritten:
    """New data files in Iceberg's JSON form, and how many live rows each old one had, in order.

    `places` says where each row went if the rows were sorted: base64 of 32-bit numbers. Empty: the order is kept.
    """

    entries: list[dict[str, Any]]
    live: dict[str, int]
    places: str = ""

    def new_places(self) -> np.ndarray | None:
        """Return for each old row its place among the new ones; None if the order is kept."""
        import numpy as np

        return np.frombuffer(base64.b64decode(self.places), np.int32) if self.places else None

    def order(self) -> str:
        """Return which old files each new file has the rows of, in order, as JSON; `{}` if rows did not keep their order."""
        left, found = [path for path, rows in self.live.items() if rows], {}
        for entry in self.entries if not self.places else ():
            olds, count = [], entry["record-count"]
            while left and self.live[left[0]] <= count:
                olds.append(left.pop(0))
                count -= self.live[olds[-1]]
            if count:  # an old file's rows are in two new files
                return "{}"
            found[file_name(entry["file-path"])] = [file_name(path) for path in olds]
        return json.dumps(found)

    def moved(self, arrived: dict[str, list[int]]) -> dict[str, list[int]]:
        """Return the positions in new files of rows of old files, given by their numbers among the live ones."""
        import numpy as np

        starts = dict(zip(self.live, np.cumsum([0, *self.live.values()]).tolist(), strict=False))
        places = np.array([starts[path] + row for path, rows in arrived.items() for row in rows], "int64")
        if self.places:
            places = self.new_places()[places]
        ends = np.cumsum([entry["record-count"] for entry in self.entries])
        file, found = np.searchsorted(ends, places, side="right"), {}
        for i, entry in enumerate(self.entries):
            if len(mine := places[file == i]):
                found[entry["file-path"]] = (mine - (ends[i] - entry["record-count"])).tolist()
        return found


def rewrite_files(plan: RewritePlan, stopped: Callable[[], bool] = lambda: False) -> Rewritten:
    """Rewrite files and return the new ones. Nothing is left if it fails, or if `stopped` returns true meanwhile.

    Raise ChangedRowsError if the new files have other rows, and InterruptedError if it was stopped.
    """
    rewriting = _Rewriting(plan, stopped)
    try:
        return rewriting.run()
    except BaseException:
        rewriting.writer.discard()
        raise


def _sort_keys(metadata: TableMetadata) -> list[tuple[str, str, str]]:
    """Return the columns by which a table's files are sorted, as Arrow takes them: up to the first that is transformed."""
    from pyiceberg.transforms import IdentityTransform

    order = next(o for o in metadata.sort_orders if o.order_id == metadata.default_sort_order_id)
    plain = takewhile(lambda f: isinstance(f.transform, IdentityTransform), order.fields)
    name_of, words = metadata.schema().find_column_name, {"asc": "ascending", "desc": "descending"}
    return [
        (
            name_of(f.source_id),
            words[f.direction.value],
            "at_start" if f.null_order.value == "nulls-first" else "at_end",
        )
        for f in plain
    ]


class _Rewriting:
    """One rewrite, with the table's storage and the writer of its new files."""

    def __init__(self, plan: RewritePlan, stopped: Callable[[], bool]):
        from pyiceberg.io import load_file_io
        from pyiceberg.table.metadata import TableMetadataUtil

        metadata = TableMetadataUtil.parse_raw(plan.metadata)
        properties = {**metadata.properties, "write.target-file-size-bytes": str(plan.target_bytes)}
        self.plan, self.stopped, self.order = plan, stopped, _sort_keys(metadata)
        self.io: FileIO = load_file_io(plan.io_properties, metadata.location)
        self.writer = DataFileWriter(
            metadata.model_copy(update={"properties": properties}), self.io, lineage=plan.has_row_ids
        )
        self.live: dict[str, int] = {}

    def run(self) -> Rewritten:
        kept, places = None, ""
        if self.order:
            kept, places = self._sorted()
        for rows in kept.to_batches(ROWS_AT_ONCE) if kept is not None else self._old_rows():
            self.writer.write(rows)
        entries = self.writer.close()
        old = iter(kept.to_batches()) if kept is not None else self._old_rows()
        new = (rows for entry in entries for rows in self._rows_of(OldFile(entry["file-path"])))
        require_same_rows(old, new)
        return Rewritten(entries, self.live, places)

    def _sorted(self) -> tuple[pa.Table, str]:
        """Return the live rows sorted, and the new place of each row in base64."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = pa.Table.from_batches(self._old_rows(), self.writer.file_schema)
        order = pc.sort_indices(rows, self.order).to_numpy()
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        return rows.take(pa.array(order)), base64.b64encode(places.tobytes()).decode()

    def _old_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of the old files, and count those of each."""
        for file in self.plan.files:
            self.live[file.path] = 0
            for rows in self._rows_of(file):
                self.live[file.path] += rows.num_rows
                yield rows

    def _rows_of(self, file: OldFile) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of a data file in the columns of new files."""
        import pyarrow.parquet as pq

        is_live, first = _live_mask(file.deleted), 0
        with self.io.new_input(file.path).open() as source:
            for batch in pq.ParquetFile(source).iter_batches(ROWS_AT_ONCE, use_threads=False):
                if self.stopped():
                    raise InterruptedError(file.path)
                rows = self._projected(batch, file, first)
                first, some = first + len(batch), is_live(first, len(batch))
                rows = rows if some is None else rows.filter(some)
                if rows.num_rows:
                    yield rows

    def _projected(self, batch: pa.RecordBatch, file: OldFile, first: int) -> pa.RecordBatch:
        """Return rows of a data file with the columns of new files: found by field id, with ids that the rows inherit."""
        import pyarrow as pa

        by_id = {_field_id(field): i for i, field in enumerate(batch.schema)}
        schema, arrays = self.writer.file_schema, []
        for field in schema:
            at = by_id.get(_field_id(field))
            values = pa.nulls(len(batch), field.type) if at is None else batch.column(at)
            if field.name in LINEAGE and _field_id(field) == LINEAGE[field.name]:
                values = _inherited(values, field.name, file, first)
            arrays.append(values.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _field_id(field: pa.Field) -> int:
    """Return a column's field id; raise ChangedRowsError for a file without them."""
    number = (field.metadata or {}).get(b"PARQUET:field_id")
    if number is None:
        raise ChangedRowsError(f"column {field.name} of a data file has no field id")
    return int(number)


def _live_mask(deleted: bytes) -> Callable[[int, int], pa.Array | None]:
    """Return the function that says which of `count` rows from `first` on are live; None: all."""
    import numpy as np
    import pyarrow as pa
    from pyroaring import BitMap64

    positions = BitMap64.deserialize(deleted) if deleted else BitMap64()
    gone = np.array(positions.to_array(), "int64")

    def mask(first: int, count: int) -> pa.Array | None:
        start, end = np.searchsorted(gone, [first, first + count])
        if start == end:
            return None
        live = np.ones(count, bool)
        live[gone[start:end] - first] = False
        return pa.array(live)

    return mask


def _inherited(values: pa.Array, name: str, file: OldFile, first: int) -> pa.Array:
    """Return row ids or sequence numbers with what rows without their own inherit from their file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    values = values.cast(pa.int64())
    if name == ROW_ID and file.first_row_id is not None:
        start = file.first_row_id + first
        return pc.coalesce(values, pa.array(np.arange(start, start + len(values))))
    if name == LAST_UPDATED and file.first_row_id is not None:
        return pc.fill_null(values, file.sequence)
    return values
