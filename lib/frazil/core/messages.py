"""The rows in messages of one table: Arrow parses a block at once; if anything in it is unusual, each message is decoded.

Arrow reads some numbers wrong without an error: decimals of 39 digits or more, and reals that are too small or too
large for their type. So patterns look for these. A decoded message has its numbers as they were written, for `exact.typed`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pyarrow import types

from frazil.core.rows import Rows

OPERATIONS = {"load": "I", "insert": "I", "update": "U", "delete": "D"}
"""The operations of rows, and their letters."""
COMMIT_TIME = "commit-timestamp"
_WRITTEN = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
"""How Arrow parses values of names that nobody declared, by what Python has of them."""
_IDS = ["transaction-id", "transaction-record-id", "prev-transaction-id", "prev-transaction-record-id"]
_WORDS = ["operation", COMMIT_TIME, "timestamp", "record-type", "schema-name", "table-name", "partition-key-type"]
_LARGE = r'\s*:\s*"?[-+]?[0-9.]*(?:[0-9]{39}|[eE])'
"""A decimal that is too long, or has an exponent, and so may have been rounded before it was written."""
_VANISHING = r"\s*:\s*[-+]?(?:0?\.0{20}|[0-9.]*[1-9][0-9.]*[eE]-[0-9]*[1-9][0-9])"
"""A real that may be too small for its type."""


_USUAL = msgspec.json.Decoder(dict, float_hook=str).decode
_UNUSUAL = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str).decode


def decoded(value: bytes) -> dict:
    """Return the content of a message. Bytes that are no UTF-8 become U+FFFD. Raises ValueError for what is no object."""
    try:
        return _USUAL(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    found = _UNUSUAL(value.decode("utf-8", "replace"))  # it also takes NaN, and half of a surrogate pair
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


@dataclass
class Reader:
    """Reads the rows of messages whose `data` have values of some types of the lake, by their names there.

    `old` names the values that the before-image also has; `before` is how the endpoint calls that. The fields are the
    operation, the time of the commit, all of `data`, and all of `old`. An absent name is null.
    A block is best of at most 20,000 messages and 8 MB: one unusual value slows all of it.
    """

    types: Mapping[str, pa.DataType]
    old: Sequence[str] = ()
    before: str = "before-image"
    as_text: set[str] = field(default_factory=set)
    """Names whose values are written as texts, though they are none."""
    unknown: dict[str, pa.DataType] = field(default_factory=dict)
    """Names in `data` that `types` lacks, of the blocks that were read, and how the first value of each is written."""
    metadata: dict[str, pa.DataType] = field(
        default_factory=lambda: dict.fromkeys(_WORDS, pa.string()) | dict.fromkeys(_IDS, pa.int64())
    )
    """What metadata have: Arrow's parser refuses names that it is not told."""

    def read(self, messages: pa.Array, numbers: np.ndarray) -> Rows:
        """Return the rows of a block of messages, each with its number. A message that is no JSON object is unreadable."""
        parsed = self._parsed(messages)
        fields, bad = (parsed, {}) if parsed else self._decoded(messages)
        rows = pa.RecordBatch.from_arrays(fields, [str(n) for n in range(len(fields))])
        unreadable = tuple((int(numbers[place]), why) for place, why in bad.items())
        good = ~np.isin(np.arange(len(messages)), [*bad])
        rows = rows.filter(pa.array(good)) if bad else rows
        return Rows(rows, numbers[good], unreadable, lambda n: messages[int(np.searchsorted(numbers, n))].as_py())

    # --- the usual way

    def _parsed(self, messages: pa.Array) -> list[pa.Array] | None:
        """Return what Arrow reads at once; None if it refuses a value, or may read one otherwise than it is written."""
        while True:
            try:
                found = self._by_arrow(messages)
                return found if found and len(found[0]) == len(messages) else None
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                told = re.search(r"Column\(/[^/]*/(.*)\) changed from (?:number|boolean) to string", str(error))
                if not told or told[1] in self.as_text:
                    return None
                self.as_text.add(told[1])

    def _by_arrow(self, messages: pa.Array) -> list[pa.Array] | None:
        texts = pc.ascii_rtrim_whitespace(messages.cast(pa.string()))  # refuses what is no UTF-8
        whole = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))  # so none is a part of its neighbour
        if not len(texts) or not pc.all(whole, skip_nulls=False).as_py():
            return None
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")
        kinds = {name: pa.string() if name in self.as_text else _parser_type(kind) for name, kind in self.types.items()}
        decimals = [name for name, kind in kinds.items() if types.is_decimal(kind)]
        if decimals and pc.match_substring_regex(joined, _after(decimals, _LARGE))[0].as_py():
            return None
        row = self.unknown | kinds
        parts = {"data": row, self.before: row, "metadata": self.metadata}  # a before-image may have all columns
        schema = pa.schema([(name, pa.struct(list(part.items()))) for name, part in parts.items()])
        raw = joined.buffers()[2]
        found = arrow_json.read_json(
            pa.BufferReader(raw),
            arrow_json.ReadOptions(use_threads=False, block_size=raw.size + 1),
            arrow_json.ParseOptions(schema, newlines_in_values=True, unexpected_field_behavior="error"),
        ).combine_chunks()
        data, old, about = (dict(zip(part, found[n].chunk(0).flatten(), strict=True)) for n, part in parts.items())
        reals = [(n, v) for part in (data, old) for n, v in part.items() if types.is_floating(v.type)]
        zero = [name for name, values in reals if pc.any(pc.equal(values, 0)).as_py()]
        vanished = zero and pc.match_substring_regex(joined, _after(zero, _VANISHING))[0].as_py()
        is_sure = not vanished and not any(pc.any(pc.is_inf(values)).as_py() for _, values in reals)
        return self._fields(data, old, about) if is_sure else None

    # --- the way of blocks with anything unusual

    def _decoded(self, messages: pa.Array) -> tuple[list[pa.Array], dict[int, str]]:
        """Return all values as they were written, and why some messages are unreadable, by their places."""
        found, bad = [], {}
        for place, value in enumerate(messages.to_pylist()):
            try:
                found.append(decoded(value or b""))
            except (ValueError, RecursionError) as error:
                found.append({})
                bad[place] = f"not JSON as DMS writes it ({error})"
        wanted = ("data", self.before, "metadata")
        data, old, about = ([v if isinstance(v := row.get(n), dict) else {} for row in found] for n in wanted)
        unknown = set().union(*data) - self.types.keys()
        first = {name: next(row[name] for row in data if name in row) for name in unknown}
        self.unknown = {n: _WRITTEN.get(type(v), pa.string()) for n, v in first.items()} | self.unknown
        self.metadata |= {n: _WRITTEN[type(v)] for row in about[:1] for n, v in row.items() if type(v) in _WRITTEN}
        parts = ((data, self.types), (old, self.old), (about, ("operation", COMMIT_TIME)))
        reals = {name for name, kind in self.types.items() if types.is_floating(kind)}
        columns = [{n: _column([row.get(n) for row in part], n in reals) for n in names} for part, names in parts]
        return self._fields(*columns), bad

    def _fields(self, data: Mapping, old: Mapping, about: Mapping) -> list[pa.Array]:
        """Return the fields in their order."""
        words = about["operation"].dictionary_encode()
        letters = pa.array([OPERATIONS.get(word, word) for word in words.dictionary.to_pylist()], pa.string())
        values = [part[name] for part, names in ((data, self.types), (old, self.old)) for name in names]
        return [letters.take(words.indices), about[COMMIT_TIME], *values]


def _parser_type(kind: pa.DataType) -> pa.DataType:
    if types.is_decimal(kind):
        return pa.decimal256(76, kind.scale)  # one of 128 bits overflows without an error
    if types.is_integer(kind):
        return pa.int64()
    return kind if types.is_floating(kind) or types.is_boolean(kind) else pa.string()


def _after(names: Sequence[str], pattern: str) -> str:
    """Return the pattern of a value of some names; names that may be written in several ways stand for all."""
    plain = all(re.fullmatch(r"\w+", name, re.ASCII) for name in names)
    return rf'"(?:{"|".join(names)})"{pattern}' if plain else rf'"{pattern}'


def _column(values: list, is_real: bool) -> pa.Array:
    """Return values as integers or texts, whichever all are, else each as its text, from which a real is the nearest."""
    with suppress(pa.ArrowException, UnicodeEncodeError, OverflowError):
        found = pa.array(values)
        if types.is_string(found.type) or (types.is_integer(found.type) and not is_real):
            return found
    return pa.array(map(_text, values), pa.string())


def _text(value: object) -> str | None:
    """Return the text of a value. An object or a list is none: U+FFFD stands for it, and for half of a surrogate pair."""
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    text = "\ufffd" if isinstance(value, dict | list) else str(value)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
