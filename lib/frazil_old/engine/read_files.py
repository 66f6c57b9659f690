"""Read DMS's files into changes, block by block; the same code runs in a Spark task and in the driver.

Errors and histories that name keys find their rows here, too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import TableSpec
from frazil_old.core.bad_rows import BadRow, with_lines, with_values, wrong_width
from frazil_old.core.changes import Changes, type_csv, type_parquet
from frazil_old.core.csv import BLOCK, Dialect, Records, fields_of_lines, read_records, rows_by_table
from frazil_old.core.field_meaning import ReadRules
from frazil_old.core.field_roles import TABLE
from frazil_old.core.key_changes import moves, old_keys
from frazil_old.core.masks import masked
from frazil_old.core.parquet_types import with_valid_texts
from frazil_old.core.rows_of_table import table_named
from frazil_old.core.types import type_texts
from frazil_old.dms.endpoint import SourceTable
from frazil_old.dms.file_columns import file_layout, footer, has_header, require_comparable
from frazil_old.dms.file_integrity import refused_if_damaged
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.source_errors import SourceError
from frazil_old.dms.storage import chunks, each_of, is_s3, random_access

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq


@dataclass(frozen=True)
class FileToRead:
    """A file with its place in the order of its table's files, and the roles of its fields.

    `written_at_s` is when DMS wrote it, in epoch seconds; NaN: unknown.
    """

    path: str
    order: int
    roles: tuple[str, ...]
    dialect: Dialect = field(default_factory=Dialect)
    written_at_s: float = math.nan

    @property
    def is_parquet(self) -> bool:
        """Whether the file is Parquet, by its name."""
        return self.path.endswith(".parquet")


@dataclass(frozen=True)
class PartitionRead:
    """A partition with messages of a batch, and its place in the order of all: what `FileToRead` is for files."""

    path: str
    order: int
    name: str


@dataclass(frozen=True)
class ReadPlan:
    """How the files of one table are read: its spec, and the meaning of the texts in its fields."""

    spec: TableSpec
    rules: ReadRules = field(default_factory=ReadRules)


def plan_files(table: SourceTable, files: Sequence[DmsObject], phase: int) -> tuple[list[FileToRead], ReadPlan]:
    """Return how to read load files (phase 0) or change files (phase 1), in their order.

    Raises SourceError for a file whose columns contradict the spec, and LayoutError for an unknown layout.
    """
    on_s3, same = any(is_s3(f.path) for f in files), {}
    found = each_of(lambda numbered: _file(numbered[1], numbered[0], table, phase), [*enumerate(files)], on_s3)
    for n, file in enumerate(found):  # equal parts are kept once: each task of a load gets the list of all its files
        roles, dialect = same.setdefault(file.roles, file.roles), same.setdefault(file.dialect, file.dialect)
        found[n] = replace(file, roles=roles, dialect=dialect)
    return found, ReadPlan(table.spec, read_rules(table, phase))


def read_rules(table: SourceTable, phase: int) -> ReadRules:
    """Return the meaning of the texts in a table's load files (phase 0) or change files (phase 1)."""
    endpoint = table.endpoint
    return ReadRules(
        null=endpoint.null_value or "",
        not_carried=endpoint.no_sup_value if phase == CHANGE_PHASE else None,
        operations=endpoint.op_values,
        origin=table.mappings.origin(table.spec),
        table=table.target_name,
        of_load=phase != CHANGE_PHASE,
    )


def _file(file: DmsObject, order: int, table: SourceTable, phase: int) -> FileToRead:
    written = table.endpoint.date_partition.written_s(file.name) if phase == CHANGE_PHASE else math.nan
    roles = file_layout(table, phase, file)
    if file.is_parquet:
        require_comparable(table.spec, roles, [(f.name, f.type) for f in footer(file)], file.path)
        return FileToRead(file.path, order, roles, written_at_s=written)
    dialect = replace(table.endpoint.dialect, header=has_header(file, table.endpoint))
    return FileToRead(file.path, order, roles, dialect, written)


ROWS = 1 << 17
"""Rows of Parquet that are typed together."""


@dataclass(frozen=True)
class Extent:
    """How much of a file is read together: rows of Parquet, bytes of CSV. `most` bytes of CSV are read in all."""

    rows: int = ROWS
    block: int = BLOCK
    most: int | None = None


