"""Rows of files of all tables that no table takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from frazil.dms.listing import DmsObject
from frazil.engine.load_files import groups_of
from frazil.engine.load_on_spark import of_tasks
from frazil.engine.read_files import count_tables
from frazil.engine.read_plan import FileToRead
from frazil.engine.small_batch import are_small
from frazil.flows.tasks_or_driver import tasks_or_here
from frazil.flows.workbook import Workbook


def report(book: Workbook, files: Sequence[DmsObject]) -> None:
    """Report, once per file, the tables that this run does not take, and how many rows of theirs are ignored."""
    new = book.not_yet_reported([f for f in files if f.is_shared])
    if not new:
        return
    counts = tasks_or_here(book, "this process counts ignored rows", lambda here: _counts(book, new, here))
    for taken in book.specs.values():
        counts.pop(book.mappings.target_name(taken), None)
    if counts:
        named = ", ".join(f"{count:,} of {schema}.{table}" for (schema, table), count in sorted(counts.items()))
        book.progress(
            f"{new[0].name} … {new[-1].name}: rows of tables that this run does not process are ignored: {named}"
        )


def _counts(book: Workbook, files: Sequence[DmsObject], in_process: bool) -> Counter[tuple[str, str]]:
    """Return the number of rows by schema and table: counted in this process, or in a task for each group of files."""
    planned = [FileToRead(f.path, i, (), book.endpoint.dialect) for i, f in enumerate(files)]
    if in_process or are_small(files):
        return count_tables(planned)
    groups = groups_of(planned, [f.size for f in files], book.spark.sparkContext.defaultParallelism)
    counts: Counter[tuple[str, str]] = Counter()
    for found in of_tasks(book.spark, groups, lambda group: {"tables": [*count_tables(group).items()]}):
        counts.update({tuple(name): count for name, count in found["tables"]})
    return counts
