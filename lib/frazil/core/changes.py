"""Changes: the typed rows of files and messages, in the order in which DMS wrote them, without the bad ones.

A batch of changes has these columns. `number` is the row's number in its file, or its offset.

| column | meaning |
|---|---|
| `number` | the row's place in its file, from 1, or its offset |
| `op` | `I`, `U` (both upserts) or `D` |
| `commit_ts` | when the source committed; null if DMS does not write it |
| `change_seq` | DMS's own sequence, a second proof of the order |
| `new_0`, `new_1` … | the columns of the spec, typed, before any mask |
| `old_0`, `old_1` … | old values of the columns that identify a row; null if an update did not change them |
| `absent_3` … | whether the row does not carry that column at all; only for columns that some row lacks |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil.config.columns import TEXTS, Column
from frazil.config.lake_types import value_type
from frazil.config.spec import TableSpec
from frazil.core.csv import WrongWidth
from frazil.core.field_roles import ORIGIN, ORIGIN_AS, SEQUENCE_AS, fields_by_role
from frazil.core.parquet import type_values
from frazil.core.replaced_values import FFFD, as_texts_where_lacking, replaced_texts, times_as_texts
from frazil.core.types import type_texts

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

FIELDS, OP, KEY, COMMIT_TIME, WHOLE = "<fields>", "<op>", "<key>", "<timestamp>", "<whole>"
"""Faults of a row that do not concern the value of one column."""
HAVE_EMPTY = TEXTS | {"BYTES", "BLOB"}
"""Types that have an empty value: an empty field of any other type is null."""
OPERATIONS = ("I", "U", "D")
TABLE, SCHEMA = "table", "schema"
"""The roles of the fields that name a row's table in files of all tables."""
COMMIT_TS = Column(COMMIT_TIME, "DATETIME", utc=True)


@dataclass(frozen=True)
class FieldRules:
    """What a field of CSV means: CsvNullValue, CsvNoSupValue, and the texts of the operation column."""

    null: str = ""
    not_carried: str | None = None
    operations: Mapping[str, str] | None = None
    origin: Mapping[str, str] = field(default_factory=dict)
    """{added column: value} that identifies this table's rows in files of several tables."""
    table: tuple[str, str] = ("", "")
    """The schema and the name of the table in files of all tables, whose rows name theirs."""
    of_load: bool = False
    """Whether these are load files: a table with a key does not keep the times of their rows."""


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


@dataclass(frozen=True)
class Changes:
    """The good rows of one block, and the bad ones."""

    rows: pa.RecordBatch
    bad: tuple[BadRow, ...] = ()


@dataclass(frozen=True)
class Rows:
    """Which rows of a block are this table's or may be (`mine`), and which name no table (`unknown`, None: all do)."""

    mine: np.ndarray
    unknown: np.ndarray | None = None
    of_load: bool = False


@dataclass(frozen=True)
class _Fault:
    """Where a check fails (`mask`), which column it concerns, and how to describe it for one row."""

    mask: np.ndarray
    column: str
    texts: pa.Array | None
    words: str
    of_old_value: bool = False


def type_records(
    fields: pa.RecordBatch, numbers: np.ndarray, roles: Sequence[str], spec: TableSpec, rules: FieldRules
) -> Changes:
    """Return the changes in records of CSV; `roles` has the role of each field.

    A role is `op`, `ts`, `seq`, `after:<column>`, `before:<column>`, `skip`, or one of `field_roles`. Rows without any
    value are no changes.
    """
    at = fields_by_role(roles, fields.columns)
    texts = texts_by_role(fields, roles, spec, rules)
    return change_rows(texts, numbers, spec, _absent(at, spec, rules), _meant(_filled(fields), at, rules))


def texts_by_role(
    fields: pa.RecordBatch, roles: Sequence[str], spec: TableSpec, rules: FieldRules
) -> dict[str, pa.Array]:
    """Return what the fields of CSV mean, by role: texts, and nulls."""
    at = fields_by_role(roles, fields.columns)
    return {role: _meaning(role, text, spec, rules) for role, text in at.items() if _is_read(role)}


