"""The values that pass the six steps: each step takes what the one before returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.core.changes import COMMITTED, Changes
from frazil.core.latest import Latest
from frazil.dms.file_columns import FileColumns
from frazil.dms.listing import TableFiles
from frazil.dms.position import Position
from frazil.dms.storage import DmsFile
from frazil.engine.read import TableReader
from frazil.engine.replay_files import BatchFiles, Replay
from frazil.iceberg.columns import ColumnPlan
from frazil.iceberg.commits import Change, Written
from frazil.iceberg.snapshot_summary import Snapshot
from frazil.pipeline.quarantine import Kept
from frazil.results import Result, Shown
from frazil.settings.spec import TableSpec

if TYPE_CHECKING:
    import pandas as pd

DONE = {"load": "loaded", "changes": "merged", "replay": "replayed"}
"""The status of a table by the kind of its last batch."""


class _Value(Shown):
    def to_pandas(self) -> pd.DataFrame:
        """Return what a cell shows, with a sentence about it."""
        from frazil.report.step_values import shown

        return shown(self)


@dataclass(frozen=True, repr=False)
class Batch(_Value):
    """What is applied to a table in one commit.

    `kind` is `load`, `changes` or `replay`. `files` are read in their order: after row `begin` of the first, to row `end`
    of the last. `columns` has the columns of each file; None: it has nothing. `planned` is the position from which the
    batch was planned, `after` the one that its commit brings. `there` are all files of the look, and `left` those that
    wait for later batches.
    """

    table: str
    kind: str
    planned: Position
    after: Position
    files: Mapping[str, DmsFile]
    columns: tuple[FileColumns | None, ...]
    reader: TableReader
    picked_up: float
    there: TableFiles
    left: tuple[DmsFile, ...] = ()
    begin: int = 0
    end: int | None = None
    replay: Replay | None = None
    """The rows that waited, of a replay."""


@dataclass(frozen=True, repr=False)
class BatchColumns(_Value):
    """How the files of a batch are read, and what the table's columns need before; `plan` is None if nothing changes."""

    plan: ColumnPlan | None
    files: BatchFiles

    @property
    def spec(self) -> TableSpec:
        """The spec by which the files are read."""
        return self.files.reader.table.spec


@dataclass(frozen=True, repr=False)
class BatchChanges(_Value):
    """The typed changes of a batch, in order, with its bad rows."""

    batch: Batch
    columns: BatchColumns
    changes: Changes

    @cached_property
    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """When the source committed each change, and when its file landed, in epoch seconds; NaN: nothing says so."""
        landed = np.array([file.landed for file in self.columns.files.files])[self.changes.facts["file"].to_numpy()]
        committed = self.changes.fact(COMMITTED)
        if committed is None:
            return np.full(len(landed), np.nan), landed
        return committed.cast(pa.int64()).cast(pa.float64()).to_numpy() / 1e6, landed


@dataclass(frozen=True, repr=False)
class BatchLatest(_Value):
    """What a batch comes to: the last change of each key, and the rows that wait afterwards."""

    changes: BatchChanges
    latest: Latest
    kept: Kept


@dataclass(frozen=True, repr=False)
class WrittenBatch(_Value):
    """A batch whose files are written, which no reader sees. It may be committed twice: the second time finds the first.

    `again` writes its files again, for a newer state of the table.
    """

    batch: Batch
    written: Written
    position: Position
    counts: Mapping[str, int]
    again: Callable[[], Change]


@dataclass(frozen=True, repr=False)
class Commit(_Value):
    """A batch that is in the table, with its position."""

    table: str
    kind: str
    snapshot: Snapshot
    position: Position
    counts: Mapping[str, int]
    seconds: float

    @property
    def result(self) -> Result:
        """The result of a table with this batch; a replay of which all rows are still bad is no news."""
        status = DONE[self.kind] if self.counts.get("replayed", 1) else "unchanged"
        return Result(self.table, status, counts={"batches": 1, **self.counts})
