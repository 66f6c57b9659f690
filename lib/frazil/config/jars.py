"""The jars of a Spark session that Frazil builds, and how two processes that start at once fetch them without breaking each other's."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frazil.config.settings import Settings

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "frazil"
"""What Frazil keeps of this machine's user, for all projects."""
ICEBERG = {
    "4.1": ["org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"],
    "3.5": ["org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.2"],
}
HADOOP_AWS = {
    "4.1": [
        "org.apache.hadoop:hadoop-aws:3.4.2",
        *[f"software.amazon.awssdk:{m}:2.29.52" for m in ("s3", "s3-transfer-manager", "sts", "sso", "ssooidc")],
        *[f"software.amazon.awssdk:{m}:2.29.52" for m in ("apache-client", "netty-nio-client")],
    ],
    "3.5": [
        "org.apache.hadoop:hadoop-aws:3.3.4",
        *[f"com.amazonaws:aws-java-sdk-{m}:1.12.262" for m in ("s3", "sts", "dynamodb")],
    ],
}
"""Spark's way to S3 on a workstation: of the Hadoop that pyspark carries, with the few modules of AWS's SDK that it uses."""
SIGV4 = [f"software.amazon.awssdk:{m}:2.29.52" for m in ("s3", "sts", "kms", "apache-client")]
"""What Iceberg's REST catalog signs its calls with, where catalog option `rest.sigv4-enabled` asks for it."""
SDK_BUNDLES = "software.amazon.awssdk:bundle,com.amazonaws:aws-java-sdk-bundle"
"""All of AWS's SDK in one jar of 600 MB: left out."""
KAFKA = {
    "4.1": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
    "3.5": "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7",
}
DRIVERS = ["org.xerial:sqlite-jdbc:3.50.3.0", "org.postgresql:postgresql:42.7.8"]
LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
"""Local files by Java's own calls; see `jvm.plain_local_files`."""
BROKEN_OFF = ("download failed", "unknown resolver null")
"""What Ivy, which finds the jars, says of a download that did not come to its end, and of a note in its cache that another program was just writing."""


def packages(line: str, settings: Settings, s3: bool) -> list[str]:
    """Return the Maven coordinates of the jars that a session of these settings needs, on this line of Spark (`4.1`)."""
    signed = "rest.sigv4-enabled" in settings.catalog_options
    kafka = settings.source.startswith("kafka://")
    return [
        *ICEBERG[line],
        *DRIVERS,
        LOCAL_FILES,
        *(HADOOP_AWS[line] if s3 else []),
        *(SIGV4 if signed else []),
        *([KAFKA[line]] if kafka else []),
    ]


@contextmanager
def fetched_alone() -> Iterator[None]:
    """Let no other process of this user that starts Spark with Frazil look for jars meanwhile.

    Ivy's cache has no locks that work: of two starts on a new machine nearly always one, often both, would find half a jar and die;
    with all jars there it is rarer. To wait costs nothing: two starts at once take as long as one after the other.
    The kernel frees the lock however this process ends; without a home that can be written there is none.
    """
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        lock = os.open(CACHE / "jars.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
