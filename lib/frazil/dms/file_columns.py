"""The columns of one file, and how it is read: what the file shows by itself overrules the settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from frazil.core.changes import AFTER, BEFORE, COMMITTED, OP, SEQUENCE, Reading
from frazil.core.row_blocks import Dialect
from frazil.dms.column_roles import UNKNOWN, has_header, roles_by_name
from frazil.dms.columns_by_place import Headerless
from frazil.dms.mappings import RENAMED
from frazil.dms.source_file import SourceFile, SourceTable
from frazil.errors import FrazilError
from frazil.settings.settings_model import Changes
from frazil.settings.spec import TableSpec


class MissingColumnError(FrazilError, code="column-missing"):
    """A file lacks a column of the key, or DMS's `Op`. Correct the spec or the setting that the message names."""


class UnknownColumnError(FrazilError, code="unknown-column", decision=True):
    """A file has a column that the spec does not list. List it, or let files add columns."""


class ColumnGoneError(FrazilError, code="column-gone", decision=True):
    """A file lacks a column that files had before. Say which name it has now, or keep what the table has of it."""


class KeyChangedError(FrazilError, code="key-changed", decision=True):
    """The key is not the table's, and only the source knows which rows are the same. Correct it, or load the table again."""


@dataclass(frozen=True)
class FileColumns:
    """The columns of a file: `names` in their order, and how its rows are read; `dialect` is None for Parquet.

    `unknown` has the DMS type of each column that the spec lacks, `types` those of the spec's columns in a Parquet file.
    `lacks` has the lake's columns that DMS writes now, and this file has not. The columns are `earlier` ones if the spec
    or the file before says so: then what the file lacks came later, and what is unknown went. Files that are equal in
    all this, wherever they are, may be one batch.
    """

    where: str = field(compare=False)
    names: tuple[str, ...]
    reading: Reading
    dialect: Dialect | None
    unknown: dict[str, str]
    types: dict[str, str]
    lacks: tuple[str, ...]
    carried: tuple[str, ...]
    """The names of columns that DMS writes now and the file has, which `file_columns` asks of the file before."""
    earlier: bool
    further_keys: tuple[str, ...]
    """Columns that the source's key has, as their before-images show, and the spec's has not."""

    def require_key(self, key: Sequence[str]) -> None:
        """Raise KeyChangedError if the source's key has more columns."""
        if self.further_keys:
            raise other_key(self.where, (*key, *self.further_keys), key)

    def require_declared(self, new: Sequence[str], gone: Sequence[str], spec: TableSpec, policy: Changes) -> None:
        """Raise UnknownColumnError or ColumnGoneError for what no policy allows, and for both at once, as in a rename."""
        names = "', '".join(new[:9])
        unknown = f"{self.where}: unknown column '{names}'"
        if new and gone:
            cure = f"list it in {spec.file}, with renamed_from: {gone[0]} if it is '{gone[0]}'"
            raise UnknownColumnError(f"{unknown}, and no column '{gone[0]}'", cure)
        if new and policy.new == "refuse":
            way = "or let files add columns: changes: {new: add}; {new: ignore} leaves their values out"
            raise UnknownColumnError(unknown, f"list it in {spec.file}; {way}")
        if gone and policy.gone == "refuse":
            raise ColumnGoneError(*no_column(self.where, gone[0], spec))


def no_column(where: str, name: str, spec: TableSpec) -> tuple[str, str]:
    """Return the problem and the cure of a column that the table has, and a file or the spec has not."""
    cure = f"bring it back; if it has another name now, write renamed_from: {name} there in {spec.file}"
    return f"{where}: no column '{name}', which the table has", f"{cure}; changes: {{gone: keep}} keeps its values"


def other_key(where: str, key: Sequence[str], own: Sequence[str]) -> KeyChangedError:
    """Return the error of a key that a file or the spec has, and the table has not."""
    cure = "correct it in the spec; if the source has another key, drop the table, which is then loaded again"
    return KeyChangedError(f"{where}: the key is ({', '.join(key)}), and was ({', '.join(own)})", cure)


