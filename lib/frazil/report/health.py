"""What tables are made of, and how that changed."""

from __future__ import annotations

from statistics import median
from typing import Any

import pandas as pd

from frazil.results import Shown


class Health(Shown):
    """What tables are made of, a row per table, and why maintenance would do something."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def compared_to(self, before: Health) -> Health:
        """Return a row for each measure of a table that differs from the one before."""
        then, names = {row["table"]: row for row in before.rows}, ("table", "measure", "before", "now")
        both = [(row["table"], n, then.get(row["table"], {}).get(n), row[n]) for row in self.rows for n in row]
        return Health([dict(zip(names, one, strict=True)) for one in both if one[2] != one[3]])

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows."""
        return pd.DataFrame(self.rows)


def measure(table: Any) -> dict[str, float]:
    """Measure a table of the lake by its metadata and manifests alone, without a job."""
    files = [*table.live_files.values()]
    sizes, gone = [file.size for file in files], sum(map(table.vectors.count, files))
    return {
        "rows": sum(file.rows for file in files) - gone,
        "files": len(files),
        "bytes": sum(sizes),
        "median_file_bytes": float(median(sizes or [0])),
        "deleted_rows": gone,
        "delete_files": len({delete.path for file in files for delete in file.deletes}),
        "snapshots": len(table.snapshots),
        "metadata_bytes": table.metadata_bytes,
    }
