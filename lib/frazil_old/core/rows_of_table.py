"""Which rows of a file are a table's, where the file has rows of several tables.

A file of all tables (PreserveTransactions) names the table in each row. Other files of several tables have columns that
a rule of the task adds (`ReadRules.origin`). A row that names no table may be any table's, so it is bad for all of them.

For speed, `core.csv` leaves out lines that name other tables before it parses the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil_old.core.bad_rows import as_mask
from frazil_old.core.csv import Dialect, fields_of_lines
from frazil_old.core.field_meaning import ReadRules, without
from frazil_old.core.field_roles import ORIGIN, SCHEMA, TABLE

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


@dataclass(frozen=True)
class RowMasks:
    """Which rows of a block are this table's or may be (`mine`), and which name no table (`unknown`)."""

    mine: np.ndarray
    unknown: np.ndarray
    of_load: bool = False


def rows_of_table(at: Mapping[str, pa.Array], rules: ReadRules) -> RowMasks:
    """Return which rows are of this table, and which name none; `at` has the fields by role."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = len(next(iter(at.values())))
    named = [(at.get(ORIGIN + name, pa.nulls(rows, pa.string())), value) for name, value in rules.origin.items()]
    if TABLE in at:
        named += zip((at[SCHEMA], at[TABLE]), rules.table, strict=True)
    own, unknown = np.ones(rows, bool), np.zeros(rows, bool)
    for column, value in named:
        texts = without(column.cast(pa.string()), rules.null)
        unknown |= texts.is_null().to_numpy(zero_copy_only=False)
        own &= as_mask(pc.equal(texts, value))
    return RowMasks(own | unknown, unknown, rules.of_load)


def table_named(line: str, roles: Sequence[str], dialect: Dialect, rules: ReadRules) -> tuple[str, str] | None:
    """Return the schema and the table that a line names, if it is in a file of all tables; None if it names none.

    In a file of one table every line is that table's. Where an added column names the table, such a line names none.
    """
    if TABLE not in roles:
        return None if rules.origin else rules.table
    if '"' in line:
        fields = [column[0].as_py() for column in fields_of_lines([line], len(roles), dialect).columns]
    else:  # much faster, and half of a file's lines may be other tables'
        fields = line.split(dialect.delimiter, len(roles))
    schema, table = ((fields[i] if i < len(fields) else "") for i in map(roles.index, (SCHEMA, TABLE)))
    return None if {schema, table} & {None, "", rules.null} else (schema, table)
