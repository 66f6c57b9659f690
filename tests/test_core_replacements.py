"""What `replace` declares for values that a lake's type lacks, in the core: texts of CSV, and values of Parquet."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.core.changes import change_rows, type_parquet
from frazil_old.core.field_meaning import ReadRules
from helpers import spec_of
from test_declared_values import BAD, DECLARED, IN_LAKE

CASES = [(c, name, text) for c, (_, names) in BAD.items() for name, texts in names.items() for text in texts]


def spec(column: str, kind: str, replace: dict | None):
    entry = spec_of("public.t", "id INT8", f"{column} {kind}")
    if replace:
        entry["columns"][1]["replace"] = replace
    return parse_spec(entry)


def rows(column: str, values: pa.Array, replace: dict | None):
    """Return what the values of one column come to, and the bad rows."""
    texts = {"after:id": pa.array([str(i) for i in range(len(values))]), f"after:{column}": values}
    return change_rows(texts, np.arange(len(values)), spec(column, BAD[column][0], replace))


@pytest.mark.parametrize(("column", "name", "text"), CASES)
def test_a_text_is_bad_until_it_is_declared_and_no_other_one_changes(column, name, text):
    good = {"ship": "2024-05-06 00:00:00", "day": "2024-05-06", "price": "1.50", "note": "c"}[column]
    values = pa.array([text, good, None])
    assert [b.number for b in rows(column, values, None).bad] == [0]
    found = rows(column, values, {name: DECLARED[column][name]})
    declared, kept, none = found.rows["new_1"].to_pylist()
    assert not found.bad and declared == IN_LAKE.get(DECLARED[column][name]) and str(kept) in (good, f"{good}")
    assert none is None


OUTSIDE = pa.array([-(8 * 10**10), 10**12, 0, None], pa.int64()).cast(pa.timestamp("s"))


@pytest.mark.parametrize(
    ("kind", "values", "replace", "wanted"),
    [
        ("DATETIME", OUTSIDE, {"before_year_1": None, "after_year_9999": "9999-12-31"}, [None, dt.datetime(9999, 12, 31), dt.datetime(1970, 1, 1), None]),
        ("NUMERIC(9,2)", pa.array([math.nan, math.inf, -math.inf, 1.5]), {"NaN": None, "infinity": "7", "-infinity": "-7"}, [None, Decimal("7.00"), Decimal("-7.00"), Decimal("1.50")]),
        ("WSTRING(9)", pa.array(["a\ufffd", "b", None]), {"U+FFFD": "?"}, ["a?", "b", None]),
    ],
)  # fmt: skip
def test_values_of_parquet_become_what_is_declared(kind, values, replace, wanted):
    columns = pa.RecordBatch.from_arrays([pa.array(range(len(values))), values], ["id", "x"])
    for declared, bad in ((None, True), (replace, False)):
        found = type_parquet(columns, 1, ("after:id", "after:x"), spec("x", kind, declared), ReadRules())
        assert bool(found.bad) == bad, found.bad
        assert not bad or "out of range" not in found.bad[0].reason
    assert found.rows["new_1"].to_pylist() == wanted


@pytest.mark.parametrize("values", [[0.1], [0.1, math.nan]])
def test_a_value_without_its_type_changes_no_other_one_of_its_block(values):
    columns = pa.RecordBatch.from_arrays([pa.array(range(len(values))), pa.array(values, pa.float32())], ["id", "x"])
    found = type_parquet(columns, 1, ("after:id", "after:x"), spec("x", "NUMERIC(9,2)", {"NaN": None}), ReadRules())
    assert [b.number for b in found.bad] == [1], "the float is 0.10000000149"
