"""Watches a cluster's executors at the start of a session: whether any arrive, and whether they can run the core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from frazil_old.config.jvm_start import executor_count
from frazil_old.config.spark_session import is_local, missing_python

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

TASKS_IMPORT = [
    "pyarrow", "numpy", "pyiceberg", "pyroaring", "msgspec", "pydantic", "yaml", "boto3", "confluent_kafka", "frazil_old",
]  # fmt: skip
"""What the core and the writers of data files import in tasks."""
LOOK_S, PATIENCE_S, MOST_ASKED = 1.0, 60.0, 16
"""Seconds between two looks, seconds without an executor before a message, and how many executors are asked."""
_watched: list[SparkContext] = []
"""The context that a thread already watches."""


def watch_executors(spark: SparkSession, say: Callable[[str], None]) -> None:
    """Ask the executors of a cluster once, in a thread, what Python they have; say what is missing.

    Nothing is stopped by it: where tasks cannot run the core, this process reads (`flows.tasks_or_here`).
    """
    context = spark.sparkContext
    if context in _watched or is_local(spark):
        return
    _watched[:] = [context]

    def look() -> None:
        with suppress(Exception):  # the context was stopped, or the job was cancelled with all others
            for text in _found(context, say):
                say(text)

    threading.Thread(target=look, daemon=True).start()


def _found(context: SparkContext, say: Callable[[str], None]) -> Iterator[str]:
    """Yield what is wrong with the executors."""
    count = _wait(context, say)
    try:
        asked = min(count, MOST_ASKED)
        lacks = context.parallelize(range(asked), asked).mapPartitions(_asking(TASKS_IMPORT)).collect()
    except Exception as error:
        if missing := missing_python(error):
            yield f"Spark's executors cannot run Python: {missing}; cure: name by PYSPARK_PYTHON a Python that all of them have"
        return
    hosts: dict[str, set[str]] = {}
    for host, names in lacks:
        if names:
            hosts.setdefault(names, set()).add(host)
    for names, of in hosts.items():
        yield f"Spark's executors on {', '.join(sorted(of))} cannot import {names}; cure: frazil bundle makes an archive with all of them"


def _wait(context: SparkContext, say: Callable[[str], None]) -> int:
    """Return how many executors have registered, as soon as one has; say so if none does in time.

    With dynamic allocation, only time with a waiting job counts: Spark requests no executor before.
    """
    dynamic = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
    waited, said = 0.0, False
    while not (count := executor_count(context)):
        if waited >= PATIENCE_S and not said:
            said, host = True, context.getConf().get("spark.driver.host", "")
            say(
                f"no executor has registered for {PATIENCE_S:.0f} s: either the cluster has no free cores and memory, or its "
                f"machines cannot reach this driver at {host}; cure: set spark.driver.host in spark_options"
            )
        time.sleep(LOOK_S)
        waited += LOOK_S if not dynamic or context.statusTracker().getActiveStageIds() else 0
    return count


def _asking(names: list[str]) -> Callable[[Iterator[int]], Iterator[tuple[str, str]]]:
    """Return the function of a task. It is sent whole, as executors may lack Frazil."""

    def ask(_: Iterator[int]) -> Iterator[tuple[str, str]]:
        import importlib
        import socket

        lacks = []
        for name in names:
            try:
                importlib.import_module(name)
            except Exception as error:  # also a library for another processor, or for a newer glibc
                lacks.append(name if isinstance(error, ModuleNotFoundError) else f"{name} ({error})")
        yield socket.gethostname(), ", ".join(lacks)

    return ask
