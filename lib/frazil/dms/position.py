"""The position: how far a table's load and changes are applied. It stands in the summary of the snapshot that a table's tag names."""

from __future__ import annotations

import msgspec

from frazil.errors import FrazilError

VERSION = 1
"""Raised when a position means something that earlier versions of Frazil would misread."""
ALL = "0"
"""The `last` of a position before all change files."""


class PositionError(FrazilError, code="position"):
    """A position cannot be read: it is damaged, or of a newer version of Frazil. Use that version, or restart the table."""


class NoPositionError(FrazilError, code="no-position", decision=True):
    """Nothing says how far the rows of a table reach, or a place that was named is none. Adopt it at a change file, a time or its load; or restart it."""


class SideFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of waiting rows in the state folder: its path there, its rows, and the CRC-32 of its bytes."""

    path: str
    rows: int
    checksum: int


class Position(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How far a table is applied; two positions are equal if they say the same.

    `batch` counts the batches, without a gap. `load` is the digest of the load's files, "none" without any. `last` is the
    newest change file, or landed pass, that is applied, and `rows` how many of its rows are, if not all.
    """

    version: int = VERSION
    batch: int = 0
    load: str = ""
    last: str = ""
    rows: int | None = None
    schema: int | None = None
    """The id of the schema that Frazil gave the table last: after a rollback, others may know of newer columns."""
    landing: str = ""
    """The id of the landing that `last` is a pass of."""
    quarantine: SideFile | None = None
    stopped: str = ""
    """Why the table takes no batch until a person decides; the first word is the stop's id."""
    accepted: dict[str, str] = {}
    """What a person wants to be applied out of order: names of late files, each with the `last` after which it comes.

    So a restart keeps its place. The path of a side file means that its rows are replayed next.
    """

    @property
    def text(self) -> str:
        """The position as a snapshot's summary has it."""
        return msgspec.json.encode(self).decode()


_READER = msgspec.json.Decoder(Position)
"""It is made here, as msgspec ends the process if two threads make the first one of a type at the same time."""


def read_position(text: str, table: str) -> Position:
    """Return the position in a text. Raises PositionError if it is none, or a newer version's."""
    try:
        version = msgspec.json.decode(text, type=dict).get("version")
        if isinstance(version, int) and version > VERSION:
            problem = f"{table}: its position is of version {version}, and this Frazil reads up to {VERSION}"
            raise PositionError(problem, "use the newer version of Frazil that wrote it")
        return _READER.decode(text)
    except msgspec.DecodeError as error:
        cure = "restart the table"
        raise PositionError(f"{table}: its position is damaged ({error})", cure) from None
