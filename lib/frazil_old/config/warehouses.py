"""The warehouses that an environment file declares in its section `warehouses`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from frazil_old.config.environment_file import find_params
from frazil_old.config.settings import ParameterError, Settings
from frazil_old.config.validation import checked
from frazil_old.config.warehouse_model import WarehouseEntries
from frazil_old.config.yaml_files import read_yaml


@dataclass(frozen=True)
class Warehouse:
    """A declared warehouse: its name, the environment's name and its entries."""

    name: str
    env: str
    entries: WarehouseEntries = field(repr=False)
    lake: Settings | None = field(default=None, repr=False)
    """The settings with the lake's catalog; left out: it is in Glue."""

    @property
    def catalog_kind(self) -> str:
        """The type of the lake's catalog, such as `glue`, `rest` or `jdbc`."""
        return self.lake.catalog_kind if self.lake else "glue"

    @property
    def prefix(self) -> str:
        """What the names of its own objects begin with."""
        return re.sub(r"\W", "_", f"frazil_{self.env}_{self.name}".lower())

    def reads(self, source: str) -> bool:
        """Return whether the warehouse reads a source table."""
        tables = self.entries.tables
        patterns = (".*".join(map(re.escape, p.split("%"))) for p in tables)
        return not tables or any(re.fullmatch(p, source) for p in patterns)


@cache
def _section(file: str, stamp: tuple[int, int]) -> dict[str, WarehouseEntries]:
    found = (read_yaml(Path(file), ParameterError) or {}).get("warehouses") or {}
    return {n: checked(WarehouseEntries, e, f"{file}: warehouse '{n}'", ParameterError) for n, e in found.items()}


def declared(settings: Settings) -> dict[str, Warehouse]:
    """Return the warehouses of an environment by name; none if it has no file."""
    try:
        file = find_params() / f"{settings.env}.yml"
        stat = file.stat()
    except (ParameterError, FileNotFoundError):
        return {}
    section = _section(str(file), (stat.st_mtime_ns, stat.st_size))
    found = {name: Warehouse(name, settings.env, entries, settings) for name, entries in section.items()}
    prefixes = [w.prefix for w in found.values()]
    if same := [w.name for w in found.values() if prefixes.count(w.prefix) > 1]:
        problem = f"{file}: warehouses {', '.join(same)}: what they have in the warehouse would have the same names"
        raise ParameterError(problem, "give them names that differ in letters or digits, not only in case or signs")
    return found
