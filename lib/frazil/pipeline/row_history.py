"""What became of a key: its row in each kept state, the commit that wrote it, and that commit's batch read again. It needs no JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.core.changes import BEFORE, Changes
from frazil.core.exact import arrow_type
from frazil.core.lake_values import lake_values
from frazil.dms.applied import batch_of
from frazil.dms.file_names import base_name
from frazil.dms.position import Position, read_position
from frazil.errors import FrazilError, many
from frazil.iceberg.data_files import LAST_UPDATED, LINEAGE
from frazil.iceberg.locate import Places, Scan, locate, scan_files
from frazil.iceberg.read_rows import live_rows, rows_at
from frazil.iceberg.snapshots import POSITION, Snapshot
from frazil.pipeline.explore import ExploreError, clock, states_of
from frazil.pipeline.facts import KIND

if TYPE_CHECKING:
    from frazil.iceberg.table import LakeTable
    from frazil.pipeline.table import Table

MOST_BYTES = 1 << 30
"""The bytes of source files that one search reads, those of the newest batches first."""
FACTS = ["did", "committed", "snapshot", "origin"]
Row = dict[str, Any]
"""A row in one state; `LAST_UPDATED` is the sequence number of the commit that wrote it."""


def find(table: Table, *key: Any) -> pd.DataFrame:
    """Return what became of a key, the newest first, as far back as states are kept; without a key, of one changed last.

    `did` is load, insert, update or delete; earlier: its commit is not kept. `origin` has file, row number and operation of
    the rows of DMS's that did it, or why they cannot be shown. The other columns are the table's, without the key.
    """
    table.stored.refresh()
    search = _Search(table, _typed(table, key) if key else _changed_last(table))
    names = [name for name in table.stored.metadata.schema().column_names if name not in table.stored.key]
    return pd.DataFrame([*search.versions(names)], columns=FACTS + names, dtype=object)


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
    """Return the key of a row that was changed last; nothing of an empty table, or without a key."""
    stored, spec = table.stored, table.read_spec()
    kinds = {column.name: arrow_type(column.lake_type) for column in spec.columns}
    schema = pa.schema([(name, kinds[name]) for name in spec.key])
    for file in sorted(stored.live_files.values(), key=lambda file: -file.sequence) if spec.key else ():
        for rows in live_rows(stored.io, file, stored.vectors.of(file), _schema(stored)):
            if len(rows):
                newest = rows.sort_by([(LAST_UPDATED, "descending")]).slice(0, 1).select(stored.key)
                return newest.rename_columns([*spec.key]).cast(schema)
    return schema.empty_table()


def _schema(stored: LakeTable) -> pa.Schema:
    """Return the table's columns of now, and the sequence number that rows of format v3 have."""
    number = {b"PARQUET:field_id": str(LINEAGE[LAST_UPDATED]).encode()}
    return schema_to_pyarrow(stored.metadata.schema()).append(pa.field(LAST_UPDATED, pa.int64(), metadata=number))


@dataclass
class _Search:
    """A search for one key through the kept states of a table."""

    table: Table
    key: pa.Table
    left: int = MOST_BYTES
    scanned: dict[str, Places] = field(default_factory=dict)

    def versions(self, names: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the versions, the newest first: a row is the same back to the commit that wrote it."""
        states: list[Snapshot | None] = [*states_of(self.table.stored)] if len(self.key) else []
        after: Snapshot | None = None
        row: Row | None = None
        for state in [*states, None]:
            if not (row and state and state.sequence >= row[LAST_UPDATED]):
                older = self._row(state) if state else None
                if after and (row or older) and not self._was_moved(row, older):
                    is_known = row[LAST_UPDATED] == after.sequence if row else state and state.id == after.parent
                    facts = (
                        self._facts(after, row, older) if is_known else ["earlier", "–", None, "its commit is not kept"]
                    )
                    yield [*facts, *((row or {}).get(name) for name in names)]
                row = older
            after = state

    def _was_moved(self, row: Row | None, older: Row | None) -> bool:
        """Return whether a row is only at another place: on format v2 a compaction gives it another sequence number."""
        is_v2, unknown = self.table.stored.metadata.format_version < 3, {LAST_UPDATED: 0}
        return is_v2 and bool(row and older and row | unknown == older | unknown)

    def _row(self, state: Snapshot) -> Row | None:
        """Return the key's row in a state."""
        stored = self.table.stored.at(state.id)
        for found in locate(stored, None, self.key, self._scan):
            row = rows_at(stored.io, found.file.path, found.position, _schema(stored)).to_pylist()[0]
            return row if row[LAST_UPDATED] is not None else row | {LAST_UPDATED: found.file.sequence}
        return None

    def _scan(self, scan: Scan, paths: list[str]) -> list[Places]:
        """Scan each data file once: it never changes."""
        missing = [path for path in paths if path not in self.scanned]
        self.scanned |= zip(missing, scan_files(scan, missing), strict=True)
        return [self.scanned[path] for path in paths]

    def _facts(self, made: Snapshot, row: Row | None, older: Row | None) -> list[Any]:
        kind = made.summary.get(KIND) or made.summary.get("operation", "")
        did = "delete" if row is None else "load" if kind == "load" else "update" if older else "insert"
        try:
            origin = self._origin(made) if kind in ("load", "changes") else f"no file: {kind}"
        except FrazilError as error:
            origin = error.problem
        return [did, clock(made.committed_ms), made.id, origin]

    def _origin(self, made: Snapshot) -> list[tuple[str, int, str]]:
        """Return the rows of a commit's batch that have the key, before or after. Raises ExploreError if its files are gone, or too large."""
        table, own, before = self.table, self._position(made), self._position(self.table.stored.snapshot(made.parent))
        spec = table.read_spec()
        reader, there = table.lake.source.reader(spec), table.lake.source.look(spec, None)
        named = there.loads if made.summary[KIND] == "load" else {file.name: file for file in there.changes}
        names = batch_of(own, made.summary, 0.0).files or named
        if gone := [name for name in names if name not in named]:
            raise ExploreError(f"{', '.join(gone[:3])} of its batch are gone", "bring them back")
        self.left -= sum(named[name].size for name in names)
        if self.left < 0:
            raise ExploreError("the files of its batch are too large to be read again", "search them by another tool")
        found: list[tuple[str, int, str]] = []
        for file in map(named.__getitem__, names):
            columns = reader.columns(file)
            begin, end = (p.rows if base_name(p.last) == file.name else None for p in (before, own))
            for changes in reader.read(file, columns, begin or 0, end) if columns else ():
                facts = changes.facts.filter(self._has_key(changes)).select(["number", "op"]).to_pylist()
                found += [(file.name, fact["number"], fact["op"]) for fact in facts]
        return found

    def _position(self, made: Snapshot | None) -> Position:
        text = made.summary.get(POSITION) if made else None
        return read_position(text, self.table.source) if text else Position()

    def _has_key(self, changes: Changes) -> pa.Array:
        """Return which changes have the key, before or after."""
        after = before = pa.array([True] * len(changes.rows))
        for name in self.key.column_names:
            new, old, wanted = changes.rows[name], changes.fact(BEFORE + name), self.key[name][0]
            is_new = pc.equal(new, wanted)
            after = pc.and_(after, is_new)
            before = pc.and_(before, is_new if old is None else pc.coalesce(pc.equal(old, wanted), is_new))
        return pc.or_(after, before)
