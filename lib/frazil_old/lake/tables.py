"""The Iceberg table as Frazil keeps it: its creation, its properties, and its position."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil_old.config.lake_types import OPERATION_COLUMNS, lake_type
from frazil_old.config.query_engines import name_of, unread, why_not_v3
from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier, literal
from frazil_old.config.time_sql import key_text
from frazil_old.dms.applied_files import AppliedFiles
from frazil_old.dms.position import POSITION, Position
from frazil_old.errors import FrazilError
from frazil_old.lake import jvm, jvm_schema, stored_applied_files
from frazil_old.lake.clocks import require_table_in_past
from frazil_old.lake.jvm import TAG
from frazil_old.lake.other_writers import COLUMNS, RELOAD, REPLAY, require_own_columns, require_unique_keys, to_record
from frazil_old.lake.rollback import require_not_rolled_back
from frazil_old.lake.stored_position import read_position, require_position
from frazil_old.lake.table_pause import PAUSED, paused_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOAD = "frazil.load"
"""Property: the load files that were applied; valid if its digest equals that of the position."""
FORM = "frazil.form"
"""Property: a digest of everything that the table got from its spec when it was created."""
MADE, ADOPTED = "frazil.made", "frazil.adopted"
"""Properties: of a namespace that Frazil created, and of a table that it did not create."""


class TableError(FrazilError):
    """A lake table is missing, foreign, or different from its spec."""


def create_namespaces(spark: SparkSession, names: list[str]) -> None:
    """Create the missing namespaces of these tables, one after the other: not all catalogs tolerate concurrent creation."""
    for namespace in sorted({n.rsplit(".", 1)[0] for n in names}):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace} WITH DBPROPERTIES ('{MADE}' = 'true')")


def create_table(
    spark: SparkSession, name: str, spec: TableSpec, version: int, position: Position | None = None
) -> bool:
    """Create the table if it is missing, empty and at a first position; return whether it was created.

    Only key columns are NOT NULL: DMS delivers nulls in others (LOBs that follow later). Raise TableError if a table of
    that name exists that Frazil did not create.
    """
    created = not spark.catalog.tableExists(name)
    if created:
        columns = _columns(spec)
        properties = {
            "format-version": str(version), FORM: form_of(spec, version),
            "write.merge.mode": "merge-on-read", "write.update.mode": "merge-on-read", "write.delete.mode": "merge-on-read",
            "write.merge.isolation-level": "serializable", "write.distribution-mode": "none",
            "write.parquet.compression-codec": "zstd", "write.target-file-size-bytes": str(256 << 20),
            "write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "100",
            "frazil.source": spec.source,
        }  # fmt: skip
        listed = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in properties.items())
        comment = f"COMMENT {literal(spec.comment)}" if spec.comment else ""
        parts = f"PARTITIONED BY ({', '.join(spec.partition)})" if spec.partition else ""
        spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg {parts} {comment} TBLPROPERTIES ({listed})")
    table = jvm.load_table(spark, name)
    if table.currentSnapshot() is None and FORM in table.properties():  # also after a kill
        order = ["DISTRIBUTED BY PARTITION"] if spec.partition else []
        order += [f"LOCALLY ORDERED BY {', '.join(spec.sort)}"] if spec.sort else []
        if order:
            spark.sql(f"ALTER TABLE {name} WRITE {' '.join(order)}")
        if spec.key and not any(spec.column(k).dms_type in ("REAL4", "REAL8") for k in spec.key):
            spark.sql(f"ALTER TABLE {name} SET IDENTIFIER FIELDS {', '.join(identifier(k) for k in spec.key)}")
        table.refresh()
        jvm_schema.ascii_partitions(spark, table)
        first = (position or Position()).to_json
        jvm.start_position(table, jvm.SwapMetadata(first, _columns_at_start(spark, table, spec)))
    elif POSITION not in table.properties():
        require_position(table, name)
        raise TableError(
            f"{name} exists and was not created by Frazil",
            f"take it over by `frazil adopt`, drop or rename it, or set another target in {spec.file}",
        )
    return created


def _columns(spec: TableSpec) -> str:
    columns = ", ".join(
        f"{identifier(c.name)} {lake_type(c)}{' NOT NULL' if c.name in spec.key else ''}"
        + (f" COMMENT {literal(c.comment)}" if c.comment else "")
        for c in spec.columns
    )
    if spec.policy == "append":
        columns += "".join(
            f", {identifier(n)} {kind} COMMENT {literal(c)}" for n, (kind, c) in OPERATION_COLUMNS.items()
        )
    return columns


def form_of(spec: TableSpec, version: int) -> str:
    """Return a digest of everything that a new table gets from its spec."""
    masked = [c.name for c in spec.columns if c.mask]
    form = (_columns(spec), spec.partition, spec.sort, spec.key, spec.comment, spec.source, version, *masked)
    return hashlib.sha256(repr(form).encode()).hexdigest()[:16]


def drop_unloaded(
    spark: SparkSession, name: str, spec: TableSpec, version: int, require: Callable[[int], None]
) -> Position | None:
    """Drop an unloaded table that Frazil created from another version of its spec; return its position, or None if it was kept.

    Before that, `require` is called with the table's format version. It may refuse by an exception.
    """
    if not spark.catalog.tableExists(name):
        return None
    table = jvm.load_table(spark, name)
    stored = table.properties().get(POSITION)
    if stored is None:  # no table without a position is dropped, and no table of others
        return None
    position = Position.from_json(stored)[0]
    rows = int(table.currentSnapshot().summary().get("total-records") or 0) if table.currentSnapshot() else 0
    unloaded = (position.awaits_load or not position.loaded) and not rows and ADOPTED not in table.properties()
    if not unloaded or table.properties().get(FORM) == form_of(spec, version):
        return None
    require(format_of(spark, name))
    spark.sql(f"DROP TABLE {name} PURGE")
    return position


def format_of(spark: SparkSession, name: str) -> int:
    """Return an existing table's Iceberg format version."""
    return jvm.format_version(load(spark, name))


