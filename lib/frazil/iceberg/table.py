"""A table in the lake: its state as of the last look or commit. All of it is read from metadata and from files that never change."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from frazil.dms.position import Position, read_position
from frazil.iceberg.catalog import found_table
from frazil.iceberg.delete_files import Vectors
from frazil.iceberg.java import commits, opened
from frazil.iceberg.live_files import LiveFile, Manifests, damage_named
from frazil.iceberg.snapshot_summary import CHECKED, POSITION, TAG, Snapshot
from frazil.iceberg.sql_text import quoted

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyspark.sql import SparkSession

    from frazil.iceberg.catalog import AnyCatalog
    from frazil.iceberg.commits import Change

LONGEST_IO_S = 600
"""A FileIO, and Java's handle, may have credentials that end: neither asks the catalog for new ones."""


class LakeTable:
    """The state of a table. Looks need no JVM, until `bridge` was asked for the first time."""

    def __init__(self, catalog: AnyCatalog, name: str, key: Sequence[str], session: Callable[[], SparkSession]):
        self.catalog, self.name, self.session = catalog, name, session
        self.location = ""
        self._snapshots: dict[int, dict[str, Any]] = {}
        self.tags: dict[str, int] = {}
        """The snapshots that tags and branches name."""
        self.rewinds = 0
        """How often the newest state did not follow, unbroken, from the one before: after a rollback, rows live again that were dead."""
        self._live: tuple[int | None, dict[str, LiveFile]] = None, {}
        self.vectors, self._manifests = Vectors(lambda: self.io), Manifests(lambda: self.io)
        self._opened_s = 0.0
        self.refresh()
        ids = {field["name"]: field["id"] for field in self.fields}
        self._manifests.key_ids = self.key_ids = [ids.get(column, 0) for column in key]
        """The field ids of the key's columns, in the key's order; 0: there is no such column."""

    # --- the way to Java

    @property
    def spark_name(self) -> str:
        """The table's name in Spark."""
        return quoted(f"{self.catalog.name}.{self.name}")

    @cached_property
    def bridge(self) -> Any:
        """`Commits.java`, for this table's catalog."""
        return commits(self.session(), self.catalog.name)

    @cached_property
    def handle(self) -> Any:
        """Java's handle of the table, which stays open."""
        return opened(self.session(), self.catalog.name, self.name)

    # --- looks and commits

    def refresh(self) -> None:
        """Take over what was committed since the last look."""
        if time.monotonic() - self._opened_s > LONGEST_IO_S:
            vars(self).pop("handle", None)  # the next commit opens another one
        text = self.bridge.refresh(self.handle, self.location) if "handle" in vars(self) else self._opened()
        if text:
            self._read(text)

    def swap(self, change: Change) -> None:
        """Commit a change that was made for exactly this state; afterwards the newest state is this table's."""
        before, live = self.head_id, self.live_files
        self._read(self.bridge.swap(self.handle, self.location, change.to_json(self.metadata)))
        head, known = self.head, None
        if head and head.parent == before:  # else others committed since
            known = change.applied(live, head, self.key_ids)
        if known is not None:
            self._live = self.head_id, known
            self.vectors.keep(known.values())

    def _opened(self) -> str:
        """Find the table by its catalog, and return its metadata as Java's `refresh` does."""
        location, self._make_io = found_table(self.catalog, self.name)
        vars(self).pop("io", None)
        self._opened_s = time.monotonic()
        if location == self.location:
            return ""
        here = re.sub("^file:/+", "/", location) if location.startswith(("/", "file:/")) else ""
        with damage_named(location):
            with open(here, "rb") if here else self.io.new_input(location).open() as file:
                raw = file.read()
            text = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
            return f"{location}\n{text.decode()}"

    def _read(self, text: str) -> None:
        """Read metadata. They may have thousands of snapshots, of which PyIceberg would make objects."""
        before = self.head
        self.location, _, body = text.partition("\n")
        with damage_named(self.location):
            told = msgspec.json.decode(body)  # four times as fast as json, and each commit waits for it
        self.metadata_bytes = len(body)
        self._snapshots = {s["snapshot-id"]: s for s in told.get("snapshots", ())}
        self.tags = {name: ref["snapshot-id"] for name, ref in told.get("refs", {}).items()}
        if told.get("current-snapshot-id", -1) not in (None, -1):
            self.tags.setdefault("main", told["current-snapshot-id"])  # a catalog that knows no refs leaves them out
        schemas = told.get("schemas") or [told["schema"]]  # metadata of format v1 may have one alone
        self.schemas: dict[int, list[dict[str, Any]]] = {s.get("schema-id", 0): s["fields"] for s in schemas}
        """The columns of each schema, as the metadata's JSON has them."""
        self.fields = self.schemas[told.get("current-schema-id", 0)]
        self.properties: dict[str, str] = told.get("properties") or {}
        without: dict[str, Any] = {"snapshots": [], "snapshot-log": [], "metadata-log": [], "refs": {}}
        self._told = told | without | {"current-snapshot-id": None}
        vars(self).pop("metadata", None)
        if before is not None:
            after = takewhile(lambda s: s.sequence >= before.sequence, self.ancestors())
            self.rewinds += all(s.id != before.id for s in after)
        self.ever_had_rows = bool(told.get("last-sequence-number")) or bool(self._snapshots)

    # --- what PyIceberg makes of it, which takes half a second to import: an idle run needs none of it

    @cached_property
    def io(self) -> FileIO:
        """What opens the table's files."""
        return self._make_io()

    @cached_property
    def metadata(self) -> TableMetadata:
        """Schemas, partition specs and properties as PyIceberg has them; it has no snapshots."""
        from pyiceberg.table.metadata import TableMetadataUtil

        return TableMetadataUtil.parse_obj(self._told)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns as Arrow has them."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self.metadata.schema())

    # --- what the metadata say

    @property
    def key(self) -> list[str]:
        """The names of the key's columns."""
        return [self.metadata.schema().find_field(number).name for number in self.key_ids]

    @property
    def live_files(self) -> dict[str, LiveFile]:
        """The live data files by path. Each manifest is read once."""
        head = self.head
        if self._live[0] != self.head_id:
            self._live = self.head_id, self._manifests.live_files(head.manifest_list) if head else {}
            self.vectors.keep(self._live[1].values())
        return self._live[1]

    @property
    def manifests(self) -> int:
        """The number of manifests of the current snapshot."""
        return len(self._manifests.listed(self.head.manifest_list)) if self.head else 0

    @property
    def snapshots(self) -> list[Snapshot]:
        """All snapshots that are kept, also those that are no part of main."""
        return [*map(Snapshot.of, self._snapshots.values())]

    def snapshot(self, number: int | None) -> Snapshot | None:
        """Return a snapshot that is kept."""
        return Snapshot.of(self._snapshots[number]) if number in self._snapshots else None

    @property
    def head(self) -> Snapshot | None:
        """The current snapshot."""
        return self.snapshot(self.head_id)

    @property
    def head_id(self) -> int | None:
        """The id of the current snapshot."""
        return self.tags.get("main")

    @property
    def own(self) -> Snapshot | None:
        """The last snapshot of Frazil: what the tag names; if somebody dropped or moved the tag, the newest with a position."""
        tagged = self.snapshot(self.tags.get(TAG))
        if tagged and POSITION in tagged.summary:
            return tagged
        return next((s for s in self.ancestors() if POSITION in s.summary), None)

    @property
    def others_need_files(self) -> bool:
        """Whether others need the table's files, so none may be deleted."""
        return self.metadata.properties.get("gc.enabled") == "false"

    @property
    def checked(self) -> int:
        """The sequence number up to which the keys of others' rows were looked at: a compaction does not look at them."""
        return int(self.own.summary.get(CHECKED, self.own.sequence)) if self.own else 0

    @property
    def position(self) -> Position:
        """How far the source is applied."""
        own = self.own
        return read_position(own.summary[POSITION], self.name) if own else Position()

    def ancestors(self) -> Iterator[Snapshot]:
        """Yield the current snapshot and those before it that are kept, newest first."""
        snapshot = self.head
        while snapshot is not None:
            yield snapshot
            snapshot = self.snapshot(snapshot.parent)
