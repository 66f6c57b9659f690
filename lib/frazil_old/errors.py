"""The base class of every error that a user of Frazil can fix, and the functions that make texts safe to show."""

import logging
import os
import re
from collections.abc import Iterable, Sequence, Sized
from typing import Any

log = logging.getLogger("frazil")
log.addHandler(logging.NullHandler())  # until a workbook opens its log; else Python prints traces to the screen

HIDDEN = "•••"
"""Shown in place of a credential."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Characters that move a terminal's cursor, begin a line or change the direction of a text."""
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_credentials: set[str] = set()
_hidden: re.Pattern | None = None


def hide(values: Iterable[str]) -> None:
    """Make `safe` replace these credentials in every text; a short one not inside a longer word."""
    global _hidden
    _credentials.update(values)
    words = [
        v if len(v) >= 12 else rf"(?<!\w){v}(?!\w)" for v in map(re.escape, sorted(_credentials, key=len, reverse=True))
    ]
    _hidden = re.compile("|".join(words)) if words else None


def safe(text: str, lines: bool = False) -> str:
    """Return a text with known credentials hidden and control characters escaped; `lines`: keep its line breaks."""

    def shown(found: re.Match) -> str:
        return "\n" if lines and found[0] == "\n" else ascii(found[0])[1:-1]

    return _CONTROL.sub(shown, _hidden.sub(HIDDEN, text) if _hidden else text)


def safe_facts(facts: Any) -> Any:
    """Return nested facts with every text made safe; line breaks stay, as between a problem and its cure."""
    if isinstance(facts, str | os.PathLike):
        return safe(str(facts), lines=True)
    if isinstance(facts, dict):
        return {safe(k) if isinstance(k, str) else k: safe_facts(v) for k, v in facts.items()}
    return [safe_facts(v) for v in facts] if isinstance(facts, list | tuple) else facts


def safe_output(text: str) -> str:
    """Return a program's output made safe: without colours, with its lines, and with blanks for tabs."""
    return safe(_COLOUR.sub("", text).replace("\r\n", "\n").replace("\t", "    "), lines=True)


class Message(str):
    """A text that is safe to show; its line breaks are Frazil's own."""


class SafeFormatter(logging.Formatter):
    """Formats a log record so that no value in it can start a new record."""

    def __init__(self):
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record; each further line of it is indented."""
        return safe_output(super().format(record)).replace("\n", "\n    ")


class FrazilError(ValueError):
    """States what is wrong and how to fix it, in words that need no stack trace."""

    decision = False
    """Whether nothing is broken, but a person must decide how to continue."""
    logged = False

    def __init__(self, problem: str, cure: str = "", lines: Sequence[str] = ()):
        """Make both texts safe to show. A line break in them belongs to a value and starts no line; `lines` follow the problem."""
        self.problem, self.cure = "\n".join(safe(line) for line in (problem, *lines)), safe(cure)
        super().__init__(f"{self.problem}\n  cure: {self.cure}" if cure else self.problem)

    def __str__(self) -> Message:
        return Message(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows instead of a stack trace, which is written to the log; IPython may call this twice."""
        if not self.logged:
            log.error("shown in the notebook", exc_info=self)
        self.logged = True
        return [f"{type(self).__name__}: {self}"]


LOAD_AGAIN = "drop the table (frazil table drop), and run 00_setup, 01_full_load and 02_cdc_merge again: all files are read again"
"""The remedy that gives a table other types or another key; it loses nothing while all of its files exist."""


def nearest(name: str, known) -> str:
    """Return a hint with the known word nearest to a wrong one, or a list of the known words."""
    import difflib

    close = difflib.get_close_matches(name, [str(k) for k in known], n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else "known: " + (", ".join(sorted(str(k) for k in known)) or "none")


def many(things: Sized | int | None, word: str) -> str:
    """Return how many things there are, with their word; `things` are they or their number."""
    count = len(things) if isinstance(things, Sized) else int(things or 0)
    return f"{count:,} {word}{'s' * (count != 1)}"


def counted(count: float, name: str) -> str:
    """Return a count after the name of its column, a plural: `1 file group`."""
    words = name.replace("_", " ")
    return many(count, words[:-1]) if isinstance(count, int) and words.endswith("s") else f"{count:,} {words}"


def grouped(remarks: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return each remark about a table once, in order, with its tables; without the name if the names alone differ.

    `remarks` are pairs of a table's name and a text, which may contain the name, its folder or the name of its spec.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for table, text in remarks:
        common = text
        for name in (table, table.replace(".", "/", 1)):
            common = common.replace(name, "<table>")
        common = common.replace(f"/{table.rpartition('.')[2]}.yml", "/<table>.yml")
        found.setdefault(common, []).append((table, text))
    return {common if each[1:] else each[0][1]: [table for table, _ in each] for common, each in found.items()}
