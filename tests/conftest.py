"""One Spark session for all tests, with an Iceberg catalog in a temporary folder; and a fresh world for each."""

import itertools
import logging
import os
import sys
from pathlib import Path

import pytest

from houses import of_this_house
from world import World as Doors
from world import house

_numbers = itertools.count(1)
# What Spark compiles in a test runs a few times only: to compile it, or to compile it well, takes longer than it saves.
_archive = Path(sys.prefix) / "classes.jsa"  # `make test` has archive_classes.py write it
_options = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",  # two workers share two cores
    "-XX:ReservedCodeCacheSize=256m",  # one compiler's default is 48m, of which the JVM forgets code and compiles it again
    "-Dspark.sql.codegen.wholeStage=false",
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
    *([f"-XX:SharedArchiveFile={_archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if _archive.exists() else []),
]
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(_options))


@pytest.fixture(scope="session")
def catalog_options(tmp_path_factory):
    lake = tmp_path_factory.mktemp("lake")
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{lake}/catalog.db", "warehouse": f"{lake}/warehouse"}


@pytest.fixture(scope="session")
def spark(catalog_options, tmp_path_factory):
    os.environ["FRAZIL_MASTER"] = "local[1]"
    os.environ["FRAZIL_TEST_MARKER"] = "never-to-be-seen"  # what `${env:FRAZIL_TEST_MARKER}` would be replaced by
    options = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1", "spark.driver.memory": "2g"}
    session = house().start_spark(tmp_path_factory.mktemp("session"), catalog_options, options)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def aws():
    """The address of an emulator of AWS, to which the environment's variables lead."""
    import aws_emulator

    with aws_emulator.running() as url, pytest.MonkeyPatch.context() as patch:
        for name, value in aws_emulator.variables(url).items():
            patch.setenv(name, value)
        yield url


@pytest.fixture(autouse=True)
def _own_aws_session():
    """Let boto3 forget the credentials that the environment of another test gave."""
    if boto3 := sys.modules.get("boto3"):
        boto3.DEFAULT_SESSION = None


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """A real broker."""
    from frazil_demo.kafka import Kafka

    with Kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def moto():
    """The address of moto's server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(scope="session")
def kinesis(moto):
    """A client of moto's server; the address and the login are in the environment, as boto3 takes them."""
    import boto3

    from dms_streams import like_aws

    with pytest.MonkeyPatch.context() as patch:
        like_aws(patch)
        for name, value in (("ENDPOINT_URL_KINESIS", moto), ("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test")):
            patch.setenv(f"AWS_{name}", value)
        yield boto3.client("kinesis", region_name="eu-central-1")


@pytest.fixture
def open_world(spark, catalog_options, tmp_path):
    """Make a world behind the library's doors; `target` is the settings of the S3 target, other arguments are settings."""

    def make(lake: dict | None = None, **settings) -> Doors:
        number = next(_numbers)
        return Doors(tmp_path / f"d{number}", f"d{number}", lake or catalog_options, **settings)

    yield make
    house().forget()


@pytest.fixture(scope="module")
def shared_world(spark, catalog_options, tmp_path_factory):
    """Make a world that the tests of a module share; arguments are its space, and those of `open_world`."""

    def make(space: str, lake: dict | None = None, **settings) -> Doors:
        return Doors(tmp_path_factory.mktemp("shared") / "w", space, lake or catalog_options, **settings)

    yield make
    house().forget()


def pytest_xdist_make_scheduler(config, log):
    """Let the tests of a file, or of a world of cases, run in one process."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, case = nodeid.partition("::test_a_case_ends_as_it_says[")
            return "-".join(case.split("-")[:2]) if case else nodeid.split("::")[0]

    return Scheduling(config, log)


def pytest_collection_modifyitems(config, items):
    """Keep the tests of the library under test."""
    items[:], others = of_this_house(items)
    config.hook.pytest_deselected(items=others)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a failure that is listed in known_failures.yml into an expected one; a listed test that passes has failed."""
    import known_failures

    return known_failures.judged((yield), item)
