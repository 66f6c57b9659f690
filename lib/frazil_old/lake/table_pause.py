"""A paused table: a property of the table, by which every run leaves it as it is until it is resumed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from frazil_old.errors import FrazilError

if TYPE_CHECKING:
    from frazil_old.lake import jvm

PAUSED = "frazil.paused"
"""The table property; its value says since when, and why."""


class PausedError(FrazilError):
    """The table is paused: nothing is applied to it."""

    @property
    def note(self) -> str:
        """Since when and why, without the table's name, and how to end it."""
        return f"{self.problem.partition(': paused ')[2]}; {self.cure}"


def paused_error(text: str, source: str) -> PausedError:
    """Return the error about a paused table, by the property's value and the source table's name."""
    return PausedError(f"{source}: paused {text}", f"frazil table resume {source} --env ENV")


def pause(table: jvm.JavaTable, why: str) -> str:
    """Pause a table and return the property's value. A pause that exists keeps its time and its first reason."""
    before = table.properties().get(PAUSED) or ""
    if before and (not why or ": " in before):
        return before
    text = before or f"since {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC"
    text += f": {why}" if why else ""
    table.updateProperties().set(PAUSED, text).commit()
    return text


def resume(table: jvm.JavaTable) -> str:
    """Remove the pause; return its text, empty if there was none."""
    before = table.properties().get(PAUSED) or ""
    if before:
        table.updateProperties().remove(PAUSED).commit()
    return before
