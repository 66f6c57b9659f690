"""A table spec: the names of one source table, the types of its columns, and its key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from frazil.config.changes import POLICIES, Changes, PastLayout, parse_changes, parse_layouts
from frazil.config.columns import TYPES, Column, SpecError, parse_column, require_known
from frazil.config.sql import identifier
from frazil.errors import nearest

WITHOUT_KEY = ("refuse", "append", "multiset")
"""Policies for a table without a key: take no rows; append every change; keep the source's rows, including duplicates."""
ON_BAD_ROWS = ("stop", "quarantine")
"""What a bad row does: stop its table, or move to the quarantine while the good rows of its batch are applied."""
RESERVED = {
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
    "_change_type", "_change_ordinal", "_commit_snapshot_id",
}  # fmt: skip
"""Names, in any case, of the columns that Iceberg adds to reads: a table with a column of such a name cannot be read."""
TRANSFORM = r"(?:(year|month|day|hour)\((.+)\)|(bucket|truncate)\((\d+), *(.+)\)|([^()]+))"
"""One entry of `partition`: `region`, `day(ordered_at)`, `bucket(16, id)`, `truncate(4, name)`."""


@dataclass(frozen=True)
class TableSpec:
    """One source table and its Iceberg table; `columns` are those in the lake, in the order of the files."""

    source: str
    target: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    comment: str = ""
    file: str = "<memory>"
    all_columns: tuple[Column, ...] = ()
    """All columns that DMS writes, in its order, if the lake leaves some out; empty: `columns`."""
    partition: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    without_key: str = "refuse"
    changes: Changes = Changes("refuse", "refuse", "refuse")
    layouts: tuple[PastLayout, ...] = ()
    optional: tuple[str, ...] = ()
    """Columns that some files of a batch lack: their rows keep the stored values. Found in the files, not declared."""
    narrow: bool = False
    """Whether the table has columns that no file of a batch carries, so that this spec leaves them out. Found in the files."""
    ignored: tuple[str, ...] = ()
    """Columns in the files that are ignored. Found in the files, not declared."""
    on_bad_rows: str = ""
    """`stop` or `quarantine`. If empty, the parameter applies; so it does if one of its limits is None."""
    max_bad_rows: int | None = None
    max_bad_percent: float | None = None
    problem: SpecError | None = None
    """The reason why the table cannot be processed. Found, not declared."""

    @property
    def file_columns(self) -> tuple[Column, ...]:
        """The columns that DMS writes, in its order, including those that the lake leaves out."""
        return self.all_columns or self.columns

    @property
    def hides(self) -> bool:
        """Whether rows hold values that messages must not show: columns that are masked or left out."""
        return any(c.mask or c.name not in self.names for c in self.file_columns)

    @property
    def policy(self) -> str:
        """How changes find their row: `key`, or the declared policy for a table without one (`WITHOUT_KEY`)."""
        return "key" if self.key else self.without_key

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns whose old values identify an updated row: the key, or all columns of a multiset."""
        return tuple(self.names) if self.policy == "multiset" else self.key

    def require_sound(self) -> None:
        """Raise SpecError if this table cannot be processed: for a `problem`, or without a key and a policy for that."""
        if self.problem:
            raise SpecError(self.problem.problem, self.problem.cure)
        if self.policy == "refuse":
            raise SpecError(
                f"{self.file}: {self.source} has no key, so no change can find its row",
                "name unique columns (key: [id]), or declare without_key: append (every change becomes a row) or "
                "multiset (whole rows are compared)",
            )

    @property
    def schema_name(self) -> str:
        """The source schema: the folder above the table's own."""
        return self.source.split(".", 1)[0]

    @property
    def table_name(self) -> str:
        """The source table: the name of its folder."""
        return self.source.split(".", 1)[1]

    @property
    def names(self) -> list[str]:
        """The column names, in file order."""
        return [c.name for c in self.columns]

    def column(self, name: str) -> Column:
        """Return the column of that name, including one that the lake leaves out."""
        return next(c for c in (*self.file_columns, *self.columns) if c.name == name)


def _kept(raw: dict, columns: tuple[Column, ...], where: str) -> tuple[Column, ...]:
    """Return the columns that the lake gets, by `include` or `exclude`."""
    names = [c.name for c in columns]
    for entry in ("include", "exclude"):
        for name in raw.get(entry) or ():
            if name not in names:
                raise SpecError(f"{where}: {entry}: no column '{name}'", nearest(name, names))
    if raw.get("include") and raw.get("exclude"):
        raise SpecError(f"{where}: include and exclude together", "keep one of them")
    wanted = raw.get("include") or [n for n in names if n not in (raw.get("exclude") or ())]
    return tuple(c for c in columns if c.name in wanted)


