"""Work in Spark's tasks, on any master, if it is large: the same functions as in this process, and the same results."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import chain, count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.changes import COMMITTED, Changes
from frazil.engine.replay_files import BatchFiles, FilePart
from frazil.errors import FrazilError
from frazil.iceberg.compaction import Group, Job, here, rewrite_group
from frazil.iceberg.file_threads import each
from frazil.iceberg.key_segments import Matches
from frazil.iceberg.live_files import LiveFile
from frazil.iceberg.locate import Scan, scan_files
from frazil.settings.memory import Budget

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyspark import SparkContext

LARGE, MANY_ROWS = 128 << 20, 1 << 23
"""The bytes of files, and the rows of key columns, that are worth a task: fewer are done in this process."""
AT_ONCE, MEMORY = 128, 768 << 20
"""The tasks that Spark is given at once, and the memory that one on this machine takes of the budget."""
LoadPart = tuple[list[LiveFile], list[Changes], list[int | None]]
"""What some files of a load came to: data files, bad rows, and the first and the last commit times in microseconds."""
Item = TypeVar("Item")
_shipping, _shipped = threading.Lock(), set[str]()


class Tasks:
    """The tasks of a Spark session, which starts with the first. What they return comes to this process, so it must be small."""

    def __init__(self, context: Callable[[], SparkContext], budget: Budget):
        self.context, self.budget = context, budget

    @property
    def cores(self) -> int:
        """How many tasks Spark runs at once."""
        return int(self.context().defaultParallelism)

    @property
    def are_here(self) -> bool:
        """Whether executors are on this machine."""
        return str(self.context().master).startswith("local")

    def run(self, work: Callable, jobs: Sequence, say: Callable[[str], Any] = id) -> list[Any]:
        """Return what some work returns for each job, in their order; a single job runs in this process.

        An error of Frazil is raised as its task raised it.
        """
        if len(jobs) < 2:
            return [*map(work, jobs)]
        context, are_here, done, failed = self.context(), self.are_here, count(1), list[FrazilError]()
        if not are_here:
            _ship(context)
        shared, tasks = context.broadcast(work), context.parallelize(jobs, len(jobs))

        def run_one(number: int) -> Any:
            with self.budget.take(MEMORY) if are_here else nullcontext():
                found = None if failed else context.runJob(tasks, partial(_done, shared), [number])[0]
            if isinstance(found, FrazilError):
                failed.append(found)
                raise found
            say(f"{next(done)} of {len(jobs)} parts")
            return found

        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                return [*pool.map(run_one, range(len(jobs)))]
        finally:
            shared.destroy()

    def scan(self, of: Scan, files: list[LiveFile]) -> list[Matches]:
        """Scan data files for keys, as `locate` asks."""
        shares = parts_of(files, lambda file: file.rows, MANY_ROWS)
        return [matches for found in self.run(partial(scan_files, of), shares) for matches in found]

    def rewrite(self, jobs: list[Job]) -> list[Group]:
        """Rewrite groups of data files, as compaction asks."""
        is_small = sum(file.size for _, _, old, *_ in jobs for file in old) < LARGE
        return here(jobs) if is_small else self.run(rewrite_group, jobs)

    def read(self, of: BatchFiles, begin: int, end: int | None) -> Iterator[FilePart]:
        """Yield the changes of a batch in order; large files are read where the executors are, if these are other machines."""
        numbers = range(len(of.files))
        if end is not None or len(numbers) < 2:
            yield from of.changes(numbers, begin, end)
        elif sum(file.size for file in of.files) < LARGE or self.are_here:
            yield from chain(*each(partial(_read, of, begin), [[n] for n in numbers], of.reader.storage.address))
        else:
            yield from chain(*self.run(partial(_read, of, begin), file_parts(of)))


def parts_of(items: Sequence[Item], size: Callable[[Item], int], most: int) -> list[list[Item]]:
    """Return items in parts, in their order: each has about as much as is worth a task, or one item that has more."""
    ends = np.cumsum([size(item) for item in items])
    return [[items[n] for n in some] for _, some in groupby(range(len(items)), lambda n: (ends[n] - 1) // most)]


def file_parts(of: BatchFiles) -> list[list[int]]:
    """Return the numbers of a batch's files in parts that are each worth a task."""
    return parts_of(range(len(of.files)), lambda number: of.files[number].size, LARGE)


def _read(of: BatchFiles, begin: int, numbers: Sequence[int]) -> list[FilePart]:
    return [*of.changes(numbers, begin)]


def write_part(
    of: BatchFiles,
    rows_of: Callable[[Changes, BatchFiles], pa.Table] | None,
    metadata: TableMetadata,
    io: FileIO,
    numbers: Sequence[int],
) -> LoadPart:
    """Write the rows of some files of a load, here or in a task."""
    from frazil.iceberg.data_files import write_files  # by PyIceberg, which an idle run does not import

    bad, micros = list[Changes](), list[int | None]()

    def rows_to_write() -> Iterator[pa.Table]:
        for _, _, part in of.changes(numbers):
            if len(part.bad):
                rows, facts = part.rows.schema.empty_table(), part.facts.schema.empty_table()
                bad.append(Changes(rows, facts, part.bad, part.bad_facts))
            if (times := part.fact(COMMITTED)) is not None:
                micros.extend(pc.min_max(times.cast(pa.int64())).as_py().values())
            yield rows_of(part, of) if rows_of else part.rows

    return write_files(metadata, io, rows_to_write()), bad, micros


def _ship(context: SparkContext) -> None:
    """Give this package to executors on other machines, once a session."""
    from pyspark import SparkFiles

    house = Path(__file__).parents[1]
    with _shipping:
        if context.applicationId not in _shipped:
            package = shutil.make_archive(f"{SparkFiles.getRootDirectory()}/frazil", "zip", house.parent, house.name)
            context.addPyFile(package)
            _shipped.add(context.applicationId)


def _done(work: Any, jobs: Iterator) -> Iterator[Any]:
    """Yield the results of a task; an error that it raised would be tried again, and come back as a text."""
    for path in [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]:
        del sys.path_importer_cache[path]  # Spark reads each archive anew before each task, which took 0.3 s
    for job in jobs:
        try:
            yield work.value(job)
        except FrazilError as error:
            yield error
