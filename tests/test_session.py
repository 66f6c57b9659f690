"""The Spark session: what one machine has and a cluster has not, how it ends, and who shares a catalog with it."""

import os
import sqlite3
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyspark import SparkContext

from frazil_old.config import jars, spark_session
from frazil_old.config.settings import Settings
from frazil_old.lake import jvm_process
from helpers import U


def catalog(root, **options) -> dict[str, str]:
    """Return the catalog's options as Spark is given them."""
    conf = spark_session.catalog_conf(Settings(root=str(root), catalog_options=options))
    return {k.removeprefix("spark.sql.catalog.lake."): v for k, v in conf.items()}


@pytest.mark.parametrize(
    ("options", "warehouse"),
    [
        ({"type": "rest"}, "arn:aws:s3tables:eu-central-1:111122223333:bucket/lake"),
        ({"type": "rest"}, "analytics"),
        ({"type": "glue"}, "111122223333"),
        ({"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"}, "111122223333:s3tablescatalog/lake"),
        ({"type": "nessie"}, "lake/warehouse"),
    ],
)
def test_a_warehouse_that_is_no_path_stays_as_it_is(tmp_path, options, warehouse):
    assert catalog(tmp_path, warehouse=warehouse, **options)["warehouse"] == warehouse
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"type": "hadoop"}, {"type": "jdbc", "uri": "jdbc:sqlite:lake/catalog.db"}, {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog"}])  # fmt: skip
def test_a_warehouse_that_is_a_folder_starts_at_the_root(tmp_path, options):
    assert catalog(tmp_path, warehouse="lake/files", **options)["warehouse"] == str(tmp_path / "lake/files")
    assert (tmp_path / "lake/files").is_dir()


@pytest.mark.parametrize("master", ["yarn", "k8s://https://10.0.0.1", "spark://10.0.0.1:7077"])
def test_a_cluster_gets_neither_this_machines_address_nor_its_cores(master):
    assert spark_session.local_conf(Settings(), master) == {}
    alone = spark_session.local_conf(Settings(), "local[2]")
    assert {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions", "spark.default.parallelism"} <= set(alone)  # fmt: skip


@pytest.mark.parametrize(
    ("master", "cores"), [("local[7]", "7"), ("local[3, 2]", "3"), ("local[*]", str(os.cpu_count()))]
)
def test_a_local_session_plans_for_the_cores_that_its_master_states(master, cores):
    conf = spark_session.local_conf(Settings(), master)
    assert (conf["spark.default.parallelism"], conf["spark.sql.shuffle.partitions"]) == (cores, cores)


@pytest.mark.parametrize("line", jars.ICEBERG)
def test_a_stream_needs_no_jar(line):
    plain = jars.packages(line, Settings())
    for source in ("kafka://broker:9092/dms", "kinesis://eu-central-1/dms"):
        assert jars.packages(line, Settings(source=source)) == plain


# --- how it ends


class Stopping:
    """A context whose JVM says at once that it has stopped, and goes on stopping for a while, as on YARN."""

    def __init__(self, seconds: float):
        self.seconds, self.stopped, self.killed, self.ended = seconds, False, False, False
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: self.stopped))

    def stop(self) -> None:
        self.stopped = True
        time.sleep(self.seconds)
        self.ended = True

    def kill(self) -> None:
        self.killed = True

    def poll(self) -> int | None:
        return 0 if self.killed or self.ended else None


@pytest.fixture
def watched(monkeypatch):
    context = Stopping(0.5)
    monkeypatch.setattr(jvm_process, "LOOK_S", 0.01)
    monkeypatch.setattr(jvm_process, "_watched", [])
    monkeypatch.setattr(jvm_process, "_process", lambda: context)
    before = set(threading.enumerate())
    jvm_process.watch(SimpleNamespace(sparkContext=context))
    (looking,) = set(threading.enumerate()) - before
    yield context, looking
    context.ended = True
    looking.join()


def test_a_jvm_that_takes_long_to_stop_in_order_is_not_killed(watched):
    context, _ = watched
    context.stop()
    assert context.ended and not context.killed


def test_a_jvm_whose_context_stopped_by_itself_is_ended(watched):
    context, looking = watched
    context.stopped = True
    looking.join(10)
    assert context.killed


# --- beside others


@pytest.mark.spark
def test_tables_are_worked_on_through_a_gateway_that_livy_made(world, monkeypatch):
    """It has no process of its own and answers every name that it is asked for."""
    ours = SparkContext._gateway
    world.table("t").load("t", (1, "a"))
    there = GatewayParameters(port=ours.gateway_parameters.port, auth_token=ours.gateway_parameters.auth_token, auto_convert=True)  # fmt: skip
    livys = JavaGateway(gateway_parameters=there)
    monkeypatch.setattr(SparkContext, "_gateway", livys)
    world.loaded().changes("t", U(1, "b")).merged()
    assert world.rows("t") == [(1, "b")]
    livys.close()


@pytest.mark.spark
def test_another_process_can_write_to_a_sqlite_catalog_that_a_session_has_open(world):
    world.table("t").load("t", (1, "a")).loaded().changes("t", U(1, "b")).merged()
    file = world.catalog_options["uri"].removeprefix("jdbc:sqlite:")
    with sqlite3.connect(file, timeout=1, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("ROLLBACK")


@pytest.mark.spark
def test_a_session_with_the_aws_bundle_reads_s3_and_one_without_says_what_it_lacks(world):
    settings, spark, line = (
        replace(world.table("t").book().settings, source="s3://dms/x"),
        world.spark,
        spark_session._line(),
    )
    loaded = [
        p for p in spark.conf.get(jars.LOADED).split(",") if not p.startswith(("org.apache.hadoop", jars.AWS_SDK))
    ]
    before = spark.conf.get(jars.LOADED)
    try:
        spark.conf.set(jars.LOADED, ",".join([*loaded, *jars.AWS_BUNDLE[line], *jars.WITH_BUNDLE[line]]))
        assert spark_session.get_spark(settings) is spark
        spark.conf.set(jars.LOADED, ",".join(loaded))
        with pytest.raises(spark_session.SessionError, match="was built without org.apache.hadoop:hadoop-aws"):
            spark_session.get_spark(settings)
    finally:
        spark.conf.set(jars.LOADED, before)