def _partition(entries, names: list[str], where: str) -> tuple[str, ...]:
    """Return partition fields as Spark SQL."""
    fields = []
    for entry in entries or ():
        found = re.fullmatch(TRANSFORM, str(entry).strip())
        column = found and (found[2] or found[5] or found[6]).strip()
        if not found or column not in names:
            raise SpecError(
                f"{where}: partition: '{entry}' is no column of the lake, nor a transform of one",
                "write a column's name, year(c), month(c), day(c), hour(c), bucket(16, c) or truncate(4, c)",
            )
        inner = identifier(column)
        fields.append(
            f"{found[1]}s({inner})" if found[1] else f"{found[3]}({found[4]}, {inner})" if found[3] else inner
        )
    return tuple(fields)


def _sort(entries, names: list[str], where: str) -> tuple[str, ...]:
    """Return sort fields as Spark SQL."""
    fields = []
    for entry in entries or ():
        found = re.fullmatch(r"(.+?)(?: +(asc|desc))?", str(entry).strip(), re.I)
        if not found or found[1] not in names:
            raise SpecError(f"{where}: sort: no column '{entry}' in the lake", "write a column's name, or 'name desc'")
        fields.append(f"{identifier(found[1])} {(found[2] or 'asc').upper()}")
    return tuple(fields)


def name_problem(spec: TableSpec) -> SpecError | None:
    """Return why the lake cannot hold a table under its spec's names, with the entry that helps; None if it can."""
    parts = spec.target.split(".")
    if len(parts) < 2 or not all(p.strip() for p in parts) or re.search(r"[/\x00-\x1f\x7f]", spec.target):
        return SpecError(
            f"{spec.file}: the lake cannot hold a table '{spec.target}'",
            f"state another name, which loses nothing: target: {spec.schema_name}.<name>, without / and control characters",
        )
    if found := unfit_name(spec.names):
        name, why = found
        return SpecError(f"{spec.file}: column '{name}' {why}", rename_cure(name, spec))
    return None


