"""The parameters of the notebooks: one dataclass each, resolved from the notebook's cell, the environment file, defaults."""

from __future__ import annotations

import json
import os
import types
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import yaml

from frazil.config import cells, redaction
from frazil.config.spec import WITHOUT_KEY
from frazil.errors import FrazilError, nearest

cells.follow()  # the cell of parameters is run after the one that imports this


class ParameterError(FrazilError):
    """A parameter or environment file that is unknown, misspelt or of the wrong type."""


def parameter(default: Any, help: str) -> Any:
    """Declare a parameter with its default and the sentence that explains it."""
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata={"help": help})
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Settings:
    """What every notebook needs to open the same lake. Relative paths start at the folder that holds `params/`."""

    read_only: ClassVar[bool] = False
    nice: ClassVar[int] = 0
    only_plans: ClassVar[bool] = False
    env: str = parameter("demo", "Names the environment file: `params/<env>.yml`.")
    source: str = parameter(
        "",
        "Folder that DMS writes to, local or `s3://bucket/folder`: the one that holds `<schema>/<table>/`; or its stream, "
        "`kafka://host:port,host:port/topic,topic` or `kinesis://region/stream,stream`.",
    )
    endpoint: str = parameter(
        "",
        "JSON file with the settings of the S3, Kafka or Kinesis target, as `aws dms describe-endpoints` prints them.",
    )
    mappings: str = parameter("", "JSON file with the task's table mappings; empty: no transformation rules.")
    specs: str = parameter("", "Folder with one YAML table spec per table.")
    tables: list[str] = parameter([], "Source tables to take, as `schema.table`; empty: all that have a spec.")
    without_spec: list[str] = parameter(
        [],
        "Source tables that need no spec, as `schema.table` with `%` for any text: `frazil plan` and `frazil check` do not report "
        "the data in their folders.",
    )
    catalog: str = parameter("lake", "Name of the Iceberg catalog in Spark.")
    catalog_options: dict[str, str] = parameter(
        {}, "Options of the Iceberg catalog, as in `spark.sql.catalog.<name>.*`: type, uri, warehouse …"
    )
    readers: list[str] = parameter(
        [], "Engines that read the tables; one that cannot read format v3 makes new tables v2."
    )
    on_unreadable: str = parameter(
        "stop",
        "A message of a stream that tells no table, as what is no JSON: `stop` the tables that it may be of, set it aside in the "
        "`quarantine` (once, within `max_bad_rows` and `max_bad_percent` of the messages that are read together), or `report` and pass it by.",
    )
    unknown_tables: str = parameter(
        "ignore",
        "Messages of a stream for tables without a spec: `ignore` (counted and named, they are passed by), `stop`, or `create`: "
        "spec and table are made as DMS's control record tells them.",
    )
    without_key: str = parameter(
        "refuse",
        "How changes are applied to a table without a primary key that `unknown_tables: create` makes: `refuse` (it is not made), "
        "`append` or `multiset`; it goes into the table's spec.",
    )
    changes: dict[str, str] = parameter(
        {},
        "What to do when a table's columns change, where its spec does not say: `new: refuse|add|ignore`, "
        "`gone: refuse|keep|drop`, `type: refuse|beside`, `key: refuse|keep`; the first is the default.",
    )
    follow_source: bool = parameter(
        False,
        "Take each table's columns as the source's catalog has them now, over JDBC (environment: FRAZIL_SOURCE_*).",
    )
    on_bad_rows: str = parameter(
        "stop",
        "Rows that do not fit: `stop` their table, or set them aside in the `quarantine` and go on. A spec may say otherwise, "
        "also of the limits.",
    )
    max_bad_rows: int = parameter(10_000, "With more bad rows in one batch or load a table stops all the same.")
    max_bad_percent: float = parameter(100.0, "The same, as a share of the rows of the batch or load.")
    parallel_tables: int = parameter(2, "How many tables are worked on at the same time.")
    spark_options: dict[str, str] = parameter(
        {},
        "Spark settings for a session that the notebook builds itself. `spark.jars.packages` adds to Frazil's own jars.",
    )
    ops: str = parameter("ops", "Namespace in the catalog of the tables `commits`, `maintenance` and `quarantine`.")
    file_group: str = parameter(
        "", "Unix group that may read `runs` and the files of a local lake; empty: nobody but the user who runs Frazil."
    )
    runs: str = parameter("runs", "Folder for logs and reports; each environment has its own folder in it.")
    root: str = parameter("", "Folder that relative paths start from; empty: the one that holds `params/`.")

    def path(self, name: str) -> Path:
        """Return the absolute path of a file or folder parameter; an empty one is an error that names it."""
        value = getattr(self, name)
        if not value:
            raise ParameterError(f"parameter '{name}' is empty", f"set it in params/{self.env}.yml")
        if "://" in value:
            raise ParameterError(f"parameter '{name}' = '{value}'", "name a local file or folder")
        return (Path(self.root) / value).absolute()

    @property
    def is_stream(self) -> bool:
        """Whether DMS writes messages to a stream, and not files."""
        return self.source.startswith(("kafka://", "kinesis://"))

    def location(self, name: str) -> Path | str:
        """Return a folder that may lie on S3: its address as text, else the absolute path."""
        value = getattr(self, name)
        return value.rstrip("/") if value.startswith(("s3://", "s3a://")) else self.path(name)