def file_columns(
    table: SourceTable, file: SourceFile, carried: Collection[str] = (), others: Iterable[SourceFile] = ()
) -> FileColumns | None:
    """Return the columns of a file; None if it has nothing.

    `carried` are the names that the file before it has. `others` are files of the table that are looked at for the cure of
    a LayoutError. Raises the errors of columns that make a file unreadable.
    """
    form = _form(table, file, carried, others)
    if form is None:
        return None
    names, dialect, earlier = form
    spec, written, roles = table.spec, table.written, roles_by_name(names, table, file, carried)
    if file.of_all_tables:
        names, roles = (names[0], "table", "schema", *names[1:]), [roles[0], "", "", *roles[1:]]
    kinds = dict(file.columns or ())
    types = {role: kinds.get(name, "WSTRING") for name, role in zip(names, roles, strict=True)}
    has = [n for n in table.now(file) if n in names or AFTER + written.columns.get(n, "") in types]
    images = [role.removeprefix(BEFORE) for role in types if role.startswith(BEFORE)]
    kept = {OP, COMMITTED, SEQUENCE, *(AFTER + name for name in spec.lake_names), *(BEFORE + name for name in spec.key)}
    null, not_carried = (table.target.null, table.target.not_carried) if dialect else (None, None)
    found = FileColumns(
        file.where,
        tuple(names),
        Reading(spec, tuple(r if r in kept else "" for r in roles), null, not_carried, of_load=file.of_load),
        dialect,
        unknown={role.removeprefix(UNKNOWN): kind for role, kind in types.items() if role.startswith(UNKNOWN)},
        types={} if dialect else {r.removeprefix(AFTER): kind for r, kind in types.items() if r.startswith(AFTER)},
        lacks=tuple(name for name in written.names if name in spec.lake_names and AFTER + name not in types),
        carried=(*has, *(RENAMED + name for name in has if name not in names)),
        earlier=earlier,
        further_keys=tuple(column for column in images if column not in {*spec.key, *written.images.values()}),
    )
    _require_key_and_op(table, file, found)
    return found


def _form(
    table: SourceTable, file: SourceFile, carried: Collection[str], others: Iterable[SourceFile]
) -> tuple[Sequence[str], Dialect | None, bool] | None:
    """Return the names of a file's columns, of CSV its dialect, and whether the columns are earlier ones."""
    if file.columns is not None:
        return [name for name, _ in file.columns], None, False
    rows, target = file.rows(), table.target
    if not rows:
        return None
    if has_header(rows[0], table, file):
        return rows[0], target.dialect(header=True), False
    bare = [Headerless([*row[:1], *row[3:]] if file.of_all_tables else row, table, file) for row in rows]
    fitting = [*filter(None, (one.names(carried) for one in bare))]
    if not fitting:
        raise bare[0].error(others)
    names, earlier = max(fitting, key=fitting.count)
    return names, target.dialect(header=False), earlier


def _require_key_and_op(table: SourceTable, file: SourceFile, found: FileColumns) -> None:
    if missing := [name for name in table.spec.key if AFTER + name not in found.reading.roles]:
        cure = f"name it in {table.spec.file} as the file does, with its other name as renamed_from"
        cure += (
            "; if the file begins with a row, correct AddColumnName" if found.dialect and found.dialect.header else ""
        )
        raise MissingColumnError(f"{file.where}: no column '{missing[0]}', which is in the key", cure)
    if table.has_op(file) and not (file.of_load or found.earlier or OP in found.reading.roles):
        cure = "have DMS write it again with Op; if the task writes no deletes, add CdcInsertsOnly, CdcInsertsAndUpdates or CdcHasOp to the endpoint's JSON, as it is"
        raise MissingColumnError(f"{file.where}: no column 'Op', so a delete would be read as an insert", cure)
