"""The pages that are made from the library itself: `make pages` writes them, and a test compares them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import frazil
from frazil.errors import FrazilError
from frazil.settings.settings_model import Settings

DOCS = Path(__file__).parent.parent / "lib/docs"


def _below(base: type[FrazilError]) -> Iterator[type[FrazilError]]:
    for child in base.__subclasses__():
        yield child
        yield from _below(child)


def error_classes() -> list[type[FrazilError]]:
    """Return the classes of errors of the library, by code."""
    for module in pkgutil.walk_packages(frazil.__path__, "frazil."):
        importlib.import_module(module.name)
    return sorted((c for c in _below(FrazilError) if c.__module__.startswith("frazil.")), key=lambda c: c.code)


def errors() -> str:
    """Return the page of errors."""
    rows = [f"| `{c.code}` | {' '.join(c.__doc__.split())} | `{c.__module__}` |" for c in error_classes()]
    return f"""# Errors

A message names what is wrong, its code in brackets, and the cure. No cure that a message names first loses a row.

| code | what is wrong, and what to do | raised by |
|---|---|---|
{chr(10).join(rows)}
"""


def settings() -> str:
    """Return the page of settings."""
    rows = []
    for name, entry in Settings.model_fields.items():
        default = entry.get_default(call_default_factory=True)
        shown = "" if default in ("", (), {}, None) or name == "changes" else f"`{str(default).lower()}`"
        rows.append(f"| `{name}` | {shown} | {entry.description} |")
    return f"""# Settings

They are those of `lib/frazil` and of the notebooks. The commands, and notebooks 04 and 06, still take the [parameters](../../params/README.md) of `lib/frazil_old`.

An environment is a file `params/<env>.yml` with lines `name: value`. Arguments of `frazil.open` win over the file, and the file over the defaults.
It holds no secret: write `${{NAME}}` for a variable of the environment, or `${{secret:<id>}}` for a secret in AWS Secrets Manager.

| setting | default | what it says |
|---|---|---|
{chr(10).join(rows)}
"""


PAGES = {"errors.md": errors, "settings.md": settings}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
