"""Late files: change files that were never applied, though their names are before the position.

Commit times show whether the file arrived late, or DMS wrote it late because its clock went back. They also show which
pending files are from before a load, which has their changes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile

from frazil_old.core.csv import read_records
from frazil_old.dms.applied_files import AppliedFiles
from frazil_old.dms.endpoint import Endpoint, SourceTable
from frazil_old.dms.file_columns import file_layout, footer, has_header
from frazil_old.dms.file_integrity import refused_if_damaged
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.position import REPLAY, Position, PositionError
from frazil_old.dms.storage import chunks, random_access
from frazil_old.errors import FrazilError

UNKNOWN = (FrazilError, OSError, ValueError, EOFError, zlib.error)
"""Errors after which the times of a file are not known."""


class LateFilesError(PositionError):
    """Change files have names before the position but were never applied."""


def refuse_late(late: Sequence[DmsObject], position: Position, source: str, why: str) -> None:
    """Raise LateFilesError; `why` is the result of `clock_went_back`, if it is known."""
    count = f" and {len(late) - 1} more" if late[1:] else ""
    raise LateFilesError(
        f"{source}: {late[0].path}{count} arrived late: changes up to {position.last} are already applied{why and f'. {why}'}",
        f"if the file arrived late, {REPLAY}: all changes are applied in the order of their names, and none is lost; if DMS's clock went back, "
        "run 02_cdc_merge with late_files=after: the file is applied after the last batch, and its older values overwrite newer ones; "
        "if the file repeats applied changes, move it away",
    )


def clock_went_back(late: Sequence[DmsObject], newest: DmsObject | None, table: SourceTable) -> tuple[bool, str] | None:
    """Return whether DMS wrote the files after the `newest` applied one, by commit times, and why; None if unknown."""
    try:
        then = commit_times(newest, table) if newest else None
        times = [t for o in late if (t := commit_times(o, table))] if then else []
    except UNKNOWN:
        return None
    if not times or len(times) < len(late):
        return None
    first = min(t[0] for t in times)
    after = first >= then[1]
    return after, (
        f"Its first change was committed at {first}, the last one of {newest.name} at {then[1]}: "
        f"{'so DMS wrote it later, and its clock went back' if after else 'so the file arrived late'}"
    )


def last_before_load(objects: TableObjects, position: Position, table: SourceTable, is_replay: bool = False) -> str:
    """Return the newest pending change file that is from before the load, which has its changes; empty if none certainly is.

    DMS writes no change file of a table while it loads it, and a load row's time is when DMS wrote it. In a replay all
    files are pending. Some may have arrived late, so it compares the times in each of them.
    """
    arrived = min((o.landed for o in objects.loads), default=0.0)
    new = [o for o in objects.changes if (is_replay or o.name > position.last) and not o.is_shared]
    pending = new if is_replay and objects.loads else [*takewhile(lambda o: o.landed <= arrived, new)]
    try:
        times = commit_times(objects.loads[0], table, LOAD_PHASE) if pending else None
        began = times[0] if times else ""
        written = table.endpoint.date_partition.written_s
        started_s = datetime.fromisoformat(began).replace(tzinfo=UTC).timestamp() if began else 0.0
        old = [*takewhile(lambda o: written(o.name) < started_s, pending)]

        def is_in_load(o: DmsObject) -> bool:
            return bool(times := commit_times(o, table)) and times[1] < began

        if old and objects.loads[1:]:
            others = [commit_times(o, table, LOAD_PHASE) for o in objects.loads[1:]]
            began = min(began, *(times[0] if times else "" for times in others))
        if is_replay:
            old = [*takewhile(is_in_load, old)]
        while old and not (is_replay or is_in_load(old[-1])):
            old.pop()
    except UNKNOWN:
        return ""
    return old[-1].name if old else ""


def commit_times(file: DmsObject, table: SourceTable, phase: int = CHANGE_PHASE) -> tuple[str, str] | None:
    """Return the first and the last commit time in a change file, as DMS wrote them; None if it has none.

    Of a load file, the times are those of its first rows.
    """
    if file.is_parquet:
        return _times_of_parquet(file, table.endpoint)
    roles = file_layout(table, phase, file)
    if "ts" not in roles:
        return None
    place, found = roles.index("ts"), []
    dialect = replace(table.endpoint.dialect, header=has_header(file, table.endpoint))
    with closing(chunks(file.path)) as pieces:
        for records in read_records(pieces, len(roles), dialect, file.path):
            texts = records.fields.column(place).to_pylist()
            times = [text.replace("T", " ") for text in texts if text and text[0].isdigit()]
            found += [min(times), max(times)] if times else []
            if found and phase == LOAD_PHASE:
                break
    return (min(found), max(found)) if found else None


def _times_of_parquet(file: DmsObject, endpoint: Endpoint) -> tuple[str, str] | None:
    import pyarrow.parquet as pq

    name = endpoint.timestamp_column
    if name not in footer(file).names:
        return None
    with refused_if_damaged(file.path):
        column = pq.read_table(random_access(file.path), columns=[name])[name]
    times = sorted(str(t).replace("T", " ") for t in column.to_pylist() if t is not None)
    return (times[0], times[-1]) if times else None


def is_late(o: DmsObject, position: Position, record: AppliedFiles) -> bool:
    """Return whether a file with a name before the position was never applied.

    A complete record decides. Otherwise a file is late if it arrived after the last batch, or if its name is in the
    position's look-back window.
    """
    if record.complete:
        return True
    if record.modified and o.landed > record.modified:
        return True
    return bool(position.recent) and position.look_from <= o.name
