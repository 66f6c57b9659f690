"""What every flow works on: the lake of one environment, opened from typed settings."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import randrange
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from frazil_old.config import private_files, redaction
from frazil_old.config.executor_check import watch_executors
from frazil_old.config.lake_types import OPERATION_COLUMNS
from frazil_old.config.policies import SchemaPolicy
from frazil_old.config.query_engines import format_version, name_of
from frazil_old.config.settings import CdcMergeSettings, ParameterError, Settings
from frazil_old.config.spark_session import get_spark, missing_python, require_catalog, without_python
from frazil_old.config.spec import SpecError, TableSpec, load_specs, rename_cure
from frazil_old.config.sql import identifier, table_name
from frazil_old.config.time_sql import driver_rows
from frazil_old.config.warehouses import declared
from frazil_old.dms.aws_json import read_task_settings
from frazil_old.dms.endpoint import Endpoint, SourceTable, read_endpoint
from frazil_old.dms.late_files import clock_went_back
from frazil_old.dms.listing import Begin, DmsObject, Recorded, TableObjects, Watch, list_table, with_transactions
from frazil_old.dms.mappings import Mappings, read_mappings, same_place, with_origins
from frazil_old.dms.pending_changes import require_applicable
from frazil_old.dms.position import require_same_kind
from frazil_old.dms.storage import endpoint_url, is_s3
from frazil_old.dms.stream_source import StreamError
from frazil_old.errors import FrazilError, SafeFormatter, counted, many, nearest, safe
from frazil_old.flows.interrupts import StoppedError, stop_requests
from frazil_old.lake import commit_retry, jvm
from frazil_old.lake.clocks import require_right_clock
from frazil_old.lake.jvm_process import require_alive, watch
from frazil_old.lake.storage_errors import require_metadata, storage_error_explained
from frazil_old.lake.table_pause import PausedError
from frazil_old.report.live_status import heartbeat
from frazil_old.results import TableResult

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from frazil_old.dms.applied_files import AppliedFiles
    from frazil_old.dms.kafka import Kafka
    from frazil_old.dms.kinesis import Kinesis
    from frazil_old.dms.pending_changes import AppliedState, ClassifiedFiles
    from frazil_old.dms.position import Position
    from frazil_old.lake.lane_choice import Lanes

log = logging.getLogger("frazil")

MOST_SEEN = 5_000
"""How many applied files a full listing of a local folder checks for size and time, in turns; on S3 all."""

KAFKA, KINESIS = "kafka://", "kinesis://"
"""The prefixes of a stream's address."""


def _stream(source: str) -> Kafka | Kinesis | None:
    """Return the stream of an address; None for a folder."""
    if source.startswith(KAFKA):
        from frazil_old.dms.kafka import Kafka

        return Kafka.from_address(source)
    if source.startswith(KINESIS):
        from frazil_old.dms.kinesis import Kinesis

        return Kinesis.from_address(source)
    return None


def _log_to(file: Path) -> None:
    """Log the stack traces that messages leave out; only Frazil's own warnings reach the screen."""
    log.propagate = False
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    try:
        handler = logging.FileHandler(file)
        handler.handleError = lambda record: None  # a full disk must not fill the screen
    except OSError:
        handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter())
    log.addHandler(handler)


def print_line(text: str) -> None:
    """Print a line in one write: several threads print at the same time."""
    print(f"{text}\n", end="", flush=True)


def _held_together(specs: dict[str, TableSpec], mappings: Mappings, ops: str) -> dict[str, TableSpec]:
    """Return the specs; one has a `problem` if others, or Frazil's own columns or tables, take its rows or names."""
    from frazil_old.lake.pyiceberg_catalog import OPS

    found = same_place(specs.values(), mappings)
    for spec in specs.values():
        if spec.target in [f"{ops}.{table}" for table in OPS]:
            problem = f"{spec.file}: '{spec.target}' is the name of one of Frazil's own tables"
            cure = (
                f"choose another name, which loses nothing: target: {spec.schema_name}.<name>; or another ops_namespace"
            )
            found.setdefault(spec.source, SpecError(problem, cure))
        own = OPERATION_COLUMNS if spec.policy == "append" else ()
        for name in (n for n in spec.names if n.lower() in own):
            problem = f"{spec.file}: column '{name}' has a name that without_key: append gives a column of its own"
            found.setdefault(spec.source, SpecError(problem, rename_cure(name, spec)))
    return {n: replace(s, problem=s.problem or found.get(n)) for n, s in specs.items()}


