"""One stage of what a notebook is about to do: a sentence and some rows. Stages change nothing, and never stop a notebook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from frazil_old.errors import FrazilError, log
from frazil_old.lake import jvm


@dataclass(frozen=True)
class Stage:
    """A sentence about all that a stage has, and some of its rows; `failed`: it could not be shown, and why."""

    sentence: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    failed: bool = False


def stage(show: Callable[..., Stage]) -> Callable[..., Stage]:
    """Turn any error of a stage into a sentence: what cannot be shown can often be done, and the run says more."""

    @wraps(show)
    def shown(*given: Any, **named: Any) -> Stage:
        try:
            return show(*given, **named)
        except Exception as error:
            return failed(error)

    return shown


def failed(error: Exception) -> Stage:
    """Return the stage that says why nothing is shown; the trace goes to the log."""
    log.error("a stage cannot be shown", exc_info=error)
    why = f"{error.problem}; {error.cure}" if isinstance(error, FrazilError) else jvm.cause(error)
    return Stage(f"cannot be shown: {why}", failed=True)


def beside(facts: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Add a row's values to facts; a column with the name of a fact says that it is one."""
    return facts | {f"{c} (column)" if c in facts else c: value for c, value in values.items()}


def size(n: float) -> str:
    """Return a number of bytes as kB or MB."""
    return f"{n / 1e6:,.1f} MB" if n >= 1e6 else f"{n / 1e3:,.1f} kB"
