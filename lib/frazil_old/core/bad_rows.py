"""Bad rows: which rows of a block cannot be applied, the column and the reason of each, and what the quarantine keeps of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil_old.config.columns import TEXTS, Column
from frazil_old.config.lake_types import value_type
from frazil_old.config.spec import TableSpec
from frazil_old.core.csv import Dialect, WrongWidth, line_of
from frazil_old.core.field_meaning import ReadRules, texts_by_role, values_by_role
from frazil_old.core.parquet_types import as_texts, kind_of
from frazil_old.core.replaced_values import FFFD, times_as_texts

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

FIELDS, OP, KEY, COMMIT_TIME, WHOLE = "<fields>", "<op>", "<key>", "<timestamp>", "<whole>"
"""Faults of a row that do not concern the value of one column; the quarantine stores them without `<>`."""
OPERATIONS = ("I", "U", "D")
SHOWN = 3
"""Number of bad rows that an error shows."""


@dataclass(frozen=True)
class KeptRow:
    """What the quarantine keeps of a bad row: its line, and the texts of its operation, time and key.

    `misfit`: its fields do not fit the table. `has_key`: they may still begin with its key. `built`: when DMS built it,
    if it is a message.
    """

    raw: bytes
    op: str | None
    commit_ts: str | None
    key: tuple[str | None, ...]
    old_key: tuple[str | None, ...]
    misfit: bool
    has_key: bool
    built: str | None = None


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be applied: `column` names the column, or is one of FIELDS, OP, KEY, COMMIT_TIME, WHOLE.

    `line` is its line, if that has too many or too few fields; `kept` is known once the file's reader has added it.
    `place` is the offset or sequence number of a message.
    """

    number: int
    column: str
    reason: str
    of_old_value: bool = False
    line: bytes | None = None
    kept: KeptRow | None = None
    place: str = ""


@dataclass
class BadRows:
    """The bad rows of a batch: their number, and the first `most` of each file with the file's place in the batch."""

    most: int = SHOWN
    count: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    by_file: dict[int, list[BadRow]] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[int, BadRow]]:
        """The rows that are kept, in order, each with its file's place."""
        return [(order, row) for order, rows in sorted(self.by_file.items()) for row in rows]

    def add(self, file_order: int, rows: Sequence[BadRow]) -> None:
        """Add bad rows of a file; the first ones by number are kept."""
        self.count += len(rows)
        self.operations.update(row.kept.op for row in rows if row.kept and row.kept.op in OPERATIONS)
        self._keep(file_order, rows)

    def add_part(self, part: BadRows) -> None:
        """Add the bad rows of a part of the batch."""
        self.count += part.count
        self.operations += part.operations
        for order, rows in part.by_file.items():
            self._keep(order, rows)

    def _keep(self, order: int, rows: Sequence[BadRow]) -> None:
        if rows:
            first = sorted([*self.by_file.get(order, []), *rows], key=lambda row: row.number)
            self.by_file[order] = first[: self.most]


# --- what is wrong with a row


@dataclass(frozen=True)
class Fault:
    """Where a check fails (`mask`), which column it concerns, and how to describe it for one row."""

    mask: np.ndarray
    column: str
    texts: pa.Array | None
    words: str
    of_old_value: bool = False


def fault_of_values(
    column: Column, texts: pa.Array, misfit: pa.Array, is_text: bool, of_old_value: bool
) -> Fault | None:
    """Return the fault of values that are none of their column's type; `is_text`: its values are texts."""
    if is_text and FFFD in dict(column.replace):
        return None
    words = f"does not fit {column.type} ({value_type(column)} in the lake)"
    if is_text:
        words = "holds U+FFFD: bytes that are not UTF-8, or that character itself"
    if column.name == COMMIT_TIME:
        words = "is not yyyy-MM-dd HH:mm:ss.SSSSSS"
    return Fault(as_mask(misfit), column.name, texts, words, of_old_value)


