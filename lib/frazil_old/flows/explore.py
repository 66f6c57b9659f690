"""Look around while ingestion runs: what the tables are, how they differ, what they were at a time. Only reads."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier
from frazil_old.config.time_sql import driver_rows
from frazil_old.config.timestamps import clock, instant
from frazil_old.engine.latency_sketch import QUANTILES
from frazil_old.errors import FrazilError, many, nearest
from frazil_old.flows.pending_work import pending_of
from frazil_old.flows.preview_stages import beside
from frazil_old.flows.reconcile import joined
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import maintenance_plan, table_history
from frazil_old.lake.maintenance_plan import measure
from frazil_old.lake.snapshot_log import read_kept_snapshots
from frazil_old.lake.table_history import Snapshot
from frazil_old.lake.tables import TableState, read_table_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row


DAY_MS = 86_400_000
MOST_SHOWN = 120
"""Characters of a whole row that a difference shows."""


class ExploreError(FrazilError):
    """A question that the table's snapshots cannot answer, or a state or key that does not exist."""


def spec_of(book: Workbook, table: str) -> TableSpec:
    """Return a source table's spec; raise for an unknown name and suggest the nearest one."""
    if table not in book.specs:
        raise ExploreError(f"no table '{table}'", nearest(table, book.specs))
    return book.specs[table]


def tables(book: Workbook, thresholds: MaintenanceSettings) -> list[dict[str, Any]]:
    """Return one row per table: how fresh it is, what it holds, and what maintenance would do (nothing: `healthy`).

    `fresh_to` is the newest source time of its changes, which does not advance while the source is idle. So the row
    also has the `pending` files and how long the oldest has waited.
    """

    def look(spec: TableSpec) -> dict[str, Any]:
        name = book.name(spec)
        base, states = read_table_state(book.spark, name, checked=False), table_history.lineage(book.spark, name)
        count, waiting, problem = _pending(book, spec, base)
        h = measure(book.spark, name, thresholds)
        until, known_by = table_history.source_time_bounds(states, book.endpoint.date_partition)[states[-1].id]
        return {
            "rows": h.rows, "fresh_to": clock(until), "known_by": known_by, "committed": clock(states[-1].committed_ms),
            "pending": count, "waiting_s": waiting, "mb": h.mb, "data_files": h.data_files,
            "deleted_share": h.deleted_share, "snapshots": h.snapshots,
            "health": ", ".join(a.action for a in maintenance_plan.plan(h, thresholds)) or "healthy",
            **({"action": f"cannot: {problem}"} if problem else {}),
        }  # fmt: skip

    return book.row_per_table(look)


def first_table(overview: list[dict[str, Any]]) -> str:
    """Return a table to look at from the rows of `tables`: the first that holds rows, else the first that exists."""
    there = sorted((row for row in overview if "rows" in row), key=lambda row: not row["rows"])
    if not there:
        raise ExploreError("no table has rows to look at", "run 00_setup first")
    return there[0]["table"]


def _pending(book: Workbook, spec: TableSpec, base: TableState) -> tuple[int | None, float | None, str]:
    """Return how much is after a position, how long the oldest has waited, and what stops it.

    It counts files, or a stream's messages of any table.
    """
    try:
        return *pending_of(book, spec, base), ""
    except FrazilError as e:
        return None, None, e.problem


def query(book: Workbook, sql: str, show: int = 100) -> list[dict[str, Any]]:
    """Return the first rows of a query on the lake, with dates and times as texts."""
    return [row.asDict() for row in driver_rows(book.spark.sql(sql).limit(show)).collect()]


# --- two states


