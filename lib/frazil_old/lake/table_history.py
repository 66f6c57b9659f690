"""The past of a table: its snapshots in order, its rows at each of them, and every kept version of a key.

It only reads. Time travel uses snapshot ids, so results do not change while another writer commits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from frazil_old.config.sql import identifier, literal
from frazil_old.config.time_sql import driver_rows
from frazil_old.dms.position import POSITION, Position
from frazil_old.lake import jvm
from frazil_old.lake.snapshot_log import KeptSnapshot, read_kept_snapshots
from frazil_old.lake.tables import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from frazil_old.dms.endpoint import DatePartition

VERSIONS_FROM = 50
"""Versions of a key are looked for in at most this many snapshots, the newest, after which files were removed."""


@dataclass(frozen=True)
class Snapshot(KeptSnapshot):
    """One state of main. `after` is the id of the one before it, if that is kept."""

    after: int | None

    @property
    def first(self) -> bool:
        """Whether it is the table's first state."""
        return self.parent is None

    @property
    def kind(self) -> str:
        """`load`, `changes`, `compact` …, or Iceberg's operation for a commit that Frazil did not make."""
        return self.summary.get("frazil.kind", self.operation)

    @cached_property
    def position(self) -> Position | None:
        """The position that the snapshot was committed with."""
        text = self.summary.get(POSITION)
        return Position.from_json(text)[0] if text else None

    @cached_property
    def source_ms(self) -> list[int]:
        """When the source committed the changes, as quantiles (`latency_sketch.QUANTILES`); empty if DMS wrote no commit times."""
        sketch = json.loads(self.summary.get("frazil.latency", "{}"))
        return [sketch["picked_up"] - age for age in reversed(sketch.get("age", []))]

    def count(self, name: str) -> int:
        """Return a count of its changes or, by Iceberg's name, of its rows and files; 0 if missing."""
        counts = json.loads(self.summary.get("frazil.counts", "{}"))
        return int(counts.get(name, self.summary.get(name, 0)))


def lineage(spark: SparkSession, name: str) -> list[Snapshot]:
    """Return main's snapshots, oldest first: the current one's ancestors, and older ones that tags keep."""
    kept = read_kept_snapshots(spark, name)
    main = kept.chain(kept.newest)
    if not main:
        raise TableError(f"{name} has no snapshot: nothing was written to it yet", "run 00_setup first")
    # Snapshots that only tags keep are older than the rest: expiry cuts main's own chain at its beginning.
    tagged = {s.id: s for newest in kept.tags.values() for s in kept.chain(newest)}
    older = sorted((s for s in tagged.values() if s.made_ms < main[0].made_ms), key=lambda s: s.made_ms)
    known = {s.id for s in (*older, *main)}
    return [Snapshot(**vars(s), after=s.parent if s.parent in known else None) for s in (*older, *main)]


def read(spark: SparkSession, name: str, snapshot: int) -> DataFrame:
    """Return a table's rows and columns at a snapshot."""
    return spark.sql(f"select * from {name} VERSION AS OF {snapshot}")


def read_with_names_of_now(spark: SparkSession, name: str, snapshot: int, *more: str) -> DataFrame:
    """Return a table's rows at a snapshot with the names that their columns have now, and `more` metadata columns.

    A column that is gone is left out.
    """
    table = jvm.load_table(spark, name)
    then, now = table.schemas().get(table.snapshot(snapshot).schemaId()) or table.schema(), table.schema()
    names = {f.name(): now.findColumnName(f.fieldId()) for f in then.columns()}
    columns = [f"{identifier(old)} as {identifier(new)}" for old, new in names.items() if new]
    return spark.sql(f"select {', '.join([*columns, *more])} from {name} VERSION AS OF {snapshot}")


