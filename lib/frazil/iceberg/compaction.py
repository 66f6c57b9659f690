"""Compaction: small and worn data files become large ones, beside ingestion. Rows keep their order, row ids and sequence numbers.

Files are rewritten in waves of groups, at once; one commit swaps a wave. Rows that were deleted meanwhile are deleted in
the new files too: as the order is kept, an old position and the vector of the start give the new one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from frazil.errors import FrazilError
from frazil.iceberg.commits import Change, commit, written
from frazil.iceberg.file_threads import each
from frazil.iceberg.live_files import LAST_UPDATED, ROW_ID, LiveFile
from frazil.iceberg.read_rows import live_rows
from frazil.iceberg.table import LakeTable

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

Job = tuple["TableMetadata", "FileIO", list[LiveFile], list[BitMap64], int]
"""What a rewrite of one group needs, here or in a task."""
PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.5
"""How often, and how long at most, a swap waits for somebody's commit, to come just after it."""
WORN, WORN_OF_MANY, MANY_FILES = 0.1, 0.05, 1000
"""A file is rewritten alone once this share of its rows is deleted; in a table of many files, in which each batch touches more, a smaller one."""
FULL, MANY, SMALL_BYTES = 0.75, 8, 1 << 20
"""A file is small below this share of its target. Ingestion folds the small files of a partition once they are this many, to files of this size."""
FOLDED_AT_ONCE = 16
"""Groups of small files that one swap folds."""


class NotCompactedError(FrazilError, code="not-compacted"):
    """A table has a column that is nested or has a default, which only Iceberg's procedure rewrites. Call it, or leave the table."""


class _OvertakenError(Exception):
    """Others removed files of each group."""


@dataclass(frozen=True)
class Group:
    """Data files of one partition, their deleted rows when the rewrite began, and the new files that have the other rows."""

    old: list[LiveFile]
    dead: list[BitMap64]
    new: list[LiveFile]


def plan(table: LakeTable, target_bytes: int, worn: float | None = None) -> list[list[str]]:
    """Return the groups of small or worn files, by path, each of about the target size."""
    if worn is None:
        worn = WORN_OF_MANY if len(table.live_files) > MANY_FILES else WORN
    ours = _ours(table)
    are_worn = {path for path, file in ours.items() if table.vectors.count(file) > worn * file.rows}
    chosen = [f for f in ours.values() if f.size < FULL * target_bytes or f.path in are_worn]
    groups: list[list[LiveFile]] = []
    for file in sorted(chosen, key=lambda f: (str(f.partition), f.sequence)):
        group = groups[-1] if groups else []
        fits = sum(f.size for f in group) + file.size <= target_bytes
        if group and group[0].partition == file.partition and fits:
            group.append(file)
        else:
            groups.append([file])
    return [[f.path for f in group] for group in groups if len(group) > 1 or group[0].path in are_worn]


def _ours(table: LakeTable) -> dict[str, LiveFile]:
    """Return the data files that can be rewritten: of the present partitions, and on format v3 with row ids. Raises NotCompactedError."""
    for column in table.metadata.schema().fields:
        if not column.field_type.is_primitive or column.initial_default is not None:
            problem = f"{table.name}: column {column.name} is nested or has a default"
            raise NotCompactedError(problem, "CALL system.rewrite_data_files on the table compacts it")
    spec, numbered = table.metadata.default_spec_id, table.metadata.format_version >= 3
    files = (f for f in table.live_files.values() if f.spec_id == spec and (f.first_row_id is not None or not numbered))
    return {file.path: file for file in files}


def here(jobs: list[Job]) -> list[Group]:
    """Rewrite groups in this process, at once."""
    return each(rewrite_group, jobs, jobs[0][0].location)


def fold(table: LakeTable) -> dict[str, int]:
    """Make few files of the many small ones that ingestion wrote to a partition, in its own process."""
    small = Counter(str(f.partition) for f in table.live_files.values() if f.size < FULL * SMALL_BYTES)
    if max(small.values(), default=0) < MANY:
        return {}
    return compact(table, SMALL_BYTES, FOLDED_AT_ONCE, worn=1.0, waits=False)


