"""Rules of the task that begin in mid-stream, for files without a header: `layouts` says until when their columns are absent."""

import pytest

from frazil_old.flows import quarantine_replay
from helpers import FILE1, FILE2, FILE3, LOAD1, ONE_COMMIT, World
from lake_reader import lake_rows

pytestmark = pytest.mark.spark
ACTIONS = {
    "kept": {"rule-action": "add-column", "value": "src", "expression": "'eu'"},
    "unlisted": {"rule-action": "add-column", "value": "src", "expression": "$AR_M_SOURCE_SCHEMA"},
    "seq": {"rule-action": "add-column", "value": "seq", "expression": "$AR_H_CHANGE_SEQ"},
    "image": {"rule-action": "add-before-image-columns", "before-image-def": {"column-prefix": "BI_"}},
}
EXTRA = {"kept": "eu", "unlisted": "public", "seq": "202401010959000000000000000000000{:02d}", "image": ""}
ABSENT = {"kept": "src", "unlisted": "src", "seq": "seq", "image": "BI_id"}


def rules(*tables: str) -> dict:
    """Return a rule of its kind for each table, which is called by its way and its kind."""
    return {"rules": [
        {"rule-type": "transformation", "object-locator": {"schema-name": "public", "table-name": t}, **ACTIONS[t.split("_")[1]]}
        for t in tables
    ]}  # fmt: skip


def declare(world: World, table: str, layouts: bool) -> None:
    kind = table.split("_")[1]
    more = ["src WSTRING(9)"] if kind == "kept" and layouts else []
    world.table(table, "id INT8", "v WSTRING(9)", *more)
    if layouts:
        world.specs[table]["layouts"] = [{"until": FILE1, "without": [ABSENT[kind]], "load": True}]
    world.table_file(table)


def write(world: World, table: str, *files: str) -> None:
    """Write files: those until FILE1 have four fields, later ones have that of the rule besides."""
    kind = table.split("_")[1]
    moved = (9, "1") if kind == "image" else (1, "")
    rows = {
        LOAD1: [("", 1, "a", None), ("", 3, "c", None), ("", 5, "e", None)],
        FILE1: [("U,", 1, "b1", None)],
        FILE2: [("I,", 2, "x", ""), ("U,", moved[0], "b2", moved[1]), ("D,", 3, "c", "")],
        FILE3: [("U,", 2, "y", ""), ("I,", 4, "n", "")],
    }
    for name in files:
        first = 10 * [*rows].index(name)
        extra = [EXTRA[kind].format(first + n) or was for n, (*_, was) in enumerate(rows[name])]
        lines = [
            f"{op}{ONE_COMMIT},{key},{v}{'' if was is None else ',' + e}\n"
            for (op, key, v, was), e in zip(rows[name], extra, strict=True)
        ]
        world.write(table, name, "".join(lines))


def expected(table: str) -> list[tuple]:
    kind = table.split("_")[1]
    first = 9 if kind == "image" else 1
    rows = [(first, "b2"), (2, "y"), (4, "n"), (5, "e")]
    return sorted(((*r, None if r[0] == 5 else "eu") if kind == "kept" else r for r in rows), key=repr)


@pytest.mark.slow
def test_a_rule_that_begins_between_two_files_gives_the_same_rows_in_one_batch_in_two_and_by_a_replay(new_world):
    world = new_world()
    world.given = {"on_bad_rows": "quarantine", "max_bad_percent": 100.0, "ops_namespace": f"{world.space}_ops"}
    one, two, again = ([f"{way}_{kind}" for kind in ACTIONS] for way in ("one", "two", "again"))
    for table in (*one, *two, *again, "bad_kept"):
        declare(world, table, layouts=table in one)
        write(world, table, LOAD1)
    world.specs["bad_kept"]["on_bad_rows"] = "stop"
    world.table_file("bad_kept")
    world.rules = rules(*one)
    world.loaded()
    for table in (*two, *again):
        write(world, table, FILE1, *([FILE2] if table in again else []))
    results = world.merge()
    assert all(results[t].counts["quarantined"] == 3 for t in again), results

    write(world, "bad_kept", FILE1, FILE2)
    world.rules = rules(*one, *two, *again, "bad_kept")
    for table in (*two, *again):
        declare(world, table, layouts=True)
    for table in (*one, *two):
        write(world, table, FILE1, FILE2, FILE3)
    late = "again_image"  # of a key that changed, nothing tells whether the old one came again in later files
    for table in again:
        write(world, table, *([] if table == late else [FILE3]))
    results = world.merge()
    assert results["bad_kept"].failed
    assert all(word in results["bad_kept"].note for word in (FILE1, "layouts", "without"))
    assert not [r.note for t, r in results.items() if r.failed and t != "bad_kept"]
    assert not [r.note for r in quarantine_replay.run(world.book(quarantine="replay")) if r.failed]
    write(world, late, FILE3)
    world.merge()
    found = {t: lake_rows(world.catalog_options, f"{world.space}.{t}") for t in (*one, *two, *again)}
    assert found == {t: expected(t) for t in found}


LONG = {"first": ("a", 140_000), "middle": ("b", 1 << 21), "last": ("c", 50_000_000)}


def test_the_check_of_layouts_takes_a_first_row_of_any_length(new_world):
    world = new_world()
    world.rules = {"rules": []}
    for place in LONG:
        world.table(place, "a CLOB", "id INT8", "b CLOB", "c CLOB")
        world.specs[place]["layouts"] = [{"until": FILE1, "columns": ["a", "id", "b"]}]
        world.table_file(place).load(place, ("", 1, "", ""))
    world.loaded()
    for place, (column, length) in LONG.items():
        long, values = "x" * (length - 9) + '""y\n,z"', {"a": "-", "b": "-", "c": "-"}
        values[column] = f'"{long[:-1]}"'
        world.write(place, FILE2, f"U,{ONE_COMMIT},{values['a']},1,{values['b']},{values['c']}\n")
    world.merged()
    for place, (column, length) in LONG.items():
        [row] = lake_rows(world.catalog_options, f"{world.space}.{place}", (column,))
        assert row[0] == "x" * (length - 9) + '"y\n,z'


def test_a_layout_that_names_no_added_column_is_refused(new_world):
    world = new_world()
    world.table("t")
    world.specs["t"]["layouts"] = [{"until": FILE1, "without": ["sequence"]}]
    world.table_file("t").load("t", (1, "a")).setup()
    world.write("t", FILE1, f"U,{ONE_COMMIT},1,b\n")
    note = world.full_load()["t"].note + world.merge()["t"].note
    assert "'sequence'" in note and "layouts" in note
