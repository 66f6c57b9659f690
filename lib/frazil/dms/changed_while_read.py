"""Detects files that change or vanish between their listing and the end of their read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from frazil.dms.listing import DmsObject
from frazil.dms.position import PositionError, named
from frazil.dms.storage import chunks, heads, is_s3
from frazil.source.applied_files import digest


class ChangedWhileReadError(PositionError):
    """Files changed after they were listed: nothing of the batch was applied."""

    decision = False

    def __init__(self, problem: str, cure: str, changed: list[str], gone: list[str]):
        super().__init__(problem, cure)
        self.changed, self.gone = changed, gone


class FileWatch:
    """Computes digests of local files while they are read, and checks afterwards that no file has changed."""

    def __init__(self, files: Sequence[DmsObject], source: str):
        self.files, self.source = files, source
        local = [f.path for f in files if not is_s3(f.path)]
        self._pool = ThreadPoolExecutor(1) if local else None
        self._digests = {p: self._pool.submit(_digest, p) for p in local} if self._pool else {}
        if self._pool:
            self._pool.shutdown(wait=False)

    def contents(self) -> dict[str, str]:
        """Return the digests by path."""
        return {path: found.result() for path, found in self._digests.items()}

    def require_unchanged(self) -> None:
        """Raise ChangedWhileReadError for files that vanished or changed since they were listed."""
        self.contents()
        require_unchanged(self.files, self.source)


def require_unchanged(files: Sequence[DmsObject], source: str) -> None:
    """Raise ChangedWhileReadError for files that vanished or changed since they were listed."""
    now = heads([f.path for f in files])
    gone = [f.name for f, h in zip(files, now, strict=True) if h is None]
    changed = [f.name for f, h in zip(files, now, strict=True) if h and h.etag != f.etag]
    if gone:
        raise ChangedWhileReadError(
            f"{source}: {named(gone)}: {len(gone)} file(s) vanished after they were listed: their changes are not applied",
            "fetch them again, and run again: nothing is lost; or continue without them by the parameter go_on_without, which loses "
            "their changes. If all files of the table are gone: a TRUNCATE at the source may have deleted them",
            changed,
            gone,
        )
    if changed:
        raise ChangedWhileReadError(
            f"{source}: {named(changed)}: {len(changed)} file(s) changed while they were read: nothing of the batch was applied",
            "run again when DMS has finished writing them",
            changed,
            gone,
        )


def _digest(path: str) -> str:
    try:
        return digest(chunks(path, packed=True))
    except OSError:  # the file is gone: require_unchanged reports it
        return ""
