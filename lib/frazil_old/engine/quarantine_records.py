"""The quarantine's records of bad rows that the core found, as a frame."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil_old.config.lake_types import value_type
from frazil_old.config.paths import as_uri
from frazil_old.config.spec import TableSpec
from frazil_old.config.time_sql import from_micros, micros_type
from frazil_old.core.bad_rows import BadRow, BadRows
from frazil_old.core.changes import PLACE
from frazil_old.core.field_roles import TABLE
from frazil_old.core.messages import seconds_of
from frazil_old.core.types import arrow_of, type_texts
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.engine.collapsed_batch import as_micros, place_sql
from frazil_old.engine.read_files import FileToRead, PartitionRead
from frazil_old.lake import quarantine_table
from frazil_old.lake.quarantine_columns import JSON, LATER, NAMED, PARQUET, RECORD, SHARED, STATED, UNREADABLE, WAITING
from frazil_old.lake.quarantine_status import key_texts_sql
from frazil_old.lake.small_frames import of_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_KEYS = ("key", "old_key", "keyed")
"""The columns of a record that Spark makes from the texts of a key, as it makes them from the keys of later changes."""
_TIMES = [name for name, kind in RECORD.items() if kind == "timestamp"]


@dataclass(frozen=True)
class RecordOf:
    """What the records of one batch have in common: `sequence` is the table's when the batch was built."""

    spec: TableSpec
    batch: str
    sequence: int
    phase: int = CHANGE_PHASE


def record_frame(
    spark: SparkSession, bad: BadRows, files: Sequence[FileToRead | PartitionRead], of: RecordOf
) -> DataFrame:
    """Return the records of a batch's bad rows (`RECORD`), each with its `place` in the batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    by_order, now = {file.order: file for file in files}, round(time.time() * 1e6)
    same = {"set_aside_at": now, "changed_at": now}
    records = [
        _record(row, by_order[order], of) | same | {PLACE[0]: order, PLACE[1]: row.number} for order, row in bad.rows
    ]
    fields = [(name, arrow_of(micros_type(kind))) for name, kind in RECORD.items() if name not in _KEYS]
    places = list(zip(PLACE, (pa.int32(), pa.int64()), strict=True))
    own = [*places, ("has_key", pa.bool_()), ("written", pa.string())]
    table = pa.Table.from_pylist(records, pa.schema([*fields, *own]))
    kept = [row.kept for _, row in bad.rows]
    for i, name in enumerate(of.spec.key):
        new = pa.array([row.key[i] for row in kept], pa.string())
        old = pc.coalesce(pa.array([row.old_key[i] for row in kept], pa.string()), new)
        table = table.append_column(f"key_{i}", _typed(of.spec, name, new))
        table = table.append_column(f"old_key_{i}", _typed(of.spec, name, old))
    return _with_keys(of_arrow(spark, table), of.spec)


def _typed(spec: TableSpec, name: str, texts: pa.Array) -> pa.Array:
    """Return a key column's values, times as microseconds; null where a text does not fit its type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values, misfit = type_texts(spec.column(name), texts)
    if misfit is not None:
        values = pc.if_else(pc.fill_null(misfit, False), pa.scalar(None, values.type), values)
    return as_micros(values)


def _with_keys(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Return records with their keys as Spark writes them; a key that does not fit its type stays as it was written."""
    new, old = (
        [from_micros(value_type(spec.column(k)), f"{side}_{i}") for i, k in enumerate(spec.key)]
        for side in ("key", "old_key")
    )
    found = rows.selectExpr(
        "*",
        f"if(has_key, {key_texts_sql(spec, new)}, null) as new_text",
        f"if(not misfit and op = 'U', {key_texts_sql(spec, old)}, null) as old_text",
    )
    keys = {
        "key": "coalesce(new_text, if(misfit, null, written))",
        "old_key": "nullif(old_text, new_text)",
        "keyed": "not misfit and new_text is not null and (coalesce(op <> 'U', true) or old_text is not null)",
    }
    times = {name: f"timestamp_micros({name})" for name in _TIMES}
    columns = [f"{(keys | times).get(name, name)} as {name}" for name in RECORD]
    return found.selectExpr(*columns, f"{place_sql()} as place")


def _record(row: BadRow, file: FileToRead | PartitionRead, of: RecordOf) -> dict[str, Any]:
    kept, place = row.kept, row.place or str(row.number)
    about = _of_message(row, file) if isinstance(file, PartitionRead) else _of_row(file)
    return {
        "table_name": of.spec.source, "target": of.spec.target, "id": f"{about['path']}:{place}", "status": WAITING,
        "column_name": row.column.strip("<>"), "reason": row.reason, "raw": kept.raw, "row_no": place, "op": kept.op,
        "commit_ts": kept.commit_ts, "batch": of.batch, "changed_by": of.batch, "sequence": of.sequence,
        "phase": of.phase, **about, "misfit": kept.misfit, **dict.fromkeys(LATER),
        "has_key": kept.has_key,
        "written": json.dumps(kept.key, ensure_ascii=False) if kept.key and None not in kept.key else None,
    }  # fmt: skip


def _of_row(file: FileToRead) -> dict[str, Any]:
    of_csv = NAMED if file.dialect.header else SHARED if TABLE in file.roles else STATED
    return {
        "path": as_uri(file.path), "object": file.path.rsplit("/", 1)[-1], "written_at": _micros(file.written_at_s),
        "form": PARQUET if file.is_parquet else of_csv, "layout": list(file.roles),
    }  # fmt: skip


def _of_message(row: BadRow, partition: PartitionRead) -> dict[str, Any]:
    import pyarrow as pa

    (built,) = seconds_of(pa.array([row.kept.built], pa.string()))
    return {"path": partition.path, "object": partition.name, "written_at": _micros(built), "form": JSON, "layout": []}


def _micros(seconds: float) -> int | None:
    return None if math.isnan(seconds) else round(seconds * 1e6)


def unreadable_records(messages: DataFrame, scheme: str, batch: str) -> DataFrame:
    """Return the records of messages of a stream that name no table.

    The time of arrival is part of its `id`: if a topic is recreated, its offsets begin again.
    """
    from pyspark.sql import functions as F

    path = F.concat(F.lit(scheme), "object")
    known = {
        "status": F.lit(UNREADABLE), "path": path, "row_no": F.col("offset").cast("string"), "raw": F.col("value").cast("binary"),
        # format_string removes invalid UTF-8: other engines could not read the column.
        "reason": F.expr("format_string('none of DMS\\'s messages: %.200s', coalesce(nullif(value, ''), 'it is empty'))"),
        "id": F.concat_ws(":", path, "offset", F.expr("unix_millis(arrived)")), "written_at": F.col("arrived"),
        "form": F.lit(JSON), "layout": F.array().cast("array<string>"), "misfit": F.lit(True), "keyed": F.lit(False),
        "batch": F.lit(batch), **quarantine_table.changed_by(batch, 0), "set_aside_at": quarantine_table.now(),
    }  # fmt: skip
    rest = {c: F.lit(None) for c in RECORD.keys() - known.keys() - {"object"}}
    return messages.withColumns({**known, **rest}).select(*quarantine_table.record_columns())
