"""The last change per key, changed keys and partial rows: against a plain replay, change by change; no Spark."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.core.key_changes import keys_at_first
from frazil_old.core.latest_per_key import latest_per_key
from frazil_old.core.partial_rows import fill
from frazil_old.engine.kept_batch import moved_rows, moving_of_bucket
from frazil_old.engine.row_form import RowForm, from_blocks, to_blocks
from helpers import spec_of

ONE = parse_spec(spec_of("public.t", "id INT4", "v WSTRING(9)", "w WSTRING(9)"))
TWO = parse_spec(spec_of("public.t", "a WSTRING(9)", "b REAL8", "v WSTRING(9)", "w WSTRING(9)", key=("a", "b")))
START = datetime(2024, 1, 1, tzinfo=UTC)


def table(spec, *rows) -> pa.Table:
    """Make changes of (op, values, old key or None, absent columns, seconds, sequence)."""
    kinds = {
        f"new_{i}": {"INT4": pa.int32(), "REAL8": pa.float64()}.get(c.dms_type, pa.string())
        for i, c in enumerate(spec.columns)
    }
    kinds |= {f"old_{i}": kinds[f"new_{spec.names.index(k)}"] for i, k in enumerate(spec.key)}
    columns = {name: [] for name in ("number", "op", "commit_ts", "change_seq", *kinds)}
    absent = {f"absent_{i}": [] for i in range(len(spec.names))}
    for number, (op, values, old, lacking, seconds, sequence) in enumerate(rows, 1):
        columns["number"].append(number)
        columns["op"].append(op)
        columns["commit_ts"].append(START + timedelta(seconds=seconds))
        columns["change_seq"].append(sequence)
        for i, value in enumerate(values):
            columns[f"new_{i}"].append(value)
            absent[f"absent_{i}"].append(i in lacking)
        for i in range(len(spec.key)):
            columns[f"old_{i}"].append(old[i] if old else None)
    kinds |= {
        "number": pa.int64(),
        "op": pa.string(),
        "commit_ts": pa.timestamp("us", "UTC"),
        "change_seq": pa.string(),
    }
    some = {name: pa.array(mask) for name, mask in absent.items() if any(mask)}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()} | some)


def change(op, *values, old=None, lacking=(), seconds=0, sequence=None):
    return op, values, old, lacking, seconds, sequence


def keys_of(rows: pa.Table, spec) -> dict:
    """Return {key: None for a delete, else the values}."""
    names = [f"new_{i}" for i in range(len(spec.names))]
    at = [spec.names.index(k) for k in spec.key]
    found = {}
    for row in rows.to_pylist():
        values = tuple(row[n] for n in names)
        key = tuple(values[i] for i in at)
        assert key not in found, "a key came out twice"
        found[key] = None if row["op"] == "D" else values
    return found


def replayed(spec, rows, stored: dict) -> dict:
    """Apply changes one after the other to the rows by key."""
    lake, at = dict(stored), [spec.names.index(k) for k in spec.key]
    for op, values, old, lacking, *_ in rows:
        key = tuple(values[i] for i in at)
        before = tuple(o if o is not None else k for o, k in zip(old, key, strict=True)) if old and op == "U" else key
        was = lake.pop(before, None) if op == "U" and before != key else lake.get(key)
        if op == "D":
            lake.pop(key, None)
        else:
            lake[key] = tuple((was[i] if was else None) if i in lacking else v for i, v in enumerate(values))
    return lake


def test_the_last_change_of_a_key_stands():
    rows = table(
        ONE, change("I", 1, "a", "b"), change("U", 1, "c", "d"), change("I", 2, "x", "y"), change("D", 2, None, None)
    )
    assert keys_of(latest_per_key(rows, ONE).rows, ONE) == {(1,): (1, "c", "d"), (2,): None}


def test_a_changed_key_leaves_the_old_one():
    rows = table(ONE, change("U", 2, "a", "b", old=(1,)), change("U", 3, "c", "d", old=(2,)))
    assert keys_of(latest_per_key(rows, ONE).rows, ONE) == {(1,): None, (2,): None, (3,): (3, "c", "d")}


def test_a_row_is_followed_from_key_to_key():
    moves = [(2, 1), (3, 2), (4, 8), (8, 4), (6, 5), (7, 9)]  # 1 → 2 → 3, 8 → 4 → 8, 5 → 6, 9 → 7
    rows = [change("U", new, "a", "b", old=(old,)) for new, old in moves]
    rows = [*rows[:4], change("D", 5, None, None), change("I", 5, "a", "b"), *rows[4:], change("I", 9, "a", "b")]
    latest = latest_per_key(table(ONE, *rows), ONE)
    assert keys_before(latest, latest.rows["new_0"].to_pylist()) == {3: 1, 7: 9}
    assert latest_per_key(table(ONE, change("U", 1, "a", "b")), ONE).moving is None


def keys_before(latest, keys: list) -> dict:
    """Return the keys that rows had before the batch, by their keys now."""
    moving = latest.moving
    return keys_at_first(moving, [keys[row] for row in moving["row"].to_pylist()])


def test_a_part_of_a_key_without_an_old_value_stayed_as_it_was():
    rows = table(TWO, change("U", "x", 2.0, "a", "b", old=(None, 1.0)))
    assert keys_of(latest_per_key(rows, TWO).rows, TWO) == {("x", 1.0): None, ("x", 2.0): ("x", 2.0, "a", "b")}


def test_zero_and_minus_zero_are_one_key():
    rows = table(TWO, change("I", "x", 0.0, "a", "b"), change("U", "x", -0.0, "c", "d"))
    assert len(latest_per_key(rows, TWO).rows) == 1


def test_a_sequence_that_goes_back_is_counted():
    rows = table(ONE, change("I", 1, "a", "b", sequence="2024010110000000" + "9" * 19),
                 change("U", 1, "c", "d", sequence="2024010109000000" + "1" * 19),
                 change("I", 2, "a", "b", sequence="2024010108000000" + "1" * 19))  # fmt: skip
    assert latest_per_key(rows, ONE).out_of_sequence == 1


def test_a_key_that_is_reused_within_one_commit_is_counted():
    swap = [change("U", 2, "a", "", old=(1,)), change("U", 3, "b", "", old=(2,))]
    assert len(latest_per_key(table(ONE, *swap), ONE).transient_keys) == 1
    later = [change("U", 2, "a", "", old=(1,)), change("U", 3, "b", "", old=(2,), seconds=1)]
    assert len(latest_per_key(table(ONE, *later), ONE).transient_keys) == 0


def test_a_column_that_no_change_carries_stays_as_it_is_stored():
    filled = fill(table(ONE, change("U", 1, "c", None, lacking=(2,))), ONE)
    assert filled.missing == [["w"]] and filled.stored_keys["new_0"].to_pylist() == [1]


def test_after_a_delete_nothing_is_left_of_the_stored_row():
    filled = fill(table(ONE, change("D", 1, None, None), change("I", 1, "c", None, lacking=(2,))), ONE)
    assert filled.missing == [[]] and keys_of(filled.rows, ONE) == {(1,): (1, "c", None)}


@pytest.mark.parametrize("spec", [ONE, TWO], ids=["one key column", "two"])
@pytest.mark.parametrize("partial", [False, True])
def test_any_changes_leave_what_a_replay_leaves(spec, partial):
    r = random.Random(5)
    for _ in range(150):
        size = len(spec.key)
        key = (lambda: (r.randrange(5),)) if size == 1 else (lambda: (r.choice("xy"), float(r.randrange(3))))
        stored = {k: (*k, "v0", "w0") for k in {key() for _ in range(3)}}
        rows = []
        for n in range(r.randrange(1, 14)):
            new, op = key(), r.choice("IUUUD")
            old = key() if op == "U" and r.random() < 0.4 else None
            lacking = tuple(i for i in (size, size + 1) if partial and op == "U" and r.random() < 0.5)
            values = ("v" + str(n), "w" + str(n)) if op != "D" else (None, None)
            values = tuple(None if size + i in lacking else v for i, v in enumerate(values))
            rows.append(change(op, *new, *values, old=old, lacking=lacking))
        expected = replayed(spec, rows, stored)
        lake = dict(stored)
        if partial:
            filled = fill(table(spec, *rows), spec)
            keys = [
                tuple(row[f"new_{spec.names.index(k)}"] for k in spec.key) for row in filled.stored_keys.to_pylist()
            ]
            result = keys_of(filled.rows, spec)
            for (k, row), missing, key_then in zip(result.items(), filled.missing, keys, strict=True):
                if row and missing:
                    was = stored.get(key_then)
                    result[k] = tuple(
                        (was[i] if was else None) if spec.names[i] in missing else v for i, v in enumerate(row)
                    )
        else:
            result = keys_of(latest_per_key(table(spec, *rows), spec).rows, spec)
        for k, row in result.items():
            lake.pop(k, None)
            if row:
                lake[k] = row
        assert lake == expected, rows


def random_changes(r, spec, count):
    size = len(spec.key)
    key = (lambda: (r.randrange(5),)) if size == 1 else (lambda: (r.choice("xy"), r.choice([0.0, -0.0, 1.5])))
    rows = []
    for n in range(count):
        op = r.choice("IUUUD")
        old = key() if op == "U" and r.random() < 0.4 else None
        rows.append(change(op, *key(), *((f"v{n}", f"w{n}") if op != "D" else (None, None)), old=old))
    return rows


@pytest.mark.parametrize("spec", [ONE, TWO], ids=["one key column", "two"])
def test_an_exchange_by_buckets_gives_the_same_last_changes(spec):
    r = random.Random(9)
    for _ in range(60):
        rows = random_changes(r, spec, r.randrange(1, 30))
        blocks, cut = {}, r.randrange(len(rows) + 1)
        for order, part in enumerate((rows[:cut], rows[cut:])):
            for batch in table(spec, *part).to_batches():
                for bucket, block in to_blocks(batch, order, spec, 3):
                    blocks.setdefault(bucket, []).append(block)
        apart, reports = {}, []
        for bucket, some in blocks.items():
            r.shuffle(some)
            latest = from_blocks(some, spec)
            found = keys_of(latest.rows, spec)
            assert not found.keys() & apart.keys(), "a key went to two buckets"
            apart |= found
            reports.append(moving_of_bucket(bucket, latest, RowForm(spec).rows_of(latest.rows), RowForm(spec)))
        whole = latest_per_key(table(spec, *rows), spec)
        assert apart == keys_of(whole.rows, spec)
        assert before_of_buckets(reports, spec) == (
            keys_before(whole, keys_in(whole.rows, spec)) if whole.moving else {}
        )


def keys_in(rows: pa.Table, spec) -> list[tuple]:
    columns = [[v + 0.0 if v == 0 else v for v in rows[f"new_{spec.names.index(k)}"].to_pylist()] for k in spec.key]
    return list(zip(*columns, strict=True))


def before_of_buckets(reports: list, spec) -> dict:
    """Return the keys that rows had before, by their keys now, as the driver finds them out of several tasks' reports."""
    moved = moved_rows([report for report in reports if report], RowForm(spec))
    if moved is None:
        return {}
    numbered = pa.concat_tables([report for report in reports if report]).to_pylist()
    at = [f"c{spec.names.index(k)}" for k in spec.key]
    key = {x["n"]: tuple(x[name] + 0.0 if x[name] == 0 else x[name] for name in at) for x in numbered}
    for x in moved.to_pylist():
        assert tuple(x[f"stored_key{i}"] for i in range(len(at))) == key[x["stored_key_n"]]
    return {key[x["n"]]: key[x["stored_key_n"]] for x in moved.to_pylist()}


def test_no_changes_leave_nothing():
    assert len(latest_per_key(table(ONE), ONE).rows) == 0
