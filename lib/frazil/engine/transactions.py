"""Files of all tables (PreserveTransactions): each row is `op, table, schema, …`, and one pass gives each table its rows."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.row_blocks import BLOCK, Block, Dialect
from frazil.dms.places import places_of

SHARED_BLOCK = 8 * BLOCK
"""The size of blocks whose rows are of several tables: each table's share is parsed alone."""


def split_by_table(block: Block, dialect: Dialect) -> tuple[dict[tuple[str, str], Block], Block]:
    """Return the rows of each schema and table, and the rows that name none: these may be anybody's."""
    offsets = np.append(block.begins, len(block.text)).astype("int32")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block.text)]
    rows = pa.Array.from_buffers(pa.binary(), len(block.numbers), buffers)
    names = pc.struct_field(pc.extract_regex(rows, _head(dialect, b'"' in block.text)), "names").dictionary_encode()
    known: dict[tuple[str, str], int] = {}
    tables = [_table(text, dialect) for text in names.dictionary.to_pylist()]
    of_code = [known.setdefault(table, len(known)) if table else -1 for table in tables]
    numbers = np.array([*of_code, -1])[names.indices.fill_null(len(of_code)).to_numpy(zero_copy_only=False)]
    parts = zip(known, places_of(numbers, len(known)), strict=True)
    return {name: _taken(block, rows, own) for name, own in parts}, _taken(block, rows, np.flatnonzero(numbers < 0))


def _head(dialect: Dialect, quoted: bool) -> str:
    """Return the pattern of a row's first three fields, of which it keeps the names; without quotes it is faster."""
    delimiter = rf"\x{ord(dialect.delimiter):02x}"
    field = rf'(?:"(?:[^"]|"")*"|[^{delimiter}"\r\n]*)' if dialect.quotes and quoted else rf"[^{delimiter}\r\n]*"
    return rf"^{field}{delimiter}(?P<names>{field}{delimiter}{field})(?:{delimiter}|[\r\n])"


def _table(names: bytes, dialect: Dialect) -> tuple[str, str] | None:
    """Return the schema and the table that a row names, however it writes them; None: it names none."""
    try:
        quoting: Any = csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE
        table, schema = next(csv.reader([names.decode()], delimiter=dialect.delimiter, quoting=quoting))
    except (UnicodeDecodeError, csv.Error):
        return None
    return None if {table, schema} & {"", dialect.null} else (schema, table)


def _taken(block: Block, rows: pa.Array, places: np.ndarray) -> Block:
    """Return some rows of a block as a block."""
    taken = rows.take(pa.array(places, pa.int64()))
    _, offsets, data = taken.buffers()
    begins = np.frombuffer(offsets, "int32", len(places) + 1)[:-1].astype("int64")
    text = data.to_pybytes() if data is not None else b""
    return Block(text, block.numbers[places], begins, begins + (block.stops - block.begins)[places])
