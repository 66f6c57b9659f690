"""Files that a position names: rows that wait in quarantine. Each is written once, in the state folder, outside of every table's location."""

from __future__ import annotations

import zlib
from datetime import datetime
from io import BytesIO
from uuid import uuid4

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import ObjectStore

from frazil.dms.position import SideFile
from frazil.errors import FrazilError


class SideFileGoneError(FrazilError, code="side-file-gone", decision=True):
    """A file that a table's position names is gone from the state folder, or has other bytes. Bring it back, or discard its rows."""


def store(state: ObjectStore, table: str, rows: pa.Table) -> SideFile | None:
    """Write rows to a new file of the state folder; return what the position says of it (None: there are no rows)."""
    if not len(rows):
        return None
    pq.write_table(rows, out := BytesIO(), compression="zstd")
    path = f"quarantine/{table}/{uuid4().hex}.parquet"
    obstore.put(state, path, out.getvalue(), mode="create")
    return SideFile(path, len(rows), zlib.crc32(out.getvalue()))


def stored(state: ObjectStore, file: SideFile | None) -> pa.Table | None:
    """Return the rows that a position names. Raises SideFileGoneError if the file is not as it was written."""
    if file is None:
        return None
    try:
        raw = bytes(obstore.get(state, file.path).bytes())
    except FileNotFoundError:
        raw = b""
    if zlib.crc32(raw) != file.checksum:
        what = "is not there" if not raw else "has other bytes than were written"
        cure = "bring it back into the state folder; or call discard(side_file, why) on the table"
        raise SideFileGoneError(f"{file.path}, which has {file.rows} waiting rows, {what}", cure)
    return pq.read_table(BytesIO(raw))


def unnamed(state: ObjectStore, table: str, named: set[str], before: datetime) -> list[str]:
    """Return the paths of a table's side files, written before a time, that no kept position names."""
    found = (entry for batch in obstore.list(state, f"quarantine/{table}/") for entry in batch)
    return [e["path"] for e in found if e["path"] not in named and e["last_modified"] < before]