def unfit_name(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first column name that the lake cannot use, and why; None if it can use all."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in RESERVED:
            return name, "has a name that Iceberg keeps for itself"
        if (other := seen.setdefault(name.lower(), name)) != name:
            return name, f"and '{other}' differ in upper and lower case only, which the lake does not tell apart"
    return None


def rename_cure(name: str, spec: TableSpec) -> str:
    """Return the cure for a column name that the lake cannot use, as entries of the spec."""
    bare = name.strip("_").lower() or "column"
    taken = {c.name.lower() for c in spec.file_columns}
    new = next(n for n in (bare, *(f"{bare}_{i}" for i in range(2, 1000))) if n not in taken | RESERVED)
    out = "" if name in spec.key else f"; or leave its values out of the lake: exclude: [{name}]"
    return f"give it another name in the lake, which loses nothing: name: {new}, renamed_from: {name}{out}"


def _of_bad_rows(raw: dict, where: str) -> dict:
    policy, rows, share = (raw.get(e) for e in ("on_bad_rows", "max_bad_rows", "max_bad_percent"))
    if policy not in (None, *ON_BAD_ROWS):
        raise SpecError(f"{where}: on_bad_rows: '{policy}'", nearest(str(policy), ON_BAD_ROWS))
    for entry, value, kinds in (("max_bad_rows", rows, (int,)), ("max_bad_percent", share, (int, float))):
        if value is not None and (type(value) not in kinds or value < 0):
            raise SpecError(f"{where}: {entry}: {value!r}", "write a number, 0 or more")
    return {"on_bad_rows": policy or "", "max_bad_rows": rows, "max_bad_percent": share}


def _require_entries(raw: dict, where: str) -> None:
    """Raise SpecError unless all entries are known, and lists where lists belong."""
    if not isinstance(raw, dict):
        raise SpecError(f"{where}: not a table spec", "see params/shop for examples")
    allowed = ("source", "target", "comment", "key", "without_key", "columns", "include", "exclude", "partition", "sort",
               "changes", "layouts", "on_bad_rows", "max_bad_rows", "max_bad_percent")  # fmt: skip
    require_known(raw, allowed, where)
    for entry in ("include", "exclude", "partition", "sort", "layouts"):
        if not isinstance(raw.get(entry) or [], list):
            raise SpecError(f"{where}: {entry} is no list", f"write {entry}: [a, b]")


def _source(raw: dict, where: str) -> str:
    """Return the source table as schema.table."""
    source = str(raw.get("source") or "")
    if source.count(".") != 1:
        raise SpecError(f"{where}: source '{source}' is not schema.table", "write source: public.orders")
    return source


def _columns(raw: dict, where: str) -> tuple[Column, ...]:
    """Return the columns that DMS writes: at least one, and none twice."""
    columns = tuple(parse_column(c, where) for c in raw.get("columns") or ())
    names = [c.name for c in columns]
    if not columns:
        raise SpecError(f"{where}: no columns", "list them in the order in which DMS writes them")
    if twice := {n for n in names if names.count(n) > 1}:
        raise SpecError(f"{where}: column {sorted(twice)} is listed twice", "remove one")
    return columns


def _key(raw: dict) -> tuple[str, ...]:
    """Return the names of the key's columns; one may stand without a list."""
    key = raw.get("key") or ()
    return tuple(str(k) for k in ([key] if isinstance(key, str) else key))


def _without_key(raw: dict, key: tuple[str, ...], where: str) -> str:
    """Return the policy for a table without a key (`WITHOUT_KEY`)."""
    without_key = str(raw.get("without_key") or "refuse")
    if without_key not in WITHOUT_KEY:
        raise SpecError(f"{where}: without_key: '{without_key}'", nearest(without_key, WITHOUT_KEY))
    if key and "without_key" in raw:
        raise SpecError(f"{where}: a key, and without_key", "keep one of them")
    return without_key


def _require_key_in_lake(
    key: tuple[str, ...], columns: tuple[Column, ...], kept: tuple[Column, ...], where: str
) -> None:
    """Raise SpecError unless the lake gets every column of the key with values that tell rows apart."""
    names, lake_names = [c.name for c in columns], [c.name for c in kept]
    for k in key:
        if k not in names:
            raise SpecError(f"{where}: key column '{k}' is not among the columns", nearest(k, names))
        if next(c for c in columns if c.name == k).replace:
            raise SpecError(
                f"{where}: key column '{k}' has replace, and rows would share a key", "write lake: string there"
            )
        if k not in lake_names:
            raise SpecError(f"{where}: key column '{k}' is left out of the lake", "keep it; a mask hides its values")


def parse_spec(raw: dict, where: str = "<memory>") -> TableSpec:
    """Check one spec as read from YAML and return it; every error names the file, the entry and the cure."""
    _require_entries(raw, where)
    source = _source(raw, where)
    columns = _columns(raw, where)
    key = _key(raw)
    without_key = _without_key(raw, key, where)
    kept = _kept(raw, columns, where)
    _require_key_in_lake(key, columns, kept, where)
    lake_names = [c.name for c in kept]
    if without_key == "multiset" and kept != columns:
        raise SpecError(f"{where}: a multiset without some columns", "whole rows are compared: keep every column")
    spec = TableSpec(
        source, str(raw.get("target") or source), key, kept, str(raw.get("comment") or ""), where,
        columns if kept != columns else (), _partition(raw.get("partition"), lake_names, where),
        _sort(raw.get("sort"), lake_names, where), without_key, parse_changes(raw.get("changes"), where),
        parse_layouts(raw.get("layouts"), where), **_of_bad_rows(raw, where),
    )  # fmt: skip
    return replace(spec, problem=name_problem(spec))


def require_own_place(spec: TableSpec, others: Iterable[TableSpec]) -> None:
    """Raise SpecError if another spec has the same source or target."""
    for other in others:
        if spec.source == other.source or spec.target == other.target:
            raise SpecError(f"{spec.file}: '{spec.source}' → '{spec.target}' is also in {other.file}", "keep one")


def load_specs(folder: Path, may_be_empty: bool = False) -> dict[str, TableSpec]:
    """Read every `*.yml` of a folder and return the specs by source table."""
    files = sorted(Path(folder).glob("*.yml"))
    if not files and not may_be_empty:
        raise SpecError(f"no table specs in {folder}", "one YAML file per table, as in params/shop")
    specs: dict[str, TableSpec] = {}
    for file in files:
        try:
            raw = yaml.safe_load(file.read_text(encoding="utf-8"))
        except yaml.YAMLError as e:
            raise SpecError(f"{file}: not YAML: {' '.join(str(e).split())}", "mend the file") from None
        spec = parse_spec(raw, str(file))
        require_own_place(spec, specs.values())
        specs[spec.source] = spec
    return specs


__all__ = [
    "POLICIES",
    "TYPES",
    "Changes",
    "Column",
    "PastLayout",
    "SpecError",
    "TableSpec",
    "load_specs",
    "parse_changes",
    "parse_spec",
]
