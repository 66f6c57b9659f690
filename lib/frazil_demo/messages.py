"""The messages of a Kafka or Kinesis target: load records, changes and control records as DMS's JSON, sent immediately."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from frazil_demo.catalog import SourceTable
from frazil_demo.layout import Change
from frazil_demo.rules import _WANTED, Rules
from frazil_demo.senders import ToKafka, ToKinesis
from frazil_demo.settings import SimulatorError, Target
from frazil_old.config.spec import Column

_OPERATIONS = {"I": "insert", "U": "update", "D": "delete"}
_NUMBERS = ("INT1", "INT2", "INT4", "INT8", "UINT1", "UINT2", "UINT4", "UINT8", "NUMERIC")
# Seen for PostgreSQL sources. Assumed: NUMERIC, BINARY, TIME.
_CONTROL_TYPES = {
    "BOOLEAN": "BOOL", "INT1": "INT8", "INT2": "INT16", "INT4": "INT32", "INT8": "INT64", "REAL4": "FLOAT",
    "REAL8": "DOUBLE", "NUMERIC": "NUMERIC", "DATETIME": "TIMESTAMP", "DATE": "DATE32", "BYTES": "BINARY", "BLOB": "BINARY",
}  # fmt: skip


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def _number(text: str, short: str) -> str:
    return json.dumps(text) if text.lstrip("+-") in ("NaN", "Infinity") else short


def value(column: Column, text: str, no_hex_prefix: bool) -> str:
    """Return the JSON of a value, from DMS's text of it in files."""
    kind = column.dms_type
    if kind == "REAL4":
        return _number(text, f"{float(text):.9g}")  # seen: 2.2 is 2.20000005
    if kind == "REAL8":
        return _number(text, repr(float(text)).removesuffix(".0"))  # seen: an integral value loses the fraction
    if kind in _NUMBERS:
        return _number(text, text)  # Assumed for NUMERIC: a number with all its digits.
    if kind == "BOOLEAN":
        return text
    if kind in ("BYTES", "BLOB"):
        return json.dumps(text if no_hex_prefix else "0x" + text)
    if kind == "DATETIME" and text[10:11] == " ":
        return json.dumps(text.replace(" ", "T").removesuffix(".000000") + "Z")  # seen: Z always, no empty fraction
    return json.dumps(text, ensure_ascii=False)


