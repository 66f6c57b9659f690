"""What tables are made of, and how that changed."""

from __future__ import annotations

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
