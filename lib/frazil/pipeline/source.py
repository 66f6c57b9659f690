"""Where changes come from: for each table ordered files that never change, in a folder in which DMS writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from frazil.dms import aws_documents
from frazil.dms.listing import TableFiles, list_shared, list_table
from frazil.dms.load_gate import LoadGate
from frazil.dms.mappings import resolve
from frazil.dms.position import Position
from frazil.dms.source_file import SourceTable
from frazil.dms.storage import Storage
from frazil.engine.read import TableReader
from frazil.settings.settings_model import Settings
from frazil.settings.spec import TableSpec


class Source:
    """The folder that an environment reads, and what DMS says of its tasks."""

    def __init__(self, settings: Settings, specs: Mapping[str, TableSpec]):
        from frazil.discover.source_folders import require_own_folders

        self.settings = settings
        self.gate = LoadGate(settings)
        self.storage = Storage(settings.place("source"))
        self.target = aws_documents.s3_target(Path(settings.place("endpoint")))
        self.rules = aws_documents.rules(Path(settings.place("mappings"))) if settings.mappings else []
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

    def without_spec(self) -> list[str]:
        """Return the folders that no spec has, as `schema.table`, but for `ignore_tables`."""
        from frazil.discover.source_folders import folders_without_spec

        taken = [*(f"{own.schema}/{own.table}" for own in self._written.values()), self.target.cdc_path or ""]
        return folders_without_spec(self.storage, taken, self.settings.ignore_tables)
