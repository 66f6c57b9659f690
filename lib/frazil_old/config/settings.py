"""The parameters of the notebooks: one dataclass each, resolved from the notebook's cell, the environment file and the defaults."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from frazil_old.config import cell_parameters, environment_file, redaction
from frazil_old.config.environment_file import RENAMED, RETIRED, ParameterError, earlier_names, up_to_date
from frazil_old.config.policies import ON_BAD_ROWS, POLICIES, WITHOUT_KEY
from frazil_old.errors import nearest

cell_parameters.follow()  # the cell of parameters runs after the one that imports this module


def parameter(default: Any, help: str, choices: Any = (), least: int = 0) -> Any:
    """Declare a parameter: its default and help; the values that it may have, or for options {name: values}; the smallest number."""
    declared = {"help": help, "choices": choices, "least": least}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=declared)
    return field(default=default, metadata=declared)


@dataclass(frozen=True)
class Settings:
    """The parameters that every notebook needs to open the same lake. Relative paths start at the folder that holds `params/`."""

    read_only: ClassVar[bool] = False
    nice: ClassVar[int] = 0
    only_plans: ClassVar[bool] = False
    env: str = parameter("demo", "Name of the environment file: `params/<env>.yml`.")
    source: str = parameter(
        "",
        "Folder that DMS writes to, local or `s3://bucket/folder`: the one that holds `<schema>/<table>/`. Or the "
        "stream: `kafka://host:port,host:port/topic,topic` or `kinesis://region/stream,stream`.",
    )
    endpoint: str = parameter(
        "",
        "JSON file with the settings of the S3, Kafka or Kinesis target, as `aws dms describe-endpoints` prints them.",
    )
    mappings: str = parameter("", "JSON file with the task's table mappings; empty: no transformation rules.")
    specs: str = parameter("", "Folder with one YAML table spec per table.")
    tables: list[str] = parameter([], "Source tables to process, as `schema.table`; empty: all that have a spec.")
    without_spec: list[str] = parameter(
        [],
        "Source tables that need no spec, as `schema.table` with `%` for any text. `frazil plan` and `frazil check` "
        "do not report the data in their folders.",
    )
    catalog: str = parameter("lake", "Name of the Iceberg catalog in Spark.")
    catalog_options: dict[str, str] = parameter(
        {}, "Options of the Iceberg catalog, as in `spark.sql.catalog.<name>.*`: type, uri, warehouse …"
    )
    query_engines: list[str] = parameter(
        [],
        "Engines that read the tables, some with a version: `trino>=483`. If one cannot read format v3, new tables are v2.",
    )
    on_unreadable: str = parameter(
        "stop",
        "What to do with stream messages that name no table (such as invalid JSON). `stop` the tables they may "
        "belong to, `quarantine` them once, or `report` and skip them. `max_bad_rows` and `max_bad_percent` limit "
        "quarantining, per read.",
        choices=("stop", "quarantine", "report"),
    )
    unknown_tables: str = parameter(
        "ignore",
        "What to do with stream messages for tables without a spec: `ignore` (count, name and skip them), `stop`, or "
        "`create`. `create` makes spec and table from DMS's control record.",
        choices=("ignore", "create", "stop"),
    )
    without_key: str = parameter(
        "refuse",
        "How changes apply to a table without a primary key that `unknown_tables: create` finds: `refuse` (do not "
        "create it), `append` or `multiset`. Frazil writes the choice to the table's spec.",
        choices=WITHOUT_KEY,
    )
    changes: dict[str, str] = parameter(
        {},
        "What to do when a table's columns change, unless its spec says so: `new: refuse|add|ignore`, `gone: "
        "refuse|keep|drop`, `type: refuse|beside`, `key: refuse|keep`. The first of each is the default.",
        choices=POLICIES,
    )
    follow_source: bool = parameter(
        False, "Read each table's present columns from the source's catalog, over JDBC (environment: FRAZIL_SOURCE_*)."
    )
    on_bad_rows: str = parameter(
        "stop",
        "What to do with rows that do not fit: `stop` their table, or `quarantine` them and go on. A spec may "
        "override this and the two limits.",
        choices=ON_BAD_ROWS,
    )
    max_bad_rows: int = parameter(10_000, "Maximum number of bad rows per batch or load; above it the table stops.")
    max_bad_percent: float = parameter(
        100.0, "Maximum percentage of bad rows per batch or load; above it the table stops."
    )
    parallel_tables: int = parameter(2, "Number of tables to process at the same time.", least=1)
    spark_options: dict[str, str] = parameter(
        {}, "Spark settings for a session that Frazil builds. `spark.jars.packages` adds to Frazil's own jars."
    )
    ops_namespace: str = parameter(
        "ops", "Namespace in the catalog of the tables `commits`, `maintenance` and `quarantine`."
    )
    file_group: str = parameter(
        "", "Unix group that may read `runs` and the files of a local lake; empty: only the user who runs Frazil."
    )
    runs: str = parameter("runs", "Folder for logs and reports; each environment has its own folder in it.")
    root: str = parameter("", "Folder that relative paths start from; empty: the one that holds `params/`.")

    def path(self, name: str) -> Path:
        """Return the absolute path of a file or folder parameter; raise ParameterError if it is empty or a URL."""
        value = getattr(self, name)
        if not value:
            raise ParameterError(f"parameter '{name}' is empty", f"set it in params/{self.env}.yml")
        if "://" in value:
            raise ParameterError(f"parameter '{name}' = '{value}'", "name a local file or folder")
        return environment_file.file_at(self.root, value).absolute()

    @property
    def is_stream(self) -> bool:
        """Whether the source is a stream and not a folder of files."""
        return self.source.startswith(("kafka://", "kinesis://"))

    @property
    def catalog_kind(self) -> str:
        """The type of the catalog, such as `jdbc`, `rest`, `glue` or `s3tables`, even if a class names it."""
        named = self.catalog_options.get("type") or self.catalog_options.get("catalog-impl", "")
        return named.rsplit(".", 1)[-1].lower().removesuffix("catalog")

    def location(self, name: str) -> Path | str:
        """Return the location of a folder that may be on S3: its URL as text, else the absolute path."""
        value = getattr(self, name)
        return value.rstrip("/") if value.startswith(("s3://", "s3a://")) else self.path(name)


@dataclass(frozen=True)
class SetupSettings(Settings):
    """Parameters of 00_setup."""

    statistics: str = parameter("", "Table statistics of the task, as `aws dms describe-table-statistics` prints them.")


@dataclass(frozen=True)
class FullLoadSettings(Settings):
    """Parameters of 01_full_load."""

    on_changed_load: str = parameter(
        "refuse",
        "What to do when the load files differ from those applied: `refuse`, `reload` or `replay`. `reload`: DMS "
        "loaded again, and the new load holds all changes applied so far. `replay`: files came late or changed, so "
        "load again, then apply every change file again.",
        choices=("refuse", "reload", "replay"),
    )

    old_load_files: str = parameter(
        "refuse",
        "What to do with load files that were not written with the others: `refuse`, or `accept` them as part of "
        "this load. They are often of an older load.",
        choices=("refuse", "accept"),
    )

    stream_start: str = parameter(
        "",
        "Where to start reading a table's stream: `earliest` (the trim horizon), `latest`, a time such as "
        '`2026-01-31T12:00:00Z`, or offsets as JSON `{"topic/0": 17}`. Needed once per table; later runs start at '
        "its position.",
    )
    load_complete_when: str = parameter(
        "changes",
        "How to recognise that a table's full load is complete: `changes`, `declared`, `dms:` and the ARN of the task, "
        "or a JSON file. `changes`: in a stream, a change arrived after the last load record; files are taken as they "
        "are. `declared`: you say so. `dms:`: ask DMS for the tables' statistics. A file: as `aws dms "
        "describe-table-statistics` prints it.",
    )


@dataclass(frozen=True)
class CdcMergeSettings(Settings):
    """Parameters of 02_cdc_merge."""

    max_batch_messages: int = parameter(
        200_000, "Maximum number of stream messages to read per pass, across all tables.", least=1
    )

    max_batch_mb: int = parameter(256, "Maximum size of a batch's change files, in MB.", least=1)
    max_batch_files: int = parameter(500, "Maximum number of change files per batch.", least=1)
    lane: str = parameter(
        "auto",
        "How to write batches. `merge` is one MERGE INTO. Row deltas find old rows by key index (`rowdelta`) or by a scan of the "
        "keys (`scan`). `auto` takes what it expects to be faster.",
        choices=("auto", "merge", "rowdelta", "scan"),
    )
    index_limit_mb: int = parameter(
        2048, "Maximum size of a table's key index on disk, in MB; above it, a scan of the keys finds the rows."
    )
    max_batches: int = parameter(0, "Stop after this many batches per table; 0: go on until nothing is pending.")
    run_for_s: float = parameter(
        0.0, "Keep polling for new change files for this many seconds (`inf`: until stopped); 0: one pass."
    )
    trigger_s: float = parameter(3.0, "Seconds between two polls with `run_for_s`; 0: no pause.")
    idle_s: float = parameter(
        0.0, "With `run_for_s`: end earlier, after this many seconds in which nothing was applied; 0: off."
    )
    late_files: str = parameter(
        "refuse",
        "What to do with unapplied change files whose names are before the position: `refuse` or `after`. `after` "
        "applies them after the last batch (DMS's clock went back), unless their commit times show that they came "
        "late.",
        choices=("refuse", "after"),
    )
    go_on_without: list[str] = parameter(
        [], "Names of change files that vanished before they were applied: go on without them and lose their changes."
    )
    quarantine: str = parameter(
        "show",
        "What to do with rows that wait in the quarantine, before the merge: `show` what a replay would do, `replay` "
        "them, or `discard` them.",
        choices=("show", "replay", "discard"),
    )
    check_source: bool = parameter(False, "Compare each table with the source database (environment: FRAZIL_SOURCE_*).")


@dataclass(frozen=True)
class PlannedSettings(Settings):
    """Parameters of notebooks that show a plan before they carry it out."""

    dry_run: bool = parameter(
        None, "Only show the plan and change nothing. Default: true in an interactive notebook, false otherwise."
    )

    @property
    def only_plans(self) -> bool:
        """Whether to change nothing: the value of `dry_run`, else true in a notebook under a Jupyter server."""
        return "JPY_SESSION_NAME" in os.environ if self.dry_run is None else self.dry_run


@dataclass(frozen=True)
class WarehousesSettings(PlannedSettings):
    """Parameters of 06_warehouses. The section `warehouses` of an environment file has warehouses, and no parameters."""


@dataclass(frozen=True)
class MaintenanceSettings(PlannedSettings):
    """Parameters of 03_maintenance."""

    nice: ClassVar[int] = 10
    max_small_files: int = parameter(5, "Compact a table that has more small files than this, some in one partition.")
    max_deleted_share: float = parameter(
        0.1, "Compact a table when more than this share of the rows in its data files is deleted."
    )
    target_file_mb: int = parameter(
        128,
        "Target size in MB of the files that compaction writes. A file below a quarter of it counts as small.",
        least=1,
    )
    keep_hours: float = parameter(
        24.0, "Expire snapshots older than this many hours; tags, branches and the current snapshot stay."
    )
    max_run_s: float = parameter(600.0, "Start no further file group of a table after this many seconds.")
    hourly_tags: int = parameter(24, "Number of hours to keep a tag of the state at each full hour (UTC); 0 = off.")
    daily_tags: int = parameter(14, "Number of days to keep a tag of the state at midnight (UTC); 0 = off.")
    orphan_days: float = parameter(0.0, "Delete orphan files older than this many days (minimum 3); 0 = off.")
    managed_by: str = parameter(
        "",
        "Platform that maintains the tables itself (`s3tables`, `glue` …): the notebook then does nothing. S3 Tables "
        "is detected.",
    )

    @property
    def small_file_mb(self) -> float:
        """The size in MB below which a data file counts as small."""
        return self.target_file_mb / 4


PRICES = {
    "as_of": "2025-11, us-east-1: check them",
    "vcpu_hour": "0.052624",
    "gb_hour": "0.0057785",
    "put_1000": "0.005",
    "get_1000": "0.0004",
    "transition_1000": "0.025",
    "puts_commit": "7",
    "gets_commit": "20",
    "start_s": "60",
    "worker_vcpu": "4",
    "worker_gb": "16",
}
"""The default of `prices`, and of each entry that a user leaves out."""


@dataclass(frozen=True)
class LatencySettings(Settings):
    """Parameters of 04_latency."""

    hours: float = parameter(24.0, "Look at the commits of the last hours; 0: at all commits in the kept snapshots.")
    trigger_s: float = parameter(
        None, "Seconds between two polls for files, for the advice; left out: estimated from the commits."
    )
    prices: dict[str, str] = parameter(
        PRICES,
        "Prices for the advice, in dollars: EMR Serverless per vCPU and GB hour, S3 per 1,000 requests, Step "
        "Functions per 1,000 transitions. Also the requests of a commit, the seconds of a job's start, and the present "
        "worker's vCPUs and GB. Entries that are left out have their defaults.",
    )

    def price(self, name: str) -> float:
        """Return an entry of `prices` as a number, or its default."""
        return float({**PRICES, **self.prices}[name])

    @property
    def prices_of(self) -> str:
        """The date of the prices; unknown if some are the user's own without a date."""
        dated = ("vcpu_hour", "gb_hour", "put_1000", "get_1000", "transition_1000")
        own = any(self.prices.get(n, PRICES[n]) != PRICES[n] for n in dated)
        return self.prices.get("as_of", "an unknown date" if own else PRICES["as_of"])


