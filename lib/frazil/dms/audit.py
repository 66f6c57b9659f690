"""The audit of maintenance: all files of a table against all that its batches say, which a run cannot afford to list."""

from __future__ import annotations

from frazil.dms.applied import Applied
from frazil.dms.file_names import base_name
from frazil.dms.listing import TableFiles
from frazil.dms.pending import LateFileError, findings
from frazil.dms.position import Position
from frazil.errors import Finding


def audit(there: TableFiles, position: Position, applied: Applied) -> list[Finding]:
    """Return what stops a table, by all of its files.

    `applied` is what kept snapshots and `ops.commits` say. A name older than the record counts as late only if the file
    landed after the oldest known batch, as nothing else says that it was not applied.
    """
    found = findings(there, position, applied)
    oldest = min(base_name(position.last), applied.since)
    older = [f for f in there.changes if f.name <= oldest and f.name not in applied.marks]
    if since := [f.name for f in older if f.landed > applied.known_s > 0]:
        detail = f"; the record of applied files begins with {applied.since}, and they landed later"
        found.append(Finding(LateFileError, tuple(since), detail))
    return found
