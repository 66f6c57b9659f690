"""How a table's columns follow its spec and its files: which are new, renamed, of another type, or gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from frazil.dms.file_columns import FileColumns, no_column, other_key
from frazil.dms.mappings import RENAMED
from frazil.errors import FrazilError
from frazil.iceberg import column_rules as rules
from frazil.iceberg.columns import BESIDE, ColumnPlan, Columns, Known, columns_of, iceberg_type
from frazil.settings.column import Column
from frazil.settings.settings_model import Changes
from frazil.settings.spec import TableSpec


class ColumnUnlistedError(FrazilError, code="column-unlisted", decision=True):
    """The spec does not list a column that the table has. List it again, or keep what the table has of it."""


class TypeChangedError(FrazilError, code="type-changed", decision=True):
    """No promotion leads from a column's type in the table to the spec's. Correct it, or begin another column beside the old one."""


class MaskChangedError(FrazilError, code="mask-changed", decision=True):
    """A column's mask came or went, and hashes do not mix with values. Correct it, or begin another column beside the old one."""


def read_spec(known: Columns, spec: TableSpec) -> TableSpec:
    """Return the spec by which files are looked at: with the columns that files added, and the table's types."""
    return rules.as_stored(spec, rules.same_columns(known, spec))


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
    plan = ColumnPlan(rules.steps_between(known, after.columns), after.columns, after.dropped)
    read = {column.name: column for column in after.columns if column.carried or column.by in ("spec", "files")}
    return rules.as_stored(spec, read), None if after == known else plan


class _Columns:
    """A table's columns while they follow the spec, then its files, and the names of those that were dropped."""

    def __init__(self, before: Columns, spec: TableSpec, policy: Changes):
        self.before, self.spec, self.policy = before, spec, policy
        self.columns, self.dropped = list[Known](), {**before.dropped}
        same = rules.same_columns(before, spec)
        rules.require_clear_renames(before, spec, same)
        key = [column.name for column in before.columns if column.key]
        if {*key} != {same[name].name if name in same else "" for name in spec.key}:
            raise other_key(spec.file, spec.key, key)
        for new in columns_of(spec).columns:
            self._list(replace(new, carried=False, later=True), same.get(new.name))
        listed = {same[name].id for name in spec.lake_names if name in same}
        for column in before.columns:
            if column.id not in listed:
                self._no_longer_list(column)
        rules.require_names((column.name for column in self.columns), spec, spec.file)

    def _list(self, new: Known, known: Known | None) -> None:
        """Take a column of the spec: as a new one, as what the table has, or as a new one beside what the table has."""
        if known is None:
            self.columns.append(new)
        elif kind := rules.wider(known.type, new.type) if known.mask == new.mask else "":
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
            now, then = "masked" if new.mask else new.dms, "masked" if known.mask else rules.spark_type(known.type)
            cure = "correct it; or begin another column, unless it is in the key: changes: {type: beside}"
            raise error(f"{self.spec.file}: column '{new.name}' is {now}, and {then} in the table", cure)
        aside = f"{new.name}_{rules.spark_type(known.type).partition('(')[0]}"
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
            raise ColumnUnlistedError(*no_column(self.spec.file, known.name, self.spec))

    def follow_file(self, file: FileColumns, is_load: bool) -> None:
        """Take what a file brings, lacks and widens."""
        file.require_key(self.spec.key)
        has = {*self.spec.lake_names, *file.reading.spec.lake_names, *file.unknown} - {*file.lacks}
        if not file.earlier:
            self._follow_names(file, has, is_load)
        self.columns = [_in_file(column, file, has) for column in self.columns]
        self.dropped = {name: name in file.unknown for name in self.dropped}

    def _follow_names(self, file: FileColumns, has: Collection[str], is_load: bool) -> None:
        """Add what only the file has, and drop what it lacks, if files may; raise what no policy allows."""
        known = {column.name for column in self.columns if column.by != BESIDE}
        known |= {name for name, had in self.dropped.items() if had or is_load}
        new = [name for name in file.unknown if name not in known]
        needed = [c for c in self.columns if c.by != "kept" and c.carried and not (is_load and c.later)]
        gone = {column.name: column.by for column in needed if column.name not in has}
        file.require_declared(new, [*gone], self.spec, self.policy)
        if self.policy.new == "add":
            added = [Column(name=name, type=file.unknown[name]) for name in new]
            self.columns += [Known(0, c.name, iceberg_type(c.lake_type), c.type, later=True, by="files") for c in added]
            rules.require_names((column.name for column in self.columns), self.spec, file.where)
        if self.policy.gone == "drop":
            lost = [name for name, by in gone.items() if by == "files"]
            self.columns = [column for column in self.columns if column.name not in lost]
            self.dropped |= dict.fromkeys(lost, False)


def _in_file(known: Known, file: FileColumns, has: Collection[str]) -> Known:
    """Return a column with what a file says of it: whether and how it has it, and a Parquet file's wider type."""
    kind = known.type
    if shown := file.types.get(known.name):
        kind = rules.wider(kind, iceberg_type(Column.model_construct(type=shown).lake_type)) or kind
    is_carried = known.name in has and known.by != BESIDE
    return replace(known, type=kind, carried=is_carried, renamed=RENAMED + known.name in file.carried)
