"""The order of change files: by name, which is the time when DMS wrote them; a file that came late has a turn after a later name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil_old.dms.listing import DmsObject
    from frazil_old.dms.position import Position

FilePlace = tuple[str, int]
"""A file's place in the order: its name, or the name after which it was applied, with its turn after that name."""


def in_order(files: Iterable[DmsObject]) -> list[DmsObject]:
    """Return change files in the order in which their changes are applied."""
    return sorted(files, key=lambda file: file.name)


def places(position: Position, applied: Sequence[DmsObject]) -> dict[str, FilePlace]:
    """Return {name: place} of files applied in this order: after the last one, or with a turn after a later name."""
    last, turn, found = position.last, position.turn, {}
    for o in applied:
        last, turn = (o.name, 0) if o.name > last else (last, turn + 1)
        found[o.name] = (last, turn)
    return found