def unread_format(spark: SparkSession, name: str, query_engines: list[str]) -> str:
    """Describe the engines that cannot read the format of an existing table; empty if all do."""
    version = format_of(spark, name)
    if not (found := unread(version, query_engines)):
        return ""
    return (
        f"{name} is format v{version}: {'; '.join(map(why_not_v3, found))}. Iceberg makes no v3 table v2 again: let another engine "
        "read it, or drop the table, run 00_setup, and load it again"
    )


def unread_partitions(spark: SparkSession, name: str, query_engines: list[str]) -> str:
    """Describe the partition fields of a table that one of the query engines cannot read; empty if none. New tables have none."""
    odd = jvm_schema.odd_partitions(spark, load(spark, name)) if "duckdb" in map(name_of, query_engines) else []
    if not odd:
        return ""
    return (
        f"DuckDB ends its process on the name of the partition field {', '.join(odd)}: drop the table, run 00_setup, and load it "
        "again, which gives the field another name; or take duckdb out of query_engines"
    )


def require_table(spark: SparkSession, name: str) -> None:
    """Raise TableError if a table does not exist."""
    if not spark.catalog.tableExists(name):
        raise TableError(f"table {name} does not exist", "run 00_setup first")


def load(spark: SparkSession, name: str) -> jvm.JavaTable:
    """Return a table's handle; raise TableError if it does not exist."""
    try:
        return jvm.load_table(spark, name)
    except Exception:
        require_table(spark, name)
        raise


def load_of(spark: SparkSession, name: str) -> str | None:
    """Return a table's property about the applied load files, or None."""
    return load(spark, name).properties().get(LOAD)


def columns_of(spark: SparkSession, table: jvm.JavaTable | str) -> str:
    """Return the property that records the field ids of all present columns, for a commit that writes all rows again."""
    table = load(spark, table) if isinstance(table, str) else table
    return to_record(None, jvm_schema.ids(spark, table), ())


def _columns_at_start(spark: SparkSession, table: jvm.JavaTable, spec: TableSpec) -> dict[str, str]:
    """Return the properties that record the field ids of a new table's columns, and of those that hold hashes."""
    masked = [i for n, i in jvm_schema.ids(spark, table).items() if n in spec.names and spec.column(n).mask]
    renamed = [
        (jvm_schema.RENAMED, n, c.name) for c in spec.columns for n in c.renamed_from if n in {*spec.names} - {c.name}
    ]
    events = {jvm_schema.CONTROL_EVENTS: json.dumps(renamed)} if renamed else {}
    return {COLUMNS: columns_of(spark, table), jvm_schema.MASKED: json.dumps(masked), **events}


