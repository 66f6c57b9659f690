"""Read one of DMS's files into changes, block by block; the same code runs in a Spark task and in the driver."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.core.bad_rows import fields_of_lines, with_lines, with_values
from frazil.core.changes import SCHEMA, TABLE, BadRow, Changes, FieldRules, type_columns, type_records, wrong_width
from frazil.core.csv import BLOCK, Records, read_records, rows_by_table
from frazil.core.parquet import with_valid_texts
from frazil.dms.file_checks import refused_if_damaged
from frazil.dms.listing import SourceError
from frazil.dms.storage import chunks, is_s3, read
from frazil.engine.read_plan import FileToRead, ReadPlan

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

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
            changes = type_records(records.fields, records.numbers, file.roles, plan.spec, plan.rules)
            if changes.bad or records.wrong_width:
                changes = Changes(changes.rows, _bad_of_csv(file, plan, records, changes.bad))
            yield Block(records.fields, records.numbers, changes)


def _bad_of_csv(file: FileToRead, plan: ReadPlan, records: Records, bad: tuple[BadRow, ...]) -> tuple[BadRow, ...]:
    """Return the bad rows of a block in order, each with what the quarantine keeps of it."""
    import numpy as np
    import pyarrow as pa

    named = {w: table_named(w.line, file, plan.rules) for w in records.wrong_width}
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


def table_named(line: str, file: FileToRead, rules: FieldRules) -> tuple[str, str] | None:
    """Return the schema and the table that a line names, if it is in a file of all tables; None if it names none.

    In a file of one table every line is that table's. Where an added column names the table, such a line names none.
    """
    if TABLE not in file.roles:
        return None if rules.origin else rules.table
    if '"' in line:
        fields = [column[0].as_py() for column in fields_of_lines([line], len(file.roles), file.dialect).columns]
    else:  # much faster, and half of a file's lines may be other tables'
        fields = line.split(file.dialect.delimiter, len(file.roles))
    schema, table = ((fields[i] if i < len(fields) else "") for i in map(file.roles.index, (SCHEMA, TABLE)))
    return (schema, table) if schema and table else None


def _parquet(file: FileToRead, plan: ReadPlan, extent: Extent) -> Iterator[Block]:
    import numpy as np
    import pyarrow as pa

    first = 1
    with _opened(file.path) as opened:
        for batch in map(with_valid_texts, opened.iter_batches(extent.rows, use_threads=False)):
            changes = type_columns(batch, first, file.roles, plan.spec, plan.rules)
            if changes.bad:
                values = batch.take(pa.array([row.number - first for row in changes.bad]))
                bad = with_values(changes.bad, values, file.roles, plan.spec, plan.rules)
                changes = Changes(changes.rows, tuple(bad))
            yield Block(batch, np.arange(first, first + batch.num_rows), changes)
            first += batch.num_rows
        if first <= opened.metadata.num_rows:  # Arrow ends without a word where a column does
            raise pa.ArrowInvalid(f"{first - 1} of {opened.metadata.num_rows} rows can be read")


def _opened(path: str) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    source: pa.NativeFile | str = pa.BufferReader(read(path)) if is_s3(path) else path
    return pq.ParquetFile(source, page_checksum_verification=True)


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
