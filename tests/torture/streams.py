"""Mutated messages of a stream: each must end as a right row, as a bad one with its reason, or as another's; never as a wrong or lost row.

The judge below reads the bytes itself, in plain Python, and shares no code with Frazil.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "lib")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from frazil_old.config.spec import parse_spec  # noqa: E402
from frazil_old.core.changes import Changes  # noqa: E402
from frazil_old.core.latest_per_key import latest_per_key  # noqa: E402
from frazil_old.core.messages import Message, MessageNames, columns_of, gather, parse_message, type_messages  # noqa: E402
from helpers import spec_of, type_parsed  # noqa: E402
from mutated_files import BAD, FIELDS, KEY, OP, TIME, Bad, value_of  # noqa: E402

COLUMNS = ["id INT8", "n INT4", "price NUMERIC(12,2)", "w REAL8", "d DATE", "at DATETIME", "flag BOOLEAN", "raw BYTES(9)",
           "note NCLOB"]  # fmt: skip
NAMES, KINDS = zip(*(c.split(" ") for c in COLUMNS), strict=True)
SPEC = parse_spec(spec_of("public.t", *COLUMNS))
IN_MESSAGES = MessageNames({n: n for n in NAMES})
NOTES = [
    "plain",
    "two\nlines",
    "Zürich 東京 😀",
    'say "hi"',
    '"metadata":{"operation":"delete"}',
    "\\",
    "",
    None,
    "x" * 300,
]
OPS = {"insert": "I", "update": "U", "delete": "D"}
COUNT = 5_000


# --- valid messages


def _valid(r: random.Random, number: int) -> dict:
    data = {
        "id": r.randrange(40), "n": r.randrange(-99, 10**6), "price": Decimal(r.randrange(10**6)) / 100, "w": r.random(),
        "d": f"2025-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}", "at": f"2025-01-01T10:00:{r.randrange(60):02d}.{r.randrange(10**6):06d}Z",
        "flag": r.random() < 0.5, "raw": f"0x{r.randrange(256):02x}", "note": r.choice(NOTES),
    }  # fmt: skip
    about = {
        "timestamp": "2026-01-01T00:00:00.000001Z", "record-type": "data", "operation": r.choice([*OPS]),
        "partition-key-type": "schema-table", "schema-name": "public", "table-name": "t", "transaction-id": number,
        "commit-timestamp": f"2026-01-01T00:00:{number % 60:02d}.{r.randrange(10**6):06d}Z",
    }  # fmt: skip
    return {"data": data, "metadata": about}


def _written(message, r: random.Random) -> str:
    form = r.choice(
        [{"separators": (",", ":")}, {"separators": (",", ":")}, {"separators": (",", ":\t"), "indent": "\t"}, {}]
    )
    text = json.dumps(message, default=lambda d: f"<{d}>", ensure_ascii=r.random() < 0.5, **form)
    return re.sub(r'"<([^">]*)>"', r"\1", text)  # decimals with their digits


# --- mutations

WRONG_VALUES = [
    None, True, "", "abc", "12", " 7 ", "1.5", -1, 10**25, Decimal("0.125"), Decimal("1.0"), Decimal("1e400"), [1], {"a": 1},
    "2025-02-30", "NaN", "9" * 400, "0xg1", "\u0000",
]  # fmt: skip


def _mutated(r: random.Random, number: int) -> bytes:
    """Return a message with one thing wrong with it, or only written in another way, or as it should be."""
    message, kind = _valid(r, number), r.randrange(14)
    data, about = message["data"], message["metadata"]
    if kind == 0:
        message = dict(reversed(message.items()))
    elif kind == 1:
        del about[r.choice([*about])]
    elif kind == 2:
        about[r.choice([*about])] = r.choice([None, "", "truncate", "t2", 5, {}, "2026-13-01"])
    elif kind == 3:
        about |= {"record-type": "control", "operation": r.choice(["create-table", "drop-table", "add-column", "???"])}
        message = {"control": r.choice([{}, {"table-def": {}}]), "metadata": about}
    elif kind == 4:
        del message[r.choice(["data", "metadata"])]
    elif kind in (5, 6):
        data[r.choice(NAMES)] = r.choice(WRONG_VALUES)
    elif kind == 7:
        del data[r.choice(NAMES)]
    elif kind == 8:
        data[r.choice(["new", "ID", "metadata", "ö"])] = r.choice([1, "x", None])
    raw = _written(message, r).encode()
    at = r.randrange(len(raw))
    if kind == 9:
        raw = raw[:at]
    elif kind == 10:
        raw = raw[:at] + bytes([raw[at] ^ (1 << r.randrange(8))]) + raw[at + 1 :]
    elif kind == 11:
        raw = (
            raw[:at]
            + r.choice([b'"', b"{", b"}", b",", b"\0", b"\\", b"9", b"\xff", b"\n"])
            + raw[at + r.randint(0, 2) :]
        )
    elif kind == 12:
        raw = r.choice([b"", b"null", b"[]", b"7", b'"text"', b"{}", raw + b"\n", raw + raw, raw + b"x"])
    return raw


# --- the judge


@dataclass(frozen=True)
class Said:
    """What a message says: its kind, operation, schema and table, and the row of the table, if it is a change of it."""

    about: tuple
    row: tuple | Bad | None = None


class _Number(str):
    """A number as it is written."""


def judge(raw: bytes) -> Said | None:
    """Return what a message says; None: it is no message of DMS's at all."""
    decoder = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    text = raw.decode(errors="replace").lstrip()  # what is no UTF-8 spoils the value that it stands in, and no other
    try:
        message, end = decoder.raw_decode(text)
        metadata = message["metadata"]
        about = tuple(_text(metadata.get(name)) for name in ("record-type", "operation", "schema-name", "table-name"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    kind, operation, *table = about
    if kind != "data" or operation in (None, "load") or table != ["public", "t"]:
        return Said(about)
    data = message.get("data")
    if text[end:].lstrip().startswith("{") or not isinstance(data, dict):  # other junk behind a message changes nothing
        return Said(about, Bad(FIELDS))
    return Said(about, _row(operation, data, _text(metadata.get("commit-timestamp"))))


def _row(operation: str, data: dict, stamp: str | None) -> tuple | Bad:
    if operation not in OPS:
        return Bad(OP)
    if data.get("id") is None:
        return Bad(KEY)
    if stamp is not None and not (
        stamp[10:11] == "T" and stamp.endswith("Z") and value_of(stamp[:-1], "DATETIME") is not BAD
    ):
        return Bad(TIME)
    values = [_meaning(kind, data.get(name)) for name, kind in zip(NAMES, KINDS, strict=True)]
    wrong = [name for name, value in zip(NAMES, values, strict=True) if value is BAD]
    return Bad(wrong[0]) if wrong else (OPS[operation], *values)


def _text(value) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _meaning(kind: str, value):
    """Return a value, BAD, or ... for a text that may be written in several ways."""
    if value is None:
        return None
    if isinstance(value, dict | list):
        return ... if kind == "NCLOB" else BAD
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if any("\ud800" <= c <= "\udfff" for c in text):  # half of a surrogate pair is no character
        return BAD
    return value_of(text.removesuffix("Z") if kind == "DATETIME" else text, kind)


def _agree(said: tuple | Bad, found: tuple | Bad) -> bool:
    if isinstance(said, Bad) or isinstance(found, Bad):
        return said == found
    return all(s is ... or repr(s) == repr(f) for s, f in zip(said, found, strict=True))  # NaN equals its text


# --- what the core makes of them


def run(count: int, seed: int = 1) -> dict[str, int]:
    """Mutate `count` messages and judge what becomes of each; raise AssertionError with the first that went wrong."""
    r, sent = random.Random(seed), []
    for number in range(count):
        sent.append(_mutated(r, number))
        if r.random() < 0.1:  # sent twice, or before one that was sent earlier
            sent.insert(r.randrange(max(0, len(sent) - 20), len(sent)), r.choice(sent[-20:]))
    messages = [parse_message(raw, "before-image") for raw in sent]
    mine = [n for n, m in enumerate(messages) if _is_change(m.kind, m.operation, m.schema, m.table)]
    changes = type_parsed([messages[n] for n in mine], np.array(mine), SPEC, IN_MESSAGES)
    found = _rows(changes)
    assert sorted(found) == mine, f"seed {seed}: the core lost a message"
    _check_columns(sent, found, seed)
    counts = Counter(
        _checked(raw, messages[n], found.get(n), f"message {n}, seed {seed}") for n, raw in enumerate(sent)
    )
    _check_latest(changes, found, seed)
    _check_names(sent, messages, found, seed)
    return dict(counts)


def _is_change(kind: str | None, operation: str | None, schema: str | None, table: str | None) -> bool:
    return kind == "data" and operation not in (None, "load") and (schema, table) == ("public", "t")


def _rows(changes: Changes) -> dict[int, tuple | Bad]:
    """Return what was read of each message, by its number."""
    rows = changes.rows
    values = zip(rows["op"].to_pylist(), *[rows[f"new_{i}"].to_pylist() for i in range(len(NAMES))], strict=True)
    bad = {row.number: Bad(row.column) for row in changes.bad}
    return dict(sorted((bad | dict(zip(rows["number"].to_pylist(), values, strict=True))).items()))


def _check_columns(sent: list[bytes], found: dict[int, tuple | Bad], seed: int) -> None:
    """Require that many messages as columns mean what each means alone."""
    together = {}
    for key, rows in gather(sent, "before-image").items():
        if _is_change(*key[:4]):
            columns = columns_of(key, rows, pa.array([row[0] for row in rows]))
            together |= _rows(type_messages(columns, SPEC, IN_MESSAGES))
    assert repr(sorted(together.items())) == repr(sorted(found.items())), f"seed {seed}: many messages differ from few"


def _checked(raw: bytes, message: Message, found: tuple | Bad | None, where: str) -> str:
    """Return how a message ended; raise AssertionError if that is wrong."""
    said, about = judge(raw), (message.kind, message.operation, message.schema, message.table)
    shown = f"({where}): {raw!r}\n  it says {said}\n  the core reads {about}, {found}"
    if said is None:  # what can be told of it is told by its end
        assert found in (None, Bad(FIELDS)) and message.fault, f"READ {shown}"
        return "no message" if found is None else "bad rows"
    assert about == said.about, f"WRONG {shown}"
    if said.row is None:
        assert found is None, f"WRONG {shown}"
        return "control, a load, or of another table"
    assert found is not None and _agree(said.row, found), f"WRONG {shown}"
    return "bad rows" if isinstance(found, Bad) else "right rows"


def _check_latest(changes: Changes, found: dict[int, tuple | Bad], seed: int) -> None:
    """Require the last row of each key that a replay leaves."""
    replay = {row[1]: None if row[0] == "D" else row[1:] for row in found.values() if not isinstance(row, Bad)}
    latest = latest_per_key(pa.Table.from_batches([changes.rows]), SPEC).rows.to_pylist()
    rows = [tuple(row[f"new_{i}"] for i in range(len(NAMES))) for row in latest]
    kept = {values[0]: None if row["op"] == "D" else values for row, values in zip(latest, rows, strict=True)}
    assert repr(sorted(kept.items())) == repr(sorted(replay.items())), f"seed {seed}: the last row per key differs"


def _check_names(sent: list[bytes], messages: Sequence[Message], found: dict[int, tuple | Bad], seed: int) -> None:
    """Require that every name of a good row's data is known."""
    good = [n for n, row in found.items() if not isinstance(row, Bad)]
    named = {name for n in good for name in messages[n].data} - set(NAMES)
    there = set().union(*(_names_in(sent[n]) for n in good)) - set(NAMES)
    assert named == there, f"seed {seed}: unknown columns {there}, but {named} were named"


def _names_in(raw: bytes) -> set[str]:
    return set(json.JSONDecoder().raw_decode(raw.decode(errors="replace").lstrip())[0]["data"])
