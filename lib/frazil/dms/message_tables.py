"""Which table each message is about, and what a message says that is no row: msgspec decodes only what Arrow cannot tell."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.messages import OPERATIONS, decoded
from frazil.dms.places import places_of
from frazil.errors import FrazilError

CONTROLS = {"create-table", "drop-table", "rename-table", "add-column", "drop-column", "rename-column", "column-type-change", "change-columns"}  # fmt: skip
"""The operations of control records."""

_METADATA_BEGINS = r'[{,\s]"metadata"\s*:\s*$'
_IS_ROW = rf'"operation"\s*:\s*"({"|".join(OPERATIONS)})"'
_NAMES = r'(?P<names>"schema-name"\s*:\s*"[^"]*"\s*,\s*"table-name"\s*:\s*"[^"]*")'


class NotOfDmsError(FrazilError, code="message-not-of-dms"):
    """A message is none of DMS's. Let only DMS write to the topic or stream."""


class Envelope(msgspec.Struct):
    """What a message says about its row or its control record."""

    operation: str
    schema: str = msgspec.field(name="schema-name")
    table: str = msgspec.field(name="table-name")
    built: str | None = msgspec.field(name="timestamp", default=None)
    committed: str | None = msgspec.field(name="commit-timestamp", default=None)
    transaction: int | None = msgspec.field(name="transaction-id", default=None)
    record: int | None = msgspec.field(name="transaction-record-id", default=None)
    control: dict[str, Any] = {}


def envelope(value: bytes | None) -> Envelope:
    """Return the envelope of a message.

    Raises NotOfDmsError, without a value of the message, for what is none of DMS's; so is a message without a value.
    """
    try:
        found = decoded(value or b"")
        if not isinstance(metadata := found.get("metadata"), dict):
            raise ValueError("it has no metadata")
        about = msgspec.convert(metadata | {"control": found.get("control", {})}, Envelope, strict=False)
        f"{about.schema}{about.table}".encode()  # half of a surrogate pair is no name
        if about.operation not in OPERATIONS.keys() | CONTROLS:
            raise ValueError("its operation is unknown")
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        cure = "let only DMS write to this topic or stream, or name another one"
        raise NotOfDmsError(f"a message is none of DMS's: {error}", cure) from None
    return about


def by_table(values: pa.Array) -> tuple[dict[tuple[str, str], np.ndarray], np.ndarray]:
    """Return the places of rows by schema and table, and the places of all other messages.

    A message whose row is broken is still one of its table, if its metadata is whole and stands last.
    """
    if not len(values):
        return {}, np.empty(0, int)
    places, texts = _shown(values)
    named = texts.dictionary_encode()
    tables = [(*text.split('"')[3::4],) for text in named.dictionary.to_pylist()]
    number_of = {table: number for number, table in enumerate(dict.fromkeys(tables))}
    table_of = np.full(len(values), -1)
    table_of[places] = np.array([number_of[table] for table in tables], int)[named.indices.to_numpy()]
    for place in np.flatnonzero(table_of < 0).tolist():
        try:
            about = envelope(values[place].as_py())
        except NotOfDmsError:
            continue
        if about.operation in OPERATIONS:
            table_of[place] = number_of.setdefault((about.schema, about.table), len(number_of))
    rows = places_of(table_of, len(number_of))
    return dict(zip(number_of, rows, strict=True)), np.flatnonzero(table_of < 0)


def _shown(values: pa.Array) -> tuple[np.ndarray, pa.StringArray]:
    """Return the places of rows whose metadata surely stands last and plainly shows the table, and the text that names it.

    The last brace that opens is the one of `metadata`, and two are closed after it: that of the message is the other.
    Without a backslash in between, each name there is a name, and each text a text.
    """
    raw = values.buffers()[2] or pa.py_buffer(b"")
    at = np.frombuffer(values.buffers()[1], "int32", len(values) + 1, values.offset * 4)
    text, begins, ends = np.frombuffer(raw, "uint8")[: at[-1]], at[:-1], at[1:]
    opened, closed, escaped = (np.flatnonzero(text == ord(sign)) for sign in "{}\\")
    starts = np.maximum(np.append(opened, -1)[np.searchsorted(opened, ends) - 1], begins)
    is_plain = np.searchsorted(closed, ends) - np.searchsorted(closed, starts) == 2
    is_plain &= np.searchsorted(escaped, ends) == np.searchsorted(escaped, starts)
    borders = pa.py_buffer(np.append(np.column_stack([begins, starts]), at[-1]).astype("int32"))
    halves = pa.Array.from_buffers(pa.string(), 2 * len(values), [None, borders, raw])
    is_plain &= _matches(halves, _METADATA_BEGINS)[::2]
    places = np.flatnonzero(is_plain & values.is_valid().to_numpy(zero_copy_only=False))
    metadata = halves.take(pa.array(2 * places + 1))
    names = pc.struct_field(pc.extract_regex(metadata, _NAMES), "names")
    fits = _matches(metadata, _IS_ROW) & names.is_valid().to_numpy(zero_copy_only=False)
    return places[fits], names.filter(pa.array(fits))


def _matches(texts: pa.Array, pattern: str) -> np.ndarray:
    return pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
