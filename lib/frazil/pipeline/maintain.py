"""The audit: all files of a table, compared with what is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from frazil.dms.applied import applied_files
from frazil.dms.load_rule import LoadChangedError, require_same_load
from frazil.dms.pending import audit
from frazil.iceberg.swap import Change, commit_as_is
from frazil.pipeline.facts import KIND
from frazil.pipeline.look import BY_AUDIT, applied_batches

if TYPE_CHECKING:
    from frazil.pipeline.steps import Table


def audit_table(table: Table) -> list[str]:
    """Compare all files of a table with what is applied, which a run cannot afford; stop the table by what is found.

    The stop is a commit of the position. It ends by itself once the finding is gone.
    """
    stored = table.refresh()
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
        commit_as_is(stored, change, position, after)
    return names
