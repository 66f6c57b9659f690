"""Work on many tables at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from frazil.errors import FrazilError

AT_ONCE = 32
"""Tables that are worked on at the same time: as their folders are listed, most of them wait for the storage."""
Table = TypeVar("Table")
Found = TypeVar("Found")


def for_each(tables: Iterable[Table], work: Callable[[Table], Found]) -> dict[Table, Found | FrazilError]:
    """Return what `work` returns for each table; an error is its table's alone."""

    def one(table: Table) -> Found | FrazilError:
        try:
            return work(table)
        except FrazilError as error:
            return error

    tables = [*tables]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(tables, pool.map(one, tables), strict=True))
