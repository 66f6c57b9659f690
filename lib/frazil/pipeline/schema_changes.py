"""How a table's columns follow its spec and its files: which are new, renamed, of another type, or gone.

What the table knows of its columns is compared with the spec, then with each file. Nothing is changed here: the steps are
the difference between what was known and what is known afterwards, and go into the batch's own commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from frazil.dms.file_columns import FileColumns
from frazil.dms.mappings import RENAMED
from frazil.iceberg.columns import ColumnPlan, Columns, Known, iceberg_type
from frazil.pipeline.column_renames import require_clear_renames, same_columns
from frazil.pipeline.column_rules import (
    SchemaError,
    as_stored,
    free_name,
    promotes,
    require_names,
    spark_type,
    steps_between,
)
from frazil.settings.column import Column
from frazil.settings.parameters import Changes
from frazil.settings.spec import TableSpec


class UnknownColumnError(SchemaError, code="unknown-column", decision=True):
    """A file has a column that the spec does not list. List it, or let files add columns."""


class ColumnGoneError(SchemaError, code="column-gone", decision=True):
    """A file lacks a column that files had before. Say which name it has now, or keep what the table has of it."""


class ColumnUnlistedError(SchemaError, code="column-unlisted", decision=True):
    """The spec does not list a column that the table has. List it again, or keep what the table has of it."""


class KeyChangedError(SchemaError, code="key-changed", decision=True):
    """The key is not the table's, and only the source knows which rows are the same. Correct it, or load the table again."""


class TypeChangedError(SchemaError, code="type-changed", decision=True):
    """No promotion leads from a column's type in the table to the spec's. Correct it, or begin another column beside the old one."""


class MaskChangedError(SchemaError, code="mask-changed", decision=True):
    """A column's mask came or went, and hashes do not mix with values. Correct it, or begin another column beside the old one."""


@dataclass(frozen=True)
class Following:
    """How the files of a batch are read, and what the table's columns need before.

    `spec` has also columns that files added, and those of a former spec that these files have. `changes` says whether the
    plan has anything new.
    """

    spec: TableSpec
    plan: ColumnPlan
    changes: bool


def read_spec(known: Columns, spec: TableSpec) -> TableSpec:
    """Return the spec by which files are read now: as declared, with the columns that files added and the table's wider types."""
    same = same_columns(known, spec)
    return as_stored(spec, same | {column.name: column for column in _of_files(known, same)})


def follow(
    known: Columns, spec: TableSpec, policy: Changes, shown: Sequence[FileColumns] = (), is_load: bool = False
) -> Following:
    """Return what a table's columns need: the spec is compared with what is known, then each file with both. Nothing is changed.

    `shown` are the columns of files by `read_spec`. A load may lack what came later, and have what was dropped since. Raises
    subclasses of SchemaError. Without anything known, files are expected to have all that the spec lists.
    """
    now = _Columns(known, spec, policy)
    for file in shown:
        now.follow_file(file, is_load)
    columns = (*now.read.values(), *now.kept.values())
    plan = ColumnPlan(steps_between(known, columns), columns, now.dropped)
    back = {column.name: column for column in now.kept.values() if shown and column.carried}
    has_new = (columns, now.dropped) != (known.columns, known.dropped)
    return Following(as_stored(spec, now.read | back), plan, has_new)


