"""What a table knows of its columns: one property, set in the swap that changes something of it; and how columns change with a batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from pyiceberg.schema import Schema

from frazil.errors import FrazilError
from frazil.iceberg.sql_text import quoted

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from frazil.iceberg.table import LakeTable
    from frazil.settings.spec import TableSpec

COLUMNS = "frazil.columns"
"""The property."""
ICEBERG_NAMES = {"bigint": "long", "timestamp": "timestamptz", "timestamp_ntz": "timestamp"}
"""Iceberg's names of types that Spark names otherwise."""
BESIDE = "beside"
"""Says of a column that its successor has its name in files, as it has another type: no file has this one."""
Step = dict[str, str]
"""A change of columns, as `Commits.java` takes it: `step`, the column's `name`, `to`, `comment`, and `after`, empty for the first place."""


class Known(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a table knows of a column: its field id, its names in the lake and in files, and how its values are read."""

    id: int
    name: str
    type: str
    """The lake's type, as Iceberg names it."""
    dms: str
    """The DMS type by which its values are read."""
    key: bool = False
    mask: str = ""
    comment: str = ""
    former: tuple[str, ...] = ()
    """Earlier names in files."""
    renamed: bool = False
    """Whether no file had its present name yet."""
    carried: bool = True
    """Whether the newest file had it."""
    later: bool = False
    """Whether it came after the table was made, so that a load may lack it."""
    by: str = "spec"
    """Who wants it: the `spec`, the `files`, `others` before the spec does; nobody, as it is `kept`, or BESIDE its successor."""


class Columns(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns that Frazil gave a table last, and the id of the schema that had them."""

    schema: int
    columns: tuple[Known, ...]
    dropped: dict[str, bool] = {}
    """Names in files of columns that were dropped, and whether the newest file still had them."""

    @property
    def text(self) -> str:
        """The property's value."""
        return msgspec.json.encode(self).decode()


class OtherWriterError(FrazilError, code="other-writer", decision=True):
    """Another writer changed columns of a table, so values would be read under wrong names. Change them back, or load the table again."""


class ColumnsRolledBackError(FrazilError, code="columns-rolled-back", decision=True):
    """A table was rolled back behind a change of its columns, and files from then no longer fit it. Load the table again."""


@dataclass(frozen=True)
class ColumnPlan:
    """How a table's columns change with a batch: steps, and what is known afterwards, with 0 as the id of a new column."""

    steps: tuple[Step, ...]
    known: tuple[Known, ...]
    dropped: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Evolved:
    """A table's columns with a batch: steps, the metadata with which its files are written, and the properties that the swap sets."""

    steps: list[Step]
    metadata: TableMetadata
    properties: dict[str, str] = field(default_factory=dict)


def iceberg_type(lake_type: str) -> str:
    """Return Iceberg's name of a type that Spark names."""
    return ICEBERG_NAMES.get(lake_type, lake_type.replace(",", ", ").replace("  ", " "))


def columns_of(spec: TableSpec, schema: Schema | None = None, number: int = -1) -> Columns:
    """Return what is known of a table that has the columns of a spec, in a schema with an id; None: it is not made yet."""
    ids = {field.name: field.field_id for field in schema.fields} if schema else {}
    return Columns(number, tuple(
        Known(ids.get(c.name, 0), c.name, iceberg_type(c.lake_type), c.type, key=c.name in spec.key,
              mask=c.mask, comment=c.comment, former=tuple(sorted({*c.renamed_from} - {c.name})))
        for c in spec.lake_columns
    ))  # fmt: skip


def known_columns(metadata: TableMetadata) -> Columns | None:
    """Return what a table knows of its columns; None if Frazil gave it none."""
    text = metadata.properties.get(COLUMNS)
    return msgspec.json.decode(text, type=Columns) if text else None


def evolved(table: LakeTable, plan: ColumnPlan | None) -> Evolved:
    """Return the table's columns after a plan, which is not committed: new ones have the ids that the next swap gives them."""
    if plan is None:
        return Evolved([], table.metadata)
    if plan.steps and table.handle:
        table.refresh()  # the handle may be newer than the last look
    metadata = table.metadata
    if steps := plan.steps:
        schema = Schema.model_validate_json(table.bridge.schema(table.handle, table.location, json.dumps(steps)))
        schemas = [s for s in metadata.schemas if s.schema_id != schema.schema_id]
        metadata = metadata.model_copy(update={"schemas": [*schemas, schema], "current_schema_id": schema.schema_id})
    schema, before = metadata.schema(), known_columns(metadata)
    named = tuple(msgspec.structs.replace(k, id=schema.find_field(k.name).field_id) for k in plan.known)
    number = schema.schema_id if steps or before is None else before.schema
    return Evolved([*steps], metadata, {COLUMNS: Columns(number, named, plan.dropped).text})


def require_own_columns(table: LakeTable) -> None:
    """Raise OtherWriterError if others renamed or dropped columns, or added nested ones; ColumnsRolledBackError after a rollback."""
    known, schema = known_columns(table.metadata), table.metadata.schema()
    if known is None:
        return
    if odd := [*_odd(known, schema, table.spark_name)]:
        problem = f"{table.name}: another writer {', '.join(what for what, _ in odd)}"
        raise OtherWriterError(problem, "; ".join(dict.fromkeys(way for _, way in odd)))
    then = table.position.schema
    if then is not None and then != known.schema:
        names = ", ".join(_differences(table.metadata, then, known.schema)) or "their order or comments"
        told = f"{table.name} was rolled back behind a change of its columns ({names})"
        cure = "restart the table: all its files are read under the columns that it has now"
        raise ColumnsRolledBackError(told, cure)


def _odd(known: Columns, schema: Schema, table: str) -> Iterator[tuple[str, str]]:
    """Yield what others did to columns, and the way on."""
    reload = "restart the table: all rows are loaded under the names that its columns have now"
    names = {field.field_id: field.name for field in schema.fields}
    ours = {column.id for column in known.columns}
    for column in known.columns:
        now = names.get(column.id)
        if now is None:
            yield f"dropped the column '{column.name}'", reload
        elif now != column.name:
            way = f"ALTER TABLE {table} RENAME COLUMN {quoted(now)} TO {quoted(column.name)}"
            yield f"renamed the column '{column.name}' to '{now}'", way
    for there in schema.fields:
        odd = there.required or there.initial_default is not None or there.write_default is not None
        if not there.field_type.is_primitive or (odd and there.field_id not in ours):
            way = f"move it to a table of its own, then ALTER TABLE {table} DROP COLUMN {quoted(there.name)}"
            yield f"added the column '{there.name}', which is nested, required or has a default", way


def _differences(metadata: TableMetadata, then: int, now: int) -> Iterator[str]:
    """Yield the columns in which two schemas of a table differ."""
    found = {s.schema_id: {f.field_id: (f.name, str(f.field_type)) for f in s.fields} for s in metadata.schemas}
    old, new = found.get(then, {}), found.get(now, {})
    for number in sorted(n for n in {*old, *new} if old.get(n) != new.get(n)):
        yield f"'{(new.get(number) or old[number])[0]}'"
