"""Run the core in Spark's tasks, or in this process where they cannot run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from frazil.config.spark_session import missing_python
from frazil.config.spec import TableSpec
from frazil.dms.stream_source import raised_in_task
from frazil.errors import FrazilError
from frazil.flows.workbook import Workbook

T = TypeVar("T")


def in_tasks_or_here(book: Workbook, spec: TableSpec, read: Callable[[bool], T]) -> T:
    """Return what `read` returns; it takes whether this process has to read everything itself."""
    return tasks_or_here(book, f"{spec.source}: this process reads its rows", read)


def tasks_or_here(book: Workbook, fallback: str, read: Callable[[bool], T]) -> T:
    """Return the same; `fallback` says what this process does if it has to.

    If the executors lack Python or a package, no task can run the core. Then this process reads, for the rest of the
    run. That is slower, and as safe.
    """
    if book.tasks_fail:
        return read(True)
    try:
        return read(False)
    except FrazilError:
        raise
    except Exception as error:
        if by_task := raised_in_task(error):
            raise by_task from error
        if not (missing := missing_python(error)):
            raise
        book.progress(f"{fallback}, as Spark's executors cannot: {missing}")
        book.tasks_fail = True
        return read(True)
