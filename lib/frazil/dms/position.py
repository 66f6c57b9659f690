"""How far a table has been applied, in terms of what DMS wrote, and what is therefore pending."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace

from frazil.dms.newest import LOOK_BACK, moment, window
from frazil.dms.objects import DmsObject, TableObjects
from frazil.dms.streams import ARRIVED
from frazil.errors import FrazilError

VERSION = 4
"""1: files. 2: also streams. 3: and which ones they are. 4: with files that a replay owes, or a topic.

Each is written as the lowest that tells it, for older code to read.
"""
OPTIONAL = ("owed", "lacks", "skips", "stream", "stream_load", "stream_of", "topic")
"""Not written where there is nothing to say."""
NO_LOAD = "none"
"""Stands for the digest of a load of which nothing was found: the table was empty when DMS loaded it."""
STREAM_LOAD = "stream"
"""Stands for the digest of a load that came through a stream."""
MAX_RECENT = 64
MAX_NAMED = 200
"""Of a load with more files than this it is not kept which they were."""
SHOWN = 3
"""So many names a message shows of each kind."""
REPLAY = "run 01_full_load with on_changed_load=replay, which needs all change files since the load"


class PositionError(FrazilError):
    """A stored position that this version cannot read, or that what lies in the source contradicts."""

    decision = True


class LoadChangedError(FrazilError):
    """DMS wrote other load files than those applied: say what shall happen."""

    decision = True


@dataclass(frozen=True)
class Position:
    """What of a table has been applied. Load and changes have a position each, of files or of a stream.

    `load_digest` covers the names and ETags of the load files; `last` is the newest change object applied, with its ETag;
    `recent` are the names applied within the look-back window, by which an object that turns up late is recognised.
    `stream` has by partition (`topic/number`) the first offset whose changes are not applied, `stream_load` the first
    one whose load records are not, and `stream_of` tells by name which topics or streams these are (see `streams.Stream.made`);
    `topic` is the one that all of its messages lay in, as the mappings had it then.
    `owed` are names of change objects that were applied before a replay and have to be again.
    `lacks` are columns of the spec that the newest file did not carry, `skips` columns of it that were passed by.
    """

    batch: str = ""
    load_digest: str = ""
    load_files: int = 0
    last: str = ""
    last_etag: str = ""
    recent: tuple[str, ...] = ()
    owed: tuple[str, ...] = ()
    stream: dict[str, int] = field(default_factory=dict)
    stream_load: dict[str, int] = field(default_factory=dict)
    stream_of: dict[str, str] = field(default_factory=dict)
    topic: str = ""
    lacks: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()

    @property
    def loaded(self) -> bool:
        """Whether the full load has been applied: changes are held back until then."""
        return bool(self.load_digest)

    @property
    def awaits_load(self) -> bool:
        """Whether no load was found and no change is applied yet: load data that comes now is the first load."""
        return self.load_digest == NO_LOAD and not self.last and not self.owed

    @property
    def look_from(self) -> str:
        """The name from which on `recent` is complete: an hour back, or its first name once it is full; listings begin there."""
        if len(self.recent) == MAX_RECENT:
            return self.recent[0]
        return window(self.last, like=self.last) if self.last else ""

    @property
    def place(self) -> str:
        """How far changes are applied, for people."""
        places = ", ".join(f"{p}: {o}" for p, o in self.stream.items() if p != ARRIVED)
        return self.last or places or "–"

    def to_json(self, **stamp: int) -> str:
        """Return the position as JSON, with the snapshot id and sequence number that it is committed under."""
        facts = {k: v for k, v in asdict(self).items() if v or k not in OPTIONAL}
        version = 4 if self.owed or self.topic else 3 if self.stream_of else 2 if self.stream else 1
        return json.dumps({"version": version, **facts, **stamp}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> tuple[Position, dict[str, int]]:
        """Return a stored position and its stamp; a version newer than this code knows is refused."""
        raw = json.loads(text)
        if raw.pop("version", 0) > VERSION:
            raise PositionError("the position was written by a newer Frazil", "upgrade Frazil here before running it")
        stamp = {k: raw.pop(k) for k in ("snapshot", "sequence") if k in raw}
        lists = {n: tuple(raw.get(n, ())) for n in ("recent", "owed", "lacks", "skips")}
        return Position(**{**raw, **lists}), stamp


def after_load(position: Position, objects: TableObjects, batch: str, replay: bool = False) -> Position:
    """Return the position after the load files have been applied; with `replay` every change object is pending again.

    What is known to have been applied is then `owed`, until it is met again or another load takes its place.
    A load that replaces another one holds what every change object up to `last` says: one that came late or was written
    again counts as applied from then on.
    """
    if replay:
        owed = sorted({*position.owed, *position.recent, position.last} - {""})
        position = replace(position, last="", last_etag="", recent=(), owed=tuple(owed))
    elif position.owed:
        position = replace(position, last=max(position.last, *position.owed), last_etag="", owed=())
    held = [o for o in objects.changes if o.name <= position.last]
    if held:
        etag = held[-1].etag if held[-1].name == position.last else position.last_etag
        recent = _recent(position.last, {*position.recent, *(o.name for o in held)})
        position = replace(position, last_etag=etag, recent=recent)
    return replace(position, batch=batch, load_digest=objects.load_digest or NO_LOAD, load_files=len(objects.loads))


def is_other_load(objects: TableObjects, position: Position) -> bool:
    """Tell whether load files are there that differ from those applied; for a table without any load they are the first."""
    applied = position.loaded and not position.awaits_load
    return bool(objects.loads) and applied and objects.load_digest != position.load_digest


def _load_files(objects: TableObjects) -> dict[str, str]:
    return {"/".join(o.path.split("/")[-2:]): hashlib.sha256(o.etag.encode()).hexdigest()[:8] for o in objects.loads}


def load_as_json(objects: TableObjects) -> str:
    """Return as JSON which load files are applied, for `require_same_load` to name those that change."""
    files = _load_files(objects)
    return json.dumps(
        {"digest": objects.load_digest, "files": files if len(files) <= MAX_NAMED else {}}, separators=(",", ":")
    )


def require_same_load(objects: TableObjects, position: Position, applied: str | None, source: str) -> None:
    """Raise LoadChangedError where `is_other_load`; `applied` is what `load_as_json` gave when the load was applied, or None."""
    if not is_other_load(objects, position):
        return
    told, now = json.loads(applied or "{}"), _load_files(objects)
    then = told.get("files", {}) if told.get("digest") == position.load_digest else {}
    kinds = {
        "new": [n for n in now if n not in then],
        "written again": [n for n in now if n in then and now[n] != then[n]],
        "no longer there": [n for n in then if n not in now],
    }
    named = [
        f"{what}: {', '.join(names[:SHOWN])}{' …' if names[SHOWN:] else ''}" for what, names in kinds.items() if names
    ]
    raise LoadChangedError(
        f"{source}: the load files are not those that were applied ({position.load_files} then, {len(objects.loads)} now"
        f"{''.join('; ' + n for n in named if then)})",
        "if DMS loaded the table again, run 01_full_load with on_changed_load=reload; if load files were only copied late, "
        "with on_changed_load=replay (all load files, then every change file again: all since the load must be there)",
    )


def require_replayable(objects: TableObjects, position: Position, source: str) -> None:
    """Raise PositionError where change objects are gone that were applied: a replay would lose what they said.

    It can tell of those in the look-back window before the position only.
    """
    _require_there(objects, (*position.recent, position.last, *position.owed), source)


def _require_there(objects: TableObjects, names: tuple[str, ...], source: str) -> None:
    there = {o.name for o in objects.changes}
    if gone := [n for n in dict.fromkeys(names) if n and n not in there]:
        raise PositionError(
            f"{source}: {len(gone)} change file(s) that were applied are no longer there: {', '.join(gone[:3])}; a replay needs all "
            "since the load",
            "fetch them again, or have DMS load the table again and run 01_full_load with on_changed_load=reload",
        )


def _recent(last: str, names: set[str]) -> tuple[str, ...]:
    """Return those names that lie in the look-back window before `last`, in order."""
    since = moment(last) - LOOK_BACK
    return tuple(sorted(n for n in names if moment(n) >= since)[-MAX_RECENT:])


def after_changes(position: Position, applied: list[DmsObject], batch: str) -> Position:
    """Return the position after these change objects, given in order, have been applied."""
    last = applied[-1]
    recent = _recent(last.name, {*position.recent, *(o.name for o in applied)})
    owed = tuple(n for n in position.owed if n > last.name)
    return replace(position, batch=batch, last=last.name, last_etag=last.etag, recent=recent, owed=owed)


def pending_changes(objects: TableObjects, position: Position, source: str) -> list[DmsObject]:
    """Return the change objects behind the position, in order.

    Raises PositionError for an object that turned up late (its name lies before the position, inside the look-back window,
    and was never applied) or that was written again after it was applied: neither may be merged blind. And where one is gone
    that a replay owes.
    """
    _require_there(objects, position.owed, source)
    since = position.look_from
    for o in objects.changes:
        if o.name == position.last and o.etag != position.last_etag:
            raise PositionError(
                f"{source}: {o.path} was written again after it was applied",
                REPLAY,
            )
        if position.recent and since <= o.name < position.last and o.name not in position.recent:
            raise PositionError(
                f"{source}: {o.path} turned up late: changes up to {position.last} are applied already",
                f"move it away if it repeats what was applied, else {REPLAY}",
            )
    return [o for o in objects.changes if o.name > position.last]


def take_batch(pending: list[DmsObject], max_bytes: int, max_files: int) -> list[DmsObject]:
    """Return the head of the pending objects that fits the limits, at least one."""
    taken, size = [], 0
    for o in pending[:max_files]:
        if taken and size + o.size > max_bytes:
            break
        taken.append(o)
        size += o.size
    return taken
