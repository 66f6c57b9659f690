"""Explains errors of the lake's storage or catalog and their remedies: a full disk, damaged metadata, a catalog without an answer."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from frazil_old.config.paths import SQLITE, sqlite_file, without_scheme
from frazil_old.config.settings import Settings
from frazil_old.dms.storage import StorageError, endpoint_url, read, walk
from frazil_old.errors import FrazilError
from frazil_old.lake import commit_retry, jvm
from frazil_old.lake.pyiceberg_catalog import LOCAL_FIRST, CatalogError

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable

FULL = re.compile(
    r"No space left on device|Disk quota exceeded|SQLITE_FULL|database or disk is full|not enough space", re.I
)
PREVIOUS = 100
"""Maximum number of metadata versions to try."""


def storage_error_explained(error: Exception, settings: Settings, target: str) -> FrazilError | None:
    """Return what is wrong with a table's storage or catalog, with its remedy; None if an error has another cause."""
    text = f"{jvm.cause(error)} {error}"
    name = f"{settings.catalog}.{target}"
    if commit_retry.is_no_answer(error) or "Failed to connect" in text:  # as Iceberg says of JDBC and of Hive
        return CatalogError(
            f"{name}: the catalog at {settings.catalog_options.get('uri') or 'its address'} does not answer: {jvm.cause(error)}",
            "see that it runs and can be reached, then run again: what was committed stays, what was not is done then",
        )
    if "SQLITE_READONLY_DBMOVED" in text:
        return CatalogError(
            f"{name}: the catalog's file was deleted or replaced while this session had it open", "restart the kernel"
        )
    if FULL.search(text):
        return StorageError(
            f"{name}: no space left ({', '.join(_free(settings))}): {jvm.cause(error)}",
            "make room there and run again: what was not committed is done then, nothing is lost",
        )
    return damage(settings, target)


def require_metadata(settings: Settings, target: str, depth: int = 0) -> None:
    """Raise StorageError if a table's metadata file cannot be read, or with `depth` 1 its manifest list.

    Iceberg itself retries a damaged metadata file for minutes.
    """
    if trouble := damage(settings, target, depth):
        raise trouble


def _free(settings: Settings) -> Iterator[str]:
    """Yield the free space of each local folder that a run writes to, the fullest first."""
    options = settings.catalog_options
    places = {"warehouse": options.get("warehouse", ""), "catalog": options.get("uri", "").removeprefix(SQLITE),
              "runs": settings.runs, "temporary files": tempfile.gettempdir()}  # fmt: skip
    found = []
    for what, place in places.items():
        if place and "://" not in place.removeprefix("file://"):
            folder = Path(settings.root, place.removeprefix("file://"))
            while not folder.is_dir():
                folder = folder.parent
            found.append((shutil.disk_usage(folder).free, f"{what} in {folder}"))
    for free, what in sorted(found):
        yield f"{what}: {free / 1e6:,.1f} MB free"


def damage(settings: Settings, target: str, depth: int = 2) -> StorageError | None:
    """Return the file of a table's metadata that cannot be read, and the newest version that can; None if all can.

    A SQLite catalog is read without Spark; for other kinds the result is None.
    """
    if (at := _current(settings, target)) is None:
        return None
    try:
        wrong = _unreadable(at, depth)
    except ImportError:  # pyiceberg is not installed
        wrong = None
    if wrong is None:
        return None
    file, why = wrong
    older = next((m for m in _versions(at) if m != at and _unreadable(m) is None), "")
    namespace, table = target.rsplit(".", 1)
    back = "fetch a backup of the table's folder"
    if older:
        back = (
            f"else set the catalog back to the newest metadata that can be read, {older}: UPDATE iceberg_tables SET metadata_location = "
            f"'{older}' WHERE catalog_name = '{settings.catalog}' AND table_namespace = '{namespace}' AND table_name = '{table}'; that undoes "
            "the commits since: the next run applies those of Frazil again, those of other writers are lost"
        )
    return StorageError(
        f"{settings.catalog}.{target}: {file} cannot be read: {why}",
        f"bring the file back from a backup, or from an older version of the object, which loses nothing; {back}",
    )


def _current(settings: Settings, target: str) -> str | None:
    """Return the location of a table's metadata, from a SQLite catalog."""
    import sqlite3

    file = sqlite_file(settings.root, settings.catalog_options)
    if not file:
        return None
    namespace, table = target.rsplit(".", 1)
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
            found = db.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
                (settings.catalog, namespace, table),
            ).fetchone()
    except sqlite3.Error:
        return None
    return found[0] if found else None


def _unreadable(metadata: str, depth: int = 2) -> tuple[str, str] | None:
    """Return the first unreadable file of a metadata version and its current snapshot, and why; None if all can be read.

    `depth`: 0 checks the metadata file alone, 1 also the manifest list, 2 also the manifests.
    """
    at = metadata
    try:
        json.loads(read(without_scheme(metadata)))
        if not depth:
            return None
        from pyiceberg.manifest import read_manifest_list

        table = _opened(metadata)
        if (snapshot := table.current_snapshot()) is None:
            return None
        at = snapshot.manifest_list
        # Not through the snapshot: PyIceberg caches in this process what it has read of one.
        manifests = list(read_manifest_list(table.io.new_input(at)))
        for manifest in manifests if depth > 1 else ():
            at = manifest.manifest_path
            manifest.fetch_manifest_entry(table.io)
    except ImportError:
        raise
    except Exception as e:
        return at, f"{type(e).__name__}: {(str(e).splitlines() or [''])[0][:200]}"
    return None


def _opened(metadata: str) -> StaticTable:
    from pyiceberg.table import StaticTable

    endpoint = {"s3.endpoint": url} if (url := endpoint_url()) else {}
    return StaticTable.from_metadata(metadata, {"py-io-impl": LOCAL_FIRST, **endpoint})


def _versions(metadata: str) -> list[str]:
    """Return the locations of a table's metadata versions, newest first."""
    folder, slash, _ = metadata.rpartition("/")
    names = sorted(
        (e.name for e in walk(without_scheme(folder), deep=False) if e.name.endswith(".metadata.json")), reverse=True
    )
    return [f"{folder}{slash}{name}" for name in names[:PREVIOUS]]
