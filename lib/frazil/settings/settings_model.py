"""The settings of an environment: one flat model. A line here is a setting: its name, type, default and meaning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from frazil.errors import FrazilError, nearest
from frazil.results import Shown
from frazil.settings.secrets import expanded, is_secret, refuse_secrets
from frazil.settings.yaml_files import Entries, Fault

if TYPE_CHECKING:
    import pandas as pd


class SettingError(FrazilError, code="setting"):
    """A setting is unknown, misspelt, of the wrong type or missing. Correct the line that the message names."""


Options = dict[str, Annotated[str, BeforeValidator(lambda v: str(v).lower() if isinstance(v, int) else v)]]
"""Options that are handed on as texts; YAML's `true` is `"true"`."""
NotNegative = Annotated[float, Field(ge=0, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
AtLeastOne = Annotated[int, Field(ge=1, strict=True)]
Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
"""Names; a single one needs no list."""
Decision = Literal["restart", "accept", "stop", "resume", "replay", "discard", "adopt"]
CATALOGS = {"jdbc": ("uri", "warehouse"), "rest": ("uri",), "glue": (), "hive": (), "hadoop": ("warehouse",), "nessie": ("uri", "warehouse")}  # fmt: skip
"""The types of Iceberg's catalogs, with the options that each needs."""
SQLITE = "jdbc:sqlite:"
READS_NO_V3 = {"athena"}
"""The engines that read no format v3 (November 2026)."""


class Changes(Entries):
    """What to do when a table's columns change."""

    new: Literal["refuse", "add", "ignore"] = "refuse"
    """Files carry a column that the spec lacks: stop, `add` it, or `ignore` it."""
    gone: Literal["refuse", "keep", "drop"] = "refuse"
    """The spec lists a column no longer: stop, `keep` it with its values, or `drop` it."""
    type: Literal["refuse", "beside"] = "refuse"
    """No promotion leads to the spec's type: stop, or keep the old column and add a new one `beside` it."""


class Warehouse(Entries):
    """A reader of the lake's tables; `frazil.warehouses` knows its other entries."""

    model_config = ConfigDict(extra="allow")
    engine: Literal["snowflake", "athena", "redshift", "databricks", "bigquery", "trino", "duckdb", "pyiceberg"]
    """What it is."""


class Settings(Shown, Entries):
    """The settings of one environment. Relative paths start at the folder that holds `params/`."""

    # --- where
    source: str = ""
    """Folder that holds `<schema>/<table>/`, local or `s3://…`; or a stream: `kafka://host:port/topic`, `kinesis://region/stream`."""
    endpoint: str = ""
    """JSON file with the DMS target, as `aws dms describe-endpoints` prints it."""
    mappings: str = ""
    """JSON file with the table mappings of the task; empty: no rules."""
    specs: str = ""
    """Folder with one YAML spec per table."""
    source_database: str = ""
    """Address of the source database, `postgresql://user:${PASSWORD}@host/shop`, or `${secret:<id>}`, a secret as RDS stores it."""
    catalog: str = "lake"
    """Name of the Iceberg catalog in Spark."""
    catalog_options: Options = {}
    """Options of the catalog, as in `spark.sql.catalog.<name>.*`; `${NAME}` is a variable of the process."""
    spark_options: Options = {}
    """Options of a Spark session that Frazil starts."""
    state: str = ""
    """Folder for what is no table: landed messages, quarantined rows; empty: `<warehouse>/_frazil`."""
    ops_namespace: str = "ops"
    """Namespace of the tables `commits`, `maintenance` and `quarantine`."""
    runs: str = "runs"
    """Folder for the runs: executed notebooks, records, charts, logs."""
    # --- what
    tables: Names = ()
    """Source tables to process, as `schema.table`; empty: all that have a spec."""
    ignore_tables: Names = ()
    """Source tables that need no spec, as `schema.table` with `%` for any text."""
    format_version: Literal[2, 3] = 3
    """Iceberg format of new tables. Athena needs 2."""
    changes: Changes = Changes()
    """What to do when columns change, unless a spec says so."""
    on_bad_rows: Literal["stop", "quarantine"] = "stop"
    """Rows that do not fit: `stop` their table, or `quarantine` them and go on."""
    max_bad_rows: Count = 10_000
    """A table stops if a batch or load has more bad rows."""
    landing_in_clear: bool = False
    """Messages of tables with masks or excluded columns may lie in the state folder as they came."""
    landing_days: Annotated[float, Field(gt=0, strict=True)] = 7
    """Days to keep landed messages that every table has applied."""
    parallel_tables: AtLeastOne = 2
    """Tables to process at the same time."""
    # --- 01_full_load
    load_complete_when: str = ""
    """How to know that DMS's full load is complete: `dms:` and the task's ARN, or a JSON file of table statistics; empty: files are taken as they are."""
    stream_start: str = ""
    """Where a new table begins in the stream: `earliest`, `latest`, a time, or offsets as JSON."""
    # --- 02_cdc_merge
    max_batch_mb: AtLeastOne = 256
    """Size of a batch's files, in MB."""
    max_batches: Count = 0
    """Most batches of a table in one run; 0: all that are pending."""
    run_for_s: NotNegative = 0
    """Seconds to keep looking for changes (`inf`: until stopped); 0: look once."""
    trigger_s: NotNegative = 3
    """Seconds between two looks."""
    idle_s: NotNegative = 0
    """Seconds without a change after which a run ends earlier; 0: off."""
    decide: dict[str, Annotated[dict[Decision, Any], Field(min_length=1, max_length=1)]] = {}
    """Decisions about tables, each made once: `{"shop.orders": {"accept": "20261129-101502123.csv"}}`."""
    check_source: bool = False
    """Compare each table with the source database after the merge."""
    # --- 03_maintenance
    dry_run: bool = False
    """Only show what would be done."""
    keep_hours: NotNegative = 1
    """Hours to keep every snapshot; tags keep older states."""
    daily_tags: Count = 14
    """Days to keep a tag of each midnight (UTC); 0: off."""
    orphan_days: Annotated[float, Field(ge=3, strict=True)] | None = None
    """Days after which files that no table names are deleted, 3 at least; left out: none are deleted."""
    max_run_s: NotNegative = 600
    """Seconds after which no further compaction of a table begins."""
    managed_by: str = ""
    """Service that compacts the tables and removes orphans, as `s3tables` or `glue`; Frazil still expires snapshots."""
    # --- 04_latency and `frazil check`
    hours: NotNegative = 24
    """Look at the commits of the last hours; 0: at all commits."""
    max_lag_s: NotNegative = 900
    """Alert if a change has waited for more seconds; a spec may say otherwise."""
    max_quarantined: Count = 0
    """Alert if more rows wait in the quarantine."""
    warehouses: dict[str, Warehouse] = {}
    """The readers of the tables, by their names."""

    _env: str = PrivateAttr("")
    _root: Path = PrivateAttr(Path())
    _origin: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def env(self) -> str:
        """The environment: the name of its file in `params/`."""
        return self._env

    @property
    def log_folder(self) -> Path:
        """The local folder of this environment's logs."""
        return self._root / ("runs" if "://" in self.runs else self.runs) / self.env

    def place(self, name: str) -> str:
        """Return the address of a setting that names a file or folder: a URL as it is, else an absolute path."""
        value = getattr(self, name)
        if not value:
            raise SettingError(f"'{name}' is not set", f"write {name}: … into params/{self.env}.yml")
        return value.rstrip("/") if "://" in value else str((self._root / value).absolute())

    def catalog_properties(self) -> dict[str, str]:
        """Return the options of the catalog with what their references name, absolute paths, and what SQLite needs."""
        options = {n: expanded(value, f"catalog_options.{n}") for n, value in self.catalog_options.items()}
        uri, warehouse = options.get("uri", ""), options.get("warehouse", "")
        if uri.startswith(SQLITE):
            file = (self._root / uri.removeprefix(SQLITE)).absolute()
            waits = {"jdbc.schema-version": "V1", "jdbc.busy_timeout": "60000", "clients": "1"}
            options = {**waits, **options, "uri": f"{SQLITE}{file}"}
        if options.get("type") in ("jdbc", "hadoop", "hive") and not re.match(r"\w+:", warehouse):
            options["warehouse"] = str((self._root / warehouse).absolute())
        return {"cache-enabled": "false", **options} if options else {}

    def to_pandas(self) -> pd.DataFrame:
        """Return each setting with its value and where it comes from."""
        import pandas as pd

        return pd.DataFrame([{"setting": n, "value": v, "from": self._origin.get(n, "default")} for n, v in self])

    @field_validator("catalog_options")
    @classmethod
    def _is_whole(cls, options: dict[str, str]) -> dict[str, str]:
        kind = options.get("type", "")
        if kind and kind not in CATALOGS:
            raise Fault(f"the catalog's type '{kind}' is not known", nearest(kind, CATALOGS))
        missing = [name for name in ("type", *CATALOGS.get(kind, ())) if name not in options]
        if options and missing and "catalog-impl" not in options:
            raise Fault(f"the catalog has no '{missing[0]}'", f"write {missing[0]}: … below catalog_options")
        return options

    @field_validator("*", mode="before")
    @classmethod
    def _holds_no_secret(cls, value: Any, about: ValidationInfo) -> Any:
        refuse_secrets(value, str(about.field_name))
        if about.field_name == "spark_options" and (named := [n for n in value or () if is_secret(str(n))]):
            raise Fault(f"{named[0]}: every user can read Spark's command line", "write it into spark-defaults.conf")
        return value

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        for name, warehouse in self.warehouses.items():
            if self.format_version == 3 and warehouse.engine in READS_NO_V3:
                cure = "write format_version: 2, which can be raised later"
                raise Fault(f"{name} is {warehouse.engine}, which reads no format v3", cure, "warehouses", name)
        return self
