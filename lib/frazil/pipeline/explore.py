"""Looks around in the lake: commits, rows, and states. Only `rows` and `sql` need Spark."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.dms.position import read_position
from frazil.errors import FrazilError
from frazil.iceberg.read_rows import live_rows
from frazil.iceberg.snapshots import POSITION, Snapshot
from frazil.iceberg.sql_text import quoted
from frazil.pipeline.facts import COUNTS, DECISION, KIND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from frazil.iceberg.table import LakeTable
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.table import Table


class ExploreError(FrazilError, code="explore"):
    """A state, a time or a key is not there. Take one that the message, or `history`, names."""


def clock(ms: int | None) -> str:
    """Return epoch milliseconds as a time in UTC."""
    return "–" if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def epoch_ms(text: str) -> int:
    """Return a time as epoch milliseconds; without a zone it is in UTC."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ExploreError(f"'{text}' is no time", "write it as 2026-11-21 10:00, in UTC") from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def states_of(stored: LakeTable) -> list[Snapshot]:
    """Return the kept states, the newest first: the current one, those before it, and older ones that tags keep."""
    main = [*stored.ancestors()]
    tagged = {s.id: s for s in map(stored.snapshot, stored.tags.values()) if s and s.sequence < main[-1].sequence}
    return main + sorted(tagged.values(), key=lambda s: -s.sequence)


def state(table: Table, at: Any) -> Snapshot:
    """Return the state that is meant: by a snapshot's id, a tag, or a time by the lake's clock."""
    stored, text = table.stored, str(at)
    if number := stored.tags.get(text) or (int(text) if text.isdigit() else 0):
        if found := stored.snapshot(number):
            return found
        raise ExploreError(f"{table.source}: the snapshot {text} is not kept", "take one that history() shows")
    states, when = states_of(stored), epoch_ms(text)
    if found := next((s for s in states if s.committed_ms <= when), None):
        return found
    cure = f"the oldest is of {clock(states[-1].committed_ms if states else None)}; daily_tags keeps old ones"
    raise ExploreError(f"{table.source}: no kept state is as old as {clock(when)} by the lake's clock", cure)


def history(table: Table, newest: int = 5) -> pd.DataFrame:
    """Return the newest commits, with their times in UTC."""
    table.stored.refresh()
    return pd.DataFrame([_commit(table, snapshot) for snapshot in islice(table.stored.ancestors(), newest)])


def _commit(table: Table, s: Snapshot) -> dict[str, Any]:
    said, tags = s.summary, table.stored.tags.items()
    batch = read_position(said[POSITION], table.source).batch if POSITION in said else "–"
    counts = ", ".join(f"{count:,} {name}" for name, count in json.loads(said.get(COUNTS, "{}")).items() if count)
    return {
        "snapshot": s.id, "committed": clock(s.committed_ms), "kind": said.get(KIND) or said.get("operation", ""),
        "decided": said.get(DECISION, ""), "counts": counts, "batch": batch,
        "tags": ", ".join(sorted(name for name, number in tags if number == s.id and name != "main")),
    }  # fmt: skip


# --- rows


def head(table: Table, count: int = 5) -> pd.DataFrame:
    """Return some rows, without a JVM."""
    stored = table.stored
    stored.refresh()
    schema = schema_to_pyarrow(stored.metadata.schema())
    blocks = (b for f in stored.live_files.values() for b in live_rows(stored.io, f, stored.vectors.of(f), schema))
    found = islice((row for block in blocks for row in block.slice(0, count).to_pylist()), count)
    return pd.DataFrame([[*row.values()] for row in found], columns=schema.names, dtype=object)


def rows(table: Table, at: Any = None) -> DataFrame:
    """Return Spark's DataFrame of a table, now or as `state` says."""
    table.stored.refresh()
    version = "" if at is None else f" VERSION AS OF {state(table, at).id}"
    return table.lake.spark.sql(f"SELECT * FROM {table.stored.spark_name}{version}")


def sql(lake: Lake, text: str) -> DataFrame:
    """Return the result of Spark's SQL. The name of a source table means its table in the lake; within quotes it is text."""
    named = {form: table for table in lake for form in (table.source, quoted(table.source))}
    names = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
    pattern = rf"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?<![\w.`])({names})(?![\w`])"""
    return lake.spark.sql(re.sub(pattern, lambda m: m[1] or named[m[2]].stored.spark_name, text, flags=re.DOTALL))
