"""From decoded replication messages to the changes that DMS would write, in commit order."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from frazil_demo.catalog import SourceTable, quoted, read_table
from frazil_demo.files import Files
from frazil_demo.layout import Change, Field
from frazil_demo.pgoutput import UNCHANGED, Begin, Commit, Delete, Insert, Message, Relation, Update, Values
from frazil_old.errors import FrazilError


class Sequence:
    """Numbers changes as `$AR_H_CHANGE_SEQ` does: 16 digits of commit time, then a 19-digit counter.

    Steps as in real files: 4 within a transaction, 12 to the next one; a restarted task begins at 61 again.
    """

    def __init__(self):
        self._last = 49

    def begin(self) -> None:
        """Note the start of a transaction with changes."""
        self._last += 8

    def next(self, commit_time: datetime) -> str:
        """Return the next change's number."""
        self._last += 4
        return f"{commit_time:%Y%m%d%H%M%S}{commit_time.microsecond // 10_000:02d}{self._last:019d}"


class Transactions:
    """Turns the messages of a slot into changes and passes them to a writer.

    A slot is peeked at, not consumed, so the same transactions return until it is moved: those already processed are
    skipped. `settled` says how far the slot may be moved.
    """

    def __init__(self, connection, tables: dict[str, SourceTable], writer: Files):
        self._db, self._tables, self._writer = connection, tables, writer
        self._shapes: dict[int, Relation] = {}
        self._resolved: dict[int, tuple[Relation, SourceTable | None]] = {}
        self._sequence = Sequence()
        self._taken = 0
        self._open: Begin | None = None
        self._row = 0
        self._number = 0
        self._ends: deque[tuple[int, int]] = deque()

    def take(self, message: Message) -> int:
        """Process one message; return 1 if it was a change, else 0."""
        match message:
            case Begin():
                self._open = message if message.commit_lsn >= self._taken else None
                self._number, self._row = self._number + 1, 0
            case Commit():
                if self._open:
                    self._taken = message.end_lsn
                    self._ends.append((self._number, message.end_lsn))
                self._open = None
            case Relation():
                self._shapes[message.oid] = message
            case Insert() | Update() | Delete():
                table = self._table(message.relation) if self._open else None
                if table:
                    self._change(table, message)
                    return 1
        return 0

    def settled(self) -> int:
        """Return the end of the last transaction that is completely in files, like all before it; 0 if none is new."""
        oldest, lsn = self._writer.oldest(), 0
        while self._ends and (oldest is None or self._ends[0][0] < oldest):
            lsn = self._ends.popleft()[1]
        return lsn

    def _table(self, oid: int) -> SourceTable | None:
        """Return a row's table, or None if it is not selected."""
        shape = self._shapes[oid]
        resolved = self._resolved.get(oid)
        if resolved is None or resolved[0] != shape:
            resolved = self._resolved[oid] = (shape, self._relate(shape))
        return resolved[1]

    def _relate(self, shape: Relation) -> SourceTable | None:
        """Find a table by its columns in the log; report changed columns to the writer before the first row."""
        name = f"{shape.namespace}.{shape.name}"
        table = self._tables.get(name)
        names = [c.name for c in shape.columns]
        if table is None:
            return table
        now = read_table(self._db, shape.namespace, shape.name, table.spec.comment)
        if now.spec.names != names and table.spec.names != names:
            raise FrazilError(
                f"{name} had columns {names} at a change, and has {now.spec.names} now",
                "the simulator follows one change of a table's columns per poll: run full_load",
            )
        if now.spec.names != names or now.spec == table.spec:
            return table
        self._writer.altered(table, now)
        self._tables[name] = now
        return now

    def _change(self, table: SourceTable, message: Insert | Update | Delete) -> None:
        if not self._row:
            self._sequence.begin()
        self._row += 1
        old, key_changed = None, False
        match message:
            case Insert():
                op, values = "I", message.new
            case Update():
                op, values = "U", message.new
                if message.old is not None:
                    old, key_changed = table.encoded(message.old), self._key_changed(table, message)
            case Delete():
                op, values = "D", message.old
        time, number = self._open.commit_time, self._sequence.next(self._open.commit_time)
        # Assumed: a large value that an update did not change represents a column that a source does not log without
        # supplemental logging. The other columns of a delete stay null, as seen for PostgreSQL.
        if not self._writer.target.keeps_unlogged:
            values = self._looked_up(table, values)
        values = table.encoded(values)
        self._writer.add(Change(table, op, time, number, self._position(), self._number, values, old, key_changed))

    def _position(self) -> str:
        """Return the change's `$AR_H_STREAM_POSITION`, in the form seen in DMS's messages to streams."""
        # Assumed: the log position is that of the commit, and the number in between counts the transaction's changes.
        lsn = self._open.commit_lsn
        place = f"{lsn >> 32:08X}/{lsn & 0xFFFFFFFF:08X}"
        return f"{place}.{self._row}.{place}"

    def _key_changed(self, table: SourceTable, message: Update) -> bool:
        """Return whether any part of the key changed; the log then has the whole old key."""
        places = [i for i, name in enumerate(table.spec.names) if name in table.spec.key]
        return any(message.new[i] not in (message.old[i], UNCHANGED) for i in places)

    def _looked_up(self, table: SourceTable, values: Values) -> list[Field]:
        """Fill in large values that an update did not change, as DMS does: from the source's present row.

        So the value may be newer than the change; it is null if the row is deleted.
        """
        row = list(values)
        lacking = [i for i, v in enumerate(row) if v is UNCHANGED]
        if not lacking:
            return row
        names, spec = table.spec.names, table.spec
        key = [(names.index(k), k) for k in spec.key]
        where = " AND ".join(f"{quoted(k)} = %s::{table.sql_types[i]}" for i, k in key) or "false"
        source = quoted(spec.schema_name, spec.table_name)
        columns = ", ".join(quoted(names[i]) for i in lacking)
        found = self._db.execute(f"SELECT {columns} FROM {source} WHERE {where}", [row[i] for i, _ in key]).pgresult
        for place, i in enumerate(lacking):
            value = found.get_value(0, place) if found.ntuples else None
            row[i] = None if value is None else value.decode()
        return row
