"""Load files that are not those applied: found by name and ETag, and what a reload or a replay needs."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC

from frazil_old.dms.applied_files import AppliedFiles
from frazil_old.dms.endpoint import SourceTable
from frazil_old.dms.file_names import time_of_name
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.position import NO_LOAD, Position, PositionError, named
from frazil_old.errors import FrazilError, many

MAX_NAMED = 200
"""The files of a load are not recorded if there are more than this."""
NEEDS_ALL = "a replay needs all since the load"
FETCH = "fetch them again, or have DMS load the table again and run 01_full_load with on_changed_load=reload"


class LoadChangedError(FrazilError):
    """DMS wrote other load files than those applied: a person must decide what to do."""

    decision = True


def is_other_load(objects: TableObjects, position: Position) -> bool:
    """Return whether load files differ from those applied. A table's first load is not a different one."""
    applied = position.loaded and not position.awaits_load
    return bool(objects.loads) and applied and objects.load_digest != position.load_digest


def _load_files(objects: TableObjects) -> dict[str, str]:
    return {"/".join(o.path.split("/")[-2:]): hashlib.sha256(o.etag.encode()).hexdigest()[:8] for o in objects.loads}


def _applied_files(position: Position, applied: str | None) -> dict[str, str]:
    """Return the load files in the result of `load_as_json`, if they are those of the position."""
    load = json.loads(applied or "{}")
    return load.get("files", {}) if load.get("digest") == position.load_digest else {}


def load_as_json(objects: TableObjects) -> str:
    """Return the applied load files as JSON, from which `require_same_load` names changed ones."""
    files = _load_files(objects)
    return json.dumps(
        {"digest": objects.load_digest, "files": files if len(files) <= MAX_NAMED else {}}, separators=(",", ":")
    )


def loaded_before(objects: TableObjects, position: Position, applied: str | None) -> set[str]:
    """Return the paths of load files that were applied and are unchanged; `applied` as in `require_same_load`."""
    then, now = _applied_files(position, applied), _load_files(objects)
    return {o.path for o, (name, tag) in zip(objects.loads, now.items(), strict=False) if then.get(name) == tag}


def require_same_load(objects: TableObjects, position: Position, applied: str | None, source: str) -> None:
    """Raise LoadChangedError if `is_other_load`; `applied` is the result of `load_as_json` when the load was applied, or None."""
    if not is_other_load(objects, position):
        return
    then, now = _applied_files(position, applied), _load_files(objects)
    kinds = {
        "new": [n for n in now if n not in then],
        "written again": [n for n in now if n in then and now[n] != then[n]],
        "no longer there": [n for n in then if n not in now],
    }
    differences = [f"{what}: {named(names)}" for what, names in kinds.items() if names]
    raise LoadChangedError(
        f"{source}: the load files are not those that were applied ({position.load_files} then, {len(objects.loads)} now"
        f"{''.join('; ' + n for n in differences if then)})",
        "if load files arrived late or were repaired, run 01_full_load with on_changed_load=replay (all load files, then every change file "
        "again: all since the load must exist), and nothing is lost; if DMS loaded the table again, with on_changed_load=reload, which "
        f"discards {discarded(position)} and loses what the new load does not have",
    )


def discarded(position: Position) -> str:
    """Return which applied changes a reload discards."""
    return f"all changes applied up to {position.last}" if position.last else "no change, as none is applied yet,"


