"""Text for terminals: lines of at most 80 characters."""

from __future__ import annotations

import textwrap

WIDTH = 80


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters; a dot-dot-dot stands for what is left out."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def wrapped(text: str, indent: str = "", more: str = "") -> list[str]:
    """Return a text as lines, the first indented by `indent` and the others by `more`; no word is divided."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=more or indent, break_on_hyphens=False)
