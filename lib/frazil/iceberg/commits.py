"""One swap a commit: what it changes, and the loop that makes it once."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import structs

from frazil.dms.position import Position
from frazil.errors import FrazilError
from frazil.iceberg.columns import COLUMNS, Step
from frazil.iceberg.java import causes
from frazil.iceberg.live_files import Delete, LiveFile, file_json, in_order, in_partition, partition_types
from frazil.iceberg.snapshot_summary import CHECKED, POSITION, TOKEN, Snapshot
from frazil.iceberg.soundness import require_sound

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from frazil.iceberg.table import LakeTable

ATTEMPTS = 10
OLDEST_S = 12 * 3600
"""Older files are not committed: others may have removed them as orphans, which they do after days."""


class PositionMovedError(FrazilError, code="position-moved"):
    """Another run of Frazil committed to the table meanwhile. Nothing is to be done: it did this run's work."""


class ForgetfulCatalogError(FrazilError, code="foreign-catalog"):
    """The catalog does not keep tags or summaries of snapshots, so nothing would say what is applied. Use another catalog, or allow them there."""


@dataclass(frozen=True)
class Change:
    """What one swap does: columns, files, the snapshot's summary, table properties.

    `kind`: append, replace (all rows), row delta, or rewrite (of files whose rows have the data sequence number `sequence`).
    `columns` has steps as `Commits.java` takes them. `rows` is how many rows are live afterwards (None: not known).
    `anew`: all rows are replaced, or a person said so: its history does not matter. `looked`: keys of others' rows were looked at.
    """

    kind: str
    add: list[LiveFile] = field(default_factory=list)
    add_deletes: list[Delete] = field(default_factory=list)
    remove: list[LiveFile] = field(default_factory=list)
    remove_deletes: list[Delete] = field(default_factory=list)
    columns: list[Step] = field(default_factory=list)
    summary: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    sequence: int = 0
    rows: int | None = None
    anew: bool = False
    looked: bool = False

    def to_json(self, metadata: TableMetadata) -> str:
        """Return the change as `Commits.java` takes it."""
        told, types = {**vars(self)}, partition_types(metadata)
        for name in ("add", "remove", "add_deletes", "remove_deletes"):
            told[name] = [file_json(types, file) for file in told[name]]
        return json.dumps(told)

    def applied(self, before: dict[str, LiveFile], snapshot: Snapshot, key: list[int]) -> dict[str, LiveFile] | None:
        """Return the live files of the snapshot that this change made; None if only the manifests show them. `key`: its field ids."""
        next_row_id = snapshot.first_row_id
        if next_row_id is not None and snapshot.added_rows != sum(f.rows for f in self.add):
            return None  # Iceberg has merged manifests, and numbers all their rows
        if any(not d.of and d.sequence >= self.sequence for f in self.remove for d in f.deletes):
            return None  # they apply to the new files as well, though they name none of their rows
        gone, sequence = {f.path for f in self.remove}, self.sequence or snapshot.sequence
        live = {} if self.kind == "replace" else {path: file for path, file in before.items() if path not in gone}
        for file in self.add:
            made = replace(file, sequence=sequence, first_row_id=next_row_id)
            live[file.path] = replace(made, bounds=file.bounds_of(key), statistics={})
            next_row_id = None if next_row_id is None else next_row_id + file.rows
        replaced = {(d.path, d.of) for d in self.remove_deletes}
        for delete in self.add_deletes:
            new = replace(delete, sequence=snapshot.sequence)
            for path in [new.of] if new.of else in_partition(new, live):
                kept = [d for d in live[path].deletes if (d.path, d.of) not in replaced]
                live[path] = replace(live[path], deletes=in_order([*kept, new]))
        return live


@dataclass(frozen=True)
class Written:
    """A change whose files are written, which nobody sees yet. By its token the commit is found, however it ended."""

    change: Change
    state: tuple[int | None, ...]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    at_s: float = field(default_factory=time.time)

    def fits(self, table: LakeTable) -> bool:
        """Return whether the files may still be committed: the table's rows and columns are those that they were written for."""
        return written(table, self.change).state == self.state and time.time() - self.at_s < OLDEST_S


