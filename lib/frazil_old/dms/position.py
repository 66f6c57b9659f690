"""A table's position, how far its files or messages are applied: its form as JSON, and how it advances."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from frazil_old.dms.file_names import is_change_file, is_shared, name_at, time_of_name
from frazil_old.dms.file_order import places
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.stream_source import ARRIVED
from frazil_old.errors import FrazilError

POSITION = "frazil.position"
"""The table property with the position."""
VERSION = 5
"""1: files. 2: also streams. 3: also which streams. 4: with files that a replay must apply again, or a topic. 5: with files applied after later names.

Each position is written in the lowest version that can express it, so that older code can read it.
"""
NEEDED = ("version", "batch", "load_digest", "load_files", "last", "last_etag", "recent")
"""Entries of each stored position; the others are written only if they are not empty."""
STORED_AS = {
    "replay_pending": "owed",
    "missing_columns": "lacks",
    "ignored_columns": "skips",
    "stream_ids": "stream_of",
}
"""Fields that have another name in a stored position."""
NO_LOAD = "none"
"""Replaces the digest of a load if no load was found: the table was empty when DMS loaded it."""
STREAM_LOAD = "stream"
"""Replaces the digest of a load that came through a stream."""
LOOK_BACK = timedelta(hours=1)
"""Names up to this long before the last applied file are still listed, to find late files among them."""
MAX_RECENT = 64
SHOWN = 3
"""Maximum number of names of each kind in a message."""
REPLAY = "run 01_full_load with on_changed_load=replay, which needs all change files since the load"


class PositionError(FrazilError):
    """A stored position cannot be read by this version, or contradicts the files in the source."""

    decision = True


@dataclass(frozen=True)
class Position:
    """What has been applied of a table. Load and changes each have a position, of files or of a stream.

    `load_digest` covers the names and ETags of the load files. `last` is the newest change object applied, with its
    ETag. `recent` are the names applied within the look-back window, which identify late objects.

    `stream` has by partition (`topic/number`) the first offset whose changes are not applied; `stream_load` has the
    same for load records. `stream_ids` has the ids of these topics or streams by name (`stream_retention.Retention`).
    `topic` is the one that all of its messages were in, by the mappings at that time.

    `turn` is the number of files with names before `last` that were applied after it. `replay_pending` are names of
    change objects that were applied before a replay and must be applied again. `missing_columns` are columns of the
    spec that the newest file did not have; `ignored_columns` are columns of that file that were ignored.
    """

    batch: str = ""
    load_digest: str = ""
    load_files: int = 0
    last: str = ""
    last_etag: str = ""
    recent: tuple[str, ...] = ()
    turn: int = 0
    replay_pending: tuple[str, ...] = ()
    stream: dict[str, int] = field(default_factory=dict)
    stream_load: dict[str, int] = field(default_factory=dict)
    stream_ids: dict[str, str] = field(default_factory=dict)
    topic: str = ""
    missing_columns: tuple[str, ...] = ()
    ignored_columns: tuple[str, ...] = ()

    @property
    def loaded(self) -> bool:
        """Whether the full load has been applied: changes wait until then."""
        return bool(self.load_digest)

    @property
    def awaits_load(self) -> bool:
        """Whether no load was found and no change is applied yet: load data that arrives now is the first load."""
        return self.load_digest == NO_LOAD and not self.last and not self.replay_pending

    @property
    def look_from(self) -> str:
        """The name from which on `recent` is complete: an hour back, or its first name if it is full. Listings begin here."""
        if len(self.recent) == MAX_RECENT:
            return self.recent[0]
        return name_at(time_of_name(self.last) - LOOK_BACK, self.last) if self.last else ""

    @property
    def place(self) -> str:
        """How far changes are applied, in readable form."""
        places = ", ".join(f"{p}: {o}" for p, o in self.stream.items() if p != ARRIVED)
        return self.last or places or "–"

    def to_json(self, **stamp: int) -> str:
        """Return the position as JSON, with the id and sequence number of the snapshot that it is committed with."""
        facts = {STORED_AS.get(k, k): v for k, v in asdict(self).items() if v or k in NEEDED}
        return json.dumps({"version": self._version(), **facts, **stamp}, separators=(",", ":"))

    def _version(self) -> int:
        """Return the oldest version of Frazil's positions that has all fields of this one."""
        of_fields = (5, self.turn), (4, self.replay_pending or self.topic), (3, self.stream_ids), (2, self.stream)
        return next((version for version, value in of_fields if value), 1)

    @staticmethod
    def from_json(text: str) -> tuple[Position, dict[str, int]]:
        """Return a stored position and its stamp; raise PositionError if it is damaged or newer than this code."""
        raw = _read(text)
        if raw.pop("version") > VERSION:
            raise PositionError("the position was written by a newer Frazil", "upgrade Frazil here before running it")
        stamp = {k: raw.pop(k) for k in ("snapshot", "sequence") if k in raw}
        there = {f.name: raw[key] for f in fields(Position) if (key := STORED_AS.get(f.name, f.name)) in raw}
        return Position(**{n: tuple(v) if isinstance(v, list) else v for n, v in there.items()}), stamp


