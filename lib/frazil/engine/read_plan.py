"""What the core needs to read the files of one table: each file's fields and dialect, and the meaning of their texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC

from frazil.config.spec import TableSpec
from frazil.core.changes import FieldRules
from frazil.dms.csv_columns import NAMED, file_layout
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.file_layout import CHANGE_PHASE, named_layout
from frazil.dms.listing import DmsObject
from frazil.dms.parquet_columns import footer, require_comparable
from frazil.engine.read_files import FileToRead, ReadPlan
from frazil.source.file_names import moment


def plan_files(
    spec: TableSpec, endpoint: Endpoint, mappings: Mappings, files: Sequence[DmsObject], phase: int
) -> tuple[list[FileToRead], ReadPlan]:
    """Return how to read load files (phase 0) or change files (phase 1), in their order.

    Raises SourceError for a file whose columns contradict the spec, and LayoutError for an unknown layout.
    """
    found = [_file(file, order, spec, endpoint, mappings, phase) for order, file in enumerate(files)]
    return found, ReadPlan(spec, field_rules(spec, endpoint, mappings, phase))


def field_rules(spec: TableSpec, endpoint: Endpoint, mappings: Mappings, phase: int) -> FieldRules:
    """Return the meaning of the texts in a table's load files (phase 0) or change files (phase 1)."""
    return FieldRules(
        null=endpoint.null_value or "",
        not_carried=endpoint.no_sup_value if phase == CHANGE_PHASE else None,
        operations=endpoint.op_values,
        origin=mappings.origin(spec),
        table=mappings.target_name(spec),
        of_load=phase != CHANGE_PHASE,
    )


def _file(
    file: DmsObject, order: int, spec: TableSpec, endpoint: Endpoint, mappings: Mappings, phase: int
) -> FileToRead:
    written = moment(file.name).replace(tzinfo=UTC).timestamp() if phase == CHANGE_PHASE else math.nan
    if file.is_parquet:
        schema = [(f.name, f.type) for f in footer(file)]
        layout = named_layout([name for name, _ in schema], spec, endpoint, mappings, phase, file.path)
        require_comparable(spec, layout.roles, schema, file.path)
        return FileToRead(file.path, order, layout.roles, written_at_s=written)
    layout, form = file_layout(spec, endpoint, mappings, phase, file)
    dialect = replace(endpoint.dialect, header=form == NAMED)
    return FileToRead(file.path, order, layout.roles, dialect, written)
