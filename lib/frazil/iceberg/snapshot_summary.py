"""Snapshots, as Iceberg's metadata tells them, and the names that Frazil gives to what stands in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TAG = "frazil"
"""The tag of the last own snapshot."""
POSITION, TOKEN, CHECKED = "frazil.position", "frazil.commit", "frazil.checked"
"""Entries of a summary: the table's position; the mark of one commit; up to which sequence number keys of others were looked at."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that is kept."""

    id: int
    parent: int | None
    sequence: int
    committed_ms: int
    summary: dict[str, str]
    manifest_list: str
    first_row_id: int | None
    added_rows: int | None

    @classmethod
    def of(cls, told: dict[str, Any]) -> Snapshot:
        """Make one from the metadata's JSON."""
        return cls(
            told["snapshot-id"], told.get("parent-snapshot-id"), told.get("sequence-number") or 0, told["timestamp-ms"],
            told.get("summary") or {}, told["manifest-list"], told.get("first-row-id"), told.get("added-rows"),
        )  # fmt: skip
