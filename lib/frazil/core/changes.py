"""Changes: the rows of files and messages in the lake's types, in the order in which DMS wrote them.

All forms come here as `Rows`. A row with anything that does not fit is no change, but a bad row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.core.bad_rows import Fault, as_mask, described, first_fault
from frazil.core.exact import arrow_type, typed
from frazil.core.masks import lake_values
from frazil.core.rows import Rows
from frazil.settings.column import Column
from frazil.settings.spec import TableSpec

OP, COMMITTED, SEQUENCE, AFTER, BEFORE, ABSENT = "op", "committed", "sequence", "after ", "before ", "absent "
"""What a field is: the operation, the time of the source's commit, DMS's own sequence, or a column's new or old value."""
OPERATIONS = ("I", "U", "D")
_HAVE_EMPTY = ("STRING", "WSTRING", "CLOB", "NCLOB", "BYTES", "BLOB")
"""DMS types that have an empty value. An empty field of any other type is null."""


@dataclass(frozen=True)
class Reading:
    """How the rows of files with the same fields are read.

    `roles` says what each field is: `op`, `committed`, `sequence`, `after <column>`, `before <column of the key>`, or
    nothing. `null` is the text that a field of CSV has for null (None: the form has nulls of its own, as Parquet and
    messages), and `not_carried` what it has if the row lacks the column (None: no such text). Rows `of_load` are inserts
    unless they name an operation.
    """

    spec: TableSpec
    roles: tuple[str, ...]
    null: str | None = None
    not_carried: str | None = None
    of_load: bool = False

    @cached_property
    def columns(self) -> dict[str, Column]:
        """The spec's column of each role that has one."""
        named = {c.name: c for c in self.spec.columns}
        return {r: named[r.split(" ", 1)[1]] for r in self.roles if r.startswith((AFTER, BEFORE))}

    @cached_property
    def types(self) -> list[pa.DataType]:
        """The types in which CSV's fields may be parsed. If the text that means null fits a type, its fields stay texts."""
        kinds = {role: arrow_type(column.value_type) for role, column in self.columns.items()}
        words = [w for w in (self.not_carried, self.null if self.tells_empty else None) if w is not None]
        return [pa.string() if _fits(words, kind := kinds.get(role, pa.string())) else kind for role in self.roles]

    @property
    def tells_empty(self) -> bool:
        """Whether a bare empty field and a quoted one differ though null has a text: an old key that is bare did not change."""
        before = [column for role, column in self.columns.items() if role.startswith(BEFORE)]
        return bool(self.null) and any(column.dms_type in _HAVE_EMPTY for column in before)


@dataclass(frozen=True)
class Changes:
    """Changes of a table in order, and the rows that are none.

    `rows` has the lake's columns; of a delete its key alone counts. `facts` has `file` and `number`, the place of each
    row; `op` (I, U or D), `committed` (UTC, or null) and `sequence`, and by column `before <key>`, null where an update
    did not change it, and `absent <column>`, true where the row lacks that column. `bad` is as `bad_rows.BAD`; of those
    rows whose key is known, `bad_facts` has the facts, U for a bad operation, and the key as `after <column>`.
    """

    rows: pa.Table
    facts: pa.Table
    bad: pa.Table
    bad_facts: pa.Table = field(default_factory=lambda: pa.table({}))

    def fact(self, name: str) -> pa.ChunkedArray | None:
        """Return a column of `facts` if there is one."""
        return self.facts[name] if name in self.facts.column_names else None

    @cached_property
    def absent(self) -> dict[str, np.ndarray]:
        """Which rows lack a column, by the columns that some row lacks."""
        names = [name for name in self.facts.column_names if name.startswith(ABSENT)]
        return {name.removeprefix(ABSENT): as_mask(self.facts[name]) for name in names}


def concat(parts: Sequence[Changes]) -> Changes:
    """Return changes one after another."""
    tables = zip(*((part.rows, part.facts, part.bad, part.bad_facts) for part in parts), strict=True)
    return Changes(*(pa.concat_tables(same, promote_options="default") for same in tables))


def changes(rows: Rows, reading: Reading, file: int = 0) -> Changes:
    """Return the changes in rows; `file` is the place of their file in the batch."""
    values, facts, faults = judged(rows, reading)
    which, bad_facts = first_fault(faults, count := len(rows.numbers)), pa.table({})
    place = {"file": pa.repeat(pa.scalar(file, pa.int32()), count), "number": pa.array(rows.numbers, pa.int64())}
    good, found = pa.table(values), pa.table({**place, **facts})
    if (which >= 0).any():
        known = ~np.any([fault.mask for fault in faults if fault.column in reading.spec.key], axis=0)
        keys = {AFTER + name: values[name] for name in reading.spec.key}
        facts[OP] = pc.if_else(pc.is_in(facts[OP], pa.array(OPERATIONS)), facts[OP], "U")
        bad_facts = pa.table({**place, **facts, **keys}).filter(pa.array((which >= 0) & known))
        good, found = (table.filter(pa.array(which < 0)) for table in (good, found))
    return Changes(good, found, described(rows, faults, which, file), bad_facts)


