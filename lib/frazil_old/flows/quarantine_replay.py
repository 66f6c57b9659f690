"""Show and replay the quarantine: read its rows again, and apply them where nothing newer was applied.

A replay is one commit per table, built on the position at which the quarantine was read. If another run commits in
between, that run wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from frazil_old.config.lake_types import OPERATION_COLUMNS
from frazil_old.config.paths import readable
from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import literal
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.engine.reread_quarantined import Reread, reread_frame
from frazil_old.flows import quarantine, quarantine_counts, unreadable_messages
from frazil_old.flows.apply_batch import RowsToMerge, commit_by_merge
from frazil_old.flows.schema_changes import every_column, follow
from frazil_old.flows.tasks_or_here import in_tasks_or_here
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import batch_branches, commit, merge, quarantine_status, quarantine_table
from frazil_old.lake import quarantine_columns as columns
from frazil_old.lake.commit import PositionMovedError
from frazil_old.lake.tables import TableState, read_table_state
from frazil_old.results import TableResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


@contextmanager
def _judged(book: Workbook, spec: TableSpec, waiting: DataFrame) -> Iterator[DataFrame]:
    """Yield the waiting records with what they are now and a verdict on each."""
    how = Reread(book.source_table(spec), book.before_field)

    def judge(here: bool) -> DataFrame:
        rows = quarantine_status.judged(reread_frame(waiting, how, here), waiting, spec).persist()
        try:
            rows.count()  # here a task without Python fails
        except Exception:
            rows.unpersist()
            raise
        return rows

    rows = in_tasks_or_here(book, spec, judge)
    try:
        yield rows
    finally:
        rows.unpersist()


def _each(book: Workbook, work: Callable[[TableSpec, TableState, DataFrame], TableResult | None]) -> list[TableResult]:
    def of_table(spec: TableSpec) -> TableResult:
        base = read_table_state(book.spark, book.name(spec))
        waiting = quarantine.still_waiting(book, spec, base)
        if waiting is None:
            return TableResult(spec.source, "unchanged", "nothing waits")
        return work(every_column(book, spec, base), base, waiting)

    if quarantine_counts.waiting(book) == {}:
        return [TableResult(s.source, "unchanged", "nothing waits") for s in book.specs.values()]
    return book.each_table(of_table)


def plan(book: Workbook) -> list[dict[str, Any]]:
    """Return what waits in the quarantine. Nothing is changed.

    There is one row per table, fault (its column and kind) and what a replay would do. `replay` is `apply`, `obsolete`
    (the key was changed later), `still bad`, or `unclear`. `because` gives the reason if it differs from the
    original fault. `example` is the oldest row's place and its fault.
    """
    found: dict[str, list[dict[str, Any]]] = {}

    def look(spec: TableSpec, base: TableState, waiting: DataFrame) -> TableResult:
        from pyspark.sql import functions as F

        with _judged(book, spec, waiting) as rows:
            first = F.min_by(
                F.struct("r.path", "r.row_no", "r.form", "r.layout", "r.reason", F.col("reason").alias("why")),
                F.expr(quarantine_status.RECORD_PLACE),
            )
            groups = (
                rows.groupBy("r.column_name", "outcome", F.expr(_kind_sql(book.endpoint.delimiter)))
                .agg(
                    F.count("*").alias("rows"),
                    F.count("r.key").alias("keys"),
                    F.min("r.set_aside_at").alias("since"),
                    first.alias("first"),
                )
                .orderBy("since", "column_name", "outcome", F.desc("rows"))
                .collect()
            )
        found[spec.source] = [
            {
                "table": spec.source, "column": g.column_name, "rows": g.rows, "key_known": g["keys"],
                "since": f"{g.since:%Y-%m-%d %H:%M:%S}", "replay": g.outcome,
                "because": g.first.why if g.first.why and g.first.why != g.first.reason else "",
                "example": f"{_place(g.first)}: {g.first.reason}",
            }
            for g in groups
        ]  # fmt: skip
        return TableResult(spec.source, "planned")

    failed = [r for r in _each(book, look) if r.failed]
    rows = [row for s in book.specs for row in found.get(s, [])]
    return rows + _unreadable(book) + [{"table": r.table, "replay": f"cannot: {r.note}"} for r in failed]


def _kind_sql(delimiter: str) -> str:
    """Return the SQL that separates faults of one column in records `r`.

    It uses the line's number of fields, or whether the value has only digits and signs. A number that is too large
    needs a wider type, a word among numbers another cure.
    """
    unquoted = """regexp_replace(cast(r.raw as string), '"[^"]*"', '')"""
    fields = f"size(split({unquoted}, {literal(re.escape(delimiter))}))"
    signs = literal("': '[^A-Za-z]*' does not fit")
    return f"case when r.misfit and r.form <> '{columns.JSON}' then {fields} when r.reason rlike {signs} then 0 end"


def _unreadable(book: Workbook) -> list[dict[str, Any]]:
    """Return a row about the messages that name no table, if any exist."""
    if not (lost := quarantine_counts.unreadable(book)):
        return []
    first = lost[0]
    return [
        {
            "table": quarantine_counts.NO_TABLE, "rows": len(lost), "key_known": 0, "since": f"{min(r['set_aside_at'] for r in lost):%Y-%m-%d %H:%M:%S}",
            "replay": "never", "because": "they name no table: see their bytes (raw), then discard them",
            "example": f"{first['path']} offset {first['row_no']}: {first['reason']}",
        }
    ]  # fmt: skip


def _place(record: Row) -> str:
    """Return the place of a row in words."""
    return f"{readable(record.path)} {'offset' if record.form == columns.JSON else 'row'} {record.row_no}"


def run(book: Workbook) -> list[TableResult]:
    """Handle the quarantine by the parameter `quarantine`: `show` (do nothing), `replay` or `discard`.

    Tables fail independently. Messages that name no table are discarded by a run over all tables.
    """
    todo = {"replay": _replay, "discard": _discard}.get(book.settings.quarantine)
    done = _each(book, lambda *of_table: todo(book, *of_table)) if todo else []
    if todo is _discard and not book.settings.tables and (count := unreadable_messages.discard(book)):
        done.append(TableResult(quarantine_counts.NO_TABLE, "discarded", counts={"discarded": count}))
    return done


def _discard(book: Workbook, spec: TableSpec, base: TableState, waiting: DataFrame) -> TableResult:
    base.require_not_paused(spec.source)
    batch, count = batch_branches.new_batch(), waiting.count()
    discarded = quarantine_table.changed(waiting, batch, quarantine.before(base), status=columns.DISCARDED)
    quarantine_table.add(book.spark, book.ops("quarantine"), discarded)
    book.waiting.pop(spec.source, None)
    return TableResult(spec.source, "discarded", counts={"discarded": count})


def _replay(book: Workbook, spec: TableSpec, base: TableState, waiting: DataFrame) -> TableResult:
    base.require_not_paused(spec.source)
    follow(book, book.specs[spec.source], base, [], CHANGE_PHASE)  # the lake first needs what was corrected in the spec
    with _judged(book, spec, waiting) as rows:
        counts = {r.outcome.replace(" ", "_"): r["count"] for r in rows.groupBy("outcome").count().collect()}
        note = "; ".join(f"{n} {what.replace('_', ' ')}" for what, n in sorted(counts.items()))
        counts = {{"apply": "replayed"}.get(k, k): v for k, v in counts.items()}
        batch, name = batch_branches.new_batch(), book.ops("quarantine")
        try:
            if not counts.get("replayed"):
                news = _now(rows).where("not (status <=> was_status and reason <=> was_reason)")
                if not news.isEmpty():
                    quarantine_table.add(
                        book.spark, name, quarantine_table.changed(news, batch, quarantine.before(base))
                    )
            else:
                _apply(book, spec, base, rows, batch, counts)
        except PositionMovedError as e:
            return TableResult(spec.source, "skipped", str(e))
        finally:
            book.waiting.pop(spec.source, None)
    return TableResult(spec.source, "replayed" if counts.get("replayed") else "unchanged", note, counts=counts)


def _now(rows: DataFrame) -> DataFrame:
    """Return the records of judged rows after a replay, each with its `place` among them."""
    from pyspark.sql import functions as F

    was = [F.col("r.status").alias("was_status"), F.col("r.reason").alias("was_reason")]
    records = rows.select(
        "r.*",
        F.expr(quarantine_status.RECORD_PLACE).alias("place"),
        "outcome",
        *was,
        F.col("reason").alias("new_reason"),
    )
    status = (
        f"case when outcome = '{quarantine_status.APPLY}' then '{columns.REPLAYED}' "
        f"when outcome in ('{columns.OBSOLETE}', '{columns.STILL_BAD}') then outcome else status end"
    )
    reason = f"if(outcome = '{columns.STILL_BAD}', new_reason, reason)"
    return records.withColumns({"status": F.expr(status), "reason": F.expr(reason)})


def _apply(
    book: Workbook, spec: TableSpec, base: TableState, rows: DataFrame, batch: str, counts: dict[str, int]
) -> None:
    """Commit what can be applied, together with the new status of every row."""
    from pyspark.sql import functions as F

    records = _now(rows)
    if spec.key:
        changes = quarantine_status.last_applied(rows, spec).persist()
        bounds = tuple(changes.agg(*map(F.expr, merge.bounds_sql(spec))).first())
        is_open = F.col("status").isin(*columns.OPEN)
        # A row that is still bad must not be applied later over a newer one that is applied now.
        records = (
            records.where(~is_open)
            .drop("place")
            .unionByName(
                quarantine_status.overtaken(records.where(is_open), changes, spec, batch), allowMissingColumns=True
            )
        )
    else:
        changes, bounds = _appended(rows), (None, None)
    summary = {"frazil.kind": "replay", "frazil.counts": json.dumps(counts, separators=(",", ":"))}
    try:
        with quarantine.staged(
            book, spec, base, lambda: quarantine_table.changed(records, batch, base.sequence), batch
        ) as ready:
            metadata = commit.CommitMetadata(replace(base.position, batch=batch), summary, before_commit=ready)
            commit_by_merge(book, spec, base, metadata, RowsToMerge(lambda: changes, "a replay", bounds))
    finally:
        changes.unpersist()


def _appended(rows: DataFrame) -> DataFrame:
    """Return the rows that a table of all changes gains; a message has a place in its partition, and no row's number."""
    number = f"if(r.form = '{columns.JSON}', null, cast(r.row_no as int))"
    own = zip(("op", "commit_ts", "change_seq", "r.object", number), OPERATION_COLUMNS, strict=True)
    good = rows.where(f"outcome = '{quarantine_status.APPLY}'")
    return good.selectExpr("after.*", *[f"{value} as {name}" for value, name in own])
