"""The DMS simulator: reads PostgreSQL's replication slot, and writes the files of an S3 target or the messages of a stream."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from frazil_demo import decoys as foreign
from frazil_demo.catalog import SourceTable, quoted, read_tables
from frazil_demo.files import Files, check_folders
from frazil_demo.messages import Messages
from frazil_demo.pgoutput import Commit, decode, lsn_text
from frazil_demo.place import Folder, Place, staging
from frazil_demo.rules import read_rules
from frazil_demo.settings import SimulatorError, read_target
from frazil_demo.transactions import Transactions
from frazil_old.dms.aws_json import read_task_settings

_log = logging.getLogger(__name__)

NOTE = """DMS SIMULATOR, not AWS DMS.

The files in the folder '{folder}' were written by frazil_demo.simulator, which imitates what an AWS DMS task with an
S3 target writes, so that Frazil can be tried without an AWS account. Their form follows real DMS output and AWS's
documentation; where neither shows it, the code in frazil_demo says "Assumed" or "Unconfirmed" at the place.
"""

_SESSION = (
    "SET timezone = 'UTC'",
    "SET datestyle = 'ISO, YMD'",
    "SET intervalstyle = 'postgres'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
)
_PEEK = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, 'proto_version', '1', 'publication_names', %s)"
)


@dataclass(frozen=True)
class Slot:
    """The replication slot that changes are read from."""

    name: str = "frazil_dms"
    publication: str = "frazil"
    batch_messages: int = 100_000
    """Limits memory: above about that many messages, buffers are flushed early."""


@dataclass(frozen=True)
class Delivery:
    """What DMS's settings leave open about the objects."""

    place: Place | None = None
    """Takes the files instead of the folder, which then only names the hidden folder next to it."""
    op_undecided: bool = False
    """Whether change rows have Op where the guide contradicts itself (`settings.Target`)."""
    decoys: bool = False
    """Whether objects that are no table's data are added."""


