"""What other writers did to a table's columns and keys: names and row counts alone would not show it.

`tables.read_table_state` checks it before each batch, load, plan and retry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from frazil_old.config.sql import identifier, literal
from frazil_old.config.time_sql import driver_rows
from frazil_old.errors import FrazilError
from frazil_old.lake import jvm, jvm_schema
from frazil_old.lake.clocks import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


COLUMNS = "frazil.columns"
"""Table property: the field id of each column, as JSON; Iceberg never reuses an id."""
SHOWN = 20
"""Maximum number of keys that a message names."""
REPLAY = "run 01_full_load with on_changed_load=replay, which writes all rows again from the load files and all change files since"
RELOAD = "have DMS load the table again and run 01_full_load with on_changed_load=reload, which writes all rows again"
"""How to write all rows again, from files or from a stream."""
_same: set[tuple] = set()
"""Combinations of table, schema and recorded columns that were found to agree."""
_unique: dict[str, int] = {}
"""By table, the snapshot for which this process found no duplicate key."""


class OtherWriterError(FrazilError):
    """Another writer changed a table in such a way that further batches would silently produce wrong rows."""

    decision = True


# --- columns


def recorded(property_: str | None) -> dict[str, int] | None:
    """Return the recorded field ids by column name; None if none are recorded (the table is of an older version)."""
    return json.loads(property_) if property_ else None


def to_record(before: str | None, now: Mapping[str, int], ours: Iterable[str]) -> str:
    """Return the property for the present columns: those recorded before, under any name, and `ours`."""
    known = recorded(before)
    ids = set(now.values()) if known is None else set(known.values())
    return json.dumps({n: i for n, i in now.items() if i in ids or n in ours}, separators=(",", ":"))


def moved_columns(property_: str | None, now: Mapping[str, int]) -> dict[str, int]:
    """Return the recorded columns that now have another field id or name, or were dropped."""
    return {n: i for n, i in (recorded(property_) or {}).items() if now.get(n) != i}


def require_columns(name: str, source: str, property_: str | None, now: Mapping[str, int], again: str) -> None:
    """Raise OtherWriterError if there are `moved_columns`; `again` says how to write all rows again."""
    if not (moved := moved_columns(property_, now)):
        return
    names = {i: n for n, i in now.items()}
    changed = [
        f"'{n}' (field {i}) "
        + (f"is called '{names[i]}' now" if i in names else "was dropped")
        + (f", and another column (field {now[n]}) is called '{n}'" if n in now else "")
        for n, i in moved.items()
    ]
    raise OtherWriterError(
        f"{name}: another writer changed its columns: {'; '.join(changed)}",
        f"restore the schema, which loses nothing: frazil repair --table {source}; or {again}, and loses what others wrote to the table; "
        f"if the change was meant: ALTER TABLE {name} UNSET TBLPROPERTIES ('{COLUMNS}'), and older rows stay as readers see them now",
    )


def require_own_columns(spark: SparkSession, table: jvm.JavaTable, name: str, again: str = REPLAY) -> None:
    """Raise OtherWriterError as `require_columns` does; each schema is read once."""
    property_ = table.properties().get(COLUMNS)
    known = (str(table.uuid()), table.schema().schemaId(), property_)
    if known not in _same:
        source = table.properties().get("frazil.source") or name
        require_columns(name, source, property_, jvm_schema.ids(spark, table), again)
        _same.add(known)


def record_columns(spark: SparkSession, name: str, ours: Iterable[str]) -> None:
    """Record the field ids of columns that are not recorded yet, unless another writer changed recorded ones."""
    table = jvm.load_table(spark, name)
    before, now = table.properties().get(COLUMNS), jvm_schema.ids(spark, table)
    if not moved_columns(before, now):
        table.updateProperties().set(COLUMNS, to_record(before, now, ours)).commit()


# --- keys


def is_foreign(operation: str, summary: Mapping[str, str] | Any) -> bool:
    """Return whether another writer made a snapshot and added rows; a rewrite of unchanged rows does not count."""
    return operation != "replace" and not summary.get("frazil.kind") and int(summary.get("added-records") or 0) > 0


def require_unique_keys(
    spark: SparkSession, name: str, table: jvm.JavaTable, since: list[jvm.JavaSnapshot], again: str = REPLAY
) -> None:
    """Raise OtherWriterError for duplicate keys, if others added rows in the snapshots `since` the position, newest first.

    The key columns are exactly the NOT NULL columns. Without a foreign commit nothing is read.
    """
    seen = {s.snapshotId(): s for s in since}
    if _unique.get(name) in seen:
        since = since[: [*seen].index(_unique[name])]
    theirs = [s for s in since if is_foreign(s.operation(), s.summary())]
    if not theirs:
        return
    key = [f.name for f in jvm_schema.fields(spark, table) if f.required]
    twice = duplicates(spark.table(name), key, SHOWN + 1) if key else []
    if twice:
        first = theirs[-1]
        raise duplicate_keys(name, key, twice, (first.snapshotId(), first.timestampMillis(), first.parentId()), again)
    _unique[name] = since[0].snapshotId()


def duplicate_keys(
    name: str, key: list[str], twice: list[tuple], commit: tuple[int, int, int | None], again: str
) -> OtherWriterError:
    """Return the error that names duplicate keys: `twice` has their values and row counts.

    `commit`: the other writer's first snapshot, its time in milliseconds, and the snapshot before it.
    """
    snapshot, made, before = commit
    examples = "; ".join(
        f"{', '.join(f'{k}={v}' for k, v in zip(key, values, strict=True))} ({count} rows)"
        for *values, count in twice[:SHOWN]
    )
    more = " …" if twice[SHOWN:] else ""
    where = " AND ".join(f"{identifier(k)} = {_value(v)}" for k, v in zip(key, twice[0], strict=False))
    earlier = f"; VERSION AS OF {before} has the rows from before" if before else ""
    return OtherWriterError(
        f"{name}: keys occur more than once since another writer's commit (snapshot {snapshot} of {shown(made / 1000)}): "
        f"{examples}{more}",
        f"compare their rows (SELECT * FROM {name} WHERE {where}{earlier}) and delete or correct the wrong ones; or {again}, and "
        "loses what others wrote to the table",
    )


def _value(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return f"X'{bytes(value).hex()}'"
    return str(value) if isinstance(value, int | float) else literal(str(value))


def duplicates(rows: DataFrame, key: list[str], most: int) -> list[tuple]:
    """Return up to `most` keys that occur more than once, each with its number of rows."""
    from pyspark.sql import functions as F

    if _all_differ(rows, key):
        return []
    grouped = rows.groupBy(*[F.col(identifier(k)) for k in key]).count().where("count > 1")
    return [tuple(r) for r in driver_rows(grouped.orderBy(*[F.col(identifier(k)) for k in key]).limit(most)).collect()]


def _all_differ(rows: DataFrame, key: list[str]) -> bool:
    """Return whether all keys differ, for a single integer key column: a bit for each, in groups of 64.

    For dense keys this is much cheaper than grouping rows by key, and otherwise not more expensive.
    """
    from pyspark.sql import functions as F

    if len(key) > 1 or rows.schema[key[0]].dataType.typeName() not in ("integer", "long"):
        return False
    one = identifier(key[0])
    bits = rows.groupBy(F.expr(f"shiftright({one}, 6)")).agg(
        F.expr(f"bit_or(shiftleft(1L, cast({one} & 63 as int))) as bits"), F.expr("count(*) as count")
    )
    ((differ, count),) = bits.agg(
        F.expr("coalesce(sum(bit_count(bits)), 0)"), F.expr("coalesce(sum(count), 0)")
    ).collect()
    return differ == count


def restore_columns(spark: SparkSession, name: str) -> str:
    """Restore the newest schema with the recorded columns; no file is changed."""
    table = jvm.load_table(spark, name)
    known = table.properties().get(COLUMNS)
    if not (moved := moved_columns(known, jvm_schema.ids(spark, table))):
        return ""
    ever = jvm_schema.ever(spark, table)
    fit = [i for i, fields in ever.items() if not moved_columns(known, {f.name: f.id for f in fields})]
    if not fit:
        raise OtherWriterError(
            f"{name}: the metadata no longer hold a schema with its recorded columns",
            "write all rows again: run 01_full_load with on_changed_load=replay",
        )
    jvm_schema.set_schema(spark, table, max(fit))
    shown = {f.name for f in ever[max(fit)]}
    hidden = [f.name for f in ever[max(ever)] if f.name not in shown]
    hides = f"; columns of the other writer are hidden: {', '.join(hidden)}" if hidden else ""
    return f"{name}: the schema is as recorded again ({', '.join(moved)}){hides}"
