"""Spark in a JVM that is already running: the one of spark-submit, whose script started this kernel."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_elsewhere() -> bool:
    """Return whether PySpark would connect to a running JVM instead of starting one."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def session(conf: Callable[[str], dict[str, str]]) -> SparkSession:
    """Return that JVM's session, or create its first one. `conf` maps a master to the settings of a session.

    Everything given to spark-submit stays, such as master, jars and sizes. Only missing SQL settings are taken from
    `conf`. The context of a kernel that has ended stays in the JVM, and the next kernel uses it.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()
    jvm, builder = SparkContext._jvm, SparkSession.builder
    there = getattr(getattr(jvm, "org.apache.spark.SparkContext$"), "MODULE$").getActive()
    if there.isDefined():
        context = jvm.JavaSparkContext(there.get())
        SparkContext(gateway=SparkContext._gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
        return builder.getOrCreate()
    submitted = SparkConf()
    for key, value in conf(submitted.get("spark.master", "")).items():
        if key.startswith("spark.sql.") and not submitted.contains(key):
            builder = builder.config(key, value)
    return builder.getOrCreate()
