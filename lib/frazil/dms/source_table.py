"""A table of the source, as DMS delivers it."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.config.spec import TableSpec
from frazil.dms.endpoint import Endpoint
from frazil.dms.mappings import Mappings


@dataclass(frozen=True)
class SourceTable:
    """A table's spec, and the endpoint settings and mappings by which DMS writes its files and messages."""

    spec: TableSpec
    endpoint: Endpoint
    mappings: Mappings

    @property
    def target_name(self) -> tuple[str, str]:
        """Return the schema and the table by which DMS names it in files and messages."""
        return self.mappings.target_name(self.spec)
