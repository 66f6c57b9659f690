"""Where a stream begins and a load ends; messages that are gone, unreadable or elsewhere; partitions, shards and topics; tables without a spec."""

from __future__ import annotations

import itertools
import json
import re
import time

import pytest

from dms_streams import Shards, Topic
from dms_writer import STAMP, D, I, U, data_message

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
JUNK = '{"data": {"id"'


@pytest.fixture
def stream(open_world, request):
    """Make a world whose source is a stream of a kind, with some tables."""

    def make(*tables: str, kind: str = "kafka", target: dict | None = None, **settings):
        w = open_world(**settings)
        for table in tables or ("t",):
            w.table(table)
        return w, {"kafka": Topic, "kinesis": Shards}[kind](w, request.getfixturevalue(kind), **(target or {}))

    return make


@pytest.fixture
def two_topics(stream, kafka):
    """Make a world whose tables have a topic each; `rules` say so to the library."""

    def make(*tables: str, rules: bool = True):
        w, one = stream(*tables)
        other = Topic(w, kafka, name=f"{one.name}b")
        w.stream, w.source = f"kafka://{kafka.brokers}/{one.name},{other.name}", one
        if rules:
            mapped(one, **dict(zip(tables, (one.name, other.name), strict=False)))
        return w, one, other

    return make


def mapped(source, **topics: str) -> None:
    """Let rules of the task map tables to topics."""
    source.rules = {"rules": [
        {"rule-type": "object-mapping", "rule-id": str(n), "rule-name": table, "rule-action": "map-record-to-record",
         "kafka-target-topic": topic, "object-locator": {"schema-name": "public", "table-name": table}}
        for n, (table, topic) in enumerate(topics.items(), 1)
    ]}  # fmt: skip


def record(operation: str, table: str = "t", was: dict | None = None, schema: str = "public", spread: str = "schema-table", **row) -> str:  # fmt: skip
    """Return a data message."""
    return data_message(operation, table, row, was, schema_name=schema, partition_key_type=spread)


def definition(schema: str, table: str, key: list[str], **columns) -> str:
    """Return the control record of a table that was created; a column is a type or all that a record says of it."""
    told = {n: {"nullable": True, **(c if isinstance(c, dict) else {"type": c})} for n, c in columns.items()}
    metadata = {"timestamp": STAMP, "record-type": "control", "operation": "create-table", "schema-name": schema, "table-name": table}  # fmt: skip
    return json.dumps({"control": {"table-def": {"columns": told, "primary-key": key}}, "metadata": metadata})


def cut(kafka, topic: str, until: int) -> None:
    """Let a topic's messages before an offset expire."""
    from confluent_kafka import TopicPartition

    admin = kafka.admin()
    for f in admin.delete_records([TopicPartition(topic, 0, until)]).values():
        f.result(30)


def statuses(results) -> dict[str, str]:
    """Return the status of each table."""
    return {t: r.status for t, r in results.items()}


# --- where a table begins, and when its load is whole


@pytest.mark.parametrize("where", ["latest", "time", "places"])
@pytest.mark.parametrize("kind", ["kafka", "kinesis"])
def test_a_table_begins_where_it_is_told_and_never_at_a_guess(stream, kind, where):
    w, s = stream(kind=kind, stream_start="")
    s.send(record("insert", id=1, v="before"))
    time.sleep(0.05)
    moment = time.time()
    time.sleep(0.05)
    place = f"{s.name}/0" if kind == "kafka" else f"{s.name}/{s.open()[0]['ShardId']}"
    start = {"latest": "latest", "time": f"{time.strftime('%FT%T', time.gmtime(moment))}.{int(moment % 1 * 1000):03}Z"}
    start["places"] = json.dumps({place: 1 if kind == "kafka" else 2})
    if where != "latest":
        s.send(record("insert", id=2, v="after"))
    w.setup()
    assert w.load()["t"].code == "no-start"
    w.load(stream_start=start[where])
    s.send(record("insert", id=3, v="later"))
    assert [r[0] for r in w.merged().rows("t")] == ([3] if where == "latest" else [2, 3])