def type_columns(
    columns: pa.RecordBatch, first: int, roles: Sequence[str], spec: TableSpec, rules: FieldRules
) -> Changes:
    """Return the changes in rows of Parquet; `first` is the first row's number in its file."""
    import numpy as np

    at = fields_by_role(roles, columns.columns)
    numbers = np.arange(first, first + columns.num_rows)
    every = np.ones(columns.num_rows, bool)
    values = values_by_role(columns, roles, rules)
    return change_rows(values, numbers, spec, _absent(at, spec, FieldRules()), _meant(every, at, rules))


def values_by_role(columns: pa.RecordBatch, roles: Sequence[str], rules: FieldRules) -> dict[str, pa.Array]:
    """Return the columns of Parquet by role; operation, time and sequence as CSV has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = fields_by_role(roles, columns.columns)
    values = {role: array for role, array in at.items() if _is_read(role)}
    for role in ("op", "ts", "seq"):
        if role in values and pa.types.is_string(values[role].type):
            values[role] = _without(values[role], "")
    if "seq" in values:
        values["seq"] = values["seq"].cast(pa.string())
    if "op" in values:  # a load file may have the column without a value
        values["op"] = pc.fill_null(_operations(values["op"].cast(pa.string()), rules), "I")
    return values


def no_changes(spec: TableSpec) -> pa.RecordBatch:
    """Return a block of changes without rows."""
    import numpy as np
    import pyarrow as pa

    fields = {"op": pa.array([], pa.string())} | {f"after:{name}": pa.array([], pa.string()) for name in spec.names}
    return change_rows(fields, np.array([], "int64"), spec).rows


def change_rows(
    texts: Mapping[str, pa.Array],
    numbers: np.ndarray,
    spec: TableSpec,
    absent: Mapping[str, pa.Array] | None = None,
    meant: Rows | None = None,
) -> Changes:
    """Return changes from the texts, or the typed values, of each role.

    `absent`: which rows lack a column. `meant`: which are the table's.
    """
    import numpy as np
    import pyarrow as pa

    nothing = pa.nulls(len(numbers), pa.string())
    op = texts["op"] if "op" in texts else pa.repeat(pa.scalar("I"), len(numbers))
    meant = meant or Rows(np.ones(len(numbers), bool))
    faults = [_without_origin(meant, nothing), _unknown_operation(op), _missing_key(texts, spec, nothing)]
    commit_ts, fault = _value(COMMIT_TS, texts.get("ts", nothing))
    faults.append(_unlike_a_time(fault) if meant.of_load and spec.policy != "append" else fault)
    faults.append(_no_old_row(op, texts, spec))
    columns: dict[str, pa.Array] = {}
    for i, name in enumerate(spec.row_identity):
        columns[f"old_{i}"], fault = _value(spec.column(name), texts.get(f"before:{name}", nothing), old=True)
        faults.append(fault)
    for i, column in enumerate(spec.columns):
        columns[f"new_{i}"], fault = _value(column, texts.get(f"after:{column.name}", nothing))
        faults.append(fault)
    head = {"number": pa.array(numbers), "op": op, "commit_ts": commit_ts, "change_seq": texts.get("seq", nothing)}
    lacking = {f"absent_{spec.names.index(c)}": mask for c, mask in (absent or {}).items()}
    rows = pa.RecordBatch.from_pydict({**head, **columns, **lacking})
    return _parted(rows, numbers, [f for f in faults if f], meant.mine, spec)


# --- what a field means


def _meaning(role: str, text: pa.Array, spec: TableSpec, rules: FieldRules) -> pa.Array:
    """Return a field's text: null if it means null or was not carried, empty if it means an empty value.

    A field that equals CsvNullValue is null, quoted or not. A bare empty field is null if CsvNullValue is empty, else
    an empty value; a quoted one is an empty value. Types without an empty value read both as null. In the operation,
    the time and the sequence all of these mean that no value exists.

    The same holds in a key's before-image, which DMS leaves empty if the key did not change. But there a quoted empty
    text is the key's old value.
    """
    import pyarrow.compute as pc

    if role in ("op", "ts", "seq"):
        text = _without(text, "", rules.null)
        return _operations(text, rules) if role == "op" else text
    image, name = role.split(":", 1)
    column = spec.column(name)
    has_empty = column.dms_type in HAVE_EMPTY
    if rules.not_carried is not None:
        text = _without(text, rules.not_carried)
    may_be_unchanged = image == "before" and spec.policy != "multiset"  # DMS writes nothing for an unchanged key
    if rules.null and has_empty and not may_be_unchanged:
        text = pc.fill_null(text, "")
    return _without(text, *(word for word in ("", rules.null) if word or not has_empty))


def _without(texts: pa.Array, *words: str) -> pa.Array:
    """Return texts with some words replaced by null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for word in set(words):
        equal = pc.fill_null(pc.equal(texts, word), False)
        if pc.any(equal).as_py():
            texts = pc.if_else(equal, pa.scalar(None, texts.type), texts)
    return texts


