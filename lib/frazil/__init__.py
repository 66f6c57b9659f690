"""Frazil: what AWS DMS writes becomes Apache Iceberg tables, exactly once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.pipeline.cells import finish, steps
    from frazil.pipeline.lake import Lake, open
    from frazil.pipeline.steps import Table

__all__ = ["Lake", "Table", "finish", "open", "steps"]
_MODULES = {"Lake": "lake", "Table": "steps", "finish": "cells", "open": "lake", "steps": "cells"}
"""The module of `pipeline` that has each name. It is imported with the first use of the name: an import costs nothing."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'frazil' has no attribute '{name}'")
    return getattr(import_module(f"frazil.pipeline.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