@dataclass(frozen=True)
class Block:
    """Records of a file, each with its number there, and the changes that they mean."""

    fields: pa.RecordBatch
    numbers: np.ndarray
    changes: Changes


def read_changes(file: FileToRead, plan: ReadPlan) -> Iterator[Changes]:
    """Yield a file's changes in order, and its bad rows; raise SourceError, which names the file, if it cannot be read."""
    for block in read_blocks(file, plan):
        yield block.changes


def read_blocks(file: FileToRead, plan: ReadPlan, extent: Extent = Extent()) -> Iterator[Block]:  # noqa: B008
    """Yield a file's records in order, with their changes; raise SourceError as `read_changes` does."""
    with refused_if_damaged(file.path):
        yield from _parquet(file, plan, extent) if file.is_parquet else _csv(file, plan, extent)


def count_tables(files: Sequence[FileToRead]) -> Counter[tuple[str, str]]:
    """Count the rows of files of all tables by the schema and the table that they name."""
    found: Counter[tuple[str, str]] = Counter()
    for file in files:
        with closing(chunks(file.path)) as pieces:
            found += rows_by_table(pieces, file.dialect)
    return found


def _csv(file: FileToRead, plan: ReadPlan, extent: Extent) -> Iterator[Block]:
    with closing(_pieces(file.path, extent)) as pieces:
        table = plan.rules.table if TABLE in file.roles else None
        for records in read_records(pieces, len(file.roles), file.dialect, file.path, extent.block, table):
            changes = type_csv(records.fields, records.numbers, file.roles, plan.spec, plan.rules)
            if changes.bad or records.wrong_width:
                changes = Changes(changes.rows, _bad_of_csv(file, plan, records, changes.bad))
            yield Block(records.fields, records.numbers, changes)


def _bad_of_csv(file: FileToRead, plan: ReadPlan, records: Records, bad: tuple[BadRow, ...]) -> tuple[BadRow, ...]:
    """Return the bad rows of a block in order, each with what the quarantine keeps of it."""
    import numpy as np
    import pyarrow as pa

    named = {w: table_named(w.line, file.roles, file.dialect, plan.rules) for w in records.wrong_width}
    wrong = [w for w, table in named.items() if table in (None, plan.rules.table)]
    if not bad and not wrong:
        return ()
    misshapen = [wrong_width(w, plan.spec, names_table=named[w] is not None) for w in wrong]
    places = np.searchsorted(records.numbers, [row.number for row in bad])
    fields = pa.Table.from_batches(
        [
            records.fields.take(pa.array(places, pa.int64())),
            fields_of_lines([w.line for w in wrong], len(file.roles), file.dialect),
        ]
    )
    whole = fields.combine_chunks().to_batches()[0]
    kept = with_lines([*bad, *misshapen], whole, file.roles, plan.spec, (plan.rules, file.dialect))
    return tuple(sorted(kept, key=lambda row: row.number))


def _parquet(file: FileToRead, plan: ReadPlan, extent: Extent) -> Iterator[Block]:
    import numpy as np
    import pyarrow as pa

    first = 1
    with _opened(file.path) as opened:
        for batch in map(with_valid_texts, opened.iter_batches(extent.rows, use_threads=False)):
            changes = type_parquet(batch, first, file.roles, plan.spec, plan.rules)
            if changes.bad:
                values = batch.take(pa.array([row.number - first for row in changes.bad]))
                bad = with_values(changes.bad, values, file.roles, plan.spec, plan.rules)
                changes = Changes(changes.rows, tuple(bad))
            yield Block(batch, np.arange(first, first + batch.num_rows), changes)
            first += batch.num_rows
        if first <= opened.metadata.num_rows:  # Arrow ends without a word where a column does
            raise pa.ArrowInvalid(f"{first - 1} of {opened.metadata.num_rows} rows can be read")


def _opened(path: str) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    return pq.ParquetFile(random_access(path), page_checksum_verification=True)


def _pieces(path: str, extent: Extent) -> Iterator[bytes]:
    """Yield a file's bytes; the storage chooses the size of each piece."""
    left = math.inf if extent.most is None else extent.most
    for piece in chunks(path, extent.block):
        if left <= 0:
            raise SourceError(
                f"{path}: a row is too long to be shown, or a quoted text does not end",
                "a run reads it to its end, and says which",
            )
        left -= len(piece)
        yield piece