def compact(
    table: LakeTable,
    target_bytes: int,
    at_once: int,
    run: Callable[[list[Job]], list[Group]] = here,
    worn: float | None = None,
    waits: bool = True,
) -> dict[str, int]:
    """Compact a table. A runner rewrites `at_once` groups of files at a time. Return the numbers of groups, files, carried deletes and lost groups."""
    done: Counter[str] = Counter()
    table.refresh()
    if planned := plan(table, target_bytes, worn):
        _ = table.handle  # opened now: the first swap of a cold JVM takes long enough to be overtaken
    for first in range(0, len(planned), at_once):
        ours, sequence = _ours(table), table.head.sequence if table.head else 0
        there = [paths for paths in planned[first : first + at_once] if all(path in ours for path in paths)]
        wave = [[ours[path] for path in paths] for paths in there]
        if wave:
            groups = run([(table.metadata, table.io, old, [*map(table.vectors.of, old)], target_bytes) for old in wave])
            if waits:
                _wait_for_a_commit(table)
            done.update(swap_wave(table, groups, sequence))
    return dict(done)


def rewrite_group(job: Job) -> Group:
    """Write the live rows of some files to new files."""
    from frazil.iceberg.data_files import DataFileWriter

    metadata, io, old, dead, target_bytes = job
    lineage = (ROW_ID, LAST_UPDATED) if metadata.format_version >= 3 else ()
    writer = DataFileWriter(metadata, io, old[0].partition, lineage, 2 * target_bytes)
    for file, gone in zip(old, dead, strict=True):
        for rows in live_rows(io, file, gone, writer.arrow_schema):
            writer.write(rows)
    group = Group(old, dead, writer.close())
    if sum(f.rows for f in group.new) != sum(f.rows for f in old) - sum(map(len, dead)):
        raise AssertionError(f"{group} has not as many new rows as live ones")
    return group


def swap_wave(table: LakeTable, wave: list[Group], sequence: int) -> dict[str, int]:
    """Put new files in place of old ones, in one swap. Groups are left out, for good, of which others removed files, or brought rows back."""
    done, left = dict[str, int](), [*wave]

    def write() -> Change:
        live = table.live_files
        left[:] = [group for group in left if _is_there(table, group)]  # a swap deletes what its new change leaves out
        if not left:
            raise _OvertakenError
        old = [live[f.path] for group in left for f in group.old]
        carried = [pair for group in left for pair in _carried(table, group)]
        deletes, _ = table.vectors.write(table.metadata, carried)
        of_carried = sum(len(rows) for _, rows in carried)
        done.update(groups=len(left), files=len(old), carried=of_carried, lost=len(wave) - len(left))
        new = [file for group in left for file in group.new]
        replaced = [delete for file in old for delete in file.own_deletes]
        return Change("rewrite", new, deletes, old, replaced, sequence=sequence)

    try:
        commit(table, written(table, write()), write)
    except _OvertakenError:
        return {"lost": len(wave)}
    return done


def _is_there(table: LakeTable, group: Group) -> bool:
    """Return whether the old files of a group are live, and all that the rewrite left out is still deleted."""
    live = table.live_files
    return all(
        f.path in live and dead <= table.vectors.of(live[f.path]) for f, dead in zip(group.old, group.dead, strict=True)
    )


def _wait_for_a_commit(table: LakeTable) -> None:
    """Wait a while until somebody commits: just afterwards a swap is least likely to be overtaken."""
    before, until = table.location, time.monotonic() + LONGEST_PAUSE_S
    while table.location == before and time.monotonic() < until:
        time.sleep(PAUSE_S)
        table.refresh()


def _carried(table: LakeTable, group: Group) -> Iterator[tuple[LiveFile, BitMap64]]:
    """Yield the new files that have rows which were deleted since the rewrite began, with these rows."""
    first = 0
    places: list[int] = []
    for file, dead in zip(group.old, group.dead, strict=True):
        later = table.vectors.of(table.live_files[file.path]) - dead
        places += [first + position - dead.rank(position) for position in later]
        first += file.rows - len(dead)
    first = 0
    for file in group.new:
        mine = BitMap64(p - first for p in places if first <= p < first + file.rows)
        if mine:
            yield file, mine
        first += file.rows
