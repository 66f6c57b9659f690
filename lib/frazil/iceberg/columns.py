"""What a table knows of its columns: one property, set in the swap that changes something of it; and how columns change with a batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

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


_READER = msgspec.json.Decoder(Columns)
"""It is made here, as msgspec ends the process if two threads make the first one of a type at the same time."""


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


def columns_of(spec: TableSpec, metadata: TableMetadata | None = None) -> Columns:
    """Return what is known of a table that has the columns of a spec; None: it is not made yet."""
    ids = {field.name: field.field_id for field in metadata.schema().fields} if metadata else {}
    return Columns(metadata.current_schema_id if metadata else -1, tuple(
        Known(ids.get(c.name, 0), c.name, iceberg_type(c.lake_type), c.type, key=c.name in spec.key,
              mask=c.mask, comment=c.comment, former=tuple(sorted({*c.renamed_from} - {c.name})))
        for c in spec.lake_columns
    ))  # fmt: skip


def known_columns(of: LakeTable | TableMetadata) -> Columns | None:
    """Return what a table knows of its columns; None if Frazil gave it none."""
    text = of.properties.get(COLUMNS)
    return _READER.decode(text) if text else None


def known_or_listed(table: LakeTable, spec: TableSpec) -> Columns:
    """Return what a table knows of its columns, and of those of others that the spec lists now."""
    known = known_columns(table) or Columns(-1, ())
    own = {column.name for column in known.columns}
    listed = {column.name: column.type for column in spec.lake_columns if column.name not in own}
    of_others = partial(Known, carried=False, later=True, by="others")
    added = (
        of_others(field.field_id, field.name, str(field.field_type), listed[field.name])
        for field in (table.metadata.schema().fields if known.columns and listed else ())
        if field.name in listed
    )
    return msgspec.structs.replace(known, columns=(*known.columns, *added))


def evolved(table: LakeTable, plan: ColumnPlan | None) -> Evolved:
    """Return the table's columns after a plan, which is not committed: new ones have the ids that the next swap gives them."""
    if plan is None:
        return Evolved([], table.metadata)
    metadata = _with_steps(table, plan.steps) if plan.steps else table.metadata
    schema, before = metadata.schema(), known_columns(metadata)
    named = tuple(msgspec.structs.replace(k, id=schema.find_field(k.name).field_id) for k in plan.known)
    number = before.schema if before and not plan.steps else schema.schema_id
    return Evolved([*plan.steps], metadata, {COLUMNS: Columns(number, named, plan.dropped).text})


def _with_steps(table: LakeTable, steps: tuple[Step, ...]) -> TableMetadata:
    """Return a table's metadata with the schema that the next swap would make by some steps."""
    from pyiceberg.schema import Schema

    if table.handle:
        table.refresh()  # the handle may be newer than the last look
    schema = Schema.model_validate_json(table.bridge.schema(table.handle, table.location, json.dumps(steps)))
    schemas = {"schemas": [schema, *table.metadata.schemas], "current_schema_id": schema.schema_id}
    return table.metadata.model_copy(update=schemas)


def require_own_columns(table: LakeTable) -> None:
    """Raise OtherWriterError if others renamed or dropped columns, or added nested ones; ColumnsRolledBackError after a rollback."""
    known = known_columns(table)
    if known is None:
        return
    if odd := [*_odd(known, table.fields, table.spark_name)]:
        problem = f"{table.name}: another writer {', '.join(what for what, _ in odd)}"
        raise OtherWriterError(problem, "; ".join(dict.fromkeys(way for _, way in odd)))
    then = table.position.schema
    if then is not None and then != known.schema:
        apart = _fields(table, then) ^ _fields(table, known.schema)
        which = ", ".join(sorted({f"'{name}'" for _, name, _ in apart})) or "their order or comments"
        told = f"{table.name} was rolled back behind a change of its columns ({which})"
        cure = "restart the table: all its files are read under the columns that it has now"
        raise ColumnsRolledBackError(told, cure)


def _odd(known: Columns, fields: list[dict[str, Any]], table: str) -> Iterator[tuple[str, str]]:
    """Yield what others did to columns, and the way on."""
    reload = "restart the table: all rows are loaded under the names that its columns have now"
    names = {field["id"]: field["name"] for field in fields}
    ours = {column.id for column in known.columns}
    for column in known.columns:
        now = names.get(column.id)
        if now is None:
            yield f"dropped the column '{column.name}'", reload
        elif now != column.name:
            way = f"ALTER TABLE {table} RENAME COLUMN {quoted(now)} TO {quoted(column.name)}"
            yield f"renamed the column '{column.name}' to '{now}'", way
    for there in fields:
        name, defaults = there["name"], (there.get("initial-default"), there.get("write-default"))
        odd = there.get("required") or defaults != (None, None)
        if isinstance(there["type"], dict) or (odd and there["id"] not in ours):
            way = f"move it to a table of its own, then ALTER TABLE {table} DROP COLUMN {quoted(name)}"
            yield f"added the column '{name}', which is nested, required or has a default", way


def _fields(table: LakeTable, number: int) -> set[tuple[int, str, str]]:
    """Return id, name and type of each column of a schema."""
    return {(f["id"], f["name"], str(f["type"])) for f in table.schemas.get(number, ())}