class DamagedPositionError(PositionError):
    """A stored position cannot be read at all."""


def _read(text: str) -> dict[str, Any]:
    """Return the entries of a stored position; raise DamagedPositionError if it is not one."""
    try:
        raw = json.loads(text)
    except ValueError:
        raise DamagedPositionError(f"the position is not JSON: {text[:80]!r}") from None
    if not isinstance(raw, dict):
        raise DamagedPositionError(f"the position is not a JSON object: {text[:80]!r}")
    if isinstance(raw.get("version"), int) and raw["version"] > VERSION:
        return raw
    if missing := [n for n in NEEDED if n not in raw]:
        raise DamagedPositionError(f"the position lacks {', '.join(missing)}")
    kinds = {STORED_AS.get(f.name, f.name): type(getattr(Position(), f.name)) for f in fields(Position)}
    kinds |= {"version": int, "snapshot": int, "sequence": int}
    for name, value in raw.items():
        wanted = {tuple: list}.get(kinds.get(name), kinds.get(name))
        if wanted is None or type(value) is not wanted:
            raise DamagedPositionError(f"the position has {name}: {value!r}")
        inside = {list: str, dict: str if name == "stream_of" else int}.get(wanted)
        if inside and not all(type(v) is inside for v in (value.values() if wanted is dict else value)):
            raise DamagedPositionError(f"the position has {name}: {value!r}")
    if (last := raw["last"]) and not (is_change_file(last) and all(map(is_change_file, raw["recent"]))):
        raise DamagedPositionError(f"the position has last: {last!r}, which is not a change file")
    return raw


def after_load(position: Position, objects: TableObjects, batch: str, replay: str | None = None) -> Position:
    """Return the position after the load files have been applied; with `replay` every change object after it is pending again.

    `replay` is the newest change object that the load has, or empty. Change objects known as applied are then in `replay_pending`, until they are applied again or another load replaces
    them. A load that replaces another one contains every change object up to `last`: late or rewritten ones count as
    applied from then on.
    """
    if replay is not None:
        names = sorted(n for n in {*position.replay_pending, *position.recent, position.last} if n > replay)
        position = replace(position, last=replay, last_etag="", recent=(), turn=0, replay_pending=tuple(names))
    elif position.replay_pending:
        position = replace(position, last=max(position.last, *position.replay_pending), last_etag="", replay_pending=())
    if is_shared(position.last) and not (replay is not None or any(o.is_shared for o in objects.changes)):
        # PreserveTransactions is off again: the table's own files go on from that time
        position = replace(position, last=f"{name_at(time_of_name(position.last))}.csv", recent=(), turn=0)
    contained = [o for o in objects.changes if o.name <= position.last]
    if contained:
        etag = contained[-1].etag if contained[-1].name == position.last else position.last_etag
        recent = _recent(position.last, {*position.recent, *(o.name for o in contained)})
        position = replace(position, last_etag=etag, recent=recent)
    return replace(position, batch=batch, load_digest=objects.load_digest or NO_LOAD, load_files=len(objects.loads))


def require_same_kind(position: Position, preserve_transactions: bool, source: str) -> None:
    """Raise PositionError if files of all tables were applied, and the settings say that DMS writes none any more."""
    if is_shared(position.last) and not preserve_transactions:
        raise PositionError(
            f"{source}: changes up to {position.last}, a file of all tables, are applied, and PreserveTransactions is off",
            "switch it on again, in the task and in the endpoint's JSON; or have DMS load the table again, and run 01_full_load with "
            "on_changed_load=reload: the table's own files from then on are applied",
        )


def named(names: Iterable[str]) -> str:
    """Return the first names as text, with `…` if there are more."""
    listed = list(names)
    return f"{', '.join(listed[:SHOWN])}{' …' if listed[SHOWN:] else ''}"


def _recent(last: str, names: set[str]) -> tuple[str, ...]:
    """Return the names within the look-back window before `last`, in order."""
    since = time_of_name(last) - LOOK_BACK
    return tuple(sorted(n for n in names if time_of_name(n) >= since)[-MAX_RECENT:])


def after_changes(position: Position, applied: list[DmsObject], batch: str) -> Position:
    """Return the position after these change objects have been applied, in this order."""
    last, turn = places(position, applied)[applied[-1].name]
    etag = next((o.etag for o in applied if o.name == last), position.last_etag)
    names = {o.name for o in applied}
    recent = _recent(last, {*position.recent, *names})
    replay_pending = tuple(n for n in position.replay_pending if n not in names)
    return replace(
        position, batch=batch, last=last, last_etag=etag, recent=recent, turn=turn, replay_pending=replay_pending
    )
