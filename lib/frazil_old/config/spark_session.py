"""The Spark session: the active one, or a new one with the Iceberg catalog of the settings.

In one process, catalogs of the same name each get their own session.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from frazil_old.config import jars, jvm_start, private_files, redaction
from frazil_old.config.cell_parameters import shell
from frazil_old.config.cpu_priority import lowered
from frazil_old.config.jvm_start import jvm_output_to
from frazil_old.config.paths import file_location
from frazil_old.config.settings import Settings
from frazil_old.config.sql import identifier
from frazil_old.errors import FrazilError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class UnknownCatalogError(FrazilError):
    """An environment does not define its catalog, and the session has another environment's catalog of that name."""


@dataclass(frozen=True)
class _Lake:
    session: SparkSession
    catalog: str
    conf: dict[str, str]
    ours: bool
    """Whether Frazil configured the catalog in this session, rather than somebody before it."""


_opened: list[_Lake] = []


def require_catalog(session: SparkSession, catalog: str) -> None:
    """Raise UnknownCatalogError if the session has no settings for the catalog."""
    if session.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
        raise UnknownCatalogError(
            f"nothing says what the catalog '{catalog}' is: this Spark session has none, or it has another environment's",
            "set catalog_options in the parameters of this environment, or restart the kernel",
        )


def session_for(spark: SparkSession, catalog: str, conf: dict[str, str], built: bool = False) -> SparkSession:
    """Return a session in which `catalog` has the settings `conf`: the first one, one opened before, or a new one.

    A session keeps a catalog as it was at its first use. Sessions share everything except settings, catalogs and views.
    `built`: `spark` was just created with this `conf`.
    """
    _opened[:] = [lake for lake in _opened if lake.session.sparkContext is spark.sparkContext]
    for lake in _opened:
        if (lake.catalog, lake.conf) == (catalog, conf):
            return lake.session
    session, name = (_opened[0].session if _opened else spark), f"spark.sql.catalog.{catalog}"
    taken = [lake for lake in _opened if lake.session is session and lake.catalog == catalog]
    if taken and not conf and not taken[0].ours:
        return session
    ours = built or session.conf.get(name, None) is None
    if taken or any(session.conf.get(key, None) not in (None, value) for key, value in conf.items()):
        session, ours = session.newSession(), True
        for row in session.sql("SET").collect():
            if row.key == name or row.key.startswith(f"{name}."):
                session.conf.unset(row.key)
    for key, value in conf.items():
        session.conf.set(key, value)
    _opened.append(_Lake(session, catalog, conf, ours))
    return session


DEFAULT_CHAIN = {
    "4.1": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    "3.5": "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
}
READ_ONLY = "jdbc.open_mode"
"""An option of SQLite: 1 opens the catalog's file read-only, so no commit is possible."""
LOCAL = {
    # Executors on other machines would look for the driver on their own machine.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A machine that was asleep (a laptop, a paused VM) has lost no executor: Spark would give up its only one, and end
    # minutes later.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "30d",
}
"""Settings of a session on one machine. A cluster's own settings are not changed."""
WITH_PATHS = ("jdbc", "hadoop", "hive")
"""Catalog types whose warehouse is a folder; for other types it may be an ARN, an account or a name."""
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


_NO_PYTHON = re.compile(
    r"Cannot run program [^,\n]*|Python worker \w+ [^\n]*|Python in worker has different version[^,\n]*|ModuleNotFoundError: [^\n]*"
)


class SessionError(FrazilError):
    """A Spark session is not available, or lacks what Frazil needs."""


def missing_python(error: Exception) -> str:
    """Return what of Python the executors lack, if a Spark job failed for that; else an empty text."""
    is_of_task = "aborted due to stage failure" in str(error) or type(error).__name__ == "PythonException"
    found = _NO_PYTHON.search(str(error)) if is_of_task else None
    return found[0][:200] if found else ""


def without_python(missing: str) -> SessionError:
    """Return the error that names what of Python the executors lack."""
    return SessionError(
        f"Spark's executors cannot run Python: {missing}",
        "install Python on each of them, with the packages of Frazil, and name it by PYSPARK_PYTHON",
    )


