"""Messages of a Kafka target, from a real broker: partitions, positions, repeats, and what cannot be read; exactly once."""

from __future__ import annotations

import calendar
import itertools
import json
import os
import re
import time
from decimal import Decimal

import pytest

from frazil_old.cli import check
from frazil_old.config.settings import OperateSettings
from frazil_old.flows import lag, quarantine_counts, quarantine_replay
from frazil_old.lake import jvm, pyiceberg_catalog, quarantine_table
from frazil_old.results import TableResult
from helpers import Killed, slow
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark
_numbers = itertools.count(1)


@pytest.fixture
def new_stream(kafka, spark, catalog_options, tmp_path):
    def make(partitions: int = 1, topics: int = 1) -> KafkaWorld:
        space = f"kaf{next(_numbers)}"
        return KafkaWorld(kafka, tmp_path / "w", space, catalog_options, partitions=partitions, topics=topics)

    return make


def _record(table: str, id: int = 1, v: str = "a", operation: str = "insert") -> str:
    """Return a message with the least that DMS writes, to be sent to any topic."""
    metadata = {"record-type": "data", "operation": operation, "schema-name": "public", "table-name": table}
    return json.dumps({"data": {"id": id, "v": v}, "metadata": metadata})


def test_what_dms_sends_twice_is_there_once(new_stream):
    w = new_stream().table("t")
    for _ in range(2):
        w.message("load", id=1, v="a").message("load", id=2, v="b")
    w.loaded()
    for _ in range(2):
        w.message("insert", id=3, v="c").message("update", id=30, v="d", was={"id": 3}).message("delete", id=1)
        assert w.merged().rows("t") == [(2, "b"), (30, "d")]
    assert w.merge()["t"].status == "unchanged"


@pytest.mark.slow
def test_bad_messages_are_set_aside_with_their_offset_and_key_and_replayed_from_their_bytes(new_stream):
    """Where one value does not fit, the others can be read; of what is no JSON nothing can."""
    w, big = new_stream().table("t", "id INT8", "n INT4", "v NCLOB"), 3_000_000_000
    aside = {"on_bad_rows": "quarantine", "ops_namespace": f"{w.space}_ops"}
    w.message("load", id=1, n=1).message("load", id=2, n=big).setup()
    assert w.full_load(**aside)["t"].counts == {"rows": 1, "quarantined": 1}
    w.message("insert", id=3, n="x").message("update", id=2, n=5).message("update", id=30, n=big, was={"id": 1})
    w.message("insert", id=5, n=1, v="x").message("update", id="z", n=1)
    record = {"data": {"id": 4, "n": "?"}, "metadata": {"record-type": "data", "operation": "insert", "schema-name": "public", "table-name": "t"}}  # fmt: skip
    broken = json.dumps(record, separators=(",", ":")).replace('"?"', "")
    number = json.dumps({**record, "data": {"id": 6, "n": 1, "v": "?"}}).replace('"?"', "1.10")
    assert w.send(broken).send(number).merged(**aside).rows("t") == [
        (1, 1, None),
        (2, 5, None),
        (5, 1, "x"),
        (6, 1, "1.10"),
    ]
    rows = w.spark.table(f"lake.{w.space}_ops.quarantine").collect()
    last = {r.row_no: r for r in sorted(rows, key=lambda r: r.sequence)}
    told = sorted((int(r.row_no), r.column_name, r.key, r.old_key, r.status) for r in last.values())
    assert told == [
        (1, "n", '["2"]', None, "obsolete"), (2, "n", '["3"]', None, "waiting"), (4, "n", '["30"]', '["1"]', "waiting"),
        (6, "id", '["z"]', None, "waiting"), (7, "fields", None, None, "waiting"),
    ]  # fmt: skip
    assert last["2"].reason == "column 'n': 'x' does not fit INT4 (int in the lake)"
    assert bytes(last["7"].raw).decode() == broken
    w.message("update", id=3, n=7).merged(**aside)
    w.table("t", "id INT8", "n INT8", "v NCLOB")
    (done,) = quarantine_replay.run(w.book(quarantine="replay", **aside))
    assert done.counts == {"replayed": 1, "still_bad": 2}, done.note
    assert w.rows("t") == [(2, 5, None), (3, 7, None), (30, big, None), (5, 1, "x"), (6, 1, "1.10")]
    assert w.merge(**aside)["t"].status == "unchanged"


