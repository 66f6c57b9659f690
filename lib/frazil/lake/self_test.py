"""The self-test of row deltas: whether they work here, on a scratch table next to the table."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.config.paths import local_path
from frazil.config.spec import Column, TableSpec
from frazil.dms.position import Position
from frazil.errors import FrazilError
from frazil.lake import jvm, self_test_names
from frazil.lake.rowdelta import RowDelta
from frazil.lake.tables import create_table, read_base

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.lake.write_path import Lanes


def self_test(lanes: Lanes, table: str, version: int) -> str:
    """Write a scratch table by row deltas and read it back; return what is wrong, empty if nothing is."""
    import pyarrow as pa

    space = table.rsplit(".", 1)[0]
    clear_self_tests(lanes, table)
    name = f"{space}.{self_test_names.new_name()}"
    spec = TableSpec("self.test", name, ("id",), (Column("id", "INT8"), Column("v", "STRING")))
    lane = RowDelta(lanes.spark, name, spec, lanes.folder)
    try:
        create_table(lanes.spark, name, spec, version)
        for op, v in (("I", "a"), ("U", "b"), ("D", "c")):
            ids = [1, 2] if op == "I" else [1] if op == "U" else [2]
            rows = pa.table({
                "op": [op] * len(ids),
                "key0": pa.array(ids, pa.int64()), "c0": pa.array(ids, pa.int64()), "c1": [v] * len(ids),
            })  # fmt: skip
            lane.apply(read_base(lanes.spark, name), Position(batch=secrets.token_hex(4)), rows, {}, {})
        got = [tuple(r) for r in lanes.spark.table(name).collect()]
        return "" if got == [(1, "b")] else f"the self-test read back {got}"
    except FrazilError as e:
        return f"the self-test failed: {e.problem}"
    except Exception as e:
        return f"the self-test failed: {jvm.cause(e)}"
    finally:
        _drop(lanes.spark, name)
        shutil.rmtree(lane.rows.folder, ignore_errors=True)


def clear_self_tests(lanes: Lanes, table: str) -> None:
    """Remove the scratch tables of killed processes, in the catalog and next to a table, and their files."""
    space, spark = table.rsplit(".", 1)[0], lanes.spark
    shown = {r.tableName for r in spark.sql(f"SHOW TABLES IN {space} LIKE '{self_test_names.PREFIX}*'").collect()}
    for name in filter(self_test_names.is_abandoned, shown):
        _drop(spark, f"{space}.{name}")
        shutil.rmtree(lanes.folder / f"{space}.{name}", ignore_errors=True)
    folder = local_path(jvm.load_table(spark, table).location())
    for left in Path(folder).parent.glob(f"{self_test_names.PREFIX}*") if folder else ():
        if self_test_names.is_abandoned(left.name):  # killed before or after its table was in the catalog
            shutil.rmtree(left, ignore_errors=True)


def _drop(spark: SparkSession, name: str) -> None:
    """Drop a scratch table, and the folder of a local one: Iceberg leaves it, with files that were never committed."""
    folder = local_path(jvm.load_table(spark, name).location()) if spark.catalog.tableExists(name) else None
    spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")
    if folder and Path(folder).name == name.rsplit(".", 1)[-1]:
        shutil.rmtree(folder, ignore_errors=True)
