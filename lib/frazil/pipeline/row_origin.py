"""Where a row comes from: the commit that wrote it, and the rows of DMS's files that this commit's batch has of its key. It needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frazil.core.masks import lake_values
from frazil.dms.applied import batch_of
from frazil.dms.position import Position
from frazil.errors import FrazilError, many
from frazil.iceberg.doubled_keys import key_schema
from frazil.iceberg.live_files import LAST_UPDATED, LINEAGE
from frazil.iceberg.locate import locate, scan_files
from frazil.iceberg.read_rows import live_rows, rows_at
from frazil.iceberg.snapshot_summary import Snapshot
from frazil.pipeline.batch_summary import KIND
from frazil.pipeline.explore import ExploreError, clock
from frazil.pipeline.waiting_keys import key_texts, keys_of

if TYPE_CHECKING:
    import pandas as pd

    from frazil.pipeline.steps import Table


def find(table: Table, *key: Any) -> pd.DataFrame:
    """Return the row of a key with its commit and its origin; without a key, a row that was changed last.

    `origin` has file, number and operation of the rows of DMS's from which it came, or why they cannot be shown.
    """
    import pandas as pd

    table.refresh()
    wanted = _typed(table, key) if key else _changed_last(table)
    return pd.DataFrame([_told(table, wanted, row) for row in _rows(table, wanted)])


def _typed(table: Table, key: Sequence[Any]) -> pa.Table:
    """Return a key in the lake's types. Texts are read as those of files; of a masked column the value is given."""
    spec = table.read_spec()
    if len(key) != len(spec.key):
        cure = f"give {', '.join(spec.key)}, in this order" if spec.key else "ask for a table with a key"
        raise ExploreError(f"{many(len(key), 'value')} for the key of {table.source}", cure)
    columns, found = {column.name: column for column in spec.columns}, {}
    for name, value in zip(spec.key, key, strict=True):
        text = value.hex() if isinstance(value, bytes) else str(value)
        found[name], misfit = lake_values(columns[name], pa.array([text]))
        if misfit is not None:
            raise ExploreError(f"'{text}' is no {columns[name].type}, which {name} is", "write it as DMS does")
    return pa.table(found)


def _changed_last(table: Table) -> pa.Table:
    """Return the key of a row in the newest data file; nothing of an empty table, or without a key."""
    stored = table.stored
    for file in sorted(stored.live_files.values(), key=lambda file: -file.sequence) if stored.key else ():
        for rows in live_rows(stored.io, file, stored.vectors.of(file), key_schema(stored)):
            if len(rows):
                return rows[-1:].rename_columns([*table.spec.key])
    return pa.table({})


def _rows(table: Table, key: pa.Table) -> list[dict[str, Any]]:
    """Return the live row of a key, if there is one; `LAST_UPDATED` is the sequence number of the commit that wrote it."""
    stored, number = table.stored, {b"PARQUET:field_id": str(LINEAGE[LAST_UPDATED]).encode()}
    schema = stored.arrow_schema.append(pa.field(LAST_UPDATED, pa.int64(), metadata=number))
    found = locate(stored, scan_files, key)
    return [row for f in found for row in rows_at(stored.io, f.file, f.position, schema).to_pylist()]


def _told(table: Table, key: pa.Table, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with what is known of it."""
    number = row.pop(LAST_UPDATED)
    made = next((s for s in table.stored.ancestors() if s.sequence == number), None)
    if made is None:
        return {"committed": "–", "snapshot": None, "origin": "its commit is not kept", **row}
    try:
        origin: Any = _origin(table, key, made)
    except FrazilError as error:
        origin = error.problem
    return {"committed": clock(made.committed_ms), "snapshot": made.id, "origin": origin, **row}


def _origin(table: Table, key: pa.Table, made: Snapshot) -> list[tuple[str, int, str]]:
    """Return the rows in the files of a commit that have a key, before or after. Raises ExploreError if files are gone."""
    kind = made.summary.get(KIND) or made.summary.get("operation")
    if kind not in ("load", "changes"):
        raise ExploreError(f"no file: {kind}", "see history()")
    reader, there = table.lake.source.reader(table.read_spec()), table.lake.source.look(table.spec, None)
    named = there.loads if kind == "load" else {file.name: file for file in there.changes}
    names = batch_of(Position(), made.summary, 0.0).files or named
    if gone := [name for name in names if name not in named]:
        raise ExploreError(f"{', '.join(gone[:3])} of its batch are gone", "bring them back")
    found, text = list[tuple[str, int, str]](), key_texts(key)[0].as_py()
    for file in map(named.__getitem__, names):
        columns = reader.columns(file)
        for changes in reader.read(file, columns) if columns else ():
            touching = [n for n, keys in keys_of(changes, key.column_names, {text}).items() if text in keys]
            facts = changes.facts.take(pa.array(touching, pa.int64())).select(["number", "op"]).to_pylist()
            found += [(file.name, fact["number"], fact["op"]) for fact in facts]
    return found