def fault_of_unkept_times(fault: Fault | None) -> Fault | None:
    """Return the fault of times that are not kept: only a text that does not look like a time shows other columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if fault is None or not pa.types.is_string(fault.texts.type):
        return fault
    dashed = pc.equal(pc.utf8_slice_codeunits(fault.texts, 4, 5), "-")
    alike = pc.and_(pc.greater_equal(pc.binary_length(fault.texts), 19), dashed)
    return replace(fault, mask=fault.mask & ~as_mask(alike))


def fault_of_unknown_table(unknown: np.ndarray) -> Fault | None:
    """Return the fault of rows that do not name their table: no table may skip them, since they may be its own."""
    if not unknown.any():
        return None
    return Fault(unknown, FIELDS, None, "names no table, and so stops all that share its file")


def fault_of_operation(op: pa.Array) -> Fault | None:
    """Return the fault of operations that are none of `OPERATIONS`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unknown = pc.invert(pc.is_in(op, pa.array(OPERATIONS)))
    return Fault(as_mask(unknown), OP, op, "") if pc.any(unknown).as_py() else None


def fault_of_missing_key(texts: Mapping[str, pa.Array], spec: TableSpec, nothing: pa.Array) -> Fault | None:
    """Return the fault of rows without a value in their key; `nothing` is the column of a role without a field."""
    import numpy as np

    missing = np.zeros(len(nothing), bool)
    names = []
    for name in spec.key:
        part = texts.get(f"after:{name}", nothing)
        if part.null_count:
            missing |= part.is_null().to_numpy(zero_copy_only=False)
            names.append(name)
    return Fault(missing, KEY, None, ", ".join(names)) if names else None


def fault_of_missing_old_row(op: pa.Array, texts: Mapping[str, pa.Array], spec: TableSpec) -> Fault | None:
    """Return the fault of updates without an old row, in a table that is compared by whole rows."""
    import numpy as np
    import pyarrow.compute as pc

    if spec.policy != "multiset":
        return None
    blind = pc.fill_null(pc.equal(op, "U"), False).to_numpy(zero_copy_only=False).copy()
    for name in spec.names:
        if (old := texts.get(f"before:{name}")) is not None:
            blind &= old.is_null().to_numpy(zero_copy_only=False)
    return Fault(blind, WHOLE, None, "") if np.any(blind) else None


def as_mask(mask: pa.Array) -> np.ndarray:
    """Return a mask for numpy, in which null is false."""
    import pyarrow.compute as pc

    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)


def separated(
    rows: pa.RecordBatch, numbers: np.ndarray, faults: list[Fault], mine: np.ndarray, spec: TableSpec
) -> tuple[pa.RecordBatch, tuple[BadRow, ...]]:
    """Return the table's good rows (`mine` are the table's), and its bad ones in order; a bad row's first fault counts."""
    import numpy as np
    import pyarrow as pa

    if not faults:
        return rows if mine.all() else rows.filter(pa.array(mine)), ()
    wrong = np.zeros(rows.num_rows, bool)
    bad: list[BadRow] = []
    for fault in faults:
        for i in np.flatnonzero(fault.mask & mine & ~wrong):
            bad.append(BadRow(int(numbers[i]), fault.column, _reason(fault, int(i), spec), fault.of_old_value))
        wrong |= fault.mask
    good = rows.filter(pa.array(mine & ~wrong))
    return good, tuple(sorted(bad, key=lambda row: row.number))


def _reason(fault: Fault, row: int, spec: TableSpec) -> str:
    """Return a row's fault in words that show no masked value."""
    import pyarrow as pa

    text = _text_of(fault.texts, row) if fault.texts is not None else None
    is_text = fault.texts is not None and pa.types.is_string(fault.texts.type)
    shown = _quoted(text) if is_text or text is None else text
    if fault.column == OP:
        return f"unknown operation {shown}, none of I, U, D or their OpValues"
    if fault.column == FIELDS:
        return fault.words
    if fault.column == KEY:
        return f"no value in key column {fault.words}"
    if fault.column == WHOLE:
        return "an update without the old row: add before-image columns with column-filter 'all'"
    if fault.column == COMMIT_TIME:
        return f"commit timestamp {shown} {fault.words}"
    shown = "a masked value" if spec.column(fault.column).mask else shown
    return f"{'old value of ' if fault.of_old_value else ''}column '{fault.column}': {shown} {fault.words}"


