"""Looks around in the lake: commits, rows, states, and rows that wait. Only `rows` and `sql` need Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.dms.position import read_position
from frazil.engine.work import for_each
from frazil.errors import FrazilError
from frazil.iceberg import side_files
from frazil.iceberg.read_rows import live_rows
from frazil.iceberg.snapshots import POSITION, Snapshot
from frazil.iceberg.sql_text import quoted
from frazil.pipeline.facts import COUNTS, DECISION, KIND, NEWEST

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from frazil.iceberg.table import LakeTable
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.steps import Table

WAIT = ["table", "reason", "column", "file", "row", "bytes", "since", "side_file"]
"""What is shown of a row in quarantine."""
BRINGS_ROWS = ("load", "changes", "replay", "append", "overwrite", "delete")
"""Kinds of commits that change rows; the last three are those of others."""


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


def kept_states(stored: LakeTable) -> list[Snapshot]:
    """Return the states that are kept, the newest first: the current one, those before it, and those that tags name."""
    kept = {snapshot.id for snapshot in stored.ancestors()} | {*stored.tags.values()}
    return sorted((s for s in stored.snapshots if s.id in kept), key=lambda s: -s.sequence)


def state(table: Table, at: Any) -> Snapshot:
    """Return the state that is meant: by a snapshot's id, a tag, or a time by the lake's clock."""
    stored, text = table.refresh(), str(at)
    if number := stored.tags.get(text) or (int(text) if text.isdigit() else 0):
        if found := stored.snapshot(number):
            return found
        raise ExploreError(f"{table.source}: the snapshot {text} is not kept", "take one that history() shows")
    states, when = kept_states(stored), epoch_ms(text)
    if found := next((s for s in states if s.committed_ms <= when), None):
        return found
    cure = f"the oldest is of {clock(states[-1].committed_ms if states else None)}; daily_tags keeps old ones"
    raise ExploreError(f"{table.source}: no kept state is as old as {clock(when)} by the lake's clock", cure)


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
    stored, own = table.stored, schema_to_pyarrow(table.stored.metadata.schema())
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
    version = "" if at is None else f" VERSION AS OF {state(table, at).id}"
    return table.lake.spark.sql(f"SELECT * FROM {table.refresh().spark_name}{version}")


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
    side_file = table.refresh().position.quarantine
    found = side_files.stored(table.lake.state, side_file)
    if side_file is None or found is None:
        return []
    own, named = {"table": table.source, "side_file": side_file.path}, {"path": "file", "number": "row"}
    return [row | own | {"bytes": _text(row)} for row in found.rename_columns(named).to_pylist()]


def _text(row: dict[str, Any]) -> str:
    if row["form"] == "parquet":
        return str(pa.ipc.open_stream(row["raw"]).read_all().to_pylist()[0])
    return row["raw"].decode(errors="backslashreplace")


# --- a time of the source


def states(lake: Lake, source_time: str | None = None) -> pd.DataFrame:
    """Return for each table the newest state, or the last one that holds nothing newer than a time of the source.

    Rows have the names of the lake's tables. `holds_to` is the newest time of the source that is in the state; a commit
    that has none counts with its own time. Snapshot 0: there is no such state.
    """
    import pandas as pd

    when = epoch_ms(source_time) if source_time else None
    found = for_each(lake, lambda table: _as_of(table, when))
    none = {"snapshot": 0, "committed": "–", "holds_to": "–"}
    rows = [none | {"note": row.problem} if isinstance(row, FrazilError) else row for row in found.values()]
    return pd.DataFrame([{"table": t.source, **r} for t, r in zip(found, rows, strict=True)], [t.name for t in found])


def _as_of(table: Table, when: int | None) -> dict[str, Any]:
    known, until = list[tuple[Snapshot, int]](), 0
    for s in reversed(kept_states(table.refresh())):
        if s.summary.get(KIND, "" if POSITION in s.summary else s.summary.get("operation")) in BRINGS_ROWS:
            is_empty = s.summary.get("total-records") == "0"
            until = max(until, round(1000 * float(s.summary.get(NEWEST, 0))) or (0 if is_empty else s.committed_ms))
        known.append((s, until))
    fitting = [(s, ms) for s, ms in known if when is None or 0 < ms < when or not until]  # no time: it was always empty
    if not fitting:
        raise ExploreError(
            f"no kept state is as old as {clock(when)} by the source's clock", "daily_tags keeps old ones"
        )
    s, ms = fitting[-1]
    return {"snapshot": s.id, "committed": clock(s.committed_ms), "holds_to": clock(ms or None)}
