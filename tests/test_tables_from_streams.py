"""`unknown_tables: create`: tables that are only in a stream, whatever their names, and from an empty folder of specs."""

import json

import pytest
import yaml

from lake_reader import lake_rows
from stream_world import STAMP, KafkaWorld

pytestmark = pytest.mark.spark


def send(w, schema, table, operation, data=None, columns=None, key=()):
    metadata = {"timestamp": STAMP, "operation": operation, "schema-name": schema, "table-name": table}
    if columns:
        definition = {"columns": {n: {"type": t, "nullable": True} for n, t in columns.items()}, "primary-key": key}
        metadata["record-type"] = "control"
        return w.send(json.dumps({"control": {"table-def": definition}, "metadata": metadata}))
    more = {"record-type": "data", "partition-key-type": "schema-table", "commit-timestamp": STAMP}
    return w.send(json.dumps({"data": data, "metadata": metadata | more}))


def create_table(w, schema, table, *rows, columns=None, key=("id",)):
    """Send a create-table record and load records."""
    columns = columns or {"id": "INT64", "v": "STRING"}
    send(w, schema, table, "create-table", columns=columns, key=list(key))
    for row in rows:
        send(w, schema, table, "load", dict(zip(columns, row, strict=True)))


@pytest.mark.slow
def test_a_new_table_of_any_name_stops_no_other(kafka, spark, catalog_options, tmp_path):
    w = KafkaWorld(kafka, tmp_path / "w", "hostile", catalog_options).table("t")
    w.loaded()
    s = w.space
    awkward = {"a.b", "2024", "ü", "x`y", "select", "it's", "a b", 'say "hi"', "-- x", "null"}
    columns = {"id": "INT64"} | dict.fromkeys(sorted(awkward), "STRING")
    held = {(s, "a.b"), (s, "a_b"), (f"{s}.b", "x"), ("ops", "commits"), (s, "lines"), (s, "twice")}
    made = {(s, "a-b"): f"{s}.a_b", (s, "2024"): f"{s}._2024", (s, "ü"): f"{s}.u", (s, "say 'x'`;"): f"{s}.say__x___",
            (f"{s}-2", "select"): f"{s}_2.select", (f"{s}ß", "/up:x"): f"{s}_._up_x"}  # fmt: skip
    for schema, table in [*made, *sorted(held)]:
        key, types = ("id",), {"id": "INT64", "v": "STRING"}
        if table == "lines":
            key = ("nowhere",)
        if table == "twice":
            types = {"id": "INT64", "ID": "STRING"}
        create_table(w, schema, table, (1, "a"), columns=types, key=key)
    create_table(w, s, "wide", (1, *sorted(awkward)), columns=columns)
    w.message("insert", id=1, v="a")

    def word(schema, table):
        return f"{schema}.{table}".split(".", 1)[1]

    for n in (1, 2):
        done = w.merge(unknown_tables="create")
        assert done["t"].status == "merged", done["t"].note
        assert lake_rows(catalog_options, f"{s}.t") == [(i, "a") for i in range(1, n + 1)]
        if n == 1:
            expected = {word(*name): "created" for name in [*made, (s, "wide")]} | {word(*n): "waiting" for n in held}
            assert {t: r.status for t, r in done.items() if t != "t"} == expected
            notes = {name: done[word(*name)].note for name in held}
        w.message("insert", id=2, v="a")
    assert all(f"kafka://{w.topic}/0 offset " in note for note in notes.values()), notes
    assert "`target`" in notes[s, "a_b"] and "`target`" in notes["ops", "commits"] and "`source`" in notes[s, "a.b"]
    specs = [yaml.safe_load(f.read_text()) for f in (w.root / "specs").glob("*.yml")]
    assert {f["source"] for f in specs} == {".".join(n) for n in [*made, (s, "wide"), ("public", "t")]}

    loaded = w.full_load()
    assert {t: r.status for t, r in loaded.items()} == {word(*n): "loaded" for n in [*made, (s, "wide")]} | {
        "t": "unchanged"
    }
    assert {t: lake_rows(catalog_options, t) for t in made.values()} == {t: [(1, "a")] for t in made.values()}
    assert lake_rows(catalog_options, f"{s}.wide") == [(1, *sorted(awkward))]


@pytest.mark.slow
def test_a_stream_and_an_empty_folder_of_specs_are_enough(kafka, spark, catalog_options, tmp_path):
    w = KafkaWorld(kafka, tmp_path / "w", "fromnothing", catalog_options)
    s, create = w.space, {"unknown_tables": "create"}
    assert (w.setup(**create), w.full_load(**create), w.merge(**create)) == ({}, {}, {})
    create_table(w, s, "keyed", (1, "a"), (2, "b"))
    create_table(w, s, "keyless", (1, "a"), (1, "a"), (2, "b"), key=())
    for operation, table, row in [("update", "keyed", {"id": 1, "v": "A"}), ("delete", "keyless", {"id": 1, "v": "a"}), ("insert", "keyless", {"id": 3, "v": "c"})]:  # fmt: skip
        send(w, s, table, operation, row)

    first = w.full_load(**create)
    assert {t: r.status for t, r in first.items()} == {"keyed": "loaded", "keyless": "waiting"}
    assert "`without_key`" in first["keyless"].note and f"kafka://{w.topic}/0 offset 3" in first["keyless"].note
    done = w.merge(**create)
    assert {t: r.status for t, r in done.items()} == {"keyed": "merged"} | {"keyless": "waiting"}
    assert lake_rows(catalog_options, f"{s}.keyed") == [(1, "A"), (2, "b")]

    declared = create | {"without_key": "multiset"}
    assert {t: r.status for t, r in w.full_load(**declared).items()} == {"keyed": "unchanged", "keyless": "loaded"}
    w.merged(**declared)
    assert lake_rows(catalog_options, f"{s}.keyless") == [(1, "a"), (2, "b"), (3, "c")]
