"""The rows of a source table over JDBC: large tables in parts by primary key, each over a connection of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Set
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from frazil_old.config.lake_types import value_type
from frazil_old.config.source_database import SourceDatabaseError, source_connection
from frazil_old.config.spec import Column, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_CONNECTIONS = 16
"""Maximum connections that read from the source at the same time. More would take its work from its own users."""
PART_BYTES = 64 << 20
"""Minimum bytes of a table, as PostgreSQL stores it, for each part. One connection reads them in seconds."""
SAMPLED_BYTES = 16 << 20
"""About this much of a table is read to find the bounds of its parts."""
_FACTS = """
    with recursive tree as (select {table}::regclass::oid as id union all select i.inhrelid from pg_inherits i join tree on i.inhparent = id)
    select (select json_agg(a.attname order by k.place)::text
            from pg_constraint c cross join unnest(c.conkey) with ordinality as k(number, place)
                join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.number
            where c.conrelid = {table}::regclass and c.contype = 'p') as key,
        (select sum(pg_table_size(id))::bigint from tree) as bytes, (select sum(pg_relation_size(id))::bigint from tree) as main"""
"""A table's primary key as a JSON list, null if it has none, and its bytes with and without long values, of all partitions."""


def read_source(spark: SparkSession, spec: TableSpec, connections: int = MOST_CONNECTIONS) -> DataFrame:
    """Read a table from the source database (PostgreSQL), over at most that many connections at the same time.

    Address and credentials come from where `config.source_database` says. They are never shown. Each part is a
    transaction of its own, so parts see different states if the table changes meanwhile.
    """
    from pyspark.sql import DataFrame

    read, table = _reader(spark), _table(spec)
    there = source_types(spark, spec) if any(c.renamed_from for c in spec.columns) else spec.names
    rows = f"select {', '.join(_select(c, there) for c in spec.columns)} from {table}"
    names = {n for c in spec.columns if not c.mask for n in (c.name, *c.renamed_from)}
    parts = _parts(read, table, names, min(connections, spark.sparkContext.defaultParallelism))
    return reduce(DataFrame.union, [read(f"{rows} where {part}") for part in parts] or [read(rows)])


def source_types(spark: SparkSession, spec: TableSpec) -> dict[str, str]:
    """Return the columns of a source table, with their types as Spark reads them."""
    return dict(_reader(spark)(f"select * from {_table(spec)}").dtypes)


def _reader(spark: SparkSession) -> Callable[[str], DataFrame]:
    connection = source_connection()
    if connection.engine != "postgresql":
        raise SourceDatabaseError(f"rows of {connection.engine} cannot be compared", "only those of PostgreSQL can")
    read = spark.read.format("jdbc").options(**connection.options(), fetchsize="10000")
    return lambda query: read.option("query", query).load()


def _table(spec: TableSpec) -> str:
    return ".".join(map(_quoted, spec.source.split(".")))


def _parts(read: Callable[[str], DataFrame], table: str, names: Set[str], most: int) -> list[str]:
    """Return conditions of which each row of a table meets exactly one; none if one connection should read it.

    They compare the whole primary key, as few values of its first column may have most of the rows. It is never null. A
    sample gives the bounds: it decides how equal the parts are, not which rows they have. Spark shows the conditions, so
    all columns of the key must be among `names`.
    """
    facts = read(_FACTS.format(table="'" + table.replace("'", "''") + "'")).first()
    columns, count = json.loads(facts.key or "[]"), min(most, facts.bytes // PART_BYTES)
    if count < 2 or not columns or not names.issuperset(columns):
        return []
    key = ", ".join(map(_quoted, columns))
    bound = " || ', ' || ".join(f"quote_literal({_quoted(name)}::text)" for name in columns)
    percent = min(100.0, 100 * SAMPLED_BYTES / max(facts.main, 1))
    sampled = f"""select {bound} as low, ntile({count}) over (order by {key}) as part, row_number() over (order by {key}) as nth
                  from {table} tablesample system ({percent})"""
    firsts = read(f"select distinct on (part) part, low from ({sampled}) as rows where part > 1 order by part, nth")
    bounds = ["", *(row.low for row in sorted(firsts.collect())), ""]
    return [
        " and ".join(f"({key}) {sign} ({at})" for sign, at in ((">=", low), ("<", high)) if at)
        for low, high in pairwise(bounds)
        if low or high
    ]


def _quoted(name: str) -> str:
    """Return a name as PostgreSQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def _select(c: Column, there: Collection[str]) -> str:
    """Return how to ask PostgreSQL for a column: as text if JDBC would change it (dates, times, text types).

    A column that the source lacks (`there`) is asked for by its former name: the spec has renamed it for the lake only.
    """
    name = _quoted(next((n for n in (c.name, *c.renamed_from) if n in there), c.name))
    kind, own = value_type(c), _quoted(c.name)
    if kind == "timestamp":
        return f"to_char({name} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || 'Z' as {own}"
    if kind in ("string", "date", "timestamp_ntz"):
        return f"case when {name} is not null then format('%s', {name}) end as {own}"
    return f"{name} as {own}"