def state(book: Workbook, table: str, text: str | int) -> Snapshot:
    """Return the snapshot that a text means.

    It is an id, a tag, `oldest`, `recent` (see `_recent`), `newest`, or a time by the lake's clock.
    """
    spec = spec_of(book, table)
    states = table_history.lineage(book.spark, book.name(spec))
    named = {"oldest": states[0], "recent": _recent(states), "newest": states[-1]}
    if text in named:
        return named[str(text)]
    tags = read_kept_snapshots(book.spark, book.name(spec)).tags
    wanted = tags.get(str(text)) or (int(text) if str(text).isdigit() and len(str(text)) > 14 else None)
    if wanted is not None:
        if found := next((s for s in states if s.id == wanted), None):
            return found
        raise ExploreError(f"{table}: snapshot {text} is not kept, or not of main", "take one that the notebook lists")
    when = instant(str(text))
    if not (fitting := [s for s in states if s.committed_ms <= when]):
        raise _not_kept(table, when, states[0].committed_ms, "lake")
    return fitting[-1]


def _recent(states: list[Snapshot]) -> Snapshot:
    """Return the last load if it is of the last day before the newest state, else the last state before that day."""
    day_before = states[-1].committed_ms - DAY_MS
    loads = [s for s in states if s.kind == "load" and s.committed_ms >= day_before]
    earlier = [s for s in states if s.committed_ms < day_before]
    return (loads or earlier or states[:1])[-1]


def _of_source(table: str, states: list[Snapshot], bounds: dict[int, Any], when: int) -> Snapshot:
    """Return the last snapshot with only changes that the source had committed before a time."""
    nothing = all(until is None for until, _ in bounds.values())  # never written to: the same at any time
    fitting = [s for s in states if nothing or (bounds[s.id][0] is not None and bounds[s.id][0] < when)]
    if not fitting:
        raise _not_kept(table, when, next((until for until, _ in bounds.values() if until), None), "source")
    return fitting[-1]


def _not_kept(table: str, when: int, oldest: int | None, by: str) -> ExploreError:
    return ExploreError(
        f"{table}: no kept snapshot shows it as it was at {clock(when)} by the {by}'s clock",
        f"the oldest shows it at {clock(oldest)}; tags keep old states (03_maintenance: hourly_tags, daily_tags)",
    )


@dataclass(frozen=True)
class Changed:
    """The differences between two states of a table; `sample` has a row per differing value with both sides, or per row that is new or gone."""

    table: str
    since: Snapshot
    until: Snapshot
    counts: dict[str, int]
    sample: list[dict[str, Any]]


def difference(book: Workbook, table: str, since: str | int, until: str | int, show: int = 5) -> Changed:
    """Return how many rows were inserted, updated and deleted between two states, with some of them in key order.

    Only columns of both states are compared. The work is a join of the whole table with itself.
    """
    spec = spec_of(book, table)
    a, b = state(book, table, since), state(book, table, until)
    old, new = (table_history.read_with_names_of_now(book.spark, book.name(spec), s.id) for s in (a, b))
    columns = [c for c in new.columns if c in old.columns]
    if not spec.key:
        old, new = (rows.select(*map(identifier, columns)) for rows in (old, new))
        counts = {"inserted": new.exceptAll(old).count(), "updated": 0, "deleted": old.exceptAll(new).count()}
        return Changed(table, a, b, counts, [])
    marked = joined(old, new, spec.key, columns).where("change is not null").persist()
    found = {r[0]: r[1] for r in marked.groupBy("change").count().collect()}
    some = marked.orderBy("change", *[f"k{i}" for i in range(len(spec.key))]).limit(show)
    rows = driver_rows(some).collect() if found else []
    marked.unpersist()  # not after an interrupt, which has closed the connection that this call needs
    sample = [line for r in rows for line in _lines(r, spec.key, columns)]
    return Changed(table, a, b, {w: found.get(w, 0) for w in ("inserted", "updated", "deleted")}, sample)


