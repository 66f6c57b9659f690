"""Compaction during ingestion: rewrite data files in file groups, each committed separately with the deletes that arrived meanwhile.

A file group is written without a commit (`rewrite_files`). Later deletes of its old files are mapped to the new ones by the
places of the rows. They join the commit. If yet another delete arrives, Iceberg refuses the commit, and the mapping is
repeated. Compaction never waits longer than one batch, and locks nothing.

Threads rewrite several file groups at the same time, each on one core. They commit one after the other. Iceberg's own
procedure rewrites tables that need Spark: see `why_by_iceberg`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from frazil_old.config.cpu_priority import job_properties, low_priority
from frazil_old.config.settings import MaintenanceSettings
from frazil_old.config.spark_session import is_local, missing_python
from frazil_old.config.sql import literal
from frazil_old.errors import FrazilError
from frazil_old.lake import jvm, jvm_data_files, jvm_maintenance
from frazil_old.lake.batch_branches import BRANCH_PREFIX, remove_abandoned_branches
from frazil_old.lake.carried_deletes import remapped_deletes
from frazil_old.lake.commit_retry import MainMovedError, is_known_failure, may_try_again, until_committed
from frazil_old.lake.delete_files import deleted_rows
from frazil_old.lake.rewrite_files import ORDER, OldFile, RewritePlan, Rewritten, rewrite_files
from frazil_old.lake.same_rows import ChangedRowsError
from frazil_old.lake.small_file_merge import is_ingesting, left_to_ingestion

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FILE_GROUP = "frazil.slice"
ANY_DELETED = 1e-9
"""The share that stands for 0 in Iceberg's procedure, which refuses that."""
MOST_FILES = 200
"""Limit of files in a file group."""
ATTEMPTS, WAIT_FOR_WRITER_S = 3, 30.0
"""Times to try to commit a file group against ingestion, and seconds that each waits for a batch in progress."""
MOST_AT_ONCE = 8
"""Limit of file groups that are rewritten at the same time: this process plans and commits them one after the other."""


class CompactionError(FrazilError):
    """A file group's new files do not hold exactly the rows of the old ones; nothing of it was committed."""


@dataclass(frozen=True)
class FileGroup:
    """Data files that are rewritten together: their paths, bytes and live rows."""

    files: tuple[str, ...]
    bytes: int
    rows: int


@dataclass(frozen=True, order=True)
class _File:
    """A data file that compaction may rewrite; `worn` if too many of its rows are deleted."""

    bytes: int
    live: int
    worn: bool
    path: str


def file_groups(spark: SparkSession, table: jvm.JavaTable, s: MaintenanceSettings) -> list[FileGroup]:
    """Pack files that are small or have many deleted rows into groups of about the target size; smallest first.

    Files of another partition spec, with equality deletes, or that ingestion will replace itself are left alone. A
    group never spans partitions.
    """
    tasks = jvm_maintenance.Tasks(spark, table, table.currentSnapshot().snapshotId())
    spec_id, young = table.spec().specId(), left_to_ingestion(spark, table)
    partitions: dict[str, list[_File]] = {}
    for path, task in tasks.by_path.items():
        file = task["data-file"]
        equality = any(d["content"].upper().startswith("EQUALITY") for d in tasks.deletes(path))
        if path in young or file["spec-id"] != spec_id or equality:
            continue
        rows, size = file["record-count"], file["file-size-in-bytes"]
        gone = sum(d["record-count"] for d in tasks.own_deletes(path))
        worn = gone > s.max_deleted_share * rows
        if worn or size < s.small_file_mb * (1 << 20):
            partition = json.dumps(file.get("partition"))
            partitions.setdefault(partition, []).append(_File(size, rows - gone, worn, path))
    groups = [group for files in partitions.values() for group in _packed(sorted(files), s)]
    return [
        FileGroup(tuple(f.path for f in group), sum(f.bytes for f in group), sum(f.live for f in group))
        for group in groups
        if len(group) > 1 or group[0].worn
    ]


def _packed(files: list[_File], s: MaintenanceSettings) -> Iterator[list[_File]]:
    """Yield the files of a partition in groups of at most the target size, and of at most `MOST_FILES`."""
    group: list[_File] = []
    for file in files:
        full = sum(f.bytes for f in group) + file.bytes > s.target_file_mb << 20 or len(group) >= MOST_FILES
        if group and full:
            yield group
            group = []
        group.append(file)
    yield group


