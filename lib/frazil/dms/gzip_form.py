"""Whether a file is packed, as its bytes say it: plain, gzip of one or several members, or packed more than once."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from frazil.core.rows import FETCH_AGAIN, UnreadableFileError

MAGIC = b"\x1f\x8b"
MOST = 4 << 20
"""The most bytes that are unpacked at a time."""


def unpacked(pieces: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Yield a file's bytes, unpacked as often as it was packed; `where` names it in errors.

    Raises UnreadableFileError if a packed file is damaged or was cut off.
    """
    pieces = iter(pieces)
    head = b""
    while len(head) < len(MAGIC) and (piece := next(pieces, None)) is not None:
        head += piece
    if head.startswith(MAGIC):
        yield from unpacked(_inflated(chain([head], pieces), where), where)
    elif head:
        yield from chain([head], pieces)


def _inflated(pieces: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Yield what one layer of gzip holds: its members one after another."""
    member, is_whole = zlib.decompressobj(31), True
    for piece in pieces:
        found = b""
        while piece or (len(found) == MOST and not is_whole):
            if member.eof:
                member = zlib.decompressobj(31)
            try:
                found = member.decompress(piece, MOST)
            except zlib.error:
                raise UnreadableFileError(f"{where}: a damaged gzip file", FETCH_AGAIN) from None
            if found:
                yield found
            piece, is_whole = member.unused_data or member.unconsumed_tail, member.eof
    if not is_whole:
        raise UnreadableFileError(f"{where}: a gzip file that was cut off", FETCH_AGAIN)
