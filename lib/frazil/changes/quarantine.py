"""The quarantine: what is kept of a bad row, which later changes of its key make it obsolete, and how it is replayed.

A record's `id` is its place (`path:row_no`). Records never change: a new status is another record with that id, and the
one with the highest `sequence` (then `changed_at`) counts. `sequence` is the table's Iceberg sequence number on which
the batch was built: it orders batches.

`later_key` and `later_old_key` name the batch that first brought a later change of the row's key or old key
(`later_part` if only of some columns). `later_any` names the first one with any good change. It is kept if a key could
not be read (`keyed` is false).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from frazil.changes.changeset import FIELDS, OLD, marked, reason_sql, shaped
from frazil.changes.collapse import PLACE, events, last_event
from frazil.changes.types import mask_sql
from frazil.config.columns import lake_type
from frazil.config.spec import TableSpec
from frazil.config.sql import beside, identifier, literal
from frazil.core.texts import time_sql
from frazil.dms.csv import JSON, SHARED, STATED
from frazil.source.quarantined import LATER, OBSOLETE, RECORD, STILL_BAD, UNREADABLE, WAITING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NO_PLACE = "cast(null as struct<phase: bigint, object: string, row_no: string>)"
"""The `place` of records whose batch is complete."""


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


def unreadable(messages: DataFrame, scheme: str, batch: str) -> DataFrame:
    """Return the records of messages of a stream that name no table.

    The time of arrival is part of its `id`: if a topic is recreated, its offsets begin again.
    """
    from pyspark.sql import functions as F

    path = F.concat(F.lit(scheme), "object")
    told = {
        "status": F.lit(UNREADABLE), "path": path, "row_no": F.col("offset").cast("string"), "raw": F.col("value").cast("binary"),
        # format_string removes invalid UTF-8: other engines could not read the column.
        "reason": F.expr("format_string('none of DMS\\'s messages: %.200s', coalesce(nullif(value, ''), 'it is empty'))"),
        "id": F.concat_ws(":", path, "offset", F.expr("unix_millis(arrived)")), "written_at": F.col("arrived"),
        "form": F.lit(JSON), "layout": F.array().cast("array<string>"), "misfit": F.lit(True), "keyed": F.lit(False),
        "batch": F.lit(batch), **_stamped(batch, 0), "set_aside_at": _now(),
    }  # fmt: skip
    rest = {c: F.lit(None) for c in RECORD.keys() - told.keys() - {"object"}}
    return messages.withColumns({**told, **rest}).select(*_columns())


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


def newest(records: DataFrame) -> DataFrame:
    """Return the current record of each id."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    last = Window.partitionBy("table_name", "id").orderBy(F.desc("sequence"), F.desc("changed_at"))
    return records.withColumn("nth", F.row_number().over(last)).where("nth = 1").drop("nth")


def overtaken(waiting: DataFrame, batch: DataFrame, spec: TableSpec, mark: str, keyless: bool = True) -> DataFrame:
    """Return the waiting records with the later changes of their keys in a collapsed batch (with `place`).

    A record of the batch itself has a `place` in it, and only later places count; for others all of the batch is later.
    `keyless`: some may have an unknown key, which any change of the batch may have changed. The matches are kept by
    local checkpoints: the batch's plan is long, and each further step would run it again.
    """
    from pyspark.sql import functions as F

    if "place" not in batch.columns:  # then no record is of the batch itself
        batch = batch.withColumn("place", F.expr("struct(0L as phase, '' as object, '' as row_no)"))
    last = batch.selectExpr(f"{key_sql(spec, 'after')} as k", "place as p")
    wanted = waiting.selectExpr("explode(array(key, old_key)) as k").where("k is not null")
    hits = last.join(F.broadcast(wanted), "k", "left_semi").localCheckpoint()
    found = waiting
    if keyless:
        end = batch.agg(F.max("place").alias("p")).localCheckpoint()
        found = found.join(F.broadcast(end.selectExpr("p as last")))
    for key in ("key", "old_key"):
        found = found.join(F.broadcast(hits.selectExpr(f"k as {key}", f"p as p_{key}")), key, "left")

    def came(p: str) -> Column:
        return F.when(F.col(p).isNotNull() & (F.col("place").isNull() | (F.col(p) > F.col("place"))), F.lit(mark))

    part = spec.narrow or "missing" in batch.columns
    marks = (
        {"later_part": ("p_key", "p_old_key")} if part else {"later_key": ("p_key",), "later_old_key": ("p_old_key",)}
    )
    later = {name: F.coalesce(name, *map(came, places)) for name, places in marks.items()}
    if keyless:
        later["later_any"] = F.coalesce("later_any", F.when(~F.col("keyed"), came("last")))
    found = found.withColumns(later)
    gone = "keyed and later_key is not null and (old_key is null or later_old_key is not null)"
    return found.withColumn("status", F.expr(f"if({gone}, '{OBSOLETE}', status)")).select(*_columns())


