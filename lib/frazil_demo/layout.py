"""The fields of a row in DMS's order: operation, time, source columns, added columns, before-image columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from frazil_demo.catalog import SourceTable
from frazil_demo.pgoutput import Unchanged
from frazil_demo.rules import Rules
from frazil_demo.settings import Target
from frazil_old.config.spec import Column

Field = str | None | Unchanged

_OPERATIONS = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}


@dataclass(frozen=True)
class Change:
    """One changed row: `values` in column order, already as DMS's texts, and the log's data of the old row."""

    table: SourceTable
    op: str
    commit_time: datetime
    sequence: str
    position: str
    transaction: int
    values: Sequence[Field]
    old: Sequence[str | None] | None = None
    """The row before an update, as far as the log has it: the key if it changed, or the whole row."""
    key_changed: bool = False


class Clock:
    """Gives each transferred row its own time, at least one microsecond apart."""

    def __init__(self):
        self._last = datetime.min.replace(tzinfo=UTC)

    def next(self) -> datetime:
        """Return the time of the next row."""
        self._last = max(datetime.now(UTC), self._last + timedelta(microseconds=1))
        return self._last


def stamp(moment: datetime) -> str:
    """Format a time for the timestamp column."""
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")


class Layout:
    """Builds rows by settings and rules; all values are DMS's texts, to be written as text or as types."""

    def __init__(self, target: Target, rules: Rules):
        self._target, self._rules = target, rules
        self.task_start = datetime.now(UTC)

    def columns(self, table: SourceTable, with_op: bool) -> list[Column]:
        """Return names and types of the fields of load rows, or of rows in per-table change files."""
        rules, op = self._rules.of(table.spec), [Column("Op", "STRING")] if with_op else []
        name = self._target.timestamp_column
        times = [Column(name, "STRING", nullable=False)] if name else []
        before = [
            Column(rules.before.names[c.name], c.type) for c in table.spec.columns if c.name in rules.before.names
        ]
        # Seen in a load file: source columns are all optional in Parquet, the timestamp is not. Assumed: Op is.
        source = [Column(c.name, c.type) for c in table.spec.columns]
        return [*op, *times, *source, *(column for column, _ in rules.added), *before]

    def loaded(self, table: SourceTable, values: Sequence[str | None], moment: datetime) -> list[Field]:
        """Return the fields of a transferred row."""
        rules, row = self._rules.of(table.spec), ["I"] if self._target.op_in_load else []
        if self._target.timestamp_column:
            row.append(stamp(self.task_start if self._target.task_start_in_load else moment))
        known = {"$AR_H_OPERATION": "INSERT", "$AR_H_COMMIT_TIMESTAMP": stamp(moment), **_source(table)}
        row += values
        row += [known.get(expression, "") for _, expression in rules.added]  # no sequence or position: empty
        return row + [None] * len(rules.before.names)

    def changed(self, change: Change) -> list[Field]:
        """Return the fields of a change in a per-table file."""
        return [*([change.op] if self._target.op_in_changes else []), *self._rest(change)]

    def in_transaction(self, change: Change) -> list[Field]:
        """Return the fields of a change in a transaction file: operation, table, schema, then the row.

        Unconfirmed: that the timestamp column follows the schema, and that added and before-image columns come last.
        Also unconfirmed: that the operation is present whatever CdcInsertsOnly and similar settings say.
        """
        rules = self._rules.of(change.table.spec)
        return [change.op, rules.table, rules.schema, *self._rest(change)]

    def _rest(self, change: Change) -> list[Field]:
        rules = self._rules.of(change.table.spec)
        row: list[Field] = [stamp(change.commit_time)] if self._target.timestamp_column else []
        row += change.values
        if rules.added:
            known = {
                "$AR_H_CHANGE_SEQ": change.sequence, "$AR_H_STREAM_POSITION": change.position,
                "$AR_H_OPERATION": _OPERATIONS[change.op], "$AR_H_COMMIT_TIMESTAMP": stamp(change.commit_time),
                **_source(change.table),
            }  # fmt: skip
            row += [known[expression] for _, expression in rules.added]
        # Seen with pk-only: the whole old key on an update that changed it, else nothing. Assumed for the other
        # filters: whatever the log has of the old row, on updates only.
        has_old = change.old is not None and (change.key_changed or rules.before.whole)
        spec = change.table.spec
        row += [
            change.old[i] if has_old else None for i, name in enumerate(spec.names) if name in rules.before.names
        ]  # fmt: skip
        return row


def _source(table: SourceTable) -> dict[str, str]:
    return {"$AR_M_SOURCE_SCHEMA": table.spec.schema_name, "$AR_M_SOURCE_TABLE_NAME": table.spec.table_name}