def catalog_conf(settings: Settings) -> dict[str, str]:
    """Return the Spark settings that define the catalog; relative file paths start at the settings' root."""
    name, given = f"spark.sql.catalog.{settings.catalog}", dict(settings.catalog_options)
    if not given:
        return {}
    places = {"uri": "jdbc:sqlite:", **({"warehouse": ""} if settings.catalog_kind in WITH_PATHS else {})}
    for key, prefix in places.items():
        value = given.get(key, "")
        if value.startswith(prefix) and "://" not in value:
            place = os.path.join(settings.root, value[len(prefix) :])
            if settings.read_only and not os.path.exists(place):
                raise SessionError(f"no lake exists at {place}", "run 00_setup first")
            private_files.make_folder(Path(place if key == "warehouse" else os.path.dirname(place)), settings)
            given[key] = prefix + place
    if given.get("uri", "").startswith("jdbc:sqlite:"):
        if settings.read_only:
            given[READ_ONLY] = "1"
        given.setdefault("jdbc.schema-version", "V1")
        given.setdefault("jdbc.busy_timeout", "60000")
        # Iceberg 1.10 leaves a query open on one of two connections, and its lock blocks every other process.
        given.setdefault("clients", "1")
    given.setdefault("cache-enabled", "false")
    return {name: "org.apache.iceberg.spark.SparkCatalog", **{f"{name}.{k}": v for k, v in given.items()}}


def s3_conf(line: str) -> dict[str, str]:
    """Return the Spark settings for reading `s3://` in a local session, with endpoint and region from AWS_* variables.

    They hold no credentials: Hadoop gets these from AWS's usual chain, as boto3 does.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else "")
    given = {
        "s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "s3a.aws.credentials.provider": DEFAULT_CHAIN[line],
        "s3a.endpoint": endpoint,
        "s3a.endpoint.region": region,
        "s3a.path.style.access": "true" if endpoint else "",
    }
    return {f"spark.hadoop.fs.{key}": value for key, value in given.items() if value}


def is_local(spark: SparkSession) -> bool:
    """Return whether Spark's tasks run in the driver's JVM."""
    return re.match(r"local(\[|$)", spark.sparkContext.master) is not None


def local_conf(settings: Settings, master: str) -> dict[str, str]:
    """Return the settings of a session on this machine alone; a cluster's cores and addresses differ from the driver's."""
    if not master.startswith("local"):
        return {}
    stated = re.match(r"local\[(\d+)", master)
    cores = stated[1] if stated else str(os.cpu_count() or 2)
    sizes = {"spark.sql.shuffle.partitions": cores, "spark.default.parallelism": cores}
    return {**LOCAL, **sizes, **collector_conf(settings)}


def collector_conf(settings: Settings) -> dict[str, str]:
    """Return the setting for a local session's garbage collector. Return nothing if one is chosen already: two do not start.

    Java's default, G1, trades extra work for short pauses. Batches need the least work.
    """
    options = [
        os.environ.get(v, "") for v in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
    ]
    options += [v for k, v in settings.spark_options.items() if k.endswith("JavaOptions")]
    if any("GC" in each for each in options):
        return {}
    return {"spark.driver.defaultJavaOptions": "-XX:+UseParallelGC"}


def _line() -> str:
    """Return the line of the installed Spark, such as `4.1`."""
    import pyspark

    line = ".".join(pyspark.__version__.split(".")[:2])
    if line not in jars.ICEBERG:
        raise SessionError(f"no Iceberg runtime for pyspark {pyspark.__version__}", "install pyspark 4.1.x or 3.5.x")
    return line


def _conf(settings: Settings, master: str) -> dict[str, str]:
    """Return the Spark settings of a session, without its jars."""
    return {
        **(s3_conf(_line()) if jars.needs_s3(settings) else {}),
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        # Keep compiled code for the next batch: a batch needs 20 to 100 classes, and Spark's default keeps 100 for all
        # tables.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # For its error messages PySpark would report to the JVM where in Python each column was created: ten calls instead
        # of one.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.ui.explainMode": "simple",  # Spark would write out each query's plan for a page that nobody opens
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": file_location(Path(__file__).with_name("pools.xml")),
        "spark.hadoop.fs.permissions.umask-mode": f"{private_files.mask(settings):03o}",
        **local_conf(settings, master),
        **catalog_conf(settings),
        **settings.spark_options,
    }


def _build(settings: Settings, say: Callable[[str], None]) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    log = str(private_files.open_runs(settings) / "spark.log")
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # PySpark connects to a running JVM instead of starting one
        return _started(lambda: jvm_start.session_there(lambda master: _conf(settings, master)), log)
    master = os.environ.get("FRAZIL_MASTER", "local[*]")
    there = jars.conf(_line(), settings, say)
    conf = {"spark.master": master, "spark.app.name": "frazil", **_conf(settings, master), **there}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers find what this process finds

    def start() -> SparkSession:
        with jvm_start.handed_over(conf):
            SparkContext._ensure_initialized()  # a builder with options would put them on the command line
        builder = SparkSession.builder
        for key, value in conf.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    with lowered(0 if settings.only_plans else settings.nice, say):
        return _started(start, log)


def _started(start: Callable[[], SparkSession], log: str) -> SparkSession:
    """Start Spark; if it does not start, raise SessionError with its output."""
    try:
        with jvm_output_to(log) as output:
            return start()
    except Exception as e:
        why = re.findall(r'Exception in thread "main" [\w.$]+: (.+)', output.text())[-1:]
        cure = "install the package" if isinstance(e, ImportError) else "is Java 17 on the PATH?"
        why = why or str(e).strip().splitlines() or [type(e).__name__]
        raise SessionError(f"Spark did not start: {why[0]}", f"{cure} See {log}") from e


def _end_interrupted(result) -> None:
    """Cancel the Spark jobs of an interrupted cell. In a kernel the interrupt ends only the waiting for them; Spark does not notice it."""
    from pyspark import SparkContext

    error = result.error_in_exec
    while error and not isinstance(error, KeyboardInterrupt):  # clean-up after it may have failed too
        error = error.__context__
    # Not via the active session: the interrupt has cut the thread's connection to the JVM.
    if error and (context := SparkContext._active_spark_context):
        context.cancelAllJobs()


def _require_iceberg(spark: SparkSession, settings: Settings) -> None:
    """Raise SessionError if a session that Frazil did not start lacks the classes of the settings' catalog."""
    statement = f"SHOW NAMESPACES IN {identifier(settings.catalog)}"
    if not spark.sql(f"EXPLAIN {statement}").first()[0].startswith("Error"):
        return
    try:
        spark.sql(statement)
    except Exception as e:
        if "ClassNotFoundException" in str(e) or "Cannot find catalog plugin class" in str(e):
            needed = ",".join(jars.packages(_line(), settings))
            raise SessionError(
                "this Spark session lacks Iceberg's jars",
                f"start it with --packages {needed or jars.ICEBERG[_line()][0]}",
            ) from e