@dataclass(frozen=True)
class Job:
    """The compaction of one table. Its file groups commit one at a time (`turn`), and no longer once it is `stopped`."""

    spark: SparkSession
    name: str
    settings: MaintenanceSettings
    run: str
    turn: Lock = field(default_factory=Lock)
    stopped: Event = field(default_factory=Event)
    tag: str = field(default_factory=lambda: f"compaction-{uuid.uuid4()}")
    """The tag of its Spark jobs. Their job group may also have jobs of ingestion."""

    def others_since(self, snapshot: int, table: jvm.JavaTable) -> bool:
        """Return whether main has a commit after this snapshot that is not of this compaction."""
        newer = takewhile(lambda s: s.snapshotId() != snapshot, jvm.ancestors(table))
        return any(not (s.summary().get(FILE_GROUP) or "").startswith(f"{self.run}/") for s in newer)

    def cancel(self, running: set[Future]) -> None:
        """Let no further file group commit, cancel the Spark jobs of all, and return when none is running."""
        self.stopped.set()
        while wait(running, timeout=0.2).not_done:  # a thread may be about to start its next job
            self.spark.sparkContext.cancelJobsWithTag(self.tag)


def at_once(spark: SparkSession, table: jvm.JavaTable) -> int:
    """Return how many file groups to rewrite at the same time: one on each of Spark's cores, but one core is left to ingestion."""
    return max(1, min(spark.sparkContext.defaultParallelism - is_ingesting(table), MOST_AT_ONCE))


def compact(
    spark: SparkSession, name: str, s: MaintenanceSettings, run: str, say: Callable[[str], None]
) -> dict[str, float]:
    """Compact a table in file groups within the run's time, and return counts of what was done.

    If one group fails, the others are cancelled, and its error is raised. A run that was stopped or killed continues
    with the next run: the plan depends on the table alone.
    """
    remove_abandoned_branches(spark, name)  # a dead batch must not delay compaction
    table, began, job = jvm.load_table(spark, name), time.monotonic(), Job(spark, name, s, run)
    planned = file_groups(spark, table, s)
    if planned and (why := jvm_data_files.why_by_iceberg(spark, table)):
        say(f"{name}: Iceberg's rewrite_data_files compacts it, as {why}")
        return _by_iceberg(job, table, began)
    counts = dict.fromkeys(("file_groups", "planned_files", "rewritten_files", "added_files", "carried_deletes"), 0)
    counts |= {"planned_files": sum(len(p.files) for p in planned), "rewritten_bytes": 0, "attempts": 0, "given_up": 0}
    head, running = 0, set()
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        try:
            for number, group in enumerate(planned, 1):
                running = _settled(running, counts, at_once(spark, table) - 1)
                if number > 1 and time.monotonic() - began > s.max_run_s:
                    say(
                        f"{name}: max_run_s has passed before file group {number} of {len(planned)}; the next run continues"
                    )
                    break
                table = jvm.load_table(spark, name)
                # Another writer commits too: let a batch go first and catch up.
                if head and job.others_since(head, table):
                    table = _until_somebody_commits(spark, name)
                head = table.currentSnapshot().snapshotId()
                running.add(pool.submit(_in_thread, job, job_properties(spark), group, number))
            _settled(running, counts, 0)
        except BaseException:
            job.cancel(running)
            raise
    return counts | {"mb_per_s": float(f"{counts['rewritten_bytes'] / 1e6 / (time.monotonic() - began):.3g}")}


def _by_iceberg(job: Job, table: jvm.JavaTable, began: float) -> dict[str, float]:
    """Let Iceberg's procedure compact a table, in commits of its own; return counts as `compact` does."""
    s = job.settings
    options = {
        "target-file-size-bytes": s.target_file_mb << 20, "max-file-group-size-bytes": s.target_file_mb << 20,
        "min-input-files": 2, "delete-ratio-threshold": max(s.max_deleted_share, ANY_DELETED), "partial-progress.enabled": "true",
        "max-concurrent-file-group-rewrites": at_once(job.spark, table),
    }  # fmt: skip
    given = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    by = "strategy => 'sort', " if table.sortOrder().isSorted() else ""
    catalog, name = job.name.split(".", 1)
    call = f"CALL {catalog}.system.rewrite_data_files(table => {literal(name)}, {by}options => map({given}))"
    with low_priority(job.spark):
        done = job.spark.sql(call).first()
    seconds = time.monotonic() - began
    return {
        "file_groups": done.added_data_files_count, "planned_files": done.rewritten_data_files_count + done.failed_data_files_count,
        "rewritten_files": done.rewritten_data_files_count, "added_files": done.added_data_files_count, "carried_deletes": 0,
        "rewritten_bytes": done.rewritten_bytes_count, "attempts": 1, "given_up": done.failed_data_files_count,
        "mb_per_s": float(f"{done.rewritten_bytes_count / 1e6 / seconds:.3g}"),
    }  # fmt: skip