def written(table: LakeTable, change: Change) -> Written:
    """Return a change that was written for a table's present rows, columns, id of the next new column, partitions and format."""
    now = table.metadata
    state = table.head_id, now.current_schema_id, now.last_column_id, now.default_spec_id, now.format_version
    return Written(change, state)


def commit(
    table: LakeTable,
    first: Written,
    write: Callable[[], Change],
    planned: Position | None = None,
    position: Position | None = None,
) -> Snapshot:
    """Make the swap of a written change, once, and return its snapshot.

    `planned` is the position from which the change was planned, and `position` the table's afterwards. Without them the
    change moves no position, as a compaction. Before each attempt the table must be sound, and at `planned`. If others
    committed meanwhile, `write` writes again, and the summary stays as it is. After an error of Java nobody knows whether
    something was committed: the history tells, and a second swap of the same state fails if the first one still comes.
    Raises PositionMovedError if another run was faster, and the errors of `soundness`.
    """
    now, may_come = first, False
    for attempt in range(ATTEMPTS):
        if found := find(table, first):
            return found
        if not now.change.anew:
            require_sound(table)
        if planned is not None and table.position != planned:
            raise PositionMovedError(f"{table.name}: another run committed a batch meanwhile", "let it go on")
        if not now.fits(table):
            now = _written_again(table, now, write, may_come)
        summary = first.change.summary | _named(table, first.token, now.change, position)
        try:
            table.swap(replace(now.change, summary=summary))
            break
        except Exception as error:
            may_come |= "CommitFailedException" not in dict(causes(error))  # else it was refused for certain
            time.sleep(min(0.1 * (2**attempt - 1), 2.0))
            steadily(table.refresh)
            if found := find(table, first):
                return found
            if not causes(error) or attempt == ATTEMPTS - 1:
                raise
    if found := find(table, first):
        return found
    raise ForgetfulCatalogError(f"{table.name}: its catalog lost a commit's summary", "use another catalog")


def commit_as_is(table: LakeTable, change: Change, position: Position | None = None) -> Snapshot:
    """Make the swap of a change without files, which is the same for every state of the table, from its present position; see `commit`."""
    return commit(table, written(table, change), lambda: change, table.position if position else None, position)


def pass_others(table: LakeTable, anew: bool = False) -> Snapshot:
    """Commit nothing on top of what others committed, so that the tag is the newest snapshot; return it.

    `anew`: a person says that the table was not rolled back, though its history is gone.
    """
    return commit_as_is(table, Change("row delta", anew=anew))


def _named(table: LakeTable, token: str, change: Change, position: Position | None) -> dict[str, str]:
    """Return what a summary says of a commit: its token, and the position afterwards."""
    known = change.properties.get(COLUMNS) or table.metadata.properties.get(COLUMNS)
    schema = json.loads(known)["schema"] if known else None
    named = {TOKEN: token, POSITION: structs.replace(position or table.position, schema=schema).text}
    return named if change.looked else named | {CHECKED: str(table.checked)}


def _written_again(table: LakeTable, past: Written, write: Callable[[], Change], may_come: bool) -> Written:
    """Write a change for the table's present state. Its former files go, unless a swap whose outcome is unknown may bring them."""
    now = replace(written(table, write()), token=past.token)
    files, kept = ([f.path for f in w.change.add] + [f.path for f in w.change.add_deletes] for w in (past, now))
    if not may_come and past.state[0] != table.head_id:
        for path in {*files} - {*kept}:
            with suppress(Exception):  # what stays is an orphan
                table.io.delete(path)
    return now


def find(table: LakeTable, first: Written) -> Snapshot | None:
    """Return the snapshot of a commit if it is in the history since the files were written.

    A batch's name is no proof: files may be applied again.
    """
    since = takewhile(lambda s: s.id != first.state[0], table.ancestors())
    return next((s for s in since if s.summary.get(TOKEN) == first.token), None)


def steadily(call: Callable[[], None]) -> None:
    """Make a call that changes nothing; repeat it while the catalog does not answer."""
    for pause in (0.2, 1.0, 3.0, None):
        try:
            call()
            return
        except Exception as error:
            if pause is None or not causes(error):
                raise
            time.sleep(pause)
