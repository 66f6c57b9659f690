"""Spark in a JVM that somebody else has started and runs: spark-submit's, whose script has started this kernel."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_elsewhere() -> bool:
    """Tell whether PySpark would start no JVM of its own."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def session(conf: Callable[[str], dict[str, str]]) -> SparkSession:
    """Return that JVM's session, or make its first one. `conf` returns what a session of a master has.

    Master, jars, sizes and whatever else spark-submit was given stay; of `conf` only missing settings of SQL are added. The context
    of a kernel that has ended stays in the JVM: the next kernel takes it.
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
    told = SparkConf()
    for key, value in conf(told.get("spark.master", "")).items():
        if key.startswith("spark.sql.") and not told.contains(key):
            builder = builder.config(key, value)
    return builder.getOrCreate()