def _operations(texts: pa.Array, rules: FieldRules) -> pa.Array:
    """Return operations as I, U and D if the column has its own texts; an unknown text stays."""
    import pyarrow.compute as pc

    given = rules.operations or {}
    if all(text == op for text, op in given.items()):
        return texts
    found = texts
    for text, op in given.items():
        found = pc.if_else(pc.fill_null(pc.equal(texts, text), False), op, found)
    return found


def _absent(at: dict[str, pa.Array], spec: TableSpec, rules: FieldRules) -> dict[str, pa.Array]:
    """Return, by column, which rows do not carry it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = len(next(iter(at.values())))
    found = {c: pa.repeat(pa.scalar(True), rows) for c in spec.optional if f"after:{c}" not in at}
    if rules.not_carried is not None:
        for name in spec.names:
            if (field := at.get(f"after:{name}")) is not None:
                found[name] = pc.fill_null(pc.equal(field, rules.not_carried), False)
    return {c: mask for c, mask in found.items() if pc.any(mask).as_py()}


def _is_read(role: str) -> bool:
    """Return whether a field has a value of the change, and is not left out or read under another role."""
    return role not in ("skip", TABLE, SCHEMA) and not role.startswith((SEQUENCE_AS, ORIGIN, ORIGIN_AS))


def _meant(filled: np.ndarray, at: dict[str, pa.Array], rules: FieldRules) -> Rows:
    """Return which rows with any value (`filled`) are of this table, and which name none."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = len(next(iter(at.values())))
    named = [(at.get(ORIGIN + name, pa.nulls(rows, pa.string())), value) for name, value in rules.origin.items()]
    if TABLE in at:
        named += zip((at[SCHEMA], at[TABLE]), rules.table, strict=True)
    if not named:
        return Rows(filled, None, rules.of_load)
    own, unknown = np.ones(rows, bool), np.zeros(rows, bool)
    for column, value in named:
        texts = _without(column.cast(pa.string()), rules.null)
        unknown |= texts.is_null().to_numpy(zero_copy_only=False)
        own &= _as_mask(pc.equal(texts, value))
    return Rows(filled & (own | unknown), unknown, rules.of_load)


def _filled(fields: pa.RecordBatch) -> np.ndarray:
    """Return which rows have any value."""
    import numpy as np

    filled = np.zeros(fields.num_rows, bool)
    for column in fields.columns:
        if not column.null_count:
            return np.ones(fields.num_rows, bool)
        filled |= column.is_valid().to_numpy(zero_copy_only=False)
    return filled


# --- what is wrong with a row


