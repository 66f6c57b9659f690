"""Quarantined rows, read again from their bytes with the present settings and spec."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec
from frazil.dms import csv, messages
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import Layout, stated_layout
from frazil.dms.objects import DmsObject
from frazil.dms.transactions import shared_layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_again(
    kept: DataFrame, spec: TableSpec, endpoint: Endpoint, mappings: Mappings, before_field: str
) -> DataFrame:
    """Return the raw rows of records that `changes.quarantine` made, each with its record as `r`.

    They are in order of arrival, also across batches: `phase` is the record's `sequence`. A row whose fields did not
    fit gets the layout of the present settings; any other row keeps its layout.
    """
    from pyspark.sql import functions as F

    kept = kept.withColumn("misfit", F.expr(f"misfit or (form = '{csv.JSON}' and not keyed)"))
    alike = ["form", "layout", "phase", "misfit", F.when(F.col("misfit"), F.col("object")).alias("of")]
    kept = kept.withColumn("g", F.xxhash64(*alike))
    rows = kept.select(
        F.struct("*").alias("r"), F.col("sequence").alias("phase"), "object", "path", F.lit(0).cast("bigint").alias("block"),
        F.lpad("row_no", 60, "0").alias("row_no"), "written_at", F.col("raw").cast("string").alias("text"), "g",
    )  # fmt: skip
    groups: dict[tuple, list[int]] = {}
    for g in kept.select("g", *alike).distinct().collect():
        layout = Layout(tuple(g.layout))
        if g.misfit and g.form in (csv.STATED, csv.SHARED):
            layout = stated_layout(spec, endpoint, mappings, g.phase, DmsObject(g.of, "", 0, ""))
            layout = shared_layout(layout) if g.form == csv.SHARED else layout
        groups.setdefault((g.form, layout, g.phase, g.misfit), []).append(g.g)
    frames = []
    for (form, layout, phase, misfit), marks in groups.items():
        some = rows.where(F.col("g").isin(marks))
        if form == csv.JSON:
            frames.append(_messages(some, spec, mappings, before_field, phase, misfit))
        else:
            frames.append(_lines(some, form, layout, phase, spec, endpoint, mappings))
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)


PLACE = ("phase", "object", "path", "block", "row_no", "written_at")


def _lines(
    rows: DataFrame, form: str, layout: Layout, phase: int, spec: TableSpec, endpoint: Endpoint, mappings: Mappings
) -> DataFrame:
    from pyspark.sql import functions as F

    if form == csv.PARQUET:
        endpoint = replace(endpoint, delimiter=",", rfc4180=True, null_value="")
    known = {f"after:{c.name}" for c in (*spec.columns, *spec.file_columns)}
    gone = any(role.startswith("after:") and role not in known for role in layout.roles)
    fields = F.from_csv("text", csv.fields_schema(layout), csv.csv_options(endpoint))
    split = rows.withColumn("fields", fields).select("r", *PLACE, "text", "fields.*")
    if gone:  # the column was renamed or dropped: its present value is unknown
        split = split.withColumn("corrupt", F.col("text"))
    found = csv.raw_rows(split, layout, endpoint, spec, phase, ["r", *PLACE], form, mappings)
    return found.withColumn("op", F.coalesce("op", F.lit("I"))) if form == csv.PARQUET else found


def _messages(
    rows: DataFrame, spec: TableSpec, mappings: Mappings, before_field: str, phase: int, misfit: bool
) -> DataFrame:
    """Read messages again. 2 keeps refusing those whose key may have come from another partition, or was not read."""
    from pyspark.sql import functions as F

    some = rows.select("object", F.col("row_no").alias("offset"), F.lit(None).alias("arrived"), F.col("text").alias("value"))  # fmt: skip
    found = messages.raw_rows(messages.routed(some), spec, mappings, before_field, phase, "", 2 if misfit else 1)
    records = rows.select("r", "object", "row_no", F.col("phase").alias("sequence"), F.col("path").alias("at"))
    joined = found.join(records, ["object", "row_no"])
    return joined.withColumns({"phase": F.col("sequence"), "path": F.col("at")}).drop("sequence", "at")


__all__ = ["read_again"]
