"""The snapshots that a table keeps, with main's log and the tags: from its metadata, in one call and without a Spark job."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil_old.lake import jvm
from frazil_old.lake.tables import require_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class KeptSnapshot:
    """A snapshot that has not expired. Times are epoch milliseconds.

    `made_ms` is when it was made, perhaps on a branch. `current_ms` is when it first became main's state; None if main's
    log does not name it.
    """

    id: int
    parent: int | None
    made_ms: int
    current_ms: int | None
    operation: str
    summary: dict[str, str] = field(repr=False)

    @property
    def committed_ms(self) -> int:
        """When it became main's state, as far as this is known."""
        return self.made_ms if self.current_ms is None else self.current_ms


@dataclass(frozen=True)
class KeptSnapshots:
    """All snapshots of a table by id, main's newest one, main's log (time, id) and the tags."""

    by_id: dict[int, KeptSnapshot]
    newest: int | None
    log: list[tuple[int, int]]
    tags: dict[str, int]

    def chain(self, newest: int | None) -> list[KeptSnapshot]:
        """Return a snapshot and its kept ancestors, oldest first."""
        found = []
        while newest in self.by_id:
            found.append(self.by_id[newest])
            newest = self.by_id[newest].parent
        return found[::-1]

    def of_main(self) -> list[KeptSnapshot]:
        """Return the snapshots that are or were main's.

        Branches also leave snapshots of batches that were written again and of killed runs, until they expire: main's
        log names none of their descendants. Snapshots older than the log, which expiry cuts, are kept by tags, and tags
        name states of main.
        """
        logged = [s for s in self.by_id.values() if s.current_ms is not None]
        begin = min((s.made_ms for s in logged), default=float("inf"))
        ours = {s.id for s in self.by_id.values() if s.made_ms < begin}
        for snapshot in logged:
            at: KeptSnapshot | None = snapshot
            while at is not None and at.id not in ours:
                ours.add(at.id)
                at = self.by_id.get(at.parent)
        return [s for s in self.by_id.values() if s.id in ours]


def read_kept_snapshots(spark: SparkSession, name: str) -> KeptSnapshots:
    """Read them from the table's current metadata; raise TableError if the table does not exist."""
    require_table(spark, name)
    metadata = json.loads(jvm.metadata_json(spark, jvm.load_table(spark, name)))
    log = [(entry["timestamp-ms"], entry["snapshot-id"]) for entry in metadata.get("snapshot-log", ())]
    current = {snapshot: at for at, snapshot in reversed(log)}  # the first time counts
    refs = metadata.get("refs", {})
    return KeptSnapshots(
        {s["snapshot-id"]: _kept(s, current.get(s["snapshot-id"])) for s in metadata.get("snapshots", ())},
        refs["main"]["snapshot-id"] if "main" in refs else None,
        log,
        {tag: ref["snapshot-id"] for tag, ref in refs.items() if ref["type"] == "tag"},
    )


def _kept(found: dict, current_ms: int | None) -> KeptSnapshot:
    summary = dict(found.get("summary") or {})
    operation = summary.pop("operation", "")
    return KeptSnapshot(
        found["snapshot-id"], found.get("parent-snapshot-id"), found["timestamp-ms"], current_ms, operation, summary
    )
