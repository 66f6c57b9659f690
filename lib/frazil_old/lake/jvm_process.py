"""Watches that Spark is alive: if its JVM was killed or its context stopped by itself, the run ends instead of hanging."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from frazil_old.config.spark_session import SessionError
from frazil_old.errors import log

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOOK_S, ENDING_S = 5.0, 3.0
"""Seconds between two checks, and the time in which a JVM that no longer answers may end."""
_watched: list[SparkContext] = []
"""The context that a thread already watches."""


def _process() -> subprocess.Popen | None:
    """Return the JVM's process if this process started it; otherwise the service that did takes care of it.

    `vars` is used because a gateway of Livy returns a Java member for any missing attribute.
    """
    from pyspark import SparkContext

    return vars(SparkContext._gateway).get("proc") if SparkContext._gateway else None


def watch(spark: SparkSession) -> None:
    """End the JVM once its SparkContext has stopped by itself: anything waiting for one of its jobs would hang."""
    context, process = spark.sparkContext, _process()
    if process is None or context in _watched:
        return
    _watched[:] = [context]
    stop, asked = context.stop, threading.Event()

    def stop_in_order() -> None:
        asked.set()  # on a cluster a stop can take a minute, during which the context already counts as stopped
        stop()

    context.stop = stop_in_order

    def look() -> None:
        while process.poll() is None and not asked.is_set():
            stopped = False
            with suppress(Exception):  # it ended, or was stopped from Python, since the line above
                stopped = context._jsc.sc().isStopped()
            if stopped and not asked.is_set():
                log.error("the SparkContext has stopped by itself: its JVM is ended")
                process.kill()
            asked.wait(LOOK_S)

    threading.Thread(target=look, daemon=True).start()


def require_alive(folder: Path, error: Exception | None = None) -> None:
    """Raise SessionError if the JVM that this process started has ended; `folder` has its log.

    After an error that this may have caused, give the JVM time to end.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    process = _process()
    no_answer = isinstance(error, (Py4JError, OSError)) and not isinstance(error, Py4JJavaError)
    try:
        code = process.wait(ENDING_S if no_answer else 0) if process else None
    except subprocess.TimeoutExpired:
        code = None
    if code is not None:
        raise SessionError(
            f"Spark's JVM {f'was killed by signal {-code}' if code < 0 else f'ended with code {code}'} in the middle of the work",
            f"see the end of {folder / 'spark.log'}; is there memory enough for spark.driver.memory? In JupyterLab restart the "
            "kernel. Run again: it continues from what was committed",
        )
