"""Collapsed rows of this process as the frame that a MERGE takes: `op`, the row `after`, and its key `k0` …."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.config.sql import literal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"


def is_possible() -> bool:
    """Tell whether Spark makes a frame of Arrow's rows, without a Python process on its executors: from Spark 4 on."""
    from pyspark.sql import DataFrame

    return hasattr(DataFrame, "toArrow")


def collapsed_frame(spark: SparkSession, rows: pa.Table, spec: TableSpec) -> DataFrame:
    """Return collapsed rows (`op`, `c0` …) as a frame. Times go as microseconds: Spark would shift them by its session's zone."""
    import pyarrow as pa

    values: dict[str, str] = {}
    for i in range(len(spec.columns)):
        place, kind = rows.schema.get_field_index(f"c{i}"), rows.schema.field(f"c{i}").type
        values[f"c{i}"] = f"c{i}"
        if pa.types.is_timestamp(kind):
            micros = rows[f"c{i}"].cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
            rows = rows.set_column(place, f"c{i}", micros)
            wall_clock = f"timestampadd(MICROSECOND, c{i}, {EPOCH})"
            values[f"c{i}"] = f"timestamp_micros(c{i})" if kind.tz else wall_clock
    row = ", ".join(f"{literal(c.name)}, {values[f'c{i}']}" for i, c in enumerate(spec.columns))
    keys = [f"{values[f'c{spec.names.index(k)}']} as k{i}" for i, k in enumerate(spec.key)]
    return spark.createDataFrame(rows).selectExpr("op", f"named_struct({row}) as after", *keys)


def bounds(rows: pa.Table, spec: TableSpec) -> tuple[Any, Any]:
    """Return the least and the greatest first key, where a literal can mean them: whole numbers, decimals and texts; else None, None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first = rows[f"c{spec.names.index(spec.key[0])}"]
    kind = first.type
    if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind)):
        return None, None
    found = pc.min_max(first).as_py()
    return found["min"], found["max"]
