"""How a table's columns follow its spec and its files: which are new, renamed, of another type, or gone."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from frazil.dms.file_columns import ColumnGoneError, FileColumns, UnknownColumnError
from frazil.dms.mappings import RENAMED
from frazil.errors import FrazilError
from frazil.iceberg.columns import BESIDE, ColumnPlan, Columns, Known, columns_of, iceberg_type
from frazil.pipeline import column_rules
from frazil.pipeline.column_rules import as_stored, require_names, same_columns, spark_type, wider
from frazil.settings.column import Column
from frazil.settings.parameters import Changes
from frazil.settings.spec import TableSpec


class ColumnUnlistedError(FrazilError, code="column-unlisted", decision=True):
    """The spec does not list a column that the table has. List it again, or keep what the table has of it."""


class KeyChangedError(FrazilError, code="key-changed", decision=True):
    """The key is not the table's, and only the source knows which rows are the same. Correct it, or load the table again."""


class TypeChangedError(FrazilError, code="type-changed", decision=True):
    """No promotion leads from a column's type in the table to the spec's. Correct it, or begin another column beside the old one."""


class MaskChangedError(FrazilError, code="mask-changed", decision=True):
    """A column's mask came or went, and hashes do not mix with values. Correct it, or begin another column beside the old one."""


def read_spec(known: Columns, spec: TableSpec) -> TableSpec:
    """Return the spec by which files are looked at: with the columns that files added, and the table's types."""
    return as_stored(spec, same_columns(known, spec))


def follow(
    known: Columns, spec: TableSpec, policy: Changes, shown: Sequence[FileColumns] = (), is_load: bool = False
) -> tuple[TableSpec, ColumnPlan | None]:
    """Return the spec by which a batch is read, and what the table's columns need before; None: nothing is new.

    `shown` are the columns of its files by `read_spec`. A load may lack what came later, and have what was dropped since.
    """
    now = _Columns(known, spec, policy)
    for file in shown:
        now.follow_file(file, is_load)
    after = Columns(known.schema, tuple(now.columns), now.dropped)
    plan = ColumnPlan(column_rules.steps_between(known, after.columns), after.columns, after.dropped)
    read = {column.name: column for column in after.columns if column.carried or column.by in ("spec", "files")}
    return as_stored(spec, read), None if after == known else plan