def test_a_table_that_begins_at_a_time_beside_an_older_one_takes_no_load_from_before(stream):
    w, s = stream("t", kind="kinesis")
    s.send(record("load", "t", id=1, v="a"))
    s.send(record("load", "u", id=1, v="old"))
    w.loaded()
    time.sleep(1.1)
    start = time.strftime("%FT%TZ", time.gmtime())
    w.table("u").setup()
    for table in "ut":
        s.send(record("insert", table, id=2, v="b"))
    assert w.load(stream_start=start, load_complete_when="changes")["u"].status == "loaded"
    assert w.merged().rows("u") == [(2, "b")] and w.rows("t") == [(1, "a"), (2, "b")]


def test_a_table_waits_with_its_changes_until_its_load_is_whole(stream):
    w, s = stream(load_complete_when="changes")
    s.load("t", (1, "a"))
    w.setup()
    assert (w.load()["t"].status, w.merge()["t"].status) == ("waiting", "waiting")
    s.changes("t", U(1, "b"))
    told = {"SchemaName": "public", "TableName": "t", "TableState": "Table completed", "FullLoadRows": 2}
    (w.root / "statistics.json").write_text(json.dumps({"TableStatistics": [told]}))
    assert w.load(load_complete_when="statistics.json")["t"].status == "waiting"
    assert w.load()["t"].status == "loaded" and w.rows("t") == [(1, "a")]
    assert w.merged().rows("t") == [(1, "b")]


def test_changes_from_before_a_load_neither_end_it_nor_go_over_it(stream):
    """DMS spreads load records by the key, and has all changes of a table in one partition."""
    w, s = stream("t", "u", target={"partitions": 2}, load_complete_when="changes")
    for table in "tu":
        s.changes(table, U(1, "of an older task"), partition=1)
    time.sleep(0.01)  # the times of messages have milliseconds
    for table in "tu":
        s.load(table, (1, "a"))
    w.setup()
    assert statuses(w.load()) == {"t": "waiting", "u": "waiting"}
    s.load("t", (2, "b"), partition=1)
    s.changes("t", I(3, "c"))
    s.changes("u", I(3, "c"), partition=1)
    assert statuses(w.load()) == {"t": "loaded", "u": "loaded"}
    assert w.merged().rows("t") == [(1, "a"), (2, "b"), (3, "c")] and w.rows("u") == [(1, "a"), (3, "c")]
    s.changes("t", U(3, "d"))
    s.load("t", (1, "A"))
    assert w.decide("t", restart="pending").status == "waiting"
    s.load("t", (4, "D"), partition=1)
    s.changes("t", D(4), partition=1)
    assert w.decide("t", restart="pending").status == "reloaded"
    assert w.merged().rows("t") == [(1, "A")]


def test_two_loads_in_several_partitions_are_refused_until_the_start_is_between_them(stream):
    """A row that was deleted between the loads is in the first one alone. The changes of `u` have a partition of their own."""
    w, s = stream("t", "u", target={"partitions": 3}, load_complete_when="changes")
    sent = itertools.count(1_770_000_000_000, 2000)
    for operation, partition, key in [("load", 0, 1), ("load", 1, 2), ("delete", None, 2), ("load", 0, 1), ("load", 1, 3), ("insert", None, 4)]:  # fmt: skip
        at = next(sent)
        for table, own in (("t", 0), ("u", 2)):
            s.send(record(operation, table, id=key, v="a"), own if partition is None else partition, at_ms=at)
    w.setup()
    refused = w.load()
    assert {r.code for r in refused.values()} == {"two-loads"} and w.rows("t") == w.rows("u") == []
    start = re.search(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+[\d:]+)?", refused["t"].note)[0]
    assert statuses(w.load(stream_start=start)) == {"t": "loaded", "u": "loaded"}
    w.merged()
    assert [r[0] for r in w.rows("t")] == [r[0] for r in w.rows("u")] == [1, 3, 4]


# --- messages that are gone