@dataclass(frozen=True)
class ExploreSettings(Settings):
    """Parameters of 05_explore, which only reads."""

    read_only: ClassVar[bool] = True

    table: str = parameter("", "The source table to look at closely; empty: the first that has rows.")
    key: list[str] = parameter([], "Key whose history to show, its values as texts; empty: one of the newest rows.")
    since: str = parameter(
        "recent",
        "Start of the comparison: a time (UTC), snapshot or tag, the `oldest` kept state, or `recent`: the last load if it is "
        "of the last day, else a day ago.",
    )
    until: str = parameter("newest", "End of the comparison: a time (UTC), snapshot or tag, or the `newest` state.")
    as_of: str = parameter("", "Show all tables as they were in the source at this time (UTC); empty: now.")
    hours: float = parameter(
        24.0, "Show the latency of commits of the last hours; 0: of all commits in the kept snapshots."
    )


@dataclass(frozen=True)
class OperateSettings(Settings):
    """Parameters of the `frazil` command."""

    notebooks: str = parameter(
        "",
        "Folder of the notebooks for `frazil run`; empty: `notebooks/` next to `params/`, else those installed with "
        "Frazil.",
    )
    timeout_s: float = parameter(0.0, "Stop a `frazil run` after this many seconds; 0 = off.")
    max_lag_s: float = parameter(
        900.0, "Alert (`frazil check`) if a pending change file has waited longer than this many seconds."
    )
    table_max_lag_s: dict[str, str] = parameter({}, "Value of `max_lag_s` for single tables: `schema.table: seconds`.")
    max_run_age_s: float = parameter(
        3600.0, "Alert (`frazil check`) if the last successful run of 02_cdc_merge is older than this many seconds."
    )
    max_quarantined: int = parameter(0, "Alert (`frazil check`) if more rows than this wait in `ops.quarantine`.")
    on_trouble: str = parameter(
        "", "Shell command to run on failed runs and breached limits; it gets the facts as JSON on its standard input."
    )
    webhook: str = parameter(
        "",
        "URL that gets the facts of `on_trouble` as a POST; Slack, Teams and PagerDuty (`…/enqueue?routing_key=…`) get "
        "messages of their own.",
    )
    metrics_file: str = parameter(
        "",
        "File for Prometheus's textfile collector, with a name `….prom` of its own for each environment; empty: none. "
        "`frazil run` and `frazil check` write it.",
    )


