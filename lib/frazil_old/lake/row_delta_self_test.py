"""The self-test of row deltas: whether they work here, on a scratch table next to the table."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from frazil_old.config.paths import local_path
from frazil_old.config.processes import host, is_running
from frazil_old.config.spec import Column, TableSpec
from frazil_old.dms.position import Position
from frazil_old.errors import FrazilError
from frazil_old.lake import jvm
from frazil_old.lake.commit import CommitMetadata
from frazil_old.lake.tables import create_table, read_table_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil_old.lake.lane_choice import Lanes

PREFIX = "frazil_selftest_"
_NAME = re.compile(rf"{PREFIX}([0-9a-f]{{8}})_(\d+)_(\d+)_[0-9a-f]{{8}}")


def self_test(lanes: Lanes, table: str, version: int) -> str:
    """Write a scratch table by row deltas and read it back; return what is wrong, empty if nothing is."""
    import pyarrow as pa

    from frazil_old.lake.row_delta import RowDelta

    space = table.rsplit(".", 1)[0]
    clear_self_tests(lanes, table)
    name = f"{space}.{new_name()}"
    spec = TableSpec("self.test", name, ("id",), (Column("id", "INT8"), Column("v", "STRING")))
    lane = RowDelta(lanes.spark, name, spec, lanes.folder)
    try:
        create_table(lanes.spark, name, spec, version)
        for op, v in (("I", "a"), ("U", "b"), ("D", "c")):
            ids = [1, 2] if op == "I" else [1] if op == "U" else [2]
            keys = pa.array(ids, pa.int64())
            rows = pa.table({"op": [op] * len(ids), "key_number0": keys, "c0": keys, "c1": [v] * len(ids)})
            metadata = CommitMetadata(Position(batch=secrets.token_hex(4)), {})
            lane.commit_by_index(read_table_state(lanes.spark, name), rows, metadata)
        row_id = "_row_id" if version >= 3 else "0"
        got = [tuple(r) for r in lanes.spark.sql(f"SELECT *, {row_id} FROM {name}").collect()]
        return "" if got == [(1, "b", 0)] else f"the self-test read back {got}"
    except FrazilError as e:
        return f"the self-test failed: {e.problem}"
    except Exception as e:
        return f"the self-test failed: {jvm.cause(e)}"
    finally:
        _drop(lanes.spark, name)
        shutil.rmtree(lane.locator.folder, ignore_errors=True)


def clear_self_tests(lanes: Lanes, table: str) -> None:
    """Remove the scratch tables of killed processes, in the catalog and next to a table, and their files."""
    space, spark = table.rsplit(".", 1)[0], lanes.spark
    shown = {r.tableName for r in spark.sql(f"SHOW TABLES IN {space} LIKE '{PREFIX}*'").collect()}
    for name in filter(is_abandoned, shown):
        _drop(spark, f"{space}.{name}")
        shutil.rmtree(lanes.folder / f"{space}.{name}", ignore_errors=True)
    folder = local_path(jvm.load_table(spark, table).location())
    for left in Path(folder).parent.glob(f"{PREFIX}*") if folder else ():
        if is_abandoned(left.name):  # killed before or after its table was in the catalog
            shutil.rmtree(left, ignore_errors=True)


def _drop(spark: SparkSession, name: str) -> None:
    """Drop a scratch table, and the folder of a local one: Iceberg leaves it, with files that were never committed."""
    folder = local_path(jvm.load_table(spark, name).location()) if spark.catalog.tableExists(name) else None
    spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")
    if folder and Path(folder).name == name.rsplit(".", 1)[-1]:
        shutil.rmtree(folder, ignore_errors=True)


def new_name() -> str:
    """Return the name of a scratch table of this process."""
    return f"{PREFIX}{host()}_{os.getpid()}_{int(time.time())}_{secrets.token_hex(4)}"


def is_abandoned(name: str) -> bool:
    """Return whether a table is a scratch table of a process that has ended, or of an earlier version."""
    found = _NAME.fullmatch(name)
    if not found:
        return name.startswith(PREFIX)
    return not is_running(found[1], int(found[2]), int(found[3]))
