"""DMS's JSON messages: their metadata, their values as columns of texts, and the changes in those of one table.

A number keeps its digits: it never becomes a double. A null and a missing column are both null, since DMS writes whole
rows and leaves out nulls. The messages of one table and with the same names become a table with these columns:

| column | meaning |
|---|---|
| `number` | the message's place in the order of its partition |
| `place` | its offset or sequence number, if that is another one |
| `operation`, `built`, `committed`, `spread` | its metadata; see `METADATA` |
| `fault` | why it cannot be read as a whole; null: it can |
| `data.id` …, `old.id` … | its values as texts, and the old ones of its before-image |
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from frazil_old.config.spec import TableSpec
from frazil_old.core.bad_rows import COMMIT_TIME, FIELDS, BadRow, KeptRow
from frazil_old.core.changes import Changes, change_rows

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

OPERATIONS = {"load": "I", "insert": "I", "update": "U", "delete": "D"}
NOT_JSON = "not JSON as DMS writes it"
CROSSES = (
    "an update of the key, and messages are spread over partitions by it: let DMS use partition-key-type schema-table"
)
SPREAD = (
    "changes of a row are spread over partitions, which loses their order: let DMS use partition-key-type schema-table"
)
METADATA = {
    "kind": "record-type", "operation": "operation", "schema": "schema-name", "table": "table-name",
    "built": "timestamp", "committed": "commit-timestamp", "spread": "partition-key-type",
}  # fmt: skip
"""The names of a message's metadata here, and in the message."""


class _Number(str):
    """The text of a number, so that it differs from a text inside of another value."""

    __slots__ = ()


_DECODE = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=str).raw_decode
"""Reads JSON with numbers as their texts; created once, since that takes as long as reading a message."""
_METADATA_ALONE = re.compile(r'"metadata":\s*(\{[^{}\\]*\})\s*\}\s*$')


class Key(NamedTuple):
    """What messages have in common that become one table; `data` and `old` are the names of their values."""

    kind: str | None
    operation: str | None
    schema: str | None
    table: str | None
    spread: str | None
    fault: str | None
    data: tuple[str, ...]
    old: tuple[str, ...]


@dataclass(slots=True)
class Message:
    """One message: its metadata, its values, and its fault as a whole (`fault`, empty: none).

    A value is a text, a whole number, a boolean or null; any other number is its text.
    """

    kind: str | None = None
    operation: str | None = None
    schema: str | None = None
    table: str | None = None
    built: str | None = None
    committed: str | None = None
    spread: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    old: dict[str, Any] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class MessageNames:
    """The names of a table's columns in messages: in `data`, in the before-image, and in former messages."""

    columns: dict[str, str]
    old_columns: dict[str, str] = field(default_factory=dict)
    former: dict[str, list[str]] = field(default_factory=dict)
    added: frozenset[str] = frozenset()
    """Columns that a rule adds: they have no old value of their own."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """{name in the data: value} that identifies this table's messages among those of several tables with one name."""


def parse_message(value: bytes | str | None, before_field: str = "before-image") -> Message:
    """Return a message's content; one whose row cannot be read still has its metadata, if these can."""
    try:
        found = _decoder(before_field)(value)
    except Exception:
        return parse_unusual(value, before_field)
    about, fault = found.metadata, NOT_JSON if found.data is None and found.metadata.kind == "data" else ""
    return Message(*(getattr(about, name) for name in METADATA), found.data or {}, found.old or {}, fault)


@cache
def _decoder(before_field: str) -> Callable[[Any], Any]:
    """Return the decoder of usual messages: it raises where `parse_unusual` might read another thing.

    But it reads -0 as 0, and does not call it a fault if a row has no data.
    """
    import msgspec

    def part(name: str, fields: list[tuple]) -> type:
        return msgspec.defstruct(name, fields, gc=False)

    texts = [(name, str | None, msgspec.field(name=written, default=None)) for name, written in METADATA.items()]
    row = dict[str, Any] | None
    image = ("old", row, msgspec.field(name=before_field, default=None))
    data = part("Data", [("metadata", part("Metadata", texts)), ("data", row, None), image])
    return msgspec.json.Decoder(data, float_hook=_Number).decode