@dataclass(frozen=True)
class AwsSettings(Settings):
    """Parameters of `frazil aws`, which deploys the pipeline of an environment."""

    region: str = parameter("", "AWS region of the deployment, and of its buckets.")
    artifacts: str = parameter(
        "", "Folder `s3://bucket/folder` for archives, and for the executed notebooks and records of runs."
    )
    replication_task: str = parameter(
        "", "ARN of the DMS task whose full load the pipeline waits for; empty: it does not wait."
    )
    engine: str = parameter(
        "emr-serverless",
        "What runs the jobs: `emr-serverless`, `glue`, or `emr-steps`, steps of an EMR cluster that exists.",
        choices=("emr-serverless", "glue", "emr-steps"),
    )
    application: str = parameter("", "Id of an EMR Serverless application to use; empty: `frazil aws up` makes one.")
    cluster: str = parameter("", "Id of the cluster for `emr-steps`.")
    release: str = parameter(
        "", "Release of EMR for a new application, or of Glue; left out: `emr-7.12.0`, or `5.1` of Glue."
    )
    full_load_workers: int = parameter(4, "Number of Glue workers (G.1X: 4 vCPUs, 16 GB) for the full load.", least=2)
    changes_workers: int = parameter(2, "Number of Glue workers (G.1X) for setup and changes.", least=2)
    max_vcpu: int = parameter(32, "Maximum number of vCPUs that a new application may use at the same time.", least=4)
    full_load_spark: str = parameter(
        "--conf spark.driver.cores=4 --conf spark.driver.memory=14g --conf spark.executor.cores=4 "
        "--conf spark.executor.memory=14g --conf spark.dynamicAllocation.maxExecutors=3",
        "Options of spark-submit for the full load.",
    )
    changes_spark: str = parameter(
        "--conf spark.driver.cores=2 --conf spark.driver.memory=6g --conf spark.executor.cores=2 "
        "--conf spark.executor.memory=6g --conf spark.dynamicAllocation.maxExecutors=2",
        "Options of spark-submit for setup and changes.",
    )
    wait_s: int = parameter(30, "Seconds between two looks at the queue.", least=5)
    keep_running: bool = parameter(True, "Start the pipeline every hour if it does not run.")
    alarm_topic: str = parameter("", "ARN of an SNS topic that hears of failed executions; empty: none.")
    source_secret: str = parameter(
        "", "ARN of the secret with the source database's login, which jobs may read; empty: none."
    )


