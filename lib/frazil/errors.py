"""Errors that a user can mend: each class has a stable code, and each message a problem and a cure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Characters that move a cursor, begin a line or turn the direction of a text."""
HIDDEN = "•••"
NAMED = 5
"""The most names that a message shows of what it is about."""
_secrets: set[str] = set()


def hide(secret: str) -> str:
    """Let no message show a secret, which somebody else's error may repeat; return the secret."""
    if len(secret) >= 4:
        _secrets.add(secret)
    return secret


def safe(text: object) -> str:
    """Return a text on one line, with control characters escaped and without the secrets that are in use."""
    shown = str(text)
    for secret in sorted(_secrets, key=len, reverse=True):
        shown = shown.replace(secret, HIDDEN)
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], shown)


class FrazilError(Exception):
    """Base of all errors of Frazil: what is wrong, and what mends it without a loss.

    `details` are further lines of the problem. The attributes are texts that are safe to show.
    """

    code: ClassVar[str]
    """The name of the error, which messages show and which does not change."""
    decision: ClassVar[bool] = False
    """Whether nothing is broken, but a person must say how to go on."""

    def __init_subclass__(cls, code: str, decision: bool = False):
        cls.code, cls.decision = code, decision

    def __init__(self, problem: str, cure: str, details: Sequence[str] = ()):
        self.problem, self.cure = safe(problem), safe(cure)
        self.details = tuple(safe(line) for line in details)
        super().__init__(self.problem, self.cure, self.details)  # so that Spark's tasks can send it

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (type(self), *self.args)

    def __str__(self) -> str:
        lines = [f"{self.problem} [{self.code}]", *self.details, f"cure: {self.cure}"]
        return "\n  ".join(lines)

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows in place of a stack trace."""
        return [str(self)]


def _received(kind: type[FrazilError], problem: str, cure: str, details: Sequence[str]) -> FrazilError:
    """Return an error that a task sent."""
    error = kind.__new__(kind)
    FrazilError.__init__(error, problem, cure, details)
    return error


@dataclass(frozen=True)
class Finding:
    """What stops a table until a person decides: the error's class, and the names that it is about."""

    error: type[FrazilError]
    names: tuple[str, ...]
    detail: str = ""

    def raised(self, table: str) -> FrazilError:
        """Return the error, which shows some of the names. What is wrong and the ways on are what the class says."""
        what, _, cure = str(self.error.__doc__).partition(". ")
        shown = ", ".join(self.names[:NAMED]) + " …" * (len(self.names) > NAMED)
        problem = f"{table}: {what[0].lower()}{what[1:]}: {shown}{self.detail}"
        return self.error(problem, f"{cure[0].lower()}{cure[1:-1]}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a cure for a wrong name: the known name that is nearest to it in any case, else all of them."""
    names = {known_name.lower(): known_name for known_name in sorted(known)}
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    if close:
        return f"write '{names[close[0]]}'"
    return f"write one of: {', '.join([*names.values()][:12])}" if names else "leave it out"


def many(count: int, noun: str) -> str:
    """Return a number with its noun: `1 row`, `1,000 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