def _text_of(values: pa.Array, row: int) -> str | None:
    """Return a value as text; Python has no time outside the years 1 to 9999."""
    import pyarrow as pa

    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        return times_as_texts(values.slice(row, 1))[0][0].as_py()
    value = values[row].as_py()
    return value.hex().upper() if isinstance(value, bytes) else None if value is None else str(value)


def wrong_width(row: WrongWidth, spec: TableSpec, names_table: bool = True) -> BadRow:
    """Return the bad row for a line with too many or too few fields."""
    shown = "the line holds columns that are masked or left out" if spec.has_hidden_columns else _quoted(row.line, 200)
    wanted = f"{len(spec.file_columns)} columns and those that DMS adds"
    reason = f"too many or too few fields ({row.fields}) for {wanted}: {shown}"
    if not names_table:
        reason = f"names no table, and so stops all, or has {reason}"
    return BadRow(row.number, FIELDS, reason, line=row.line.encode())


def _quoted(text: str | None, most: int = 100) -> str:
    """Return a text as messages show it."""
    return "None" if text is None else "'" + text[:most].replace("\n", "\\n") + "'"


# --- what the quarantine keeps


def with_lines(
    bad: Sequence[BadRow],
    fields: pa.RecordBatch,
    roles: Sequence[str],
    spec: TableSpec,
    form: tuple[ReadRules, Dialect],
) -> list[BadRow]:
    """Return bad rows of CSV with what the quarantine keeps of them; `fields` has their fields, one row for each.

    The fields of a line with too many may still begin with its key, unless the file has a header.
    """
    rules, dialect = form
    texts = {role: values.to_pylist() for role, values in texts_by_role(fields, roles, spec, rules).items()}
    lines = [row.line if row.line is not None else line_of(_row(fields, i), dialect) for i, row in enumerate(bad)]
    return _kept(bad, lines, texts, spec, follows_lines=not dialect.header)


def with_values(
    bad: Sequence[BadRow], values: pa.RecordBatch, roles: Sequence[str], spec: TableSpec, rules: ReadRules
) -> list[BadRow]:
    """Return bad rows of Parquet with what the quarantine keeps of them; `values` has one row for each."""
    columns = {c.name: c for c in (*spec.file_columns, *spec.columns)}

    def texts(role: str, column: pa.Array) -> list[str | None]:
        return _line_texts(columns.get(role.rpartition(":")[2]), column).to_pylist()

    fields = [texts(role, column) for role, column in zip(roles, values.columns, strict=True)]
    lines = [line_of([field[i] for field in fields], Dialect()) for i in range(len(bad))]
    by_role = {role: texts(role, column) for role, column in values_by_role(values, roles, rules).items()}
    return _kept(bad, lines, by_role, spec, follows_lines=False)


def _line_texts(column: Column | None, values: pa.Array) -> pa.Array:
    """Return values of Parquet as texts from which they can be typed again."""
    import pyarrow as pa

    kind = kind_of(values.type)
    if kind == "bytes" and column and column.dms_type not in TEXTS:
        return pa.array([None if v is None else v.hex() for v in values.to_pylist()], pa.string())
    return times_as_texts(values)[0] if kind in ("moment", "date") else as_texts(values)


def _row(fields: pa.RecordBatch, at: int) -> list[str | None]:
    return [column[at].as_py() for column in fields.columns]


def _kept(
    bad: Sequence[BadRow],
    lines: Sequence[bytes],
    texts: Mapping[str, Sequence[str | None]],
    spec: TableSpec,
    follows_lines: bool,
) -> list[BadRow]:
    nothing = [None] * len(bad)
    new = [texts.get(f"after:{k}", nothing) for k in spec.key]
    old = [texts.get(f"before:{k}", nothing) for k in spec.key]
    ops, times = texts.get("op", ["I"] * len(bad)), texts.get("ts", nothing)
    found = []
    for i, row in enumerate(bad):
        key, old_key = (tuple(part[i] for part in parts) for parts in (new, old))
        misfit = row.column == FIELDS
        kept = KeptRow(lines[i], ops[i], times[i], key, old_key, misfit, follows_lines or not misfit)
        found.append(replace(row, kept=kept, line=None))
    return found
