"""What a plan shows of each table: what a run would do to it, and how long its files have waited."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.dms.storage import DmsFile
from frazil.results import Shown

if TYPE_CHECKING:
    import pandas as pd

LATENESS = ["table", "pending", "lag_s", "limit_s", "quarantined", "problem", "code"]
"""The columns of lateness."""


@dataclass(repr=False)
class Plan(Shown):
    """What a run would do to each table: a row per table."""

    rows: list[dict[str, Any]]

    @property
    def busiest(self) -> str:
        """The table with most pending; the first by name if nothing is."""
        return min(self.rows, key=lambda row: (-row["mb"], row["table"]))["table"]

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per table."""
        import pandas as pd  # which a plan that nobody shows does not need

        return pd.DataFrame(self.rows).drop(columns="code")

    def lateness(self) -> pd.DataFrame:
        """Return a row per table: how many files wait, the seconds that the oldest has waited, and what stops it."""
        import pandas as pd

        late = [{**row, "lag_s": row["waited_s"], "problem": row["decision"] or row["why"]} for row in self.rows]
        return pd.DataFrame(late, columns=LATENESS)


def row(
    table: Any, action: str, loads: Collection[DmsFile] = (), changes: Collection[DmsFile] = (), /, **facts: Any
) -> dict[str, Any]:
    """Return the row of a table of `pipeline` for which these files are pending; `facts` win over what they show."""
    files, limit = [*loads, *changes], table.spec.max_lag_s
    return {
        "table": table.source,
        "action": action,
        "load": len(loads),
        "changes": len(changes),
        "pending": len(files),
        "mb": round(sum(f.size for f in files) / 1e6, 3),
        "waited_s": max((time.time() - f.landed for f in files), default=0.0),
        "limit_s": table.lake.settings.max_lag_s if limit is None else limit,
        "quarantined": 0,
        **dict.fromkeys(("columns", "position", "why", "decision", "code"), ""),
        **facts,
    }
