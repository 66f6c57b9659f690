"""Small DataFrames from Python's values, and rows of a DataFrame as Arrow.

The JVM builds them: from a Python list, executors would start Python processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, rows: Iterable[tuple[Any, ...]], columns: str) -> DataFrame:
    """Return rows of texts, numbers and nulls as a DataFrame; `columns` as in `name string, count long`."""
    from pyspark.sql import functions as F

    names = [column.split()[0] for column in columns.split(", ")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    return spark.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(text), f"array<struct<{columns}>>")))


def of_arrow(spark: SparkSession, rows: Table) -> DataFrame:
    """Return an Arrow table as a DataFrame; Spark would shift times by its session's zone.

    Spark takes a batch without rows for the end of all, so empty ones are left out.
    """
    from pyspark.sql import DataFrame

    if rows.num_rows:
        rows = type(rows).from_batches([batch for batch in rows.to_batches() if batch.num_rows], rows.schema)
    if hasattr(DataFrame, "toArrow"):  # Spark 4 accepts an Arrow table
        return spark.createDataFrame(rows)
    from frazil_old.lake.jvm import arrow_frame

    return arrow_frame(spark, rows)


def collect_arrow(rows: DataFrame) -> Table:
    """Collect rows in the driver as an Arrow table."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    if hasattr(rows, "toArrow"):
        return rows.toArrow()
    batches = rows._collect_as_arrow()  # Spark 3.5 has no more than this
    return pa.Table.from_batches(batches) if batches else to_arrow_schema(rows.schema).empty_table()