def parse_unusual(value: bytes | str | None, before_field: str) -> Message:
    """Return the content of any message, slowly: also of one that is no JSON, or not only JSON."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
    try:
        whole, end = _DECODE(text := text.lstrip())
    except (ValueError, RecursionError):
        whole, end = None, 0
    if isinstance(whole, dict) and isinstance(whole.get("metadata"), dict):
        data, old = whole.get("data"), whole.get(before_field)
        message = _of_metadata(whole["metadata"])
        message.data = data if isinstance(data, dict) else {}
        message.old = old if isinstance(old, dict) else {}
        has_another = text[end:].lstrip().startswith("{")  # anything else after the message changes nothing
        if has_another or (message.kind == "data" and not isinstance(data, dict)):
            message.fault = NOT_JSON
        return message
    found = _METADATA_ALONE.search(text)
    try:
        metadata = json.loads(found[1]) if found else {}
    except ValueError:
        metadata = {}
    message = _of_metadata(metadata)
    message.fault = NOT_JSON
    return message


def _of_metadata(metadata: dict[str, Any]) -> Message:
    def text(name: str) -> str | None:
        value = metadata.get(name)
        return None if value is None else _text(value)

    return Message(*map(text, METADATA.values()))


# --- messages as columns


def gather(values: Iterable[bytes | None], before_field: str) -> dict[Key, list[tuple]]:
    """Return rows of messages by what they have in common.

    A row is the message's index, `built`, `committed`, then the values in the data, and the old ones.
    """
    decode, found = _decoder(before_field), {}
    for index, value in enumerate(values):
        try:
            message = decode(value)
            about, data, old = message.metadata, message.data or {}, message.old or {}
            fault = NOT_JSON if message.data is None and about.kind == "data" else None
        except Exception:
            message = about = parse_unusual(value, before_field)
            data, old, fault = message.data, message.old, message.fault or None
        key = about.kind, about.operation, about.schema, about.table, about.spread, fault, tuple(data), tuple(old)
        row = index, about.built, about.committed, *data.values(), *old.values()
        if key in found:
            found[key].append(row)
        else:
            found[key] = [row]
    return {Key(*key): rows for key, rows in found.items()}


def columns_of(key: Key, rows: Sequence[tuple], numbers: pa.Array) -> pa.Table:
    """Return the table of messages that `gather` put together; `numbers` are their places in order."""
    import pyarrow as pa

    names = ["built", "committed", *(f"data.{_text(n)}" for n in key.data), *(f"old.{_text(n)}" for n in key.old)]
    _, *values = zip(*rows, strict=True)
    same = {n: pa.repeat(pa.scalar(getattr(key, n), pa.string()), len(rows)) for n in ("operation", "spread", "fault")}
    return pa.table({"number": numbers, **same, **{n: _texts(v) for n, v in zip(names, values, strict=True)}})


def _texts(values: Sequence[Any]) -> pa.Array:
    """Return values as texts in the form of files; half of a surrogate pair, which is no character, as U+FFFD."""
    import pyarrow as pa

    try:
        return pa.array(values, pa.string())
    except (pa.ArrowTypeError, UnicodeEncodeError):  # others than texts, or half of a pair
        pass
    try:
        if set(map(type, values)) <= {int, type(None)}:
            return pa.array(values, pa.int64()).cast(pa.string())
    except OverflowError:  # beyond 64 bits
        pass
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return _json(value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _json(value: Any) -> str:
    """Return a value as JSON, with all digits of the numbers in it."""
    if isinstance(value, dict):
        inner = [*map(_json, value.values())]
        return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in zip(value, inner, strict=True)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([*map(_json, value)]) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value)


def is_readable(kind: str | None, operation: str | None, schema: str | None, table: str | None) -> bool:
    """Return whether a message's metadata give its kind and table."""
    is_named = kind == "control" or (kind == "data" and schema is not None and table is not None)
    return operation is not None and is_named


