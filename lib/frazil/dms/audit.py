"""The audit of maintenance: all files of a table against all that its batches say, which a run cannot afford to list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frazil.dms.applied import Applied
from frazil.dms.file_names import base_name
from frazil.dms.listing import TableFiles
from frazil.dms.pending import FileChangedError, Finding, LateFileError, findings
from frazil.dms.position import Position
from frazil.dms.storage import Storage

if TYPE_CHECKING:
    from frazil.dms.date_partition import DatePartition


def audit(
    there: TableFiles, position: Position, applied: Applied, storage: Storage, partition: DatePartition
) -> tuple[str, Sequence[Finding]]:
    """Return why a table must stop (empty: it need not), and all findings about its files.

    `applied` is what kept snapshots and `ops.commits` say. A name older than the record counts as late only if the file
    landed after the oldest known batch, as nothing else says that it was not applied.
    """
    found = findings(there, position, applied, storage, partition)
    last = base_name(position.last)
    older = [f for f in there.changes if f.name <= min(last, applied.since) and f.name not in applied.marks]
    since = [f.name for f in older if f.landed > applied.known_s > 0]
    if since:
        detail = f"; the record of applied files begins with {applied.since}, and they landed later"
        found.append(Finding(LateFileError, tuple(since), detail))
    stops = [f for f in found if f.error in (FileChangedError, LateFileError)]
    return (f"{stops[0].error.code}: {', '.join(stops[0].names)}" if stops else "", found)
