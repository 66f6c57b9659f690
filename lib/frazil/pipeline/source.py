"""Where changes come from: for each table ordered files that never change, in a folder in which DMS writes them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from frazil.dms import documents
from frazil.dms.listing import TableFiles, list_shared, list_table
from frazil.dms.load_gate import LoadGate, load_gate
from frazil.dms.mappings import resolve
from frazil.dms.position import Position
from frazil.dms.source_file import SourceTable
from frazil.dms.storage import Storage
from frazil.engine.read import TableReader
from frazil.settings.parameters import Settings
from frazil.settings.spec import TableSpec

ASK_AGAIN_S = 5.0
"""How long an answer of DMS about all tables counts."""


class Source:
    """The folder that an environment reads, and what DMS says of its tasks."""

    def __init__(self, settings: Settings, specs: Mapping[str, TableSpec]):
        from frazil.discover.source_folders import require_own_folders

        self.settings = settings
        self._gate: LoadGate | None = None
        self._asked_s = -ASK_AGAIN_S
        self.storage = Storage(settings.place("source"))
        self.target = documents.s3_target(Path(settings.place("endpoint")))
        self.rules = documents.rules(Path(settings.place("mappings"))) if settings.mappings else []
        self._written = {name: resolve(self.rules, spec) for name, spec in specs.items()}
        self._shared = require_own_folders(self._written)

    def look(self, spec: TableSpec, position: Position | None) -> TableFiles:
        """Return a table's files: with a position those that may be new, else all.

        Raises SameSourceError, and SourceFolderError if nothing is there and not even a folder for the schema.
        """
        if spec.source in self._shared:
            raise self._shared[spec.source]
        written, of_all = self._written[spec.source], self.target.cdc_path
        shared = list_shared(self.storage, of_all, position.last if position else "") if of_all else ()
        folder = f"{written.schema}/{written.table}"
        found = list_table(self.storage, folder, self.target.date_partition, position, shared)
        if not (position or found.loads or found.changes):
            from frazil.discover.source_folders import require_schema_folder

            require_schema_folder(self.storage, written.schema, written.table)
        return found

    def reader(self, spec: TableSpec) -> TableReader:
        """Return what reads a table's files by a spec."""
        return TableReader(self.storage, SourceTable(spec, resolve(self.rules, spec), self.target))

    def waits(self, source: str) -> str:
        """Return why DMS's statistics say that the load of a source table is not complete; empty if they do not."""
        if time.monotonic() - self._asked_s > ASK_AGAIN_S:
            self._gate, self._asked_s = load_gate(self.settings), time.monotonic()
        return self._gate.waits(source) if self._gate else ""

    def ask_again(self) -> None:
        """Forget what DMS said, as a run begins."""
        self._asked_s = -ASK_AGAIN_S

    def loaded_rows(self, source: str) -> int:
        """Return how many rows DMS says that it loaded; 0: it says nothing."""
        return int(self._gate.tables.get(source, {}).get("FullLoadRows") or 0) if self._gate else 0

    def without_spec(self) -> list[str]:
        """Return the folders that no spec has, as `schema.table`, but for `ignore_tables`."""
        from frazil.discover.source_folders import folders_without_spec

        taken = [*(f"{own.schema}/{own.table}" for own in self._written.values()), self.target.cdc_path or ""]
        return folders_without_spec(self.storage, taken, self.settings.ignore_tables)
