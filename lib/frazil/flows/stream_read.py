"""One read of a stream for all tables: what lies in it, and which part of it is a table's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from frazil.config.spec import TableSpec
from frazil.dms.messages import CHANGE_PHASE, COLUMN_NAMES, LOAD_PHASE, known_columns, raw_rows, routed
from frazil.dms.streams import ARRIVED, Offsets, StreamError, Taken, behind_sql
from frazil.flows.workbook import Workbook

WAITS = "the full load is applied: run 01_full_load"
APART = "load records lie behind the load that was applied: run 01_full_load with on_changed_load=reload"


@dataclass(frozen=True)
class Group:
    """Messages of one partition that are alike: how many, the first and last place, the first arrival, their columns, one that is unreadable."""

    object: str
    kind: str | None
    operation: str | None
    schema: str | None
    table: str | None
    count: int
    first: int
    last: int
    arrived: int
    sample: str | None
    columns: tuple[str, ...]

    @property
    def readable(self) -> bool:
        """Whether the metadata say what the message is and of which table."""
        known = self.kind == "control" or (self.kind == "data" and None not in (self.schema, self.table))
        return known and self.operation is not None

    @property
    def is_load(self) -> bool:
        """Whether these are load records."""
        return self.kind == "data" and self.operation == "load"

    def behind(self, position: Offsets) -> bool:
        """Whether some of them lie behind a position."""
        return self.last >= position.get(self.object, 0)


@contextmanager
def messages(book: Workbook, *taken: Taken) -> Iterator[tuple[DataFrame | None, list[Group]]]:
    """Hold what reads took for all tables, with its groups, and name what belongs to no table; no frame where nothing is there."""
    frames = [t.frame for t in taken if t.frame is not None]
    frame = routed(reduce(DataFrame.unionByName, frames)).persist(StorageLevel.MEMORY_AND_DISK) if frames else None
    try:
        groups = groups_of(frame) if frame else []
        _tell(book, groups)
        yield frame, groups
    finally:
        if frame:
            frame.unpersist()
        for t in taken:
            t.release()


def groups_of(frame: DataFrame) -> list[Group]:
    """Return the groups of `routed` messages: all that the driver learns of them."""
    by = ["object", "kind", "operation", "schema", "table"]
    found = frame.groupBy(*by).agg(
        F.count("*").alias("count"), F.min("offset").alias("first"), F.max("offset").alias("last"),
        F.expr("unix_millis(min(arrived))").alias("arrived"), 
        F.expr("max(if(kind in ('data', 'control') and schema is not null and operation is not null, null, left(value, 200)))").alias("sample"),
        F.expr(f"array_distinct(flatten(collect_set(if(kind = 'data', {COLUMN_NAMES}, null))))").alias("columns"),
    )  # fmt: skip
    return [
        Group(**{**r.asDict(), "first": int(r["first"]), "last": int(r["last"]), "columns": tuple(r["columns"])})
        for r in found.collect()
    ]


def _tell(book: Workbook, groups: list[Group]) -> None:
    """Name what no table will get: other tables' messages, control records; stop at what can't be read at all."""
    if lost := [g for g in groups if not g.readable]:
        what = ", ".join(f"{g.count} in {g.object} from offset {g.first}" for g in lost)
        if book.settings.on_unreadable != "report":
            raise StreamError(
                f"messages that are none of DMS's ({what}), such as {lost[0].sample!r}",
                "see what writes there; to pass such messages by, run with on_unreadable=report",
            )
        book.progress(f"passed by, as none of DMS's: {what}")
    taken, others = {book.mappings.target_name(s) for s in book.specs.values()}, {}
    for g in (g for g in groups if g.readable):
        if (g.schema, g.table) not in taken:
            name = ".".join(filter(None, (g.schema, g.table))) or "no table"
            others[name] = others.get(name, 0) + g.count
        elif g.kind == "control":
            book.progress(
                f"{g.schema}.{g.table}: {g.count} control record(s) {g.operation}, from offset {g.first} of {g.object}"
            )
    if others:
        named = ", ".join(f"{n} ({c})" for n, c in sorted(others.items()))
        book.progress(f"messages of tables without a spec, passed by: {named}")


def own(book: Workbook, spec: TableSpec, groups: Iterable[Group]) -> list[Group]:
    """Return the groups of a table's data; a column in them that its spec does not know is an error."""
    mine = [g for g in groups if g.kind == "data" and (g.schema, g.table) == book.mappings.target_name(spec)]
    for g in mine:
        if unknown := set(g.columns) - known_columns(spec, book.mappings):
            raise StreamError(
                f"{spec.source}: unknown column {', '.join(sorted(unknown))} in {g.object}, offsets {g.first} to {g.last}",
                f"add it to {spec.file}: the table follows",
            )
    return mine


def rows_of(book: Workbook, spec: TableSpec, frame: DataFrame, loads: bool, begin: Offsets) -> DataFrame:
    """Return the raw rows of a table behind a position: its load records, or its changes."""
    schema, table = book.mappings.target_name(spec)
    wanted = (F.col("kind") == "data") & (F.col("schema") == schema) & (F.col("table") == table)
    wanted &= (F.col("operation") == "load") == F.lit(loads)
    rows = frame.where(wanted & F.expr(behind_sql(book.stream, begin)))
    phase, partitions = LOAD_PHASE if loads else CHANGE_PHASE, len(begin.keys() - {ARRIVED})
    return raw_rows(rows, spec, book.mappings, book.before_field, phase, book.stream.scheme, partitions)
