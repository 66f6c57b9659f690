"""Who may read what Frazil writes on this machine: only its user, and a group if parameter `file_group` names one."""

from __future__ import annotations

import grp
import os
import stat
from contextlib import suppress
from pathlib import Path

from frazil_old.config.processes import host
from frazil_old.config.settings import ParameterError, Settings


def open_runs(settings: Settings) -> Path:
    """Make `runs/<env>` private and return it; everything that this process and its children write from now on is private too."""
    os.umask(mask(settings))
    folder = Path(settings.root) / settings.runs / settings.env
    with suppress(OSError):  # full or read-only: the writer reports it
        make_folder(folder, settings)
        wide = stat.S_IMODE(folder.stat().st_mode) & mask(settings)
        if folder.stat().st_uid == os.geteuid():  # made by an earlier version, or before the group was named
            if settings.file_group:
                _give(folder, settings.file_group)
            elif wide:
                folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~wide)
    return folder


def mask(settings: Settings) -> int:
    """Return the umask for new files: without `file_group` only the user may read them."""
    return 0o027 if settings.file_group else 0o077


def make_folder(folder: Path, settings: Settings) -> None:
    """Create a folder and its missing parents. If a group is named, files created in it later belong to that group."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    for new in reversed(missing):
        new.mkdir(mode=0o777 & ~mask(settings), exist_ok=True)
        if settings.file_group:
            _give(new, settings.file_group)


def replace(file: Path, text: str) -> None:
    """Replace a file completely, or leave it unchanged if the disk is full."""
    new = file.with_name(f".{file.name}.{host()}.{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, file)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise


def _give(folder: Path, group: str) -> None:
    try:
        os.chown(folder, -1, grp.getgrnam(group).gr_gid)
        folder.chmod(0o2750)
    except KeyError:
        raise ParameterError(
            f"file_group = '{group}': this machine has no such group", "correct it, or leave it empty"
        ) from None
    except PermissionError:
        raise ParameterError(
            f"file_group = '{group}': this user is not in it", "have it added, or leave it empty"
        ) from None