class _Columns:
    """A table's columns while they follow: those that are `read`, by name and in order, and those that are only `kept`."""

    def __init__(self, before: Columns, spec: TableSpec, policy: Changes):
        """Take what the spec lists, renames, types, and lists no more."""
        self.before, self.spec, self.policy = before, spec, policy
        self.read: dict[str, Known] = {}
        self.kept: dict[str, Known] = {}
        self.dropped = dict(before.dropped)
        same = same_columns(before, spec)
        require_clear_renames(before, spec, same)
        _require_same_key(before, spec, same)
        for column in spec.lake_columns:
            known, anew = same.get(column.name), not before.columns
            new = replace(_new(column, "spec"), carried=anew, later=not anew, key=anew and column.name in spec.key)
            self.read[column.name] = self._typed(known, column) if known else new
        of_files = [*_of_files(before, same)]
        self.read |= {known.name: known for known in of_files}
        listed = {known.id for known in (*same.values(), *of_files)}
        for known in before.columns:
            if known.id not in listed:
                self._no_longer_listed(known)
        require_names([*self.read, *self.kept], spec, spec.file)

    def _typed(self, known: Known, column: Column) -> Known:
        """Return a column with the spec's name and type, with the table's wider type, or as a new one beside the old."""
        wanted, spec = iceberg_type(column.lake_type), self.spec
        widens = promotes(known.type, wanted)
        if known.mask == column.mask and (widens or wanted == known.type or promotes(wanted, known.type)):
            earlier = dict.fromkeys((known.name, *column.renamed_from, *known.former))
            kind, comment = wanted if widens else known.type, column.comment or known.comment
            former = tuple(name for name in earlier if name != column.name)
            found = replace(
                known, name=column.name, type=kind, dms=column.type, comment=comment, former=former, by="spec"
            )
            return replace(found, renamed=known.renamed or known.name != column.name)
        if self.policy.type == "refuse" or column.name in spec.key:
            raise _other_type(known, column, spec)
        taken = {*spec.lake_names, *self.kept, *(other.name for other in self.before.columns)}
        old_type = re.sub("[^a-z0-9]+", "_", spark_type(known.type)).strip("_")
        aside = free_name(f"{column.name}_{old_type}", taken)
        self.kept[aside] = replace(known, name=aside, file_name=column.name, carried=False, by="kept")
        return replace(_new(column, "spec"), carried=known.carried)

    def _no_longer_listed(self, known: Known) -> None:
        """Keep or drop a column that nobody lists; raise ColumnUnlistedError unless a policy says which."""
        if self.policy.gone == "drop" and not known.file_name:
            self.dropped[known.name] = known.carried
        elif self.policy.gone == "keep" or known.by == "kept":
            self.kept[known.name] = replace(known, by="kept")
        else:
            is_excluded = known.name in self.spec.exclude
            does, undo = ("excludes", "take it out there") if is_excluded else ("does not list", "list it again")
            cure = f"{undo}; if it has another name now, write renamed_from: {known.name} there; or changes: {{gone: keep}} keeps its values, and {{gone: drop}} loses them"
            raise ColumnUnlistedError(f"{self.spec.file} {does} the column '{known.name}', which the table has", cure)

    # --- files

    def follow_file(self, file: FileColumns, is_load: bool) -> None:
        """Take what a file brings, lacks and widens."""
        _require_no_further_key(file, self.spec)
        back = {name for name in file.unknown if name in self.kept and not self.kept[name].file_name}
        old = {name for name, has in self.dropped.items() if is_load or has}
        new = [name for name in file.unknown if not file.earlier and name not in {*self.read, *back, *old}]
        lacks = {name for name, known in self.read.items() if not _has(file, known)}
        late = {name for name, known in self.read.items() if not known.carried or (is_load and known.later)}
        gone = [name for name in self.read if name in lacks - late and not file.earlier]
        if new and gone:
            problem = f"{file.where}: unknown column '{new[0]}', and no column '{gone[0]}': renamed, or another one?"
            cure = f"list '{new[0]}' in {self.spec.file}, with renamed_from: {gone[0]} if it is that column; else without, and "
            raise UnknownColumnError(problem, f"{cure}changes: {{gone: keep}} keeps what the table has of '{gone[0]}'")
        self._bring(file, new)
        self._lose(file, gone)
        self.read = {
            name: replace(
                known, type=self._wider(known, file), carried=name not in lacks, renamed=RENAMED + name in file.carried
            )
            for name, known in self.read.items()
        }
        self.kept = {name: replace(known, carried=name in back) for name, known in self.kept.items()}
        self.dropped = {name: name in file.unknown for name in self.dropped}

    def _bring(self, file: FileColumns, new: Sequence[str]) -> None:
        """Add new columns or leave them out; raise UnknownColumnError unless a policy says which."""
        if new and self.policy.new == "refuse":
            cure = f"list it in {self.spec.file} with its type; or let files add columns: changes: {{new: add}}; {{new: ignore}} leaves its values out"
            raise UnknownColumnError(f"{file.where}: unknown column '{new[0]}'", cure)
        if self.policy.new == "add":
            require_names([*self.read, *self.kept, *new], self.spec, file.where)
            self.read |= {name: _new(Column(name=name, type=file.unknown[name]), "files") for name in new}
            self.dropped = {name: has for name, has in self.dropped.items() if name not in new}

    def _lose(self, file: FileColumns, gone: Sequence[str]) -> None:
        """Keep columns that a file lacks, or drop those that files added; raise ColumnGoneError unless a policy says so."""
        if gone and self.policy.gone == "refuse":
            cure = f"if it has another name now, write renamed_from: {gone[0]} there in {self.spec.file}; if the source dropped it, "
            cure += "changes: {gone: keep} keeps its values, and new rows have null there"
            raise ColumnGoneError(f"{file.where}: no column '{gone[0]}', which the table has", cure)
        for name in gone:
            if self.policy.gone == "drop" and self.read[name].by == "files":
                del self.read[name]
                self.dropped[name] = False

    def _wider(self, known: Known, file: FileColumns) -> str:
        """Return the type of a column, or the wider one that a Parquet file has; what the spec says of the lake counts."""
        kind, has_own = file.types.get(known.name), {c.name for c in self.spec.columns if c.lake}
        if not kind or known.mask or known.name in has_own:
            return known.type
        wanted = iceberg_type(Column.model_construct(name=known.name, type=kind).lake_type)
        return wanted if promotes(known.type, wanted) else known.type


