"""Order and meaning of changes: key changes become delete + upsert, then the last change per key stands."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from frazil.changes.changeset import ORDER
from frazil.changes.fold import fold
from frazil.config.spec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation


PLACE = "struct(cast(phase as bigint) as phase, object, lpad(cast(row_no as string), 60, '0') as row_no)"
"""The SQL of where a row lies: rows of streams may be numbered by texts of digits."""


def _moved(spec: TableSpec) -> Column:
    """Whether an update changed the key."""
    from pyspark.sql import functions as F

    parts = [
        F.col(f"before.`{k}`").isNotNull() & ~F.col(f"before.`{k}`").eqNullSafe(F.col(f"after.`{k}`")) for k in spec.key
    ]
    return (F.col("op") == "U") & reduce(lambda a, b: a | b, parts)


def events(changes: DataFrame, spec: TableSpec, *more: str) -> DataFrame:
    """Split each update that changed the key into a delete of the old key (`step` 0) and an upsert of the new (`step` 1).

    So a chain 1 → 2 → 3 needs no special care later: each old key's last event is its delete. `more`: columns to carry along.
    """
    from pyspark.sql import functions as F

    old_row = F.struct(*[
        (F.col(f"before.`{c}`") if c in spec.key else F.lit(None).cast(changes.schema["after"].dataType[c].dataType)).alias(c)
        for c in spec.names
    ])  # fmt: skip
    delete = F.struct(F.lit(0).alias("step"), F.lit("D").alias("op"), old_row.alias("after"))
    apply = F.struct(F.lit(1).alias("step"), F.col("op"), F.col("after"))
    split = F.when(_moved(spec) & F.col("bad").isNull(), F.array(delete, apply)).otherwise(F.array(apply))
    carried = (*ORDER, "commit_ts", "change_seq", *more)
    return changes.select(*carried, F.explode(split).alias("e")).select(*carried, "e.step", "e.op", "e.after")


def last_per_key(
    changes: DataFrame,
    spec: TableSpec,
    observation: Observation | None = None,
    partial: bool = False,
    places: bool = False,
) -> DataFrame:
    """Collapse a change set to the last event per key: `op` (`D`, or an upsert), `after`, and that event's `commit_ts`.

    The observation, if given, gets `out_of_sequence`: for how many events DMS's own sequence contradicts the order of
    their key. Only its time prefix (16 digits) is compared, since the counter behind it restarts with the task.
    `partial`: rows may lack columns; see `fold.fold`. `places`: with `place`, where in the batch that event lies. Bad rows
    that are there with what is kept of them (`aside`) stay, each by itself.
    """
    if partial:
        return fold(events(changes.withColumn("arrives", _moved(spec)), spec, "missing", "arrives"), spec, observation)
    return last_event(events(changes, spec, *[c for c in changes.columns if c == "aside"]), spec, observation, places)


def last_event(
    split: DataFrame, spec: TableSpec, observation: Observation | None = None, places: bool = False
) -> DataFrame:
    """Return the last of `events` per key; see `last_per_key`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    aside = [F.col("aside")] if "aside" in split.columns else []
    good = [a.isNull() for a in aside]
    newest_first = Window.partitionBy(*[F.col(f"after.`{k}`") for k in spec.key], *good).orderBy(
        *[F.col(c).desc() for c in (*ORDER, "step")]
    )
    time = F.substring("change_seq", 1, 16)
    place = [F.expr(PLACE).alias("place")] if places else []
    ranked = split.select(
        "op", "after", "commit_ts", *place, *aside,
        F.row_number().over(newest_first).alias("rank"),
        reduce(lambda a, b: a & b, good, F.lead(time).over(newest_first) > time).alias("backwards"),
    )  # fmt: skip
    if observation is not None:
        ranked = ranked.observe(observation, F.count_if("backwards").alias("out_of_sequence"))
    last = reduce(lambda a, b: a | ~b, good, F.col("rank") == 1)
    return ranked.where(last).drop("rank", "backwards")