@dataclass(frozen=True)
class SetupSettings(Settings):
    """Parameters of 00_setup."""

    task_settings: str = parameter(
        "", "A description of the DMS task, as `aws dms describe-replication-tasks` prints it."
    )
    statistics: str = parameter("", "The task's table statistics, as `aws dms describe-table-statistics` prints them.")


@dataclass(frozen=True)
class FullLoadSettings(Settings):
    """Parameters of 01_full_load."""

    on_changed_load: str = parameter(
        "refuse",
        "When the load files are not those that were applied: `refuse`; `reload` (DMS loaded again: the new load holds all "
        "changes applied so far); `replay` (files came late or changed: load again, then apply every change file again).",
    )

    old_load_files: str = parameter(
        "refuse",
        "Load files that were not written with the others, as an older load leaves them: `refuse`, or `accept` them as a part of this load.",
    )

    stream_start: str = parameter(
        "",
        "Where a table begins in a stream: `earliest` (the trim horizon), `latest`, a time such as `2026-01-31T12:00:00Z`, or "
        'offsets as JSON `{"topic/0": 17}`. Needed once; from then on the table knows.',
    )
    load_over: str = parameter(
        "changes",
        "What says that a table's load is whole in a stream: `changes` (one lies behind all its load records: DMS sends "
        "them after the load), `declared` (you do), or a JSON file, as `aws dms describe-table-statistics` prints it.",
    )


@dataclass(frozen=True)
class CdcMergeSettings(Settings):
    """Parameters of 02_cdc_merge."""

    max_batch_messages: int = parameter(200_000, "Of a stream, a pass reads at most this many messages, of all tables.")

    max_batch_mb: int = parameter(256, "A batch takes change files until they hold this much.")
    max_batch_files: int = parameter(500, "A batch takes at most this many change files.")
    lane: str = parameter(
        "merge",
        "How batches are written: `merge`, `rowdelta` (by key index), or `auto`: what is expected to be faster.",
    )
    rowdelta_max_mb: int = parameter(
        64,
        "Batches with more MB of changes than this, unpacked, go to a MERGE: a row delta holds them in the driver's memory.",
    )
    index_limit_mb: int = parameter(
        2048, "MB that the key index of a table may take; for a larger one rows are located by a join."
    )
    fold_after: int = parameter(
        16, "So many small row deltas of a table are rewritten as one file, in a commit of its own; 0: never."
    )
    max_batches: int = parameter(0, "Stop after this many batches per table; 0: go on until nothing is pending.")
    run_for_s: float = parameter(
        0.0, "Go on looking for new change files for this many seconds (`inf`: until stopped); 0: one pass."
    )
    trigger_s: float = parameter(3.0, "With `run_for_s`: look again every so many seconds; 0: back to back.")
    full_listing_every: int = parameter(
        100,
        "Each so manyth look at a table lists all its files, and tells which vanished, were written again or turned up late; 0: never.",
    )
    late_files: str = parameter(
        "refuse",
        "Change files that were never applied and are named before the position: `refuse`; `after`: apply them after the last batch "
        "(DMS's clock went back), unless their commit times say that they came late.",
    )
    go_on_without: list[str] = parameter(
        [], "Names of change files that vanished before they were applied: their changes are given up."
    )
    quarantine: str = parameter(
        "show",
        "What to do with rows that wait in the quarantine, before anything is merged: `show` what a replay would do; `replay` "
        "them; `discard` them.",
    )
    check_source: bool = parameter(False, "Compare each table with the source database (environment: FRAZIL_SOURCE_*).")