def test_messages_that_expired_are_an_error_and_never_a_gap(stream, kafka):
    w, s = stream()
    w.loaded()
    s.changes("t", *[I(n, "a") for n in range(5)])
    cut(kafka, s.name, 3)
    result = w.merge()["t"]
    assert (result.code, w.lateness()["t"]["code"]) == ("expired", "expired") and result.names(s.name, "0", "2"), result
    assert w.rows("t") == []
    s.load("t", (9, "z"))
    s.changes("t", I(10, "y"))
    assert w.decide("t", restart="pending").status == "reloaded"
    assert w.merged().rows("t") == [(10, "y"), (9, "z")]


@pytest.mark.parametrize("again", [False, True])
def test_a_load_whose_first_records_may_have_expired_is_held(stream, kafka, again):
    w, s = stream(load_complete_when="changes")
    w.setup()
    if again:
        s.load("t", (100, "old"))
        s.changes("t", I(101, "old"))
        w.loaded()
    s.load("t", *[(n, "a") for n in range(4)])
    s.changes("t", I(9, "b"))
    cut(kafka, s.name, 5 if again else 3)

    def load():
        return w.decide("t", restart="pending") if again else w.load()["t"]

    assert load().status == "waiting" and w.rows("t") == ([(100, "old")] if again else [])
    s.control("create-table", "t")
    s.load("t", *[(n, "new") for n in range(4)])
    s.changes("t", I(10, "b"))
    assert load().counts["rows"] == 4
    assert sorted(w.merged().rows("t")) == [*((n, "new") for n in range(4)), (10, "b")]


def test_a_load_is_whole_where_only_what_lies_before_its_start_has_expired(stream, kafka):
    w, s = stream(load_complete_when="changes")
    s.changes("t", I(1, "old"))
    s.load("t", (1, "a"))
    s.changes("t", I(2, "b"))
    w.setup()
    cut(kafka, s.name, 1)
    assert w.load()["t"].status == "waiting"
    assert w.load(stream_start=json.dumps({f"{s.name}/0": 1}))["t"].counts["rows"] == 1


def test_a_kinesis_stream_that_is_made_anew_stops_its_tables_until_they_are_loaded_again(stream):
    w, s = stream(kind="kinesis")
    s.load("t", (1, "a"))
    w.loaded()
    s.changes("t", I(2, "b"))
    w.merged()
    s.client.delete_stream(StreamName=s.name)
    time.sleep(1.1)
    s.client.create_stream(StreamName=s.name, ShardCount=1)
    s.load("t", (9, "z"))
    s.changes("t", I(10, "y"))
    result = w.merge()["t"]
    assert result.code == "stream-replaced" and result.decision and w.rows("t") == [(1, "a"), (2, "b")]
    assert w.decide("t", restart="pending").status == "reloaded"
    assert sorted(w.merged().rows("t")) == [(9, "z"), (10, "y")]


def test_a_stream_that_is_not_there_is_named(stream):
    w, s = stream(kind="kinesis")
    w.setup()
    w.stream += "x"
    result = w.merge()["t"]
    assert result.failed and result.names(f"{s.name}x")


# --- what cannot be read


def test_messages_that_name_no_table_stop_all_or_are_set_aside_once(stream):
    w, s = stream("t", "u", on_bad_rows="quarantine")
    w.loaded()
    s.changes("t", I(1, "a"))
    for text in (JUNK, None, b"\xff\xfe no text", '{"metadata": {}}'):
        s.send(text)
    s.changes("t", I(2, "b"))
    s.send(record("insert", "other", id=1))
    stopped = w.merge()
    assert {(r.status, r.code) for r in stopped.values()} == {("failed", "unreadable")}
    assert stopped["t"].names(f"{s.name}/0", "offset 1") and w.rows("t") == []
    aside = {"on_unreadable": "quarantine"}
    assert w.merge(**aside, max_bad_rows=3)["t"].code == "too-many-bad-rows" and w.rows("t") == []
    assert w.merged(**aside, max_bad_rows=4).rows("t") == [(1, "a"), (2, "b")]
    assert any("public.other" in line for line in w.said)
    (line,) = (line for line in w.check() if f"{s.name}/0" in line)
    assert "4 messages" in line and "offset 1" in line
    s.send(JUNK)
    s.changes("u", I(1, "a"))
    w.merged(**aside, max_bad_rows=1)
    assert w.new_process().merge(**aside)["t"].status == "unchanged" and w.rows("u") == [(1, "a")]
    assert [line for line in w.check() if "5 messages" in line]


