"""Compares tables of the lake with the source database, value by value.

The database gives values as texts, which become the lake's types by the rules that files are read by. Memory holds 32 bytes
for each row of a side; the rows that differ are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.core.exact import arrow_type
from frazil.core.lake_values import lake_values
from frazil.errors import HIDDEN, many, safe
from frazil.iceberg.key_hashes import key_numbers
from frazil.iceberg.read_rows import live_rows
from frazil.pipeline import run
from frazil.results import Result, Results
from frazil.settings.column import Column
from frazil.settings.source_database import connect

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.table import Table

SHOWN, LONGEST = 3, 40
"""The most keys that a note shows, and characters of a value."""
Pairs = Sequence[tuple[Column, str]]
"""The columns that both sides have, each with its name in the source."""
Blocks = Callable[[], Iterator[pa.Table]]
"""Reads the rows of one side, in blocks."""


def compare(lake: Lake) -> Results:
    """Compare each table with the source database. Changes that are not applied yet count as differences."""
    engine = connect(lake.settings)
    try:
        return Results(run.each(lake, lambda table: compare_table(table, engine)))
    finally:
        engine.dispose()


def compare_table(table: Table, engine: sa.Engine) -> Result:
    """Compare one table: every column that both sides have, of every row."""
    if table.spec.policy == "append":
        return Result(table.source, "not compared", "its rows are changes, and the source's are not")
    table.stored.refresh()
    pairs, left = _common(table, engine)
    names = {column.name for column, _ in pairs}
    key = [name for name in table.spec.key if name in names]
    sides: list[Blocks] = [partial(_source_rows, engine, table.source, pairs), partial(_lake_rows, table, pairs)]
    source, lake = (_numbered(blocks, key) for blocks in sides)
    by = [name for name in source.columns.tolist() if name.startswith("k")]
    both = source.merge(lake, "outer", by, indicator=True)
    apart = both[(both["_merge"] != "both") | (both["r0_x"] != both["r0_y"]) | (both["r1_x"] != both["r1_y"])]
    notes = [many(len(apart), "differing row")] if len(apart) else []
    notes += _told(sides, key, apart["k0"].to_numpy()[:SHOWN], {c.name for c, _ in pairs if c.mask}) if notes else []
    notes += [f"not compared: {', '.join(left)}"] if left else []
    counts = {"rows": len(lake), "source_rows": len(source), "differing": len(apart)}
    return Result(table.source, "differs" if len(apart) else "equal", safe("; ".join(notes)), counts=counts)


def _common(table: Table, engine: sa.Engine) -> tuple[Pairs, list[str]]:
    """Return the columns that both sides have, and the names of the others.

    A column that files added as a text is compared with texts alone: else it has what DMS made of the value.
    """
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


def _source_rows(engine: sa.Engine, source: str, pairs: Pairs) -> Iterator[pa.Table]:
    from frazil.discover.source_values import texts

    schema = _schema(pairs)
    yield schema.empty_table()
    for block in texts(engine, source, pairs):
        yield pa.table([lake_values(c, t)[0] for (c, _), t in zip(pairs, block, strict=True)], schema=schema)


def _lake_rows(table: Table, pairs: Pairs) -> Iterator[pa.Table]:
    stored, schema = table.stored, _schema(pairs)
    own = schema_to_pyarrow(stored.metadata.schema())
    fields = pa.schema([own.field(field.name).with_type(field.type) for field in schema])
    yield schema.empty_table()
    for file in stored.live_files.values():
        yield from live_rows(stored.io, file, stored.vectors.of(file), fields)


def _schema(pairs: Pairs) -> pa.Schema:
    return pa.schema([(column.name, arrow_type(column.lake_type)) for column, _ in pairs])


def _numbered(blocks: Blocks, key: list[str]) -> pd.DataFrame:
    """Return numbers for each row of a side: of its key, and of the whole row, in which null is a value."""
    found = []
    for block in blocks():
        plain = [pc.fill_null(values, _zero(values.type)) for values in block.columns]
        halves = {"k": key_numbers(block.select(key).columns)}
        halves["r"] = key_numbers([*plain, *(values.is_valid() for values in block.columns)])
        found.append(pd.DataFrame({f"{of}{n}": half for of, both in halves.items() for n, half in enumerate(both)}))
    return pd.concat(found, ignore_index=True)


def _zero(kind: pa.DataType) -> pa.Scalar:
    """Return a value of a type, which stands for null."""
    return pa.scalar({pa.string(): "", pa.binary(): b"", pa.bool_(): False}.get(kind, 0), kind)


def _told(sides: Sequence[Blocks], key: list[str], numbers: np.ndarray, masked: set[str]) -> Iterator[str]:
    """Yield what differs in the rows of some keys; masked values are not shown."""
    found: list[dict[tuple, dict[str, Any]]] = [{}, {}]
    for own, blocks in zip(found, sides, strict=True):
        for block in blocks():
            has = np.isin(key_numbers(block.select(key).columns)[0], numbers)
            own |= {tuple(row[k] for k in key): row for row in block.filter(pa.array(has)).to_pylist()}
    for values in {**found[0], **found[1]}:
        shown = ", ".join(f"{k}={HIDDEN if k in masked else v}" for k, v in zip(key, values, strict=True))
        source, lake = (own.get(values) for own in found)
        if source is None or lake is None:
            yield f"{shown}: only in the {'source' if source else 'lake'}"
            continue
        for name in (n for n in source if repr(source[n]) != repr(lake[n])):
            two = [HIDDEN if name in masked else repr(side[name])[:LONGEST] for side in (source, lake)]
            yield f"{shown}: {name} is {two[0]} in the source, {two[1]} in the lake"
