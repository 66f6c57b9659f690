"""Compare a table's files with what it has applied: what is pending, what stops it, and the statement or parameter that helps."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC

from frazil.config.spec import TableSpec
from frazil.config.sql import literal
from frazil.dms.csv_columns import file_layout
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import CHANGE_PHASE
from frazil.dms.listing import DmsObject, TableObjects
from frazil.dms.position import (
    Position,
    PositionError,
    is_other_load,
    named,
    require_all_there,
    require_clear,
)
from frazil.dms.storage import chunks, heads, is_s3
from frazil.errors import FrazilError
from frazil.lake.tables import POSITION
from frazil.source.applied import Record, digest
from frazil.source.file_names import digits_of, latest_possible, moment
from frazil.source.pending import Arrived, arrived, same_loads


@dataclass(frozen=True)
class State:
    """What a table records about its files: `name` as in Spark, the position parsed and as `stored`, and the record."""

    name: str
    source: str
    position: Position
    stored: str
    record: Record


def pending(there: TableObjects, state: State, late: str = "refuse", without: Sequence[str] = ()) -> Arrived:
    """Return a listing's result, with the `pending` files complete and in order; raise PositionError if the table must stop.

    `late` and `without` are the parameters `late_files` and `go_on_without`.
    """
    found = arrived(there.changes, state.position, state.record, time.time())
    _require_present(found, there, state)
    if not is_other_load(there, state.position):
        require_all_there(there, state.position, state.source, state.record.awaited, without)
    found.pending = require_clear(found, there, state.position, state.source, late)
    return found


def with_known_loads(there: TableObjects, state: State) -> tuple[TableObjects, list[DmsObject]]:
    """Return the listing with old ETags for load files whose bytes are unchanged, and the files that were read to find out."""
    position = state.position
    if not there.loads or not position.loaded or there.load_digest == position.load_digest:
        return there, []
    loads, same = same_loads(there.loads, state.record)
    return replace(there, loads=tuple(loads)), same


def _require_present(found: Arrived, there: TableObjects, state: State) -> None:
    latest, position = latest_possible(time.time()), state.position
    if not position.last or digits_of(position.last) <= latest:
        return
    _, stamp = Position.from_json(state.stored)
    names = {*position.recent, *(n for n in state.record.files if "/" not in n)}
    real = max((n for n in names if digits_of(n) <= latest), default="")
    known = state.record.files.get(real)
    etag = known.etag if known else next((o.etag for o in there.changes if o.name == real), "")
    recent = tuple(n for n in position.recent if n <= real)
    wanted = replace(position, last=real, last_etag=etag, recent=recent, turn=0).to_json(**stamp)
    raise PositionError(
        f"{state.source}: its position {position.last} lies in the future, and {len(found.late)} change file(s) with names before it "
        "are not applied",
        f"set it to {f'the last real file, {real}' if real else 'the load'}: ALTER TABLE {state.name} SET TBLPROPERTIES "
        f"('{POSITION}' = {literal(wanted)}), and move {position.last} away: its changes stay in the table, and the files before it are applied then",
    )


# --- the commit times in a late file


def clock_went_back(
    late: Sequence[DmsObject], newest: DmsObject | None, spec: TableSpec, endpoint: Endpoint, mappings: Mappings
) -> tuple[bool, str] | None:
    """Return by commit times whether files were written after the `newest` applied one, and why; None if unknown."""
    try:
        then = commit_times(newest, spec, endpoint, mappings) if newest else None
        times = [t for o in late if (t := commit_times(o, spec, endpoint, mappings))] if then else []
    except (FrazilError, OSError, ValueError, csv.Error):
        return None
    if not times or len(times) < len(late):
        return None
    first = min(t[0] for t in times)
    after = first >= then[1]
    return after, (
        f"Its first change was committed at {first}, the last one of {newest.name} at {then[1]}: "
        f"{'so DMS wrote it later, and its clock went back' if after else 'so the file came late'}"
    )


def commit_times(file: DmsObject, spec: TableSpec, endpoint: Endpoint, mappings: Mappings) -> tuple[str, str] | None:
    """Return the first and the last commit time in a change file, as DMS wrote them; None if it has none."""
    if file.is_parquet:
        return _times_of_parquet(file, endpoint)
    roles = file_layout(spec, endpoint, mappings, CHANGE_PHASE, file)[0].roles
    if "ts" not in roles:
        return None
    text = b"".join(chunks(file.path)).decode("utf-8-sig", "replace").replace(endpoint.row_delimiter, "\n")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=endpoint.delimiter)
    place = roles.index("ts")
    times = sorted(row[place].replace("T", " ") for row in rows if len(row) > place and row[place][:1].isdigit())
    return (times[0], times[-1]) if times else None


def _times_of_parquet(file: DmsObject, endpoint: Endpoint) -> tuple[str, str] | None:
    import pyarrow.parquet as pq

    name = endpoint.timestamp_column
    table = pq.read_table(io.BytesIO(b"".join(chunks(file.path))))
    if not name or name not in table.column_names:
        return None
    times = sorted(str(t).replace("T", " ") for t in table[name].to_pylist() if t is not None)
    return (times[0], times[-1]) if times else None


# --- while files are read


class ChangedWhileReadError(PositionError):
    """Files changed after they were listed: nothing of the batch was applied."""

    decision = False

    def __init__(self, problem: str, cure: str, changed: list[str], gone: list[str]):
        super().__init__(problem, cure)
        self.changed, self.gone = changed, gone


class Reading:
    """Computes digests of local files while Spark reads them, and checks afterwards that no file has changed."""

    def __init__(self, files: Sequence[DmsObject], source: str):
        self.files, self.source = files, source
        local = [f.path for f in files if not is_s3(f.path)]
        self._pool = ThreadPoolExecutor(1) if local else None
        self._digests = {p: self._pool.submit(_digest, p) for p in local} if self._pool else {}
        if self._pool:
            self._pool.shutdown(wait=False)

    def contents(self) -> dict[str, str]:
        """Return the digests by path."""
        return {path: found.result() for path, found in self._digests.items()}

    def require_unchanged(self) -> None:
        """Raise ChangedWhileReadError for files that vanished or changed since they were listed."""
        self.contents()
        require_unchanged(self.files, self.source)


def require_unchanged(files: Sequence[DmsObject], source: str) -> None:
    """Raise ChangedWhileReadError for files that vanished or changed since they were listed."""
    now = heads([f.path for f in files])
    gone = [f.name for f, h in zip(files, now, strict=True) if h is None]
    changed = [f.name for f, h in zip(files, now, strict=True) if h and h.etag != f.etag]
    if gone:
        raise ChangedWhileReadError(
            f"{source}: {named(gone)}: {len(gone)} file(s) vanished after they were listed: their changes are not applied",
            "fetch them again, and run again: nothing is lost; or go on without them by the parameter go_on_without, which loses "
            "their changes. If all files of the table are gone: a TRUNCATE at the source may have deleted them",
            changed, gone,
        )  # fmt: skip
    if changed:
        raise ChangedWhileReadError(
            f"{source}: {named(changed)}: {len(changed)} file(s) changed while they were read: nothing of the batch was applied",
            "run again once they are written", changed, gone,
        )  # fmt: skip


def _digest(path: str) -> str:
    try:
        return digest(chunks(path, packed=True))
    except OSError:  # the file is gone, which the check afterwards reports
        return ""


# --- load files of different loads


class MixedLoadError(FrazilError):
    """Some load files were not written with the others."""

    decision = True


def require_one_load(there: TableObjects, applied: set[str], source: str) -> None:
    """Raise MixedLoadError for load files that seem to belong to an older load than the others.

    These are the files applied by an earlier load, or older than a change file that is itself older than other load
    files. `applied` are the paths of the load files that an earlier load has applied.
    """
    before = [o for o in there.loads if o.path in applied]
    old = before if len(before) < len(there.loads) else []
    old = old or _before_a_change(there)
    if not old:
        return
    shown = "; ".join(f"{o.path} of {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(o.landed))} UTC" for o in old[:3])
    newest = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(max(o.landed for o in there.loads)))
    raise MixedLoadError(
        f"{source}: {len(old)} of {len(there.loads)} load files were not written with the others, the newest of {newest} UTC: "
        f"{shown}{' …' if old[3:] else ''}",
        "move files of an older load away: the new load holds their rows, and rows deleted since stay deleted; or have DMS load the table into "
        "an empty folder; if all belong to one load, old_load_files=accept: rows that were deleted since an older load come back then",
    )


ZONES_S = 15 * 3600.0
COPIED_S = 26 * 3600.0


def _before_a_change(there: TableObjects) -> list[DmsObject]:
    """Return load files older than a change file that is itself older than the newest load file: DMS ends a load before it writes changes."""
    if len(there.loads) < 2:
        return []
    newest = max(o.landed for o in there.loads)
    for c in there.changes:
        written = _utc(c.name)
        # A copied file has the time of the copy: times that are close together then prove nothing.
        slack = 1.0 if abs(c.landed - written) < COPIED_S else 600.0
        for at, margin in ((c.landed, slack), (written, ZONES_S)):
            old = [o for o in there.loads if o.landed < at - margin]
            if old and newest > at + margin:
                return old
    return []


def _utc(name: str) -> float:
    return moment(name).replace(tzinfo=UTC).timestamp()