def _value(column: Column, texts: pa.Array, old: bool = False) -> tuple[pa.Array, _Fault | None]:
    import pyarrow as pa

    texts = _declared(column, texts) if column.replace else texts
    judged = type_texts if pa.types.is_string(texts.type) else type_values
    values, misfit = judged(column, texts)
    if misfit is None or (pa.types.is_string(values.type) and FFFD in dict(column.replace)):
        return values, None
    words = f"does not fit {column.type} ({value_type(column)} in the lake)"
    if pa.types.is_string(values.type):
        words = "holds U+FFFD: bytes that are not UTF-8, or that character itself"
    if column.name == COMMIT_TIME:
        words = "is not yyyy-MM-dd HH:mm:ss.SSSSSS"
    return values, _Fault(_as_mask(misfit), column.name, texts, words, old)


def _unlike_a_time(fault: _Fault | None) -> _Fault | None:
    """Return the fault of times that are not kept: only a text that does not look like a time shows other columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if fault is None or not pa.types.is_string(fault.texts.type):
        return fault
    dashed = pc.equal(pc.utf8_slice_codeunits(fault.texts, 4, 5), "-")
    alike = pc.and_(pc.greater_equal(pc.binary_length(fault.texts), 19), dashed)
    return replace(fault, mask=fault.mask & ~_as_mask(alike))


def _declared(column: Column, values: pa.Array) -> pa.Array:
    """Return values with what the column's `replace` declares; typed ones as texts, if some of them are affected."""
    import pyarrow as pa

    texts = values if pa.types.is_string(values.type) else as_texts_where_lacking(column, values)
    return values if texts is None else replaced_texts(column, texts)


def _without_origin(meant: Rows, nothing: pa.Array) -> _Fault | None:
    """Return the fault of rows that do not name their table: no table may skip them, since they may be its own."""
    if meant.unknown is None or not meant.unknown.any():
        return None
    return _Fault(meant.unknown, FIELDS, None, "names no table, and so stops all that share its file")


def _unknown_operation(op: pa.Array) -> _Fault | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    unknown = pc.invert(pc.is_in(op, pa.array(OPERATIONS)))
    return _Fault(_as_mask(unknown), OP, op, "") if pc.any(unknown).as_py() else None


def _missing_key(texts: dict[str, pa.Array], spec: TableSpec, nothing: pa.Array) -> _Fault | None:
    import numpy as np

    missing = np.zeros(len(nothing), bool)
    names = []
    for name in spec.key:
        part = texts.get(f"after:{name}", nothing)
        if part.null_count:
            missing |= part.is_null().to_numpy(zero_copy_only=False)
            names.append(name)
    return _Fault(missing, KEY, None, ", ".join(names)) if names else None


def _no_old_row(op: pa.Array, texts: dict[str, pa.Array], spec: TableSpec) -> _Fault | None:
    """Return the fault of updates without an old row, in a table that is compared by whole rows."""
    import numpy as np
    import pyarrow.compute as pc

    if spec.policy != "multiset":
        return None
    blind = pc.fill_null(pc.equal(op, "U"), False).to_numpy(zero_copy_only=False).copy()
    for name in spec.names:
        if (old := texts.get(f"before:{name}")) is not None:
            blind &= old.is_null().to_numpy(zero_copy_only=False)
    return _Fault(blind, WHOLE, None, "") if np.any(blind) else None


def _as_mask(mask: pa.Array) -> np.ndarray:
    import pyarrow.compute as pc

    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)


def _parted(
    rows: pa.RecordBatch, numbers: np.ndarray, faults: list[_Fault], mine: np.ndarray, spec: TableSpec
) -> Changes:
    """Separate good rows from bad ones; a bad row's first fault counts."""
    import numpy as np
    import pyarrow as pa

    if not faults:
        return Changes(rows if mine.all() else rows.filter(pa.array(mine)))
    wrong = np.zeros(rows.num_rows, bool)
    bad: list[BadRow] = []
    for fault in faults:
        for i in np.flatnonzero(fault.mask & mine & ~wrong):
            bad.append(BadRow(int(numbers[i]), fault.column, _reason(fault, int(i), spec), fault.of_old_value))
        wrong |= fault.mask
    good = rows.filter(pa.array(mine & ~wrong))
    return Changes(good, tuple(sorted(bad, key=lambda row: row.number)))


def _reason(fault: _Fault, row: int, spec: TableSpec) -> str:
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