@dataclass(frozen=True)
class MaintenanceSettings(Settings):
    """Parameters of 03_maintenance."""

    dry_run: bool = parameter(
        None,
        "Show the plan and change nothing; left out: yes in a notebook that somebody looks at, no in a run unattended.",
    )
    small_file_mb: int = parameter(32, "A data file below this size counts as small.")
    max_small_files: int = parameter(5, "Compact when more small files than this lie in a table.")
    max_deleted_share: float = parameter(0.1, "Compact when this share of the rows in data files is deleted.")
    target_file_mb: int = parameter(128, "Size that compaction aims at.")
    keep_hours: float = parameter(24.0, "Expire snapshots older than this; tags, branches and the current one stay.")
    min_snapshots: int = parameter(10, "Keep at least this many snapshots.")
    max_manifests: int = parameter(20, "Rewrite manifests when there are more than this.")
    sort_by: list[str] = parameter([], "Columns that compaction sorts each slice by; empty: rows stay as they lie.")
    z_order: bool = parameter(
        False, "Sort by the interleaved bits of `sort_by` (z-order) instead of one after the other."
    )
    slice_files: int = parameter(200, "A slice of compaction takes at most this many files.")
    slice_attempts: int = parameter(3, "A slice that loses this many races against ingestion waits for the next run.")
    yield_s: float = parameter(
        30.0, "Compaction waits this long for a batch that is being written; one that takes longer wins the race."
    )
    nice: int = parameter(
        10,
        "Priority of a run with a Spark of its own, from its start on, as the command `nice` has it, so that ingestion on the same "
        "machine comes first; 0: the same as others; 19, the lowest, may get no CPU at all. A dry run keeps the usual one.",
    )
    max_run_s: float = parameter(600.0, "A run begins no further slice of a table after this many seconds.")
    max_run_mb: int = parameter(10_240, "A run rewrites at most this much of a table, but at least one slice.")
    hourly_tags: int = parameter(
        24, "Keep the state at each full hour (UTC) for this many hours, as a tag; 0: no tags."
    )
    daily_tags: int = parameter(14, "Keep the state at midnight (UTC) for this many days, as a tag; 0: no tags.")
    orphan_days: float = parameter(
        0.0, "Remove files that no snapshot knows, if older than this, at least 3 days; 0: do not look for them."
    )
    statistics: bool = parameter(False, "Compute column statistics (distinct values) after a compaction.")
    quarantine_days: float = parameter(
        30.0,
        "Rows set aside that were replayed, discarded or became obsolete are removed so many days later; 0: never. Keep them "
        "longer than you would roll a table back.",
    )
    managed_by: str = parameter(
        "",
        "Platform that maintains the tables itself (`s3tables`, `glue` …): nothing is done then. S3 Tables is detected.",
    )

    @property
    def only_plans(self) -> bool:
        """Whether nothing shall be done: as `dry_run` says, else in a notebook that a Jupyter server runs for somebody."""
        return "JPY_SESSION_NAME" in os.environ if self.dry_run is None else self.dry_run


@dataclass(frozen=True)
class LatencySettings(Settings):
    """Parameters of 04_latency."""

    hours: float = parameter(24.0, "Look at commits of the last hours; 0: at all that the snapshots still tell of.")
    trigger_s: float = parameter(
        None, "Seconds between two looks for files, for the advice; left out: as the commits show it."
    )
    worker_vcpu: float = parameter(4.0, "vCPUs of the present worker, for the cost in the advice.")
    worker_gb: float = parameter(16.0, "Memory of the present worker, for the cost in the advice.")
    prices: dict[str, str] = parameter(
        {
            "as_of": "2025-11, us-east-1: check them",
            "vcpu_hour": "0.052624",
            "gb_hour": "0.0057785",
            "put_1000": "0.005",
            "get_1000": "0.0004",
            "puts_commit": "7",
            "gets_commit": "20",
            "start_s": "60",
        },
        "What the advice reckons with, in dollars: EMR Serverless per vCPU and GB hour, S3 per 1,000 requests, requests of a commit, a job's start.",
    )