NOTEBOOKS: dict[str, type[Settings]] = {
    "setup": SetupSettings,
    "full_load": FullLoadSettings,
    "cdc_merge": CdcMergeSettings,
    "maintenance": MaintenanceSettings,
    "latency": LatencySettings,
    "explore": ExploreSettings,
    "warehouses": WarehousesSettings,
    "operate": OperateSettings,
    "aws": AwsSettings,
}
SECTIONS: dict[str, type[Settings]] = {"common": Settings, **NOTEBOOKS}
"""The parameters of each section of an environment file."""

GIVEN = "FRAZIL_GIVEN"
"""The environment variable in which `frazil run` passes on parameters that may hold a credential, as JSON."""


@dataclass(frozen=True)
class Resolved:
    """Typed settings, and where each value came from."""

    settings: Any
    origin: dict[str, str]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per parameter: its value (secrets hidden) and where it comes from."""
        values = {f.name: redaction.shown(f.name, getattr(self.settings, f.name)) for f in fields(self.settings)}
        return [{"parameter": n, "value": v, "from": self.origin[n]} for n, v in values.items()]


CATALOGS = {
    "jdbc": ("uri", "warehouse"),
    "rest": ("uri",),
    "glue": (),
    "hive": (),
    "hadoop": ("warehouse",),
    "nessie": ("uri", "warehouse"),
}
"""The types of Iceberg's catalogs, and the options that each needs."""


