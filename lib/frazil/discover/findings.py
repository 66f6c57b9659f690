"""What settings, specs and files show to be wrong, before anything is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from frazil.discover.task_rules import lost_by_rules
from frazil.errors import FrazilError
from frazil.results import Shown

NO_SPEC = (
    "no spec names it, so nothing of it arrives",
    "write a spec (frazil init), or name it in ignore_tables",
    "no-spec",
)
"""What is said of a folder of the source that no table reads."""


class Findings(Shown):
    """What is wrong, and what mends it: a row for each finding."""

    def __init__(self, of_tables: Mapping[Any, Any], without_spec: Iterable[str]):
        found = ((table.source, e) for table, e in of_tables.items() if isinstance(e, FrazilError))
        self.rows = [(source, "\n".join((e.problem, *e.details)), e.cure, e.code) for source, e in found]
        tables = [(table.source, table.lake.source.reader(table.spec).table) for table in of_tables]
        self.rows += [(source, *told) for source, table in tables for told in lost_by_rules(table)]
        self.rows += [(folder, *NO_SPEC) for folder in without_spec]

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each finding."""
        return pd.DataFrame(self.rows, columns=["table", "says", "cure", "code"])
