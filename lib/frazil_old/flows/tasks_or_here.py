"""Run the core in Spark's tasks, or in this process where they cannot run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from frazil_old.config.spark_session import is_local, missing_python
from frazil_old.config.spec import TableSpec
from frazil_old.dms.file_integrity import Digests, file_digests
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.storage import is_s3
from frazil_old.dms.stream_source import raised_in_task
from frazil_old.errors import FrazilError
from frazil_old.flows.workbook import Workbook

T = TypeVar("T")
MOST_HASHED = 256 << 20
"""Bytes of a batch's local files whose digests this process computes, even if there are executors."""
MOST_TASKS = 1_000
"""How many tasks compute digests at most."""


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


def digests_of(book: Workbook, files: Sequence[DmsObject]) -> Digests:
    """Return the function that computes digests of local files: in Spark's tasks if a cluster has to read many bytes."""
    size = sum(f.size for f in files if not is_s3(f.path))
    if size <= MOST_HASHED or book.tasks_fail or is_local(book.spark):
        return file_digests

    def in_tasks(paths: Sequence[str]) -> dict[str, str]:
        numbered = book.spark.sparkContext.parallelize(paths, min(len(paths), MOST_TASKS))
        try:
            return dict(numbered.mapPartitions(lambda some: file_digests([*some]).items()).collect())
        except Exception as error:
            if not missing_python(error):
                raise
            return file_digests(paths)

    return in_tasks
