"""An environment file: where it is, what it states, and earlier names of its parameters. `settings.resolve` says what wins."""

from __future__ import annotations

import os
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

from frazil_old.config.yaml_files import read_yaml
from frazil_old.errors import FrazilError, nearest


class ParameterError(FrazilError):
    """A parameter or environment file is unknown, misspelt or of the wrong type."""


RETIRED = {
    ("setup", "task_settings"): "name the task's description as mappings: its settings are then checked",
    ("cdc_merge", "full_listing_every"): "each 100th poll is a full listing",
    ("cdc_merge", "merge_small_after"): "the files of 16 small row deltas are merged into one",
    ("cdc_merge", "fold_after"): "the files of 16 small row deltas are merged into one",
    ("maintenance", "min_snapshots"): "the table's property history.expire.min-snapshots-to-keep counts, else 10",
    ("maintenance", "sort_by"): "compaction sorts as the table is sorted: ALTER TABLE … WRITE ORDERED BY",
    ("maintenance", "quarantine_days"): "rows stay for 30 days, or for daily_tags if that is longer",
    (
        "maintenance",
        "z_order",
    ): "compaction sorts as the table is sorted; for a z-order, call Iceberg's rewrite_data_files",
    ("maintenance", "statistics"): "call Iceberg's procedure compute_table_stats",
    ("maintenance", "max_manifests"): "manifests are rewritten when a table has more than 20",
    ("maintenance", "slice_attempts"): "each file group is tried three times a run",
    ("maintenance", "small_file_mb"): "files below a quarter of target_file_mb are small",
    ("cdc_merge", "rowdelta_max_mb"): "batches above 64 MB, unpacked, go by scan",
    ("maintenance", "file_group_files"): "a file group has at most 200 files",
    ("maintenance", "slice_files"): "a file group has at most 200 files",
    ("maintenance", "wait_for_writer_s"): "compaction waits up to 30 s for a batch in progress",
    ("maintenance", "yield_s"): "compaction waits up to 30 s for a batch in progress",
    ("maintenance", "nice"): "a run that starts its own Spark has priority 10, so that ingestion comes first",
    ("maintenance", "max_run_mb"): "max_run_s limits how long a run starts further file groups",
    ("operate", "keep_runs"): "the newest 500 run folders are kept",
    ("aws", "sweep_every"): "each 120th look at the queue starts a job even though no message waits",
    ("latency", "worker_vcpu"): "write it into prices, as worker_vcpu",
    ("latency", "worker_gb"): "write it into prices, as worker_gb",
}
"""Parameters of earlier versions, by section: they are ignored with a warning, which names what to do instead."""

RENAMED = {
    ("common", "ops"): "ops_namespace",
    ("common", "readers"): "query_engines",
    ("full_load", "load_over"): "load_complete_when",
}
"""Earlier names of parameters, by section, and their present names. Both are read; an earlier one gives a warning."""

WAREHOUSES = "warehouses"
"""The section with the readers of the tables; see `config.warehouse_model`."""


OWN = Path(__file__).parent.parent / "params"
CHECKOUT = Path(__file__).parents[3]


def find_params() -> Path:
    """Return the folder with the environment files: FRAZIL_PARAMS, else the nearest `params/` at or above the working directory.

    In a checkout these are the package's own.
    """
    if named := os.environ.get("FRAZIL_PARAMS"):
        if not Path(named).is_dir():
            raise ParameterError(f"FRAZIL_PARAMS names no folder: {named}", "correct or unset it")
        return Path(named).absolute()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "params").is_dir():
            return OWN if folder == CHECKOUT and OWN.is_dir() else folder / "params"
    raise ParameterError(
        f"no params/ folder at or above {here}", "set FRAZIL_PARAMS to the folder of environment files"
    )


def root_of(params: Path) -> Path:
    """Return the folder that relative paths start from: the one that holds `params/`, or the checkout."""
    return CHECKOUT if params == OWN else params.parent


def file_at(root: str, path: str) -> Path:
    """Return the place of a relative path; in a checkout `params/` is the package's own."""
    return (OWN.parent if path.startswith("params/") and Path(root) == CHECKOUT and OWN.is_dir() else Path(root)) / path


def read(env: str, known: dict[str, type]) -> tuple[Path, dict[str, dict[str, Any]]]:
    """Return an environment's file and the parameters that its sections state; `known`: the parameters of each section."""
    from frazil_old.config.parameter_models import environment_model
    from frazil_old.config.validation import checked

    file = find_params() / f"{env}.yml"
    if not file.is_file():
        there = [f.stem for f in file.parent.glob("*.yml")]
        raise ParameterError(f"no environment file {file}", f"{nearest(env, there)}; frazil init writes a new one")
    sections = read_yaml(file, ParameterError) or {}
    if isinstance(sections, dict):
        renamed = {n: up_to_date(n, section, f"{file}: {n}") for n, section in sections.items() if n != WAREHOUSES}
        sections = {**sections, **renamed}
        _require_places(sections, {n: {f.name for f in fields(of)} - {"env"} for n, of in known.items()}, str(file))
    found = checked(environment_model(known), sections, str(file), ParameterError).given()
    return file, {name: section.given() for name, section in found.items() if name != WAREHOUSES}


def _require_places(sections: dict[Any, Any], known: dict[str, set[str]], where: str) -> None:
    """Refuse a parameter where it has no effect but in another section it would, and a section inside another."""
    places = {"the top level": sections} | {n: sections[n] for n in known if n in sections and n != WAREHOUSES}
    for place, given in places.items():
        here = known.get(place, known.keys())
        for name in [n for n in given if n not in here] if isinstance(given, dict) else []:
            problem, having = f"{where}: {place}: '{name}' has no effect here", [n for n in known if name in known[n]]
            if having:
                best = having[:1] if "common" in having else having
                raise ParameterError(problem, f"write it in section {' or '.join(best)}")
            if name in known:
                raise ParameterError(problem, "it is a section: write it without indentation")


def earlier_names(table: dict[tuple[str, str], str], section: str) -> dict[str, str]:
    """Return what `RETIRED` or `RENAMED` says of a section's parameters, by name."""
    return {name: text for (of, name), text in table.items() if of in (section, "common")}


def up_to_date(section: str, given: Any, where: str) -> Any:
    """Return the parameters of a section under their present names, without retired ones, and warn of both."""
    if not isinstance(given, dict):
        return given
    retired, renamed = earlier_names(RETIRED, section), earlier_names(RENAMED, section)
    found = {n: value for n, value in given.items() if n not in retired and n not in renamed}
    for name, value in given.items():
        if name in retired:
            _warn(f"{where}: {name} is no longer used: {retired[name]}")
        elif name in renamed and value is not None:
            new = renamed[name]
            if found.get(new) is not None:
                raise ParameterError(f"{where}: {name} is now called {new}, and both are given", f"keep only {new}")
            _warn(f"{where}: {name} is now called {new}")
            found[new] = value
    return found


def _warn(text: str) -> None:
    """Warn in one line, without the line of code that Python shows else."""
    warnings.warn_explicit(text, UserWarning, "parameters", 0)
