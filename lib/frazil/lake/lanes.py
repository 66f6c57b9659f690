"""Which lane writes a batch: MERGE, or the row delta by key index; picked per table and batch, with the reason in words."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from frazil.config.spec import Column, TableSpec
from frazil.dms.position import Position
from frazil.errors import FrazilError
from frazil.lake import jvm, jvm_rowdelta
from frazil.lake.rowdelta import MismatchError, RowDelta, UnfitError
from frazil.lake.tables import create_table, read_base

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGE_S, MERGE_S_PER_ROW = 0.5, 0.4e-6
ROWDELTA_S, ROWDELTA_S_PER_MB = 0.35, 0.12
INDEX_S_PER_ROW = 1e-6
"""What a batch costs on two cores before this process has measured it: a MERGE by the table's rows, a row delta by the batch."""

_testing, _tested = Lock(), {}
"""What the self-test said, by application, catalog and format version."""


@dataclass
class Costs:
    """What one table's commits took, newest first in weight: seconds of a MERGE, seconds of a row delta per MB over its base."""

    merge: float | None = None
    rowdelta: float | None = None
    unfit: str = ""
    last: str = ""

    def note(self, lane: str, seconds: float) -> None:
        """Take in how long a batch took."""
        old = getattr(self, lane)
        setattr(self, lane, seconds if old is None else 0.7 * old + 0.3 * seconds)


@dataclass
class Lanes:
    """The lanes of one run's tables; indexes stay warm between batches. `mode` is auto, merge or rowdelta."""

    spark: SparkSession
    folder: Path
    mode: str = "auto"
    limit_mb: int = 2048
    max_mb: int = 64
    open: dict[str, RowDelta] = field(default_factory=dict)
    costs: dict[str, Costs] = field(default_factory=dict)

    def choose(
        self, name: str, spec: TableSpec, megabytes: float, partial: bool = False
    ) -> tuple[RowDelta | None, str]:
        """Return the row-delta lane of a table, or None for the merge lane, and why."""
        costs = self.costs.setdefault(name, Costs())
        if self.mode == "merge":
            return None, "set"
        if spec.policy != "key":
            return None, "a table without a key"
        if partial:
            return None, "rows that do not carry every column"
        if reason := self.missing(name) or costs.unfit:
            return None, reason
        if megabytes > self.max_mb:
            return None, f"{megabytes:.0f} MB of changes, above rowdelta_max_mb"
        if self.mode == "auto":
            merge, delta = self._guess(name, megabytes)
            if merge < delta:
                return None, f"about {merge:.1f} s, a row delta {delta:.1f} s"
            why = f"about {delta:.1f} s, a MERGE {merge:.1f} s"
        else:
            why = "set"
        if name not in self.open or self.open[name].spec != spec:
            self.open[name] = RowDelta(self.spark, name, spec, self.folder, self.limit_mb)
        return self.open[name], why

    def _guess(self, name: str, megabytes: float) -> tuple[float, float]:
        """Return the seconds to expect of a MERGE and of a row delta: as measured, else by the table's size."""
        summary = jvm.load_table(self.spark, name).currentSnapshot().summary()
        rows, costs = int(summary.get("total-records") or 0), self.costs[name]
        merge = costs.merge or MERGE_S + rows * MERGE_S_PER_ROW
        index = (
            0 if name in self.open or (self.folder / name / "manifest.json").exists() else rows * INDEX_S_PER_ROW / 10
        )
        return merge, (costs.rowdelta or ROWDELTA_S + megabytes * ROWDELTA_S_PER_MB) + index

    def note(self, name: str, summary: dict[str, str], seconds: float) -> str:
        """Take in what a batch took, by its snapshot's summary; return what to say of its lane, where that is news."""
        costs, lane = self.costs.setdefault(name, Costs()), summary["frazil.lane"]
        costs.note(lane, seconds)
        news, costs.last = lane != costs.last and self.mode != "merge", lane
        return f"{'row delta' if lane == 'rowdelta' else 'MERGE'} ({summary['frazil.lane-reason']})" if news else ""

    def unfit(self, name: str, error: UnfitError) -> str:
        """Return why a batch goes to the MERGE; a table that cannot go the other way is not tried again in this run."""
        if not isinstance(error, MismatchError):
            self.costs[name].unfit = error.problem
        return error.problem

    def missing(self, name: str) -> str:
        """Say what the row-delta lane lacks here, empty if nothing; commits to a scratch table beside `name` are tried once."""
        version = jvm_rowdelta.format_version(jvm.load_table(self.spark, name))
        tested = (self.spark.sparkContext.applicationId, name.split(".", 1)[0], version)
        with _testing:
            if tested not in _tested:
                _tested[tested] = self._look() or self_test(self, name, version)
        return _tested[tested]

    def save(self) -> None:
        """Write the indexes to disk as they are now."""
        for lane in self.open.values():
            lane.rows.save()

    def _look(self) -> str:
        try:
            import numpy  # noqa: F401
            import pyarrow  # noqa: F401
            import pyroaring  # noqa: F401
        except ImportError as e:
            return f"the package {e.name} is not installed"
        if type(self.spark).__module__.startswith("pyspark.sql.connect"):
            return "Spark Connect has no way to Iceberg's Java API"
        return ""


def self_test(lanes: Lanes, beside: str, version: int) -> str:
    """Write and read back a scratch table by row deltas; return what is wrong, empty if nothing is."""
    import pyarrow as pa

    name = f"{beside.rsplit('.', 1)[0]}.frazil_selftest_{secrets.token_hex(4)}"
    spec = TableSpec("self.test", name, ("id",), (Column("id", "INT8"), Column("v", "STRING")))
    lane = RowDelta(lanes.spark, name, spec, lanes.folder)
    try:
        create_table(lanes.spark, name, spec, version)
        for op, v in (("I", "a"), ("U", "b"), ("D", "c")):
            ids = [1, 2] if op == "I" else [1] if op == "U" else [2]
            rows = pa.table({
                "op": [op] * len(ids),
                "key0": pa.array(ids, pa.int64()), "c0": pa.array(ids, pa.int64()), "c1": [v] * len(ids),
            })  # fmt: skip
            lane.apply(read_base(lanes.spark, name), Position(batch=secrets.token_hex(4)), rows, {})
        got = [tuple(r) for r in lanes.spark.table(name).collect()]
        return "" if got == [(1, "b")] else f"the self-test read back {got}"
    except FrazilError as e:
        return f"the self-test failed: {e.problem}"
    except Exception as e:
        return f"the self-test failed: {jvm.cause(e)}"
    finally:
        lanes.spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")
