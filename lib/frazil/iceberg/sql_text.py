"""Names and values as Spark's SQL has them."""

from __future__ import annotations

import re


def quoted(name: str) -> str:
    """Return a name with dots as SQL has it; parts that are plain words stay as they are."""
    parts = name.split(".")
    return ".".join(part if re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII) else identifier(part) for part in parts)


def identifier(name: str) -> str:
    """Return one name in backticks."""
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    """Return a text in quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
