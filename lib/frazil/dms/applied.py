"""Which files a table has applied: each batch's snapshot says it, and nothing else has to be kept in step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from frazil.dms.file_marks import mark_of
from frazil.dms.file_names import base_name, order_of
from frazil.dms.position import Position
from frazil.dms.storage import DmsFile, Storage

FILES, WAITING = "frazil.files", "frazil.waiting"
"""Entries of a snapshot's summary: the files that its batch applied, each with its mark; and names that were listed and left."""
MOST_FILES = 1000
"""The most files that a summary names. A load of more is known by its mark in the position alone."""


@dataclass(frozen=True)
class Batch:
    """What a snapshot of a table says of its batch, and when it was committed (epoch seconds)."""

    position: Position
    files: dict[str, str]
    waiting: tuple[str, ...] | None
    committed: float


@dataclass(frozen=True)
class Applied:
    """The files that a table has applied, as far back as its batches are known without a gap.

    `marks` has each file's mark by its name, of a load file by its path. Of names after `since` all applied ones are
    there. `known_s` is when the oldest known batch was committed.
    """

    marks: dict[str, str]
    since: str
    known_s: float
    waiting: tuple[str, ...] = ()


def summary_of(storage: Storage, files: Mapping[str, DmsFile], waiting: Sequence[DmsFile] = ()) -> dict[str, str]:
    """Return what a batch's summary says: its files, each by its name or a load's by its path, and the files that it left."""
    marks = {name: mark_of(storage, {name: file}) for name, file in files.items() if len(files) <= MOST_FILES}
    names = [file.name for file in waiting[:200]]  # the next ones
    return {FILES: msgspec.json.encode(marks).decode(), WAITING: " ".join(names)}


def batch_of(position: Position, summary: Mapping[str, str], committed: float) -> Batch:
    """Return what the summary of a snapshot with a position says of its batch."""
    marks = msgspec.json.decode(summary.get(FILES, "{}"), type=dict[str, str])
    waiting = tuple(summary[WAITING].split()) if WAITING in summary else None
    return Batch(position, marks, waiting, committed)


def applied_files(batches: Iterable[Batch]) -> Applied:
    """Return what a table has applied since its load, by its batches, the newest first.

    A snapshot without files, as of a compaction, repeats the position. Where a number is missing, the record begins.
    """
    known: list[Batch] = []
    for batch in batches:
        if known and not _follows(known[-1].position, batch.position):
            break
        known.append(batch)
    if not known:
        return Applied({}, "", 0.0)
    waiting = next((batch.waiting for batch in known if batch.waiting is not None), ())
    marks = {name: mark for batch in reversed(known) for name, mark in batch.files.items()}
    return Applied(marks, base_name(known[-1].position.last), known[-1].committed, waiting)


def _follows(later: Position, position: Position) -> bool:
    """Return whether a position is the one before a later one, or repeated by it, since the same load."""
    is_next = position.batch >= later.batch - 1 and position.load == later.load
    return is_next and order_of(position.last) <= order_of(later.last)