class Workbook:
    """The specs, the endpoint's settings and the Spark session of one environment. Opening it changes nothing."""

    def __init__(self, settings: Settings, progress: Callable[[str], None] = print_line):
        self.opened = time.time()
        redaction.hide_credentials(settings)
        self.settings, self.progress = settings, lambda text: progress(safe(text))
        self.tasks_fail = False
        """Whether the core failed in Spark's tasks, for example for missing Python packages: it is not tried again."""
        _log_to(private_files.open_runs(settings) / "frazil.log")
        self.stream = _stream(settings.source)
        from_nothing = self.stream is not None and settings.unknown_tables == "create"
        everything = load_specs(settings.path("specs"), may_be_empty=from_nothing)
        for name in settings.tables:
            if name not in everything:
                raise ParameterError(f"no table '{name}' in {settings.specs}", nearest(name, everything))
        rules = read_mappings(settings.path("mappings") if settings.mappings else None)
        self.mappings: Mappings = with_origins(everything.values(), rules)
        everything = _held_together(everything, self.mappings, settings.ops_namespace)
        default = SchemaPolicy(**settings.changes)
        self.specs: dict[str, TableSpec] = {
            n: replace(everything[n], changes=everything[n].changes.over(default))
            for n in settings.tables or everything
        }
        self.endpoint = Endpoint() if self.stream else read_endpoint(settings.path("endpoint"))
        self.stopped: dict[str, FrazilError] = {}
        self._report_lock, self._reported, self._checked = Lock(), set(), set()
        self._readable: set[str] = set()
        self._watches: dict[str, Watch] = {}
        self.stop, self._interruptible = Event(), False
        self.at_work: set[str] = set()
        self.waiting: dict[str, tuple[str, int | None]] = {}
        self.every: dict[str, TableSpec] = everything
        """All tables with a spec, including those that this run does not take."""
        self.known = {self.mappings.target_name(s) for s in everything.values()}
        """Schema and table, as DMS writes them, of all tables with a spec."""
        self.new_tables: set[tuple[str, str]] = set()
        """Tables without a spec whose messages this run has read."""
        task = read_task_settings(settings.path("mappings")) if self.stream and settings.mappings else {}
        self.before_field: str = task.get("BeforeImageSettings", {}).get("FieldName") or "before-image"

    def add(self, spec: TableSpec) -> None:
        """Add a table whose spec was just written."""
        self.specs[spec.source] = replace(spec, changes=SchemaPolicy(**self.settings.changes))
        self.every[spec.source] = spec
        self.known.add(self.mappings.target_name(spec))

    @property
    def folder(self) -> Path:
        """The folder of this environment's log and charts: `runs/<env>`."""
        return Path(self.settings.root) / self.settings.runs / self.settings.env

    @property
    def source(self) -> Path | str:
        """The folder that DMS writes to, local or on S3."""
        return self.settings.location("source")

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session, found or built on first use."""
        require_alive(self.folder)
        require_right_clock(self.folder / "frazil.log", self._stores())
        spark = get_spark(self.settings, self.progress)
        require_catalog(spark, self.settings.catalog)
        watch(spark)
        watch_executors(spark, self.progress)
        jvm.use(spark)
        jvm.plain_local_files(spark)
        # Iceberg's API in another thread finds only catalogs that a Spark query has loaded.
        with suppress(Exception):
            spark.catalog.databaseExists(table_name(f"{self.settings.catalog}.default"))
        return spark

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog in PyIceberg, for what is read without Spark; raises CatalogError if only Spark can read it."""
        from frazil_old.lake import pyiceberg_catalog

        return pyiceberg_catalog.open_catalog(self.settings)

    def _stores(self) -> list[str]:
        """Return where source and warehouse are on S3, as far as boto3 finds them."""
        options = self.settings.catalog_options
        own = options.get("s3.endpoint", endpoint_url()) == endpoint_url()
        places = [self.settings.source, *([options.get("warehouse", "")] if own else [])]
        return [place for place in places if place.startswith(("s3://", "s3a://"))]

    @cached_property
    def lanes(self) -> Lanes:
        """The lanes that write batches, with the key indexes in `runs/<env>/index`."""
        from frazil_old.lake.lane_choice import Lanes

        s, folder = self.settings, (self.folder / "index").absolute()
        if not isinstance(s, CdcMergeSettings):
            return Lanes(self.spark, folder, "merge")
        return Lanes(self.spark, folder, s.lane, s.index_limit_mb, lasting=s.run_for_s > 0)

    @property
    def format_version(self) -> int:
        """The Iceberg format version that the declared query engines allow."""
        return format_version(self.query_engines)

    @property
    def query_engines(self) -> list[str]:
        """The declared query engines, and the declared warehouses that these do not name."""
        named = self.settings.query_engines
        warehouses = {w.entries.engine for w in declared(self.settings).values()} - set(map(name_of, named))
        return [*named, *sorted(warehouses)]

    @property
    def is_kafka(self) -> bool:
        """Whether the source is Kafka, where a table may have a topic of its own."""
        return self.stream is not None and self.stream.scheme == KAFKA

    def topic(self, spec: TableSpec) -> str:
        """Return the topic of all messages of a table, from the mappings; empty: any."""
        topic = self.mappings.topic(spec) if self.is_kafka else ""
        if topic and topic not in self.stream.names:
            raise StreamError(
                f"{spec.source} is mapped to topic '{topic}', which parameter 'source' does not name",
                "name it there, or correct the mappings",
            )
        return topic

    def may_have_messages_in(self, spec: TableSpec, topic: str) -> bool:
        """Return whether a topic or stream may hold messages of a table."""
        return not self.is_kafka or self.mappings.topic(spec) in ("", topic)

    @property
    def message_paths(self) -> list[str]:
        """The beginnings of the paths of all messages that the book reads."""
        return [f"{self.stream.scheme}{name}/" for name in self.stream.names] if self.stream else []

    def name(self, spec: TableSpec) -> str:
        """Return the table's full name in SQL: `catalog.namespace.table`."""
        return table_name(f"{self.settings.catalog}.{spec.target}")

    def ops(self, table: str) -> str:
        """Return the full name of one of Frazil's own tables: `commits`, `maintenance`, `quarantine`, `visible`."""
        return table_name(f"{self.settings.catalog}.{self.settings.ops_namespace}.{table}")

    def source_table(self, spec: TableSpec) -> SourceTable:
        """Return a table with the settings and mappings by which DMS writes it."""
        return SourceTable(spec, self.endpoint, self.mappings)

    def objects(
        self,
        spec: TableSpec,
        after: Position | None = None,
        may_list_fully: bool = False,
        record: AppliedFiles | None = None,
    ) -> TableObjects:
        """List a table's objects, in the folder that the task's renaming rules name.

        `after`: only those that matter after that position. With `may_list_fully` the first listing of a process and
        every 100th (`Watch.full_every`) is a full one. It skips unchanged objects of a complete `record`, and reports what
        disappeared since the last one.
        """
        written = replace(spec, source=".".join(self.mappings.target_name(spec)))
        listings, recorded = self._watches.get(spec.source), None
        if may_list_fully and listings is None:
            watch = Watch() if isinstance(self.settings, CdcMergeSettings) else Watch(full_every=1)
            listings = self._watches.setdefault(spec.source, watch)
        if may_list_fully and listings.is_due() and record and record.complete and after:
            etags = record.etags((after.last, after.turn))
            recorded = Recorded(etags, record.seen, self._trusted(etags, after.look_from))
        full = not after or (may_list_fully and (listings.full or not (record and record.whole)))
        begin = None if full or not after.last else self._begin(after, record, listings)
        there = list_table(self.source, written, begin, recorded)
        if listings:
            listings.load_folders = frozenset(o.path.rpartition("/")[0] for o in there.loads)
        if self.endpoint.preserve_transactions:
            there = with_transactions(there, self.source, self.endpoint.cdc_path, begin, recorded)
        if recorded and (gone := listings.vanished(recorded)):
            self.progress(f"{spec.source}: {many(gone, 'applied file')} no longer there: {', '.join(gone[:3])}")
        return replace(there, full=full)

    def _begin(self, after: Position, record: AppliedFiles | None, listings: Watch | None) -> Begin:
        """Return where a listing after a position begins: before files that were applied after later names, too."""
        moved = record.look_from(after.last) if record else ""
        last, start = (min(name, moved or name) for name in (after.last, after.look_from))
        return Begin(last, start, self.endpoint.date_partition, listings.load_folders if listings else frozenset())

    def _trusted(self, applied: Iterable[str], newest: str) -> set[str]:
        """Return the applied files to skip in this listing.

        Of many local ones it checks a part, and all from `newest` on.
        """
        names = list(applied)
        if is_s3(self.source) or len(names) <= MOST_SEEN:
            return set()
        parts = -(-len(names) // MOST_SEEN)
        return {n for n in names if n < newest} - set(names[randrange(parts) :: parts])

    def list_in_full(self, spec: TableSpec) -> None:
        """Make the next listing of a table a full one, so that what stops it now also stops it then."""
        self._watches.pop(spec.source, None)

    def require_applicable(self, spec: TableSpec, state: AppliedState, there: TableObjects) -> ClassifiedFiles:
        """Compare a listing with what a table has applied; raise PositionError for what stops it."""
        s = self.settings
        late, without = getattr(s, "late_files", "refuse"), getattr(s, "go_on_without", ())
        require_same_kind(state.position, self.endpoint.preserve_transactions, spec.source)

        def judge(files: Sequence[DmsObject]) -> tuple[bool, str] | None:
            near = self.objects(spec, state.position).changes
            newest = next((o for o in near if o.name == state.position.last), None)
            return clock_went_back(files, newest, self.source_table(spec))

        return require_applicable(there, state, late, without, judge)

    def check_files(self, spec: TableSpec, there: TableObjects) -> None:
        """Check a table's files against the endpoint's settings, once; a contradiction raises EndpointError."""
        from frazil_old.dms.files_against_settings import check_files

        if spec.source not in self._checked and (there.loads or there.changes):
            check_files(there, self.source_table(spec))
            self._checked.add(spec.source)

    def not_yet_reported(self, files: Iterable[DmsObject]) -> list[DmsObject]:
        """Return the files that no earlier call was given: their ignored rows are to be reported."""
        with self._report_lock:
            new = [f for f in files if f.path not in self._reported]
            self._reported |= {f.path for f in new}
        return new

    def exists(self, spec: TableSpec) -> bool:
        """Return whether the table exists in the lake."""
        return not spec.problem and self.spark.catalog.tableExists(self.name(spec))

    def first_rows(self, table: str, count: int = 5) -> list[dict[str, Any]]:
        """Return the first rows by key of a source table's lake table; none if it does not exist."""
        spec = self.specs[table]
        if not self.exists(spec):
            return []
        rows, keys = self.spark.table(self.name(spec)), [identifier(k) for k in spec.key]
        return [row.asDict() for row in driver_rows((rows.orderBy(*keys) if keys else rows).limit(count)).collect()]

    def row_per_table(self, look: Callable[[TableSpec], dict[str, Any]]) -> list[dict[str, Any]]:
        """Return one row per table: the result of `look`, or why the table cannot be processed."""
        rows = []
        for spec in self.specs.values():
            try:
                self.require_readable(spec)
                rows.append({"table": spec.source, **look(spec)})
            except FrazilError as e:
                rows.append({"table": spec.source, "action": f"cannot: {e.problem}; {e.cure}"})
        return rows

    def require_way(self, spec: TableSpec) -> None:
        """Raise what is known in advance to stop a table."""
        spec.require_sound()
        if spec.source in self.stopped:
            raise self.stopped[spec.source]

    def require_readable(self, spec: TableSpec) -> None:
        """Raise what `require_way` does, or StorageError for damaged metadata, which Iceberg would try to read for minutes."""
        self.require_way(spec)
        if spec.source not in self._readable:
            require_metadata(self.settings, spec.target)
            self._readable.add(spec.source)

    def on_commit(self, spec: TableSpec) -> None:
        """Do nothing after a commit to a table; `flows.served` replaces this while warehouses are to be refreshed."""

    def take_thread(self, spec: TableSpec) -> None:
        """Let this thread work for a table in the workbook's session; its Spark jobs can be cancelled together."""
        jvm.use(self.spark)
        self.spark.sparkContext.setJobGroup(spec.source, spec.source)

    def attempt(self, spec: TableSpec, work: Callable[[TableSpec], TableResult]) -> TableResult:
        """Run `work` for one table; any error becomes a result with status `failed`, and its trace is logged.

        Raises SessionError if Spark itself has ended: no table can continue.
        """
        began = time.monotonic()
        require_alive(self.folder)
        require_right_clock(self.folder / "frazil.log")
        self.at_work.add(spec.source)
        try:
            self.take_thread(spec)
            self.require_readable(spec)
            result = commit_retry.steady(lambda: work(spec))  # each step first checks what is done
        except PausedError as e:
            result = TableResult(spec.source, "paused", e.note)
        except FrazilError as e:
            log.error("%s failed", spec.source, exc_info=True)
            result = TableResult(spec.source, "failed", str(e), decision=e.decision)
        except Exception as e:
            log.error("%s failed", spec.source, exc_info=True)
            result = TableResult(spec.source, "failed", self.why(spec, e))
        finally:
            self.at_work.discard(spec.source)
        result.seconds = time.monotonic() - began
        if result.counts:  # `apply_batch` reports each batch at once; this is for loads and other commits
            self.on_commit(spec)
        return result

    def why(self, spec: TableSpec, error: Exception) -> str:
        """Return what a table's error means; raise SessionError if Spark has ended, even during this check."""
        require_alive(self.folder, error)
        if missing := missing_python(error):
            return str(without_python(missing))
        try:
            return str(storage_error_explained(error, self.settings, spec.target) or jvm.cause(error))
        except Exception as lost:
            require_alive(self.folder, lost)
            raise

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let the first interrupt set `stop`, and the second one cancel the running Spark jobs and raise StoppedError.

        Enter it inside a pool's block, which then waits for its threads. If entered again inside, `stop` remains the
        outer one's.
        """
        with contextlib.ExitStack() as stack:
            outermost = not self._interruptible
            if outermost:
                self.stop, self._interruptible = stack.enter_context(stop_requests(self.progress)), True
            try:
                yield
            except KeyboardInterrupt:
                self.stop.set()
                for table in list(self.at_work):
                    self.spark.sparkContext.cancelJobGroup(table)
                raise StoppedError(
                    "stopped: what was not committed is discarded", "run the notebook again: it continues from there"
                ) from None
            finally:
                self._interruptible = self._interruptible and not outermost

    def each_table(
        self, work: Callable[[TableSpec], TableResult], skip: Sequence[str] = (), quiet: bool = False
    ) -> list[TableResult]:
        """Run `work` for every table but those skipped, several in parallel; return results in the order of the specs.

        Tables fail independently. An interrupt lets current work finish, and starts nothing more: `work` may check
        `stop` between its steps.
        """
        alone = not self._interruptible  # else the outer run decides when to stop

        def shown(spec: TableSpec) -> TableResult:
            if alone and self.stop.is_set():
                return TableResult(spec.source, "stopped", "interrupted before its turn")
            result = self.attempt(spec, work)
            if result.status != "unchanged" and not quiet:
                counts = [counted(value, name) for name, value in result.counts.items() if value]
                self.progress(", ".join([f"{spec.source}: {result.status}", *counts, f"{result.seconds:.1f} s"]))
            return result

        # Build the session here, before threads ask for it.
        with (
            heartbeat(self.spark, self.at_work, self.progress),
            ThreadPoolExecutor(self.settings.parallel_tables) as pool,
            self.interruptible(),
        ):
            return list(pool.map(shown, [s for s in self.specs.values() if s.source not in skip]))
