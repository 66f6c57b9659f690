"""Whether a catalog keeps what Frazil relies on: the tag of a position, its unlimited age, and the entries of a snapshot's summary."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.iceberg.refusals import require_known_io
from frazil.iceberg.snapshots import POSITION, TAG, TOKEN, Snapshot
from frazil.iceberg.swap import ForgetfulCatalogError, pass_others
from frazil.iceberg.table import LakeTable

UNLIMITED_MS = 2**63 - 1


def require_kept(table: LakeTable, made: Snapshot | None = None) -> None:
    """Require that the position of the commit that was just made comes back, from the catalog and from the metadata file.

    Without one, an empty snapshot is committed.
    Raises ForgetfulCatalogError, also if the tag would expire; TableRefusedError if Java's files have what Python's have not.
    """
    require_known_io(table.catalog.name, dict(table.handle.io().properties()))
    lost = [*_lost(table, (made or pass_others(table)).id)]
    if lost:
        cure = "use a catalog that keeps tags and summaries, or allow them there"
        raise ForgetfulCatalogError(f"the catalog {table.catalog.name} did not keep {lost[0]}", cure, lost[1:])


def _lost(table: LakeTable, made: int) -> Iterator[str]:
    """Yield what a catalog lost of the snapshot that was made."""
    answer = table.catalog.load_table(table.name).metadata
    file = LakeTable(table.catalog, table.name, table.key, table.session)
    tag, own, there = answer.refs.get(TAG), file.snapshot(made), answer.snapshot_by_id(made)
    if tag is None or tag.snapshot_id != made or file.tags.get(TAG) != made:
        yield f"the tag {TAG}"
    elif tag.max_ref_age_ms != UNLIMITED_MS:
        yield f"the age of the tag {TAG}: it would expire after {tag.max_ref_age_ms} ms"
    told = there.summary.additional_properties if there and there.summary else {}
    for entry in (POSITION, TOKEN):
        if own is None or entry not in own.summary or entry not in told:
            yield f"{entry} in the summary of a snapshot"
