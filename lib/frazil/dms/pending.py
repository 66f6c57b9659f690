"""Which files are pending after a table's position; and those that nobody can apply in order before a person decides."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from frazil.dms.applied import Applied
from frazil.dms.file_marks import is_unchanged
from frazil.dms.file_names import base_name
from frazil.dms.listing import TableFiles, one_of_copies
from frazil.dms.position import Position
from frazil.dms.storage import DmsFile, Storage
from frazil.errors import FrazilError

if TYPE_CHECKING:
    from frazil.dms.date_partition import DatePartition

CLOCKS_S = 3600.0
"""How far this machine's clock may be behind that of DMS."""
NAMED = 5
"""The most files that a message names."""


class LateFileError(FrazilError, code="late-file", decision=True):
    """A file came late, after newer ones were applied. Restart the table, which applies all in order; or accept the file, which applies it now."""


class FileChangedError(FrazilError, code="file-changed", decision=True):
    """A file has changed since it was applied. Restart the table, which applies the file again; or accept it as it is."""


class FileVanishedError(FrazilError, code="file-vanished", decision=True):
    """A file that was listed is gone before it was applied. Bring it back; or accept it, which gives up its changes."""


class FutureFileError(FrazilError, code="file-in-future", decision=True):
    """A file is named after a time in the future. Give it the name that DMS wrote, or move it away."""


class RepeatedHourError(FrazilError, code="repeated-hour", decision=True):
    """Files are named in the hour that autumn repeats, so their names tell no order. Accept them one by one, as DMS wrote them."""


class SourceChangedError(FrazilError, code="source-changed", decision=True):
    """A table has been fed by files and its source is a stream, or the reverse. Say where the new source's changes begin."""


@dataclass(frozen=True)
class Finding:
    """Something about files that stops a table: the error's class, and the files that it is about, by name."""

    error: type[FrazilError]
    names: tuple[str, ...]
    detail: str = ""

    def raised(self, table: str) -> FrazilError:
        """Return the error, which names some of the files. What is wrong and the ways on are what the class says."""
        what, _, cure = str(self.error.__doc__).partition(". ")
        shown = ", ".join(self.names[:NAMED]) + " …" * (len(self.names) > NAMED)
        problem = f"{table}: {what[0].lower()}{what[1:]}: {shown}{self.detail}"
        return self.error(problem, f"{cure[0].lower()}{cure[1:-1]}")


def require_kind_of_source(position: Position, landing: str, table: str) -> None:
    """Raise SourceChangedError if a position is one of another kind of source; `landing`: the id of a stream's landing."""
    if not position.last or bool(position.landing) == bool(landing):
        return
    was, now = ("a stream", "files") if position.landing else ("files", "a stream")
    cure = (
        "adopt the table with the place where the changes of the new source begin; or restart it, which loads it again"
    )
    raise SourceChangedError(f"{table}: its position is one of {was}, and its source is {now}", cure)


def findings(
    there: TableFiles, position: Position, applied: Applied, storage: Storage, partition: DatePartition
) -> list[Finding]:
    """Return what stops a table, by its listed files: what is worst comes first."""
    last, names = base_name(position.last), {f.name for f in there.changes}
    old = [f for f in there.changes if last and f.name <= last]
    known = [f for f in old if f.name in applied.marks]
    changed = [f for f in known if not is_unchanged(storage, f, applied.marks[f.name])]
    late = [f for f in old if f.name not in applied.marks and f.name > applied.since]
    future = [f for f in there.changes if partition.written_s(f.name) > time.time() + CLOCKS_S]
    new = [f for f in there.changes if f.name > last]
    repeated = [f for f in new if partition.repeats(new[0].name) and partition.repeats(f.name)]
    gone = [name for name in applied.waiting if name not in names]
    return [
        *_found(FileChangedError, (f.name for f in changed), sizes(changed, applied)),
        *_found(LateFileError, (f.name for f in late), f"; changes up to {last} are applied"),
        *_found(FutureFileError, (f.name for f in future)),
        *_found(RepeatedHourError, (f.name for f in sorted(repeated, key=lambda f: f.landed))),
        *_found(FileVanishedError, gone),
    ]


def sizes(files: Sequence[DmsFile], applied: Applied) -> str:
    """Return in words how the first of some changed files differs."""
    if not files:
        return ""
    before, now = int(applied.marks[files[0].name].partition(":")[0]), files[0].size
    return f" ({before:,} bytes then, {now:,} now)" if before != now else " (as many bytes, but other ones)"


def pending_files(
    there: TableFiles,
    position: Position,
    applied: Applied,
    storage: Storage,
    partition: DatePartition,
    accepted: str = "",
) -> list[DmsFile]:
    """Return the change files to apply next, in order, up to an hour that autumn repeats.

    A file that is `accepted` by name comes alone, though it is late or of such an hour. Of a file that is applied in part,
    the position says how many rows. Raises SameNameError for one name with other bytes.
    """
    last = base_name(position.last)
    if alone := [f for f in there.changes if f.name == accepted and f.name not in applied.marks]:
        return one_of_copies(storage, alone)
    new = (f for f in there.changes if f.name > last or (f.name == last and position.rows is not None))
    return one_of_copies(storage, [*takewhile(lambda f: not partition.repeats(f.name), new)])


def _found(error: type[FrazilError], names: Iterator[str] | Sequence[str], detail: str = "") -> Iterator[Finding]:
    named = tuple(dict.fromkeys(names))
    if named:
        yield Finding(error, named, detail)
