"""Chooses how to write a batch per table and batch, and gives the reason.

There are three lanes. A row delta finds the old rows by the key index (`rowdelta`) or by a scan of the table's keys
(`scan`). A MERGE lets Spark find them (`merge`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from frazil_old.config.spec import TableSpec
from frazil_old.core.key_numbers import has_numbers
from frazil_old.dms.file_integrity import unpacked_bytes
from frazil_old.lake import index_store, jvm, jvm_data_files
from frazil_old.lake.commit import MismatchError, RowDeltaUnsupportedError
from frazil_old.lake.key_index import MANIFEST, bytes_per_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil_old.dms.listing import DmsObject
    from frazil_old.lake.row_delta import RowDelta
    from frazil_old.lake.tables import TableState

SECONDS = {"merge": (0.5, 0.8e-6, 0.15), "scan": (0.8, 0.2e-6, 0.1)}
"""Seconds of a batch that Spark writes: in any case, and on one core per row of the table and per MB of the batch.

They only order the lanes. `plan` estimates from a table's commits, and `advice` fits a model of queues to the ledger.
"""
MOST_MB = 64
"""MB of changes, unpacked, that a row delta by key index takes: the driver holds them in memory."""
ROWDELTA_S, ROWDELTA_S_PER_MB = 0.4, 0.15
INDEX_S, INDEX_S_PER_ROW, STORED_S_PER_ROW, AMORTISED = 2.0, 2e-6, 0.1e-6, 100
"""Seconds of a row delta by index, and of its index, which the batches of a long run share.

