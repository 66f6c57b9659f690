"""Iceberg's Java API for row deltas: the live data files of a snapshot, delete files in bulk, one commit.

Objects that may be many are passed as JSON: one py4j call costs 0.1 ms, and a commit may touch every file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frazil_old.config.paths import local_path
from frazil_old.lake.jvm import (
    AT_ONCE,
    Handles,
    JavaSnapshot,
    JavaTable,
    SwapMetadata,
    begin,
    finish,
    for_each,
    java_list,
    package,
)
from frazil_old.lake.jvm_data_files import ScanTasks, _no_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GUAVA = "org.apache.iceberg.relocated.com.google.common"
Check = Callable[[JavaSnapshot], None]


@dataclass
class LiveFile:
    """A live data file: its spec, and its partition and delete files in Iceberg's JSON form."""

    spec_id: int
    partition: Any
    rows: int
    deletes: list[dict] = field(default_factory=list)
    vector: Any = None
    """The bitmap of the rows that its own deletes remove, once read."""

    @property
    def own(self) -> list[dict]:
        """The deletes that belong to this file alone, so that new ones replace them. On v2, others may cover a whole partition."""
        return [d for d in self.deletes if d.get("referenced-data-file")]

    @property
    def mark(self) -> str:
        """A string that identifies the file's present deletes."""
        return "|".join(sorted(f"{d['file-path']}:{d.get('content-offset', 0)}" for d in self.deletes))


def live_files(spark: SparkSession, table: JavaTable, snapshot: int) -> dict[str, LiveFile]:
    """Return the data files of a snapshot by location, as the table spells it."""
    found = {}
    for data in each_task(spark, scan_tasks(spark, table, snapshot)):
        file = data["data-file"]
        deletes = data.get("delete-files") or []
        found[file["file-path"]] = LiveFile(file["spec-id"], file.get("partition"), file["record-count"], deletes)
    return found


def scan_tasks(spark: SparkSession, table: JavaTable, snapshot: int, only: Iterable[str] | None = None) -> Any:
    """Return the scan tasks of a snapshot as a Java list; with `only`, those of the data files at these locations."""
    lists, plan = package(spark, f"{_GUAVA}.collect").Lists, table.newScan().useSnapshot(snapshot).planFiles()
    try:
        if only is not None:
            filtered = package(spark, "org.apache.iceberg.io").CloseableIterable.filter
            return lists.newArrayList(filtered(plan, _is_of(spark, only)).iterator())
        return lists.newArrayList(plan.iterator())
    finally:
        plan.close()


def _is_of(spark: SparkSession, paths: Iterable[str]) -> Any:
    """Return a Java Predicate that is true for the scan tasks of these data files."""
    handles, wanted = Handles(spark), package(spark, "java.util").HashSet(_texts(spark, paths))
    file_of = handles.of("org.apache.iceberg.ContentScanTask", "file", "org.apache.iceberg.ContentFile")
    path_of = handles.of("org.apache.iceberg.ContentFile", "location", "java.lang.String")
    contains = handles.bound(wanted, "contains", "boolean", "java.lang.Object")
    is_wanted = handles.chained(handles.chained(file_of, path_of), contains)
    return handles.as_lambda("java.util.function.Predicate", is_wanted)


def _texts(spark: SparkSession, paths: Iterable[str]) -> Any:
    """Return paths as a Java list in one call (py4j passes a Python list element by element): a tokenizer is an Enumeration."""
    util = package(spark, "java.util")
    return util.Collections.list(util.StringTokenizer("\n".join(paths), "\n"))


def each_task(spark: SparkSession, tasks: Any) -> Iterator[dict[str, Any]]:
    """Yield the `data-file` and the `delete-files` of scan tasks, a Java list, in Iceberg's JSON form.

    Asking the tasks themselves takes several py4j calls each, and a call takes milliseconds while other threads work. The
    JSON of a task repeats the table's schema, so it is dropped after each thousand of them.
    """
    for start in range(0, count := tasks.size(), AT_ONCE):
        lines = package(spark, "java.util").StringJoiner("\n")
        some = package(spark, "java.util").ArrayList(tasks.subList(start, min(start + AT_ONCE, count)))
        some.forEach(_each_as_json(spark, lines))
        for line in lines.toString().split("\n"):
            task = json.loads(line)
            yield {name: task[name] for name in ("data-file", "delete-files") if name in task}


