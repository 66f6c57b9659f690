"""What the quarantine keeps of a bad row: its line, and the texts of its operation, time and key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.config.columns import TEXTS, Column
from frazil.config.spec import TableSpec
from frazil.core.bad_rows import FIELDS, BadRow, KeptRow
from frazil.core.csv import Dialect, line_of
from frazil.core.field_meaning import FieldRules, texts_by_role, values_by_role
from frazil.core.parquet import as_texts, kind_of
from frazil.core.replaced_values import times_as_texts

if TYPE_CHECKING:
    import pyarrow as pa

_LINE = Dialect()


def with_lines(
    bad: Sequence[BadRow],
    fields: pa.RecordBatch,
    roles: Sequence[str],
    spec: TableSpec,
    form: tuple[FieldRules, Dialect],
) -> list[BadRow]:
    """Return bad rows of CSV with what the quarantine keeps of them; `fields` has their fields, one row for each.

    The fields of a line with too many may still begin with its key, unless the file has a header.
    """
    rules, dialect = form
    texts = {role: values.to_pylist() for role, values in texts_by_role(fields, roles, spec, rules).items()}
    lines = [row.line if row.line is not None else line_of(_row(fields, i), dialect) for i, row in enumerate(bad)]
    return _kept(bad, lines, texts, spec, follows_lines=not dialect.header)


def with_values(
    bad: Sequence[BadRow], values: pa.RecordBatch, roles: Sequence[str], spec: TableSpec, rules: FieldRules
) -> list[BadRow]:
    """Return bad rows of Parquet with what the quarantine keeps of them; `values` has one row for each."""
    columns = {c.name: c for c in (*spec.file_columns, *spec.columns)}

    def texts(role: str, column: pa.Array) -> list[str | None]:
        return _line_texts(columns.get(role.rpartition(":")[2]), column).to_pylist()

    fields = [texts(role, column) for role, column in zip(roles, values.columns, strict=True)]
    lines = [line_of([field[i] for field in fields], _LINE) for i in range(len(bad))]
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
