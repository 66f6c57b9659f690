"""The docstrings and the helps of parameters are short and plain."""

from __future__ import annotations

import ast
import re
from inspect import cleandoc
from pathlib import Path

import pytest

FRAZIL = Path(__file__).parent.parent / "lib/frazil"
PACKAGES = ("config", "lake", "observe", "cli", "source", "pipeline", "dms", "demo", "errors.py")
MODULES = sorted(m for p in PACKAGES for m in ([FRAZIL / p] if p.endswith(".py") else (FRAZIL / p).rglob("*.py")))
PLAIN = {
    "behind": "after", "anew": "again", "so many": "the number", "manyth": "every N", "thither": "there",
    "turned up": "arrived",
}  # fmt: skip
"""Words that the prose does not use, and what to write instead."""


def texts(source: str) -> list[str]:
    """The docstrings of a module, those after constants and attributes too, and the helps of its parameters."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                found.append(cleandoc(text))
            case ast.Call(func=ast.Name(id="parameter"), args=[_, ast.Constant(value=str(text)), *_]):
                found.append(text)
    return found


def sentences(text: str) -> list[str]:
    """The sentences of a docstring without its indented lines; inline code counts as one word."""
    text = re.sub(r"`[^`]+`", "CODE", re.sub(r"^ {4}.*$", "", text, flags=re.M))
    return [s for p in re.split(r"\n\s*\n", text) for s in re.split(r"(?<=[.!?])\)?\s+", " ".join(p.split())) if s]


def test_all_kinds_of_prose_are_found():
    source = (
        '"""Module.\n\nOne `a. b`. Two.\n\n    x = 1\n"""\nN = 1\n"""Constant."""\np = parameter(0, "Help" " it.")\n'
    )
    assert texts(source) == ["Module.\n\nOne `a. b`. Two.\n\n    x = 1", "Constant.", "Help it."]
    assert sentences(texts(source)[0]) == ["Module.", "One CODE.", "Two."]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(FRAZIL)))
def test_docstrings_are_short_and_plain(module):
    found = [s for text in texts(module.read_text(encoding="utf-8")) for s in sentences(text)]
    words = re.compile(rf"\b({'|'.join(PLAIN)})\b", re.I)
    assert [s for s in found if len(s.split()) > 30] == []
    assert [(m[0], PLAIN[m[0].lower()], s) for s in found for m in words.finditer(s)] == []
