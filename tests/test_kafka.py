"""The same transactions as messages of a Kafka target: from a real broker into tables equal to the source, exactly once."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from frazil.config.settings import CdcMergeSettings, resolve
from frazil.demo import shop
from frazil.demo.kafka import Kafka
from frazil.demo.postgres import EmbeddedPostgres
from frazil.demo.standin import StandIn
from frazil.demo.workload import Workload
from frazil.flows import cdc, full_load, reconcile, setup
from frazil.flows.workbook import Workbook, raise_if_failed
from helpers import World

pytestmark = pytest.mark.spark
PARAMS = Path(__file__).parent.parent / "params"
TABLES = ["shop.customers", "shop.events", "shop.inventory"]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with Kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


class Stream(World):
    """A world whose source is a topic; messages are written as DMS writes them."""

    def __init__(self, kafka: Kafka, *arguments, partitions: int = 1):
        super().__init__(*arguments)
        self.kafka, self.topic, self.options = kafka, self.space, {}
        kafka.create_topic(self.topic, partitions)
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0})

    def book(self, kind=CdcMergeSettings, **settings):
        (self.root / "endpoint.json").write_text(json.dumps({"KafkaSettings": {"IncludeNullAndEmpty": True}}))
        given = {
            "root": str(self.root), "source": f"kafka://{self.kafka.brokers}/{self.topic}", "specs": "specs",
            "endpoint": "endpoint.json", "catalog_options": self.catalog_options, "readers": ["spark"], **settings,
        }  # fmt: skip
        return Workbook(kind(**given), self.said.append)

    def send(self, text: str | None, partition: int = 0) -> Stream:
        self._producer.produce(self.topic, text.encode() if text is not None else None, partition=partition)
        assert self._producer.flush(30) == 0
        return self

    def message(self, operation, table="t", was=None, partition=0, key_type="schema-table", **data) -> Stream:
        stamp = "2026-01-01T10:00:00Z"
        metadata = {
            "timestamp": stamp, "record-type": "data", "operation": operation, "partition-key-type": key_type,
            "schema-name": "public", "table-name": table, "commit-timestamp": stamp,
        }  # fmt: skip
        image = {"before-image": was} if was is not None else {}
        return self.send(json.dumps({"data": data, **image, "metadata": metadata}), partition)

    def control(self, operation, table="t") -> Stream:
        metadata = {"record-type": "control", "operation": operation, "schema-name": "public", "table-name": table}
        return self.send(json.dumps({"metadata": metadata}))

    def full_load(self, **settings):
        return super().full_load(**{"stream_start": "earliest", "load_over": "declared", **settings})

    def offsets(self, table: str = "t") -> list[int]:
        return list(self.position(table)["stream"].values())


@pytest.fixture
def new_stream(kafka, spark, catalog_options, tmp_path, request):
    def make(partitions: int = 1) -> Stream:
        space = "k_" + request.node.name[5:40].replace("[", "_").rstrip("_")
        return Stream(kafka, tmp_path / "w", space, catalog_options, partitions=partitions)

    return make


# --- the whole way


@pytest.fixture(scope="module")
def source(tmp_path_factory, kafka):
    """A database, and one writer per form of its messages, each from a slot of its own."""
    root = tmp_path_factory.mktemp("source")
    forms = {
        "one_line": ({"MessageFormat": "json-unformatted", "IncludeTransactionDetails": True}, 1),
        "tabs_3_partitions": ({"MessageFormat": "json", "IncludeControlDetails": True, "NoHexPrefix": True}, 3),
    }
    with pytest.MonkeyPatch.context() as patch, EmbeddedPostgres(root / "postgres") as postgres:
        patch.setenv("FRAZIL_SOURCE_URL", postgres.jdbc_url)
        patch.setenv("FRAZIL_SOURCE_USER", postgres.user)
        patch.setenv("FRAZIL_SOURCE_PASSWORD", postgres.password)
        with postgres.connect() as connection:
            shop.make(connection, scale=0.01)
        rules = [
            r for r in json.loads((PARAMS / "shop.mappings.json").read_text())["rules"] if r["rule-type"] == "selection"
        ]
        image = {"EnableBeforeImage": True, "FieldName": "was", "ColumnFilter": "pk-only"}
        task = {
            "TableMappings": json.dumps({"rules": rules}),
            "ReplicationTaskSettings": json.dumps({"BeforeImageSettings": image}),
        }
        (root / "task.json").write_text(json.dumps({"ReplicationTasks": [task]}))
        writers = []
        for form, (settings, partitions) in forms.items():
            kafka.create_topic(form, partitions)
            given = {"Broker": kafka.brokers, "Topic": form, "IncludeNullAndEmpty": True, **settings}
            (root / f"{form}.json").write_text(json.dumps({"KafkaSettings": given}))
            writers.append(StandIn(postgres.connect, root / f"{form}.json", root / "task.json", root / form, slot=form))
        for writer in writers:
            writer.full_load()
        for seed in (11, 12):
            with postgres.connect() as connection:
                Workload(connection, seed).run(40)
            for writer in writers:
                assert writer.pump() > 0
        for writer in writers:
            writer.close()
        yield root


@pytest.mark.parametrize("form", ["one_line", "tabs_3_partitions"])
def test_messages_end_in_tables_equal_to_the_source(form, source, kafka, spark):
    def book(notebook: str, **cell) -> Workbook:
        files = {"endpoint": str(source / f"{form}.json"), "mappings": str(source / "task.json")}
        address = f"kafka://{kafka.brokers}/{form}"
        settings = resolve(notebook, {"env": "demo", "source": address, "tables": TABLES, **files, **cell}).settings
        said: list[str] = []
        opened = Workbook(replace(settings, catalog_options={}), progress=said.append)
        opened.specs = {n: replace(s, target=f"{form}.{s.table_name}") for n, s in opened.specs.items()}
        opened.said = said
        return opened

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAZIL_PARAMS", str(PARAMS))
        raise_if_failed(setup.create_tables(book("setup")))
        loaded = full_load.run(book("full_load", stream_start="earliest", load_over="changes"))
        assert [r.note for r in loaded if r.status != "loaded"] == []
        again = full_load.run(book("full_load"))
        assert {r.status for r in again} == {"unchanged"}, again
        merging = book("cdc_merge", max_batch_messages=150)
        merged = cdc.run(merging)
        raise_if_failed(merged)
        assert max(r.counts["batches"] for r in merged) > 1
        assert any("without a spec, passed by" in line and "shop." in line for line in merging.said)
        compared, samples = reconcile.run(book("cdc_merge"))
        assert samples == []
        assert {r.counts["differing_rows"] for r in compared} == {0}
        assert {r.status for r in cdc.run(book("cdc_merge"))} == {"unchanged"}


# --- what may go wrong


def test_what_dms_sends_twice_is_there_once(new_stream):
    w = new_stream().table("t")
    for _ in range(2):
        w.message("load", id=1, v="a").message("load", id=2, v="b")
    w.loaded()
    for _ in range(2):
        w.message("insert", id=3, v="c").message("update", id=30, v="d", was={"id": 3}).message("delete", id=1)
        assert w.merged().rows("t") == [(2, "b"), (30, "d")]
    assert w.merge()["t"].status == "unchanged"


def test_changes_wait_until_the_load_is_whole(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a")
    w.setup()
    assert w.full_load(load_over="changes")["t"].status == "held"
    assert w.merge()["t"].status == "held"
    w.message("update", id=1, v="b")
    statistics = {
        "TableStatistics": [
            {"SchemaName": "public", "TableName": "t", "TableState": "Table completed", "FullLoadRows": 2}
        ]
    }
    (w.root / "statistics.json").write_text(json.dumps(statistics))
    held = w.full_load(load_over="statistics.json")["t"]
    assert (held.status, held.note) == ("held", "1 rows are there, of 2 by DMS")
    assert w.full_load(load_over="changes")["t"].status == "loaded"
    assert w.rows("t") == [(1, "a")]
    assert w.merged().rows("t") == [(1, "b")]


def test_a_new_load_in_the_stream_replaces_the_old_one_when_told(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a").loaded().message("insert", id=2, v="b")
    w.message("load", id=3, v="c").message("update", id=3, v="d")
    assert w.merge()["t"].status == "held"
    assert w.full_load()["t"].status == "held"
    assert w.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert w.merged().rows("t") == [(3, "d")]


def test_a_start_is_never_guessed(new_stream):
    w = new_stream().table("t").message("load", id=1, v="a")
    w.setup()
    result = w.full_load(stream_start="")["t"]
    assert result.failed and "where in the stream" in result.note
    topic = f"{w.topic}/0"
    assert w.full_load(stream_start=json.dumps({topic: 1}))["t"].note == "was empty when DMS loaded it"
    assert w.offsets() == [1]


def test_messages_for_no_table_are_counted_and_named_and_what_is_no_message_stops_the_run(new_stream):
    w = new_stream().table("t").loaded().message("insert", id=1, v="a")
    w.message("insert", table="other", id=1).message("insert", table="other", id=2).control("add-column")
    w.merged()
    assert any("public.other (2)" in line for line in w.said)
    assert any("control record(s) add-column" in line for line in w.said)
    w.send('{"data": {"id"').send(None).message("insert", id=2, v="b")
    with pytest.raises(Exception, match="none of DMS's"):
        w.merge()
    assert w.rows("t") == [(1, "a")]
    assert w.merged(on_unreadable="report").rows("t") == [(1, "a"), (2, "b")]


def test_a_bad_row_and_an_unknown_column_stop_their_table_and_no_other(new_stream):
    w = new_stream().table("t").table("u").table("x").loaded()
    w.message("insert", id="one", v="a").message("insert", table="u", id=1, v="a")
    w.message("insert", table="x", id=1, v="a", new="column")
    results = w.merge()
    assert {t: r.status for t, r in results.items()} == {"t": "failed", "u": "merged", "x": "failed"}
    assert "offset 0: column 'id': 'one' does not fit INT8" in results["t"].note
    assert "unknown column new at offset 2" in results["x"].note
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


def test_a_key_change_between_partitions_is_refused_and_other_changes_keep_their_order(new_stream):
    w = new_stream(partitions=2).table("t").loaded()
    for n in range(20):
        w.message("insert" if n < 2 else "update", partition=n % 2, key_type="primary-key", id=n % 2, v=str(n))
    assert w.merged(max_batch_messages=4).rows("t") == [(0, "18"), (1, "19")]
    w.message("update", partition=1, key_type="primary-key", was={"id": 0}, id=7, v="moved")
    failed = w.merge()["t"]
    assert failed.failed and "partition-key-type schema-table" in failed.note


def test_expired_messages_are_an_error_and_never_a_gap(new_stream):
    from confluent_kafka import TopicPartition

    w = new_stream().table("t").loaded()
    for n in range(5):
        w.message("insert", id=n, v="a")
    admin = w.kafka.admin()
    for f in admin.delete_records([TopicPartition(w.topic, 0, 3)]).values():
        f.result(30)
    result = w.merge()["t"]
    assert result.failed and "messages 0 to 2 of" in result.note and "have expired" in result.note
    assert w.rows("t") == []
    w.message("load", id=9, v="z").message("insert", id=10, v="y")
    assert w.full_load(on_changed_load="reload")["t"].status == "reloaded"
    assert w.merged().rows("t") == [(10, "y"), (9, "z")]


def test_a_broker_that_stops_and_starts_loses_and_doubles_nothing(new_stream):
    w = new_stream().table("t").loaded().message("insert", id=1, v="a").merged()
    w.message("insert", id=2, v="b")
    w.kafka.stop()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("frazil.dms.kafka.PATIENCE_S", 2)
            with pytest.raises(Exception, match="do not answer"):
                w.merge()
    finally:
        w.kafka.start()
    assert w.merged().rows("t") == [(1, "a"), (2, "b")]
