"""Parts of a load, of which each is written alone: small files together, and a large one by its rows."""

from __future__ import annotations

import numpy as np

from frazil.core.row_blocks import BLOCK
from frazil.engine.waiting_rows import BatchFiles

LEAST, MOST = 128 << 20, 512 << 20
"""The bytes of a part. Each has files of its own in the table; a later one of the same file skips the rows before."""
Piece = tuple[int, int, int | None]
"""Rows of a load file: its place in the load, the row after which they begin, and the last one (None: all)."""


def parts_of(of: BatchFiles, cores: int) -> list[list[Piece]]:
    """Return the pieces of each part, so that so many cores have enough to do."""
    most = int(np.clip(sum(file.size for file in of.files) // (2 * cores), LEAST, MOST))
    parts: list[list[Piece]] = []
    room = 0
    for number, file in enumerate(of.files):
        borders = _borders(of, number, file.size // most)
        for begin, end in zip(borders, [*borders[1:], None], strict=True):
            if not parts or file.size // len(borders) > room:
                parts.append([])
                room = most
            parts[-1].append((number, begin, end))
            room -= file.size // len(borders)
    return parts


def _borders(of: BatchFiles, number: int, count: int) -> list[int]:
    """Return the rows after which pieces of a file begin: about so many, by the footer or the first block. One of gzip is whole."""
    file, its = of.files[number], of.columns[number]
    if its is None or count < 2 or file.name.endswith(".gz"):
        return [0]
    if its.dialect is None:
        rows = of.reader.measure(file, its).rows
    else:
        rows = int(next(of.reader.rows(file, its)).numbers[-1:].sum() * file.size / BLOCK)
    return [*range(0, rows, rows // count + 1)] or [0]
