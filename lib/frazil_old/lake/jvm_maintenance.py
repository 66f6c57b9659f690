"""The JVM calls of maintenance: read chosen data files, commit a rewrite with deletes carried over, rewrite manifests.

Scan tasks pass through the caches of Iceberg's own rewrite action (`SparkTableCache`, `ScanTaskSetManager`). Names hold
for Iceberg 1.10 to 1.12.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frazil_old.lake.jvm import Handles, JavaSnapshot, JavaTable, for_each, java_class, java_list, package
from frazil_old.lake.jvm_row_delta import delete_files, each_task, manifests_at_once, scan_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_WHOLE = str(1 << 40)


class Tasks:
    """The scan tasks of a snapshot by data file, each with the delete files that apply; a task is fetched on demand.

    With `only`, those of these data files: a table may have very many.
    """

    def __init__(self, spark: SparkSession, table: JavaTable, snapshot: int, only: Iterable[str] | None = None):
        self._spark, self._listed = spark, scan_tasks(spark, table, snapshot, only)
        self.by_path = {t["data-file"]["file-path"]: t for t in each_task(spark, self._listed)}
        """The tasks in Iceberg's JSON form."""
        self._nth = {path: n for n, path in enumerate(self.by_path)}

    def task(self, path: str) -> Any:
        """Return the task of a data file."""
        return self._listed.get(self._nth[path])

    def deletes(self, path: str) -> list[dict]:
        """Return the deletes of a data file in Iceberg's JSON form."""
        return self.by_path[path].get("delete-files") or []

    def own_deletes(self, path: str) -> list[dict]:
        """Return the deletes that apply to this data file alone: every vector, but not all deletes of v2."""
        deletes = self.deletes(path)
        if all(d.get("referenced-data-file") for d in deletes):
            return deletes
        files = package(self._spark, "org.apache.iceberg.util").ContentFileUtil
        belongs = files.referencedDataFileLocation  # on v2 it decides by bounds
        own = {d.location() for d in self.task(path).deletes() if belongs(d) is not None}
        return [d for d in deletes if d["file-path"] in own]


@contextlib.contextmanager
def staged(spark: SparkSession, table: JavaTable, scan: list[Any]) -> Iterator[DataFrame]:
    """Yield the rows of these scan tasks, deletes applied; each row group is a partition, in the order of its rows."""
    gateway, lang = spark.sparkContext._gateway, package(spark, "java.lang")
    managers = package(spark, "org.apache.iceberg.spark")
    group = str(uuid.uuid4())
    get = java_class(spark, "org.apache.iceberg.spark.SparkTableCache").getMethod(
        "get", gateway.new_array(lang.Class, 0)
    )
    cache = get.invoke(None, gateway.new_array(lang.Object, 0))  # py4j hides the static `get`: the map has one too
    sets = managers.ScanTaskSetManager.get()
    cache.add(group, table)
    sets.stageTasks(table, group, java_list(spark, scan))
    try:
        options = {"scan-task-set-id": group, "split-size": _WHOLE, "file-open-cost": _WHOLE}
        yield spark.read.format("iceberg").options(**options).load(group)
    finally:
        cache.remove(group)
        sets.removeTasks(table, group)


def added_files(spark: SparkSession, table: JavaTable, snapshots: set[int]) -> dict[str, Any]:
    """Return {location: data file} of the live files in manifests that these snapshots wrote; merged manifests also list older files."""
    lists = package(spark, "org.apache.iceberg.relocated.com.google.common.collect").Lists
    manifests = table.currentSnapshot().dataManifests(io := table.io())
    read, specs = package(spark, "org.apache.iceberg").ManifestFiles.read, table.specs()
    # One call for all, as below: a manifest's text names its writer.
    writers = re.findall(r"added_snapshot_id=(\d+)", manifests.toString())
    readers = [read(manifests.get(n), io, specs) for n, writer in enumerate(writers) if int(writer) in snapshots]
    every = package(spark, "org.apache.iceberg.io").CloseableIterable.concat(java_list(spark, readers))
    try:
        files = list(lists.newArrayList(every.iterator()).toArray())
    finally:
        every.close()
    return {file.location(): file for file in files}


@dataclass(frozen=True)
class Replacement:
    """Data files that replace others: the old ones (a Java list) and their deletes in JSON, the new ones and their deletes.

    The old deletes belong to one old file alone. A v2 delete file that spans several files stays, and has no effect
    on removed ones.
    """

    old: Any
    old_deletes: list[dict]
    new: list[Any]
    new_deletes: list[Any] = field(default_factory=list)


def commit_rewrite(
    spark: SparkSession, table: JavaTable, since: int, sequence: int, files: Replacement, summary: dict[str, str]
) -> JavaSnapshot:
    """Replace data files in one swap, refused if deletes of the old ones arrived after `since`; return the snapshot.

    The new files keep the data `sequence` number of the snapshot that was read: later deletes would not apply to files
    with a newer one. Without the new deletes, deleted rows would come back. A rewrite may add deletes only if it removes
    some. Otherwise they are committed just before it in the same transaction, so that no snapshot shows a deleted row.
    """
    swap, added = table.newTransaction(), [*files.new, *files.new_deletes]
    if files.new_deletes and not files.old_deletes:
        ahead = swap.newRowDelta()
        for delete in files.new_deletes:
            ahead.addDeletes(delete)
        ahead.commit()
        added = files.new
    rewrite = swap.newRewrite().validateFromSnapshot(since).dataSequenceNumber(sequence)
    manifests_at_once(spark, table, rewrite)
    kinds = [("DataFile", [files.old]), ("DeleteFile", delete_files(spark, table, files.old_deletes))]
    for kind, lists in kinds:  # one call for all files: the commit must be short while others work
        for some in lists:
            for_each(
                spark, some, rewrite, "deleteFile", ("org.apache.iceberg.RewriteFiles", f"org.apache.iceberg.{kind}")
            )
    for file in added:
        rewrite.addFile(file)
    for key, value in summary.items():
        rewrite.set(key, value)
    rewrite.commit()
    swap.commitTransaction()
    return swap.table().currentSnapshot()


def manifest_sizes(table: JavaTable) -> list[int]:
    """Return the bytes of each manifest of the current snapshot."""
    now = table.currentSnapshot()
    return [manifest.length() for manifest in now.allManifests(table.io())] if now else []


def rewrite_manifests(spark: SparkSession, table: JavaTable, of_data_only: bool) -> int:
    """Let Iceberg sort and merge a table's manifests; return how many it replaced. It fails if a commit replaced one meanwhile.

    Each row delta replaces manifests of deletes, but hardly ever one of data.
    """
    action = (
        package(spark, "org.apache.iceberg.spark.actions")
        .SparkActions.get(spark._jsparkSession)
        .rewriteManifests(table)
    )
    if of_data_only:
        handles, iceberg = Handles(spark), package(spark, "org.apache.iceberg")
        content_of = handles.of("org.apache.iceberg.ManifestFile", "content", "org.apache.iceberg.ManifestContent")
        is_data = handles.bound(iceberg.ManifestContent.DATA, "equals", "boolean", "java.lang.Object")
        of_data = handles.chained(content_of, is_data)
        action = action.rewriteIf(handles.as_lambda("java.util.function.Predicate", of_data))
    return package(spark, "org.apache.iceberg.relocated.com.google.common.collect").Iterables.size(
        action.execute().rewrittenManifests()
    )


def remove_files(table: JavaTable, files: list[Any]) -> None:
    """Delete files that no snapshot contains."""
    for file in files:
        table.io().deleteFile(file.location())
