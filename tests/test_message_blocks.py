"""The tasks that parse and collapse many messages find what this process finds in the same messages; no Spark."""

import itertools
import json
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from frazil.config.spec import parse_spec
from frazil.core.messages import MessageNames
from frazil.dms.streams import ARRIVED
from frazil.engine import message_blocks
from frazil.engine.collapsed import Wanted
from frazil.engine.held_messages import changes_of, parse_messages
from frazil.engine.large_batch import RowForm, collapsed_rows, collapsing, counted_blocks
from frazil.engine.message_blocks import Part, Reading
from frazil.engine.small_batch import collapse_messages
from frazil.flows.stream_groups import groups_of_facts, groups_of_messages
from frazil.report.latency import QUANTILES
from helpers import spec_of

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


def _parsed(sent, rows: int = 70, digits: int = 0) -> pa.Table:
    return pa.Table.from_batches(message_blocks._parsing("before-image")(_batches(sent, rows, digits)))


def _blocks(parsed: pa.Table, table: str = "t") -> list[pa.RecordBatch]:
    mine = parsed.filter(pa.compute.equal(parsed["table"], table)).select(["object", "block"])
    return mine.to_batches(3)


def _collapsed(blocks, part: Part, buckets: int = 3):
    """Run the tasks that type and collapse blocks, one after another."""
    reading = Reading(SPEC, NAMES, part, {"s/0": 0, "s/1": 1}, 2)
    numbers = list(range(buckets))
    read = list(counted_blocks(reading.changes_of(iter(blocks)), SPEC, 1, numbers))
    random.Random(buckets).shuffle(read)
    return collapsed_rows(
        pa.Table.from_batches(collapsing(RowForm(SPEC))(iter(read))), RowForm(SPEC), Wanted(QUANTILES)
    )


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
    held = changes_of(parse_messages(sent, "before-image"), ("public", "t"), begin, before)
    here = collapse_messages(SPEC, NAMES, held, 2, Wanted(QUANTILES))
    there = _collapsed(_blocks(_parsed(sent, digits=digits)), Part(("public", "t"), begin, before))
    assert len(here.rows) > 15 and _by_key(there.rows) == _by_key(here.rows)
    assert (there.seen, there.keys, there.bounds) == (here.seen, here.keys, here.bounds)


@pytest.mark.parametrize("digits", [0, 56])
def test_facts_of_tasks_make_the_groups_that_messages_make(digits):
    sent = _sent(3)
    facts = [
        fact for text in _parsed(sent, digits=digits)["facts"].drop_null().to_pylist() for fact in json.loads(text)
    ]

    def known(groups):
        alike = [replace(g, columns=tuple(sorted(g.columns)), records=tuple(sorted(g.records))) for g in groups]
        return sorted(map(repr, alike))

    ours, theirs = groups_of_facts(facts), groups_of_messages(parse_messages(sent, "before-image"))
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
