"""Maps rows of rewritten files to the new files, and carries over deletes that arrived during the rewrite."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.errors import FrazilError
from frazil.lake import jvm_rewrite, jvm_row_delta
from frazil.lake.row_delta_files import deleted_rows, write_deletes
from frazil.lake.small_frames import frame

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, SparkSession

ORDER = "frazil.order"
"""In a file group's summary, if rows kept their order: the names of its new files, each with the old files whose rows it has."""


class CompactionError(FrazilError):
    """A file group's new files do not hold exactly the rows of the old ones; nothing of it was committed."""


def order_of(moved: DataFrame) -> dict[str, dict[str, int]]:
    """Return {new file: {old file: place of its first row}} if all rows kept their order; else an empty dict."""
    from pyspark.sql import functions as F

    apart = F.col("new_row") - F.col("old_row")
    found = moved.groupBy("new_file", "old_file").agg(
        F.min(apart).alias("first"), (F.min(apart) == F.max(apart)).alias("kept")
    )
    rows, order = sorted(found.collect(), key=lambda r: r["first"]), {}
    for r in rows:
        order.setdefault(r["new_file"], {})[r["old_file"]] = r["first"]
    kept = all(r["kept"] for r in rows) and len({r["old_file"] for r in rows}) == len(rows)
    return order if kept else {}


def names_of(order: dict[str, dict[str, int]]) -> str:
    """Return an order in the form of a file group's summary."""
    return json.dumps({file_name(new): [file_name(old) for old in rows] for new, rows in order.items()})


def file_name(path: str) -> str:
    """Return a path without its folder."""
    return path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Rewrite:
    """New files that hold the live rows of old `files`: Iceberg's DataFiles, and where each row went.

    `moved` has old_file, old_row, new_file and new_row, in memory or on disk. `order` is its `order_of`.
    """

    files: tuple[str, ...]
    new: list[Any]
    moved: DataFrame
    order: dict[str, dict[str, int]]


def remapped_deletes(
    spark: SparkSession, table: Any, before: jvm_rewrite.Tasks, now: jvm_rewrite.Tasks, rewrite: Rewrite
) -> tuple[list[Any], int]:
    """Write the deletes that old files got between two scans as deletes of the new files; return them, and the number of rows."""
    arrived = {}
    for path in rewrite.files:
        old, new = (tasks.by_path[path].get("delete-files") or [] for tasks in (before, now))
        if old == new:
            continue
        known = deleted_rows(spark, table, path, old)
        if rows := _live_rows(deleted_rows(spark, table, path, new) - known, known):
            arrived[path] = rows
    places = _places(spark, rewrite, arrived)
    alike = now.by_path[rewrite.files[0]]["data-file"]
    return new_deletes(spark, table, alike, places), sum(map(len, places.values()))


def _live_rows(positions: BitMap64, deleted: BitMap64) -> list[int]:
    """Turn positions in a file into row numbers among the rows that were live when the rewrite read it."""
    return [at - deleted.rank(at) for at in positions]


def _places(spark: SparkSession, rewrite: Rewrite, arrived: dict[str, list[int]]) -> dict[str, list[int]]:
    """Map rows deleted from old files to positions in the new files; raise CompactionError if one is not found."""
    if not arrived:
        return {}
    found: dict[str, list[int]] = {}
    if rewrite.order:
        for new, first in rewrite.order.items():
            if rows := [first[old] + row for old in first.keys() & arrived.keys() for row in arrived[old]]:
                found[new] = rows
    else:
        rows = ((path, row) for path, rows in arrived.items() for row in rows)
        gone = frame(spark, rows, "old_file string, old_row long")
        there = rewrite.moved.join(gone.hint("broadcast"), ["old_file", "old_row"])
        for row in there.select("new_file", "new_row").collect():
            found.setdefault(row.new_file, []).append(row.new_row)
    if sum(map(len, found.values())) != sum(map(len, arrived.values())):
        raise CompactionError("a deleted row was not found in the new files", "nothing was committed; run again")
    return found


def new_deletes(spark: SparkSession, table: Any, alike: dict, places: dict[str, list[int]]) -> list[Any]:
    """Write deletes of new files and return them; spec and partition are those of another data file in JSON (`alike`)."""
    from pyroaring import BitMap64

    files = {path: jvm_row_delta.LiveFile(alike["spec-id"], alike.get("partition"), 0) for path in places}
    entries = write_deletes(spark, table, files, {path: BitMap64(at) for path, at in places.items()})
    return [d for part in jvm_row_delta.delete_files(spark, table, list(entries.values())) for d in part]
