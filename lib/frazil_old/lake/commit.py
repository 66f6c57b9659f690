"""Exactly once: a batch is written to a branch, and one metadata swap makes it main together with its position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil_old.dms.position import POSITION, Position
from frazil_old.errors import FrazilError
from frazil_old.lake import jvm
from frazil_old.lake.batch_branches import BATCH, BRANCH_PREFIX, _is_over
from frazil_old.lake.commit_retry import ATTEMPTS, may_try_again, until_committed
from frazil_old.lake.tables import TableState, read_table_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Write = Callable[[str, dict[str, str]], None]
_left: set[str] = set()
"""Tables on which this process failed to remove a branch."""


class RowDeltaUnsupportedError(FrazilError):
    """A table or batch that a row delta cannot write: a MERGE does, with this reason."""


class MismatchError(RowDeltaUnsupportedError):
    """Index and table disagree: the index is dropped, and a MERGE writes this batch."""


class PositionMovedError(FrazilError):
    """Another run of Frazil moved the table's position in the meantime: this run skips the table."""


class TooManyConflictsError(PositionMovedError):
    """Other writers committed each time before the batch could: the batch was not applied, and the position is unchanged."""

    def __init__(self, name: str):
        super().__init__(
            f"{name}: others committed to it {ATTEMPTS} times in a row while a batch was written",
            "nothing of the batch was applied: the next pass, or run, begins with it; let them commit less often",
        )


@dataclass(frozen=True)
class Commit:
    """What one commit did; `committed_at` in epoch milliseconds, `summary` as Iceberg and Frazil wrote it."""

    committed_at: int
    summary: dict[str, str]

    def count(self, name: str) -> int:
        """Return a count from the summary; 0 if it is missing."""
        return int(self.summary.get(name, 0))


@dataclass(frozen=True)
class CommitMetadata:
    """What a batch's commit has besides its rows: the position, the snapshot's summary, and other table properties."""

    position: Position
    summary: dict[str, str]
    properties: dict[str, str] = field(default_factory=dict)
    """They are read when the batch is published, so a writer may still add some."""
    before_commit: Callable[[], object] = lambda: None
    """Called in each attempt when all files are written, before the commit is public."""

    @property
    def of_swap(self) -> jvm.SwapMetadata:
        """What the batch's swap sets in the table."""
        summary = {**self.summary, BATCH: self.position.batch, POSITION: self.position.to_json()}
        return jvm.SwapMetadata(self.position.to_json, self.properties, summary)


def commit_batch(spark: SparkSession, name: str, base: TableState, metadata: CommitMetadata, write: Write) -> Commit:
    """Let `write(branch table, summary)` write a batch to a branch of main, then publish it with its position.

    Data, deletes, tag, position and further properties change in one swap, or not at all. If main moved in the meantime
    (a compaction), the batch is written again on the new main. Raise what `commit_exactly_once` raises.
    """
    batch, of_swap = metadata.position.batch, metadata.of_swap
    branch = BRANCH_PREFIX + batch

    def attempt(on: TableState) -> Commit:
        jvm.fork(spark, name, branch, on.snapshot)
        write(f"{name}.branch_{branch}", of_swap.summary)
        metadata.before_commit()
        table = jvm.load_table(spark, name)
        require_same_position(table, name, base)
        return commit_of(spark, jvm.publish(table, branch, on.snapshot, of_swap))

    return commit_exactly_once(spark, name, base, batch, attempt, lambda: _drop(spark, name, branch))


def commit_exactly_once(
    spark: SparkSession,
    name: str,
    base: TableState,
    batch: str,
    attempt: Callable[[TableState], Commit],
    undo: Callable[[], None] = lambda: None,
) -> Commit:
    """Call `attempt(base)` until it commits a batch, each time with the table's newest state; see `until_committed`.

    The batch's id in main's history shows whether it was committed; if not, `undo` is called. A commit that happens
    late moves the position, and further attempts are refused. Raise PositionMovedError if the position moved, because
    another run is working. Raise TooManyConflictsError if main moved each time.
    """
    on, main_moved = base, False

    def failed(error: Exception) -> None:
        nonlocal on, main_moved
        undo()
        if may_try_again(error):
            now = read_table_state(spark, name)
            if now.stored != base.stored:
                raise _position_moved(name) from error
            on, main_moved = now, now.snapshot != on.snapshot

    try:
        return until_committed(lambda: attempt(on), lambda: find(spark, name, batch, base), failed)
    except Exception as error:
        if main_moved and may_try_again(error):
            raise TooManyConflictsError(name) from error
        raise
    finally:
        _is_over(batch)


def require_same_position(table: jvm.JavaTable, name: str, base: TableState) -> None:
    """Raise PositionMovedError if the table's position is no longer that of `base`."""
    if table.properties().get(POSITION) != base.stored:
        raise _position_moved(name)


def _position_moved(name: str) -> PositionMovedError:
    return PositionMovedError(f"{name}: its position moved while a batch was written", "run again")


def _drop(spark: SparkSession, name: str, branch: str) -> None:
    """Remove a branch; if the catalog does not answer, remember that it remains."""
    try:
        jvm.drop_branch(spark, name, branch)
    except Exception:
        _left.add(name)
        raise


def leaves_branches(name: str) -> bool:
    """Return whether this process has left a branch on a table since the last call."""
    found = name in _left
    _left.discard(name)
    return found


def commit_of(spark: SparkSession, snapshot: jvm.JavaSnapshot) -> Commit:
    """Return the commit that made a snapshot."""
    return Commit(snapshot.timestampMillis(), jvm.summary_of(spark, snapshot))


def find(spark: SparkSession, name: str, batch: str, base: TableState) -> Commit | None:
    """Find a batch in main's history after `base`. This resolves a commit of unknown outcome."""
    for snapshot in jvm.ancestors(jvm.load_table(spark, name)):
        if snapshot.snapshotId() == base.snapshot:
            break
        if snapshot.summary().get(BATCH) == batch:
            return commit_of(spark, snapshot)
    return None
