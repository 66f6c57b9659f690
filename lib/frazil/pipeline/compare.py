"""Compares tables of the lake with the source database, value by value: the database's texts are read as those of files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.core.exact import arrow_type
from frazil.core.lake_values import lake_values
from frazil.errors import safe
from frazil.iceberg.key_hashes import key_numbers
from frazil.iceberg.read_rows import live_rows
from frazil.pipeline import run
from frazil.results import Result, Results
from frazil.settings.column import Column

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from frazil.pipeline.lake import Lake
    from frazil.pipeline.steps import Table

Pairs = list[tuple[Column, str]]
"""The columns that both sides have, each with its name in the source."""


def compare(lake: Lake) -> Results:
    """Compare each table with the source database. Changes that are not applied yet count as differences."""
    from frazil.settings.source_database import connect

    engine = connect(lake.settings)
    try:
        return Results(run.each(lake, lambda table: compare_table(table, engine)))
    finally:
        engine.dispose()


def compare_table(table: Table, engine: Engine) -> Result:
    """Compare one table: every column that both sides have, of every row."""
    from frazil.discover.differences import Sides

    if not table.spec.key:
        return Result(table.source, "not compared", "its rows are changes, and the source's are not")
    table.refresh()
    pairs, left = _common(table, engine)
    schema = pa.schema([(column.name, arrow_type(column.lake_type)) for column, _ in pairs])
    source = partial(_source_rows, engine, table.source, pairs, schema)
    key = [name for name in table.spec.key if name in schema.names]
    masked = frozenset(column.name for column, _ in pairs if column.mask)
    counts, notes = Sides(source, partial(_lake_rows, table, schema), key, masked, key_numbers).compared()
    notes += [f"not compared: {', '.join(left)}"] if left else []
    return Result(table.source, "differs" if counts["differing"] else "equal", safe("; ".join(notes)), counts=counts)


def _common(table: Table, engine: Engine) -> tuple[Pairs, list[str]]:
    """Return the columns that both sides have, and the names of the others.

    A column that files added as a text is compared with texts alone: else it has what DMS made of the value.
    """
    import sqlalchemy as sa

    schema, name = table.source.split(".", 1)
    there = {c["name"].lower(): c for c in sa.inspect(engine).get_columns(name, schema=schema)}
    spec, stored = table.read_spec(), table.stored.metadata.schema().column_names
    added = table.lake.source.reader(spec).table.written.added
    texts = {known.name for known in table.known.columns if known.by == "files" and known.type == "string"}
    pairs = []
    for column in (c for c in spec.lake_columns if c.name in stored and c.name not in added):
        named = [there[n.lower()] for n in (column.name, *column.renamed_from) if n.lower() in there]
        if named and (column.name not in texts or isinstance(named[0]["type"], sa.String)):
            pairs.append((column, named[0]["name"]))
    compared = {column.name for column, _ in pairs}
    return pairs, [name for name in spec.lake_names if name not in compared]


def _source_rows(engine: Engine, source: str, pairs: Pairs, schema: pa.Schema) -> Iterator[pa.Table]:
    from frazil.discover.source_values import texts

    yield schema.empty_table()
    for block in texts(engine, source, pairs):
        yield pa.table([lake_values(c, t)[0] for (c, _), t in zip(pairs, block, strict=True)], schema=schema)


def _lake_rows(table: Table, schema: pa.Schema) -> Iterator[pa.Table]:
    stored = table.stored
    own = schema_to_pyarrow(stored.metadata.schema())
    fields = pa.schema([own.field(field.name).with_type(field.type) for field in schema])
    yield schema.empty_table()
    for file in stored.live_files.values():
        yield from live_rows(stored.io, file, stored.vectors.of(file), fields)
