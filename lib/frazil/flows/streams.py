"""Changes from a stream: one read between stated offsets serves all tables, each applies its own part with its position."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from frazil.config.spec import TableSpec
from frazil.dms.documents import boolean, read_json
from frazil.dms.kafka import Offsets, StreamError, check_kept, furthest, limited, nearest_start
from frazil.dms.messages import CHANGE_PHASE, LOAD_PHASE, known_columns, raw_rows, routed
from frazil.flows.apply import Batch, apply_batch
from frazil.flows.shape import follow
from frazil.flows.workbook import TableResult, Workbook
from frazil.lake import commit
from frazil.lake.commit import PositionMovedError
from frazil.lake.tables import Base, read_base

WAITS = "the full load is applied: run 01_full_load"
APART = "load records lie behind the load that was applied: run 01_full_load with on_changed_load=reload"


@dataclass(frozen=True)
class Group:
    """Messages of one partition that are alike: how many, the first and last offset, and the last message itself."""

    object: str
    kind: str | None
    operation: str | None
    schema: str | None
    table: str | None
    count: int
    first: int
    last: int
    sample: str | None

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
def messages(book: Workbook, begin: Offsets, end: Offsets):
    """Read messages once, for all tables; gives them with their groups, and names those that belong to no table."""
    frame = routed(book.stream.read(book.spark, begin, end)).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        by = ["object", "kind", "operation", "schema", "table"]
        aggregates = [F.count("*"), F.min("offset"), F.max("offset"), F.max_by("value", "offset")]
        groups = [Group(*row) for row in frame.groupBy(*by).agg(*aggregates).collect()]
        _tell(book, groups)
        yield frame, groups
    finally:
        frame.unpersist()


def _tell(book: Workbook, groups: list[Group]) -> None:
    """Name what no table will get: other tables' messages, control records; stop at what can't be read at all."""
    if lost := [g for g in groups if not g.readable]:
        what = ", ".join(f"{g.count} in {g.object} from offset {g.first}" for g in lost)
        if book.settings.on_unreadable != "report":
            cure = "see what writes there; to pass such messages by, run with on_unreadable=report"
            raise StreamError(
                f"messages that are none of DMS's ({what}), the last: {(lost[0].sample or '')[:200]!r}", cure
            )
        book.progress(f"passed by, as none of DMS's: {what}")
    taken, others = {book.mappings.target_name(s) for s in book.specs.values()}, {}
    for g in groups:
        if g.readable and (g.schema, g.table) not in taken:
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
        try:
            found = json.loads(g.sample or "").get("data") or {}
        except ValueError:
            continue  # a bad row, which the batch will name
        if unknown := found.keys() - known_columns(spec, book.mappings):
            raise StreamError(
                f"{spec.source}: unknown column {', '.join(sorted(unknown))} at offset {g.last} of {g.object}",
                f"add it to {spec.file}, and to the table in the lake",
            )
    return mine


def rows_of(book: Workbook, spec: TableSpec, frame: DataFrame, loads: bool, begin: Offsets) -> DataFrame:
    """Return the raw rows of a table behind a position: its load records, or its changes."""
    schema, table = book.mappings.target_name(spec)
    wanted = (F.col("kind") == "data") & (F.col("schema") == schema) & (F.col("table") == table)
    wanted &= (F.col("operation") == "load") == F.lit(loads)
    rows = frame.where(wanted & _behind(begin))
    return raw_rows(rows, spec, book.mappings, book.before_field, LOAD_PHASE if loads else CHANGE_PHASE, len(begin))


def _behind(position: Offsets) -> Column:
    at = reduce(lambda c, p: c.when(F.col("object") == p[0], p[1]), position.items(), F.when(F.lit(False), 0))
    return F.col("offset") >= F.coalesce(at, F.lit(0))


class _Run:
    """One run over the stream: where each table stands, and what it has been seen to have no message in."""

    def __init__(self, book: Workbook):
        self.book = book
        self.total = {s.source: TableResult(s.source, "unchanged", "nothing new") for s in book.specs.values()}
        self.out: set[str] = set()
        self.base: dict[str, Base] = {}
        self.at: dict[str, Offsets] = {}
        self.earliest: Offsets = {}
        self.ends: Offsets = {}

    def _each(self, work) -> None:
        for result in self.book.each_table(work, skip=list(self.out)):
            self.total[result.table].add(result)
            if result.status in ("failed", "held", "skipped"):
                self.out.add(result.table)

    def _look(self, spec: TableSpec) -> TableResult:
        """Read a table's position and hold it against the stream."""
        name = self.book.name(spec)
        commit.remove_abandoned_branches(self.book.spark, name)
        base = self.base[spec.source] = read_base(self.book.spark, name)
        if not base.position.loaded:
            return TableResult(spec.source, "held", f"changes wait until {WAITS}")
        self.at[spec.source] = furthest(base.position.stream, self.at.get(spec.source, {}))
        check_kept(self.at[spec.source], self.earliest, self.ends, spec.source)
        return TableResult(spec.source, "unchanged")

    def one_pass(self) -> bool:
        """Read once what lies behind the tables' positions, up to the end that was seen first; False: nothing does."""
        self.earliest = self.book.stream.earliest()
        self._each(self._look)
        going = {t: at for t, at in self.at.items() if t not in self.out}
        begin = nearest_start(going.values(), self.ends)
        end = limited(begin, self.ends, self.book.settings.max_batch_messages)
        if not going or begin == end:
            return False
        with messages(self.book, begin, end) as (frame, groups):
            self._each(lambda spec: self._apply(spec, frame, groups, end))
        return True

    def _apply(self, spec: TableSpec, frame: DataFrame, groups: list[Group], end: Offsets) -> TableResult:
        base, at = self.base[spec.source], self.at[spec.source]
        mine = own(self.book, spec, groups)
        if any(g.is_load and g.behind(base.position.stream_load) for g in mine):
            return TableResult(spec.source, "held", f"changes wait: {APART}")
        pending = [g for g in mine if not g.is_load and g.behind(at)]
        if not pending:
            self.at[spec.source] = furthest(at, end)
            return TableResult(spec.source, "unchanged", "nothing new")
        shaped = follow(self.book, spec, base, [], CHANGE_PHASE)
        spec = shaped.spec
        batch = Batch(
            lambda whole: rows_of(self.book, spec, frame, loads=False, begin=at),
            lambda batch: replace(base.position, batch=batch, stream=furthest(at, end)),
            {"messages": sum(g.count for g in pending)},
        )
        try:
            counts, live = apply_batch(self.book, spec, base, batch)
        except PositionMovedError as e:
            return TableResult(spec.source, "skipped", str(e))
        self.at[spec.source] = furthest(at, end)
        return TableResult(spec.source, "merged", "", counts={"batches": 1, **counts}, live=live)

    def settle(self) -> None:
        """Commit how far tables without messages were seen to have none: else these would expire behind a position."""

        def work(spec: TableSpec) -> TableResult:
            base, at = read_base(self.book.spark, self.book.name(spec)), self.at[spec.source]
            if furthest(base.position.stream, at) != base.position.stream:
                position = replace(base.position, batch=commit.new_batch(), stream=furthest(base.position.stream, at))
                keep_position(self.book, spec, base, position)
            return TableResult(spec.source, "unchanged")

        self._each(work)


