"""Many messages of a stream: Spark's tasks parse and collapse them by the core, and the result is that of any other read."""

import itertools
import json

import pytest

from frazil_old.engine import message_batch
from frazil_old.flows import stream_read
from stream_world import KafkaWorld

pytestmark = pytest.mark.spark
_numbers = itertools.count(1)


@pytest.fixture
def new_world(kafka, spark, catalog_options, tmp_path):
    def new(partitions: int = 1) -> KafkaWorld:
        number = next(_numbers)
        return KafkaWorld(kafka, tmp_path / f"w{number}", f"many{number}", catalog_options, partitions=partitions)

    return new


@pytest.fixture(autouse=True)
def all_are_many(monkeypatch):
    monkeypatch.setattr(stream_read, "MOST", 0)
    monkeypatch.setattr(message_batch, "MOST", 0)


@pytest.fixture
def loaded(new_world):
    """A table of two columns with one row, whose load is behind its position."""
    return new_world().table("t").message("load", id=1, v="a").loaded()


def test_a_table_may_be_created_from_the_messages(loaded):
    new = f"{loaded.space}_later"
    w = loaded.control("create-table", new, id="INT64", v="STRING").message("insert", new, id=5, v="x")
    w.message("insert", id=2, v="b")
    w.merge(unknown_tables="create")
    assert w.rows("t") == [(1, "a"), (2, "b")]
    assert w.full_load()[new].status == "loaded"
    w.merged()
    assert [tuple(r) for r in w.spark.table(f"lake.public.{new}").collect()] == [(5, "x")]


def test_a_bad_row_is_named_and_nothing_of_its_batch_is_applied(new_world):
    w = new_world().table("t", "id INT8", "n INT4").message("load", id=1, n=1).loaded()
    w.message("insert", id=2, n=2).message("insert", id=3, n=3_000_000_000)
    done = w.merge()["t"]
    assert done.status == "failed" and "offset 2" in done.note and "3000000000" in done.note
    assert w.rows("t") == [(1, 1)]


def test_a_message_that_names_no_table_stops_the_table_and_is_shown(loaded):
    w = loaded.send(b"\xff no message").message("insert", id=2, v="b")
    note = w.merge()["t"].note
    assert "no message" in note and "offset 1" in note
    assert w.merged(on_unreadable="report").rows("t") == [(1, "a"), (2, "b")]


def test_more_bad_messages_than_allowed_stop_the_table_and_the_first_are_named(new_world):
    w = new_world(partitions=2).table("t", "id INT8", "n INT4").loaded()
    for n in range(20):
        w.message("insert", id=n, n="x" if n % 3 else 1, partition=n % 2)
    w.send(
        '{"data": {"id": , "metadata": {"record-type": "data", "operation": "insert", "schema-name": "public", "table-name": "t"}}'
    )
    note = w.merge(on_bad_rows="quarantine", max_bad_rows=5, ops_namespace=f"{w.space}_ops")["t"].note
    assert "14 bad rows" in note and "14 of 21 rows are more than max_bad_rows=5" in note
    assert [f"{w.topic}/0 offset {n}: column 'n'" in note for n in (1, 2, 4)] == [True] * 3 and "… and 11 more" in note
    assert "fetch a damaged file again" not in note
    w.merged(on_bad_rows="quarantine", max_bad_rows=14, max_bad_percent=90.0, ops_namespace=f"{w.space}_ops")
    rows = w.spark.table(f"lake.{w.space}_ops.quarantine").collect()
    assert len(rows) == 14 and len({(r.path, r.row_no) for r in rows}) == 14
    assert all(b'"x"' in bytes(r.raw) or r.reason.startswith("not JSON as DMS writes it: {") for r in rows)


def test_a_message_that_cannot_be_read_shows_nothing_of_a_table_that_hides_columns(new_world):
    w = new_world().table("t")
    w.specs["t"]["columns"][1]["mask"] = "sha256"
    (w.root / "specs/t.yml").write_text(json.dumps(w.specs["t"]))
    w.loaded()
    w.send(
        '{"data": {"id": "secret, "metadata": {"record-type": "data", "operation": "insert", "schema-name": "public", "table-name": "t"}}'
    )
    note = w.merge()["t"].note
    assert "a message that cannot be read, with columns that are masked or left out" in note and "secret" not in note
