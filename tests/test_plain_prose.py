"""The docstrings, the helps of parameters and the text of the notebooks are short and plain."""

from __future__ import annotations

import ast
import json
import re
from inspect import cleandoc
from pathlib import Path

import pytest

FRAZIL = Path(__file__).parent.parent / "lib/frazil_old"
MODULES = sorted(f for package in ("frazil", "frazil_demo") for f in (FRAZIL.parent / package).rglob("*.py"))
NOTEBOOKS = sorted((FRAZIL.parent.parent / "notebooks").glob("*.ipynb"))
PLAIN = {
    "behind": "after", "anew": "again", "so many": "the number", "manyth": "every N", "thither": "there",
    "turned up": "arrived", "tells of": "reports", "set aside": "quarantined", "passed by": "ignored", "lies": "is",
    "at once": "immediately or together", "told": "known or reported", "tell": "recognise", "tells": "is whether",
    "said": "stated", "beside": "next to or while", "known of": "known about", "held": "kept", "lie": "be", "lying": "being",
    "mend": "repair", "mended": "repaired", "needless": "unnecessary", "patiently": "with retries", "promise": "state",
    "promises": "states", "hurts": "harms", "shipped": "sent", "stand-in": "simulator", "thus": "so", "hence": "so",
    "thereby": "so", "heed": "follow", "forth": "on",
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
    """The sentences of a text without its indented lines and tables; inline code counts as one word."""
    text = re.sub(r"`[^`]+`", "CODE", re.sub(r"^( {4}|\|).*$", "", text, flags=re.M))
    return [s for p in re.split(r"\n\s*\n", text) for s in re.split(r"(?<=[.!?])\)?\s+", " ".join(p.split())) if s]


def test_all_kinds_of_prose_are_found():
    source = (
        '"""Module.\n\nOne `a. b`. Two.\n\n    x = 1\n"""\nN = 1\n"""Constant."""\np = parameter(0, "Help" " it.")\n'
    )
    assert texts(source) == ["Module.\n\nOne `a. b`. Two.\n\n    x = 1", "Constant.", "Help it."]
    assert sentences(texts(source)[0]) == ["Module.", "One CODE.", "Two."]


def unplain(found: list[str]) -> list[tuple[str, ...]]:
    """The sentences that are too long, and those with a word that the prose does not use."""
    words = re.compile(rf"\b({'|'.join(PLAIN)})\b", re.I)
    long = [(s,) for s in found if len(s.split()) > 30]
    return long + [(m[0], PLAIN[m[0].lower()], s) for s in found for m in words.finditer(s)]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(FRAZIL.parent)))
def test_docstrings_are_short_and_plain(module):
    assert unplain([s for text in texts(module.read_text(encoding="utf-8")) for s in sentences(text)]) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(FRAZIL.parent)))
def test_messages_count_with_a_singular_or_a_plural(module):
    """`errors.many` gives `1 file` and `2 files`, where `file(s)` reads badly."""
    constants = (
        n.value for n in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(n, ast.Constant)
    )
    assert [text for text in constants if isinstance(text, str) and re.search(r"(^|\b[a-z]+)\(s\)", text)] == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.stem)
def test_the_text_of_a_notebook_is_short_and_plain(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    text = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    assert text
    assert unplain([s for t in text for line in re.split(r"\n(?=\* )", t) for s in sentences(line)]) == []