def keep_position(book: Workbook, spec: TableSpec, base: Base, position, kind: str = "position") -> None:
    """Commit a position without rows."""
    commit.commit_batch(
        book.spark, book.name(spec), base, position, lambda branch, summary: None, {"frazil.kind": kind}
    )


def run(book: Workbook) -> list[TableResult]:
    """Apply what lies behind the tables' positions, read once for all, until nothing is left or `max_batches` is reached.

    What comes meanwhile waits for the next look (`run_for_s`, `trigger_s`). Tables fail alone, and catch up from their own
    position in a later run.
    """
    s, until = book.settings, time.monotonic() + book.settings.run_for_s
    run, passes = _Run(book), 0
    while True:
        began, run.ends = time.monotonic(), book.stream.ends()
        while (not s.max_batches or passes < s.max_batches) and run.one_pass():
            passes += 1
        if time.monotonic() >= until or (s.max_batches and passes >= s.max_batches):
            break
        time.sleep(max(0.0, min(began + s.trigger_s, until) - time.monotonic()))
    run.settle()
    return list(run.total.values())


def plan(book: Workbook) -> list[dict]:
    """Return one row per table: how many messages, of any table, lie behind its position. Nothing is changed."""
    ends = book.stream.ends()

    def look(spec: TableSpec) -> dict:
        position = read_base(book.spark, book.name(spec)).position
        behind = sum(e - position.stream.get(p, 0) for p, e in ends.items()) if position.loaded else sum(ends.values())
        at = ", ".join(f"{p}: {o}" for p, o in position.stream.items())
        action = "nothing new" if not behind else "merge" if position.loaded else f"held until {WAITS}"
        return {"action": action, "messages": behind, "position": at or "–"}

    return book.plan(look)


def look(book: Workbook) -> list[dict]:
    """Return one row per table, and how many messages its topics hold for all tables."""
    first, ends = book.stream.earliest(), book.stream.ends()
    kept = sum(ends[p] - first[p] for p in ends)
    return [
        {"table": s.source, "target": book.name(s), "key": ", ".join(s.key), "columns": len(s.columns),
         "partitions": len(ends), "messages_of_all": kept} for s in book.specs.values()
    ]  # fmt: skip


def findings(book: Workbook) -> list[dict]:
    """Return what the endpoint's KafkaSettings will lose on the way, one row per finding."""
    raw = read_json(book.settings.path("endpoint"), "endpoint settings")
    given = raw.get("KafkaSettings", raw)
    says = {
        "IncludeNullAndEmpty": "an empty text cannot be told from a null: both are left out, and become null",
        "IncludeTransactionDetails": "no commit time: no latency, and no second witness of the order",
        "IncludeTableAlterOperations": "changes of the tables' columns are not announced",
    }
    return [
        {"setting": name, "value": False, "kind": "warning", "files": None, "says": what, "cure": "switch it on", "example": ""}
        for name, what in says.items() if not boolean(given, name, False, book.settings.endpoint)
    ]  # fmt: skip


__all__ = ["Group", "findings", "look", "messages", "own", "plan", "rows_of", "run"]
