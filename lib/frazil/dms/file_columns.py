"""The columns of one file, and how it is read: what the file shows by itself overrules the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from frazil.core.changes import AFTER, BEFORE, COMMITTED, OP, SEQUENCE, Reading
from frazil.core.row_blocks import Dialect
from frazil.dms.columns_by_place import Headerless
from frazil.dms.file_header import UNKNOWN, SourceTable, has_header, roles_by_name
from frazil.dms.parquet_columns import require_readable, schema_of, written_type
from frazil.dms.source_file import SourceFile, first_row
from frazil.errors import FrazilError


class MissingColumnError(FrazilError, code="column-missing"):
    """A file lacks a column of the key, or DMS's `Op`. Correct the spec or the setting that the message names."""


@dataclass(frozen=True)
class FileColumns:
    """The columns of a file: `names` in their order, and how its rows are read; `dialect` is None for Parquet.

    `unknown` has the DMS type of each column that the spec lacks, `types` those of the spec's columns in a Parquet file.
    `lacks` has the lake's columns that DMS writes now, and this file has not. The columns are `earlier` ones if the spec
    or the file before says so: then what the file lacks came later, and what is unknown went.
    """

    where: str
    names: tuple[str, ...]
    reading: Reading
    dialect: Dialect | None
    unknown: dict[str, str]
    types: dict[str, str]
    lacks: tuple[str, ...]
    lacked: int
    """How many of the source's last columns the file lacks, which `file_columns` asks of the newest applied file."""
    earlier: bool
    further_keys: tuple[str, ...]
    """Columns that the source's key has, as their before-images show, and the spec's has not."""


def file_columns(
    table: SourceTable, file: SourceFile, lacked: int = 0, others: Sequence[SourceFile] = ()
) -> FileColumns | None:
    """Return the columns of a file; None if it has nothing.

    `lacked` is how many of the source's last columns the newest applied file lacks. `others` are files of the table that
    are looked at for the cure of a LayoutError. Raises the errors of columns that make a file unreadable.
    """
    if file.is_parquet:
        return _of_parquet(table, file)
    row = first_row(file, table.target.dialect(False))
    if not row:
        return None
    if has_header(row, table, table.has_op(file)):
        roles = roles_by_name(row, table, table.has_op(file), f"{file.where} line 1")
        return _found(table, file, _as_texts(row, roles), table.target.dialect(True))
    bare = Headerless(row[:1] + row[3:] if file.of_all_tables else row, table, file)
    names, earlier = bare.names(lacked, others)
    fields = _as_texts(names, roles_by_name(names, table, table.has_op(file), file.where))
    if file.of_all_tables:
        fields[1:1] = [_Field("table"), _Field("schema")]
    return _found(table, file, fields, table.target.dialect(False), earlier)


@dataclass(frozen=True)
class _Field:
    name: str
    role: str = ""
    type: str = ""


def _as_texts(names: Sequence[str], roles: Sequence[str]) -> list[_Field]:
    return [_Field(name, role, "WSTRING") for name, role in zip(names, roles, strict=True)]


def _of_parquet(table: SourceTable, file: SourceFile) -> FileColumns:
    with file.open() as opened:
        schema = schema_of(opened, file.where)
    roles = roles_by_name(schema.names, table, table.has_op(file), file.where)
    require_readable(roles, schema, table.spec, file.where)
    fields = [_Field(one.name, role, written_type(one.type)) for one, role in zip(schema, roles, strict=True)]
    return _found(table, file, fields, None)


def _found(
    table: SourceTable, file: SourceFile, fields: Sequence[_Field], dialect: Dialect | None, earlier: bool = False
) -> FileColumns:
    """Return the columns of some fields. Raises MissingColumnError."""
    spec, written, target = table.spec, table.written, table.target
    after = {one.role.removeprefix(AFTER): one.type for one in fields if one.role.startswith(AFTER)}
    before = [one.role.removeprefix(BEFORE) for one in fields if one.role.startswith(BEFORE)]
    if missing := [name for name in spec.key if name not in after]:
        cure = f"name it in {spec.file} as the file does, with its other name as renamed_from"
        cure += "; if the file begins with a row, correct AddColumnName" if dialect and dialect.header else ""
        raise MissingColumnError(f"{file.where}: no column '{missing[0]}', which is in the key", cure)
    if table.has_op(file) and not (file.of_load or earlier or any(one.role == OP for one in fields)):
        cure = "have DMS write it again with Op; if the task writes no deletes, add CdcInsertsOnly, CdcInsertsAndUpdates or CdcHasOp to the endpoint's JSON, as it is"
        raise MissingColumnError(f"{file.where}: no column 'Op', so a delete would be read as an insert", cure)
    is_text = dialect is not None
    kept = {OP, COMMITTED, SEQUENCE, *(AFTER + name for name in spec.lake_names), *(BEFORE + name for name in spec.key)}
    roles = tuple(one.role if one.role in kept else "" for one in fields)
    null, not_carried = (target.null, target.not_carried) if is_text else (None, None)
    of_source = [name for name in written.names if name not in written.added]
    return FileColumns(
        file.where,
        tuple(one.name for one in fields),
        Reading(spec, roles, null, not_carried, file.of_load),
        dialect,
        unknown={one.name: one.type for one in fields if one.role.startswith(UNKNOWN)},
        types={} if is_text else after,
        lacks=tuple(name for name in written.names if name in spec.lake_names and name not in after),
        lacked=len([*takewhile(lambda name: name not in after, reversed(of_source))]),
        earlier=earlier,
        further_keys=tuple(name for name in before if name not in {*spec.key, *written.images.values()}),
    )