def get_spark(settings: Settings, say: Callable[[str], None] = print) -> SparkSession:
    """Return a Spark session with the settings' catalog: the active one, a second one if that has another lake, or a new local one.

    Raise SessionError if a session lacks Iceberg's SQL extensions, or would write to another branch than `main`.
    """
    from pyspark.sql import SparkSession

    redaction.hide_credentials(settings)
    found, own = SparkSession.getActiveSession(), f"spark.sql.catalog.{settings.catalog}"
    conf = {**catalog_conf(settings), **{k: v for k, v in settings.spark_options.items() if k.startswith(f"{own}.")}}
    kernel = shell()
    if kernel and not found:
        say("starting Spark …")
    spark = session_for(found or _build(settings, say), settings.catalog, conf, built=found is None)
    spark.sparkContext.setLogLevel("ERROR")
    if kernel:
        kernel.events.register("post_run_cell", _end_interrupted)  # registered only once
    logging.getLogger("SQLQueryContextLogger").setLevel(
        logging.CRITICAL
    )  # prints every query error as one huge JSON line
    if EXTENSIONS not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise SessionError(
            "the Spark session lacks Iceberg's SQL extensions", f"start it with spark.sql.extensions={EXTENSIONS}"
        )
    if loaded := spark.conf.get(jars.LOADED, "") or "":
        needed, bundled = jars.packages(_line(), settings), ":iceberg-aws-bundle:" in loaded
        if lacks := [p for p in needed if p not in loaded.split(",") and not (bundled and p.startswith(jars.AWS_SDK))]:
            raise SessionError(
                f"this Spark session was built without {', '.join(lacks)}", "restart the kernel and run again"
            )
    elif conf:
        _require_iceberg(spark, settings)
    # The JVM never compiles a method above 8,000 bytes of code: a wide table's casts in one method would be
    # interpreted.
    spark.conf.set("spark.sql.codegen.hugeMethodLimit", "8000")
    # If one value of a message does not fit its type, the others are still wanted; this is Spark's default.
    spark.conf.set("spark.sql.json.enablePartialResults", "true")
    # Names, comments and values may contain `${…}`: Spark would substitute environment variables.
    spark.conf.set("spark.sql.variable.substitute", "false")
    # The constraints that Spark infers from filters are not needed, and with many columns the inference never ends.
    spark.conf.set("spark.sql.constraintPropagation.enabled", "false")
    for key in ("spark.wap.id", "spark.wap.branch"):
        if spark.conf.get(key, None):
            raise SessionError(f"{key} is set: a MERGE would say ok and main would not move", f"unset {key}")
    return spark
