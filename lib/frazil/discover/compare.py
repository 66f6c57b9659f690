"""Compares a table of the lake with the source database, value by value: the database's texts are read as those of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from sqlalchemy import Engine, String, inspect

from frazil.core.exact import arrow_type
from frazil.core.masks import lake_values
from frazil.discover.differences import Numbers, Sides
from frazil.discover.source_values import Pairs, texts
from frazil.errors import safe
from frazil.results import Result
from frazil.settings.settings_model import Settings
from frazil.settings.source_database import connect


@contextmanager
def comparison(settings: Settings, numbers: Numbers) -> Iterator[Callable[[Any], Result]]:
    """Give what compares a table with the source database that the settings name; `numbers` makes numbers of keys."""
    engine = connect(settings)
    try:
        yield partial(compare_table, engine=engine, numbers=numbers)
    finally:
        engine.dispose()


def compare_table(table: Any, engine: Engine, numbers: Numbers) -> Result:
    """Compare every column that both sides have, of every row. Changes that are not applied yet count as differences."""
    if not table.spec.key:
        return Result(table.source, "not compared", "its rows are changes, and the source's are not")
    table.refresh()
    pairs, left = _common(table, engine)
    schema = pa.schema([(column.name, arrow_type(column.lake_type)) for column, _ in pairs])
    source, lake = partial(_source_rows, engine, table.source, pairs, schema), partial(_lake_rows, table, schema)
    key = [name for name in table.spec.key if name in schema.names]
    masked = frozenset(column.name for column, _ in pairs if column.mask)
    counts, notes = Sides(source, lake, key, masked, numbers).compared()
    notes += [f"not compared: {', '.join(left)}"] if left else []
    return Result(table.source, "differs" if counts["differing"] else "equal", safe("; ".join(notes)), counts=counts)


def _common(table: Any, engine: Engine) -> tuple[Pairs, list[str]]:
    """Return the columns that both sides have, and the names of the others.

    A column that files added as a text is compared with texts alone: else it has what DMS made of the value.
    """
    schema, name = table.source.split(".", 1)
    there = {c["name"].lower(): c for c in inspect(engine).get_columns(name, schema=schema)}
    spec, stored = table.read_spec(), table.stored.metadata.schema().column_names
    added = table.lake.source.reader(spec).table.written.added
    as_texts = {known.name for known in table.known.columns if known.by == "files" and known.type == "string"}
    pairs = []
    for column in (c for c in spec.lake_columns if c.name in stored and c.name not in added):
        named = [there[n.lower()] for n in (column.name, *column.renamed_from) if n.lower() in there]
        if named and (column.name not in as_texts or isinstance(named[0]["type"], String)):
            pairs.append((column, named[0]["name"]))
    compared = {column.name for column, _ in pairs}
    return pairs, [name for name in spec.lake_names if name not in compared]


def _source_rows(engine: Engine, source: str, pairs: Pairs, schema: pa.Schema) -> Iterator[pa.Table]:
    yield schema.empty_table()
    for block in texts(engine, source, pairs):
        yield pa.table([lake_values(c, t)[0] for (c, _), t in zip(pairs, block, strict=True)], schema=schema)


def _lake_rows(table: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    yield schema.empty_table()
    yield from table.blocks(schema)