class _Columns:
    """A table's columns while they follow the spec, then its files, and the names of those that were dropped."""

    def __init__(self, before: Columns, spec: TableSpec, policy: Changes):
        self.before, self.spec, self.policy = before, spec, policy
        self.columns, self.dropped = list[Known](), {**before.dropped}
        same = same_columns(before, spec)
        column_rules.require_clear_renames(before, spec, same)
        key = [column.name for column in before.columns if column.key]
        if {*key} != {same[name].name if name in same else "" for name in spec.key}:
            raise _other_key(spec.file, spec.key, key)
        for new in columns_of(spec).columns:
            self._list(replace(new, carried=False, later=True), same.get(new.name))
        listed = {same[name].id for name in spec.lake_names if name in same}
        for column in before.columns:
            if column.id not in listed:
                self._no_longer_list(column)
        require_names((column.name for column in self.columns), spec, spec.file)

    def _list(self, new: Known, known: Known | None) -> None:
        """Take a column of the spec: as a new one, as what the table has, or as a new one beside what the table has."""
        if known is None:
            self.columns.append(new)
        elif kind := wider(known.type, new.type) if known.mask == new.mask else "":
            former = {known.name, *known.former, *new.former} - {new.name}
            is_renamed = known.renamed or known.name != new.name
            found = replace(known, name=new.name, type=kind, dms=new.dms, former=tuple(sorted(former)), by="spec")
            self.columns.append(replace(found, comment=new.comment or known.comment, renamed=is_renamed))
        else:
            old = replace(known, name=self._name_beside(new, known), carried=False, by=BESIDE)
            self.columns += [replace(new, carried=known.carried), old]

    def _name_beside(self, new: Known, known: Known) -> str:
        """Return the new name of a column whose type or mask is another one now; raise unless the policy keeps it."""
        if self.policy.type == "refuse" or known.key:
            error = TypeChangedError if known.mask == new.mask else MaskChangedError
            now, then = "masked" if new.mask else new.dms, "masked" if known.mask else spark_type(known.type)
            cure = "correct it; or begin another column, unless it is in the key: changes: {type: beside}"
            raise error(f"{self.spec.file}: column '{new.name}' is {now}, and {then} in the table", cure)
        aside = f"{new.name}_{spark_type(known.type).partition('(')[0]}"
        names = {*self.spec.lake_names, *(column.name for column in self.before.columns)}
        number = 1 + sum(name.lower().startswith(aside.lower()) for name in names)
        return f"{aside}_{number}" if number > 1 else aside

    def _no_longer_list(self, known: Known) -> None:
        """Keep or drop a column that the spec does not list; raise ColumnUnlistedError unless somebody says which."""
        if known.by in ("files", BESIDE):
            self.columns.append(known)
        elif self.policy.gone == "drop":
            self.dropped[known.name] = known.carried
        elif self.policy.gone == "keep" or known.by == "kept":
            self.columns.append(replace(known, by="kept"))
        else:
            raise ColumnUnlistedError(*_gone(self.spec.file, known.name, self.spec))

    def follow_file(self, file: FileColumns, is_load: bool) -> None:
        """Take what a file brings, lacks and widens."""
        if file.further_keys:
            raise _other_key(file.where, (*self.spec.key, *file.further_keys), self.spec.key)
        new, gone = ([], []) if file.earlier else self._differences(file, is_load)
        if self.policy.new == "add":
            added = [Column(name=name, type=file.unknown[name]) for name in new]
            self.columns += [Known(0, c.name, iceberg_type(c.lake_type), c.type, later=True, by="files") for c in added]
            require_names((column.name for column in self.columns), self.spec, file.where)
        lost = [column.name for column in gone if self.policy.gone == "drop" and column.by == "files"]
        self.columns = [_in_file(column, file) for column in self.columns if column.name not in lost]
        self.dropped = {name: name in file.unknown for name in (*self.dropped, *lost)}

    def _differences(self, file: FileColumns, is_load: bool) -> tuple[list[str], list[Known]]:
        """Return the names that a file has and the table lacks, and the columns that files had before and this one lacks.

        Raises UnknownColumnError or ColumnGoneError for what no policy allows, and for both at once, as in a rename.
        """
        has = {column.name for column in self.columns if _has(file, column)}
        old = {name for name, had in self.dropped.items() if had or is_load}
        new = [name for name in file.unknown if name not in has | old]
        needed = [c for c in self.columns if c.by != "kept" and c.carried and not (is_load and c.later)]
        gone = [column for column in needed if column.name not in has]
        if new and gone:
            cure = f"list it in {self.spec.file}, with renamed_from: {gone[0].name} if it is '{gone[0].name}'"
            raise UnknownColumnError(f"{file.where}: unknown column '{new[0]}', and no column '{gone[0].name}'", cure)
        if new and self.policy.new == "refuse":
            way = "or let files add columns: changes: {new: add}; {new: ignore} leaves their values out"
            raise UnknownColumnError(f"{file.where}: unknown column '{new[0]}'", f"list it in {self.spec.file}; {way}")
        if gone and self.policy.gone == "refuse":
            raise ColumnGoneError(*_gone(file.where, gone[0].name, self.spec))
        return new, gone


def _has(file: FileColumns, known: Known) -> bool:
    """Return whether a file has a column, which may be unknown to the spec by which the file was looked at."""
    if known.by == "spec" or known.name in file.reading.spec.lake_names:
        return known.name not in file.lacks
    return known.by != BESIDE and known.name in file.unknown


def _in_file(known: Known, file: FileColumns) -> Known:
    """Return a column with what a file says of it: whether and how it has it, and a Parquet file's wider type."""
    kind = known.type
    if known.name in file.types:
        shown = Column.model_construct(name=known.name, type=file.types[known.name])
        kind = wider(kind, iceberg_type(shown.lake_type)) or kind
    return replace(known, type=kind, carried=_has(file, known), renamed=RENAMED + known.name in file.carried)


def _gone(where: str, name: str, spec: TableSpec) -> tuple[str, str]:
    """Return the problem and the cure of a column that the table has, and the spec or a file has not."""
    cure = f"bring it back; if it has another name now, write renamed_from: {name} there in {spec.file}"
    return f"{where}: no column '{name}', which the table has", f"{cure}; changes: {{gone: keep}} keeps its values"


def _other_key(where: str, key: Sequence[str], own: Sequence[str]) -> KeyChangedError:
    cure = "correct it in the spec; if the source has another key, drop the table, which is then loaded again"
    return KeyChangedError(f"{where}: the key is ({', '.join(key)}), and was ({', '.join(own)})", cure)