def test_what_a_transaction_leaves_in_the_log_is_no_message_and_no_gap(stream, kafka):
    from confluent_kafka import Producer

    w, s = stream()
    w.loaded()
    for n, way in enumerate(("commit_transaction", "abort_transaction") * 2):
        producer = Producer({"bootstrap.servers": kafka.brokers, "transactional.id": f"{s.name}{n}", "log_level": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(s.name, record("insert", id=n, v="a"), partition=0)
        producer.flush(30)
        getattr(producer, way)(30)
        w.merged()
    assert [r[0] for r in w.rows("t") if r[0] % 2 == 0] == [0, 2]


# --- partitions, shards and topics


def test_a_key_change_between_partitions_is_refused_and_within_one_applied(stream):
    w, s = stream("t", target={"partitions": 2})
    w.loaded()
    for n in range(2):
        s.send(record("insert", spread="primary-key", id=n, v="a"), n)
    assert w.merged().rows("t") == [(0, "a"), (1, "a")]
    s.send(record("update", was={"id": 0}, spread="primary-key", id=7, v="moved"), 1)
    result = w.merge()["t"]
    assert result.failed and result.names("partition-key-type") and w.rows("t") == [(0, "a"), (1, "a")]


def test_added_partitions_are_read_in_the_order_of_time_also_by_reads_of_two_messages(stream, kafka):
    from confluent_kafka.admin import NewPartitions

    w, s = stream(target={"partitions": 10})
    s.load("t", (1, "loaded"), partition=9)
    w.loaded()
    s.changes("t", U(1, "first"), *[I(n, "other") for n in range(2, 6)], U(1, "second"), partition=9)
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(s.name, 12)])[s.name].result(30)
    time.sleep(0.01)
    s.changes("t", U(1, "third"), partition=10)
    assert w.merged(max_batch_messages=2).rows("t") == [(1, "third"), *[(n, "other") for n in range(2, 6)]]


def test_shards_are_read_before_those_that_they_were_split_into_or_joined_to(stream):
    w, s = stream("t", "u", kind="kinesis", target={"shards": 3})
    for n in range(6):
        s.load("tu"[n % 2], (n, "a"), partition=n % 3)
    w.loaded()
    last = dict.fromkeys(range(6), "a")

    def write(key: int, value: str, partition: int) -> None:
        s.changes("tu"[key % 2], U(key, value), partition=partition)
        last[key] = value

    s.join()
    for generation, reshard in enumerate((s.join, s.split, s.join, s.split, lambda: None)):
        for key in range(6):  # a key stays where its hash is: in the left half, or in the right one
            write(key, f"g{generation}", 0 if len(s.open()) == 1 else key % 2)
        reshard()
    w.merged(max_batch_messages=3)
    assert w.rows("t") + w.rows("u") == sorted(last.items(), key=lambda i: (i[0] % 2, i[0]))
    s.split(1)
    for key in range(6):
        write(key, "end", key % 2)
    w.merged()
    assert w.rows("t") + w.rows("u") == sorted(last.items(), key=lambda i: (i[0] % 2, i[0]))
    assert statuses(w.merge()) == {"t": "unchanged", "u": "unchanged"}


def test_a_shard_that_is_closed_while_it_is_read_and_throttled_calls_lose_nothing(stream, monkeypatch):
    from moto.core.exceptions import JsonRESTError
    from moto.kinesis.models import KinesisBackend

    w, s = stream(kind="kinesis")
    w.loaded()
    s.changes("t", *[I(key, "a") for key in range(5)])
    calls, real = itertools.count(1), KinesisBackend.get_records

    def get_records(self, *arguments, **named):
        number = next(calls)
        if number in (1, 2, 4):
            raise JsonRESTError("ProvisionedThroughputExceededException", "Rate exceeded for shard")
        if number == 5:
            s.changes("t", I(5, "late"))
            s.split()
            s.changes("t", U(0, "of a child"), partition=1)
        return real(self, *arguments, **named)

    monkeypatch.setattr(KinesisBackend, "get_records", get_records)
    w.merged(max_batch_messages=3)
    assert w.merged().rows("t") == [(0, "of a child"), *[(k, "a") for k in range(1, 5)], (5, "late")]
    assert next(calls) > 6


