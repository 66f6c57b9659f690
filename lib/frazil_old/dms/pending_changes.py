"""Decides which files of a listing are pending, and which stop the table: late, changed, missing, or from the future."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from frazil_old.config.sql import literal
from frazil_old.dms.applied_files import AppliedFile, AppliedFiles, is_same, key_of
from frazil_old.dms.changed_load import discarded, is_other_load, require_there
from frazil_old.dms.file_names import digits_of, latest_possible
from frazil_old.dms.file_order import FilePlace
from frazil_old.dms.late_files import is_late, refuse_late
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.position import POSITION, REPLAY, SHOWN, Position, PositionError, named
from frazil_old.errors import many


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
        elif o.name not in position.recent and is_late(o, position, record):
            found.late.append(o)
    found.pending = [o for _, o in sorted(pending, key=lambda entry: entry[0])]
    latest = latest_possible(now)
    found.in_future = [o for o in found.pending if digits_of(o.name) > latest]
    return found


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
    exception is if `judge`, which is `late_files.clock_went_back`, finds that they only arrived late.
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
    present, last = {o.name for o in objects.changes}, state.position.last
    # only a full listing certainly has late files
    awaited = [n for n in state.record.awaited if n > last or (objects.full and n not in state.record.files)]
    gone = [n for n in awaited if n not in present and n not in without]
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
