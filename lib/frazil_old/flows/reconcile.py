"""Reconcile: compare a lake table with its source, value by value, down to the differing rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from frazil_old.config.lake_types import value_type
from frazil_old.config.spec import Column, TableSpec
from frazil_old.config.sql import identifier
from frazil_old.config.time_sql import driver_rows
from frazil_old.errors import many
from frazil_old.flows.source_rows import MOST_CONNECTIONS, read_source, source_types
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm, jvm_schema
from frazil_old.lake.schema_evolution import as_column, with_control_records
from frazil_old.results import TableResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row


@dataclass(frozen=True)
class Difference:
    """The comparison of one table: counts of rows, and some of the differing ones with both sides."""

    table: str
    source_rows: int
    lake_rows: int
    differing_rows: int
    sample: list[dict[str, Any]] = field(default_factory=list)


def compare(lake: DataFrame, source: DataFrame, spec: TableSpec, show: int = 5) -> Difference:
    """Compare two DataFrames with the spec's columns by key.

    Without a key whole rows are compared, with their number of copies; a row with more copies on one side differs.
    Source columns are cast to the lake's types first. `sample` holds one row per differing value of the first `show`
    differing keys: the key, the column, and both sides (`(no row)` where one has none).
    """
    from pyspark.sql import functions as F

    typed = source.select(*[F.col(identifier(c.name)).cast(value_type(c)).alias(c.name) for c in spec.columns])
    typed = typed.select(*[F.expr(_mask_sql(c, identifier(c.name))).alias(c.name) for c in spec.columns])

    lake = lake.select(*[F.col(identifier(c)) for c in spec.names])
    if not spec.key:
        return _compare_whole(lake, typed, spec, show)

    marked = joined(typed, lake, spec.key, spec.names)
    count = marked.agg(F.count("old"), F.count("new"), F.count("change")).first()
    sample = driver_rows(marked.where("change is not null").limit(show)).collect() if count[2] else []
    return Difference(spec.source, count[0], count[1], count[2], [line for row in sample for line in _lines(row, spec)])


def joined(old: DataFrame, new: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Join two states of a table by key: its columns `k0` …, both rows as structs `old` and `new`, and the `change`.

    That is `inserted`, `deleted`, `updated` or null. Every value counts, null equals null, NaN equals NaN.
    """
    from pyspark.sql import functions as F

    def side(rows: DataFrame, name: str) -> DataFrame:
        keys = [F.col(identifier(k)).alias(f"k{i}") for i, k in enumerate(key)]
        return rows.select(*keys, F.struct(*[F.col(identifier(c)) for c in columns]).alias(name))

    both = side(old, "old").join(side(new, "new"), [f"k{i}" for i in range(len(key))], "full_outer")
    same = [F.col(f"old.{identifier(c)}").eqNullSafe(F.col(f"new.{identifier(c)}")) for c in columns]
    change = F.when(F.col("old").isNull(), "inserted").when(F.col("new").isNull(), "deleted")
    return both.withColumn("change", change.when(~reduce(lambda a, b: a & b, same), "updated"))


def _compare_whole(lake: DataFrame, source: DataFrame, spec: TableSpec, show: int) -> Difference:
    from pyspark.sql import functions as F

    ones = [
        frame.withColumns({"in_source": F.lit(n), "in_lake": F.lit(1 - n)}) for n, frame in ((1, source), (0, lake))
    ]
    sums = [F.sum(side).alias(side) for side in ("in_source", "in_lake")]
    rows = ones[0].union(ones[1]).groupBy(*[F.col(identifier(c)) for c in spec.names]).agg(*sums)
    apart = "abs(in_source - in_lake)"
    count = rows.agg(F.sum("in_source"), F.sum("in_lake"), F.expr(f"sum({apart})")).first()
    differing = rows.where(f"{apart} > 0").limit(show).collect() if count[2] else []
    sample = [
        {"table": spec.source, "key": ", ".join(f"{c}={r[c]}" for c in spec.names), "column": "(row)",
         "source": many(r["in_source"], "time"), "lake": many(r["in_lake"], "time")} for r in differing
    ]  # fmt: skip
    return Difference(spec.source, count[0] or 0, count[1] or 0, count[2] or 0, sample)


def _lines(row: Row, spec: TableSpec) -> list[dict[str, Any]]:
    """Return a line for each value that differs in a row; one for a whole row that one side lacks."""
    facts = {"table": spec.source, "key": ", ".join(f"{k}={row[f'k{i}']}" for i, k in enumerate(spec.key))}
    source, lake = row.old, row.new
    if source is None or lake is None:
        sides = ("(no row)" if side is None else "present" for side in (source, lake))
        return [{**facts, "column": "(row)", **dict(zip(("source", "lake"), sides, strict=True))}]
    differing = [c for c in spec.names if repr(source[c]) != repr(lake[c])]
    return [{**facts, "column": c, "source": str(source[c]), "lake": str(lake[c])} for c in differing]


def run(book: Workbook) -> tuple[list[TableResult], list[dict[str, Any]]]:
    """Compare every table with the source database; return the results and a sample of the differences.

    The source should not change meanwhile, and everything that DMS wrote should be applied; otherwise differences are
    expected.
    """
    samples: list[dict[str, Any]] = []
    connections = max(1, MOST_CONNECTIONS // book.settings.parallel_tables)

    def work(spec: TableSpec) -> TableResult:
        if spec.policy == "append":
            return TableResult(
                spec.source, "not compared", "its rows are changes (without_key: append), the source's are not"
            )
        if not book.exists(spec):
            return TableResult(spec.source, "not compared", "it is not in the lake: run 00_setup")
        table, lake = jvm.load_table(book.spark, book.name(spec)), book.spark.table(book.name(spec))
        spec = with_control_records(spec, jvm_schema.control_events(table))
        names = {*jvm_schema.auto_columns(table)} - {*spec.names}
        auto = {n: k for n, k in lake.dtypes if n in names}
        there = source_types(book.spark, spec) if auto else {}
        apart = [n for n, k in auto.items() if n not in there or (k == "string" and there[n] != k)]
        note = f"not compared: {', '.join(apart)}; the source has no such column, or not as a text" if apart else ""
        if added := book.mappings.listed(spec):  # the source has none of these columns
            columns = tuple(c for c in spec.columns if c.name not in added)
            spec = replace(spec, columns=columns, key=tuple(k for k in spec.key if k not in added))
        more = [as_column(n, k) for n, k in auto.items() if n not in apart]
        spec = replace(spec, columns=(*spec.columns, *more))
        found = compare(lake, read_source(book.spark, spec, connections), spec)
        samples.extend(found.sample)
        counts = {
            "source_rows": found.source_rows,
            "lake_rows": found.lake_rows,
            "differing_rows": found.differing_rows,
        }
        if found.differing_rows:
            note = "; ".join(filter(None, (many(found.differing_rows, "differing row"), note)))
        return TableResult(spec.source, "differs" if found.differing_rows else "equal", note, counts=counts)

    return book.each_table(work), samples


def _mask_sql(column: Column, value: str) -> str:
    """Return the SQL of the lake's form of a typed value: itself, or the hash of its text, as `core.types` makes it."""
    if not column.mask:
        return value
    kind = value_type(column)
    text = value if kind == "binary" else f"cast({f'unix_micros({value})' if kind == 'timestamp' else value} as string)"
    return f"sha2({text}, 256)"