def _settled(running: set[Future], counts: dict[str, int], most: int) -> set[Future]:
    """Wait until no more than `most` file groups are running; add up what the others did, and raise what one failed on."""
    while len(running) > most:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for what, value in (pair for each in done for pair in each.result().items()):
            counts[what] = max(counts[what], value) if what == "attempts" else counts[what] + value
    return running


def _in_thread(job: Job, properties: dict[str, str | None], group: FileGroup, number: int) -> dict[str, int]:
    """Compact a file group in this thread; its Spark jobs get the properties of the caller's."""
    jvm.use(job.spark)
    for name, value in properties.items():
        job.spark.sparkContext.setLocalProperty(name, value)
    job.spark.sparkContext.addJobTag(job.tag)
    with low_priority(job.spark):
        return compact_group(job, group, number)


def compact_group(job: Job, group: FileGroup, number: int) -> dict[str, int]:
    """Rewrite a file group, and commit it when it is its turn. Run and number resolve an unknown outcome: its snapshot names them."""
    spark, name, mark = job.spark, job.name, f"{job.run}/{number}"
    table, began = jvm.load_table(spark, name), time.time()
    start = table.currentSnapshot()
    before = jvm_maintenance.Tasks(spark, table, start.snapshotId(), group.files)
    if not all(path in before.by_path for path in group.files):
        return {"given_up": 1}
    rewrite = _rewrite(job, table, group, before)
    new = jvm_data_files.from_json(spark, table, rewrite.entries)
    facts = {"files": len(group.files), "added": len(new), "began": round(began * 1000), "bytes": group.bytes}
    swap = _Swap(job, start, before, (rewrite, new))
    try:
        with job.turn:
            until_committed(
                lambda: swap.attempt(facts, mark), lambda: _happened(spark, name, mark), swap.failed, ATTEMPTS
            )
    except Exception as error:
        if not (isinstance(error, _FilesGoneError) or may_try_again(error)):
            raise
        return {"given_up": 1, "attempts": swap.attempts}
    finally:
        if not swap.commits:
            jvm_maintenance.remove_files(table, new)
    return {"file_groups": 1, "rewritten_files": len(group.files), "added_files": len(new),
            "carried_deletes": swap.carried, "rewritten_bytes": group.bytes, "attempts": swap.attempts}  # fmt: skip


class _FilesGoneError(Exception):
    """Another writer replaced or removed files of a group while it was rewritten."""


class _Swap:
    """Swaps a group's old files for the new ones, with the deletes that arrived since the rewrite began."""

    def __init__(
        self, job: Job, start: jvm.JavaSnapshot, before: jvm_maintenance.Tasks, rewrite: tuple[Rewritten, list[Any]]
    ):
        self.job, self.spark, self.name, self.start, self.before = job, job.spark, job.name, start, before
        self.rewrite, self.new = rewrite
        self.old = jvm.java_list(job.spark, [before.task(path).file() for path in self.rewrite.live])
        self.attempts, self.carried, self.deletes, self.sent = 0, 0, [], False
        self.commits = 0
        """Commits that did not certainly fail: the new files must stay. Orphan removal deletes unused ones."""

    def attempt(self, facts: dict[str, int], mark: str) -> bool:
        """Commit once, when no batch is being written; raise MainMovedError if one still is after `WAIT_FOR_WRITER_S`."""
        spark, name = self.spark, self.name
        self.deletes, self.sent = [], False
        if self.job.stopped.is_set():
            raise CancelledError(name)
        self.attempts += 1
        if self.attempts > 1 or self.job.others_since(self.start.snapshotId(), jvm.load_table(spark, name)):
            _until_somebody_commits(spark, name)
        table = _after_the_batch_in_flight(spark, name)
        head = table.currentSnapshot().snapshotId()
        now = jvm_maintenance.Tasks(spark, table, head, [*self.rewrite.live])
        if not all(path in now.by_path for path in self.rewrite.live):
            raise _FilesGoneError(name)
        self.deletes, self.carried = remapped_deletes(spark, table, self.before, now, self.rewrite)
        old_deletes = [d for path in self.rewrite.live for d in now.own_deletes(path)]
        files = jvm_maintenance.Replacement(self.old, old_deletes, self.new, self.deletes)
        counts = json.dumps({**facts, "carried": self.carried, "attempt": self.attempts})
        summary = {"frazil.kind": "compact", FILE_GROUP: mark, "frazil.counts": counts, ORDER: self.rewrite.order()}
        self.sent, self.commits = True, self.commits + 1
        jvm_maintenance.commit_rewrite(spark, table, head, self.start.sequenceNumber(), files, summary)
        return True

    def failed(self, error: Exception) -> None:
        """Remove the deletes of an attempt that certainly failed."""
        if self.sent and is_known_failure(error):
            self.commits -= 1
            jvm_maintenance.remove_files(jvm.load_table(self.spark, self.name), self.deletes)