def seconds_of(built: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return when DMS built messages, in seconds; NaN for one without a time."""
    import numpy as np
    import pyarrow as pa

    try:
        micros = built.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).cast(pa.float64(), safe=False)
        return micros.fill_null(math.nan).to_numpy(zero_copy_only=False) / 1e6
    except pa.ArrowInvalid:
        return np.array([seconds(text) for text in built.to_pylist()])


def seconds(text: str | None) -> float:
    """Return a time in a message in seconds; NaN for what is none."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return math.nan
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


# --- the changes in them


def type_messages(messages: pa.Table, spec: TableSpec, names: MessageNames, partitions: int = 1) -> Changes:
    """Return the changes in messages of one table, whose numbers are their places in order.

    With several `partitions`, one holds the order of a key: an update that moves a row to a key of another one is bad.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    messages, unknown = _own(messages, names.origin)
    faults = pc.coalesce(messages["fault"], _order_lost(messages, spec, names, partitions), unknown)
    good = messages.filter(pc.is_null(faults))
    texts = _as_in_files(_texts_by_role(good, spec, names), spec)
    changes = change_rows(texts, good["number"].to_numpy(), spec)
    numbers = messages["number"].to_pylist() if len(good) < len(messages) else []
    bad = [BadRow(n, FIELDS, fault) for n, fault in zip(numbers, faults.to_pylist(), strict=False) if fault]
    bad = sorted([*changes.bad, *bad], key=lambda row: row.number)
    ticks = pc.divide(changes.rows["commit_ts"].cast(pa.int64()), 10_000)
    return Changes(with_sequence(changes.rows, ticks), tuple(_kept(bad, messages, spec, names) if bad else bad))


def _texts_by_role(messages: pa.Table, spec: TableSpec, names: MessageNames) -> dict[str, pa.Array]:
    """Return what messages say by role; see `changes.type_csv`."""
    texts = {"op": _operations(messages["operation"]), "ts": _commit_times(messages["committed"])}
    for column in names.columns:
        texts[f"after:{column}"] = _new_values(messages, column, names)
    for column in spec.row_identity:
        texts[f"before:{column}"] = _old_values(messages, column, spec, names)
    return texts


def _as_in_files(texts: dict[str, pa.Array], spec: TableSpec) -> dict[str, pa.Array]:
    """Return texts in the form of files, whose times have neither T nor Z."""
    moments = {role for role in texts if ":" in role and spec.column(role.split(":", 1)[1]).dms_type == "DATETIME"}
    return {role: _whole(_without_z(values) if role in moments else values) for role, values in texts.items()}


def _own(messages: pa.Table, origin: Mapping[str, str]) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return the messages that are this table's or may be, and why it is unknown; null: it is known."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing = pa.scalar(None, pa.string())
    if not origin:
        return messages, nothing
    of_others, unknown = pa.scalar(False), pc.is_valid(messages["fault"])
    for name, value in origin.items():
        texts = _first(messages, [f"data.{name}"])
        of_others = pc.or_(of_others, pc.fill_null(pc.not_equal(texts, value), False))
        unknown = pc.or_(unknown, pc.is_null(texts))
    is_mine = pc.or_(unknown, pc.invert(of_others))
    why = pa.scalar(f"no value in {', '.join(origin)}, which names its table")
    return messages.filter(is_mine), pc.if_else(unknown, why, nothing).filter(is_mine)


# --- what is kept of the bad ones


def _kept(bad: Sequence[BadRow], messages: pa.Table, spec: TableSpec, names: MessageNames) -> list[BadRow]:
    """Return bad rows with what the quarantine keeps of each, but for its bytes, and values as they were written."""
    import pyarrow as pa

    places = {number: i for i, number in enumerate(messages["number"].to_pylist())}
    some = messages.take(pa.array([places[row.number] for row in bad]))
    written = _texts_by_role(some, spec, names)
    texts = {role: values.to_pylist() for role, values in _as_in_files(written, spec).items()}
    about = {name: some[name].to_pylist() for name in ("built", "committed")}
    offsets = some["place" if "place" in some.column_names else "number"].to_pylist()
    nothing = [None] * len(bad)
    new = [texts.get(f"after:{k}", nothing) for k in spec.key]
    old = [texts[f"before:{k}"] for k in spec.key]
    found = []
    for i, row in enumerate(bad):
        key, old_key = (tuple(part[i] for part in parts) for parts in (new, old))
        at, misfit = about["committed"][i], row.column == FIELDS
        time = None if at is None or row.column == COMMIT_TIME else at.replace("T", " ").removesuffix("Z")
        kept = KeptRow(b"", texts["op"][i], time, key, old_key, misfit, not misfit, about["built"][i])
        reason = row.reason
        if row.column == COMMIT_TIME:
            reason = f"commit timestamp '{at}' is not yyyy-MM-ddTHH:mm:ss.SSSSSSZ"
        elif (role := f"{'before' if row.of_old_value else 'after'}:{row.column}") in texts:
            reason = reason.replace(f"'{texts[role][i]}'", f"'{written[role][i]}'", 1)  # a time has its T and Z
        found.append(replace(row, reason=reason, kept=kept, place=str(offsets[i])))
    return found


def with_bytes(row: BadRow, raw: bytes | None, spec: TableSpec) -> BadRow:
    """Return a message's bad row with its bytes; one that is no JSON is shown, unless it may show what the lake hides."""
    reason = row.reason
    if reason == NOT_JSON:
        shown = f"{NOT_JSON}: {(raw or b'').decode('utf-8', 'replace')}"[:300]
        reason = (
            "a message that cannot be read, with columns that are masked or left out"
            if spec.has_hidden_columns
            else shown
        )
    return replace(row, reason=reason, kept=replace(row.kept, raw=raw or b""))


# --- the texts in them


def _whole(values: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _first(messages: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    """Return each message's value in the first of several columns that it has."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = [messages[n] for n in names if n in messages.column_names]
    return pc.coalesce(*found) if found else pa.chunked_array([pa.nulls(len(messages), pa.string())])


def _new_values(messages: pa.Table, column: str, names: MessageNames) -> pa.ChunkedArray:
    name = names.columns.get(column)
    return _first(messages, [f"data.{n}" for n in (name, *names.former.get(column, [])) if n is not None])


def _old_values(messages: pa.Table, column: str, spec: TableSpec, names: MessageNames) -> pa.ChunkedArray:
    """Return the old values of a column: from the before-image, or from its column among the new values.

    A column that a rule adds has its new value, where the row has any old one.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values, nothing = _image(messages, column, names), pa.scalar(None, pa.string())
    if column in names.added and (others := [k for k in spec.row_identity if k not in names.added]):
        has_old = pc.is_valid(pc.coalesce(*(_image(messages, k, names) for k in others)))
        values = pc.coalesce(values, pc.if_else(has_old, _new_values(messages, column, names), nothing))
    updates = pc.fill_null(pc.equal(messages["operation"], "update"), False)
    return pc.if_else(updates, values, nothing)


def _image(messages: pa.Table, column: str, names: MessageNames) -> pa.ChunkedArray:
    name, in_data = names.columns.get(column), names.old_columns.get(column)
    olds = [f"old.{n}" for n in (name, *names.former.get(column, [])) if n]
    return _first(messages, [*olds, *([f"data.{in_data}"] if in_data else [])])


def _order_lost(messages: pa.Table, spec: TableSpec, names: MessageNames, partitions: int) -> pa.ChunkedArray:
    """Return why a message's place does not show when its change was made; null: it does."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing = pa.scalar(None, pa.string())
    if partitions < 2 or not spec.key:
        return nothing
    moved = pa.scalar(False)
    for key in spec.key:
        old = _old_values(messages, key, spec, names)
        same = pc.fill_null(pc.equal(old, _new_values(messages, key, names)), False)
        moved = pc.or_(moved, pc.and_(pc.is_valid(old), pc.invert(same)))
    by_key = pc.equal(messages["spread"], "primary-key")
    apart = pc.is_in(messages["spread"], pa.array(["transaction-id", "attribute-name"]))
    is_load = pc.fill_null(pc.equal(messages["operation"], "load"), False)
    why = pc.if_else(apart, SPREAD, pc.if_else(pc.fill_null(pc.and_(by_key, moved), False), CROSSES, nothing))
    return pc.if_else(is_load, nothing, why)


def _operations(texts: pa.ChunkedArray) -> pa.Array:
    """Return operations as I, U and D; an unknown one stays."""
    import pyarrow as pa

    coded = _whole(texts).dictionary_encode()
    return pa.array([OPERATIONS.get(op, op) for op in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _without_z(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times with T and Z in the form of files, which a column that is kept as text has, too."""
    import pyarrow.compute as pc

    plain = pc.replace_substring(pc.utf8_slice_codeunits(texts, 0, -1), "T", " ")
    return pc.if_else(pc.ends_with(texts, "Z"), plain, texts)


def _commit_times(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return commit times without their Z; a time in another form is found to be bad."""
    import pyarrow.compute as pc

    usual = pc.and_(pc.ends_with(texts, "Z"), pc.equal(pc.utf8_slice_codeunits(texts, 10, 11), "T"))
    return pc.if_else(usual, pc.utf8_slice_codeunits(texts, 0, -1), pc.binary_join_element_wise(texts, "(no Z)", " "))


def with_sequence(rows: pa.RecordBatch, ticks: pa.Array) -> pa.RecordBatch:
    """Take times, as numbers, for DMS's sequence, which messages lack."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = rows.schema.get_field_index("change_seq")
    return rows.set_column(at, "change_seq", pc.utf8_lpad(ticks.cast(pa.string()), 16, "0"))
