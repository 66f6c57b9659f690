"""What the core needs to read the files of one table: each file's fields and dialect, and the meaning of their texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC

from frazil.config.spec import TableSpec
from frazil.core.changes import FieldRules
from frazil.core.csv import Dialect
from frazil.dms.csv_columns import NAMED, file_layout
from frazil.dms.file_layout import CHANGE_PHASE, named_layout
from frazil.dms.listing import DmsObject
from frazil.dms.parquet_columns import footer, require_comparable
from frazil.dms.source_table import SourceTable
from frazil.dms.storage import each_of, is_s3
from frazil.source.file_names import moment


@dataclass(frozen=True)
class FileToRead:
    """A file with its place in the order of its table's files, and the roles of its fields.

    `written_at_s` is when DMS wrote it, in epoch seconds; NaN: unknown.
    """

    path: str
    order: int
    roles: tuple[str, ...]
    dialect: Dialect = field(default_factory=Dialect)
    written_at_s: float = math.nan

    @property
    def is_parquet(self) -> bool:
        """Whether the file is Parquet, by its name."""
        return self.path.endswith(".parquet")


@dataclass(frozen=True)
class PartitionRead:
    """A partition with messages of a batch, and its place in the order of all: what `FileToRead` is for files."""

    path: str
    order: int
    name: str


@dataclass(frozen=True)
class ReadPlan:
    """How the files of one table are read: its spec, and the meaning of the texts in its fields."""

    spec: TableSpec
    rules: FieldRules = field(default_factory=FieldRules)


def plan_files(table: SourceTable, files: Sequence[DmsObject], phase: int) -> tuple[list[FileToRead], ReadPlan]:
    """Return how to read load files (phase 0) or change files (phase 1), in their order.

    Raises SourceError for a file whose columns contradict the spec, and LayoutError for an unknown layout.
    """
    on_s3, same = any(is_s3(f.path) for f in files), {}
    found = each_of(lambda numbered: _file(numbered[1], numbered[0], table, phase), [*enumerate(files)], on_s3)
    for n, file in enumerate(found):  # equal parts are kept once: each task of a load gets the list of all its files
        roles, dialect = same.setdefault(file.roles, file.roles), same.setdefault(file.dialect, file.dialect)
        found[n] = replace(file, roles=roles, dialect=dialect)
    return found, ReadPlan(table.spec, field_rules(table, phase))


def field_rules(table: SourceTable, phase: int) -> FieldRules:
    """Return the meaning of the texts in a table's load files (phase 0) or change files (phase 1)."""
    endpoint = table.endpoint
    return FieldRules(
        null=endpoint.null_value or "",
        not_carried=endpoint.no_sup_value if phase == CHANGE_PHASE else None,
        operations=endpoint.op_values,
        origin=table.mappings.origin(table.spec),
        table=table.target_name,
        of_load=phase != CHANGE_PHASE,
    )


def _file(file: DmsObject, order: int, table: SourceTable, phase: int) -> FileToRead:
    written = moment(file.name).replace(tzinfo=UTC).timestamp() if phase == CHANGE_PHASE else math.nan
    if file.is_parquet:
        schema = [(f.name, f.type) for f in footer(file)]
        layout = named_layout([name for name, _ in schema], table, phase, file.path)
        require_comparable(table.spec, layout.roles, schema, file.path)
        return FileToRead(file.path, order, layout.roles, written_at_s=written)
    layout, form = file_layout(table, phase, file)
    dialect = replace(table.endpoint.dialect, header=form == NAMED)
    return FileToRead(file.path, order, layout.roles, dialect, written)