def test_tables_have_topics_of_their_own(two_topics):
    w, one, other = two_topics("t", "u", rules=False)
    for topic, table in ((one, "t"), (other, "u")):
        topic.send(record("load", table, id=1, v=table))
        topic.send(record("update", table, id=1, v="new"))
    w.loaded().merged()
    assert w.rows("t") == w.rows("u") == [(1, "new")]
    assert [(r["pending"], r["lag_s"]) for r in w.lateness().values()] == [(0, 0), (0, 0)]
    now = int(time.time() * 1000)
    for n in range(6):  # by name the topics come the other way round
        (other if n < 4 else one).send(record("update", id=1, v=str(n)), at_ms=now + n)
    assert w.merged(max_batch_messages=2).rows("t") == [(1, "5")], "a table that moved to another topic"


def test_a_gap_or_junk_in_a_topic_stops_the_tables_that_may_have_it(two_topics, kafka):
    w, one, other = two_topics("t", "u", "v")
    w.loaded()
    one.send(record("insert", spread="primary-key", id=1, v="a"))
    one.send(record("update", was={"id": 1}, spread="primary-key", id=2, v="b"))
    w.merged()
    assert w.rows("t") == [(2, "b")], "a key change in the only partition of the table's topic"
    one.send(JUNK)
    one.send(record("insert", id=3, v="c"))
    other.send(record("insert", "u", id=1, v="a"))
    done = w.merge()
    assert done["t"].code == done["v"].code == "unreadable" and w.rows("t") == [(2, "b")]  # nothing tells of v
    assert w.rows("u") == ([(1, "a")] if done["u"].status == "merged" else [])
    cut(kafka, one.name, 3)
    done = w.merge()
    assert done["t"].code == done["v"].code == "expired" and w.rows("t") == [(2, "b")]
    mapped(one, t=other.name, u=other.name)
    assert w.merge()["t"].failed, "a mapping to another topic hides no gap"


def test_a_mapping_to_a_topic_that_the_messages_contradict_loses_nothing(two_topics):
    w, one, other = two_topics("t")
    one.load("t", (1, "a"))
    w.setup()
    mapped(one, t=other.name)
    assert w.load()["t"].failed or w.rows("t") == [(1, "a")]
    mapped(one, t=one.name)
    assert w.load()["t"].status in ("loaded", "unchanged")
    one.changes("t", I(2, "b"))
    mapped(one, t=other.name)
    assert w.merge()["t"].failed or w.rows("t") == [(1, "a"), (2, "b")]


def test_a_table_that_stops_takes_no_value_from_another_of_its_stream(stream):
    """Its messages are read again, and with them those that the other table has applied: a column that went keeps its values."""
    w, s = stream("u")
    w.table("t", "id INT8", "v WSTRING(9)", "n INT4", changes={"new": "add", "gone": "keep"})
    s.load("t", (1, "a", 10), (2, "b", 20))
    w.loaded()
    s.control("rename-column", "t", id="INT64", title="STRING", n="INT32")
    s.control("add-column", "t", id="INT64", title="STRING", n="INT32", v="INT32")
    s.data("update", "t", {"id": 2, "title": None, "n": 21, "v": 7})
    s.control("drop-column", "t", id="INT64", title="STRING", v="INT32")
    s.data("update", "t", {"id": 1, "title": "C", "v": 9})
    s.data("insert", "u", {"id": "none", "v": "a"})
    assert statuses(w.merge()) == {"t": "merged", "u": "failed"} and w.rows("t") == [(1, "C", 10, 9), (2, None, 21, 7)]
    s.data("update", "t", {"id": 2, "title": "B", "v": 1})
    w.merge()
    assert w.rows("t") == [(1, "C", 10, 9), (2, "B", 21, 1)], "the value of a column that went is lost"