@dataclass(frozen=True)
class ExploreSettings(Settings):
    """Parameters of 05_explore, which only reads."""

    read_only: ClassVar[bool] = True

    table: str = parameter("", "The source table to look at closely; empty: the first that holds rows.")
    key: list[str] = parameter(
        [], "The key to tell the history of, its values as texts; empty: one of the newest rows."
    )
    since: str = parameter("oldest", "Compare the state at this time (UTC), snapshot or tag, or the `oldest` kept …")
    until: str = parameter("newest", "… with this one.")
    as_of: str = parameter("", "Show all tables as the source had them at this time (UTC); empty: now.")
    hours: float = parameter(24.0, "Latency of commits of the last hours; 0: of all that the snapshots still tell of.")


@dataclass(frozen=True)
class OperateSettings(Settings):
    """What the `frazil` command takes from the environment file."""

    notebooks: str = parameter(
        "",
        "Folder that `frazil run` takes notebooks from; empty: `notebooks/` beside `params/`, else those installed with Frazil.",
    )
    timeout_s: float = parameter(0.0, "`frazil run` stops a run after so many seconds; 0: never.")
    keep_runs: int = parameter(500, "So many run folders are kept, the newest.")
    max_lag_s: float = parameter(900.0, "`frazil check`: a pending change file may wait so many seconds.")
    table_max_lag_s: dict[str, str] = parameter({}, "The same for single tables: `schema.table: seconds`.")
    max_run_age_s: float = parameter(
        3600.0, "`frazil check`: the last run of 02_cdc_merge that ended well may be so old."
    )
    max_quarantined: int = parameter(0, "`frazil check`: so many rows may lie in `ops.quarantine`.")
    on_trouble: str = parameter(
        "", "A shell command for failed runs and breaches; it gets the facts as JSON on its input."
    )
    webhook: str = parameter("", "An address that gets the same as a POST.")


NOTEBOOKS: dict[str, type[Settings]] = {
    "setup": SetupSettings,
    "full_load": FullLoadSettings,
    "cdc_merge": CdcMergeSettings,
    "maintenance": MaintenanceSettings,
    "latency": LatencySettings,
    "explore": ExploreSettings,
    "operate": OperateSettings,
}


GIVEN = "FRAZIL_GIVEN"
"""The environment variable by which `frazil run` hands on parameters that may hold a credential, as JSON."""
CHOICES = {
    "on_changed_load": ("refuse", "reload", "replay"),
    "old_load_files": ("refuse", "accept"),
    "late_files": ("refuse", "after"),
    "on_bad_rows": ("stop", "quarantine"),
    "on_unreadable": ("stop", "quarantine", "report"),
    "lane": ("auto", "merge", "rowdelta"),
    "quarantine": ("show", "replay", "discard"),
    "unknown_tables": ("ignore", "create", "stop"),
    "without_key": WITHOUT_KEY,
}


def find_params() -> Path:
    """Return the folder with the environment files: FRAZIL_PARAMS, else `params/` upwards from the working directory."""
    if named := os.environ.get("FRAZIL_PARAMS"):
        if not Path(named).is_dir():
            raise ParameterError(f"FRAZIL_PARAMS names no folder: {named}", "correct or unset it")
        return Path(named).absolute()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "params").is_dir():
            return folder / "params"
    raise ParameterError(
        f"no params/ folder at or above {here}", "set FRAZIL_PARAMS to the folder of environment files"
    )


def yaml_fault(error: yaml.YAMLError) -> str:
    """Return what is wrong with a YAML text and where, without the line itself: it may hold a credential."""
    mark = getattr(error, "problem_mark", None)
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{getattr(error, 'problem', None) or type(error).__name__}{place}"


def _environment(env: str) -> tuple[Path, dict[str, dict]]:
    file = find_params() / f"{env}.yml"
    if not file.is_file():
        known = [f.stem for f in file.parent.glob("*.yml")]
        raise ParameterError(f"no environment file {file}", nearest(env, known))
    try:
        sections = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as e:
        raise ParameterError(f"{file}: not YAML: {yaml_fault(e)}", "mend the file") from None
    if not isinstance(sections, dict) or not all(isinstance(s or {}, dict) for s in sections.values()):
        raise ParameterError(f"{file}: its sections are not all `name: value`", "see params/demo.yml: `common:`, below it `source: …`")  # fmt: skip
    known = ["common", *NOTEBOOKS]
    for name, section in sections.items():
        if name not in known:
            raise ParameterError(f"{file}: unknown section '{name}'", nearest(name, known))
        allowed = {f.name for f in fields(NOTEBOOKS.get(name, Settings))} - {"env"}
        for key in section or {}:
            if key not in allowed:
                raise ParameterError(f"{file}: unknown parameter '{key}' in section '{name}'", nearest(key, allowed))
    return file, sections