def _lines(r: Row, key: Sequence[str], columns: list[str]) -> list[dict[str, Any]]:
    """Return a line for each value that differs in a row; one for a whole row that is new or gone."""
    row, columns = r.new or r.old, [c for c in columns if c not in key]

    def line(column: str, before: Any, after: Any) -> dict[str, Any]:
        facts = {"change": r.change, "column": column, "before": before, "after": after}
        named = beside(facts, {k: row[k] for k in key})
        return dict.fromkeys(["change", *(n for n in named if n not in facts)]) | named

    if r.change == "updated":
        changed = [c for c in columns if repr(r.old[c]) != repr(r.new[c])]
        return [line(c, r.old[c], r.new[c]) for c in changed]
    values = _start(", ".join(f"{c}={row[c]}" for c in columns if row[c] is not None))
    return [line("(whole row)", *((None, values) if r.new else (values, None)))]


def _start(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} …"


# --- a time of the source


class AsOf:
    """Every table as of one source time: `rows` says how well that is known, `table` returns a table's DataFrame."""

    def __init__(self, book: Workbook, when_ms: int, rows: list[dict[str, Any]]):
        self.book, self.when, self.rows = book, clock(when_ms), rows

    def table(self, table: str) -> DataFrame:
        """Return a table's rows at that time."""
        row = next((r for r in self.rows if r["table"] == table), None)
        if row is None or row.get("snapshot") is None:
            why = row["action"].removeprefix("cannot: ") if row else nearest(table, self.book.specs)
            raise ExploreError(f"{table} cannot be shown as of {self.when}", why)
        return table_history.read(self.book.spark, self.book.name(self.book.specs[table]), row["snapshot"])

    def first_rows(self, table: str, count: int = 5) -> list[dict[str, Any]]:
        """Return some of a table's rows at that time, with dates and times as texts."""
        return [row.asDict() for row in driver_rows(self.table(table).limit(count)).collect()]


def as_of(book: Workbook, when: str = "", *only: str) -> AsOf:
    """Choose for each table the last snapshot with only changes that the source committed before `when`.

    Default: now. `holds_to` is the source time up to which the state may hold changes, and how that is known. `unsure`
    names what is unknown: changes from before `when` that are in the next commit, or not applied.
    """
    now = round(time.time() * 1000)
    when_ms = instant(when) if when else now

    def look(spec: TableSpec) -> dict[str, Any]:
        states = table_history.lineage(book.spark, book.name(spec))
        bounds = table_history.source_time_bounds(states, book.endpoint.date_partition)
        chosen = _of_source(spec.source, states, bounds, when_ms)
        until, by = bounds[chosen.id]
        later = [s for s in states[states.index(chosen) + 1 :] if bounds[s.id][0] != until]
        return {"snapshot": str(chosen.id), "committed": clock(chosen.committed_ms), "holds_to": clock(until), "known_by": by,
                "rows": chosen.count("total-records") - chosen.count("total-position-deletes"),
                "unsure": _unsure(later[0], when_ms) if later else _behind(book, spec, when_ms < now - 1000)}  # fmt: skip

    rows = [r for r in book.row_per_table(look) if not only or r["table"] in only]
    return AsOf(book, when_ms, rows)


def _unsure(following: Snapshot, when_ms: int) -> str:
    """Return how many changes of the next commit the source may have committed before the requested time."""
    if not following.source_ms:
        return "the next commit may hold changes from before: it has no commit times"
    before = max((q for q, ms in zip(QUANTILES, following.source_ms, strict=True) if ms < when_ms), default=None)
    if before is None:
        return ""
    count = following.count("changes")
    return f"of {count:,} changes in the next commit some are from before, about {before * count:,.0f}"


def _behind(book: Workbook, spec: TableSpec, past: bool) -> str:
    """Return what is missing between the newest state and the requested time, which is `past` or now."""
    base = read_table_state(book.spark, book.name(spec), checked=False)
    count, _, problem = _pending(book, spec, base)
    if count or problem:
        return problem or f"pending: {many(count, 'message' if book.stream else 'file')}"
    return "changes that DMS has not written yet" if past else ""
