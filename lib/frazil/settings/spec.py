"""Table specs: a table of the source and its Iceberg table, as a user declares them in YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from frazil.errors import FrazilError, nearest
from frazil.settings import yaml_files
from frazil.settings.column import Column
from frazil.settings.settings_model import Changes, Count, Names, NotNegative
from frazil.settings.yaml_files import Entries, Fault

TRANSFORM = re.compile(r"(?:(year|month|day|hour)\((.+)\)|(bucket|truncate)\((\d+), *(.+)\)|([^()]+))")
"""An entry of `partition`: `region`, `day(ordered_at)`, `bucket(16, id)`, `truncate(4, name)`."""
SORT = re.compile(r" +(asc|desc)$", re.IGNORECASE)
"""The end of an entry of `sort`: `ordered_at desc`."""
NO_NAME = re.compile(r"[/\x00-\x1f\x7f]")
"""Signs that no name of a table may have."""


class SpecError(FrazilError, code="spec"):
    """A table spec is wrong. Correct the line that the message names."""


class TableSpec(Entries):
    """A table of the source, and its Iceberg table."""

    source: str
    """The table at the source, as `schema.table`: the names of its folders."""
    target: str = Field(default_factory=lambda known: known.get("source", ""))
    """Namespace and table in the lake; left out: as the source."""
    comment: str = ""
    """Comment of the lake's table."""
    key: Names = ()
    """The primary key; several columns if it is composite."""
    without_key: Literal["refuse", "append"] = "refuse"
    """Changes of a table without `key`: `refuse` them, or `append` each."""
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    """All columns that DMS writes, in its order."""
    exclude: Names = ()
    """Columns that the lake does not have; `columns` lists them all the same."""
    partition: Names = ()
    """Columns, or `year`, `month`, `day`, `hour`, `bucket(16, c)`, `truncate(4, c)` of one."""
    sort: Names = ()
    """Order of rows in new files: `customer`, `ordered_at desc`."""
    changes: Changes | None = None
    """What to do when columns change; left out: as the setting says."""
    columns_until: dict[str, Names] = {}
    """The columns of earlier headerless files, by the last file that has them, the oldest first."""
    on_bad_rows: Literal["stop", "quarantine"] | None = None
    """Rows that do not fit; left out: as the setting says."""
    max_bad_rows: Count | None = None
    """The table stops if a batch or load has more bad rows; left out: as the setting says."""
    max_lag_s: NotNegative | None = None
    """Alert if a change has waited for more seconds; left out: as the setting says."""

    _file: str = PrivateAttr("<memory>")

    @property
    def file(self) -> str:
        """The file that the spec comes from."""
        return self._file

    @property
    def lake_columns(self) -> tuple[Column, ...]:
        """The columns of the lake's table, in the order of the files."""
        return tuple(c for c in self.columns if c.name not in self.exclude)

    @property
    def lake_names(self) -> tuple[str, ...]:
        """The names of the lake's columns."""
        return tuple(c.name for c in self.lake_columns)

    @property
    def policy(self) -> str:
        """How a change finds its row: by `key`, or as `without_key` says."""
        return "key" if self.key else self.without_key

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for entry, name, most in (("source", self.source, 2), ("target", self.target, 9)):
            parts = name.split(".")
            if not 2 <= len(parts) <= most or not all(map(str.strip, parts)) or NO_NAME.search(name):
                raise Fault(f"'{name}' is no name of a table", f"write {entry}: schema.table", entry)
        listed = [c.name for c in self.columns]
        if twice := [n for n in listed if listed.count(n) > 1]:
            raise Fault(f"the column '{twice[0]}' is listed twice", "keep one", "columns")
        _require_known("key", self.key, listed)
        _require_known("exclude", self.exclude, listed)
        _require_known("partition", map(_partition_column, self.partition), self.lake_names)
        _require_known("sort", (SORT.sub("", entry.strip()) for entry in self.sort), self.lake_names)
        if odd := [n for n, has in self.columns_until.items() if not has or not re.search(r"LOAD|\d{8}-?\d{9}", n)]:
            raise Fault(f"'{odd[0]}' is no file with columns", "write the file's name: [its columns]", "columns_until")
        self._require_identity()
        return self

    def _require_identity(self) -> None:
        if self.key and self.without_key != "refuse":
            raise Fault("key and without_key stand together", "keep one of them", "without_key")
        if lost := [k for k in self.key if k in self.exclude]:
            raise Fault(f"'{lost[0]}' is in the key and excluded", "keep it: mask: sha256 hides its values", "exclude")
        if shared := [c.name for c in self.columns if c.name in self.key and c.replace]:
            raise Fault(f"'{shared[0]}' has replace, so rows would share a key", "write lake: string there", "key")


def _require_known(entry: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    if unknown := [name for name in wanted if name not in known]:
        raise Fault(f"there is no column '{unknown[0]}'", nearest(unknown[0], known), entry)


def _partition_column(entry: str) -> str:
    found = TRANSFORM.fullmatch(entry.strip())
    if not found:
        cure = "write a column's name, year(c), month(c), day(c), hour(c), bucket(16, c) or truncate(4, c)"
        raise Fault(f"'{entry}' is no transform of a column", cure, "partition")
    return (found[2] or found[5] or found[6]).strip()


def read_spec(file: Path) -> TableSpec:
    """Return the spec in a file."""
    spec = yaml_files.checked(TableSpec, yaml_files.read(file, SpecError), file, SpecError)
    spec._file = str(file)
    return spec


def load_specs(folder: Path) -> dict[str, TableSpec]:
    """Return the specs of a folder by source table."""
    files = yaml_files.files_in(folder, SpecError)
    if not files:
        raise SpecError(f"there are no specs in {folder}", "write a YAML file for each table, or run frazil init")
    specs: dict[str, TableSpec] = {}
    for spec in map(read_spec, files):
        same = [o for o in specs.values() if o.source == spec.source or o.target.lower() == spec.target.lower()]
        if same:
            cure = "give it a target of its own; for shards in one folder, one spec with an added column in its key"
            raise SpecError(f"{spec.file}: '{spec.source}' or its target is in {same[0].file} too", cure)
        specs[spec.source] = spec
    return specs
