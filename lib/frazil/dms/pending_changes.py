"""Decides which files of a listing are pending, and which stop the table: late, changed, missing, or from the future.

A late file was never applied, though its name is before the position. Commit times show whether DMS wrote it late.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from frazil.config.sql import literal
from frazil.core.csv import read_records
from frazil.dms.applied_files import AppliedFile, AppliedFiles, FilePlace, is_same, key_of
from frazil.dms.endpoint import Endpoint, SourceTable
from frazil.dms.file_checks import refused_if_damaged
from frazil.dms.file_columns import file_layout, footer, has_header
from frazil.dms.file_layout import CHANGE_PHASE
from frazil.dms.file_names import digits_of, latest_possible
from frazil.dms.listing import DmsObject, TableObjects
from frazil.dms.position import (
    POSITION,
    REPLAY,
    SHOWN,
    Position,
    PositionError,
    discarded,
    is_other_load,
    named,
    require_there,
)
from frazil.dms.storage import chunks, random_access
from frazil.errors import FrazilError, many


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
    except (FrazilError, OSError, ValueError, EOFError, zlib.error):
        return None
    if not times or len(times) < len(late):
        return None
    first = min(t[0] for t in times)
    after = first >= then[1]
    return after, (
        f"Its first change was committed at {first}, the last one of {newest.name} at {then[1]}: "
        f"{'so DMS wrote it later, and its clock went back' if after else 'so the file arrived late'}"
    )


def commit_times(file: DmsObject, table: SourceTable) -> tuple[str, str] | None:
    """Return the first and the last commit time in a change file, as DMS wrote them; None if it has none."""
    if file.is_parquet:
        return _times_of_parquet(file, table.endpoint)
    roles = file_layout(table, CHANGE_PHASE, file)
    if "ts" not in roles:
        return None
    place, found = roles.index("ts"), []
    dialect = replace(table.endpoint.dialect, header=has_header(file, table.endpoint))
    with closing(chunks(file.path)) as pieces:
        for records in read_records(pieces, len(roles), dialect, file.path):
            texts = records.fields.column(place).to_pylist()
            times = [text.replace("T", " ") for text in texts if text and text[0].isdigit()]
            found += [min(times), max(times)] if times else []
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


@dataclass(frozen=True)
class AppliedState:
    """What a table stores about its files: its `name` in Spark, the position parsed and as `stored`, and the record."""

    name: str
    source: str
    position: Position
    stored: str
    record: AppliedFiles


@dataclass
class ClassifiedFiles:
    """The change files of a listing, by what to do with them.

    `pending` and `late` are in the order in which they would be applied. `changed` has each file, what was applied, if
    known, and whether the bytes certainly differ. `same` are files with a new ETag but unchanged bytes. `in_future`
    are pending files with names in the future.
    """

    pending: list[DmsObject] = field(default_factory=list)
    late: list[DmsObject] = field(default_factory=list)
    changed: list[tuple[DmsObject, AppliedFile | None, bool]] = field(default_factory=list)
    same: list[DmsObject] = field(default_factory=list)
    in_future: list[DmsObject] = field(default_factory=list)


def classify(files: Sequence[DmsObject], position: Position, record: AppliedFiles, now: float) -> ClassifiedFiles:
    """Classify the change files of a listing; read local ones that have a new time but the same size."""
    found, pending = ClassifiedFiles(), []
    reached: FilePlace = (position.last, position.turn)
    for o in files:
        known = record.newest.get(o.name)
        old = o.name <= position.last and o.name not in position.recent
        if not known and record.whole and (old or (record.moved and o.name >= record.moved[0])):
            known = record.files.get(o.name)
        place = known.place if known and known.after else (o.name, 0)
        if place > reached:
            pending.append((place, o))
        elif known:
            _compare_with_record(o, known, record, found)
        elif o.name == position.last:
            if o.etag != position.last_etag:
                found.changed.append((o, None, False))
        elif o.name not in position.recent and _is_late(o, position, record):
            found.late.append(o)
    found.pending = [o for _, o in sorted(pending, key=lambda entry: entry[0])]
    latest = latest_possible(now)
    found.in_future = [o for o in found.pending if digits_of(o.name) > latest]
    return found


def _is_late(o: DmsObject, position: Position, record: AppliedFiles) -> bool:
    """Return whether a file with a name before the position was never applied.

    A complete record decides. Otherwise a file is late if it arrived after the last batch, or if its name is in the
    position's look-back window.
    """
    if record.complete:
        return True
    if record.modified and o.landed > record.modified:
        return True
    return bool(position.recent) and position.look_from <= o.name


def _compare_with_record(o: DmsObject, known: AppliedFile, record: AppliedFiles, found: ClassifiedFiles) -> None:
    if not known.etag or o.etag in (known.etag, record.seen.get(o.name)):
        return
    same = is_same(known, o.size, o.chunks)
    if same:
        found.same.append(o)
    else:
        found.changed.append((o, known, same is False))


Judge = Callable[[Sequence[DmsObject]], tuple[bool, str] | None]


def require_applicable(
    objects: TableObjects,
    state: AppliedState,
    late: str = "refuse",
    without: Sequence[str] = (),
    judge: Judge = lambda files: None,
) -> ClassifiedFiles:
    """Classify a listing's change files; return all `pending` ones in the order in which to apply them.

    Raise PositionError for a late file, for one that was written again after it was applied, and for names in the
    future. Raise it also if a file is gone that was listed or that a replay needs. `late` and `without` are the
    parameters `late_files` and `go_on_without`. With `late` = `after`, late files are pending and come first. The
    exception is if `judge`, which is `pending_changes.clock_went_back`, finds that they only arrived late.
    """
    found = classify(objects.changes, state.position, state.record, time.time())
    _require_last_not_in_future(found, objects, state)
    if not is_other_load(objects, state.position):
        _require_listed_files(objects, state, without)
    require_there(objects, state.position.replay_pending, state.source)
    _refuse_stopping_files(found, state, late, judge)
    found.pending = [*found.late, *found.pending]
    return found


def with_known_loads(objects: TableObjects, state: AppliedState) -> tuple[TableObjects, list[DmsObject]]:
    """Return the listing with old ETags for load files with unchanged bytes, and the files that were read for this."""
    position, record = state.position, state.record
    if not objects.loads or not position.loaded or objects.load_digest == position.load_digest:
        return objects, []
    loads, same = [], []
    for o in objects.loads:
        known = record.files.get(key_of(o))
        if known and o.etag != known.etag:
            is_seen = o.etag == record.seen.get(known.name)
            if is_seen or is_same(known, o.size, o.chunks):
                same += [] if is_seen else [o]
                o = replace(o, etag=known.etag)
        loads.append(o)
    return replace(objects, loads=tuple(loads)), same


def _require_last_not_in_future(found: ClassifiedFiles, objects: TableObjects, state: AppliedState) -> None:
    latest, position = latest_possible(time.time()), state.position
    if not position.last or digits_of(position.last) <= latest:
        return
    _, stamp = Position.from_json(state.stored)
    names = {*position.recent, *(n for n in state.record.files if "/" not in n)}
    real = max((n for n in names if digits_of(n) <= latest), default="")
    known = state.record.files.get(real)
    etag = known.etag if known else next((o.etag for o in objects.changes if o.name == real), "")
    recent = tuple(n for n in position.recent if n <= real)
    wanted = replace(position, last=real, last_etag=etag, recent=recent, turn=0).to_json(**stamp)
    raise PositionError(
        f"{state.source}: its position {position.last} is in the future, which keeps out {many(found.late, 'change file')} with names "
        "before it",
        f"set it to {f'the last real file, {real}' if real else 'the load'}: ALTER TABLE {state.name} SET TBLPROPERTIES "
        f"('{POSITION}' = {literal(wanted)}), and move {position.last} away: its changes stay in the table, and the files before it are then applied",
    )


def _refuse_stopping_files(found: ClassifiedFiles, state: AppliedState, late: str, judge: Judge) -> None:
    if found.changed:
        _refuse_changed(found, state.position, state.source)
    if found.late:
        judged = judge(found.late)
        if late != "after" or (judged and not judged[0]):
            refuse_late(found.late, state.position, state.source, judged[1] if judged else "")
    if found.in_future:
        raise PositionError(
            f"{state.source}: {named(o.path for o in found.in_future)}: {many(found.in_future, 'change file')} with names more than a day in the "
            "future; after one of them is applied, each later file would count as late",
            "give them the names that DMS wrote, and nothing is lost; or move them away: then their changes are not applied",
        )


def _require_listed_files(objects: TableObjects, state: AppliedState, without: Sequence[str]) -> None:
    """Raise PositionError if a change file is gone that was listed and not applied, unless `without` has it."""
    present = {o.name for o in objects.changes}
    gone = [n for n in state.record.awaited if n > state.position.last and n not in present and n not in without]
    if gone:
        all_gone = " All change files are gone: a TRUNCATE at the source may have deleted them." if not present else ""
        raise PositionError(
            f"{state.source}: {named(gone)}: {many(gone, 'change file')} listed, never applied and now gone: their changes are not in the "
            f"lake.{all_gone}",
            "fetch them again, and nothing is lost; or continue without them by the parameter go_on_without: "
            f"[{', '.join(gone[:SHOWN])}{', …' if gone[SHOWN:] else ''}], which loses their changes until the table is loaded again",
        )


def _refuse_changed(found: ClassifiedFiles, position: Position, source: str) -> None:
    problems = []
    for o, known, differs in found.changed:
        sizes = f"{known.size:,} bytes then, {o.size:,} now" if known else "its old size is not known"
        if known and known.size == o.size:
            sizes += ", other bytes" if differs else ", and it is unknown whether the bytes are the same"
        problems.append(f"{o.path} was written again after it was applied ({sizes})")
    many = f"{len(problems)} change files: " if problems[1:] else ""
    raise PositionError(
        f"{source}: {many}{named(problems)}",
        f"{REPLAY}: nothing is lost then; or put the applied file back; a reload discards {discarded(position)} and "
        "loses what the new load does not have",
    )
