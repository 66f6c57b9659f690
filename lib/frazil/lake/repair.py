"""Repairs, without loss, what stops a table: a schema that another writer changed, or snapshots from the future."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from frazil.lake import jvm, jvm_schema
from frazil.lake.table_checks import (
    ALLOWED_S,
    COLUMNS,
    ClockError,
    OtherWriterError,
    moved_columns,
    require_table_in_past,
    shown,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def repair(spark: SparkSession, name: str) -> list[str]:
    """Repair a table's metadata, each repair in one swap, and return what was done."""
    return [done for step in (restore_columns, retime) if (done := step(spark, name))]


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


def retime(spark: SparkSession, name: str) -> str:
    """Set commit times in the future to the present time, in the order of the commits; rows, positions and ids stay."""
    table = jvm.load_table(spark, name)
    now, metadata = round(time.time() * 1000), json.loads(jvm_schema.metadata_json(spark, table))
    last = metadata["last-updated-ms"]
    if last <= now + ALLOWED_S * 1000:
        return ""
    late = [s for s in metadata["snapshots"] if s["timestamp-ms"] > now]
    logged = [e for part in ("snapshots", "snapshot-log", "metadata-log") for e in metadata.get(part, ())]
    for entry in logged:
        entry["timestamp-ms"] = min(entry["timestamp-ms"], now)
    metadata["last-updated-ms"] = now
    jvm_schema.replace_metadata(spark, table, json.dumps(metadata))
    try:
        require_table_in_past(jvm.load_table(spark, name), name)
    except ClockError as e:  # a REST catalog accepts only single changes
        until = shown(last / 1000)
        raise ClockError(
            e.problem, f"this catalog does not let times be changed: wait until {until}; readers see all rows"
        ) from None
    return f"{name}: {len(late)} snapshot(s) from the future now have the present time"
