"""What maintenance can do to a table: each action says why it is due, by metadata and listings alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import obstore
from msgspec import structs

from frazil.dms.applied import applied_files
from frazil.dms.load_rule import LoadChangedError, require_same_load
from frazil.dms.pending import audit
from frazil.dms.position import read_position
from frazil.errors import many
from frazil.iceberg import compaction, upkeep
from frazil.iceberg.catalog import opened_table
from frazil.iceberg.side_files import unnamed
from frazil.iceberg.snapshots import POSITION
from frazil.iceberg.soundness import require_sound
from frazil.iceberg.swap import Change, commit, pass_others, written
from frazil.pipeline import ledger
from frazil.pipeline.facts import KIND
from frazil.pipeline.look import BY_AUDIT, applied_batches

if TYPE_CHECKING:
    from frazil.pipeline.table import Table

GROUPS_AT_ONCE, BUSY_S = 2, 60
"""Groups of files that are compacted at once; a table is ingested at present if its newest commit is younger."""


@dataclass(frozen=True)
class Action:
    """A part of maintenance. `why` is empty if nobody knows before that it is due; `act` is None if it cannot be done."""

    name: str
    why: str
    act: Callable[[], dict[str, int]] | None


class _TimeIsUp(Exception):
    """No further compaction begins."""


def actions(table: Table) -> Iterator[Action]:
    """Yield what is due for a table, each as it is once those before are done. Raises what `require_sound` does."""
    stored, settings = table.stored, table.lake.settings
    since = time.time() - settings.keep_hours * 3600  # what is committed from now on stays
    stored.refresh()
    require_sound(stored)
    yield Action("audit", "", lambda: {"stopping_files": len(audit_table(table))})
    if tags := [*upkeep.missing_tags(stored, datetime.now(UTC))]:
        yield Action("tag", many(len(tags), "past state"), lambda: {"tags": len(upkeep.keep_states(stored))})
    if not settings.managed_by:
        yield from _compaction(table)
    if (manifests := stored.manifests) > upkeep.MANY_MANIFESTS:
        rewrite = partial(upkeep.rewrite_manifests, stored)
        yield Action("rewrite manifests", many(manifests, "manifest"), lambda: {"manifests": manifests * rewrite()})
    if others := len(require_sound(stored)):
        theirs = f"{many(others, 'snapshot')} of others"
        yield Action("pass", theirs, lambda: {"passed": others * bool(pass_others(stored))})
    if stored.metadata.properties.get("gc.enabled") == "false":
        yield Action("expire", "gc.enabled is false: others need the files", None)
    elif old := _old_snapshots(table, since):
        why = f"{many(old, 'snapshot')} older than {settings.keep_hours:g} h"
        yield Action("expire", why, partial(_expire, table, since))
    if settings.orphan_days and not settings.managed_by:
        yield Action("remove orphans", "", lambda: {"orphans": len(upkeep.remove_orphans(stored))})
    if paths := _unnamed_side_files(table):
        yield Action("side files", f"{many(len(paths), 'file')} that no snapshot names", partial(_delete, table, paths))


def _compaction(table: Table) -> Iterator[Action]:
    target = int(table.stored.metadata.properties.get("write.target-file-size-bytes", 256 << 20))
    try:
        if files := sum(map(len, compaction.plan(table.stored, target))):
            yield Action("compact", many(files, "small or worn file"), partial(_compact, table, target))
    except compaction.NotCompactedError as error:
        yield Action("compact", str(error), None)


def _compact(table: Table, target: int) -> dict[str, int]:
    """Compact a table, wave by wave until the time is up; count what was rewritten."""
    done, stored, until = Counter[str](), table.stored, time.monotonic() + table.lake.settings.max_run_s

    def rewritten(jobs: list[compaction.Job]) -> list[compaction.Group]:
        if time.monotonic() > until or table.lake.stop.is_set():
            raise _TimeIsUp
        groups = compaction.here(jobs)
        old = [file for group in groups for file in group.old]
        done.update(files=len(old), bytes=sum(file.size for file in old))
        return groups

    is_busy = stored.head is not None and time.time() - stored.head.committed_ms / 1000 < BUSY_S
    with suppress(_TimeIsUp):
        compaction.compact(stored, target, GROUPS_AT_ONCE, rewritten, waits=is_busy)
    return dict(done)


def _old_snapshots(table: Table, since: float) -> int:
    """Return how many snapshots may expire: they are old, and no tag or branch names them."""
    named = [s.committed_ms for s in map(table.stored.snapshot, {*table.stored.tags.values()}) if s]
    return sum(ms < since * 1000 for ms in (s.committed_ms for s in table.stored.snapshots)) - sum(
        ms < since * 1000 for ms in named
    )


def _expire(table: Table, since: float) -> dict[str, int]:
    ledger.keep_commits(table)
    return {"expired": upkeep.expire(table.stored, (time.time() - since) / 3600)}


def _unnamed_side_files(table: Table) -> list[str]:
    """Return the side files, older than a day, that no kept snapshot names."""
    before = datetime.now(UTC) - timedelta(days=1)
    if not (paths := unnamed(table.lake.state, table.name, set(), before)):
        return []
    kept = [(s.summary and s.summary[POSITION]) for s in opened_table(table.lake.catalog, table.name).snapshots()]
    positions = [read_position(text, table.name) for text in kept if text]
    named = {position.quarantine.path for position in positions if position.quarantine}
    return [path for path in paths if path not in named]


def _delete(table: Table, paths: list[str]) -> dict[str, int]:
    obstore.delete(table.lake.state, paths)
    return {"side_files": len(paths)}


def audit_table(table: Table) -> list[str]:
    """Compare all files of a table with what is applied, which a run cannot afford; stop the table by what is found.

    The stop is a commit of the position. It ends by itself once the finding is gone.
    """
    stored = table.stored
    stored.refresh()
    position = stored.position
    if not position.load or position.stopped:
        return []
    there, applied = table.lake.source.look(table.read_spec(), None), applied_files(applied_batches(table))
    names = [name for finding in audit(there, position, applied) for name in finding.names]
    try:
        require_same_load(there, position, applied, table.source)
    except LoadChangedError:
        names += [*there.loads]
    if names:
        change = Change("row delta", summary={KIND: "audit"})
        after = structs.replace(position, stopped=f"{BY_AUDIT} {' '.join(names[:5])}")
        commit(stored, written(stored, change), lambda: change, position, after)
    return names