def require_replayable(
    objects: TableObjects, position: Position, applied: str | None, table: SourceTable, record: AppliedFiles
) -> None:
    """Raise PositionError if files applied since the load are gone: a replay would lose their rows or changes.

    Raise it too if a load had changes of some files, and no commit times show which.

    `applied` is as in `require_same_load`. Without a complete record, only change files in the look-back window before
    the position are known.
    """
    there, source = _load_files(objects), table.spec.source
    gone = [n for n in _applied_files(position, applied) if n not in there]
    if gone or len(objects.loads) < position.load_files or not (there or position.load_digest == NO_LOAD):
        listed = f": no longer there: {named(gone)}" if gone else ""
        raise PositionError(
            f"{source}: {many(objects.loads, 'load file')} there, and {position.load_files} were applied{listed}; {NEEDS_ALL}",
            FETCH,
        )
    moved = record.files.get(record.moved[0]) if record.moved else None
    if record.moved and not (moved and moved.after):
        raise PositionError(
            f"{source}: a part of the record of applied files is lost, and with it the order of those that came late, such as {record.moved[0]}",
            "have DMS load the table again and run 01_full_load with on_changed_load=reload",
        )
    recorded = sorted(f.name for f in record.files.values() if f.etag and "/" not in f.name)
    require_there(objects, (*recorded, *position.recent, position.last, *position.replay_pending), source)
    _require_known_order(objects, table, record)


def _require_known_order(objects: TableObjects, table: SourceTable, record: AppliedFiles) -> None:
    known = ((o, record.files.get(o.name)) for o in objects.changes)
    in_load = [o for o, f in known if f and not f.etag and f.batch.endswith("_load")]
    if in_load and (in_load[0].is_shared or not table.endpoint.timestamp_column):
        raise PositionError(
            f"{table.spec.source}: a load had the changes of {many(in_load, 'change file')}: {named(o.name for o in in_load)}; a replay would apply "
            "them again, over that load's newer rows",
            "have DMS load the table again and run 01_full_load with on_changed_load=reload",
        )


def require_there(objects: TableObjects, names: tuple[str, ...], source: str) -> None:
    """Raise PositionError if an applied change file is gone that a replay needs."""
    present = {o.name for o in objects.changes}
    if gone := [n for n in dict.fromkeys(names) if n and n not in present]:
        raise PositionError(
            f"{source}: {many(gone, 'applied change file')} no longer there: {named(gone)}; {NEEDS_ALL}", FETCH
        )


class MixedLoadError(FrazilError):
    """Some load files were not written with the others."""

    decision = True


def require_one_load(objects: TableObjects, applied: set[str], source: str) -> None:
    """Raise MixedLoadError for load files that seem to belong to an older load than the others.

    These are the files applied by an earlier load, or older than a change file that is itself older than other load
    files. `applied` are the paths of the load files that an earlier load has applied.
    """
    before = [o for o in objects.loads if o.path in applied]
    old = before if len(before) < len(objects.loads) else []
    old = old or _before_a_change(objects)
    if not old:
        return
    shown = "; ".join(f"{o.path} of {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(o.landed))} UTC" for o in old[:3])
    newest = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(max(o.landed for o in objects.loads)))
    raise MixedLoadError(
        f"{source}: {len(old)} of {len(objects.loads)} load files were not written with the others, the newest of {newest} UTC: "
        f"{shown}{' …' if old[3:] else ''}",
        "move files of an older load away: the new load has their rows, and rows deleted since stay deleted; or have DMS load the table into "
        "an empty folder; if all belong to one load, set old_load_files=accept: then rows that were deleted since an older load come back",
    )


ZONES_S = 15 * 3600.0
"""A time in a file name differs from UTC by less than this."""
COPIED_S = 26 * 3600.0
"""A file whose name and arrival differ by more than this was copied."""


def _before_a_change(objects: TableObjects) -> list[DmsObject]:
    """Return load files older than a change file that is itself older than the newest load file.

    They belong to an older load, as DMS ends a load before it writes changes.
    """
    if len(objects.loads) < 2:
        return []
    newest = max(o.landed for o in objects.loads)
    for c in objects.changes:
        written = time_of_name(c.name).replace(tzinfo=UTC).timestamp()
        # A copied file has the time of the copy: times that are close together then prove nothing.
        slack = 1.0 if abs(c.landed - written) < COPIED_S else 600.0
        for at, margin in ((c.landed, slack), (written, ZONES_S)):
            old = [o for o in objects.loads if o.landed < at - margin]
            if old and newest > at + margin:
                return old
    return []
