"""The quarantine: what Spark's reader keeps of a bad row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from frazil.changes.changeset import FIELDS, OLD, marked, reason_sql, shaped
from frazil.changes.collapse import PLACE
from frazil.changes.types import mask_sql
from frazil.config.columns import lake_type
from frazil.config.spec import TableSpec
from frazil.config.sql import beside, literal
from frazil.core.texts import time_sql
from frazil.dms.csv import JSON, SHARED, STATED
from frazil.source.quarantined import LATER, RECORD, WAITING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def key_texts_sql(spec: TableSpec, values: list[str]) -> str:
    """Return the SQL of a key as JSON, which does not change when its columns are widened; null if a part is null."""

    def text(kind: str, value: str) -> str:
        if kind == "binary":
            return f"hex({value})"
        if kind == "timestamp":
            return f"cast(unix_micros({value}) as string)"
        plain = f"cast({value} as string)"
        return f"if(instr({plain}, '.') > 0, rtrim('.', rtrim('0', {plain})), {plain})" if "decimal" in kind else plain

    parts = [text(lake_type(spec.column(k)), v) for k, v in zip(spec.key, values, strict=True)]
    if not parts:
        return "cast(null as string)"
    return f"if({' and '.join(f'{v} is not null' for v in values)}, to_json(array({', '.join(parts)})), null)"


def with_aside(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Type raw rows as `change_set` does, and add each bad one as it was read as `aside`; null: the row is good."""
    from pyspark.sql import functions as F

    aside = F.when(F.col("bad").isNotNull(), F.struct(*rows.columns)).alias("aside")
    return shaped(marked(rows, spec).select("*", aside), spec, "aside")


def set_aside(
    found: DataFrame, rows: DataFrame, spec: TableSpec, batch: str, sequence: int, first: int | None = None
) -> DataFrame:
    """Return the records of the bad rows among the raw rows that were `found`; `rows` are all of the batch, read whole.

    `first` is the first row number of a batch of one file; without it the files are read again for theirs.
    """
    from pyspark.sql import functions as F

    at = [spec.names.index(k) for k in spec.key]
    new = [mask_sql(spec.column(k), f"v{i}") for i, k in zip(at, spec.key, strict=True)]
    old = [mask_sql(spec.column(k), f"w{i}") for i, k in enumerate(spec.identity) if k in spec.key]
    fitting = f"bad <> '{FIELDS}'"
    # The first fields of a line with too many may be the key's: it is followed, and a replay checks it.
    likely = f"({fitting} or form in ('{STATED}', '{SHARED}'))"
    typed = marked(found, spec).where("bad is not null").selectExpr(
        "*",
        f"if({likely}, {key_texts_sql(spec, new)}, null) as key_new",
        f"if({fitting} and op = 'U', {key_texts_sql(spec, old)}, null) as key_old",
        f"{' and '.join(f'b{i} is null' for i in range(len(spec.identity))) or 'true'} or op <> 'U' as stays",
    )  # fmt: skip
    shown = [f"a{i}" for i in at]  # a key that does not fit its type is shown and followed as written
    raw_key = (
        key_texts_sql(spec, shown) if all(dict(rows.dtypes)[a] == "string" for a in shown) else "cast(null as string)"
    )
    commit_ts = "commit_ts"
    if dict(rows.dtypes)["commit_ts"] != "string":  # in UTC, in any session zone
        commit_ts = f"{time_sql('commit_ts', 'timestamp')} as commit_ts"
    record = typed.selectExpr(
        "phase", "object", "path", "row_no", "op", commit_ts, "written_at", "raw", "form", "layout",
        f"if(startswith(bad, '{OLD}'), substring(bad, {len(OLD) + 1}), trim(BOTH '<>' from bad)) as column_name", f"{reason_sql(spec, rows)} as reason",
        f"coalesce(key_new, if({fitting}, {raw_key}, null)) as key", "nullif(key_old, key_new) as old_key",
        f"bad = '{FIELDS}' as misfit", f"{fitting} and key_new is not null and (stays or key_old is not null) as keyed",
    )  # fmt: skip
    # Row numbers continue from file to file; messages have their own, so no file needs to be read for these.
    if first is None:
        firsts = rows.where(f"form <> '{JSON}'").groupBy("path").agg(F.min("row_no").alias("first"))
        record = record.join(F.broadcast(firsts), "path", "left")
    else:
        record = record.withColumn("first", F.expr(beside(literal(str(first)), "path")))
    in_file = "cast(try_cast(row_no as bigint) - try_cast(first as bigint) + 1 as string)"
    told = {
        "table_name": F.lit(spec.source), "status": F.lit(WAITING), "batch": F.lit(batch),
        **_stamped(batch, sequence), "set_aside_at": _now(),
        "place": F.expr(PLACE), "n": F.expr(f"if(form = '{JSON}', cast(row_no as string), {in_file})"),
        **{c: F.lit(None) for c in LATER},
    }  # fmt: skip
    record = record.withColumns(told).withColumn("row_no", F.col("n"))
    return record.withColumn("id", F.concat_ws(":", "path", "row_no")).select(*_columns(), "place")


def _now() -> Column:
    from pyspark.sql import functions as F

    return F.expr(f"timestamp_micros({beside(literal(str(round(time.time() * 1e6))), 'path')})")


def _stamped(batch: str, sequence: int) -> dict[str, Column]:
    """Return the columns that say which batch gave a record its status, and when."""
    from pyspark.sql import functions as F

    stamp = F.expr(beside(literal(str(sequence)), "path"))
    return {"changed_by": F.lit(batch), "sequence": stamp, "changed_at": _now()}


def _columns() -> list[Column]:
    from pyspark.sql import functions as F

    return [F.col(c).cast(kind).alias(c) for c, kind in RECORD.items()]