def kind_sql(record: str, delimiter: str) -> str:
    """Return the SQL that separates faults of one column.

    It uses the line's number of fields, or whether the value has only digits and signs. A number that is too large
    needs a wider type, a word among numbers another cure.
    """
    unquoted = f"""regexp_replace(cast({record}.raw as string), '"[^"]*"', '')"""
    fields = f"size(split({unquoted}, {literal(re.escape(delimiter))}))"
    signs = literal("': '[^A-Za-z]*' does not fit")
    return f"case when {record}.misfit and {record}.form <> '{JSON}' then {fields} when {record}.reason rlike {signs} then 0 end"


APPLY, UNCLEAR = "apply", "cannot tell"


def judged(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Return rows that were read again (each with its record as `r`) as a change set, with a verdict on each.

    `outcome` is APPLY, OBSOLETE, STILL_BAD or UNCLEAR, `why` its reason in words. `newer` and `old_newer` say whether
    the key or the old key has had a later change. They are known if the key reads as it did when its changes were
    followed, or if nothing good has followed since.
    """
    from pyspark.sql import functions as F

    typed = marked(rows, spec)
    changes = shaped(typed.withColumn("why", F.expr(reason_sql(spec, rows))), spec, "r", "why")
    if not spec.key:
        return changes.withColumn("outcome", F.expr(f"if(bad is null, '{APPLY}', '{STILL_BAD}')"))
    found = changes.withColumn("now", F.expr(key_sql(spec, "after"))).withColumn(
        "was", F.expr(f"if(op = 'U', nullif({key_sql(spec, 'before')}, now), null)")
    )
    for newer, now, then in (("newer", "now", "key"), ("old_newer", "was", "old_key")):
        same = f"coalesce({now} = r.{then}, false)"
        found = found.withColumns({
            newer: F.expr(f"if({same}, r.later_{then} is not null, r.keyed or r.later_any is not null)"),
            f"{newer}_sure": F.expr(f"{now} is null or {same} or not (r.keyed or r.later_any is not null)"),
        })  # fmt: skip
    unclear = "its key could not be read then or reads otherwise now, or later rows of it lacked columns: what is newer cannot be told"
    return found.withColumn("outcome", F.expr(
        f"case when bad is not null then '{STILL_BAD}' when not (newer_sure and old_newer_sure) or r.later_part is not null then '{UNCLEAR}' "
        f"when newer and (was is null or old_newer) then '{OBSOLETE}' else '{APPLY}' end"
    )).withColumn("why", F.expr(f"case outcome when '{UNCLEAR}' then {literal(unclear)} when '{OBSOLETE}' then "
                                f"concat('changed later by batch ', r.later_key) else why end"))  # fmt: skip


def collapsed(judged_rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Return the last event per key of the rows that a replay applies, as `collapse.last_per_key` does, with `place`."""
    rows = judged_rows.where(f"outcome = '{APPLY}'")
    steps = events(rows, spec, "newer", "old_newer").where("not if(step = 0, old_newer, newer)")
    return last_event(steps, spec, places=True)


def changed(records: DataFrame, batch: str, sequence: int, **new) -> DataFrame:
    """Return records as they are after a batch; `new` has their new values."""
    from pyspark.sql import functions as F

    values = {k: F.lit(v) if isinstance(v, str) else v for k, v in new.items()}
    return records.withColumns({**values, **_stamped(batch, sequence)}).select(
        *_columns(), *(["place"] if "place" in records.columns else [])
    )
