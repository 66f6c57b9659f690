"""The tasks that parse and collapse many messages find what this process finds in the same messages; no Spark."""

import itertools
import json
import random
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.core.changes import Changes
from frazil_old.core.messages import Message, MessageNames, is_readable, parse_message, seconds_of, with_sequence
from frazil_old.dms.control_records import DEFINING_OPERATIONS
from frazil_old.dms.stream_source import ARRIVED
from frazil_old.engine import message_batch, message_blocks
from frazil_old.engine.collapsed_batch import Tally, Wanted
from frazil_old.engine.large_batch import collapsed_rows, counted_blocks, ordering
from frazil_old.engine.message_blocks import Part, PartReading
from frazil_old.engine.row_form import RowForm
from frazil_old.flows.stream_read import Group, groups_of_facts
from helpers import spec_of, type_parsed

COLUMNS = ("id INT8", "n INT4", "price NUMERIC(12,2)", "flag BOOLEAN", "at DATETIME", "v NCLOB")
SPEC = parse_spec(spec_of("public.t", *COLUMNS))
NAMES = MessageNames({name: name for name in SPEC.names})


def _message(r: random.Random, number: int) -> bytes:
    kind = r.choice(("insert", "update", "update", "delete"))
    moved = kind == "update" and r.random() < 0.3
    about = {
        "timestamp": f"2026-01-01T01:00:00.{number:06d}Z", "record-type": "data", "operation": kind, "schema-name": "public",
        "table-name": r.choice("tttu"), "commit-timestamp": f"2026-01-01T00:00:{r.randrange(60):02d}.{number:06d}Z",
        "partition-key-type": "schema-table",
    }  # fmt: skip
    if r.random() < 0.1:
        about |= r.choice(
            ({"record-type": "control", "operation": "add-column"}, {"operation": "load"}, {"table-name": None})
        )
    data = {
        "id": r.randrange(30, 40) if moved else r.randrange(30), "n": r.choice((None, number)), "price": r.choice((None, 0.25, 7)),
        "flag": r.choice((None, True, False)), "at": r.choice((None, f"1969-12-31T23:59:59.{number:06d}Z")), "v": r.choice((None, "", "é '\\\n")),
    }  # fmt: skip
    if r.random() < 0.2:
        del data["v"]
    image = {"before-image": {"id": r.randrange(30)}} if moved else {}
    return json.dumps({"data": data, **image, "metadata": about}).encode()


def _sent(seed: int, count: int = 300) -> list[tuple[str, int, int, bytes | None]]:
    """Messages of two partitions, as a stream's own client returns them."""
    r, places = random.Random(seed), {"s/0": itertools.count(90), "s/1": itertools.count(5)}
    sent = []
    for number in range(count):
        partition = r.choice([*places])
        value = None if r.random() < 0.02 else _message(r, number)
        sent.append((partition, next(places[partition]), 1000 + number, value))
    return sent


def _batches(sent, rows: int, digits: int = 0):
    """The same in Arrow, as Spark hands them to a task: numbers as places, or texts of so many digits."""
    for start in range(0, len(sent), rows):
        partitions, places, arrived, values = zip(*sent[start : start + rows], strict=True)
        offsets = [f"{p:0{digits}}" for p in places] if digits else list(places)
        yield pa.RecordBatch.from_pydict(
            {"object": partitions, "offset": offsets, "arrived": arrived, "value": pa.array(values, pa.binary())}
        )


def _parsed(sent, rows: int = 70, digits: int = 0, loads: bool = False) -> pa.Table:
    return pa.Table.from_batches(message_blocks._parsing("before-image", loads)(_batches(sent, rows, digits)))


def _blocks(parsed: pa.Table, table: str = "t") -> list[pa.RecordBatch]:
    mine = parsed.filter(pa.compute.equal(parsed["table"], table)).select(["object", "block"])
    return mine.to_batches(3)


