"""Maps rows of rewritten files to the new files, and carries over deletes that arrived during the rewrite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frazil_old.lake import jvm_maintenance, jvm_row_delta
from frazil_old.lake.delete_files import deleted_rows, write_deletes
from frazil_old.lake.rewrite_files import Rewritten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def remapped_deletes(
    spark: SparkSession, table: Any, before: jvm_maintenance.Tasks, now: jvm_maintenance.Tasks, rewrite: Rewritten
) -> tuple[list[Any], int]:
    """Write the deletes that old files got between two scans as deletes of the new files; return them, and the number of rows."""
    arrived = {}
    for path in rewrite.live:
        old, new = before.deletes(path), now.deletes(path)
        if old == new:
            continue
        known = deleted_rows(spark, table, path, old)
        later = deleted_rows(spark, table, path, new) - known
        if later:  # by their numbers among the rows that were live when the rewrite read the file
            arrived[path] = [at - known.rank(at) for at in later]
    if not arrived:
        return [], 0
    places = rewrite.moved(arrived)
    alike = now.by_path[next(iter(rewrite.live))]["data-file"]
    return new_deletes(spark, table, alike, places), sum(map(len, places.values()))


def new_deletes(spark: SparkSession, table: Any, alike: dict, places: dict[str, list[int]]) -> list[Any]:
    """Write deletes of new files and return them; spec and partition are those of another data file in JSON (`alike`)."""
    from pyroaring import BitMap64

    files = {path: jvm_row_delta.LiveFile(alike["spec-id"], alike.get("partition"), 0) for path in places}
    entries = write_deletes(spark, table, files, {path: BitMap64(at) for path, at in places.items()})
    return [d for part in jvm_row_delta.delete_files(spark, table, list(entries.values())) for d in part]
