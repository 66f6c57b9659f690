"""Other engines read what Frazil writes row by row; a difference in one value is found."""

from pathlib import Path

import pytest

from frazil_demo import engines
from helpers import D, I, U
from lake_reader import lake_table

pytestmark = pytest.mark.spark
ROWS, CHANGES = 200_000, 5_000


def test_duckdb_pyiceberg_and_spark_agree_row_by_row_on_many_deletion_vectors(world):
    """With DuckDB's file cache, which the demo and params/README.md switch off, rows would be wrong from the second row delta on."""
    half, expected = ROWS // 2, {i: f"a{i}" for i in range(ROWS)}
    world.table("big").load("big", *[(i, v) for i, v in expected.items() if i < half])
    world.load("big", *[(i, v) for i, v in expected.items() if i >= half], name="LOAD00000002.csv").loaded()
    for number in range(4):
        keys = [i * 7919 % ROWS for i in range(number * CHANGES, (number + 1) * CHANGES)]
        changes = [D(k) if k % 10 == 0 else U(k, f"b{number}") for k in keys] + [I(ROWS + number, "new")]
        for change in changes:
            expected.pop(change.values[0], None)
            expected |= {} if change.op == "D" else {change.values[0]: change.values[1]}
        world.changes("big", *changes, name=f"20240101-10000{number}000.csv").merged(lane="rowdelta")
    source = [(str(k), v) for k, v in expected.items()]
    catalog, target = Path(world.catalog_options["uri"].removeprefix("jdbc:sqlite:")), f"{world.space}.big"
    with engines.duckdb() as db:
        for read in (engines.by_duckdb, engines.by_pyiceberg):
            read(db, catalog, target)
            assert engines.compare(db, ["id", "v"], source) == (len(expected), 0), read.__name__
        changed = [*source[:-1], (source[-1][0], "other")]
        assert engines.compare(db, ["id", "v"], changed) == (len(expected), 2)
    assert dict(world.rows("big")) == expected
    assert lake_table(world.catalog_options, target).format_version == 3