def test_changes_wait_until_the_load_is_whole(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a")
    w.setup()
    assert w.full_load(load_complete_when="changes")["t"].status == "waiting"
    assert w.merge()["t"].status == "waiting"
    w.message("update", id=1, v="b")
    statistics = {
        "TableStatistics": [
            {"SchemaName": "public", "TableName": "t", "TableState": "Table completed", "FullLoadRows": 2}
        ]
    }
    (w.root / "statistics.json").write_text(json.dumps(statistics))
    held = w.full_load(load_complete_when="statistics.json")["t"]
    assert (held.status, held.note) == ("waiting", "1 rows are there, of 2 by DMS")
    assert w.full_load(load_complete_when="changes")["t"].status == "loaded"
    assert w.rows("t") == [(1, "a")]
    assert w.merged().rows("t") == [(1, "b")]


def test_a_new_load_in_the_stream_replaces_the_old_one_when_told(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a").loaded().message("insert", id=2, v="b")
    w.message("load", id=3, v="c").message("update", id=3, v="d")
    assert w.merge()["t"].status == "waiting"
    assert w.full_load()["t"].status == "waiting"
    assert w.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert w.merged().rows("t") == [(3, "d")]


@pytest.mark.parametrize("partitions", [slow(1), 2])
def test_changes_from_before_a_load_do_not_say_that_it_is_over(new_stream, partitions):
    w, last = new_stream(partitions=partitions).table("t"), partitions - 1
    w.message("update", id=1, v="of an older task", partition=last).message("load", id=1, v="a").setup()
    assert w.full_load(load_complete_when="changes")["t"].status == "waiting"
    w.message("load", id=2, v="b", partition=last)
    assert w.full_load(load_complete_when="changes")["t"].status == "waiting"
    w.message("insert", id=3, v="c")
    assert w.full_load(load_complete_when="changes")["t"].status == "loaded"
    assert w.merged().rows("t") == [(1, "a"), (2, "b"), (3, "c")]
    w.message("update", id=3, v="d").message("load", id=1, v="A")
    assert w.full_load(load_complete_when="changes", on_changed_load="reload")["t"].status == "waiting"
    w.message("load", id=4, v="D", partition=last).message("delete", id=4, partition=last)
    assert w.full_load(load_complete_when="changes", on_changed_load="reload")["t"].status == "reloaded"
    assert w.merged().rows("t") == [(1, "A")]


def test_changes_from_before_a_load_are_not_applied_after_it_where_their_partition_has_no_load_record(new_stream):
    """DMS spreads load records by the key, and has all changes of a table in one partition."""
    w = new_stream(partitions=2).table("t")
    w.message("update", partition=1, id=1, v="of an older task")
    time.sleep(0.01)  # the times of messages have milliseconds
    w.message("load", id=1, v="a").message("insert", partition=1, id=3, v="c").setup()
    assert w.full_load(load_complete_when="changes")["t"].status == "loaded"
    assert w.merged().rows("t") == [(1, "a"), (3, "c")]


def test_of_two_loads_in_a_stream_the_newer_one_counts_and_changes_before_it_are_in_it(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a").message("load", id=2, v="b").message("delete", id=2)
    w.message("update", id=1, v="old").message("load", id=1, v="new").message("insert", id=3, v="c").setup()
    assert w.full_load(load_complete_when="changes")["t"].counts["rows"] == 1
    assert w.merged().rows("t") == [(1, "new"), (3, "c")]


@pytest.mark.parametrize("of_changes", [0, 2], ids=["with load records", "of its own"])
def test_two_loads_in_several_partitions_are_refused_until_the_start_is_between_them(new_stream, of_changes):
    """DMS spreads load records by the key, and a row that was deleted between the loads is in the first one alone."""
    w, sent = new_stream(partitions=3).table("t"), itertools.count(1_770_000_000_000, 2000)

    def send(operation, partition, id):
        about = {"record-type": "data", "operation": operation, "schema-name": "public", "table-name": "t"}
        w.send(json.dumps({"data": {"id": id, "v": "a"}, "metadata": about}), partition, at_ms=next(sent))

    for operation, partition, id in [
        ("load", 0, 1), ("load", 1, 2), ("delete", of_changes, 2),
        ("load", 0, 1), ("load", 1, 3), ("insert", of_changes, 4),
    ]:  # fmt: skip
        send(operation, partition, id)
    w.setup()
    refused = w.full_load(load_complete_when="changes")["t"]
    assert refused.failed and "load records of two loads" in refused.note and w.rows("t") == []
    start = re.search(r"stream_start='(.*?)'", refused.note)[1]
    assert w.full_load(load_complete_when="changes", stream_start=start)["t"].status == "loaded"
    assert [r[0] for r in w.merged().rows("t")] == [1, 3, 4]


def test_a_start_is_never_guessed(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a")
    w.setup()
    result = w.full_load(stream_start="")["t"]
    assert result.failed and "where in the stream" in result.note
    topic = f"{w.topic}/0"
    assert w.full_load(stream_start=json.dumps({topic: 1}))["t"].note.startswith("no load records yet: counts as empty")
    assert w.offsets() == [1]


def test_messages_for_no_table_are_counted_and_named_and_what_is_no_message_stops_the_run(new_stream):
    w = new_stream().table("t").loaded().message("insert", id=1, v="a")
    w.message("insert", table="other", id=1).message("insert", table="other", id=2).control("add-column")
    w.merged()
    assert any("public.other (2)" in line for line in w.said)
    w.control("???").merged()
    assert all(
        any(re.search(rf"control records? {re.escape(what)}", line) for line in w.said)
        for what in ("add-column", "???")
    )
    w.send('{"data": {"id"').send(None).message("insert", id=2, v="b")
    stopped = w.merge()["t"]
    assert stopped.failed and f"2 in {w.topic}/0 from offset 5" in stopped.note
    assert w.rows("t") == [(1, "a")]
    assert w.merged(on_unreadable="report").rows("t") == [(1, "a"), (2, "b")]


JUNK = '{"data": {"id"'


def _aside(w: KafkaWorld, **more) -> dict:
    return {"on_unreadable": "quarantine", "ops_namespace": f"{w.space}_ops", **more}


def _unreadable(w, status: str = "unreadable") -> list[tuple]:
    """All records of messages that tell no table: no id may be there twice."""
    rows = (
        w.spark.table(f"lake.{w.space}_ops.quarantine").where(f"table_name is null and status = '{status}'").collect()
    )
    return sorted((r.path.rpartition("/")[2], int(r.row_no), bytes(r.raw) if r.raw is not None else None) for r in rows)


def test_environments_that_share_a_quarantine_discard_only_messages_of_their_own_topics(
    new_stream, kafka, catalog_options, tmp_path
):
    w = new_stream().table("t").loaded().send(JUNK)
    other = KafkaWorld(kafka, tmp_path / "other", f"{w.space}b", catalog_options).table("t").loaded()
    w.merged(**_aside(w))
    assert quarantine_replay.run(other.book(quarantine="discard", **_aside(w))) == [
        TableResult("public.t", "unchanged", "nothing waits")
    ]
    assert check._quarantined(other.book(OperateSettings, **_aside(w))) == []
    assert [row[:2] for row in _unreadable(w)] == [("0", 0)]
    assert len(check._quarantined(w.book(OperateSettings, **_aside(w)))) == 1


def test_messages_that_tell_no_table_are_set_aside_once(new_stream):
    w = new_stream().table("t").loaded().message("insert", id=1, v="a")
    w.send(JUNK).send(None).send(b"\xff\xfe no text").send('{"metadata": {}}').message("insert", id=2, v="b")
    aside, kept = _aside(w), [("0", 1, JUNK.encode()), ("0", 2, None), ("0", 3, b"\xff\xfe no text"), ("0", 4, b'{"metadata": {}}')]  # fmt: skip
    assert w.merged(**aside).rows("t") == [(1, "a"), (2, "b")]
    assert _unreadable(w) == kept
    (row,) = (r for r in w.spark.table(f"lake.{w.space}_ops.quarantine").collect() if r.row_no == "1")
    assert row.path == f"kafka://{w.topic}/0" and row.reason == f"none of DMS's messages: {JUNK}" and row.form == "json"
    assert any("4 messages" in line and f"kafka://{w.topic}/0 offset 1" in line for line in w.said)
    assert w.merge(**aside)["t"].status == "unchanged"
    w.table("late").setup()
    assert w.full_load(**aside)["late"].status == "empty"  # reads all of it again
    w.send(JUNK).merged(**aside)
    assert _unreadable(w) == [*kept, ("0", 6, JUNK.encode())]
    (seen,) = (r for r in quarantine_replay.plan(w.book(**aside)) if r["table"] == "no table")
    assert (seen["rows"], seen["replay"]) == (5, "never") and f"kafka://{w.topic}/0 offset 1: " in seen["example"]
    (told,) = quarantine_counts.rows_by_status(w.book(**aside))
    assert (told["table"], told["status"], told["rows"]) == (f"no table: kafka://{w.topic}/0", "unreadable", 5)
    (line,) = check._quarantined(w.book(OperateSettings, **aside))
    assert f"5 messages naming no table, from kafka://{w.topic}/0 offset 1 on" in line, line
    assert quarantine_counts.waiting(w.book(**aside)) == {}
    discarded = quarantine_replay.run(w.book(quarantine="discard", **aside))
    assert [r.counts for r in discarded if r.table == "no table"] == [{"discarded": 5}]
    assert check._quarantined(w.book(OperateSettings, **aside)) == []
    assert [r["status"] for r in quarantine_counts.rows_by_status(w.book(**aside))] == ["discarded"]
    assert not [r for r in quarantine_replay.plan(w.book(**aside)) if r["table"] == "no table"]


def test_other_engines_read_why_a_message_that_is_no_text_was_set_aside(new_stream):
    w = new_stream().table("t", "id INT8", "v NCLOB").loaded().send(b"\xff\xfe no text")
    record = {"data": {"id": "?"}, "metadata": {"record-type": "data", "operation": "insert", "schema-name": "public", "table-name": "t"}}  # fmt: skip
    w.send(json.dumps(record).encode().replace(b'"?"', b'"\xff", "v":'))
    w.merged(**_aside(w, on_bad_rows="quarantine"))
    table = pyiceberg_catalog.ops_table(w.book(OperateSettings, ops_namespace=f"{w.space}_ops").settings, "quarantine")
    reasons = [r["reason"] for r in table.scan().to_arrow().to_pylist()]
    assert len(reasons) == 2 and all("\ufffd" in r for r in reasons), reasons


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_kill_around_setting_messages_aside_loses_and_doubles_none(new_stream, monkeypatch, nth):
    """Before they are there, and when they are, with one of two tables behind them and the other not."""
    w = new_stream().table("t").table("u").loaded()
    w.message("insert", id=1, v="a").send(JUNK).message("insert", table="u", id=1, v="a")
    aside, place = (
        _aside(w, parallel_tables=1),
        [(quarantine_table, "_forward"), (jvm, "publish"), (jvm, "publish")][nth - 1],
    )
    real, left = getattr(*place), [max(nth - 1, 1)]

    def kill(*arguments, **named):
        left[0] -= 1
        if not left[0]:
            raise Killed
        return real(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(*place, kill)
        patch.setattr(os, "getpid", lambda: 2**22 + 1)  # a process that is gone by the next run
        with pytest.raises(Killed):
            w.merge(**aside)
    assert (w.rows("t"), w.rows("u")) == [([], []), ([], [(1, "a")]), ([(1, "a")], [])][nth - 1]
    assert _unreadable(w) == ([] if nth == 1 else [("0", 1, JUNK.encode())])
    w.merged(**aside)
    assert (w.rows("t"), w.rows("u")) == ([(1, "a")], [(1, "a")])
    assert _unreadable(w) == [("0", 1, JUNK.encode())]
    assert list(jvm.load_table(w.spark, f"lake.{w.space}_ops.quarantine").refs().keySet()) == ["main"]


def test_a_table_that_failed_alone_meets_messages_again_and_sets_none_aside_twice(new_stream):
    w = new_stream().table("t").table("u").loaded()
    w.message("insert", id="x", v="a").send(JUNK).message("insert", table="u", id=1, v="a")
    results = w.merge(**_aside(w))
    assert (results["t"].failed, results["u"].status) == (True, "merged")
    w.message("insert", table="u", id=2, v="a").send(JUNK)
    results = w.merge(**_aside(w, on_bad_rows="quarantine"))
    assert (results["t"].status, results["u"].status) == ("merged", "merged")
    assert [n for _, n, _ in _unreadable(w)] == [1, 4]


def test_more_messages_that_tell_no_table_than_allowed_stop_the_run(new_stream):
    w = new_stream().table("t").loaded().message("insert", id=1, v="a").send(JUNK).send(JUNK)
    for limit in ({"max_bad_rows": 1}, {"max_bad_percent": 60.0}):
        with pytest.raises(Exception, match=r"2 of 3 messages are more than max_bad_rows="):
            w.merge(**_aside(w, **limit))
    assert w.rows("t") == []
    w.merged(**_aside(w, max_bad_rows=2)).send(JUNK)
    w.merged(**_aside(w, max_bad_rows=1))  # what lies there already counts no more
    assert len(_unreadable(w)) == 3


def test_an_offset_of_a_topic_that_was_made_anew_is_another_message(new_stream):
    w = new_stream().table("t").loaded().send(JUNK).message("insert", id=1, v="a").merged(on_unreadable="report")
    w.table("u").setup()
    w.full_load(**_aside(w))
    _made_anew(w)
    w.send(JUNK).message("load", id=1, v="a").message("load", table="u", id=1, v="a")
    assert w.full_load(**_aside(w, on_changed_load="reload"))["t"].status == "reloaded"
    assert _unreadable(w) == [("0", 0, JUNK.encode())] * 2


def test_messages_that_tell_no_table_stop_where_a_table_hides_columns(new_stream):
    w = new_stream(topics=2).table("t").table("u")
    w.specs["u"]["columns"][1]["mask"] = "sha256"
    (w.root / "specs/u.yml").write_text(json.dumps(w.specs["u"]))
    given = _mapped(w, t=w.topics[0], u=w.topics[1])
    w.setup()
    w.full_load(**given)
    w.send(JUNK, topic=0).send(JUNK, topic=1).message("insert", id=1, v="a")
    results = w.merge(**_aside(w, **given))
    assert (results["t"].status, results["u"].failed) == ("merged", True)
    assert "masked or left out" in results["u"].note and JUNK not in results["u"].note
    assert _unreadable(w) == [("0", 0, JUNK.encode())]


def test_a_message_that_tells_no_table_stops_only_tables_that_may_have_it(new_stream):
    w = new_stream(topics=2).table("t").table("u").table("v")
    given = _mapped(w, t=w.topics[0], u=w.topics[1])
    w.setup()
    w.full_load(**given)
    w.send(JUNK).message("insert", id=1, v="a").send(_record("u"), topic=1)
    results = w.merge(**given)
    assert [results[t].status for t in "tuv"] == ["failed", "merged", "failed"]  # v: nothing tells
    assert f"1 in {w.topic}/0 from offset 0" in results["t"].note
    assert (w.rows("t"), w.rows("u")) == ([], [(1, "a")])
    w.merged(**_aside(w, **given))
    assert (w.rows("t"), _unreadable(w)) == ([(1, "a")], [("0", 0, JUNK.encode())])
    assert all(r.status in ("merged", "unchanged") for r in w.merge(**given).values())


def test_a_table_without_a_spec_stops_the_run_or_is_made_from_its_control_record_as_told(new_stream):
    w = new_stream(partitions=2).table("t").loaded()
    new, price, key = (
        f"{w.space}_new",
        {"type": "NUMERIC", "precision": 9, "scale": 2},
        {"type": "INT64", "nullable": False},
    )
    w.message("load", table=new, id=1, price=1.5).control("create-table", new, 1, id=key, price=price)
    w.message("load", table="other", id=1).message("insert", table="awsdms_status", id=1).message("insert", id=1, v="a")
    w.control("create-table", "odd", 1, id="INT64", price="NUMERIC").message("insert", table="odd", id=1)
    with pytest.raises(
        Exception, match=rf"tables without a spec: public.{new} \(1\), public.odd \(1\), public.other \(1\)"
    ):
        w.merge(unknown_tables="stop")
    assert w.rows("t") == []
    done = w.merge(unknown_tables="create")
    assert {t: r.status for t, r in done.items()} == {
        "t": "merged",
        new: "created",
        "other": "waiting",
        "odd": "waiting",
    }
    assert "no control record in the stream names its columns" in done["other"].note
    assert re.search(r"at kafka://\S+ offset 1: it does not have the type of price", done["odd"].note)
    assert (w.root / f"specs/{new}.yml").read_text() == (
        f"source: public.{new}\ntarget: public.{new}\nkey: [id]\ncolumns:\n- {{name: id, type: INT8, nullable: false}}\n"
        "- {name: price, type: 'NUMERIC(9,2)'}\n".replace("- {", "  - {")
    )
    w.message("update", table=new, id=1, price=2.5)
    held = w.merge(unknown_tables="ignore")
    assert (held["t"].status, held[new].status) == ("unchanged", "waiting")
    assert w.full_load()[new].status == "loaded"
    w.merged()
    assert [tuple(r) for r in w.spark.table(f"lake.public.{new}").collect()] == [(1, Decimal("2.50"))]


def test_a_table_that_is_made_by_the_load_is_loaded_at_once_from_its_start(new_stream):
    w = new_stream().table("t")
    new = f"{w.space}_late"
    w.control("create-table", new, id="INT32").message("load", table=new, id=1).message("insert", id=1, v="a")
    w.loaded().merged()
    w.message("load", table=new, id=2).message("insert", table=new, id=3)
    done = w.full_load(unknown_tables="create", load_complete_when="changes")
    assert (done["t"].status, done[new].status) == ("unchanged", "loaded"), done
    assert sorted(tuple(r) for r in w.spark.table(f"lake.public.{new}").collect()) == [(1,), (2,)]
    w.merged()
    assert w.spark.table(f"lake.public.{new}").count() == 3


def test_a_bad_row_and_an_unknown_column_stop_their_table_and_no_other(new_stream):
    w = new_stream().table("t").table("u").table("x").loaded()
    w.message("insert", id="one", v="a").message("insert", table="u", id=1, v="a")
    w.message("insert", table="x", id=1, v="a", new="column")
    results = w.merge()
    assert {t: r.status for t, r in results.items()} == {"t": "failed", "u": "merged", "x": "failed"}
    assert "offset 0: column 'id': 'one' does not fit INT8" in results["t"].note
    assert "unknown column new in" in results["x"].note
    w.message("insert", table="u", id=2, v="b")
    assert w.merge()["u"].status == "merged"
    assert w.rows("u") == [(1, "a"), (2, "b")]


def test_numbers_keep_all_their_digits_or_are_refused(new_stream):
    w = new_stream().table("t", "id INT8", "n NUMERIC(30,10)").loaded()
    message = '{"data":{"id":%s,"n":%s},"metadata":{"record-type":"data","operation":"insert","schema-name":"public","table-name":"t"}}'
    w.send(message % ("9007199254740993", "12345678901234567890.0123456789")).send(message % ("2", '"0.0000000001"'))
    w.merged()
    assert w.rows("t") == [(2, Decimal("1E-10")), (9007199254740993, Decimal("12345678901234567890.0123456789"))]
    w.send(message % ("3", "0.00000000015"))
    assert "offset 2: column 'n'" in w.merge()["t"].note


@pytest.mark.slow
def test_a_key_change_between_partitions_is_refused_and_other_changes_keep_their_order(new_stream):
    w = new_stream(partitions=2).table("t").loaded()
    for n in range(20):
        w.message("insert" if n < 2 else "update", partition=n % 2, key_type="primary-key", id=n % 2, v=str(n))
    assert w.merged(max_batch_messages=4).rows("t") == [(0, "18"), (1, "19")]
    w.message("update", partition=1, key_type="primary-key", was={"id": 0}, id=7, v="moved")
    failed = w.merge()["t"]
    assert failed.failed and "partition-key-type schema-table" in failed.note


def test_a_key_change_within_the_only_partition_of_a_tables_topic_is_applied(new_stream):
    w = new_stream(topics=2).table("t")
    given = _mapped(w, t=w.topics[0])
    w.setup()
    w.full_load(**given)
    w.message("insert", key_type="primary-key", id=1, v="a")
    w.message("update", key_type="primary-key", was={"id": 1}, id=2, v="b")
    assert w.merged(**given).rows("t") == [(2, "b")]


def _cut(w: KafkaWorld, until: int) -> None:
    """Let the first topic's messages before an offset expire."""
    from confluent_kafka import TopicPartition

    admin = w.kafka.admin()
    for f in admin.delete_records([TopicPartition(w.topic, 0, until)]).values():
        f.result(30)


def test_expired_messages_are_an_error_and_never_a_gap(new_stream):
    w = new_stream().table("t").loaded()
    for n in range(5):
        w.message("insert", id=n, v="a")
    _cut(w, 3)
    result = w.merge()["t"]
    assert result.failed and "messages 0 to 2 of" in result.note and "expired before" in result.note
    (late,) = lag.per_table(w.book(OperateSettings))
    assert "messages 0 to 2 of" in late["problem"]
    assert w.rows("t") == []
    w.message("load", id=9, v="z").message("insert", id=10, v="y")
    assert w.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert w.merged().rows("t") == [(10, "y"), (9, "z")]


def _made_anew(w: KafkaWorld) -> None:
    """Delete the first topic and make another of its name."""
    admin, until = w.kafka.admin(), time.monotonic() + 30
    admin.delete_topics([w.topic])[w.topic].result(30)
    while w.topic in admin.list_topics(timeout=10).topics and time.monotonic() < until:
        time.sleep(0.2)
    w.kafka.create_topic(w.topic)


@pytest.mark.slow
def test_a_topic_that_is_made_anew_is_an_error_however_long_it_is(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a").loaded().message("insert", id=2, v="b").merged()
    _made_anew(w)
    for n in range(10, 15):
        w.message("load", id=n, v="new")
    w.message("insert", id=20, v="newer")
    result = w.merge()["t"]
    assert result.failed and result.decision and f"{w.topic} was created again" in result.note
    assert w.rows("t") == [(1, "a"), (2, "b")]
    assert w.full_load(load_complete_when="changes", on_changed_load="reload")["t"].counts["rows"] == 5
    assert sorted(w.merged().rows("t")) == [*((n, "new") for n in range(10, 15)), (20, "newer")]


def test_a_topic_per_table(new_stream):
    w = new_stream(topics=2).table("t").table("u")
    for topic, table in enumerate("tu"):
        w.send(_record(table, v=table, operation="load"), topic=topic)
        w.send(_record(table, v="new", operation="update"), topic=topic)
    w.loaded().merged()
    assert (w.rows("t"), w.rows("u")) == ([(1, "new")], [(1, "new")])
    assert [(r["pending"], r["lag_s"]) for r in lag.per_table(w.book())] == [(0, 0), (0, 0)]
    w.message("delete", id=1)
    assert [r["pending"] for r in lag.per_table(w.book())] == [1, 1]


def _mapped(w: KafkaWorld, **topics: str) -> dict:
    """Write mappings that give tables topics of their own; return the parameter that names them."""
    rules = [
        {"rule-type": "object-mapping", "rule-id": str(n), "rule-name": table, "rule-action": "map-record-to-record",
         "kafka-target-topic": topic, "object-locator": {"schema-name": "public", "table-name": table}}
        for n, (table, topic) in enumerate(topics.items(), 1)
    ]  # fmt: skip
    (w.root / "mappings.json").write_text(json.dumps({"rules": rules}))
    return {"mappings": "mappings.json"}


def test_a_gap_in_one_topic_stops_only_tables_that_are_mapped_to_it(new_stream):
    w = new_stream(topics=2).table("t").table("u").table("v")
    given = _mapped(w, t=w.topics[0], u=w.topics[1])
    w.setup()
    w.full_load(**given)
    for _ in range(3):
        w.send(_record("t"), topic=0)
    w.send(_record("u"), topic=1)
    _cut(w, 2)
    assert [(r["pending"], bool(r["problem"])) for r in lag.per_table(w.book(**given))] == [(None, True), (2, False), (None, True)]  # fmt: skip
    results = w.merge(**given)
    assert "messages 0 to 1 of" in results["t"].note and "messages 0 to 1 of" in results["v"].note  # v: nothing tells
    assert (results["u"].status, w.rows("u"), w.rows("t")) == ("merged", [(1, "a")], [])
    assert w.position("u")["stream"] == {f"{w.topics[0]}/0": 3, f"{w.topics[1]}/0": 1}
    w.send(_record("u", id=2), topic=1)
    assert w.merge(**given)["u"].status == "merged"


def test_a_topic_that_was_made_anew_stops_only_tables_that_are_mapped_to_it(new_stream):
    w = new_stream(topics=2).table("t").table("u")
    given = _mapped(w, t=w.topics[0], u=w.topics[1])
    w.setup()
    w.full_load(**given)
    _made_anew(w)
    w.send(_record("u"), topic=1)
    results = w.merge(**given)
    assert results["t"].failed and f"{w.topics[0]} was created again" in results["t"].note
    assert (results["u"].status, w.rows("u")) == ("merged", [(1, "a")])


def test_a_mapping_to_a_topic_that_the_messages_contradict_is_refused(new_stream):
    w = new_stream(topics=2).table("t").message("load", id=1, v="a")
    w.setup()
    assert (
        f"1 of its messages are in {w.topics[0]}/0 from offset 0" in w.full_load(**_mapped(w, t=w.topics[1]))["t"].note
    )
    assert "'elsewhere', which parameter 'source' does not name" in w.full_load(**_mapped(w, t="elsewhere"))["t"].note
    assert w.full_load(**_mapped(w, t=w.topics[0]))["t"].status == "loaded"
    w.message("insert", id=2, v="b")
    assert "mapped to topic" in w.merge(**_mapped(w, t=w.topics[1]))["t"].note
    assert w.rows("t") == [(1, "a")]


@pytest.mark.parametrize("most", [200_000, 2])
def test_a_table_that_moved_to_another_topic_is_read_from_the_former_one_first(new_stream, most):
    """By name the topics come the other way round."""
    w = new_stream(topics=2).table("t").loaded()
    for n in range(6):
        w.send(_record("t", v=str(n), operation="update"), topic=1 if n < 4 else 0, at_ms=1_780_000_000_000 + n)
    assert w.merged(max_batch_messages=most).rows("t") == [(1, "5")]
    assert sorted(w.offsets()) == [2, 4]


def test_mappings_that_name_another_topic_hide_no_gap_in_the_former_one(new_stream):
    w = new_stream(topics=2).table("t")
    w.setup()
    w.full_load(**_mapped(w, t=w.topics[0]))
    assert w.merged(**_mapped(w, t=w.topics[0])).position("t")["topic"] == w.topics[0]
    w.message("insert", id=1, v="a")
    _cut(w, 1)
    result = w.merge(**_mapped(w, t=w.topics[1]))["t"]
    assert result.failed and "messages 0 to 0 of" in result.note


def test_a_topic_that_others_were_made_anew_beside_is_no_reason_to_stop_later(new_stream):
    w = new_stream(topics=2).table("t")
    given = _mapped(w, t=w.topics[1])
    w.setup()
    w.full_load(**given)
    _made_anew(w)
    w.send(_record("t"), topic=1)
    assert w.merged(**given).rows("t") == [(1, "a")]
    w.send(_record("t", id=2), topic=1)
    assert w.merged().rows("t") == [(1, "a"), (2, "a")]  # without the mapping all topics count again


@pytest.mark.parametrize("again", [False, True])
def test_a_load_whose_head_may_have_expired_is_held(new_stream, again):
    w, given = (
        new_stream().table("t"),
        {"load_complete_when": "changes", **({"on_changed_load": "reload"} if again else {})},
    )
    if again:
        w.message("load", id=100, v="old").loaded()
    for n in range(4):
        w.message("load", id=n, v="a")
    w.message("insert", id=9, v="b")
    _cut(w, 3)
    w.setup()
    held = w.full_load(**given)["t"]
    assert (held.status, "have expired" in held.note, "create-table" in held.note) == ("waiting", True, False)
    assert w.rows("t") == ([(100, "old")] if again else [])
    w.control("create-table")
    for n in range(4):
        w.message("load", id=n, v="new")
    w.message("insert", id=10, v="b")
    assert w.full_load(**given)["t"].counts["rows"] == 4
    assert sorted(w.merged().rows("t")) == [*((n, "new") for n in range(4)), (10, "b")]


def test_a_load_is_whole_where_only_what_lies_before_its_start_has_expired(new_stream):
    w = new_stream().table("t")
    w.message("insert", id=1, v="old").message("load", id=1, v="a").message("insert", id=2, v="b").setup()
    _cut(w, 1)
    assert w.full_load(load_complete_when="changes")["t"].status == "waiting"
    start = json.dumps({f"{w.topic}/0": 1})
    assert w.full_load(load_complete_when="changes", stream_start=start)["t"].counts["rows"] == 1


@pytest.mark.parametrize("where", ["latest", "2026-03-01T00:00:00Z"])
def test_a_table_may_begin_at_the_end_or_at_a_time(new_stream, where):
    w = new_stream().table("t")
    for n, month in enumerate((2, 3), 1):
        w.send(_record("t", id=n), at_ms=calendar.timegm((2026, month, 1, 12, 0, 0)) * 1000)
    w.setup()
    w.full_load(stream_start=where)
    w.message("insert", id=3, v="a")
    assert [r[0] for r in w.merged().rows("t")] == ([3] if where == "latest" else [2, 3])


def _add_partitions(w: KafkaWorld, to: int) -> None:
    from confluent_kafka.admin import NewPartitions

    admin = w.kafka.admin()  # lives until the answer is there
    for f in admin.create_partitions([NewPartitions(w.topic, to)]).values():
        f.result(30)


@pytest.mark.parametrize("most", [200_000, slow(1)])
def test_partitions_that_are_added_are_read_behind_the_old_ones(new_stream, most):
    w = new_stream(partitions=10).table("t").message("load", partition=9, id=1, v="loaded").loaded()
    w.message("update", partition=9, id=1, v="first").message("update", partition=9, id=1, v="second")
    _add_partitions(w, 12)
    w.message("update", partition=10, id=1, v="third")
    assert w.merged(max_batch_messages=most).rows("t") == [(1, "third")]
    assert sorted(w.offsets()) == [0] * 10 + [1, 3]


def test_partitions_that_are_added_do_not_wait_until_the_old_ones_fall_silent(new_stream):
    w = new_stream().table("t").message("insert", id=1, v="a")
    _add_partitions(w, 2)
    stream, new = w.message("insert", partition=1, id=2, v="b").book().stream, f"{w.topic}/1"
    taken = stream.take(w.spark, {f"{w.topic}/0": 0})
    assert (taken.end, taken.caught_up) == ({f"{w.topic}/0": 1, new: 1}, True)
    w.message("insert", id=3, v="c")
    taken = stream.take(w.spark, {f"{w.topic}/0": 0}, 1)
    assert (taken.end, taken.caught_up) == ({f"{w.topic}/0": 1}, False)


def test_a_limited_read_ends_at_one_time_in_all_partitions(new_stream):
    """A key's older change waits in one partition while its newer one is in another."""
    w = new_stream(partitions=2).table("t").loaded()
    for n in range(2, 7):
        w.message("insert", id=n, v="other")
    w.message("update", id=1, v="old")
    time.sleep(0.01)  # the times of messages have milliseconds
    w.message("update", partition=1, id=1, v="new")
    assert w.merged(max_batch_messages=2).rows("t")[0] == (1, "new")
    assert len(w.history("t")) > 3
