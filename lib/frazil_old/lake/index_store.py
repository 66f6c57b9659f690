"""The key index next to its table, under `_frazil/index`: a new driver takes it from there and does not read the keys again.

Segments never change, and each has a name of its own. The manifest is written last. A segment that it does not name is
deleted six hours after it was stored: until then, other drivers may be reading it, or about to name it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from frazil_old.lake import jvm, jvm_data_files, jvm_files
from frazil_old.lake.key_index import MANIFEST, SEGMENT, parsed, write_manifest, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("frazil")
FOLDER = "index"
LEAST_ROWS = 1_000_000
"""Indexes of fewer rows are not stored: they are built in a second or two."""
EVERY_S, NEW_SHARE = 300.0, 0.01
"""A long run stores an index at most this often, and only if this share of its rows is new."""
UNNAMED_S = 6 * 3600.0
"""A segment that no manifest names is deleted this many seconds after it was stored."""
_at_work = Lock()


def is_stored(table: jvm.JavaTable) -> bool:
    """Return whether an index is stored next to a table; also False if there was no answer."""
    try:
        return jvm_files.exists(table, f"{FOLDER}/{MANIFEST}")
    except Exception as e:
        log.warning("no look at the key index stored next to %s: %s", table.name(), jvm.cause(e))
        return False


class IndexStore:
    """The stored index of one table, and the local folder that it is copied from and to."""

    def __init__(self, spark: SparkSession, folder: Path):
        self.spark, self.folder = spark, folder
        self.refused = False
        """Whether an index was wrong in this run: the stored one may have the same fault, and is replaced."""
        self.kept: frozenset[str] = frozenset()
        """The local segments that are being stored."""
        self._tried = time.monotonic()

    def take(self, table: jvm.JavaTable, identity: str, is_newer: Callable[[int], bool]) -> bool:
        """Copy the stored index to the folder if it is this table's and `is_newer(its snapshot)`; return whether it was."""
        if self.refused:
            return False
        try:
            if not jvm_files.exists(table, f"{FOLDER}/{MANIFEST}"):
                return False
            there = parsed(jvm_files.read(table, f"{FOLDER}/{MANIFEST}"))
            if there["identity"] != identity or not is_newer(there["snapshot"]):
                return False
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in (s["name"] for s in there["segments"]):
                if not (self.folder / name).exists():
                    jvm_files.fetch(self.spark, table, f"{FOLDER}/{name}", self.folder / name)
            write_manifest(self.folder, there)
        except Exception as e:  # whatever is stored there: it is a copy of a cache
            log.warning("the key index stored next to %s is not taken: %s", table.name(), jvm.cause(e))
            return False
        return True

    def offer(self, table: jvm.JavaTable, manifest: dict[str, Any], at_end: bool) -> None:
        """Store the index that was saved with a manifest, if that pays: at the end of a run now, else in a thread.

        A failure is logged. It costs time at the next start, but no batch.
        """
        if manifest["keys"] < LEAST_ROWS:
            return
        if at_end:
            with _at_work:  # after a thread that may be at work
                self._store(table, manifest, at_end)
        elif time.monotonic() - self._tried > EVERY_S and _at_work.acquire(blocking=False):
            self._tried, self.kept = time.monotonic(), frozenset(s["name"] for s in manifest["segments"])
            Thread(target=self._in_thread, args=(table, manifest), daemon=True).start()

    def _in_thread(self, table: jvm.JavaTable, manifest: dict[str, Any]) -> None:
        try:
            self._store(table, manifest, at_end=False)
        finally:
            self.kept = frozenset()
            _at_work.release()

    def _store(self, table: jvm.JavaTable, manifest: dict[str, Any], at_end: bool) -> None:
        try:
            there = self._there(table)
            if self._pays(there, manifest, at_end):
                self._put(table, manifest, there)
                self.refused = False
        except Exception as e:
            log.warning("the key index of %s is not stored next to it: %s", table.name(), jvm.cause(e))

    def _there(self, table: jvm.JavaTable) -> dict[str, Any]:
        """Return the stored manifest, whatever table it is of; empty if there is none, or a damaged one."""
        if not jvm_files.exists(table, f"{FOLDER}/{MANIFEST}"):
            return {}
        try:
            there = parsed(jvm_files.read(table, f"{FOLDER}/{MANIFEST}"))
            return {**there, "written": float(there["written"])}
        except (ValueError, LookupError, TypeError, AttributeError):
            return {}

    def _pays(self, there: dict[str, Any], manifest: dict[str, Any], at_end: bool) -> bool:
        if self.refused or there.get("identity") != manifest["identity"]:
            return True
        if there["snapshot"] == manifest["snapshot"]:
            return False
        stored = {s["name"] for s in there["segments"]}
        new = sum(s["rows"] for s in manifest["segments"] if s["name"] not in stored)
        old = time.time() - there["written"] > EVERY_S
        return new >= NEW_SHARE * manifest["keys"] or (at_end and old)

    def _put(self, table: jvm.JavaTable, manifest: dict[str, Any], there: dict[str, Any]) -> None:
        """Store the segments that are not there, then the manifest; delete old segments that it does not name."""
        named, stored = ({s["name"] for s in of.get("segments", ())} for of in (manifest, there))
        for name in named - stored:
            to = jvm_files.place(table.location(), f"{FOLDER}/{name}")
            jvm_data_files.store(self.spark, table, str(self.folder / name), to)
        jvm_files.write(table, f"{FOLDER}/{MANIFEST}", written({**manifest, "written": time.time()}))
        for name, created in jvm_files.names(table, FOLDER).items():
            if SEGMENT.fullmatch(name) and name not in named and time.time() - created / 1000 > UNNAMED_S:
                jvm_files.delete(table, f"{FOLDER}/{name}")