def adopt(spark: SparkSession, name: str, spec: TableSpec, position: Position) -> None:
    """Give a foreign table a position, in a separate empty commit; its columns must match its spec, and its keys be unique.

    From then on it is written merge-on-read, as the MERGE of a batch needs it; a table of format v1 becomes v2.
    """
    require_table(spark, name)
    table = jvm.load_table(spark, name)
    if POSITION in table.properties():
        raise TableError(f"{name} carries a position already", "run 02_cdc_merge: there is nothing to adopt")
    if lost := jvm_schema.lost_partitions(spark, table):
        raise TableError(
            f"{name}: the column of its partition field {', '.join(lost)} was dropped, and Spark cannot write such a table",
            "copy its rows to a new table (CREATE TABLE … AS SELECT), which loses none, and take that one over",
        )
    spec.require_sound()
    has, wants = dict(spark.table(name).dtypes), {c.name: lake_type(c) for c in spec.columns}
    if differ := [n for n in {**has, **wants} if has.get(n) != wants.get(n)]:
        shown = ", ".join(f"{n}: table {has.get(n, '–')}, spec {wants.get(n, '–')}" for n in differ)
        raise TableError(f"{name} and its spec differ ({shown})", f"correct {spec.file}, or alter the table")
    if spec.key:
        keys = ", ".join(identifier(k) for k in spec.key)
        empty = " or ".join(f"{identifier(k)} is null" for k in spec.key)
        shown = ", ".join(f"{key_text(identifier(k), has[k])} as {identifier(k)}" for k in spec.key)
        twice = spark.sql(
            f"select {shown}, count(*) copies from {name} group by {keys} having count(*) > 1 or {empty} limit 3"
        ).collect()
        if twice:
            shown = "; ".join(", ".join(f"{k}={r[k]}" for k in spec.key) + f" ({r.copies} times)" for r in twice)
            raise TableError(
                f"{name} has several rows of one key: {shown}",
                f"correct the key in {spec.file}; or remove all but one of each, which loses the others",
            )
    given = {f"write.{w}.mode": "merge-on-read" for w in ("merge", "update", "delete")}
    given |= {"write.merge.isolation-level": "serializable", "frazil.source": spec.source, ADOPTED: "true"}
    if format_of(spark, name) == 1:
        given["format-version"] = "2"
    spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ({', '.join(f'{literal(k)} = {literal(v)}' for k, v in given.items())})"
    )
    before = table.currentSnapshot()
    table.refresh()
    # The key columns are exactly the NOT NULL columns: this reveals a later change of the key. No row has a null there.
    change = table.updateSchema().allowIncompatibleChanges()
    for column in spec.names:
        set_nulls = change.requireColumn if column in spec.key else change.makeColumnOptional
        set_nulls(column)
    change.commit()
    table.refresh()
    own = _columns_at_start(spark, table, spec)
    jvm.start_position(table, jvm.SwapMetadata(position.to_json, own))
    parent = jvm.load_table(spark, name).currentSnapshot().parentId()
    if parent != (before and before.snapshotId()):
        spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{POSITION}', {', '.join(map(literal, own))})")
        spark.sql(f"ALTER TABLE {name} DROP TAG {identifier(TAG)}")
        raise TableError(f"{name} was written to while it was checked", "stop the other pipeline first, then adopt")


@dataclass(frozen=True)
class TableState:
    """The state from which a batch starts: main's snapshot, and the table's position there."""

    snapshot: int
    sequence: int
    position: Position
    stored: str
    schemas: tuple[str, int, int, str] = ("", -1, -1, "")
    """The table's uuid, the ids of its schemas now and in the position's snapshot, and the column changes from control records."""
    copy_on_write: bool = False
    parquet: bool = True
    """Whether its new data files are Parquet."""
    columns: str | None = None
    """The recorded field ids of its columns (`other_writers.COLUMNS`)."""
    record: AppliedFiles = field(default_factory=AppliedFiles, compare=False)
    """The files that the table has applied."""
    paused: str = ""
    """Since when it is paused, and why; empty: it is not."""

    @property
    def merge_only(self) -> str:
        """Return why no row delta may write to the table; empty if one may."""
        if self.copy_on_write:
            return "the table is copy-on-write"
        return "" if self.parquet else "its data files are not Parquet"

    def require_not_paused(self, source: str) -> None:
        """Raise PausedError if the table is paused; `source` is the source table's name."""
        if self.paused:
            raise paused_error(self.paused, source)


def read_table_state(spark: SparkSession, name: str, checked: bool = True) -> TableState:
    """Return the table's snapshot and position; if `checked`, first check by its history that they belong together.

    Raise TableError if Frazil has not set up the table, and RolledBackError if it was rolled back. Raise
    OtherWriterError if others changed columns or doubled keys, and ClockError if its last change is in the future.
    """
    table = load(spark, name)
    if checked:
        require_table_in_past(table, name)
    stored, position, stamp = _stored_position(table, name)
    if checked:
        since, again = require_not_rolled_back(spark, table, name, stamp), RELOAD if position.stream else REPLAY
        require_own_columns(spark, table, name, again)
        require_unique_keys(spark, name, table, since, again)
    current, then = table.currentSnapshot(), table.snapshot(stamp["snapshot"])
    now = table.schema().schemaId()
    schemas = (
        str(table.uuid()),
        now,
        then.schemaId() if then else now,
        jvm_schema.property_text(table, jvm_schema.CONTROL_EVENTS),
    )
    return TableState(
        current.snapshotId(),
        current.sequenceNumber(),
        position,
        stored,
        schemas,
        copy_on_write=table.properties().get("write.merge.mode") == "copy-on-write",
        parquet=table.properties().get("write.format.default") in (None, "parquet"),
        columns=table.properties().get(COLUMNS),
        record=stored_applied_files.of_java(table),
        paused=table.properties().get(PAUSED) or "",
    )


def _stored_position(table: jvm.JavaTable, name: str) -> tuple[str, Position, dict[str, int]]:
    """Return the text of a table's position, the position and its stamp."""
    stored = table.properties().get(POSITION)
    if stored is None:
        require_position(table, name)
        raise TableError(
            f"{name} carries no position",
            "run 00_setup first; a table of another pipeline is taken over by frazil adopt",
        )
    return stored, *read_position(table, name, stored)


def require_sound(spark: SparkSession, name: str) -> None:
    """Raise the errors of `read_table_state`, but do not read keys: for maintenance, which may expire what shows a rollback."""
    table = load(spark, name)
    require_table_in_past(table, name)
    *_, stamp = _stored_position(table, name)
    require_not_rolled_back(spark, table, name, stamp)
    require_own_columns(spark, table, name)
