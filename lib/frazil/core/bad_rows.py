"""Bad rows: the error that shows the first of them, and what the quarantine keeps of each."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil.config.columns import TEXTS, Column, unrepresentable
from frazil.config.lake_types import value_type
from frazil.config.spec import TableSpec
from frazil.core.changes import FIELDS, OP, OPERATIONS, BadRow, FieldRules, KeptRow, texts_by_role, values_by_role
from frazil.core.csv import Dialect, line_of
from frazil.core.parquet import as_texts, kind_of
from frazil.core.replaced_values import times_as_texts
from frazil.errors import LOAD_AGAIN, FrazilError, many

if TYPE_CHECKING:
    import pyarrow as pa

QUARANTINE = "have such rows quarantined, which leaves them out of the lake until they are replayed"
SHOWN = 3
"""Number of bad rows that an error shows."""
_LINE = Dialect()


class BadRowError(FrazilError):
    """Rows that cannot be applied: the message names the first of them, and nothing of the batch was applied."""


@dataclass(frozen=True)
class ShownRow:
    """A bad row as an error shows it: its place in words, and its fault."""

    place: str
    column: str
    reason: str
    of_message: bool = False


def explained(spec: TableSpec, count: int, worst: Sequence[ShownRow], other: str = "") -> BadRowError:
    """Return the error that shows the first bad rows: file, row (from 1, after the header), reason and cure.

    `other` names an alternative to a change of the spec; default: quarantine.
    """
    lines = [f"{row.place}: {row.reason}" for row in worst]
    more = [f"… and {count - len(worst)} more"] if count > len(worst) else []
    other = other or f"or {QUARANTINE} (on_bad_rows=quarantine)"
    cure = f"{_first_remedy(spec, worst)}; {other}; nothing of this batch was applied to {spec.target}"
    return BadRowError(f"{spec.source}: {many(count, 'bad row')}", cure, [f"  {line}" for line in lines + more])


def _first_remedy(spec: TableSpec, worst: Sequence[ShownRow]) -> str:
    """Return the lossless remedy in words, and for a replaceable value what a replacement loses."""
    for row in worst:
        if row.column in spec.names and (remedy := _remedy_of_value(spec, row)):
            return remedy
    of_message = bool(worst) and worst[0].of_message
    if worst and worst[0].column == OP:
        return f"correct OpValues in the FrazilSettings next to S3Settings, or the columns in {spec.file}"
    if worst and worst[0].column == FIELDS and not of_message:
        return (
            f"correct the columns in {spec.file} (layouts, if the table had other columns then), or write layouts: [{{until: <the last "
            "file before>, without: [src]}] there if the task's rule that adds src began later, or fetch a damaged file again"
        )
    return f"correct {spec.file}" + ("" if of_message else ", or fetch a damaged file again")


def _remedy_of_value(spec: TableSpec, row: ShownRow) -> str:
    """Return the remedy for a value that does not fit its column; empty: none is known."""
    column = spec.column(row.column)
    value = re.sub(
        r"^(old value of )?column '.*?': '?|'? does not fit .*$| holds U.FFFD.*$", "", row.reason, flags=re.S
    )
    special = next((n for n, pattern in unrepresentable(column).items() if re.search(pattern, value)), "")
    at = f"at column '{row.column}' in {spec.file}"
    if special == "U+FFFD" and row.column not in spec.key:
        return f'write replace: {{U+FFFD: "\\uFFFD"}} {at}, which keeps the text as it is shown; or {{U+FFFD: null}} there, which loses the text'
    if special and row.column not in spec.key:
        return (
            f"write lake: string {at}, which keeps the text, {LOAD_AGAIN}; or write replace: {{{special}: null}} {at}, or another "
            "value than null, which loses what the source has there"
        )
    if value_type(column) != "string":
        return f"write the right type, or lake: string, {at}, {LOAD_AGAIN}"
    return ""


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


# --- what the quarantine keeps


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


def fields_of_lines(lines: Iterable[str], width: int, dialect: Dialect) -> pa.RecordBatch:
    """Return the first `width` fields of lines with too many or too few; what a line lacks is null."""
    import pyarrow as pa

    csv.field_size_limit(1 << 30)
    quoting = csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE
    mark = dialect.delimiter if len(dialect.delimiter) == 1 else "\x1f"
    rows = []
    for line in lines:
        try:
            found = next(csv.reader([line.replace(dialect.delimiter, mark)], delimiter=mark, quoting=quoting), [])
        except csv.Error:
            found = []
        rows.append([field or None for field in found[:width]] + [None] * (width - len(found)))
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(width)]
    return pa.RecordBatch.from_arrays(columns, [str(i) for i in range(width)])


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
