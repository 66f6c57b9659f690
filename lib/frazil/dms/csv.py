"""DMS's CSV files as a DataFrame of raw rows: every value still text, every row with its place.

A raw row has: `phase` (0 load, 1 change), `object` (base name), `path` (its URI), `row_no` (grows within the object), `written_at` (when DMS
wrote the object, by its name; null for load files), `op`, `commit_ts`, `change_seq` (all text), `after` and `before` (structs of text, one field per column), `corrupt` (the line, where it has
too many or too few fields).
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from frazil.config.spec import TableSpec
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.objects import DmsObject, SourceError
from frazil.errors import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOAD_PHASE, CHANGE_PHASE = 0, 1
EMPTY = "\x01\x02"
"""Stands for a quoted empty field (`""`) while Spark reads, so that it stays apart from an unquoted one."""

# A change file is named by the UTC time at which DMS wrote it: 20240612-103125108.csv.
_PART = "cast(substring(_metadata.file_name, {}, {}) as int)"
WRITTEN_AT = "make_timestamp({}, {}, {}, {}, {}, cast({} / 1000 as decimal(8,6)), 'UTC')".format(
    *[_PART.format(*at) for at in ((1, 4), (5, 2), (7, 2), (10, 2), (12, 2), (14, 5))]
)
HAVE_EMPTY = {"STRING", "WSTRING", "CLOB", "NCLOB", "BYTES", "BLOB"}
"""Types with an empty value: with a null token that is not empty itself, an empty field of theirs is that value."""


@dataclass(frozen=True)
class Layout:
    """The fields of a file in their order; a role is `op`, `ts`, `seq`, `after:<column>`, `before:<column>` or `skip`."""

    roles: tuple[str, ...]


def _added_role(expression: str) -> str:
    return "seq" if re.fullmatch(r"\$?AR_H_CHANGE_SEQ", expression.strip(), re.I) else "skip"


def stated_layout(spec: TableSpec, endpoint: Endpoint, mappings: Mappings, phase: int) -> Layout:
    """Return the layout that the settings and the spec promise: Op, timestamp, columns, added columns, before-image."""
    roles = ["op"] if phase == CHANGE_PHASE or endpoint.op_in_load else []
    roles += ["ts"] if endpoint.timestamp_column else []
    roles += [f"after:{c}" for c in spec.names]
    roles += [_added_role(e) for e in mappings.added(spec).values()]
    if rule := mappings.before_image(spec):
        roles += [f"before:{c}" for c in rule.names(spec)]
    return Layout(tuple(roles))


def header_layout(spec: TableSpec, endpoint: Endpoint, mappings: Mappings, file: DmsObject, phase: int) -> Layout:
    """Return the layout that a file's own header line states; a column nobody told of, or one missing, is an error."""
    with open(file.path, encoding="utf-8", newline="") as f:
        names = next(csv.reader([f.readline().rstrip("\r\n")], delimiter=endpoint.delimiter), [])
    known = {c: f"after:{c}" for c in spec.names}
    known |= {c: _added_role(e) for c, e in mappings.added(spec).items()}
    if rule := mappings.before_image(spec):
        known |= {name: f"before:{c}" for c, name in rule.names(spec).items()}
    if endpoint.timestamp_column:
        known[endpoint.timestamp_column] = "ts"
    roles = ["op" if n.lower() == "op" else known.get(n, f"?{n}") for n in names]
    for role in roles:
        if role.startswith("?"):
            raise SourceError(
                f"{file.path} line 1: unknown column '{role[1:]}'", f"add it to {spec.file}; {nearest(role[1:], known)}"
            )
    missing = [c for c in spec.names if f"after:{c}" not in roles]
    if phase == CHANGE_PHASE and "op" not in roles:
        missing.insert(0, "Op")
    if missing:
        raise SourceError(
            f"{file.path} line 1: no column {', '.join(missing)}", f"correct {spec.file} or the endpoint settings"
        )
    return Layout(tuple(roles))


def _read_layout(
    spark: SparkSession, layout: Layout, endpoint: Endpoint, spec: TableSpec, paths: list[str], phase: int
) -> DataFrame:
    from pyspark.sql import functions as F

    physical = [f"f{i}" for i in range(len(layout.roles))]
    rows = (
        spark.read.schema(", ".join(f"{p} string" for p in physical) + ", corrupt string")
        .option("header", endpoint.header).option("sep", endpoint.delimiter).option("lineSep", endpoint.row_delimiter)
        .option("multiLine", True).option("encoding", "UTF-8").option("mode", "PERMISSIVE")
        .option("quote", '"' if endpoint.rfc4180 else "").option("escape", '"').option("emptyValue", EMPTY)
        .option("columnNameOfCorruptRecord", "corrupt").option("columnPruning", False)
        .csv(paths)
    )  # fmt: skip
    at = dict(zip(layout.roles, physical, strict=True))
    null = F.lit(None).cast("string")

    def raw(role: str):
        return F.col(at[role]) if role in at else null

    def control(role: str):
        """Op, time and sequence: empty is the same as absent, however it is written."""
        return F.when(raw(role).isin(EMPTY, endpoint.null_value, ""), null).otherwise(raw(role)) if role in at else null

    def value(column):
        """An unquoted empty field comes from Spark as null, a quoted one as EMPTY, the null token as itself."""
        field = raw(f"after:{column.name}")
        empty = F.lit("") if column.dms_type in HAVE_EMPTY else null
        bare = empty if endpoint.null_value else null
        return (
            F.when(field.isNull(), bare)
            .when(field == endpoint.null_value, null)
            .when(field == EMPTY, empty)
            .otherwise(field)
        )

    before = [control(f"before:{c}").alias(c) if f"before:{c}" in at else null.alias(c) for c in spec.key]
    op = F.lit("I") if "op" not in at else control("op")
    return rows.where(F.coalesce(*physical, "corrupt").isNotNull()).select(
        F.lit(phase).alias("phase"), F.col("_metadata.file_name").alias("object"), F.col("_metadata.file_path").alias("path"),
        F.monotonically_increasing_id().alias("row_no"),
        (F.expr(WRITTEN_AT) if phase == CHANGE_PHASE else F.lit(None).cast("timestamp")).alias("written_at"),
        op.alias("op"), control("ts").alias("commit_ts"), control("seq").alias("change_seq"),
        F.struct(*before).alias("before"), F.struct(*[value(c).alias(c.name) for c in spec.columns]).alias("after"),
        F.col("corrupt"),
    )  # fmt: skip


def read_rows(
    spark: SparkSession, spec: TableSpec, endpoint: Endpoint, mappings: Mappings, files: list[DmsObject], phase: int
) -> DataFrame:
    """Return the raw rows of a table's load files (phase 0) or change files (phase 1).

    Files are read whole (`multiLine`), so that quoted newlines are kept and `row_no` follows the order in the file.
    """
    groups: dict[Layout, list[str]] = {}
    for file in files:
        by_header = endpoint.header and file.size
        layout = (
            header_layout(spec, endpoint, mappings, file, phase)
            if by_header
            else stated_layout(spec, endpoint, mappings, phase)
        )
        groups.setdefault(layout, []).append(file.path)
    frames = [_read_layout(spark, layout, endpoint, spec, paths, phase) for layout, paths in groups.items()]
    return reduce(lambda a, b: a.unionByName(b), frames)