def _reading(part: Part, spec=SPEC) -> PartReading:
    return PartReading(spec, NAMES, part, {"s/0": 0, "s/1": 1}, 2, scheme="kafka://")


def _collapsed(blocks, part: Part, buckets: int = 3):
    """Run the tasks that type and collapse blocks, one after another."""
    reading = _reading(part)
    numbers = list(range(buckets))
    read = list(counted_blocks(reading.changes_of(iter(blocks)), SPEC, numbers, Tally()))
    random.Random(buckets).shuffle(read)
    return collapsed_rows(
        pa.Table.from_batches(ordering(RowForm(SPEC), with_keys=False)(iter(read))), RowForm(SPEC), Wanted()
    )


# --- the same of one message after the other


@dataclass(frozen=True)
class Parsed:
    partition: str
    place: int
    arrived_ms: int
    value: bytes | None
    message: Message


def messages_of(sent, table, begin, before=None, loads=False) -> list[Parsed]:
    """Return a table's changes, or load records, from a position on, and before a place of one partition."""
    every = [Parsed(*m, parse_message(m[3])) for m in sent]
    mine = [m for m in every if m.message.kind == "data" and (m.message.schema, m.message.table) == table]
    mine = [m for m in mine if m.message.operation is not None and (m.message.operation == "load") == loads]
    mine = [m for m in mine if m.place >= begin.get(m.partition, 0) and m.arrived_ms >= begin.get(ARRIVED, 0)]
    return mine if before is None else [m for m in mine if m.partition == before[0] and m.place < before[1]]


def collapse_messages(messages, reading, wanted):
    """Return the last change per key of messages in one piece, in the order of partitions and places."""
    in_order = sorted(messages, key=lambda m: (reading.order[m.partition], m.place))
    orders = np.array([reading.order[m.partition] for m in in_order], "int32")
    parsed, numbers = [m.message for m in in_order], np.arange(len(in_order))
    changes = type_parsed(parsed, numbers, reading.spec, reading.names, reading.spread_over)
    good, tally = changes.rows["number"].to_numpy(), Tally(wanted.most_bad)
    tally.add(0, Changes(changes.rows), seconds_of(pa.array([parsed[n].built for n in good], pa.string())))
    bad = [replace(row, place=str(in_order[row.number].place)) for row in changes.bad]
    for order, rows in groupby(bad, key=lambda row: orders[row.number]):
        tally.bad.add(int(order), [*rows])
    rows = changes.rows
    if reading.spec.policy == "key":
        rows = with_sequence(rows, pa.array([in_order[n].arrived_ms for n in good], pa.int64()))
    rows = rows.append_column("file_order", pa.array(orders[good]))
    return message_batch._of_messages(pa.Table.from_batches([rows]), reading, wanted, tally)


def groups_of_messages(messages) -> list[Group]:
    found: dict[tuple, list[Parsed]] = {}
    for m in messages:
        said = m.message
        found.setdefault((m.partition, said.kind, said.operation, said.schema, said.table), []).append(m)
    return [_group_of(key, mine) for key, mine in found.items()]


def _group_of(key, messages) -> Group:
    _, kind, operation, *_ = key
    first = min(messages, key=lambda m: m.place)
    readable = is_readable(*key[1:])
    sample = None if readable or first.value is None else first.value.decode("utf-8", "replace")[:200]
    columns = {name for m in messages for name in m.message.data} if kind == "data" else set()
    definitions = messages if kind == "control" and operation in DEFINING_OPERATIONS else []
    records = tuple((m.message.built or "", m.place, (m.value or b"").decode("utf-8", "replace")) for m in definitions)
    return Group(
        *key, readable, len(messages), first.place,
        max(m.place for m in messages), min(m.arrived_ms for m in messages), sample, tuple(columns), records,
    )  # fmt: skip


