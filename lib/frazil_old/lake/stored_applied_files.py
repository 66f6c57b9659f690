"""The record of applied files in a table's properties; its older parts are segments below the table's own folder.

The folder of the segments begins with `_`, so Iceberg's removal of orphan files skips it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from frazil_old.dms.applied_files import AWAITED, FILES, MOST_AWAITED, SEEN, AppliedFile, AppliedFiles, key_of
from frazil_old.dms.file_order import places
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.position import Position
from frazil_old.lake import jvm_files

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from frazil_old.lake.jvm import JavaTable


def of_java(table: JavaTable) -> AppliedFiles:
    """Return the record of a table that Spark has loaded; segments are read on demand."""

    properties = table.properties()
    texts = {name: properties.get(name) for name in (FILES, AWAITED, SEEN)}
    head = None if texts[FILES] else table.currentSnapshot()
    return AppliedFiles.of(texts, partial(jvm_files.read, table), head.timestampMillis() if head else 0)


def of_table(table: Table) -> AppliedFiles:
    """Return the record of a table that PyIceberg has loaded."""

    def read(name: str) -> bytes:
        with table.io.new_input(jvm_files.place(table.location(), name)).open() as file:
            return file.read()

    head = table.current_snapshot()
    return AppliedFiles.of(table.metadata.properties, read, head.timestamp_ms if head else 0)


class Update:
    """A change of the record: `properties` belong into the commit, and `done` then deletes segments that are no longer needed."""

    def __init__(
        self,
        table: JavaTable,
        record: AppliedFiles,
        batch: str,
        listed: Iterable[DmsObject],
        awaited: Sequence[str] = (),
    ):
        self.table, self.record, self.batch = table, record, batch
        self.modified = max((record.modified, *(o.landed for o in listed)))
        self.awaited = tuple(awaited)[:MOST_AWAITED]

    def changes(
        self, position: Position, files: Sequence[DmsObject], contents: dict[str, str], there: TableObjects
    ) -> Update:
        """Add applied change files to the record; `position` is the one before them. A full listing fills gaps in the record."""
        rows, record = [], self.record
        if not record.whole or (there.full and not record.complete):
            rows = [AppliedFile(o.name, o.size, o.etag) for o in there.changes if o.name <= position.last]
            rows += record.tail
            record = AppliedFiles(whole=there.full, moved=record.moved, read=record.read)
        at = places(position, files)
        rows += [
            AppliedFile(
                o.name, o.size, o.etag, contents.get(o.path, ""), self.batch, *(at[o.name] if at[o.name][1] else ())
            )
            for o in files
        ]
        if late := [o.name for o in files if at[o.name][1]]:
            first, last = record.moved or (late[0], "")
            record = replace(record, moved=(min(first, *late), max(last, at[late[-1]][0])))
        return self.keep(rows, record)

    def load(self, last: str, there: TableObjects, contents: dict[str, str], replay: bool) -> Update:
        """Add a load. It holds the changes up to `last`; a `replay` applies the later ones again, and keeps them recorded."""
        rows = [AppliedFile(key_of(o), o.size, o.etag, contents.get(o.path, ""), self.batch) for o in there.loads]
        known = not replay or self.record.complete
        batch = self.batch if known else ""  # else nothing shows that the load has their changes
        rows += [AppliedFile(o.name, o.size, "", "", batch) for o in there.changes if o.name <= last]
        if (replay and known) or (self.record.moved and self.record.complete and not last):  # rolled back to the start
            return self.keep(rows)
        self.keep(rows, AppliedFiles(whole=True, read=self.record.read))
        if self.record.seen_in:
            self.properties[SEEN] = ""
        return self

    def keep(self, rows: list[AppliedFile], record: AppliedFiles | None = None) -> Update:
        """Add rows to the record, or to one that replaces it."""
        record = record or self.record
        new = record.with_files(rows, self.batch, partial(jvm_files.write, self.table))
        kept = {name for name, _ in new.segments}
        self.unused = [name for name, _ in self.record.segments if name not in kept]
        shown = AppliedFiles(new.segments, new.tail, self.modified, new.whole, record.moved)
        self.properties = {FILES: shown.to_text()}
        if self.awaited or self.record.awaited:
            self.properties[AWAITED] = json.dumps(self.awaited, separators=(",", ":"))
        return self

    def publish(self) -> None:
        """Set the properties in a separate commit."""
        change = self.table.updateProperties()
        for name, value in self.properties.items():
            change.set(name, value)
        change.commit()

    def done(self) -> None:
        """Delete segments that were merged into others."""
        for name in self.unused:
            try:
                jvm_files.delete(self.table, name)
            except Exception:  # noqa: S112  only a superfluous file stays
                continue


def remember_same(table: JavaTable, record: AppliedFiles, files: Sequence[DmsObject], batch: str) -> None:
    """Record new ETags of files whose bytes were already applied, so that the files are not read again."""
    name = f"seen-{batch}.tsv.gz"
    seen = {**record.seen, **{key_of(o): o.etag for o in files}}
    jvm_files.write(table, name, gzip.compress("\n".join(f"{k}\t{etag}" for k, etag in seen.items()).encode()))
    table.updateProperties().set(SEEN, name).commit()
    if record.seen_in:
        jvm_files.delete(table, record.seen_in)


def await_files(table: JavaTable, record: AppliedFiles, names: Iterable[str], without: Iterable[str] = ()) -> None:
    """Record files that were listed but not applied, so that a later run reports missing ones. Those in `without` are forgotten."""
    awaited = [n for n in dict.fromkeys((*record.awaited, *names)) if n not in set(without)][:MOST_AWAITED]
    table.updateProperties().set(AWAITED, json.dumps(awaited, separators=(",", ":"))).commit()
