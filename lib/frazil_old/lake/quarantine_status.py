"""What becomes of a row that waits in the quarantine: a later change makes it obsolete, and a replay applies it or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil_old.config.lake_types import lake_type
from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier, literal
from frazil_old.lake.quarantine_columns import OBSOLETE, STILL_BAD
from frazil_old.lake.quarantine_table import record_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


NO_PLACE = "cast(null as struct<phase: bigint, object: string, row_no: string>)"
"""The `place` of records whose batch is complete."""
RECORD_PLACE = "struct(r.began as phase, r.object as object, lpad(r.row_no, 60, '0') as row_no)"
"""The SQL of the place of a record `r` among the records of all batches. Its `sequence` may be of a later batch."""
APPLY, UNCLEAR = "apply", "unclear"


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


def key_sql(spec: TableSpec, row: str) -> str:
    """Return the SQL of the key of a struct of the table's columns, in the form of the records."""
    return key_texts_sql(spec, [f"{row}.{identifier(k)}" for k in spec.key])


def overtaken(
    waiting: DataFrame, batch: DataFrame, spec: TableSpec, mark: str, has_unknown_keys: bool = True
) -> DataFrame:
    """Return the waiting records with the later changes of their keys in a collapsed batch (with `place`).

    A record of the batch itself has a `place` in it, and only later places count; for others all of the batch is later.
    `has_unknown_keys`: some may have an unknown key, which any change of the batch may have changed. The matches are kept
    by local checkpoints: the batch's plan is long, and each further step would run it again.
    """
    from pyspark.sql import functions as F

    if "place" not in batch.columns:  # then no record is of the batch itself
        batch = batch.withColumn("place", F.expr("struct(0L as phase, '' as object, '' as row_no)"))
    last = batch.selectExpr(f"{key_sql(spec, 'after')} as k", "place as p")
    wanted = waiting.selectExpr("explode(array(key, old_key)) as k").where("k is not null")
    hits = last.join(F.broadcast(wanted), "k", "left_semi").localCheckpoint()
    found = waiting
    if has_unknown_keys:
        end = batch.agg(F.max("place").alias("p")).localCheckpoint()
        found = found.join(F.broadcast(end.selectExpr("p as last")))
    for key in ("key", "old_key"):
        found = found.join(F.broadcast(hits.selectExpr(f"k as {key}", f"p as p_{key}")), key, "left")

    def came(p: str) -> Column:
        return F.when(F.col(p).isNotNull() & (F.col("place").isNull() | (F.col(p) > F.col("place"))), F.lit(mark))

    part = spec.has_missing_columns or "missing" in batch.columns
    marks = (
        {"later_part": ("p_key", "p_old_key")} if part else {"later_key": ("p_key",), "later_old_key": ("p_old_key",)}
    )
    later = {name: F.coalesce(name, *map(came, places)) for name, places in marks.items()}
    if has_unknown_keys:
        later["later_any"] = F.coalesce("later_any", F.when(~F.col("keyed"), came("last")))
    found = found.withColumns(later)
    gone = "keyed and later_key is not null and (old_key is null or later_old_key is not null)"
    return found.withColumn("status", F.expr(f"if({gone}, '{OBSOLETE}', status)")).select(*record_columns())


def judged(rows: DataFrame, waiting: DataFrame, spec: TableSpec) -> DataFrame:
    """Return waiting records, each as `r`, with the row that is read of it now (`rows`, by `id`) and a verdict on it.

    `outcome` is APPLY, OBSOLETE, STILL_BAD or UNCLEAR, `reason` its reason in words. `newer` and `old_newer` say
    whether the key or the old key has had a later change. They are known if the key reads as it did when its changes
    were followed, or if nothing good has followed since.
    """
    from pyspark.sql import functions as F

    found = waiting.select(F.struct("*").alias("r")).join(rows, F.col("r.id") == F.col("id"))
    if not spec.key:
        return found.withColumn("outcome", F.expr(f"if(reason is null, '{APPLY}', '{STILL_BAD}')"))
    found = found.selectExpr("*", f"{key_sql(spec, 'after')} as now", f"{key_sql(spec, 'old')} as was")
    for newer, now, then in (("newer", "now", "key"), ("old_newer", "was", "old_key")):
        same = f"coalesce({now} = r.{then}, false)"
        found = found.withColumns(
            {
                newer: F.expr(f"if({same}, r.later_{then} is not null, r.keyed or r.later_any is not null)"),
                f"{newer}_sure": F.expr(f"{now} is null or {same} or not (r.keyed or r.later_any is not null)"),
            }
        )
    unclear = "its key could not be read then or reads differently now, or later rows of it lacked columns: nothing shows what is newer"
    return found.withColumn(
        "outcome",
        F.expr(
            f"case when reason is not null then '{STILL_BAD}' when not (newer_sure and old_newer_sure) or r.later_part is not null "
            f"then '{UNCLEAR}' when newer and (was is null or old_newer) then '{OBSOLETE}' else '{APPLY}' end"
        ),
    ).withColumn(
        "reason",
        F.expr(
            f"case outcome when '{UNCLEAR}' then {literal(unclear)} when '{OBSOLETE}' then "
            f"concat('changed later by batch ', r.later_key) else reason end"
        ),
    )


def last_applied(judged_rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Return the last change per key of the rows that a replay applies: `op`, `after` and `place`.

    An update of a key is a delete of the old key and an upsert of the new one. Either is left out if its key has had a
    later change.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    leaves = "named_struct('step', 0, 'op', 'D', 'after', old, 'newer', was is null or old_newer)"
    arrives = "named_struct('step', 1, 'op', op, 'after', after, 'newer', newer)"
    steps = f"inline(filter(array({leaves}, {arrives}), s -> not s.newer))"
    rows = judged_rows.where(f"outcome = '{APPLY}'").selectExpr(f"{RECORD_PLACE} as place", steps)
    of_key = Window.partitionBy(*[f"after.{identifier(k)}" for k in spec.key])
    last = rows.withColumn("nth", F.row_number().over(of_key.orderBy(F.desc("place"), F.desc("step")))).where("nth = 1")
    return last.select("op", "after", "place")
