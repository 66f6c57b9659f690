"""What a field of a file means: a value, an empty value, null, or that the row does not carry the column.

A field of CSV is a text or null as its line has it (`core.csv`). CsvNullValue, CsvNoSupValue and the column's type decide
the rest. Columns of Parquet already have nulls, and only operation, time and sequence are brought into the form of CSV.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil_old.config.columns import TEXTS
from frazil_old.config.spec import TableSpec
from frazil_old.core.field_roles import ORIGIN, ORIGIN_AS, SCHEMA, SEQUENCE_AS, TABLE, fields_by_role

if TYPE_CHECKING:
    import pyarrow as pa

HAVE_EMPTY = TEXTS | {"BYTES", "BLOB"}
"""Types that have an empty value: an empty field of any other type is null."""


@dataclass(frozen=True)
class ReadRules:
    """What settings and the table say about reading its rows; `engine.read_files.read_rules` sets it for a batch."""

    null: str = ""
    not_carried: str | None = None
    operations: Mapping[str, str] | None = None
    origin: Mapping[str, str] = field(default_factory=dict)
    """{added column: value} that identifies this table's rows in files of several tables."""
    table: tuple[str, str] = ("", "")
    """The schema and the name of the table in files of all tables, whose rows name theirs."""
    of_load: bool = False
    """Whether these are load files: a table with a key does not keep the times of their rows."""


def texts_by_role(
    fields: pa.RecordBatch, roles: Sequence[str], spec: TableSpec, rules: ReadRules
) -> dict[str, pa.Array]:
    """Return what the fields of CSV mean, by role: texts, and nulls."""
    at = fields_by_role(roles, fields.columns)
    return {role: meaning_of_texts(role, text, spec, rules) for role, text in at.items() if _is_read(role)}


def values_by_role(columns: pa.RecordBatch, roles: Sequence[str], rules: ReadRules) -> dict[str, pa.Array]:
    """Return the columns of Parquet by role; operation, time and sequence as CSV has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = fields_by_role(roles, columns.columns)
    values = {role: array for role, array in at.items() if _is_read(role)}
    for role in ("op", "ts", "seq"):
        if role in values and pa.types.is_string(values[role].type):
            values[role] = without(values[role], "")
    if "seq" in values:
        values["seq"] = values["seq"].cast(pa.string())
    if "op" in values:
        values["op"] = _operations(values["op"].cast(pa.string()), rules)
        if rules.of_load:  # whose rows may have the column without a value
            values["op"] = pc.fill_null(values["op"], "I")
    return values


def meaning_of_texts(role: str, text: pa.Array, spec: TableSpec, rules: ReadRules) -> pa.Array:
    """Return a field's text: null if it means null or was not carried, empty if it means an empty value.

    A field that equals CsvNullValue is null, quoted or not. A bare empty field is null if CsvNullValue is empty, else
    an empty value; a quoted one is an empty value. Types without an empty value read both as null. In the operation,
    the time and the sequence all of these mean that no value exists.

    The same holds in a key's before-image, which DMS leaves empty if the key did not change. But there a quoted empty
    text is the key's old value.
    """
    import pyarrow.compute as pc

    if role in ("op", "ts", "seq"):
        text = without(text, "", rules.null)
        return _operations(text, rules) if role == "op" else text
    image, name = role.split(":", 1)
    column = spec.column(name)
    has_empty = column.dms_type in HAVE_EMPTY
    may_be_unchanged = image == "before" and spec.policy != "multiset"  # DMS writes nothing for an unchanged key
    if rules.null and has_empty and not may_be_unchanged:
        text = pc.fill_null(text, "")
    words = [word for word in ("", rules.null) if word or not has_empty]
    return without(text, *words, *([] if rules.not_carried is None else [rules.not_carried]))


def without(texts: pa.Array, *words: str) -> pa.Array:
    """Return texts with some words replaced by null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for word in set(words):
        equal = pc.fill_null(pc.equal(texts, word), False)
        if pc.any(equal).as_py():
            texts = pc.if_else(equal, pa.scalar(None, texts.type), texts)
    return texts


def _operations(texts: pa.Array, rules: ReadRules) -> pa.Array:
    """Return operations as I, U and D if the column has its own texts; an unknown text stays."""
    import pyarrow.compute as pc

    given = rules.operations or {}
    if all(text == op for text, op in given.items()):
        return texts
    found = texts
    for text, op in given.items():
        found = pc.if_else(pc.fill_null(pc.equal(texts, text), False), op, found)
    return found


def absent_columns(at: Mapping[str, pa.Array], spec: TableSpec, rules: ReadRules) -> dict[str, pa.Array]:
    """Return, by column, which rows have CsvNoSupValue instead of a value."""
    import pyarrow.compute as pc

    if rules.not_carried is None:
        return {}
    there = [name for name in spec.names if f"after:{name}" in at]
    found = {name: pc.fill_null(pc.equal(at[f"after:{name}"], rules.not_carried), False) for name in there}
    return {name: mask for name, mask in found.items() if pc.any(mask).as_py()}


def _is_read(role: str) -> bool:
    """Return whether a field has a value of the change, and is not left out or read under another role."""
    return role not in ("skip", TABLE, SCHEMA) and not role.startswith((SEQUENCE_AS, ORIGIN, ORIGIN_AS))
