"""The Spark session: the one that is there, or a new one; and the environment's catalog in it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.settings import jars
from frazil.settings.memory import default_heap
from frazil.settings.settings_model import SQLITE, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
OPTIONS = {
    "spark.sql.extensions": EXTENSIONS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.cache.maxEntries": "2000",  # a query's classes, for all tables: Spark keeps 100
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # ten calls into the JVM for each column instead of one
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
GATEWAY = "PYSPARK_GATEWAY_PORT"  # the variable by which spark-submit names its JVM
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "30d",  # a machine that was asleep has lost no executor
}
PROBED = "spark.frazil.probed"
JAVA = '"-Dlog4j2.configurationFile={log4j}" "-Dfrazil.log={log}"'


class SessionError(FrazilError, code="session"):
    """The Spark session does not start, lacks what Frazil needs, or has another lake. The message names what to set."""


def session(settings: Settings, say: Callable[[str], None] = print) -> SparkSession:
    """Return the Spark session with the environment's catalog: the active one, else a new one on FRAZIL_MASTER."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession() or SparkSession._instantiatedSession or _started(settings, say)
    _require_python(spark)
    if EXTENSIONS not in str(spark.conf.get("spark.sql.extensions", "")):
        cure = f"start it with spark.sql.extensions={EXTENSIONS}"
        raise SessionError("the session lacks Iceberg's SQL extensions", cure)
    _set_catalog(spark, settings)
    return spark


def heap(settings: Settings) -> int:
    """Return the heap of Spark's JVM in bytes: of the one that is there, else of the one that would start."""
    if GATEWAY in os.environ or "pyspark" in sys.modules:  # else no JVM is there
        from pyspark import SparkContext

        if GATEWAY in os.environ:
            SparkContext._ensure_initialized()
        if SparkContext._jvm:
            return SparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory()
    found = re.fullmatch(r"(\d+)([kmgt])b?", settings.spark_options.get("spark.driver.memory", "").lower())
    return int(found[1]) * 1024 ** ("kmgt".index(found[2]) + 1) if found else default_heap()


def _set_catalog(spark: SparkSession, settings: Settings) -> None:
    """Set the catalog's options on the session: every user can read what is on the JVM's command line."""
    name = f"spark.sql.catalog.{settings.catalog}"
    options = {f"{name}.{option}": value for option, value in settings.catalog_properties().items()}
    if not options:
        raise SessionError(f"nothing says what the catalog '{settings.catalog}' is", "write catalog_options: …")
    conf = {name: "org.apache.iceberg.spark.SparkCatalog", **options}
    there = {option: value for option, value in spark.conf.getAll.items() if f"{option}.".startswith(f"{name}.")}
    if other := [n for n in {**there, **conf} if there and there.get(n) != conf.get(n)]:
        raise SessionError(f"this session has another {other[0]}, of another environment", "restart the kernel")
    for option, value in conf.items():
        spark.conf.set(option, value)
    if file := conf.get(f"{name}.uri", "").partition(SQLITE)[2]:
        Path(file).parent.mkdir(parents=True, exist_ok=True)


def _started(settings: Settings, say: Callable[[str], None]) -> SparkSession:
    """Start a session, or join the JVM of spark-submit, which chose master, jars and sizes."""
    from pyspark.sql import SparkSession

    say("starting Spark …")
    if GATEWAY in os.environ:
        return SparkSession.builder.config(map={**OPTIONS}).getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = {**OPTIONS, **_of_master(settings), **settings.spark_options}
    try:
        with jars.on_class_path(settings, say) as found:
            spark = SparkSession.builder.config(map={**conf, **found}).getOrCreate()
    except Exception as error:
        cure = f"see {settings.log_folder / 'spark.log'}; Java 17 must be on the PATH"
        raise SessionError(f"Spark did not start: {str(error).splitlines()[0]}", cure) from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _of_master(settings: Settings) -> dict[str, str]:
    """Return the options that depend on where Spark runs."""
    master = settings.spark_options.get("spark.master") or os.environ.get("FRAZIL_MASTER", "local[*]")
    conf = {"spark.master": master, "spark.app.name": "frazil", "spark.driver.memory": f"{default_heap() >> 20}m"}
    if not master.startswith("local"):
        return conf
    settings.log_folder.mkdir(parents=True, exist_ok=True)
    java = JAVA.format(log4j=Path(__file__).with_name("log4j2.properties"), log=settings.log_folder / "spark.log")
    if "GC" not in f"{os.environ}{settings.spark_options}":  # two collectors do not start
        java += " -XX:+UseParallelGC"
    cores = next(iter(re.findall(r"\d+", master)), str(os.cpu_count()))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {**LOCAL, **conf, "spark.sql.shuffle.partitions": cores, "spark.driver.defaultJavaOptions": java}


def _require_python(spark: SparkSession) -> None:
    """Raise SessionError unless executors on other machines have Python with pyarrow."""
    if str(spark.sparkContext.master).startswith("local") or spark.conf.get(PROBED, ""):
        return
    try:
        spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyarrow").__version__).collect()
    except Exception as error:
        cure = "give them Python and Frazil's packages: spark.archives and PYSPARK_PYTHON"
        raise SessionError(f"Spark's executors have no Python with pyarrow: {error}", cure) from error
    spark.conf.set(PROBED, "true")
