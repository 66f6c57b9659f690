"""Maps rows of rewritten files to the new files, and carries over deletes that arrived during the rewrite."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.errors import FrazilError
from frazil.lake import jvm_rewrite, jvm_row_delta
from frazil.lake.row_delta_files import deleted_rows, write_deletes

if TYPE_CHECKING:
    import numpy as np
    from pyroaring import BitMap64
    from pyspark.sql import SparkSession

ORDER = "frazil.order"
"""In a file group's summary, if rows kept their order: the names of its new files, each with the old files whose rows it has."""


class CompactionError(FrazilError):
    """A file group's new files do not hold exactly the rows of the old ones; nothing of it was committed."""


def file_name(path: str) -> str:
    """Return a path without its folder."""
    return path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Rewrite:
    """New files that hold the live rows of old ones: Iceberg's DataFiles, and where each row went.

    `old` and `counts` have the number of live rows of each file, in order. `places` has for each row of the old files its
    place among the new rows; None: the same.
    """

    old: dict[str, int]
    new: list[Any]
    counts: dict[str, int]
    places: np.ndarray | None = None

    def summary(self) -> str:
        """Return which old files each new file has the rows of, in order, as JSON; `{}` if rows did not keep their order."""
        left, found = [path for path, rows in self.old.items() if rows], {}
        for new, count in self.counts.items() if self.places is None else ():
            olds = []
            while left and self.old[left[0]] <= count:
                olds.append(left.pop(0))
                count -= self.old[olds[-1]]
            if count:  # an old file's rows are in two new files
                return "{}"
            found[file_name(new)] = [file_name(path) for path in olds]
        return json.dumps(found)

    def moved(self, arrived: dict[str, list[int]]) -> dict[str, list[int]]:
        """Return the positions in new files of rows of old files, given by their numbers among the live ones."""
        import numpy as np

        starts = dict(zip(self.old, np.cumsum([0, *self.old.values()]).tolist(), strict=False))
        numbers = np.array([starts[path] + row for path, rows in arrived.items() for row in rows], "int64")
        places = numbers if self.places is None else self.places[numbers]
        ends = np.cumsum([*self.counts.values()])
        file, found = np.searchsorted(ends, places, side="right"), {}
        for i, path in enumerate(self.counts):
            if len(mine := places[file == i]):
                found[path] = (mine - (ends[i] - self.counts[path])).tolist()
        return found


def remapped_deletes(
    spark: SparkSession, table: Any, before: jvm_rewrite.Tasks, now: jvm_rewrite.Tasks, rewrite: Rewrite
) -> tuple[list[Any], int]:
    """Write the deletes that old files got between two scans as deletes of the new files; return them, and the number of rows."""
    arrived = {}
    for path in rewrite.old:
        old, new = (tasks.by_path[path].get("delete-files") or [] for tasks in (before, now))
        if old == new:
            continue
        known = deleted_rows(spark, table, path, old)
        if rows := _live_rows(deleted_rows(spark, table, path, new) - known, known):
            arrived[path] = rows
    if not arrived:
        return [], 0
    places = rewrite.moved(arrived)
    alike = now.by_path[next(iter(rewrite.old))]["data-file"]
    return new_deletes(spark, table, alike, places), sum(map(len, places.values()))


def _live_rows(positions: BitMap64, deleted: BitMap64) -> list[int]:
    """Turn positions in a file into row numbers among the rows that were live when the rewrite read it."""
    return [at - deleted.rank(at) for at in positions]


def new_deletes(spark: SparkSession, table: Any, alike: dict, places: dict[str, list[int]]) -> list[Any]:
    """Write deletes of new files and return them; spec and partition are those of another data file in JSON (`alike`)."""
    from pyroaring import BitMap64

    files = {path: jvm_row_delta.LiveFile(alike["spec-id"], alike.get("partition"), 0) for path in places}
    entries = write_deletes(spark, table, files, {path: BitMap64(at) for path, at in places.items()})
    return [d for part in jvm_row_delta.delete_files(spark, table, list(entries.values())) for d in part]
