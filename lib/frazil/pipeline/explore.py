"""Looks around in the lake: commits, rows, states, and how two states differ. Only `rows` and `sql` need Spark."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyroaring import BitMap64

from frazil.dms.applied import batch_of
from frazil.dms.file_names import is_change_file
from frazil.dms.position import Position, read_position
from frazil.engine.work import for_each
from frazil.errors import FrazilError, many
from frazil.iceberg.read_rows import live_rows, rows_at
from frazil.iceberg.snapshots import POSITION, Snapshot
from frazil.iceberg.sql_text import quoted
from frazil.pipeline.facts import COUNTS, DECISION, KIND, NEWEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from frazil.iceberg.table import LakeTable
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.table import Table

MOST_ROWS, SHOWN = 1_000_000, 5
"""The most rows that a difference looks at, on each side; and the rows of each kind that it shows."""
DIFFERENCES = ["change", "rows", "key", "column", "before", "after"]
Bound = tuple[int, str]
"""A time of the source in epoch milliseconds, and how it is known."""


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


# --- two states


def diff(table: Table, since: Any, until: Any = None) -> pd.DataFrame:
    """Return how two states differ, by the columns of now: for each change its number of `rows`, and the values of some.

    Only files that the states do not share are read, and rows that one of them has deleted. Memory holds these.
    """
    stored = table.stored
    stored.refresh()
    old, new = (stored if at is None else stored.at(state(table, at).id) for at in (since, until))
    before, after = (_by_key(_apart(*pair), stored.key) for pair in ((old, new), (new, old)))
    updated = [key for key in before if key in after and repr(before[key]) != repr(after[key])]
    changed = {"inserted": after.keys() - before, "updated": updated, "deleted": before.keys() - after}
    lines = [
        (change, len(keys), key, *line)
        for change, keys in changed.items()
        for key in islice(keys, SHOWN)
        for line in _lines(before.get(key), after.get(key), stored.key)
    ]
    return pd.DataFrame(lines, columns=DIFFERENCES, dtype=object)


def _apart(one: LakeTable, other: LakeTable) -> Iterator[dict[str, Any]]:
    """Yield the rows of a state that the other state does not have at the same place of the same file."""
    schema, there, count = schema_to_pyarrow(one.metadata.schema()), other.live_files, 0
    for path, file in one.live_files.items():
        dead = other.vectors.of(there[path]) if path in there else BitMap64(range(file.rows))
        places = np.array((dead - one.vectors.of(file)).to_array(), np.int64)
        if (count := count + len(places)) > MOST_ROWS:
            raise ExploreError(f"{one.name}: more than {many(MOST_ROWS, 'row')} lie elsewhere", "compare by lake.sql")
        yield from rows_at(one.io, path, places, schema).to_pylist() if len(places) else ()


def _by_key(rows: Iterator[dict[str, Any]], key: Sequence[str]) -> dict[tuple, dict[str, Any]]:
    """Return rows by key; without one by all their values, and the number of the copy."""
    copies: Counter[str] = Counter()
    found = {}
    for row in rows:
        copies[repr(row)] += not key
        found[tuple(row[name] for name in key) or (copies[repr(row)], *row.values())] = row
    return found


def _lines(old: dict[str, Any] | None, new: dict[str, Any] | None, key: Sequence[str]) -> Iterator[tuple]:
    """Yield each value that differs, with both sides; or the values of a row that is new or gone."""
    if old and new:
        yield from ((n, old[n], new[n]) for n in new if repr(old[n]) != repr(new[n]))
    else:
        whole = (
            row and ", ".join(f"{n}={v}" for n, v in row.items() if n not in key and v is not None)
            for row in (old, new)
        )
        yield "(row)", *whole


# --- a time of the source


def states(lake: Lake, source_time: str | None = None) -> pd.DataFrame:
    """Return for each table the newest state, or the last one that holds nothing newer than a time of the source.

    Rows have the names of the lake's tables. `holds_to` is the newest time of the source that the state may hold, and
    `known_by` says what shows it. Snapshot 0: there is no such state.
    """
    when = epoch_ms(source_time) if source_time else None
    found = for_each(lake.tables, lambda table: _as_of(table, when))
    none = {"snapshot": 0, "committed": "–", "holds_to": "–"}
    rows = [row if isinstance(row, dict) else none | {"known_by": row.problem} for row in found.values()]
    return pd.DataFrame([{"table": t.source, **r} for t, r in zip(found, rows, strict=True)], [t.name for t in found])


def _as_of(table: Table, when: int | None) -> dict[str, Any]:
    table.stored.refresh()
    known = [*_bounds(table, states_of(table.stored)[::-1])]
    was_empty = all(until is None for _, until in known)  # the same at any time
    fitting = [(s, until) for s, until in known if when is None or was_empty or (until and until[0] < when)]
    if not fitting:
        raise ExploreError(
            f"no kept state is as old as {clock(when)} by the source's clock", "daily_tags keeps old ones"
        )
    s, (ms, by) = fitting[-1][0], fitting[-1][1] or (None, "")
    return {"snapshot": s.id, "committed": clock(s.committed_ms), "holds_to": clock(ms), "known_by": by}


def _bounds(table: Table, states: Sequence[Snapshot]) -> Iterator[tuple[Snapshot, Bound | None]]:
    """Yield each state, the oldest first, with the newest time of the source that it may hold; None: it holds nothing."""
    until: Bound | None = None
    for n, s in enumerate(states):
        kind = s.summary.get(KIND, "" if POSITION in s.summary or s.summary.get("operation") == "replace" else "others")
        is_after_gap = s.parent is not None and (not n or states[n - 1].id != s.parent)
        own: Bound | None = s.committed_ms, "the lake's clock"
        if NEWEST in s.summary:
            own = round(float(s.summary[NEWEST]) * 1000), "commit times"
        elif kind in ("load", "changes"):  # DMS writes the first change file after the load
            later = [s] if kind == "changes" else states[n + 1 :]
            by_name = next((bound for bound in (_by_name(table, one) for one in later) if bound), None)
            has_rows = kind == "changes" or s.summary.get("total-records") != "0"
            own = by_name or own if has_rows else None
        elif kind != "others" and not is_after_gap:
            own = None
        until = max(filter(None, (until, own)), default=None)
        yield s, until


def _by_name(table: Table, s: Snapshot) -> Bound | None:
    """Return when DMS wrote the first file of a batch of changes, by its name."""
    names = [name for name in batch_of(Position(), s.summary, 0.0).files if is_change_file(name)]
    partition = table.lake.source.reader(table.spec).table.target.date_partition
    return (round(partition.written_s(names[-1]) * 1000), "file names") if names else None
