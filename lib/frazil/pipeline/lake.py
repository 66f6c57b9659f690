"""The lake of an environment: its settings, source, catalog, session and tables. Opening it changes nothing, and starts no Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil.dms.storage import store_at
from frazil.engine.tasks import Tasks
from frazil.errors import nearest, safe
from frazil.iceberg.catalog import open_catalog
from frazil.iceberg.key_hashes import key_numbers
from frazil.pipeline import explore, run
from frazil.pipeline import maintain as maintenance
from frazil.pipeline import plan as plans
from frazil.pipeline import setup as setups
from frazil.pipeline.source import Source
from frazil.pipeline.steps import Table
from frazil.results import Results
from frazil.settings import memory, spark
from frazil.settings.environment import resolve
from frazil.settings.settings_model import SettingError, Settings
from frazil.settings.spec import load_specs
from frazil.settings.state_folder import state_address

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from pyspark.sql import SparkSession

    from frazil.iceberg.catalog import AnyCatalog
    from frazil.report.plan_table import Plan


def open(notebook: str, env: str, **settings: Any) -> Lake:
    """Open an environment for a notebook. Arguments win over `params/<env>.yml`, and None is not given."""
    return Lake(notebook, resolve(env, settings))


class Lake:
    """The tables of an environment, in the order of their specs."""

    def __init__(self, notebook: str, settings: Settings):
        from frazil.report.run_record import RunRecord, run_folder

        self.settings = settings
        self.stop = threading.Event()
        """Set when a run shall end after the batches in progress."""
        self.decided: set[str] = set()
        """The tables of which this process has carried out what the parameter `decide` says."""
        specs = load_specs(Path(settings.place("specs")))
        if unknown := [name for name in settings.tables if name not in specs]:
            raise SettingError(f"tables: there is no spec of '{unknown[0]}'", nearest(unknown[0], specs))
        self.source = Source(settings, specs)
        self.tables = [Table(self, specs[name]) for name in settings.tables or specs]
        self.planned: Plan | None = None
        self._starting = threading.Lock()
        self.folder = run_folder(settings.place("runs"), settings.env, notebook)
        """The run's folder, which the first file makes; it may be on S3."""
        self.record = RunRecord(notebook, settings.env)

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables)

    def __getitem__(self, source: str) -> Table:
        found = {table.source: table for table in self.tables}
        if source not in found:
            raise SettingError(f"there is no table '{source}'", nearest(source, found))
        return found[source]

    def say(self, text: str) -> None:
        """Print a line about the run."""
        print(safe(text), flush=True)

    # --- what is made when it is first needed

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session with the environment's catalog."""
        with self._starting:
            return spark.session(self.settings, self.say)

    @cached_property
    def catalog(self) -> AnyCatalog:
        """The catalog, which needs no Spark."""
        return open_catalog(self.settings)

    @cached_property
    def state(self) -> ObjectStore:
        """The state folder."""
        address = state_address(self.settings).removeprefix("file://")
        if "://" not in address:
            Path(address).mkdir(parents=True, exist_ok=True)
        return store_at(address)

    @cached_property
    def budget(self) -> memory.Budget:
        """The memory that batches may have together."""
        return memory.budget(spark.heap(self.settings))

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks of the session, for what is large."""
        return Tasks(lambda: self.spark.sparkContext, self.budget)

    # --- what notebooks call

    setup, load, merge = setups.set_up, run.load, run.merge
    lint, lateness = setups.lint, plans.lateness
    health, maintain = maintenance.health, maintenance.maintain
    quarantine, states, sql = explore.waiting, explore.states, explore.sql

    def plan(self) -> Plan:
        """Return what a run would do to each table, and what needs a decision."""
        self.planned = plans.plan(self)
        return self.planned

    def pick(self, source: str | None) -> Table:
        """Return a table by its source name; None: the one with most pending by the last plan."""
        return self[source or (self.planned or self.plan()).busiest]

    def compare(self) -> Results:
        """Compare each table with the source database, value by value."""
        from frazil.discover.compare import comparison

        with comparison(self.settings, key_numbers) as compare_table:
            return Results(run.each(self, compare_table))
