"""Mutated messages of a stream: each must end as a right row, as one set aside, or as what is named; never as a wrong or lost row.

The judge below reads the bytes itself, in plain Python, and shares no code with Frazil.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "lib")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from frazil.changes.changeset import change_set  # noqa: E402
from frazil.changes.collapse import last_per_key  # noqa: E402
from frazil.config.spec import parse_spec  # noqa: E402
from frazil.core.messages import MessageNames, columns_of, gather, type_columns, type_messages  # noqa: E402
from frazil.dms.mappings import Mappings  # noqa: E402
from frazil.dms.messages import CHANGE_PHASE, common_fields, raw_rows, routed  # noqa: E402
from frazil.engine.held_messages import changes_of, parse_messages  # noqa: E402
from frazil.engine.message_blocks import is_change  # noqa: E402
from frazil.engine.quarantine_records import unreadable_records  # noqa: E402
from frazil.flows.stream_groups import groups_of, groups_of_messages  # noqa: E402
from frazil.flows.unreadable import READABLE  # noqa: E402
from helpers import spec_of  # noqa: E402
from mutated_files import BAD, value_of  # noqa: E402

COLUMNS = ["id INT8", "n INT4", "price NUMERIC(12,2)", "w REAL8", "d DATE", "at DATETIME", "flag BOOLEAN", "raw BYTES(9)",
           "note NCLOB"]  # fmt: skip
NAMES, KINDS = zip(*(c.split(" ") for c in COLUMNS), strict=True)
SPEC = parse_spec(spec_of("public.t", *COLUMNS))
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


def _text(message, r: random.Random) -> str:
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
    raw = _text(message, r).encode()
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


class _Number(str):
    """A number as it is written."""


def _meaning(kind: str, value):
    if value is None:
        return None
    if isinstance(value, bool):
        value = "true" if value else "false"
    if isinstance(value, dict | list):
        return ... if kind == "NCLOB" else BAD  # as a text, in whatever way it is written
    if any(c == "\ufffd" or "\ud800" <= c <= "\udfff" for c in str(value)):  # half of a surrogate pair is no character
        return BAD
    if kind == "DATETIME" and not isinstance(value, _Number) and value.endswith("Z"):
        value = value.replace("T", " ").replace("Z", " ")
    return ... if kind == "REAL8" and value == "NaN" else value_of(str(value), kind)


def judge(raw: bytes) -> tuple | None:
    """Return what a message says of the table, as (op, values), or (op, BAD); None: nothing, or nothing that can be read."""
    try:
        decoder = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=lambda c: 1 / 0)
        text = raw.decode(
            errors="replace"
        ).lstrip()  # what is no UTF-8 spoils the value that it stands in, and no other
        message, end = decoder.raw_decode(text)  # junk behind the message changes nothing, another message does
        about = message["metadata"]
        if (about["record-type"], about["schema-name"], about["table-name"]) != ("data", "public", "t"):
            return None
        if about["operation"] == "load" or not isinstance(about["operation"], str):
            return None
    except (ValueError, TypeError, KeyError, ZeroDivisionError, RecursionError):
        return None
    data, stamp = message.get("data"), about.get("commit-timestamp")
    if text[end:].lstrip().startswith("{") or not isinstance(data, dict) or about["operation"] not in OPS:
        return about["operation"], BAD
    values = tuple(_meaning(k, data.get(n)) for n, k in zip(NAMES, KINDS, strict=True))
    bad = values[0] is None or BAD in values or (stamp is not None and _meaning("DATETIME", stamp) is BAD)
    return OPS[about["operation"]], BAD if bad else values


def _same(said: tuple, got: tuple) -> bool:
    return (
        said[0] == got[0]
        and said[1] is not BAD
        and all(s is ... or s == g for s, g in zip(said[1], got[1], strict=True))
    )


def _unknown(raw: bytes) -> set[str]:
    try:
        return set(json.loads(raw.decode())["data"]) - set(NAMES)
    except (ValueError, TypeError, KeyError):
        return set()


# --- what Frazil makes of them


def run(count: int, seed: int = 1, spark=None) -> dict[str, int]:
    """Mutate `count` messages and judge what becomes of each; raise AssertionError with the first that went wrong."""
    if spark is None:
        from frazil.config.session import get_spark
        from frazil.config.settings import Settings

        spark = get_spark(Settings(root=tempfile.mkdtemp(prefix="frazil-torture-")))
    r, sent = random.Random(seed), []
    for number in range(count):
        sent.append(_mutated(r, number))
        if r.random() < 0.1:  # sent twice, or before one that was sent earlier
            sent.insert(r.randrange(max(0, len(sent) - 20), len(sent)), r.choice(sent[-20:]))
    by_core = _check_core(sent, seed)
    rows = [("s/0", n, datetime.now(UTC), bytearray(raw)) for n, raw in enumerate(sent)]
    fields = common_fields([SPEC], Mappings(()), "before-image")
    sent_rows = spark.createDataFrame(rows, "object string, offset bigint, arrived timestamp, value binary")
    frame = routed(sent_rows, fields).cache()
    readable = {
        x.offset: (x.kind, x.schema, x.table)
        for x in frame.where("operation is not null and kind is not null").collect()
    }
    mine = frame.where("kind = 'data' and schema = 'public' and table = 't' and operation <> 'load'")
    changes = change_set(raw_rows(mine, SPEC, Mappings(()), "before-image", CHANGE_PHASE, "kafka://", 1), SPEC).cache()
    got = {}
    for x in changes.selectExpr("row_no", "op", "if(bad is null, after, null) as after").collect():
        values = x.after and tuple(bytes(v) if isinstance(v, bytearray) else v for v in x.after)
        got[x.row_no] = x.op, values or BAD
    lost = unreadable_records(frame.where(f"not {READABLE}"), "kafka://", "batch").collect()
    lost = {int(x.row_no): bytes(x.raw) for x in lost}
    counts, replay = Counter(), {}
    for n, raw in enumerate(sent):
        said, found = judge(raw), got.get(n)
        assert not (found and n in lost), f"TWICE (seed {seed}): message {n} {raw!r}"
        if found and found[1] is not BAD:
            assert said and _same(said, found), f"WRONG (seed {seed}): message {n} {raw!r}: {found}, and it says {said}"
            counts["right rows"] += 1
            replay[found[1][0]] = None if found[0] == "D" else found[1]
        elif found:
            counts["rows set aside"] += 1
            assert not said or said[1] is BAD or _doubtful(raw), (
                f"a good row set aside (seed {seed}): message {n} {raw!r}"
            )
        else:
            counts["set aside, as it tells no table" if n in lost else "control, or of another table"] += 1
            assert lost.get(n, raw) == raw and (n in lost or n in readable), f"LOST (seed {seed}): message {n} {raw!r}"
            assert said is None, f"LOST (seed {seed}): message {n} {raw!r}: it says {said}"
    last = last_per_key(changes.where("bad is null"), SPEC).collect()
    kept = {
        x.after["id"]: None if x.op == "D" else tuple(bytes(v) if isinstance(v, bytearray) else v for v in x.after)
        for x in last
    }
    assert kept == replay, f"seed {seed}: the last row per key differs"
    named = {c for g in groups_of(frame) for c in g.columns} - set(NAMES)
    missed = set().union(*(_unknown(raw) for n, raw in enumerate(sent) if got.get(n, (0, BAD))[1] is not BAD)) - named
    assert not missed, f"seed {seed}: unknown columns {missed} were not named"
    for held in (frame, changes):
        held.unpersist()
    return dict(counts) | by_core


def _check_core(sent: list[bytes], seed: int) -> dict[str, int]:
    """Judge what the core makes of messages that this process holds; what it calls bad is Spark's to judge."""
    held = parse_messages([("s/0", n, 0, raw) for n, raw in enumerate(sent)], "before-image")
    mine = changes_of(held, ("public", "t"), {})
    found = type_messages(
        [m.message for m in mine], np.array([m.place for m in mine]), SPEC, MessageNames({n: n for n in NAMES})
    )
    bad, good = {row.number for row in found.bad}, _rows(found)
    together = {}
    for key, rows in gather(sent, "before-image").items():
        if (key.schema, key.table) == ("public", "t") and is_change(*key[:4]):
            columns = columns_of(key, rows, pa.array([row[0] for row in rows]))
            together |= _rows(type_columns(columns, SPEC, MessageNames({n: n for n in NAMES})))
    assert repr(sorted(together.items())) == repr(sorted(good.items())), f"seed {seed}: many messages differ from few"
    assert sorted([*good, *bad]) == [m.place for m in mine], f"seed {seed}: the core lost a message"
    for n, raw in enumerate(sent):
        said = judge(raw)
        if n in good:
            assert said and _same(said, good[n]), (
                f"WRONG by the core (seed {seed}): message {n} {raw!r}: {good[n]}, and it says {said}"
            )
        elif n in bad:
            assert not said or said[1] is BAD or _doubtful(raw), (
                f"a good row refused by the core (seed {seed}): message {n} {raw!r}"
            )
        else:
            assert said is None, f"LOST by the core (seed {seed}): message {n} {raw!r}: it says {said}"
    named = {c for g in groups_of_messages(held) for c in g.columns} - set(NAMES)
    missed = set().union(*(_unknown(sent[n]) for n in good)) - named
    assert not missed, f"seed {seed}: the core did not name unknown columns {missed}"
    return {"right rows by the core": len(good), "left by the core to Spark": len(bad)}


def _rows(changes) -> dict[int, tuple]:
    """The operation and the values of each good row, by its number."""
    rows = changes.rows
    values = zip(*[rows[f"new_{i}"].to_pylist() for i in range(len(NAMES))], strict=True)
    return dict(zip(rows["number"].to_pylist(), zip(rows["op"].to_pylist(), values, strict=True), strict=True))


def _doubtful(raw: bytes) -> bool:
    """Whether it is fair to set a message aside that can be read: a nested value, a number where a text should be, a moment in another form.

    Also a whole number with a point or an exponent, which `test_exact_values` expects to be read one day.
    """
    texts = re.search(rb'"(id|n|w)":\s*("|true)|"(id|n)":\s*-?[0-9]+[.eE]|"note":\s*-?[0-9]+[.eE]|\.[0-9]{7,}Z"', raw)
    moments = re.findall(rb'"(?:at|commit-timestamp)":\s*"([^"]*)"', raw)
    forms = [re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.]\d{1,6})?Z", m) for m in moments]
    return (
        bool(texts)
        or None in forms
        or b"[1]" in raw
        or b'" 7 "' in raw
        or b'{"a"' in raw.replace(b" ", b"").replace(b"\t", b"")
        or b"\\u0000" in raw
    )


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