def _each_as_json(spark: SparkSession, lines: Any) -> Any:
    """Return a Java Consumer that adds the JSON of each scan task to a StringJoiner: one py4j call for all."""
    handles, iceberg = Handles(spark), "org.apache.iceberg"
    to_json = handles.static(f"{iceberg}.ScanTaskParser", "toJson", "java.lang.String", f"{iceberg}.FileScanTask")
    add = handles.bound(lines, "add", "java.util.StringJoiner", "java.lang.CharSequence")
    return handles.as_lambda("java.util.function.Consumer", handles.chained(to_json, add))


def delete_files(spark: SparkSession, table: JavaTable, entries: list[dict]) -> list[Any]:
    """Turn delete files from JSON into Java lists, one per partition spec."""
    lists, tasks = [], ScanTasks(spark, table)
    for spec_id in {e["spec-id"] for e in entries}:
        mine = [e for e in entries if e["spec-id"] == spec_id]
        lists.append(tasks.of(_no_file(spec_id, mine[0].get("partition")), mine).deletes())
    return lists


def deleted_positions(spark: SparkSession, table: JavaTable, path: str, deletes: list[dict]) -> bytes | None:
    """Return the rows of a data file that these deletes remove, as a serialised 64-bit Roaring bitmap; None without deletes."""
    if not deletes:
        return None
    files = java_list(spark, [])
    for part in delete_files(spark, table, deletes):
        files.addAll(part)
    handles, io = Handles(spark), "org.apache.iceberg.io"
    read = handles.of(f"{io}.FileIO", "newInputFile", f"{io}.InputFile", "org.apache.iceberg.DeleteFile")
    read = handles.as_lambda("java.util.function.Function", read.bindTo(table.io()))
    loader = package(spark, "org.apache.iceberg.data").BaseDeleteLoader(read)
    blob = bytes(loader.loadPositionDeletes(files, path).serialize().array())
    return blob[8:-4]  # before it: length and magic number; after it: a checksum


def manifests_at_once(spark: SparkSession, table: JavaTable, update: Any) -> None:
    """Let an update of a local table read manifests in its own thread: Iceberg's pool is polled only every 10 ms."""
    if local_path(table.location()):
        executors = package(spark, f"{_GUAVA}.util.concurrent").MoreExecutors
        update.scanManifestsWith(executors.newDirectExecutorService())


@dataclass(frozen=True)
class Delta:
    """What a row delta changes: data files to add, deletes to add and to remove (in JSON), and the data files that these apply to."""

    new: Any
    added: list[dict]
    removed: list[dict]
    touched: list[str]


def commit(
    spark: SparkSession, table: JavaTable, base: int, delta: Delta, metadata: SwapMetadata, check: Check
) -> JavaSnapshot:
    """Commit a row delta and its metadata in one swap; return the new snapshot.

    `base` is the snapshot for which the deletes were computed; it must still be main's. If files that this batch does
    not touch were compacted since, Iceberg sees no conflict. But `Locator.live_files` would keep them, and a later
    delete of their rows would name removed files. `check(snapshot)` gets the snapshot before it is committed and may raise.
    """
    filters = package(spark, "org.apache.iceberg.expressions").Expressions
    tx = begin(table, base)
    update = tx.newRowDelta()
    manifests_at_once(spark, table, update)
    for_each(spark, delta.new, update, "addRows", ("org.apache.iceberg.RowDelta", "org.apache.iceberg.DataFile"))
    for entries, method in ((delta.added, "addDeletes"), (delta.removed, "removeDeletes")):
        for part in delete_files(spark, table, entries):
            for_each(spark, part, update, method, ("org.apache.iceberg.RowDelta", "org.apache.iceberg.DeleteFile"))
    touched = _texts(spark, delta.touched)
    update.validateFromSnapshot(base).validateDataFilesExist(touched).validateDeletedFiles()
    update.conflictDetectionFilter(
        filters.alwaysTrue()
    ).validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
    for k, v in metadata.summary.items():
        update.set(k, v)
    update.commit()
    head = tx.table().currentSnapshot()
    check(head)
    return finish(table, tx, head, metadata)
