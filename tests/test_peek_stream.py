"""`frazil peek` on a Kafka topic."""

from __future__ import annotations

import json
import time

import pytest

from frazil_old import exit_codes
from frazil_old.cli.commands import main
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark  # the embedded Kafka needs its jars


@pytest.fixture
def topic(kafka, tmp_path):
    def make(name: str, partitions: int = 1) -> KafkaWorld:
        return KafkaWorld(kafka, tmp_path / name, name, {}, partitions=partitions)

    return make


def _peeked(w: KafkaWorld, capsys) -> str:
    assert main(["peek", w.source]) == exit_codes.OK
    said = capsys.readouterr().out
    assert all(len(line) <= 80 for line in said.splitlines() if "source: kafka" not in line and line != w.source), said
    return said


def test_a_topic_shows_tables_keys_types_times_and_what_is_next(topic, capsys):
    w = topic("peeked")
    w.control("create-table", "t", id="INT64", v="STRING")
    w.message("load", "t", id=1, v="a").message("load", "t", id=2, v="b")
    now = time.time()
    about = {"commit-timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 40))}
    for n in range(11):
        values = json.dumps({"data": {"id": n, "v": "c"}, "before-image": {"id": n}, "metadata": {
            "record-type": "data", "operation": "update", "schema-name": "public", "table-name": "t",
            "partition-key-type": "schema-table", **about}})  # fmt: skip
        w.send(values, at_ms=int((now - 30 + n) * 1000))
    said = _peeked(w, capsys)
    assert "1 partition, 14 messages kept; 14 read in" in said
    row = next(line for line in said.splitlines() if line.startswith("public.t "))
    assert row.split()[:3] == ["public.t", "2", "11"] and row.endswith("id")
    assert "public.t: 2: id INT8, v WSTRING" in said
    assert "unknown_tables: create" in said and "stream_start: earliest" in said
    assert "last commit seen" in said
    assert "wrong or odd" not in said and "not shown" not in said


def test_what_is_no_message_of_dms_and_what_is_missing_is_named(topic, capsys):
    w = topic("odd", partitions=2)
    w.message("insert", "t", key_type="primary-key", id=1, price=1.5).send("junk \x1b[31m", 1).send(None, 0)
    said = _peeked(w, capsys)
    assert "odd/1 at offset 0: no message of DMS: 'junk" in said and "odd/0 at offset 1" in said and "\x1b" not in said
    assert "messages are spread by primary-key" in said
    assert "types and key of public.t: no create-table record" in said and "EnableBeforeImage" in said
    assert "id whole number, price text or number" in said
    assert "frazil init --env prod --endpoints endpoints.json writes specs" in " ".join(said.split())


def test_a_commit_time_in_another_form_is_named(topic, capsys):
    w = topic("times")
    w.message("insert", "t", id=1).message("insert", "t", about={"commit-timestamp": "soon"}, id=2)
    said = _peeked(w, capsys)
    assert "times/0 at offset 1: commit timestamp 'soon' is not" in said and "last commit seen 2026-01-01 10:00" in said


def test_an_empty_topic_a_wrong_name_and_a_kinesis_stream_are_called_so(topic, capsys):
    w = topic("empty")
    assert main(["peek", w.source]) == exit_codes.NOTHING
    assert "it is empty" in capsys.readouterr().out
    assert main(["peek", w.source.replace("/empty", "/emty")]) != exit_codes.OK
    assert "no topic 'emty'" in capsys.readouterr().err
    assert main(["peek", "kinesis://eu-central-1/x"]) == exit_codes.WRONG
    assert "no Kinesis stream" in capsys.readouterr().err
