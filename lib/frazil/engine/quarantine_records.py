"""The quarantine's records of bad rows that the core found, as a frame."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.config.paths import as_uri
from frazil.config.spec import TableSpec
from frazil.core.bad_rows import BadRows
from frazil.core.changes import TABLE, BadRow
from frazil.dms.csv import NAMED, PARQUET, SHARED, STATED
from frazil.dms.layout import CHANGE_PHASE
from frazil.engine.collapsed import PLACE, place_sql
from frazil.engine.read_files import FileToRead
from frazil.lake.frames import of_arrow
from frazil.source.quarantined import LATER, RECORD, WAITING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMES = [name for name, kind in RECORD.items() if kind == "timestamp"]


@dataclass(frozen=True)
class RecordOf:
    """What the records of one batch have in common: `sequence` is the table's when the batch was built."""

    spec: TableSpec
    batch: str
    sequence: int
    phase: int = CHANGE_PHASE


def record_frame(spark: SparkSession, bad: BadRows, files: Sequence[FileToRead], of: RecordOf) -> DataFrame:
    """Return the records of a batch's bad rows (`RECORD`), each with its `place` in the batch."""
    import pyarrow as pa

    by_order = {file.order: file for file in files}
    now = round(time.time() * 1e6)
    records = [
        _record(row, by_order[order], of) | {"set_aside_at": now, "changed_at": now, PLACE[0]: order, PLACE[1]: row.number}
        for order, row in bad.rows
    ]  # fmt: skip
    kinds = {"string": pa.string(), "binary": pa.binary(), "timestamp": pa.int64(), "bigint": pa.int64(), "int": pa.int32(),
             "boolean": pa.bool_(), "array<string>": pa.list_(pa.string())}  # fmt: skip
    fields = [(name, kinds[kind]) for name, kind in RECORD.items()]
    table = pa.Table.from_pylist(records, pa.schema([*fields, (PLACE[0], pa.int32()), (PLACE[1], pa.int64())]))
    columns = [f"timestamp_micros({name}) as {name}" if name in _TIMES else name for name in RECORD]
    return of_arrow(spark, table).selectExpr(*columns, f"{place_sql()} as place")


def _record(row: BadRow, file: FileToRead, of: RecordOf) -> dict[str, Any]:
    name, path, kept = file.path.rsplit("/", 1)[-1], as_uri(file.path), row.kept
    of_csv = NAMED if file.dialect.header else SHARED if TABLE in file.roles else STATED
    form = PARQUET if file.is_parquet else of_csv
    written_at = None if math.isnan(file.written_at_s) else round(file.written_at_s * 1e6)
    return {
        "table_name": of.spec.source, "id": f"{path}:{row.number}", "status": WAITING,
        "column_name": row.column.strip("<>"), "reason": row.reason, "raw": kept.raw,
        "path": path, "row_no": str(row.number), "key": kept.key, "old_key": kept.old_key, "op": kept.op,
        "commit_ts": kept.commit_ts, "batch": of.batch, "changed_by": of.batch, "sequence": of.sequence,
        "phase": of.phase, "object": name, "written_at": written_at, "form": form,
        "layout": list(file.roles), "misfit": kept.misfit, "keyed": kept.keyed, **dict.fromkeys(LATER),
    }  # fmt: skip
