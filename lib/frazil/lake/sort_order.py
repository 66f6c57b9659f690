"""The order of rows inside rewritten files: by columns, or along a z-order curve."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frazil.config.settings import MaintenanceSettings
from frazil.config.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def quoted(name: str) -> str:
    """Quote a column's name for Spark's expressions."""
    return identifier(name)


def sorted_rows(rows: DataFrame, s: MaintenanceSettings) -> DataFrame:
    """Sort the rows of each partition by the settings; without `sort_by` keep their order."""
    if not s.sort_by:
        return rows
    by = [_z_order(rows, s.sort_by)] if s.z_order else [quoted(c) for c in s.sort_by]
    return rows.sortWithinPartitions(*by)


def _below(value: Any) -> Callable[[Any], Any]:
    return lambda x: x < value


def _z_order(rows: DataFrame, columns: list[str]) -> Column:
    """Return the sort expression: the bits of each column's rank among 256 ranges, interleaved, highest first."""
    from pyspark.sql import functions as F

    cuts = [i / 256 for i in range(1, 256)]
    value = {c: (F.conv(F.hex(F.rpad(F.substring(quoted(c), 1, 6), 6, "\0")), 16, 10) if t in ("string", "binary")
                 else F.col(quoted(c))).cast("double") for c, t in rows.dtypes if c in columns}  # fmt: skip
    found = rows.agg(*[F.percentile_approx(value[c], cuts, 1000).alias(f"p{i}") for i, c in enumerate(columns)]).first()
    ranks = []
    for i, c in enumerate(columns):
        points = F.array(*[F.lit(x) for x in found[f"p{i}"] or []]).cast("array<double>")
        ranks.append(F.size(F.filter(points, _below(value[c]))))
    bits = [F.shiftright(r, b).bitwiseAND(F.lit(1)).cast("string") for b in range(7, -1, -1) for r in ranks]
    return F.concat(*bits)
