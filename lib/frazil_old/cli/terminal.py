"""Text for terminals: lines of at most 80 characters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from frazil_old.errors import safe

WIDTH = 80
MOST_REMARKS = 12
"""Maximum number of remarks below a title."""


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters; a dot-dot-dot stands for what is left out."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def wrapped(text: str, indent: str = "", more: str = "") -> list[str]:
    """Return a text as lines, the first indented by `indent` and the others by `more`; no word is divided."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=more or indent, break_on_hyphens=False)


def safe_lines(text: str, indent: str = "", more: str = "") -> list[str]:
    """Return a text that comes from files or messages as lines, like `wrapped`, without credentials and control characters."""
    return wrapped(safe(text), indent, more)


def remarks(by_title: dict[str, list[str]]) -> Iterator[str]:
    """Yield the remarks below their titles, `MOST_REMARKS` of each at most; a title without remarks is left out."""
    for title, texts in by_title.items():
        if texts:
            yield ""
            yield title
            for text in texts[:MOST_REMARKS]:
                yield from safe_lines(text, "  * ", "    ")
            if len(texts) > MOST_REMARKS:
                yield f"  and {len(texts) - MOST_REMARKS:,} more"