def _rewrite(job: Job, table: jvm.JavaTable, group: FileGroup, before: jvm_maintenance.Tasks) -> Rewritten:
    """Write the live rows of a file group to new files, which are in no snapshot yet: in one task, or in this thread.

    There is no new file if all rows are deleted. If it fails, no new file is left.
    """
    spark, has_row_ids = job.spark, jvm.format_version(table) >= 3
    files = []
    for path in group.files:
        file, deletes = before.task(path).file(), before.deletes(path)
        deleted = deleted_rows(spark, table, path, deletes).serialize() if deletes else b""
        files.append(OldFile(path, deleted, *((file.firstRowId(), file.dataSequenceNumber()) if has_row_ids else ())))
    plan = RewritePlan(
        jvm.metadata_json(spark, table),
        jvm_data_files.storage_properties(table),
        tuple(files),
        job.settings.target_file_mb * 2 << 20,
        has_row_ids,
    )
    return _run(job, plan)


def _run(job: Job, plan: RewritePlan) -> Rewritten:
    """Rewrite files in a task of the cluster; in this thread on a local master, and where executors lack Python."""
    try:
        if not is_local(job.spark):
            try:
                return rewrite_in_task(job.spark, plan)
            except Exception as error:
                if not missing_python(error):
                    raise
        return rewrite_files(plan, job.stopped.is_set)
    except InterruptedError:
        raise CancelledError(job.name) from None
    except ChangedRowsError as error:
        raise CompactionError(f"{job.name}: {error}", "nothing was committed; run again") from None


def rewrite_in_task(spark: SparkSession, plan: RewritePlan) -> Rewritten:
    """Rewrite files in one task; raise ChangedRowsError as `rewrite_files` does."""

    def run(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            result = asdict(rewrite_files(plan))
        except ChangedRowsError as error:  # its class would not survive the way to the driver
            result = {"error": str(error)}
        yield pa.RecordBatch.from_pydict({"result": [json.dumps(result)]})

    result = json.loads(spark.range(0, 1, 1, 1).mapInArrow(run, "result string").first().result)
    if "error" in result:
        raise ChangedRowsError(result["error"])
    return Rewritten(**result)


def _after_the_batch_in_flight(spark: SparkSession, name: str) -> jvm.JavaTable:
    """Return the table once no batch is being written on a branch of it; raise MainMovedError after `WAIT_FOR_WRITER_S`.

    A batch that compaction overtakes would have to be written again, so the batch in progress goes first.
    """
    until = time.monotonic() + WAIT_FOR_WRITER_S
    while True:
        table = jvm.load_table(spark, name)
        if not jvm.branches(spark, table, BRANCH_PREFIX):
            return table
        if time.monotonic() > until:
            remove_abandoned_branches(spark, name)
            raise MainMovedError(f"{name}: a batch is being written")
        time.sleep(0.05)


def _until_somebody_commits(spark: SparkSession, name: str, patience: float = 2.0) -> jvm.JavaTable:
    """Wait for the next commit, and return the table: after it, the time until another one is longest.

    So no batch has to be written again.
    """
    until, table = time.monotonic() + patience, jvm.load_table(spark, name)
    last = table.currentSnapshot().snapshotId()
    while time.monotonic() < until and table.currentSnapshot().snapshotId() == last:
        time.sleep(0.05)
        table = jvm.load_table(spark, name)
    return table


def _happened(spark: SparkSession, name: str, mark: str) -> bool | None:
    """Return True if the file group `mark` is in main's history, else None."""
    return any(x.summary().get(FILE_GROUP) == mark for x in jvm.ancestors(jvm.load_table(spark, name))) or None