class Messages:
    """Sends a task's messages to a Kafka topic or a Kinesis stream, by its settings and table mappings; `demo.files.Files` for a stream.

    Every change is sent immediately; the slot moves only when the broker has them all (`flush`). Order holds per
    message key, which names the table or, with partition-key-type primary-key, the row.
    """

    def __init__(self, target: Target, rules: Rules, task: dict[str, Any], delivery_s: float = 60):
        self.target, self.rules = target, rules
        self._sender = (ToKinesis if target.stream_arn else ToKafka)(target, delivery_s)
        image = task.get("BeforeImageSettings", {})
        self._before = image.get("FieldName", "before-image") if image.get("EnableBeforeImage") else ""
        self._in_image: Callable = _WANTED[image.get("ColumnFilter") or "pk-only"]
        self._task = secrets.token_hex(13).upper()
        self._tab = "\t" if target.message_format == "json" else ""
        self._oldest: int | None = None
        self._last: tuple[int, int] | None = None

    # --- the interface of writers that the simulator uses

    def load(self, table: SourceTable, rows: Iterable[Sequence[str | None]]) -> int:
        """Send a table's load records after the control records that announce it; return the row count."""
        self._control(table, "drop-table", {})
        self._control(table, "create-table", self._definition(table))
        count = 0
        for row in rows:
            self._send(table, table.encoded(row), "load")
            count += 1
        self.flush(table.name)
        return count

    def add(self, change: Change) -> None:
        """Send one change."""
        self._oldest = self._oldest or change.transaction
        details, number = {"transaction-id": change.transaction}, int(change.position.split(".")[1])
        if self.target.transaction_details:
            details["transaction-record-id"] = number
            if self._last:
                details |= {"prev-transaction-id": self._last[0], "prev-transaction-record-id": self._last[1]}
            details |= {"commit-timestamp": _moment(change.commit_time), "stream-position": change.position}
        self._last = change.transaction, number
        self._send(change.table, change.values, _OPERATIONS[change.op], change, details)

    def altered(self, was: SourceTable, now: SourceTable) -> None:
        """Send the control record of an ALTER TABLE, if the settings want it and columns changed.

        Unconfirmed: that it has the new definition, and is sent with the first row after the ALTER. Also unconfirmed:
        that an ALTER with several changes is a change-columns.
        """
        old, new = (dict(zip(t.numbers, t.spec.columns, strict=True)) for t in (was, now))
        both = [(old[n], new[n]) for n in old.keys() & new.keys()]
        kinds = {
            "drop-column": old.keys() - new.keys(), "add-column": new.keys() - old.keys(),
            "rename-column": [a for a, b in both if a.name != b.name],
            "column-type-change": [a for a, b in both if a.type != b.type],
        }  # fmt: skip
        found = [operation for operation, columns in kinds.items() if columns]
        if found and self.target.alter_operations:
            self._control(now, found[0] if len(found) == 1 else "change-columns", self._definition(now))

    def full(self) -> list[str]:
        """Return nothing: no buffer waits for a size."""
        return []

    def due(self) -> list[str]:
        """Return the stream's name if the broker may lack messages."""
        return [self.target.topic] if self._oldest else []

    buffered = due

    def oldest(self) -> int | None:
        """Return the number of the first transaction that the broker may lack."""
        return self._oldest

    def flush(self, name: str) -> str:
        """Wait until the stream has every message."""
        self._sender.flush()
        self._oldest = None
        return name

    # --- a message

    def _data(self, table: SourceTable, values: Sequence, wanted=lambda spec, column: True) -> str:
        parts = []
        for column, text in zip(table.spec.columns, values, strict=True):
            if not wanted(table.spec, column) or (not text and not self.target.null_and_empty):
                continue  # seen: without IncludeNullAndEmpty, nulls and empty texts are left out
            shown = "null" if text is None else value(column, text, self.target.no_hex_prefix)
            parts.append(self._entry(column.name, shown))
        return self._object(parts, 1)

    def _entry(self, name: str, shown: str) -> str:
        return f"{json.dumps(name)}:{self._tab}{shown}"

    def _object(self, parts: list[str], depth: int) -> str:
        """Join the entries of an object: on one line, or with tabs, a line per entry."""
        if not self._tab or not parts:
            return "{" + ",".join(parts) + "}"
        inner, outer = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
        return "{" + inner + f",{inner}".join(parts) + outer + "}"

    def _send(self, table: SourceTable, values, operation: str, change: Change | None = None, details=None) -> None:
        rules, spec = self.rules.of(table.spec), table.spec
        kind = rules.partition_key or ("primary-key" if operation == "load" and spec.key else "schema-table")
        key = f"{rules.schema}.{rules.table}"
        about: dict[str, Any] = {"partition-key-type": kind}
        if kind == "primary-key":
            bare = ".".join(str(values[spec.names.index(k)]) for k in spec.key)
            if self.target.partition_value:
                about["partition-key-value"] = f"{key}.{bare}" if self.target.partition_with_table else bare
            key = f"{key}.{bare}"
        parts = [self._entry("data", self._data(table, values))]
        if operation == "update" and self._before:
            changed = change.old is not None and (change.key_changed or self._in_image is not _WANTED["pk-only"])
            image = self._data(table, change.old, self._in_image) if changed else "{}"
            parts.insert(0, self._entry(self._before, image))
        self._produce(rules, key, parts, "data", operation, {**about, **(details or {})})

    def _control(self, table: SourceTable, operation: str, definition: dict[str, Any]) -> None:
        rules = self.rules.of(table.spec)
        parts = [self._entry("control", json.dumps(definition))] if self.target.control_details else []
        about = {"partition-key-type": "task-id", "partition-key-value": self._task}
        self._produce(rules, f"{self._task}.{rules.schema}.{rules.table}", parts, "control", operation, about)

    def _definition(self, table: SourceTable) -> dict[str, Any]:
        columns = {}
        for c in table.spec.columns:
            length = {"length": c.arguments[0]} if c.arguments and c.dms_type != "NUMERIC" else {}
            columns[c.name] = {"type": _CONTROL_TYPES.get(c.dms_type, "STRING"), **length, "nullable": c.nullable}
        key = {"primary-key": list(table.spec.key)} if table.spec.key else {}
        return {"table-def": {"columns": columns, **key}}

    def _produce(self, rules, key: str, parts: list[str], kind: str, operation: str, about: dict[str, Any]) -> None:
        names = {"schema-name": rules.schema, "table-name": rules.table}
        metadata = {
            "timestamp": _moment(datetime.now(UTC)),
            "record-type": kind,
            "operation": operation,
            **about,
            **names,
        }
        told = [self._entry(name, json.dumps(about)) for name, about in metadata.items()]
        text = self._object([*parts, self._entry("metadata", self._object(told, 1))], 0)
        data = (text + "\n").encode()
        if len(data) > self.target.max_bytes:
            raise SimulatorError(
                f"{rules.folder}: a message of {len(data)} bytes", "raise MessageMaxBytes, or leave the column out"
            )
        self._sender.send(rules.topic or self.target.topic, key, data)
