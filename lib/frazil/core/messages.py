"""DMS's JSON messages: their metadata, and the changes in those of one table.

A number keeps its digits: it never becomes a double. A null and a missing column are both null, since DMS writes whole
rows and leaves out nulls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.core.changes import FIELDS, BadRow, Changes, change_rows

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

OPERATIONS = {"load": "I", "insert": "I", "update": "U", "delete": "D"}
NOT_JSON = "not JSON as DMS writes it"
HALF_A_PAIR = "half of a surrogate pair, which is no character"
CROSSES = (
    "an update of the key, and messages are spread over partitions by it: let DMS use partition-key-type schema-table"
)
SPREAD = (
    "changes of a row are spread over partitions, which loses their order: let DMS use partition-key-type schema-table"
)
_DECODE = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str).raw_decode
"""Reads JSON with numbers as their texts; created once, since that takes as long as reading a message."""
_METADATA_ALONE = re.compile(r'"metadata":\s*(\{[^{}\\]*\})\s*\}\s*$')
_ALONE = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class Message:
    """One message: its metadata, its values as texts, and its fault as a whole (`fault`, empty: none)."""

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


def parse_message(value: bytes | str | None, before_field: str = "before-image") -> Message:
    """Return a message's content; one whose row cannot be read still has its metadata, if these can."""
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
        return value if value is None or isinstance(value, str) else json.dumps(value)

    return Message(
        text("record-type"), text("operation"), text("schema-name"), text("table-name"),
        text("timestamp"), text("commit-timestamp"), text("partition-key-type"),
    )  # fmt: skip


def unknown_columns(messages: Sequence[Message], known: set[str]) -> set[str]:
    """Return the undeclared names in messages' data."""
    return {name for message in messages for name in message.data} - known


def type_messages(
    messages: Sequence[Message], numbers: np.ndarray, spec: TableSpec, names: MessageNames, partitions: int = 1
) -> Changes:
    """Return the changes in messages of one table; `numbers` are their offsets.

    With several `partitions`, one holds the order of a key: an update that moves a row to a key of another one is bad.
    """
    import numpy as np

    faults = {i: fault for i, m in enumerate(messages) if (fault := m.fault or _order_lost(m, spec, names, partitions))}
    texts: dict[str, list[str | None]] = {
        "op": [OPERATIONS.get(m.operation or "", m.operation) for m in messages],
        "ts": [_commit_time(m.committed) for m in messages],
    }
    for column, name in names.columns.items():
        texts[f"after:{column}"] = _values([m.data for m in messages], [name, *names.former.get(column, [])])
    for column in spec.identity:
        texts[f"before:{column}"] = _old_values(messages, names.columns.get(column), names.old_columns.get(column))
    for role, values in texts.items():
        _plain(values, _is_moment(role, spec), faults)
    good = np.array([i for i in range(len(messages)) if i not in faults], "int64")
    arrays = {role: _strings([values[i] for i in good]) for role, values in texts.items()}
    changes = change_rows(arrays, numbers[good], spec)
    bad = [BadRow(int(numbers[i]), FIELDS, fault) for i, fault in faults.items()]
    rows = _with_sequence(changes.rows)
    return Changes(rows, tuple(sorted([*changes.bad, *bad], key=lambda row: row.number)))


def _order_lost(message: Message, spec: TableSpec, names: MessageNames, partitions: int) -> str:
    """Return why a message's place does not show when its change was made; empty: it does."""
    if partitions < 2 or not spec.key or message.operation == "load":
        return ""
    if message.spread in ("transaction-id", "attribute-name"):
        return SPREAD
    if message.spread == "primary-key" and message.operation == "update":
        for key in spec.key:
            old = _old_value(message, names.columns.get(key), names.old_columns.get(key))
            if old is not None and old != message.data.get(names.columns.get(key, "")):
                return CROSSES
    return ""


def _values(rows: list[dict[str, Any]], names: list[str]) -> list[Any]:
    """Return each row's value under the first of several names that it has."""
    values = [row.get(names[0]) for row in rows]
    for name in names[1:]:
        values = [row.get(name) if value is None else value for value, row in zip(values, rows, strict=True)]
    return values


def _old_values(messages: Sequence[Message], name: str | None, in_data: str | None) -> list[Any]:
    return [_old_value(m, name, in_data) if m.operation == "update" else None for m in messages]


def _old_value(message: Message, name: str | None, in_data: str | None) -> Any:
    """Return the old value of a column: from the before-image, or from its column among the new values."""
    value = message.old.get(name) if name else None
    return message.data.get(in_data) if value is None and in_data else value


def _is_moment(role: str, spec: TableSpec) -> bool:
    return ":" in role and spec.column(role.split(":", 1)[1]).dms_type == "DATETIME"


def _plain(values: list[Any], moments: bool, faults: dict[int, str]) -> None:
    """Convert values to the form that files have, in place: booleans as words, timestamps without their Z."""
    for i, value in enumerate(values):
        if value is None or i in faults:
            continue
        if not isinstance(value, str):
            values[i] = str(value).lower() if isinstance(value, bool) else json.dumps(value)
        elif moments and value.endswith("Z"):
            values[i] = value[:-1]
        elif not value.isascii() and _ALONE.search(value):
            faults[i] = HALF_A_PAIR


def _commit_time(text: str | None) -> str | None:
    """Return a commit time without its Z; a time in another form stays as it is, and is found to be bad."""
    if text is None or (text.endswith("Z") and text[10:11] == "T"):
        return text and text[:-1]
    return f"{text} (no Z)"


def _strings(values: list[str | None]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.string())


def _with_sequence(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Take commit times, to a hundredth of a second, for DMS's sequence, which messages lack."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ticks = pc.divide(rows["commit_ts"].cast(pa.int64()), 10_000)
    at = rows.schema.get_field_index("change_seq")
    return rows.set_column(at, "change_seq", pc.utf8_lpad(ticks.cast(pa.string()), 16, "0"))