class DmsSimulator:
    """Writes what an AWS DMS task would write for a PostgreSQL source and an S3, Kafka or Kinesis target. It is not AWS DMS.

    Settings, and with them the form of the files, come from DMS's JSON; unsupported ones are refused by name. Tables,
    columns and keys come from the database. Rows are delivered at least once: the replication slot only moves past what
    is in files. So after a crash some rows are written again, but none is lost. Like DMS, it writes nothing for a
    TRUNCATE at the source. It is not thread-safe.
    """

    def __init__(
        self,
        connect: Callable,
        endpoint_file: Path,
        mappings_file: Path,
        folder: Path,
        *,
        slot: Slot = Slot(),  # noqa: B008
        delivery: Delivery = Delivery(),  # noqa: B008
    ):
        """Read the settings and the catalog. `connect` returns a new psycopg connection, and `folder` is the bucket's place."""
        self.target, self.rules = read_target(endpoint_file), read_rules(mappings_file)
        self.target = replace(self.target, op_undecided=delivery.op_undecided)
        self.folder, self.slot = Path(folder), slot
        self.place = delivery.place or Folder(self.folder)
        if self.target.topic:
            self.writer = Messages(self.target, self.rules, read_task_settings(mappings_file))
        else:
            self.writer = Files(self.place, staging(self.folder), self.target, self.rules)
        self._decoys = delivery.decoys
        self._db = connect()
        self._db.autocommit = True
        for statement in _SESSION:
            self._db.execute(statement)
        known = read_tables(self._db)
        self.tables = {name: known[name] for name in self.rules.selected(known)}
        if not self.tables:
            raise SimulatorError(f"{mappings_file}: the selection rules mean no table", "known: " + ", ".join(known))
        check_folders(self.rules, self.tables.values())
        self._transactions = Transactions(self._db, self.tables, self.writer)
        self._note()

    def __enter__(self) -> DmsSimulator:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; buffered rows are lost, as in a crash (call `flush` first to stop cleanly)."""
        self._db.close()

    def full_load(self, tables: Iterable[str] | None = None) -> dict[str, int]:
        """Start over: create the slot, then write every selected table's LOAD files; return row counts by table.

        The slot comes first, as DMS caches changes from the load's start: change files may repeat what the load has.
        PostgreSQL creates a slot only after all transactions open at that moment have ended. `tables` reloads only
        these, under the same file names, and leaves the slot alone. Files of an earlier load that are not overwritten
        stay, as with DMS's TargetTablePrepMode DO_NOTHING.
        """
        if tables is None:
            self._create_slot(anew=True)
        names = list(self.tables) if tables is None else list(tables)
        if self._decoys:
            foreign.put(self.place, self.rules.of(self.tables[names[0]].spec))
        return {name: self.writer.load(self.tables[name], self._rows(self.tables[name])) for name in names}

    def pump(self) -> int:
        """Process all transactions committed by now, write the files that are due, and return the number of rows."""
        self._create_slot(anew=False)
        taken, more = 0, True
        while more:
            rows = self._db.cursor(binary=True).execute(
                _PEEK, (self.slot.name, self.slot.batch_messages, self.slot.publication)
            )
            messages = rows.fetchall()
            for (data,) in messages:
                message = decode(data)
                taken += self._transactions.take(message)
                if isinstance(message, Commit):
                    self._write(self.writer.full())
            more = len(messages) >= self.slot.batch_messages
            self._write(self.writer.buffered() if more else self.writer.due())
            self._advance()
        return taken

    def flush(self) -> list[Any]:
        """Write everything that is buffered, as when a task stops; return the files, as their place names them."""
        files = self._write(self.writer.buffered())
        self._advance()
        return files

    def run(self, stop: threading.Event, poll_s: float = 0.25) -> None:
        """Pump until `stop` is set, then process what is committed and flush."""
        while not stop.is_set():
            self.pump()
            stop.wait(poll_s)
        self.pump()
        self.flush()

    def drop(self) -> None:
        """Drop the slot and the publication: the database then keeps no log for the simulator."""
        if self._slot_exists():
            self._db.execute("SELECT pg_drop_replication_slot(%s)", (self.slot.name,))
        self._db.execute(f"DROP PUBLICATION IF EXISTS {quoted(self.slot.publication)}")

    def _write(self, names: list[str]) -> list[Any]:
        return [self.writer.flush(name) for name in names]

    def _note(self) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        note = NOTE.format(folder=self.folder.name)
        (self.folder.parent / f"{self.folder.name}.README.txt").write_text(note, encoding="utf-8")
        _log.info("DMS SIMULATOR, not AWS DMS: %d tables into %s", len(self.tables), self.folder)

    def _slot_exists(self) -> bool:
        found = self._db.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (self.slot.name,))
        return found.fetchone() is not None

    def _create_slot(self, anew: bool) -> None:
        exists = self._slot_exists()
        if exists and not anew:
            return
        self._publish()
        if exists:
            self._db.execute("SELECT pg_drop_replication_slot(%s)", (self.slot.name,))
        self._db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self.slot.name,))

    def _publish(self) -> None:
        """Make sure that the publication has all selected tables."""
        name = quoted(self.slot.publication)
        sql = "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s"
        have = {t for (t,) in self._db.execute(sql, (self.slot.publication,))}
        lacking = ", ".join(quoted(*t.split(".", 1)) for t in self.tables if t not in have)
        if not self._db.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (self.slot.publication,)).fetchone():
            self._db.execute(f"CREATE PUBLICATION {name} FOR TABLE {lacking}")
        elif lacking:
            self._db.execute(f"ALTER PUBLICATION {name} ADD TABLE {lacking}")

    def _rows(self, table: SourceTable):
        columns = ", ".join(quoted(c) for c in table.spec.names)
        source = quoted(table.spec.schema_name, table.spec.table_name)
        with self._db.cursor().copy(f"COPY (SELECT {columns} FROM {source}) TO STDOUT") as copy:
            yield from copy.rows()

    def _advance(self) -> None:
        """Move the slot past the transactions whose rows are all in files."""
        lsn = self._transactions.settled()
        if lsn:
            self._db.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (self.slot.name, lsn_text(lsn)))
