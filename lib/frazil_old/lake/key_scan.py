"""Finds the live rows of many keys: Spark joins a scan of the table's key columns with a broadcast of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier
from frazil_old.lake.commit import MismatchError
from frazil_old.lake.data_file_writer import ROW_ID
from frazil_old.lake.merge import bound
from frazil_old.lake.small_frames import collect_arrow, of_arrow

if TYPE_CHECKING:
    import numpy as np
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class ScannedTable:
    """A table at a snapshot: its data files in any order, and whether its rows have a `_row_id` (format v3)."""

    name: str
    spec: TableSpec
    snapshot: int
    files: Sequence[str]
    has_row_ids: bool


@dataclass(frozen=True)
class FoundRows:
    """The live rows of some keys, each with the number of its key (`n`), its data file, and its position there.

    `file` is a place in `ScannedTable.files`. `row_id` is None for tables without row ids.
    """

    n: np.ndarray
    file: np.ndarray
    position: np.ndarray
    row_id: np.ndarray | None


def find_rows(spark: SparkSession, state: ScannedTable, keys: DataFrame, bounds: tuple[Any, Any]) -> FoundRows:
    """Return the live rows of `keys` in this process, whose memory must hold them; see `found_rows`.

    Raise MismatchError for a row in a file that is not one of the table's.
    """
    from pyspark.sql import functions as F

    rows = collect_arrow(found_rows(spark, state, F.broadcast(keys), bounds))
    if rows["file"].null_count:
        raise MismatchError(f"{state.name}: a scan names a data file that the table does not list", "run again")
    ids = rows[ROW_ID].to_numpy() if state.has_row_ids and not rows[ROW_ID].null_count else None
    return FoundRows(rows["n"].to_numpy(), rows["file"].to_numpy(), rows["_pos"].to_numpy(), ids)


def found_rows(spark: SparkSession, state: ScannedTable, keys: DataFrame, bounds: tuple[Any, Any]) -> DataFrame:
    """Return the live rows of `keys` (`n`, `key0` …) in a table: `n`, the file's place, `_pos` and, on v3, `_row_id`.

    `bounds` are the smallest and the largest first key, if known: Iceberg then leaves out files without such keys. The
    place is null for a row in a file that is not one of the table's.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F

    key = [f"{identifier(name)} AS stored_key{i}" for i, name in enumerate(state.spec.key)]
    own = [ROW_ID] if state.has_row_ids else []
    low, high = map(bound, bounds)
    where = f"WHERE {identifier(state.spec.key[0])} BETWEEN {low} AND {high}" if low and high else ""
    columns = ", ".join(["_file", "_pos", *own, *key])
    table = spark.sql(f"SELECT {columns} FROM {state.name} VERSION AS OF {state.snapshot} {where}")
    same = [F.col(f"stored_key{i}") == F.col(f"key{i}") for i in range(len(key))]
    places = pa.table({"path": list(state.files), "file": pa.array(range(len(state.files)), pa.int32())})
    found = table.join(keys, same).join(F.broadcast(of_arrow(spark, places)), F.col("_file") == F.col("path"), "left")
    return found.select("n", "file", "_pos", *own)