def source_time_bounds(states: list[Snapshot], named_by: DatePartition) -> dict[int, tuple[int | None, str]]:
    """Return {snapshot: (newest source time of its changes in epoch milliseconds, the origin of that time)}.

    The source committed none of its changes later. This is the largest commit time of its changes and of those before.
    Without commit times it is the time in the newest file's name, which DMS wrote afterwards; without files, the time
    of the lake's commit. None: the table holds nothing yet. A load's rows are older than the first change
    file, which DMS writes after the load. The settings `named_by` say in which time zone files are named.
    """
    bounds: dict[int, tuple[int | None, str]] = {}
    until: tuple[int | None, str] = (None, "")
    for i, s in enumerate(states):
        own: tuple[int, str] | None = s.committed_ms, "the lake's clock"
        files = s.position and s.position.last and (round(named_by.written_s(s.position.last) * 1000), "file names")
        gap = s.after is None and not s.first
        if gap:
            until, own = (None, ""), files or own
        elif s.first and s.count("total-records") == 0:
            own = None
        elif s.kind == "changes":
            own = (s.source_ms[-1], "commit times") if s.source_ms else files or own
        elif s.kind == "load" and not s.position.last:
            later = next((n.position for n in states[i + 1 :] if n.kind == "changes" and n.position.recent), None)
            if later:
                own = min(own, (round(named_by.written_s(later.recent[0]) * 1000), "file names"))
            elif until[0] is None and s.count("total-records") == 0:
                own = None
        elif s.operation == "replace" or s.kind == "position" or _goes_before_a_compaction(s, states[i + 1 : i + 2]):
            own = None
        if own and (until[0] is None or own[0] > until[0]):
            until = own
        bounds[s.id] = until
    return bounds


def _goes_before_a_compaction(s: Snapshot, following: list[Snapshot]) -> bool:
    """Return whether a snapshot commits the deletes of a compaction just before it, as may happen in v2: they hide copies of dead rows."""
    return not s.count("added-data-files") and any(n.kind == "compact" and n.after == s.id for n in following)


@dataclass(frozen=True)
class Version:
    """One version of a key: its values, its place in a file, and the sequence number of the commit that made it."""

    sequence: int
    row: dict[str, Any]
    file: str
    position: int
    row_id: int | None


def versions(spark: SparkSession, name: str, states: list[Snapshot], where: str) -> list[Version]:
    """Return every version of the row that `where` selects in the files of kept snapshots, oldest first.

    A deletion vector hides a row but leaves it in its file. A read with `_deleted` therefore sees all versions in the
    files of a snapshot. The current snapshot is read, and each one after which a compaction or reload removed files.
    Format v3 keeps the sequence number of the last change with the row. In v2 it is the file's, and copies made by a
    compaction are recognised by their values.
    """
    by_id = {s.id: s for s in states}
    before = [by_id[s.after] for s in states if s.after and s.count("deleted-data-files")]
    seen = dict.fromkeys([states[-1].id, *[s.id for s in reversed(before)][:VERSIONS_FROM]])
    lineage = jvm.format_version(jvm.load_table(spark, name)) > 2
    ids = ["_row_id", "_last_updated_sequence_number"] if lineage else ["null _row_id", "null _sequence"]
    more = ["_file", "_pos", *ids, "_deleted"]
    found: dict[tuple[str, int], Any] = {}
    for snapshot in seen:
        rows = read_with_names_of_now(spark, name, snapshot, *more).where(where)
        columns = list(map(identifier, rows.columns))
        row = f"struct({', '.join(columns[: -len(more)])})"
        for r in driver_rows(rows.selectExpr(row, *columns[-len(more) :])).collect():
            found.setdefault((r[1], r[2]), r)
    if not found:
        return []
    listed = ", ".join(literal(file) for file in {f for f, _ in found})
    added = {
        r.file: r
        for r in spark.sql(
            f"""select data_file.file_path file, min(sequence_number) seq, min(snapshot_id) by from {name}.all_entries
                where data_file.content = 0 and data_file.file_path in ({listed}) group by 1"""
        ).collect()
    }
    every = [
        Version(r[4] if r[4] is not None else added[r[1]].seq, r[0].asDict(), r[1], r[2], r[3]) for r in found.values()
    ]
    copied = {f for f, a in added.items() if a.by in by_id and by_id[a.by].operation == "replace"}
    kept: list[Version] = []
    for v in sorted(every, key=lambda v: (v.sequence, v.file in copied)):
        copy = v.file in copied and kept and (kept[-1].sequence == v.sequence or kept[-1].row == v.row)
        if not copy:
            kept.append(v)
    return kept


def sequences(spark: SparkSession, name: str) -> dict[int, int]:
    """Return {sequence number: snapshot}."""
    return {s.sequenceNumber(): s.snapshotId() for s in jvm.load_table(spark, name).snapshots()}


def first_without(spark: SparkSession, name: str, states: list[Snapshot], where: str) -> Snapshot | None:
    """Return the first of these snapshots without the row that `where` selects, by bisection; None if the last one has it."""

    def there(s: Snapshot) -> bool:
        return not read_with_names_of_now(spark, name, s.id).where(where).isEmpty()

    if not states or there(states[-1]):
        return None
    low, high = 0, len(states) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if there(states[middle]) else (low, middle)
    return states[low]
