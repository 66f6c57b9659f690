"""The Spark session: what one machine has and a cluster has not, how it ends, and who shares a catalog with it."""

import sqlite3

import pytest
from helpers import U
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyspark import SparkContext

# --- how it ends


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
