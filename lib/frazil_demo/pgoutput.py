"""A decoder of PostgreSQL's logical replication messages (plugin `pgoutput`, protocol version 1)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from frazil_old.errors import FrazilError

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class PgOutputError(FrazilError):
    """A message is unknown in protocol version 1, or ends too early."""


class Unchanged:
    """The type of `UNCHANGED`: a large value that an update did not change, and that the log does not carry."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()
Values = tuple["str | None | Unchanged", ...]


@dataclass(frozen=True)
class Begin:
    """The start of a committed transaction."""

    commit_lsn: int
    commit_time: datetime
    xid: int


@dataclass(frozen=True)
class Commit:
    """The end of a transaction; a slot moved to `end_lsn` has passed this transaction."""

    commit_lsn: int
    end_lsn: int
    commit_time: datetime


@dataclass(frozen=True)
class Origin:
    """The origin of a transaction, if another server sent it here."""

    commit_lsn: int
    name: str


@dataclass(frozen=True)
class RelationColumn:
    """A column in the log; `key` is whether it belongs to the replica identity."""

    name: str
    type_oid: int
    modifier: int
    key: bool


@dataclass(frozen=True)
class Relation:
    """A table's columns, sent before its first row and again after they changed."""

    oid: int
    namespace: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Type:
    """A type that is not built in."""

    oid: int
    namespace: str
    name: str


@dataclass(frozen=True)
class Insert:
    """A new row."""

    relation: int
    new: Values


@dataclass(frozen=True)
class Update:
    """A changed row; `old` holds the old key (`K`), the whole old row (`O`), or nothing (the key is the same)."""

    relation: int
    new: Values
    old: Values | None = None
    old_kind: str = ""


@dataclass(frozen=True)
class Delete:
    """A deleted row: its key (`K`: other columns are None), or the whole row (`O`, replica identity full)."""

    relation: int
    old: Values
    old_kind: str


@dataclass(frozen=True)
class Truncate:
    """Tables that one statement emptied."""

    relations: tuple[int, ...]
    options: int


Message = Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate


class _Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple:
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def one(self, form: str) -> int:
        return self.take(form)[0]

    def char(self) -> str:
        return chr(self.one(">B"))

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        value, self.at = self.data[self.at : end].decode(), end + 1
        return value

    def time(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.one(">q"))

    def row(self) -> Values:
        return tuple(self.value() for _ in range(self.one(">H")))

    def value(self) -> str | None | Unchanged:
        kind = self.char()
        if kind == "n":
            return None
        if kind == "u":
            return UNCHANGED
        if kind != "t":
            raise PgOutputError(
                f"a value of kind '{kind}' in a replication message", "use proto_version 1 without binary"
            )
        size = self.one(">i")
        if self.at + size > len(self.data):
            raise IndexError(size)
        value, self.at = self.data[self.at : self.at + size].decode(), self.at + size
        return value


def _begin(r: _Reader) -> Begin:
    return Begin(r.one(">Q"), r.time(), r.one(">I"))


def _commit(r: _Reader) -> Commit:
    r.one(">B")  # flags: none are defined
    return Commit(r.one(">Q"), r.one(">Q"), r.time())


def _relation(r: _Reader) -> Relation:
    oid, namespace, name, identity = r.one(">I"), r.text(), r.text(), r.char()
    columns = []
    for _ in range(r.one(">H")):
        key, column = r.one(">B"), r.text()
        columns.append(RelationColumn(column, *r.take(">Ii"), bool(key & 1)))
    return Relation(oid, namespace or "pg_catalog", name, identity, tuple(columns))


def _insert(r: _Reader) -> Insert:
    relation, _ = r.one(">I"), r.char()
    return Insert(relation, r.row())


def _update(r: _Reader) -> Update:
    relation, kind = r.one(">I"), r.char()
    if kind == "N":
        return Update(relation, r.row())
    old, _ = r.row(), r.char()
    return Update(relation, r.row(), old, kind)


def _delete(r: _Reader) -> Delete:
    relation, kind = r.one(">I"), r.char()
    return Delete(relation, r.row(), kind)


def _truncate(r: _Reader) -> Truncate:
    count, options = r.one(">I"), r.one(">B")
    return Truncate(r.take(f">{count}I"), options)


_DECODERS = {
    "B": _begin,
    "C": _commit,
    "O": lambda r: Origin(r.one(">Q"), r.text()),
    "R": _relation,
    "Y": lambda r: Type(r.one(">I"), r.text() or "pg_catalog", r.text()),
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
}


def decode(data: bytes) -> Message:
    """Decode one message, from one row of `pg_logical_slot_peek_binary_changes`."""
    kind = chr(data[0]) if data else ""
    if kind not in _DECODERS:
        raise PgOutputError(f"a replication message of unknown kind '{kind}'", "use pgoutput with proto_version 1")
    reader = _Reader(data)
    reader.at = 1
    try:
        return _DECODERS[kind](reader)
    except (struct.error, IndexError, ValueError) as e:
        if isinstance(e, PgOutputError):
            raise
        raise PgOutputError(
            f"a replication message '{kind}' of {len(data)} bytes ends too early", "read it anew"
        ) from None


def lsn_text(lsn: int) -> str:
    """Write a log position as PostgreSQL does: `0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
