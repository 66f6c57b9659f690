"""What settings, specs and files show to be wrong, before anything is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from frazil.engine.work import for_each
from frazil.errors import FrazilError
from frazil.pipeline.setup import require_first_file
from frazil.results import Shown

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake


class Findings(Shown):
    """What is wrong, and what mends it: a row for each finding."""

    def __init__(self, rows: list[tuple[str, str, str, str]]):
        self.rows = rows

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each finding."""
        return pd.DataFrame(self.rows, columns=["table", "says", "cure", "code"])


def lint(lake: Lake) -> Findings:
    """Return what the first file of each table shows to be wrong, and what the source has without a spec."""
    errors = [
        (table, e) for table, e in for_each(lake.tables, require_first_file).items() if isinstance(e, FrazilError)
    ]
    wrong = [(table.source, "\n".join((e.problem, *e.details)), e.cure, e.code) for table, e in errors]
    says, cure = "no spec names it, so nothing of it arrives", "write a spec (frazil init), or name it in ignore_tables"
    return Findings([*wrong, *((name, says, cure, "no-spec") for name in lake.source.without_spec())])
