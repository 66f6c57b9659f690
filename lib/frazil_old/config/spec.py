"""A table spec: the names of one source table, the types of its columns, and its key; also as YAML."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from frazil_old.config.columns import Column, PastLayout, SpecError
from frazil_old.config.policies import SchemaPolicy
from frazil_old.config.yaml_files import read_yaml

RESERVED = {
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
    "_change_type", "_change_ordinal", "_commit_snapshot_id",
}  # fmt: skip
"""Names, in any case, of the columns that Iceberg adds to reads: a table with a column of such a name cannot be read."""


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
    changes: SchemaPolicy = SchemaPolicy("refuse", "refuse", "refuse")
    layouts: tuple[PastLayout, ...] = ()
    optional: tuple[str, ...] = ()
    """Columns that some files of a batch lack: their rows keep the stored values. Found in the files, not declared."""
    has_missing_columns: bool = False
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
    def has_hidden_columns(self) -> bool:
        """Whether rows hold values that messages must not show: columns that are masked or left out."""
        names = set(self.names)
        return any(c.mask or c.name not in names for c in self.file_columns)

    @property
    def policy(self) -> str:
        """How changes find their row: `key`, or the declared policy for a table without one (`policies.WITHOUT_KEY`)."""
        return "key" if self.key else self.without_key

    @property
    def row_identity(self) -> tuple[str, ...]:
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


def name_problem(spec: TableSpec) -> SpecError | None:
    """Return why the lake cannot hold a table under its spec's names, with the entry that helps; None if it can."""
    parts = spec.target.split(".")
    if len(parts) < 2 or not all(p.strip() for p in parts) or re.search(r"[/\x00-\x1f\x7f]", spec.target):
        return SpecError(
            f"{spec.file}: the lake cannot hold a table '{spec.target}'",
            f"choose another name, which loses nothing: target: {spec.schema_name}.<name>, without / and control characters",
        )
    if found := unusable_name(spec.names):
        name, why = found
        return SpecError(f"{spec.file}: column '{name}' {why}", rename_cure(name, spec))
    return None


def unusable_name(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first column name that the lake cannot use, and why; None if it can use all."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in RESERVED:
            return name, "has a name that Iceberg reserves"
        if (other := seen.setdefault(name.lower(), name)) != name:
            return name, f"and '{other}' differ in upper and lower case only, which are one name in the lake"
    return None


def rename_cure(name: str, spec: TableSpec) -> str:
    """Return the cure for a column name that the lake cannot use, as entries of the spec."""
    bare = name.strip("_").lower() or "column"
    taken = {c.name.lower() for c in spec.file_columns}
    new = next(n for n in (bare, *(f"{bare}_{i}" for i in range(2, 1000))) if n not in taken | RESERVED)
    out = "" if name in spec.key else f"; or leave its values out of the lake: exclude: [{name}]"
    return f"give it another name in the lake, which loses nothing: name: {new}, renamed_from: {name}{out}"


def parse_spec(raw: dict, where: str = "<memory>") -> TableSpec:
    """Check one spec as read from YAML and return it; every error names the file, the entry and the cure."""
    from frazil_old.config.spec_model import TableEntries
    from frazil_old.config.validation import checked

    table = checked(TableEntries, raw, where, SpecError)
    columns, kept = table.file_columns, table.lake_columns
    same = ("source", "comment", "without_key", "on_bad_rows", "max_bad_rows", "max_bad_percent")
    spec = TableSpec(
        **{name: getattr(table, name) for name in same},
        target=table.target or table.source,
        key=tuple(table.key),
        columns=kept,
        file=where,
        all_columns=columns if kept != columns else (),
        partition=table.partition_sql(),
        sort=table.sort_sql(),
        changes=SchemaPolicy(**dict(table.changes)),
        layouts=tuple(past.layout() for past in table.layouts),
    )
    return replace(spec, problem=name_problem(spec))


def require_own_place(spec: TableSpec, others: Iterable[TableSpec]) -> None:
    """Raise SpecError if another spec has the same source or target, or if one table's folder would be inside the other's."""
    for other in others:
        if spec.source == other.source or spec.target == other.target:
            raise SpecError(f"{spec.file}: '{spec.source}' → '{spec.target}' is also in {other.file}", "keep one")
        outer, inner = sorted((spec.target, other.target), key=len)
        if inner.startswith(f"{outer}."):
            raise SpecError(
                f"{spec.file}: the files of '{inner}' would be inside the folder of '{outer}' ({other.file})",
                f"choose another namespace than {outer}: dropping that table would delete them",
            )


def load_specs(folder: Path, may_be_empty: bool = False) -> dict[str, TableSpec]:
    """Read every `*.yml` and `*.yaml` of a folder and return the specs by source table."""
    files = sorted(f for f in Path(folder).glob("*.y*ml") if f.suffix in (".yml", ".yaml"))
    if not files and not may_be_empty:
        raise SpecError(f"no table specs in {folder}", "one YAML file per table, as in params/shop")
    specs: dict[str, TableSpec] = {}
    for file in files:
        spec = parse_spec(read_yaml(file, SpecError), str(file))
        require_own_place(spec, specs.values())
        specs[spec.source] = spec
    return specs


def file_name(spec: TableSpec) -> str:
    """Return the name of a spec's YAML file."""
    table = spec.table_name if spec.schema_name in ("public", "dbo") else spec.source
    return re.sub(r"[^\w.-]", "_", f"{table}.yml")


def lake_name(schema: str, table: str) -> str:
    """Return a table's name in the lake, in words that every engine accepts unquoted: `ü` becomes `u`, `2024` becomes `_2024`."""
    return ".".join(_word(part) for part in (schema, table))


def _word(name: str) -> str:
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    word = re.sub(r"\W", "_", plain, flags=re.ASCII)
    return f"_{word}" if word[:1].isdigit() else word


def spec_text(spec: TableSpec) -> str:
    """Return a spec as YAML: names, key (or `without_key`) and columns."""
    from frazil_old.config.validation import flow

    comment = {"comment": spec.comment} if spec.comment else {}
    key = {"key": list(spec.key)} if spec.key or spec.without_key == "refuse" else {"without_key": spec.without_key}
    head = {"source": spec.source, "target": spec.target, **comment, **key}
    lines = [f"{k}: {flow(v)}\n" for k, v in head.items()]
    return "".join([*lines, "columns:\n", *[f"  - {flow(_entry(c))}\n" for c in spec.columns]])


def _entry(c: Column) -> dict[str, Any]:
    more = {"nullable": False} if not c.nullable else {}
    more |= {k: v for k, v in (("utc", c.utc), ("comment", c.comment), ("source_id", c.source_id)) if v}
    return {"name": c.name, "type": c.type, **more}
