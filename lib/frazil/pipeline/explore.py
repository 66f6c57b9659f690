"""Looks around in the lake: commits, rows, states, and rows that wait. Only `rows` and `sql` need Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frazil.dms.position import read_position
from frazil.engine.work import for_each
from frazil.errors import FrazilError
from frazil.iceberg.read_rows import live_rows
from frazil.iceberg.snapshot_summary import POSITION, Snapshot
from frazil.iceberg.sql_text import quoted
from frazil.pipeline.batch_summary import COUNTS, DECISION, KIND

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from frazil.pipeline.lake import Lake
    from frazil.pipeline.steps import Table

WAIT = ["table", "reason", "column", "file", "row", "bytes", "since", "side_file"]
"""What is shown of a row in quarantine."""


class ExploreError(FrazilError, code="explore"):
    """A state, a time or a key is not there. Take one that the message, or `history`, names."""


def clock(ms: int) -> str:
    """Return epoch milliseconds as a time in UTC."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def _epoch_ms(text: str) -> float:
    """Return a time as epoch milliseconds; without a zone it is in UTC."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ExploreError(f"'{text}' is no time", "write it as 2026-11-21 10:00, in UTC") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000


def state(table: Table, at: Any) -> Snapshot:
    """Return the state that is meant, as of the last look: by a snapshot's id, a tag, or a time by the lake's clock."""
    stored, text = table.stored, str(at)
    if number := stored.tags.get(text) or (int(text) if text.isdigit() else 0):
        found = stored.snapshot(number)
    else:
        when, kept = _epoch_ms(text), {s.id for s in stored.ancestors()} | {*stored.tags.values()}
        older = [s for s in stored.snapshots if s.id in kept and s.committed_ms <= when]
        found = max(older, key=lambda s: s.sequence, default=None)
    if found is None:
        cure = "take one that history() shows; daily_tags keeps old ones"
        raise ExploreError(f"{table.source}: no state {text} is kept", cure)
    return found


def history(table: Table, newest: int = 5) -> pd.DataFrame:
    """Return the newest commits, with their times in UTC."""
    import pandas as pd

    return pd.DataFrame([_commit(table, snapshot) for snapshot in islice(table.refresh().ancestors(), newest)])


def _commit(table: Table, s: Snapshot) -> dict[str, Any]:
    said, tags = s.summary, table.stored.tags.items()
    counts = ", ".join(f"{count:,} {name}" for name, count in json.loads(said.get(COUNTS, "{}")).items() if count)
    return {
        "snapshot": s.id,
        "committed": clock(s.committed_ms),
        "kind": said.get(KIND) or said.get("operation", ""),
        "decided": said.get(DECISION, ""),
        "counts": counts,
        "batch": read_position(said[POSITION], table.source).batch if POSITION in said else "–",
        "tags": ", ".join(sorted(name for name, number in tags if number == s.id and name != "main")),
    }


# --- rows


def blocks(table: Table, wanted: pa.Schema | None = None) -> Iterator[pa.Table]:
    """Yield the rows of a table in blocks, without a JVM; `wanted` has the columns and their types (None: all)."""
    stored, own = table.stored, table.stored.arrow_schema
    fields = own if wanted is None else pa.schema([own.field(f.name).with_type(f.type) for f in wanted])
    for file in stored.live_files.values():
        yield from live_rows(stored.io, file, stored.vectors.of(file), fields)


def head(table: Table, count: int = 5) -> pd.DataFrame:
    """Return some rows, without a JVM."""
    import pandas as pd

    names = table.refresh().metadata.schema().column_names
    found = islice((row for block in blocks(table) for row in block.slice(0, count).to_pylist()), count)
    return pd.DataFrame([[*row.values()] for row in found], columns=names, dtype=object)


def rows(table: Table, at: Any = None) -> DataFrame:
    """Return Spark's DataFrame of a table, now or as `state` says."""
    name = table.refresh().spark_name
    version = "" if at is None else f" VERSION AS OF {state(table, at).id}"
    return table.lake.spark.sql(f"SELECT * FROM {name}{version}")


def sql(lake: Lake, text: str) -> DataFrame:
    """Return the result of Spark's SQL. The name of a source table means its table in the lake; within quotes it is text."""
    named = {form: table for table in lake for form in (table.source, quoted(table.source))}
    names = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
    pattern = rf"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?<![\w.`])({names})(?![\w`])"""
    return lake.spark.sql(re.sub(pattern, lambda m: m[1] or named[m[2]].stored.spark_name, text, flags=re.DOTALL))


def waiting(lake: Lake) -> pd.DataFrame:
    """Return the rows in quarantine of all tables; a table that cannot be read has a row whose reason says so."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for table, found in for_each(lake, _waiting).items():
        rows += [{"table": table.source, "reason": str(found)}] if isinstance(found, FrazilError) else found
    return pd.DataFrame(rows, columns=WAIT)


def _waiting(table: Table) -> list[dict[str, Any]]:
    position = table.refresh().position
    found = table.waiting(position).rename_columns({"path": "file", "number": "row"}).to_pylist()
    own = {"table": table.source, "side_file": position.quarantine and position.quarantine.path}
    return [row | own | {"bytes": _text(row)} for row in found]


def _text(row: dict[str, Any]) -> str:
    if row["form"] == "parquet":
        return str(pa.ipc.open_stream(row["raw"]).read_all().to_pylist()[0])
    return row["raw"].decode(errors="backslashreplace")


def states(lake: Lake) -> pd.DataFrame:
    """Return the newest state of each table: its snapshot, when it was committed, and its position.

    Rows have the names of the lake's tables. Together the snapshots are what all tables were at one time of the lake.
    """
    import pandas as pd

    rows = []
    for table in lake:
        head = table.refresh().head
        snapshot = (head.id, clock(head.committed_ms)) if head else (None, "–")
        rows.append((table.source, *snapshot, table.stored.position.last))
    return pd.DataFrame(rows, [table.name for table in lake], ["table", "snapshot", "committed", "position"])
