"""Work in Spark's tasks: the same functions as in this process, on any master."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil.errors import FrazilError
from frazil.iceberg.locate import Run, scan_files

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

AT_ONCE, MANY_ROWS = 128, 1 << 24
"""The tasks that Spark is given at once, and the rows whose keys are scanned in tasks, if executors are other machines."""
_shipping = threading.Lock()


def in_tasks(
    session: SparkSession, work: Callable, jobs: Sequence, ended: Callable = id, at_once: int = AT_ONCE
) -> list[Any]:
    """Return what some work returns for each job, in their order. Each has a task of its own; results must be small.

    `ended` hears of each result. An error of Frazil is raised as its task raised it.
    """
    context = session.sparkContext
    _ship(context)
    shared, tasks = context.broadcast(work), context.parallelize(jobs, max(1, len(jobs)))

    def run(number: int) -> Any:
        (found,) = context.runJob(tasks, partial(_done, shared), [number])
        if isinstance(found, FrazilError):
            raise found
        ended(found)
        return found

    try:
        with ThreadPoolExecutor(at_once) as pool:
            return [*pool.map(run, range(len(jobs)))]
    finally:
        shared.destroy()


def is_local(context: SparkContext) -> bool:
    """Return whether tasks run on this machine."""
    return str(context.master).startswith("local")


def _done(work: Any, jobs: Iterator) -> Iterator[Any]:
    """Yield the results of a task; an error that it raised would be tried again, and come back as a text."""
    for job in jobs:
        try:
            yield work.value(job)
        except FrazilError as error:
            yield error


def _ship(context: SparkContext) -> None:
    """Give this package to executors on other machines, once a session."""
    from pyspark import SparkFiles

    house, package = Path(__file__).parents[1], Path(SparkFiles.getRootDirectory(), "frazil.zip")
    with _shipping:
        if not (is_local(context) or package.exists()):
            context.addPyFile(shutil.make_archive(str(package.with_suffix("")), "zip", house.parent, house.name))


def scans(session: Callable[[], SparkSession]) -> Run:
    """Return what scans data files: here, or in tasks that each own some of them."""

    def run(scan: Any, files: list) -> list:
        if sum(file.rows for file in files) < MANY_ROWS or is_local(session().sparkContext):
            return scan_files(scan, files)
        count = min(len(files), 2 * session().sparkContext.defaultParallelism)
        shares = [files[len(files) * n // count : len(files) * (n + 1) // count] for n in range(count)]
        return [places for found in in_tasks(session(), partial(scan_files, scan), shares) for places in found]

    return run