def places_of(messages):
    for partition in {m.partition for m in messages}:
        mine = [m for m in messages if m.partition == partition]
        yield partition, pa.table({"place": [m.place for m in mine], "arrived": [m.arrived_ms for m in mine]})


def _by_key(rows: pa.Table) -> list[dict]:
    kept = rows.select(["op", *(f"c{i}" for i in range(len(COLUMNS)))])
    return sorted(kept.to_pylist(), key=lambda row: row["c0"])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(message_blocks, "PARSED_AT_ONCE", 13)
    monkeypatch.setattr(message_blocks, "AT_ONCE", 100)


@pytest.mark.parametrize("digits", [0, 56])
@pytest.mark.parametrize(
    ("begin", "before"),
    [({"s/0": 0, "s/1": 0}, None), ({"s/0": 150, "s/1": 40}, None), ({"s/0": 100, "s/1": 0}, ("s/0", 190)), ({"s/0": 0, "s/1": 0, ARRIVED: 1100}, None)],
)  # fmt: skip
def test_tasks_collapse_a_part_as_this_process_does(digits, begin, before):
    sent = _sent(digits + len(begin))
    held = messages_of(sent, ("public", "t"), begin, before)
    part = Part(("public", "t"), begin, before)
    here = collapse_messages(held, _reading(part), Wanted())
    there = _collapsed(_blocks(_parsed(sent, digits=digits)), part)
    assert len(here.rows) > 15 and _by_key(there.rows) == _by_key(here.rows)
    assert (there.counts_and_delays, there.keys, there.bounds) == (here.counts_and_delays, here.keys, here.bounds)


@pytest.mark.parametrize("digits", [0, 56])
def test_facts_of_tasks_make_the_groups_that_messages_make(digits):
    sent = _sent(3)
    facts = [
        fact for text in _parsed(sent, digits=digits)["facts"].drop_null().to_pylist() for fact in json.loads(text)
    ]

    def known(groups):
        alike = [replace(g, columns=tuple(sorted(g.columns)), records=tuple(sorted(g.records))) for g in groups]
        return sorted(map(repr, alike))

    ours, theirs = groups_of_facts(facts), groups_of_messages(Parsed(*m, parse_message(m[3])) for m in sent)
    assert known(ours) == known(theirs) and len(ours) > 12


def test_a_bad_row_in_a_part_is_counted_and_one_outside_is_not():
    bad = json.loads(_message(random.Random(1), 1))
    bad["data"]["n"] = 3_000_000_000
    bad["metadata"] |= {"record-type": "data", "operation": "insert", "table-name": "t"}
    sent = [*_sent(5, 60), ("s/0", 500, 2000, json.dumps(bad).encode())]
    blocks, begin = _blocks(_parsed(sent)), {"s/0": 0, "s/1": 0}
    assert _collapsed(blocks, Part(("public", "t"), begin)).bad.count == 1
    assert _collapsed(blocks, Part(("public", "t"), begin, ("s/0", 500))).bad.count == 0


def test_an_odd_name_of_a_column_does_not_stop_a_task():
    message = json.loads(_message(random.Random(1), 1))
    message["metadata"] |= {"record-type": "data", "operation": "insert", "table-name": "t"}
    raw = json.dumps(message).replace('"data": {', '"data": {"\\ud800": 1, "\\ud801": 2, ').encode()
    assert _collapsed(_blocks(_parsed([("s/0", 1, 1, raw)])), Part(("public", "t"), {"s/0": 0})).keys == 1


@pytest.mark.parametrize(
    "name", ["record-type", "operation", "schema-name", "table-name", "timestamp", "partition-key-type"]
)
def test_odd_metadata_do_not_stop_a_task(name):
    message = json.loads(_message(random.Random(1), 1))
    message["metadata"] |= {"record-type": "data", "operation": "insert", "table-name": "t", name: "?"}
    raw = json.dumps(message).replace('"?"', '"\\ud800"').encode()
    (facts,) = _parsed([("s/0", 1, 1, raw)])["facts"].drop_null().to_pylist()
    assert json.loads(facts)[0]["count"] == 1


