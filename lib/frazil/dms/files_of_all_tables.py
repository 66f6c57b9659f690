"""PreserveTransactions: the changes of all tables share the files of one folder, in the order of the source's commits.

A row is `op, table, schema, <the table's fields>`. Rows of several lengths are in one file, which has no header and is
CSV whatever DataFormat says. Each table has its own position in these files, by their names, as with files per table.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from frazil.dms.endpoint import Endpoint
from frazil.dms.file_layout import Layout
from frazil.dms.incremental_listing import Begin, Data
from frazil.dms.listing import DmsObject, Recorded, TableObjects, require_data
from frazil.dms.storage import location, walk
from frazil.source.file_names import SHARED, moment, name_at


def with_transactions(
    there: TableObjects,
    root: Path | str,
    endpoint: Endpoint,
    begin: Begin | None = None,
    recorded: Recorded | None = None,
) -> TableObjects:
    """Add the files in the folder CdcPath to a table's objects: they are change files of every table.

    The table's own files, from before PreserveTransactions was switched on, come first. `begin` and `recorded` are
    as in `listing.list_table`.
    """
    after = name_at(moment(begin.start), begin.last) if begin and SHARED.match(begin.last) else ""
    folder, found, foreign = f"{location(root)}/{endpoint.cdc_path}", [], []
    for e in require_data(walk(folder, start_after=after, sieve=recorded or Data()), endpoint.cdc_path):
        if SHARED.match(e.name):
            found.append(DmsObject(e.name, e.path, e.size, e.etag, e.modified))
        else:
            foreign.append(e.path)
    changes = (*there.changes, *sorted(found, key=lambda o: o.name))
    return replace(there, changes=changes, foreign=(*there.foreign, *foreign))


def shared_layout(own: Layout) -> Layout:
    """Return the fields of a table's rows in files of all tables, from those in files of its own.

    Not confirmed by AWS's documentation: that the timestamp column follows the schema, and that Op is always present.
    """
    return Layout(("op", "table", "schema", *[r for r in own.roles if r != "op"]))
