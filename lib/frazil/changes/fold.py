"""Partial rows: columns that the source's log did not carry get the row's earlier values.

Events of a key form segments: one begins after a delete, and where a row arrives from another key. In a segment the
nearest earlier value counts. What none of its events carries comes from before the segment: the stored row, nothing
(after a delete), or the row that moved here, as it was just before.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from frazil.changes.changeset import ORDER, Observed, observed
from frazil.config.spec import TableSpec
from frazil.config.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fold(events: DataFrame, spec: TableSpec, observation: Observed | None = None) -> DataFrame:
    """Collapse events with partial rows to the last one per key: `op`, `after`, `commit_ts`, `missing`, `source`.

    `missing` are the columns that no event of the batch carries. They stay as they are stored under the key `source`,
    or under the row's own key if that is null. The batch's rows are checkpointed first, since chains of key changes are
    followed step by step.
    """
    from pyspark.sql import functions as F

    here = _segments(events, spec, observation).localCheckpoint()
    moves = here.where("step = 0")
    while not moves.where(F.col("origin").isNotNull() & _open(spec)).isEmpty():
        moves = _filled(moves, moves, spec).localCheckpoint()  # each step reaches twice as far back
    last = _filled(here.where("last"), moves, spec)
    still = F.array_compact(
        F.array(*[F.when(F.col(f"h{i}").isNull(), F.lit(c)) for i, c in enumerate(spec.names) if c not in spec.key])
    )
    missing = F.when((F.col("op") != "D") & F.col("stored") & _open(spec), still)
    after = [
        (F.col(f"key.{identifier(c)}") if c in spec.key else F.col(f"h{i}.v")).alias(c)
        for i, c in enumerate(spec.names)
    ]
    return last.select(
        "op", F.struct(*after).alias("after"), "commit_ts",
        missing.alias("missing"), F.when(missing.isNotNull(), F.col("source")).alias("source"),
    )  # fmt: skip


def passes_sql(before: str, over: str) -> str:
    """The SQL of whether a row leaves a key right after one arrived, in one commit time.

    `before`: lag or lead in the window.
    """
    return f"(step = 0 and coalesce({before}(step) {over} = 2 and {before}(commit_ts) {over} <=> commit_ts, false))"


def _segments(events: DataFrame, spec: TableSpec, observation: Observed | None) -> DataFrame:
    """Return each key's last event and all deletes by key changes, with the values valid then.

    These are `h{i}`, null if unknown. `stored`: unknown values are those of the stored row. `origin`: they are those of
    the row whose delete has this `id`; else null.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    key, order = [F.col(f"after.{identifier(k)}") for k in spec.key], (*ORDER, "step")
    of_key, arrives = Window.partitionBy(*key).orderBy(*order), F.col("step") == 2
    begins = F.coalesce(F.lag("op").over(of_key) == "D", F.lit(False)) | arrives
    time, own_key = F.substring("change_seq", 1, 16), ", ".join(f"after.{identifier(k)}" for k in spec.key)
    rows = events.select(
        "*",
        F.struct(*ORDER).alias("id"),
        begins.cast("int").alias("begins"),
        F.lead("op").over(of_key).isNull().alias("last"),
        (F.lag(time).over(of_key) > time).alias("backwards"),
        F.expr(passes_sql("lag", f"over (partition by {own_key} order by {', '.join(order)})")).alias("passes"),
    ).withColumn("segment", F.sum("begins").over(of_key))
    if observation is not None:
        counts = ("count_if(backwards) as out_of_sequence", "count_if(passes) as passed")
        rows = observed(rows, observation, [F.expr(c) for c in counts])
    of_segment = Window.partitionBy(*key, "segment").orderBy(*order)

    def held(c: str):
        carried = (F.col("op") != "D") & ~F.coalesce(F.array_contains("missing", c), F.lit(False))
        return F.last(F.when(carried, F.struct(F.col(f"after.{identifier(c)}").alias("v"))), ignorenulls=True).over(
            of_segment
        )

    own = F.struct(*[F.col(f"after.{identifier(k)}").alias(k) for k in spec.key])
    return rows.select(
        "op", "step", "commit_ts", "id", "last", own.alias("key"), F.when(F.lit(False), own).alias("source"),
        (F.col("segment") == 0).alias("stored"), F.first(F.when(arrives, F.col("id"))).over(of_segment).alias("origin"),
        *[held(c).alias(f"h{i}") for i, c in enumerate(spec.names)],
    ).where("last or step = 0")  # fmt: skip


def _open(spec: TableSpec):
    """Return whether a value of an upserted or moved row is not known yet; such a row's key always is."""
    from pyspark.sql import functions as F

    return reduce(
        lambda a, b: a | b,
        [F.col(f"h{i}").isNull() for i, c in enumerate(spec.names) if c not in spec.key],
        F.lit(False),
    )


def _filled(rows: DataFrame, moves: DataFrame, spec: TableSpec) -> DataFrame:
    """Fill missing values from the rows before their move, and continue with the origins of those."""
    from pyspark.sql import functions as F

    held = [f"h{i}" for i in range(len(spec.names))]
    was = moves.select(
        F.struct("id", "stored", "origin", F.coalesce("source", "key").alias("source"), *held).alias("was")
    )
    came = F.col("origin").isNotNull()
    return rows.join(was, F.col("origin") == F.col("was.id"), "left").select(
        "op", "step", "commit_ts", "id", "last", "key",
        F.when(came, F.col("was.source")).otherwise(F.col("source")).alias("source"),
        F.when(came, F.col("was.stored")).otherwise(F.col("stored")).alias("stored"),
        F.col("was.origin").alias("origin"),
        *[F.coalesce(h, f"was.{h}").alias(h) for h in held],
    )  # fmt: skip