@dataclass(frozen=True)
class FoundRow:
    """A row of a key: its number in its file, operation, commit time, old key (None: unchanged), and the lake's values.

    Times are texts, those of instants in UTC.
    """

    file: str
    number: int
    op: str
    commit_ts: str | None
    old_key: tuple[Any, ...] | None
    values: dict[str, Any]


def files_of_keys(files: Sequence[FileToRead], read: ReadPlan, keys: Sequence[Sequence[Any]]) -> list[list[str]]:
    """Return, for each key as the driver collects it (times as texts), the paths of the files that have a row of it."""
    import pyarrow.compute as pc

    found: list[list[str]] = [[] for _ in keys]
    for file in files:
        for changes in read_changes(file, read):
            for paths, key in zip(found, keys, strict=True):
                if file.path not in paths and pc.any(_has_key(_new_keys(changes.rows, read.spec), key)).as_py():
                    paths.append(file.path)
    return [sorted(paths) for paths in found]


def rows_of_key(file: FileToRead, read: ReadPlan, key: Sequence[Any]) -> Iterator[FoundRow]:
    """Yield a file's good rows of a key: those that have it, and those that an update moved away from it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    spec = read.spec
    for changes in read_changes(file, read):
        every = pa.Table.from_batches([changes.rows])
        moved, old = pa.array(moves(every, spec)), _masked_keys(old_keys(every, spec), spec)
        of_key = pc.or_(_has_key(_new_keys(every, spec), key), pc.and_(moved, _has_key(old, key)))
        rows = every.filter(of_key)
        values = [_shown(masked(c, rows[f"new_{i}"])) for i, c in enumerate(spec.columns)]
        old = [_shown(part.filter(of_key)) for part in old]
        times = rows["commit_ts"].cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        for i, is_moved in enumerate(moved.filter(of_key).to_pylist()):
            was = tuple(part[i] for part in old) if is_moved else None
            row = dict(zip(spec.names, (column[i] for column in values), strict=True))
            number, op = rows["number"][i].as_py(), rows["op"][i].as_py()
            yield FoundRow(file.path.rsplit("/", 1)[-1], number, op, times[i], was, row)


def typed_key(spec: TableSpec, key: Sequence[str]) -> list[pa.Scalar] | None:
    """Return a key that a person typed, in the types of its columns: bytes as hex digits, a masked value as its hash.

    None if a part is no value of its type.
    """
    import pyarrow as pa

    found = []
    for name, text in zip(spec.key, key, strict=True):
        column, texts = spec.column(name), pa.array([str(text)])
        values, misfit = (texts, None) if column.mask else type_texts(column, texts)
        if misfit is not None:
            return None
        found.append(values[0])
    return found


def _new_keys(rows: pa.RecordBatch | pa.Table, spec: TableSpec) -> list[pa.Array]:
    return _masked_keys([rows[f"new_{spec.names.index(name)}"] for name in spec.key], spec)


def _masked_keys(keys: Sequence[pa.Array], spec: TableSpec) -> list[pa.Array]:
    return [masked(spec.column(name), part) for name, part in zip(spec.key, keys, strict=True)]


def _has_key(keys: Sequence[pa.Array], key: Sequence[Any]) -> pa.Array:
    """Return which rows have a key, given the columns of their keys."""
    import pyarrow.compute as pc

    same = [pc.equal(part, _scalar(value, part.type)) for part, value in zip(keys, key, strict=True)]
    return reduce(pc.and_, same)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a value as the driver collects it in a column's type; a typed one stays as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(value, pa.Scalar):
        return value
    if pa.types.is_timestamp(kind) and kind.tz:
        return pc.assume_timezone(pa.scalar(value).cast(pa.timestamp("us")), "UTC")
    if isinstance(value, str):
        return pa.scalar(value).cast(kind)
    return pa.scalar(bytes(value) if isinstance(value, bytearray) else value, kind)


def _shown(values: pa.Array) -> list[Any]:
    """Return values for the driver: times as texts without zeros at their end."""
    import pyarrow as pa

    if pa.types.is_timestamp(values.type):
        texts = values.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        return [t and t.rstrip("0").rstrip(".") if t and "." in t else t for t in texts]
    if pa.types.is_date(values.type):
        return values.cast(pa.string()).to_pylist()
    return values.to_pylist()
