"""Which change files are pending, and which stop the table: late, changed, gone or named in the future."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from frazil.dms.listing import DmsObject, TableObjects
from frazil.dms.position import REPLAY, SHOWN, Position, PositionError, discarded, require_there
from frazil.source.applied_files import Record
from frazil.source.pending import Arrived, arrived


class LateFilesError(PositionError):
    """Change files that were never applied have names before the position."""

    def __init__(self, problem: str, cure: str, late: Sequence[DmsObject]):
        super().__init__(problem, cure)
        self.late = late


def pending_changes(
    objects: TableObjects, position: Position, source: str, record: Record | None = None, late: str = "refuse"
) -> list[DmsObject]:
    """Return the change objects that are not applied, in the order in which to apply them.

    Raise PositionError for a late object: its name is before the position, and it was never applied. Also raise it for
    one that was written again after it was applied, and for names in the future. Raise it too if an object is gone that
    was listed or that a replay needs. Without a `record`, only the names in the position are known. With `late` =
    `after`, late objects are pending and come first.
    """
    found = arrived(objects.changes, position, record or Record(), time.time())
    return require_clear(found, objects, position, source, late)


def require_clear(found: Arrived, objects: TableObjects, position: Position, source: str, late: str) -> list[DmsObject]:
    """Return the result of `pending_changes` for files that are already classified."""
    require_there(objects, position.owed, source)
    if found.changed:
        _refuse_changed(found, position, source)
    if found.late and late != "after":
        refuse_late(found, position, source)
    if found.ahead:
        raise PositionError(
            f"{source}: {named(o.path for o in found.ahead)}: {len(found.ahead)} change file(s) are named more than a day after the "
            "present; once one of them is applied, each file that follows would count as late",
            "give them the names that DMS wrote, and nothing is lost; or move them away: what they say is not applied then",
        )
    return [*found.late, *found.pending]


def require_awaited(
    objects: TableObjects, position: Position, source: str, awaited: Sequence[str], without: Sequence[str]
) -> None:
    """Raise PositionError if a change object is gone that was listed and not applied, unless `without` has it."""
    there = {o.name for o in objects.changes}
    gone = [n for n in awaited if n > position.last and n not in there and n not in without]
    if gone:
        all_gone = " All change files are gone: a TRUNCATE at the source may have deleted them." if not there else ""
        raise PositionError(
            f"{source}: {named(gone)}: {len(gone)} change file(s) are gone that were listed and never applied: their changes are not in the "
            f"lake.{all_gone}",
            "fetch them again, and nothing is lost; or go on without them by the parameter go_on_without: "
            f"[{', '.join(gone[:SHOWN])}{', …' if gone[SHOWN:] else ''}], which loses their changes until the table is loaded again",
        )


def named(names: Iterable[str]) -> str:
    """Return the first of some names, with a mark if there are more."""
    listed = list(names)
    return f"{', '.join(listed[:SHOWN])}{' …' if listed[SHOWN:] else ''}"


def refuse_late(found: Arrived, position: Position, source: str) -> None:
    """Raise LateFilesError."""
    count = f" and {len(found.late) - 1} more" if found.late[1:] else ""
    raise LateFilesError(
        f"{source}: {found.late[0].path}{count} turned up late: changes up to {position.last} are applied already",
        f"if the file came late, {REPLAY}: all changes are applied in the order of their names, and none is lost; if DMS's clock went back, "
        "run 02_cdc_merge with late_files=after: it is applied after the last batch, which loses newer values where it holds older ones; "
        "if it repeats what was applied, move it away",
        found.late,
    )


def _refuse_changed(found: Arrived, position: Position, source: str) -> None:
    told = []
    for o, known, differs in found.changed:
        sizes = f"{known.size:,} bytes then, {o.size:,} now" if known else "its size then is not known"
        if known and known.size == o.size:
            sizes += ", other bytes" if differs else ", and nothing tells whether these are the same bytes"
        told.append(f"{o.path} was written again after it was applied ({sizes})")
    many = f"{len(told)} change files: " if told[1:] else ""
    raise PositionError(
        f"{source}: {many}{named(told)}",
        f"{REPLAY}: nothing is lost then; or put back what was applied; a reload discards {discarded(position)} and "
        "loses what the new load does not hold",
    )