# --- blocks that this process collapses


def _rows(found) -> list[str]:
    return sorted(str(row) for row in found.rows.to_pylist())


def _with_bad(seed: int, count: int = 200) -> list[tuple[str, int, int, bytes | None]]:
    """Messages of which every tenth has a bad value, is broken, has no key, or has an unknown operation."""
    sent, r = _sent(seed, count), random.Random(seed)
    for i in range(0, count, 10):
        partition, place, at, _ = sent[i]
        message = json.loads(_message(r, i))
        message["metadata"] |= {"record-type": "data", "operation": ("insert", "load")[i // 10 % 2], "table-name": "t"}
        way = r.randrange(4)
        message["data"] |= {"n": 3_000_000_000} if way == 0 else {"id": None} if way == 1 else {}
        message["metadata"] |= {"operation": "truncate"} if way == 2 else {}
        text = json.dumps(message)
        sent[i] = partition, place, at, (text.replace('"id":', '"id" ', 1) if way == 3 else text).encode()
    return sent


@pytest.mark.parametrize("digits", [0, 56])
@pytest.mark.parametrize("policy", ["key", "append", "multiset"])
@pytest.mark.parametrize("loads", [False, True])
def test_blocks_in_this_process_mean_what_few_messages_mean(digits, policy, loads):
    without = {} if policy == "key" else {"key": [], "without_key": policy}
    spec = parse_spec(spec_of("public.t", *COLUMNS) | without)
    sent, part = _with_bad(digits, 900 if loads else 200), Part(("public", "t"), {"s/0": 0, "s/1": 0}, loads=loads)
    held = messages_of(sent, part.table, part.begin, loads=loads)
    wanted = Wanted(places=policy == "key", most_bad=99)
    here = collapse_messages(held, _reading(part, spec), wanted)
    there = message_batch.collapse_part(_parsed(sent, digits=digits, loads=loads), _reading(part, spec), 0, wanted)
    places = [name for name in ("file_order", "number") if name in here.rows.column_names]
    mine, theirs = (replace(x, rows=x.rows.drop_columns(places)) for x in (here, there))
    assert len(mine.rows) > 5 and _rows(mine) == _rows(theirs)
    assert (mine.counts_and_delays, mine.keys) == (theirs.counts_and_delays, theirs.keys)
    assert [p.path for p in there.files] == ["kafka://s/0", "kafka://s/1"]

    def told(found):
        return [(order, int(b.place), b.column, b.reason, replace(b.kept)) for order, b in found.bad.rows]

    assert told(here) == told(there) and here.bad.count == there.bad.count > 5


def test_the_place_of_a_row_is_its_partition_and_then_its_offset():
    sent, part = _sent(8, 60), Part(("public", "t"), {"s/0": 0, "s/1": 0})
    held = messages_of(sent, ("public", "t"), part.begin)
    for found in (
        collapse_messages(held, _reading(part), Wanted(places=True)),
        message_batch.collapse_part(_parsed(sent, digits=56), _reading(part), 0, Wanted(places=True)),
    ):
        places = {*zip(*(found.rows[name].to_pylist() for name in ("file_order", "number", "c0")), strict=True)}
        assert len(places) == len(found.rows) and {order for order, *_ in places} == {0, 1}
    last = {}  # of each key, the last change is that of the last partition that has one
    for m in sorted(held, key=lambda m: (m.partition, m.place)):
        for key in (m.message.data["id"], *([m.message.old["id"]] if m.message.old else [])):
            last[key] = m.partition
    rows = zip(found.rows["c0"].to_pylist(), found.rows["file_order"].to_pylist(), strict=True)
    assert {key: f"s/{order}" for key, order in rows} == last


def test_the_first_bad_messages_of_each_partition_are_kept():
    sent = _with_bad(4, 400)
    part = Part(("public", "t"), {"s/0": 0, "s/1": 0})
    found = message_batch.collapse_part(_parsed(sent, rows=29), _reading(part), 0, Wanted(most_bad=2))
    every = message_batch.collapse_part(_parsed(sent, rows=29), _reading(part), 0, Wanted(most_bad=999))
    assert found.bad.count == every.bad.count == len(every.bad.rows)
    for order in (0, 1):
        mine, all_of_them = ([b.place for o, b in x.bad.rows if o == order] for x in (found, every))
        assert mine == all_of_them[:2] and all_of_them == sorted(all_of_them, key=int)


def test_blocks_of_load_records_have_only_the_places_of_changes():
    sent = _sent(6, 900)
    parsed = _parsed(sent, loads=True)
    for loads in (True, False):
        part = Part(("public", "t"), {"s/0": 120, "s/1": 0}, loads=loads)
        held = messages_of(sent, ("public", "t"), part.begin, loads=loads)
        times = message_blocks.find_places(parsed, part, message_blocks.arrivals)
        assert len(held) > 3 and min(at for _, at, _ in times) == min(m.arrived_ms for m in held)
        assert max(at for *_, at in times) == max(m.arrived_ms for m in held)
    names = {
        name
        for _, rows in part.rows_of(parsed.filter(pa.compute.equal(parsed["loads"], False)))
        for name in rows.column_names
    }
    assert names == {"number", "place", "arrived"}


@pytest.mark.parametrize("digits", [0, 56])
def test_changes_around_load_records_are_found_in_blocks_as_in_few_messages(digits):
    sent, part = _sent(9), Part(("public", "t"), {"s/0": 0, "s/1": 0})
    parsed = _parsed(sent, digits=digits, loads=True)
    held = messages_of(sent, ("public", "t"), part.begin)
    for last, seen, first, newest in (
        ({"s/0": 150}, {"s/0": 300, "s/1": 60}, 1100, 1150),
        ({"s/1": 20}, {"s/1": 30}, 0, 0),
        ({"s/0": 90}, {}, 1030, 0),
    ):
        around = message_blocks.Around(last, seen, first, newest)
        found = message_blocks.find_places(parsed, part, around)
        few = [(p, *around(p, rows)) for p, rows in places_of(held)]
        after = [
            m for m in held if last.get(m.partition, -1) < m.place < seen.get(m.partition, 0) and m.arrived_ms >= newest
        ]
        is_before = [m.place < last[m.partition] if m.partition in last else m.arrived_ms < first for m in held]
        early = [m for m, is_early in zip(held, is_before, strict=True) if is_early]
        before = {p: max((m.place for m in early if m.partition == p), default=None) for p in part.begin}
        for told in (found, few):
            assert sum(count for *_, count in told) == len(after)
            assert {p: max((b for q, b, _ in told if q == p and b is not None), default=None) for p in before} == before


def test_tables_of_one_name_are_told_apart_by_an_added_column():
    def message(n, **data):
        about = {"record-type": "data", "operation": "insert", "schema-name": "public", "table-name": "t"}
        return "s/0", n, n, json.dumps({"data": {"id": n, **data}, "metadata": about}).encode()

    sent = [message(1, v="mine"), message(2, v="other"), message(3), message(4, v="mine")]
    names = replace(NAMES, origin={"v": "mine"})
    part = Part(("public", "t"), {"s/0": 0})
    reading = replace(_reading(part), names=names)
    held = messages_of(sent, ("public", "t"), {"s/0": 0})
    for found in (
        collapse_messages(held, reading, Wanted()),
        message_batch.collapse_part(_parsed(sent), reading, 0, Wanted()),
    ):
        assert sorted(found.rows["c0"].to_pylist()) == [1, 4]
        ((_, bad),) = found.bad.rows
        assert (bad.place, bad.reason) == ("3", "no value in v, which names its table")