def judged(rows: Rows, reading: Reading) -> tuple[dict[str, pa.Array], dict[str, pa.Array], list[Fault]]:
    """Return the values of rows by column of the lake, their facts, and what is wrong; what does not fit is null."""
    fields = dict(_fields(rows, reading))
    count, spec = len(rows.numbers), reading.spec
    op = fields.get(OP, pa.repeat("I", count))
    op = pc.fill_null(op, "I") if reading.of_load else op
    facts, faults = {OP: op}, [*_wrong_operations(op), *_missing_keys(fields, spec, count)]
    if COMMITTED in fields:
        facts[COMMITTED], misfit = typed(fields[COMMITTED], pa.timestamp("us", "UTC"))
        if misfit is not None and reading.of_load and spec.key:  # which no calendar must have: nothing asks for it
            misfit = pc.and_not_kleene(misfit, pc.match_substring_regex(fields[COMMITTED].cast("str"), "^[0-9-]{10} "))
        if misfit is not None:
            faults.append(Fault(as_mask(misfit), COMMITTED, "is no time yyyy-MM-dd HH:mm:ss.SSSSSS", fields[COMMITTED]))
    if SEQUENCE in fields:
        facts[SEQUENCE] = fields[SEQUENCE].cast(pa.string())
    values, found = {}, []
    for column in spec.lake_columns:
        name = column.name
        values[name], fault = _values(column, fields.get(AFTER + name), count)
        found.append(fault)
        if BEFORE + name in fields:
            facts[BEFORE + name], fault = _values(column, fields[BEFORE + name], count, ", before the update")
            found.append(fault)
        if (lacks := fields.get(ABSENT + name)) is not None:
            facts[ABSENT + name] = lacks
    return values, facts, [*faults, *filter(None, found)]


def _values(column: Column, field: pa.Array | None, count: int, when: str = "") -> tuple[pa.Array, Fault | None]:
    """Return a column's values in the lake, and what is wrong with some; a column without a field is null."""
    if field is None:
        return pa.nulls(count, arrow_type(column.lake_type)), None
    values, misfit = lake_values(column, field)
    if misfit is None:
        return values, None
    words = f"does not fit {column.type} ({column.value_type} in the lake){when}"
    if column.value_type == "string" and (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
        words = f"holds U+FFFD: bytes that are no UTF-8, or that character itself{when}"
    if column.mask:
        return values, Fault(as_mask(misfit), column.name, f"a masked value {words}")
    return values, Fault(as_mask(misfit), column.name, words, field)


# --- what fields mean


def _fields(rows: Rows, reading: Reading) -> Iterator[tuple[str, pa.Array]]:
    """Yield the fields by role, null where they mean it, and which rows lack a column."""
    for role, values in zip(reading.roles, rows.fields.columns, strict=True):
        if role and pa.types.is_string(values.type):
            if reading.not_carried is not None and role.startswith(AFTER):
                lacks = pc.fill_null(pc.equal(values, reading.not_carried), False)
                if pc.any(lacks).as_py():
                    yield ABSENT + role.removeprefix(AFTER), lacks
            values = _meant(values, role, reading)
        if role:
            yield role, values


def _meant(texts: pa.Array, role: str, reading: Reading) -> pa.Array:
    """Return texts, null where they mean null or that the row lacks the column."""
    column = reading.columns.get(role)
    if column is None:
        return _without(texts, "", reading.null)
    if reading.null is None:
        return _without_zone(texts, column) if column.dms_type == "DATETIME" else texts
    if column.dms_type not in _HAVE_EMPTY:
        return _without(texts, "", reading.null, reading.not_carried)
    if reading.tells_empty and role.startswith(AFTER):
        texts = pc.fill_null(texts, "")
    return _without(texts, reading.null or None, reading.not_carried)


def _without(texts: pa.Array, *words: str | None) -> pa.Array:
    """Return texts with null in place of some words."""
    found = pc.is_in(texts, pa.array({word for word in words if word is not None}, pa.string()))
    return pc.if_else(found, pa.scalar(None, pa.string()), texts) if pc.any(found).as_py() else texts


def _without_zone(texts: pa.Array, column: Column) -> pa.Array:
    """Return moments in the form of CSV: DMS writes a T and a Z in all messages, also where nobody knows the zone."""
    texts = pc.ascii_rtrim(texts, "Z")
    return pc.replace_substring_regex(texts, "^([0-9-]{10})T", r"\1 ") if column.lake == "string" else texts


def _fits(words: list[str], kind: pa.DataType) -> bool:
    """Return whether one of some words is a value of a type. The first array of a process takes 0.3 s: it imports pandas."""
    return bool(words) and typed(pa.array(words), kind)[0].null_count < len(words)


# --- what is wrong with a row as a whole


def _wrong_operations(op: pa.Array) -> Iterator[Fault]:
    known = pc.is_in(op, pa.array(OPERATIONS))
    if not pc.all(known).as_py():
        yield Fault(~as_mask(known), OP, "is no operation: I, U or D", op)


def _missing_keys(fields: Mapping[str, pa.Array], spec: TableSpec, count: int) -> Iterator[Fault]:
    for name in spec.key:
        part = fields.get(AFTER + name, pa.nulls(count))
        if part.null_count:
            yield Fault(part.is_null().to_numpy(zero_copy_only=False), name, "no value in the key")