# --- tables without a spec


def test_tables_that_only_a_stream_has_are_made_from_its_control_records(stream):
    w, s = stream("t")
    w.loaded()
    new, create = w.space, {"unknown_tables": "create"}
    plain, key = {"id": {"type": "INT64", "nullable": False}, "v": "STRING"}, ["id"]
    awkward = sorted({"a.b", "2024", "ü", "x`y", "select", "it's", "a b", 'say "hi"', "-- x", "null"})
    tables = {
        (new, "keyed"): ({"id": "INT64", "price": {"type": "NUMERIC", "precision": 9, "scale": 2}}, key, "loaded"),
        (new, "a-b"): (plain, key, "loaded"), (new, "2024"): (plain, key, "loaded"), (new, "say 'x'`;"): (plain, key, "loaded"),
        (new, "wide"): ({"id": "INT64", **dict.fromkeys(awkward, "STRING")}, key, "loaded"),
        (new, "odd"): ({"id": "INT64", "price": "NUMERIC"}, key, "waiting"), (new, "a.b"): (plain, key, "waiting"),
        (new, "a_b"): (plain, key, "waiting"), (f"{new}_ops", "commits"): (plain, key, "waiting"),
        (new, "nokey"): (plain, [], "waiting"), (new, "twice"): ({"id": "INT64", "ID": "STRING"}, key, "waiting"),
    }  # fmt: skip
    for (schema, table), (columns, key_of, _) in tables.items():
        s.send(definition(schema, table, key_of, **columns))
        for number in (1, 2):
            s.send(record("load", table, schema=schema, **{c: number if c == "id" else 1.5 if c == "price" else c for c in columns}))  # fmt: skip
        s.send(record("update", table, schema=schema, **{c: 1 if c == "id" else 2.5 if c == "price" else "new" for c in columns}))  # fmt: skip
    s.send(record("load", "undefined", schema=new, id=1))
    s.send(record("insert", "awsdms_status", id=1))
    s.changes("t", I(1, "a"))
    expected = {f"{s}.{t}".split(".", 1)[1]: status for (s, t), (*_, status) in tables.items()}
    made = {n: "created" if status == "loaded" else "waiting" for n, status in expected.items()}
    assert statuses(w.merge(**create)) == {"t": "merged", "undefined": "waiting", **made}
    s.changes("t", I(2, "a"))
    done = w.merge(**create)
    assert done["t"].status == "merged" and w.rows("t") == [(1, "a"), (2, "a")], "a table that waits holds no other up"
    loaded = statuses(w.load())
    assert {t for t, status in loaded.items() if status == "loaded"} == {t for t, status in made.items() if status == "created"}  # fmt: skip
    w.merged()
    assert [(i, str(p)) for i, p in w.rows("keyed")] == [(1, "2.50"), (2, "1.50")]
    assert w.rows("a_b") == w.rows("_2024") == w.rows("say__x___") == [(1, "new"), (2, "v")]
    assert w.rows("wide") == [(1, *["new"] * len(awkward)), (2, *awkward)]


def test_a_stream_and_an_empty_folder_of_specs_are_enough(stream):
    w, s = stream("t")
    (w.root / "specs/t.yml").unlink()
    w.specs.clear()
    new, create = w.space, {"unknown_tables": "create"}
    assert w.setup(**create) == w.load(**create) == {}
    s.send(definition(new, "keyed", ["id"], id="INT64", v="STRING"))
    s.send(definition(new, "nokey", [], id="INT64", v="STRING"))
    for table, key in itertools.product(("keyed", "nokey"), (1, 2)):
        s.send(record("load", table, schema=new, id=key, v="a"))
    s.send(record("update", "keyed", schema=new, id=1, v="A"))
    assert statuses(w.load(**create)) == {"keyed": "loaded", "nokey": "waiting"}
    w.merge(**create)
    assert w.rows("keyed") == [(1, "A"), (2, "a")]