An index is built from the table's rows, or copied from the table's folder.
"""

LANES = {"merge": "MERGE", "scan": "row delta by scan", "rowdelta": "row delta"}
"""How messages name each lane."""
_testing, _tested = Lock(), {}
"""Results of the self-test, by application, catalog and format version."""


@dataclass(frozen=True)
class BatchToWrite:
    """A batch as the choice of its lane sees it. `partial`: its rows may lack columns.

    `why_large`: why the driver may not collect its rows. A row delta by index holds them in memory, so the number of
    rows decides, not that of files.
    """

    megabytes: float
    files: Sequence[DmsObject] = ()
    partial: bool = False
    why_large: str = ""

    def why_large_unpacked(self) -> str:
        """Return why packed files are too much for the driver; empty if they are not."""
        size = unpacked_bytes(self.files, MOST_MB * 10**6) or 0
        if size <= MOST_MB * 10**6:
            return ""
        return (
            f"{size / 1e6:,.0f} MB of changes or more once unpacked, too many for a row delta by index ({MOST_MB} MB)"
        )


@dataclass
class Costs:
    """What is known about one table: its rows, and for each lane the ratio of measured to estimated time."""

    rows: int = 0
    factor: dict[str, float] = field(default_factory=dict)
    index: str = ""
    """`stored` if an index is next to the table, `none` if not; empty if nobody has looked."""
    why_no_row_delta: str = ""
    last: str = ""


@dataclass
class Lanes:
    """The lanes of one run's tables; indexes stay loaded between batches. `mode` is auto or one of LANES."""

    spark: SparkSession
    folder: Path
    mode: str = "auto"
    limit_mb: int = 2048
    lasting: bool = False
    """Whether the run applies many batches, so that building an index pays."""
    open: dict[str, RowDelta] = field(default_factory=dict)
    costs: dict[str, Costs] = field(default_factory=dict)

    def choose(self, name: str, spec: TableSpec, batch: BatchToWrite, base: TableState) -> tuple[str, str]:
        """Return the lane of a batch, and the reason; `row_delta` returns the table's own."""
        lane, why = self.expect(name, spec, batch, base)
        if lane == "merge":
            return lane, why
        if reason := self._costs(name).why_no_row_delta or self.missing(name):
            return "merge", reason
        return lane, why

    def row_delta(self, name: str, spec: TableSpec) -> RowDelta:
        """Return the row deltas of a table by its key index, which stays loaded."""
        from frazil_old.lake.row_delta import RowDelta

        if name not in self.open or self.open[name].spec != spec:
            self.open[name] = RowDelta(self.spark, name, spec, self.folder, len(self.open))
        return self.open[name]

    def expect(
        self, name: str, spec: TableSpec, batch: BatchToWrite, base: TableState | None = None
    ) -> tuple[str, str]:
        """Return the lane that suits a batch, and the reason, without testing whether row deltas work here.

        `base` is None for a table that does not exist yet.
        """
        lane, why = self._by_size(name, spec, batch)
        if lane == "rowdelta" and (large := batch.why_large or batch.why_large_unpacked()):
            lane, why = "scan", large
        if lane == "rowdelta" and not has_numbers(spec):
            lane, why = "scan", "only Spark can number its keys, which are reals or long decimals"
        reason = base.merge_only if base and lane != "merge" else ""
        if base and lane == "scan" and not reason:
            reason = jvm_data_files.why_spark_writes(jvm.load_table(self.spark, name))
        return ("merge", f"{why}, and {reason}") if reason else (lane, why)

    def _by_size(self, name: str, spec: TableSpec, batch: BatchToWrite) -> tuple[str, str]:
        """Return the lane of a batch by the parameter, its size and that of its table; and the reason."""
        megabytes = batch.megabytes
        if self.mode == "merge":
            return "merge", "set"
        if spec.policy != "key":
            return "merge", "a table without a key"
        if batch.partial:
            return "merge", "rows that do not carry every column"
        if megabytes > MOST_MB and self.mode != "scan":
            return "scan", f"{megabytes:.3g} MB of changes, too many for a row delta by index ({MOST_MB} MB)"
        too_large = "" if self.mode == "scan" else self._why_no_index(name, spec)
        if self.mode in ("rowdelta", "scan"):
            return ("scan", too_large) if too_large else (self.mode, "set")
        about = {lane: self._guess(name, lane, megabytes) for lane in LANES if not (lane == "rowdelta" and too_large)}
        lane = min(about, key=about.__getitem__)
        others = ", ".join(f"a {LANES[other]} {seconds:.1f} s" for other, seconds in about.items() if other != lane)
        return lane, f"about {about[lane]:.1f} s, {others}"

    def _why_no_index(self, name: str, spec: TableSpec) -> str:
        """Return why a table's key index would be too large; empty if it would not."""
        megabytes = self._costs(name).rows * bytes_per_row(spec) / 1e6
        if megabytes <= self.limit_mb:
            return ""
        return f"its key index would take {megabytes:,.0f} MB, above index_limit_mb ({self.limit_mb})"

    def _guess(self, name: str, lane: str, megabytes: float, measured: bool = True) -> float:
        """Return the expected seconds: from rows and MB, times the ratio that this run measured."""
        costs, cores = self._costs(name), self.spark.sparkContext.defaultParallelism
        factor = costs.factor.get(lane) or next(iter(costs.factor.values()), 1.0) if measured else 1.0
        if lane in SECONDS:
            fixed, per_row, per_mb = SECONDS[lane]
            return factor * (fixed + (costs.rows * per_row + megabytes * per_mb) / cores)
        index = 0.0
        if measured and name not in self.open:
            per_row = {"here": 0.0, "stored": STORED_S_PER_ROW, "none": INDEX_S_PER_ROW / cores}[self._index(name)]
            index = INDEX_S + costs.rows * per_row
        return factor * (ROWDELTA_S + megabytes * ROWDELTA_S_PER_MB + index / (AMORTISED if self.lasting else 1))

    def _index(self, name: str) -> str:
        """Return where the index of a table is: `here`, `stored` next to the table, or `none`."""
        costs = self._costs(name)
        if (self.folder / name / MANIFEST).exists():
            return "here"
        if not costs.index:
            stored = costs.rows >= index_store.LEAST_ROWS and index_store.is_stored(jvm.load_table(self.spark, name))
            costs.index = "stored" if stored else "none"
        return costs.index

    def _costs(self, name: str) -> Costs:
        if name not in self.costs:
            now = jvm.load_table(self.spark, name).currentSnapshot()
            self.costs[name] = Costs(int(now.summary().get("total-records") or 0) if now else 0)
        return self.costs[name]

    def note(self, name: str, summary: dict[str, str], megabytes: float, seconds: float) -> str:
        """Record how long a batch took, by its snapshot's summary; return a message about its lane if that has changed."""
        lane, why = summary["frazil.lane"], summary["frazil.lane-reason"]
        costs = self._costs(name)
        if lane != "rowdelta" or costs.last == lane:  # the first row delta reads or builds the index
            now = seconds / self._guess(name, lane, megabytes, measured=False)
            costs.factor[lane] = 0.7 * costs.factor.get(lane, now) + 0.3 * now
        costs.rows = int(summary.get("total-records") or 0)
        news, costs.last = lane != costs.last and self.mode != "merge", lane
        index = self.open[name].locator.index if lane == "rowdelta" else None
        size = f"; index of {index.bytes / 1e6:,.1f} MB" if index else ""
        return f"{LANES[lane]} ({why}{size})" if news else ""

    def rule_out_row_delta(self, name: str, error: RowDeltaUnsupportedError) -> str:
        """Return why a batch needs a MERGE. Unless index and table disagreed, the table gets no more row deltas in this run."""
        if not isinstance(error, MismatchError):
            self.costs[name].why_no_row_delta = error.problem
        return error.problem

    def missing(self, name: str) -> str:
        """Return what row deltas lack here, empty if nothing. The self-test commits to a scratch table next to `name`, once."""
        if name in self.open:
            return ""
        version = jvm.format_version(jvm.load_table(self.spark, name))
        tested = (self.spark.sparkContext.applicationId, name.split(".", 1)[0], version)
        from frazil_old.lake.row_delta_self_test import self_test

        with _testing:
            if tested not in _tested:
                _tested[tested] = self_test(self, name, version)
        return _tested[tested]

    def save(self) -> None:
        """Write the present indexes to disk."""
        for lane in self.open.values():
            lane.locator.save()