def _has(file: FileColumns, known: Known) -> bool:
    """Return whether a file has a column; one that files added may be unknown to the spec by which the file was looked at."""
    is_unknown = known.by == "files" and known.name not in file.reading.spec.lake_names
    return known.name in file.unknown if is_unknown else known.name not in file.lacks


def _of_files(known: Columns, same: Mapping[str, Known]) -> Iterator[Known]:
    """Yield the columns that files added and the spec does not list."""
    listed = {column.id for column in same.values()}
    return (column for column in known.columns if column.by == "files" and column.id not in listed)


def _require_same_key(known: Columns, spec: TableSpec, same: Mapping[str, Known]) -> None:
    """Raise KeyChangedError if the spec's key has other columns than the table's, whatever their names."""
    own = [column.name for column in known.columns if column.key]
    if known.columns and {*own} != {same[name].name if name in same else "" for name in spec.key}:
        problem = f"{spec.file}: the key is ({', '.join(spec.key)}), and ({', '.join(own)}) in the table"
        cure = "correct it; if the source has another key, drop the table, which is then loaded again"
        raise KeyChangedError(problem, cure)


def _require_no_further_key(file: FileColumns, spec: TableSpec) -> None:
    """Raise KeyChangedError if a file's old values show that the source's key has further columns."""
    if file.further_keys:
        names = {*spec.key, *file.further_keys}
        wide, own = ", ".join(c.name for c in spec.columns if c.name in names), ", ".join(spec.key)
        problem = f"{file.where}: by its old values the source's key is ({wide}), and ({own}) in {spec.file}"
        raise KeyChangedError(problem, f"write key: [{wide}], and drop the table, which is then loaded again")


# --- types


def _other_type(known: Known, column: Column, spec: TableSpec) -> SchemaError:
    """Return the error of a type or mask that a column of the table cannot take."""
    at, beside = f"{spec.file}: column '{column.name}' is", "; or begin another column: changes: {type: beside}"
    cure = f"{'' if column.name in spec.key else beside}; or drop the table, which is then loaded again"
    if known.mask != column.mask:
        not_here, not_there = ("not ", "") if known.mask else ("", "not ")
        return MaskChangedError(f"{at} {not_here}masked, and {not_there}masked in the table", f"correct it{cure}")
    problem = f"{at} {column.type}, and {spark_type(known.type)} in the table: no promotion leads to {column.lake_type}"
    return TypeChangedError(problem, f"correct it{cure}")


def _new(column: Column, by: str) -> Known:
    """Return a new column, which no file had yet."""
    kind, former = iceberg_type(column.lake_type), column.renamed_from
    new = Known(0, column.name, kind, column.type, mask=column.mask, comment=column.comment, former=former)
    return replace(new, carried=False, later=True, by=by)
