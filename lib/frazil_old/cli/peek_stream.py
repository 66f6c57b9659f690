"""`frazil peek` on a Kafka topic: what its messages show, in lines of at most 80 characters."""

from __future__ import annotations

import time
from collections.abc import Iterator

from frazil_old.cli.terminal import MOST_REMARKS, cut, remarks, safe_lines
from frazil_old.config.timestamps import clock
from frazil_old.dms.found_messages import FoundMessages, FoundTable
from frazil_old.errors import many, safe
from frazil_old.report.chart_style import span
from frazil_old.report.notebook_output import Grid

MOST_TABLES = 40


def lines(found: FoundMessages, seconds: float, address: str) -> Iterator[str]:
    """Yield the report."""
    yield from safe_lines(address)
    yield f"{many(found.partitions, 'partition')}, {many(found.kept, 'message')} kept; {found.read:,} read in {seconds:.1f} s"
    if not found.kept:
        yield "it is empty: start the DMS task, or name another topic"
        return
    if not found.is_whole:
        yield "only the first and the newest messages were read: numbers are minimums"
    yield ""
    yield from Grid([_row(name, table, found) for name, table in sorted(found.tables.items())[:MOST_TABLES]]).lines()
    yield from safe_lines(_times(found))
    yield ""
    yield "columns"
    for name, table in sorted(found.tables.items())[:MOST_REMARKS]:
        yield from safe_lines(f"{name}: {len(table.columns)}: {cut(_columns(table), 280)}", "  ", "    ")
    yield from remarks(_remarks(found))
    yield ""
    yield "next"
    yield from _next(found, address)


def _row(name: str, table: FoundTable, found: FoundMessages) -> dict[str, str | int]:
    changes = sum(n for operation, n in table.operations.items() if operation != "load")
    seconds = (found.newest_ms - found.recent_ms) / 1000
    return {
        "table": cut(safe(name), 28),
        "load": table.operations["load"],
        "changes": changes,
        "an hour": f"~{table.recent * 3600 / seconds:,.0f}" if seconds > 0 and table.recent > 1 else "-",
        "key": cut(safe(", ".join(table.key) or "not seen"), 22),
    }


def _times(found: FoundMessages) -> str:
    """Return the age of the newest message, and how long after the last commit in the source it arrived."""
    age = time.time() - found.newest_ms / 1000
    text = f"messages of {clock(found.oldest_ms)[:19]} to {clock(found.newest_ms)[:19]} UTC, the newest {span(age)} ago"
    last = max((t.last_commit for t in found.tables.values()), default=0)
    if last:
        late = found.newest_ms / 1000 - last
        text += f"; last commit seen {clock(last * 1000)[:19]}" + (
            f", {span(late)} before it arrived" if late >= 0 else ""
        )
    return text


def _columns(table: FoundTable) -> str:
    known = {**dict.fromkeys(table.types, set()), **table.columns}
    return ", ".join(
        f"{name} {table.types.get(name) or ' or '.join(sorted(seen)) or '?'}" for name, seen in known.items()
    )


def _remarks(found: FoundMessages) -> dict[str, list[str]]:
    """Return what is wrong, and what the messages do not show."""
    tables = found.tables.items()
    lacks = []
    if unknown := [name for name, t in tables if not t.types]:
        lacks.append(f"types and key of {', '.join(unknown)}: no create-table record was read (IncludeControlDetails)")
    if not any(t.has_images for _, t in tables):
        lacks.append("old keys (EnableBeforeImage): without them an update of a key leaves the old row")
    if tables and not any(t.last_commit for _, t in tables):
        lacks.append("commit times (IncludeTransactionDetails): without them no latency is known")
    spread = [
        f"{name}: messages are spread by {', '.join(sorted(t.spread))}: changes of a row may lose their order; let DMS use "
        "partition-key-type schema-table"
        for name, t in tables
        if t.spread - {"schema-table"} and found.partitions > 1
    ]
    return {"wrong or odd": found.faults + spread, "not shown by the messages": lacks}


def _next(found: FoundMessages, address: str) -> Iterator[str]:
    """Yield what to write into the environment file, and the next command."""
    yield "  params/prod.yml:"
    yield "    common:"
    yield f"      source: {address}"
    if any(t.types for t in found.tables.values()):
        yield "      unknown_tables: create    # writes specs from DMS's control records"
    yield "    full_load:"
    yield "      stream_start: earliest     # or the time at which DMS's full load began"
    if any(not t.types for t in found.tables.values()):
        yield from safe_lines(
            "frazil init --env prod --endpoints endpoints.json writes specs from the source database (endpoints.json: what "
            "aws dms describe-endpoints prints)",
            "  ",
            "    ",
        )
    yield "  frazil run 00_setup --env prod"
