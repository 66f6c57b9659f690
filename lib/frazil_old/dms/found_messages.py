"""What a Kafka topic holds, from its first and its newest messages: tables, operations, columns, keys and times."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from frazil_old.core.messages import Message, is_readable, parse_message, seconds
from frazil_old.dms.control_records import CREATE, definition
from frazil_old.dms.kafka import Kafka
from frazil_old.dms.stream_source import Offsets

EACH = 2_000
"""The number of messages that are read from the beginning, and as many from the end, of all partitions together."""


@dataclass
class FoundTable:
    """What was seen of one table; `columns` has the JSON types seen of each."""

    operations: Counter[str] = field(default_factory=Counter)
    columns: dict[str, set[str]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    """DMS's types of the columns, from the table's control record."""
    key: tuple[str, ...] = ()
    """The primary key, from the table's control record."""
    has_images: bool = False
    spread: set[str] = field(default_factory=set)
    """How DMS chooses a partition (`partition-key-type`)."""
    last_commit: float = 0.0
    """When the last of its changes was committed, in epoch seconds; 0: unknown."""
    recent: int = 0
    """The number of its changes among the newest messages."""


@dataclass
class FoundMessages:
    """What a stream's kept messages show. Times are epoch milliseconds by the broker's clock."""

    partitions: int
    kept: int
    read: int = 0
    is_whole: bool = True
    """Whether each kept message was read."""
    tables: dict[str, FoundTable] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """What is no message of DMS, each with its partition and offset."""
    oldest_ms: int = 0
    newest_ms: int = 0
    recent_ms: int = 0
    """The time of the first of the newest messages."""


def find_messages(stream: Kafka, seconds: float) -> FoundMessages:
    """Read the first and the newest messages of a stream, for at most about `seconds`."""
    until = time.monotonic() + seconds
    earliest, ends = stream.earliest(), stream.ends()
    each = max(1, EACH // max(1, len(ends)))
    found = FoundMessages(len(ends), sum(ends[p] - earliest[p] for p in ends))
    first = {p: min(ends[p], earliest[p] + each) for p in ends}
    newest = {p: max(first[p], ends[p] - each) for p in ends}
    found.is_whole = first == newest
    for begin, end, is_newest in ((earliest, first, False), (newest, ends, True)):
        for partition, offset, arrived, value in _messages(stream, begin, end, until):
            found.read += 1
            found.oldest_ms = min(found.oldest_ms or arrived, arrived)
            found.newest_ms = max(found.newest_ms, arrived)
            if is_newest or found.is_whole:
                found.recent_ms = min(found.recent_ms or arrived, arrived)
            _add(found, f"{partition} at offset {offset}", value, is_newest or found.is_whole)
    found.is_whole = found.is_whole and found.read >= found.kept
    return found


def _messages(stream: Kafka, begin: Offsets, end: Offsets, until: float) -> Iterator[tuple[Any, ...]]:
    """Yield partition, offset, time and value of the messages between two positions, until the time is over."""
    for batch in stream.reader().read(begin, end):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        if time.monotonic() > until:
            return


def _add(found: FoundMessages, where: str, value: bytes | None, is_newest: bool) -> None:
    message = parse_message(value)
    if not is_readable(message.kind, message.operation, message.schema, message.table):
        found.faults.append(f"{where}: no message of DMS: {(value or b'')[:60].decode('utf-8', 'replace')!r}")
        return
    table = found.tables.setdefault(f"{message.schema}.{message.table}", FoundTable())
    if message.kind == "control":
        _add_definition(table, where, value, message)
        return
    if message.fault:
        found.faults.append(f"{where}: {message.fault}")
        return
    table.operations[message.operation or ""] += 1
    table.recent += is_newest and message.operation != "load"
    table.has_images |= bool(message.old)
    if not math.isnan(committed := seconds(message.committed)):
        table.last_commit = max(table.last_commit, committed)
    elif message.committed is not None:
        found.faults.append(f"{where}: commit timestamp '{message.committed}' is not yyyy-MM-ddTHH:mm:ss.SSSSSSZ")
    table.spread |= {message.spread} - {None}
    for name, cell in message.data.items():
        table.columns.setdefault(name, set()).update(() if cell is None else {_kind(cell)})


def _add_definition(table: FoundTable, where: str, value: bytes, message: Message) -> None:
    defined = definition(value.decode("utf-8", "replace"), message.operation or CREATE, where)
    if defined:
        table.key = defined.key or table.key
        table.types = {name: column.dms_type if column else "unknown" for name, column in defined.columns.items()}


def _kind(cell: Any) -> str:
    if isinstance(cell, bool):
        return "boolean"
    if isinstance(cell, str):
        return "text or number"  # a number with a fraction stays a text here
    return "whole number" if isinstance(cell, int) else json.dumps(cell)[:1]