def _require_whole_catalog(options: dict[str, str], where: str) -> None:
    """Raise ParameterError if a catalog's options lack its type, or what a catalog of that type needs."""
    if not options or "catalog-impl" in options:
        return
    kind = options.get("type", "").lower()
    if kind and kind not in CATALOGS:
        raise ParameterError(f"{where}: catalog_options: unknown type '{kind}'", nearest(kind, CATALOGS))
    if missing := [name for name in ("type", *CATALOGS.get(kind, ())) if not options.get(name)]:
        close = difflib.get_close_matches(missing[0], options, n=1, cutoff=0.6)
        instead = f" instead of '{close[0]}'" if close else ", as the environment file in params/README.md has it"
        raise ParameterError(f"{where}: catalog_options has no '{missing[0]}'", f"write it{instead}")


def resolve(notebook: str, cell: dict[str, Any]) -> Resolved:
    """Return the notebook's typed settings from its cell (`globals()`), its environment file and the defaults.

    The cell wins over the notebook's section of the file, the section over `common`, and `common` over the default.
    Raise ParameterError for an unknown parameter, with the nearest known one.
    """
    from frazil_old.config.parameter_models import model_of
    from frazil_old.config.validation import checked

    def typed(given: dict[str, Any], where: str) -> dict[str, Any]:
        return checked(model_of(cls), up_to_date(notebook, given, where), where, ParameterError).given()

    cls, here, command = NOTEBOOKS[notebook], "the notebook's cell", "the command"
    earlier = {name for table in (RETIRED, RENAMED) for name in earlier_names(table, notebook)}
    elsewhere = {f.name: section for section, of in SECTIONS.items() for f in fields(of)}
    found = typed(cell_parameters.stated(cell, {f.name for f in fields(cls)}, earlier, elsewhere), here)
    file, sections = environment_file.read(found.get("env", cls.env), SECTIONS)
    values, origin = {"root": str(environment_file.root_of(file.parent))}, {"root": "the folder that holds params/"}
    for where, given in (
        (f"{file.name}: common", sections.get("common", {})),
        (f"{file.name}: {notebook}", sections.get(notebook, {})),
        (here, found),
        (command, typed(json.loads(os.environ.get(GIVEN, "{}")), command)),
    ):
        values |= given
        origin |= dict.fromkeys(given, where)
    settings = cls(**values)
    redaction.hide_credentials(settings)
    _require_whole_catalog(settings.catalog_options, origin.get("catalog_options", ""))
    cell[cell_parameters.RESOLVED] = True
    return Resolved(settings, {f.name: origin.get(f.name, "default") for f in fields(cls)})
