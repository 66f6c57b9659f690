"""The change set: typed rows with their order, whichever form they came in. The rest of Frazil knows nothing else.

| column | meaning |
|---|---|
| `phase`, `object`, `row_no` | the total order: load before changes, then the object's base name, then the row in it |
| `op` | `I`, `U` (both upserts) or `D` |
| `written_at` | when DMS wrote the row out; null for load rows |
| `commit_ts` | when the source committed (`timestamp`), null where DMS was not told to write it |
| `change_seq` | DMS's own sequence, a second witness of the order; null on load rows |
| `before` | struct of the key's old values; its fields are null unless an update changed the key |
| `after` | struct of the table's columns, typed |
| `missing` | names of columns that the row does not carry at all; null: it is whole |
| `bad` | null, or what is wrong: the name of the first column that does not fit (after `OLD`: its old value), or one of `FIELDS`, `OP`, `KEY` |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from frazil.changes.types import cast_sql, lake_type
from frazil.config.spec import Column, TableSpec
from frazil.errors import FrazilError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIELDS, OP, KEY, OLD = "<fields>", "<op>", "<key>", "<old>"
ORDER = ("phase", "object", "row_no")
COMMIT_TS = Column("<timestamp>", "DATETIME", utc=True)


class BadRowError(FrazilError):
    """Rows that cannot be applied: the message names the first of them, and nothing of the batch was applied."""


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")


def _typed(struct: str, c: Column) -> str:
    return cast_sql(c, f"{struct}.`{c.name}`")


def _bad_sql(spec: TableSpec) -> str:
    """The SQL expression that names what is wrong with a raw row first, or null."""

    def misfit(struct: str, c: Column, mark: str = "") -> str:
        return f"when {struct}.`{c.name}` is not null and ({_typed(struct, c)}) is null then '{mark}{_quoted(c.name)}'"

    key = [spec.column(k) for k in spec.key]
    no_key = " or ".join(f"after.`{c.name}` is null" for c in key)
    checks = [
        f"when corrupt is not null then '{FIELDS}'",
        f"when op is null or op not in ('I', 'U', 'D') then '{OP}'",
        f"when {no_key} then '{KEY}'",
        f"when commit_ts is not null and ({cast_sql(COMMIT_TS, 'commit_ts')}) is null then '{COMMIT_TS.name}'",
        *[misfit("before", c, OLD) for c in key if lake_type(c) != "string"],
        *[misfit("after", c) for c in spec.columns if lake_type(c) != "string"],
    ]
    return f"case {' '.join(checks)} end"


def change_set(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Type the raw rows of `dms` and mark those that are bad; no row is dropped or repaired."""
    from pyspark.sql import functions as F

    after = ", ".join(f"'{_quoted(c.name)}', {_typed('after', c)}" for c in spec.columns)
    before = ", ".join(f"'{_quoted(k)}', {_typed('before', spec.column(k))}" for k in spec.key)
    return rows.select(
        *ORDER,
        "written_at",
        "op",
        F.expr(f"{cast_sql(COMMIT_TS, 'commit_ts')} as commit_ts"),
        "change_seq",
        F.expr(f"named_struct({before}) as before"),
        F.expr(f"named_struct({after}) as after"),
        F.lit(None).cast("array<string>").alias("missing"),
        F.expr(f"{_bad_sql(spec)} as bad"),
    )


def explain_bad(rows: DataFrame, spec: TableSpec, show: int = 3) -> BadRowError:
    """Return the error that shows the first bad raw rows: file, row (counted from 1, header apart), reason, cure."""
    from pyspark.sql import functions as F

    first = {r["path"]: r["first_no"] for r in rows.groupBy("path").agg(F.min("row_no").alias("first_no")).collect()}
    marked = rows.withColumn("bad", F.expr(_bad_sql(spec))).where("bad is not null")
    count, worst = marked.count(), marked.orderBy(*ORDER).limit(show).collect()
    lines = [f"{readable(r['path'])} row {r['row_no'] - first[r['path']] + 1}: {_reason(r, spec)}" for r in worst]
    more = [f"… and {count - len(worst)} more"] if count > len(worst) else []
    cure = f"correct the file or {spec.file}; nothing of this batch was applied to {spec.target}"
    return BadRowError(f"{spec.source}: {count} bad row(s)\n  " + "\n  ".join(lines + more), cure)


def readable(uri: str) -> str:
    """Return a file's URI, as Spark gives it, in the way that people write it: a local one as its path."""
    return re.sub("^file:/+", "/", unquote(uri))


def _reason(row, spec: TableSpec) -> str:
    """One bad raw row's fault in words."""
    bad = row["bad"]
    if bad == FIELDS:
        return f"too many or too few fields for {len(spec.columns)} columns and those that DMS adds: {row['corrupt'][:200]!r}"
    if bad == OP:
        return f"unknown Op {row['op']!r}, not I, U or D"
    if bad == KEY:
        return f"no value in key column {', '.join(k for k in spec.key if row['after'][k] is None)}"
    if bad == COMMIT_TS.name:
        return f"commit timestamp {row['commit_ts']!r} is not yyyy-MM-dd HH:mm:ss.SSSSSS"
    column = spec.column(bad.removeprefix(OLD))
    value = row["before" if bad.startswith(OLD) else "after"][column.name]
    return f"{'old value of ' if bad.startswith(OLD) else ''}column '{column.name}': {value[:100]!r} does not fit {column.type} ({lake_type(column)} in the lake)"
