"""The destination of finished files: the only part to replace for a bucket that is not a local folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol


class Place(Protocol):
    """A destination for complete files, by paths relative to the target (`schema/table/LOAD00000001.csv`)."""

    def place(self, path: str, content: Path | bytes) -> Any:
        """Put a file there in one step, replacing an older one; a `Path` is a finished file to be moved.

        Return the object's name for the caller of `DmsSimulator.flush`.
        """

    def names(self, path: str) -> list[str]:
        """Return the base names of all objects below a relative folder, at any depth; empty if there are none."""


class Folder:
    """A local folder; readers see only complete files, since they are moved into place."""

    def __init__(self, root: Path):
        self.root = Path(root)

    def place(self, path: str, content: Path | bytes) -> Path:
        """Move a file of the same file system into place, or write bytes; return the file's path."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            hidden = staging(self.root)
            hidden.mkdir(parents=True, exist_ok=True)
            content, data = hidden / f"{target.name}.{os.getpid()}", content
            content.write_bytes(data)
        os.replace(content, target)
        return target

    def names(self, path: str) -> list[str]:
        """Return the base names of all files below a folder."""
        return [f.name for f in (self.root / path).rglob("*") if f.is_file()]


def staging(folder: Path) -> Path:
    """Return the hidden folder next to a folder, where files are until they are complete."""
    return folder.parent / f".{folder.name}.staging"
