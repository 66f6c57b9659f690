"""Folders of the source that no table of the specs takes."""

from __future__ import annotations

from frazil_old.dms.listing import TABLE_WITHOUT_SPEC, folders_beside, holds_data
from frazil_old.dms.mappings import like
from frazil_old.errors import FrazilError
from frazil_old.flows.workbook import Workbook

NO_SPEC = "its folder has data and no spec, so nothing of it arrives: write a spec (see `frazil init`), or name it in without_spec"


def without_spec(book: Workbook) -> list[str]:
    """Return the tables, `schema.table`, whose source folders hold data without a spec; none for a stream."""
    if book.stream:
        return []
    taken = {"/".join(name) for name in book.known} | {book.endpoint.cdc_path.split("/")[0]}
    try:
        folders = [f for f, what in folders_beside(book.source, taken).items() if what == TABLE_WITHOUT_SPEC]
        found = [f.replace("/", ".", 1) for f in folders if holds_data(book.source, f)]
    except FrazilError:  # the tables' own lines report it
        return []
    return [t for t in found if not any(like(p, t) for p in book.settings.without_spec)]
