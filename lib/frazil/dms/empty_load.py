"""Whether the changes of a table disprove that it was empty when it was loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from frazil.core.changes import OP, Changes
from frazil.core.key_changes import APPLY, LEAVE, events
from frazil.dms.position import Position
from frazil.errors import FrazilError


class LoadMissingError(FrazilError, code="load-missing", decision=True):
    """A table without load files has changes of rows that nobody inserted. Bring the load files, or say where the load is."""


def require_load(
    changes: Changes,
    position: Position,
    key: Sequence[str],
    files: Sequence[str],
    table: str,
    stored: Callable[[pa.Table], np.ndarray],
) -> None:
    """Raise LoadMissingError if changes after an empty load are of rows that nobody inserted; `stored` says which keys are there.

    DMS writes no load file for an empty table. A change of a key that was never inserted shows that this one was not. A
    delete shows it in the first batch alone: DMS may send it again.
    """
    if position.load != "none" or not key:
        return
    of = events(changes, key)
    op = np.asarray(changes.facts[OP])[of.place]
    was_there = (of.step == LEAVE) | ((of.step == APPLY) & ((op == "U") | ((op == "D") & (not position.last))))
    suspect = np.flatnonzero(was_there & (of.before < 0))
    wrong = of.place[suspect[~stored(of.keys.take(suspect))]].tolist() if len(suspect) else []
    if wrong:
        file, row = (changes.facts[fact][wrong[0]].as_py() for fact in ("file", "number"))
        problem = f"{table}: the load is missing: {files[file]} row {row} changes a row that was never inserted"
        cure = "bring the load files; if another folder has them, run 01_full_load in an environment with that source; or accept the file"
        raise LoadMissingError(problem, cure)
