"""Refuses statements and properties that a warehouse does not take; `warehouse_grammar.yml` has their forms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.family import WarehouseError

_TOKEN = re.compile(
    r"""\s*('(?:[^'\\]|''|\\.)*'|"(?:[^"]|"")*"|\x60(?:[^\x60]|\x60\x60)*\x60|[A-Za-z_][\w$]*|\d+|[][(),=.*])|\s*(\S)"""
)
_FORM = re.compile(r"\s*(<\w+>\+?|'[^']*'|[A-Za-z_][\w$]*|[][{}|(),=.*])")


@cache
def grammar() -> dict[str, dict[str, Any]]:
    """Return the tables of `warehouse_grammar.yml`: values, forms and properties."""
    return yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class _Option:
    """A part of a form: one of some sequences."""

    ways: tuple[tuple, ...]


def _tokens(statement: str) -> list[str]:
    return [found[1] or found[2] for found in _TOKEN.finditer(statement.strip())]


def _parsed(words: Iterator[str], end: str = "") -> list[tuple]:
    """Return the sequences of a form up to its end, `]` or `}`."""
    ways: list[list] = [[]]
    for word in words:
        if word == end:
            break
        if word == "|":
            ways.append([])
        elif word == "[":
            ways[-1].append(_Option((*_parsed(words, "]"), ())))
        elif word == "{":
            ways[-1].append(_Option(tuple(_parsed(words, "}"))))
        else:
            ways[-1].append(word)
    return [tuple(way) for way in ways]


def _fits(word: str, token: str) -> bool:
    if word.startswith("<"):
        return bool(re.fullmatch(grammar()["values"][word[1:-1]], token))
    return token == word


def _ends(parts: Sequence, tokens: list[str], at: int, reached: list[int]) -> Iterator[int]:
    """Yield each place up to which the tokens from `at` on fit the parts; keep the furthest in `reached`."""
    reached[0] = max(reached[0], at)
    if not parts:
        yield at
        return
    first, rest = parts[0], parts[1:]
    if isinstance(first, _Option):
        for way in first.ways:
            yield from _ends((*way, *rest), tokens, at, reached)
    elif first == "<uris>":
        yield from _ends(("[", "<metadata>", "]", *rest), tokens, at, reached)
    elif first.endswith("+"):
        one = first[:-1]
        yield from _ends((one, _Option(((",", first), ())), *rest), tokens, at, reached)
    elif at < len(tokens) and _fits(first, tokens[at]):
        yield from _ends(rest, tokens, at + 1, reached)


def require_statement(w: Warehouse, statement: str) -> None:
    """Raise WarehouseError for a statement that fits no form of its warehouse; name the first part that does not fit."""
    tokens, reached = _tokens(statement), [0]
    for form in grammar()["forms"][w.entries.engine]:
        (parts,) = _parsed(iter(_FORM.findall(form)))
        if len(tokens) in _ends(parts, tokens, 0, reached):
            return
    wrong = tokens[reached[0]] if reached[0] < len(tokens) else "its end"
    raise WarehouseError(
        f"warehouse '{w.name}': {w.entries.engine} takes no such statement: {wrong} does not fit in {statement}",
        f"correct the entries of the warehouse in params/{w.env}.yml",
    )


def require_properties(w: Warehouse, properties: dict[str, str]) -> None:
    """Raise WarehouseError for a property of a configuration file that is unknown or has a wrong value."""
    known = grammar()["properties"][w.entries.engine]
    for name, value in properties.items():
        pattern = next((v for n, v in known.items() if re.fullmatch(n, name)), None)
        if pattern is None or not re.fullmatch(pattern, value):
            raise WarehouseError(
                f"warehouse '{w.name}': {w.entries.engine} takes no property {name} = {value}",
                f"correct the entries of the warehouse in params/{w.env}.yml",
            )