def _checked(name: str, value: Any, kind: Any, where: str) -> Any:
    """Return the value if it is of the parameter's type (an int also serves as a float, and the text inf); else raise."""
    base = get_origin(kind) or kind
    if base is float and (type(value) is int or value == "inf"):  # YAML has inf as a text
        return float(value)
    good = type(value) is base
    if good and base is list:
        good = all(type(v) is get_args(kind)[0] for v in value)
    if good and base is dict:
        return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}
    if not good:
        wanted = getattr(kind, "__name__", str(kind)) if base is kind else str(kind)
        listed = [str(v) for v in (value if isinstance(value, list) else [value])]
        cure = f"write {listed}" if kind == list[str] else "correct the value"
        given = f" = {redaction.shown(name, value)!r}" if base is not dict else ""  # of options it may be a credential
        raise ParameterError(f"parameter '{name}'{given} from {where} is not of type {wanted}", cure)
    return value


_PLAIN = (str, int, float, bool, list, dict, tuple, type(None))
_INTERPRETER = {"In", "Out", "exit", "quit", "spark", "sc"}


def _cell_values(cell: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """Return the cell's parameters that are set; refuse a plain variable that is no parameter.

    In a kernel that has been resolved once, later cells may have left variables behind: there only near misses are refused.
    What a cell assigned before its text was changed does not count (`cells`).
    """
    import difflib

    found, again = {}, "_frazil_resolved" in cell
    for name, value in cells.parameters(cell).items():
        if name.startswith("_") or name in _INTERPRETER or not isinstance(value, _PLAIN):
            continue
        if name in known:
            if value is not None:
                found[name] = value
        elif not again or difflib.get_close_matches(name, list(known), n=1, cutoff=0.75):
            raise ParameterError(f"unknown parameter '{name}'", nearest(name, known))
    return found


@dataclass(frozen=True)
class Resolved:
    """Typed settings, and where each value came from."""

    settings: Any
    origin: dict[str, str]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per parameter: its value (secrets hidden) and where it comes from."""
        values = {f.name: redaction.shown(f.name, getattr(self.settings, f.name)) for f in fields(self.settings)}
        return [{"parameter": n, "value": v, "from": self.origin[n]} for n, v in values.items()]


def resolve(notebook: str, cell: dict[str, Any]) -> Resolved:
    """Return the notebook's typed settings from its cell (`globals()`), its environment file and the defaults.

    What the cell sets wins over the notebook's section of the file, that over `common`, that over the default. Raises
    ParameterError, which names the parameter and the nearest right one.
    """
    cls = NOTEBOOKS[notebook]
    hints, known = get_type_hints(cls), {f.name for f in fields(cls)}
    found = _cell_values(cell, known)
    env = _checked("env", found.get("env", cls.env), str, "the notebook's cell")
    file, sections = _environment(env)
    values, origin = {"root": str(file.parent.parent)}, {"root": "the folder that holds params/"}
    for where, given in (
        (f"{file.name}: common", sections.get("common")),
        (f"{file.name}: {notebook}", sections.get(notebook)),
        ("the notebook's cell", found),
        ("the command", json.loads(os.environ.get(GIVEN, "{}"))),
    ):
        for name, value in (given or {}).items():
            values[name], origin[name] = _checked(name, value, hints[name], where), where
    settings = cls(**values)
    for name, known in CHOICES.items():
        if (value := getattr(settings, name, known[0])) not in known:
            raise ParameterError(f"{name} = '{value}'", f"write {', '.join(known[:-1])} or {known[-1]}")
    if settings.parallel_tables < 1:
        raise ParameterError(f"parallel_tables = {settings.parallel_tables}", "write 1 or more")
    redaction.hide_credentials(settings)
    cell["_frazil_resolved"] = types.MappingProxyType(origin)
    return Resolved(settings, {f.name: origin.get(f.name, "default") for f in fields(cls)})
