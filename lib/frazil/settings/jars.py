"""The jars of a session that Frazil starts: resolved once by Spark's own Ivy, and kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from frazil.settings.settings_model import Settings

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
DATABASES = {"jdbc:sqlite": "org.xerial:sqlite-jdbc:3.50.3.0", "jdbc:postgresql": "org.postgresql:postgresql:42.7.8"}
LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"  # by Java's own calls, instead of a process each
EXCLUDED = "org.slf4j:slf4j-api,org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
PACKAGES = "spark.jars.packages"


def coordinates(settings: Settings) -> list[str]:
    """Return the Maven coordinates of the jars; `spark.jars.packages` adds to them, or has another version of one.

    Empty if `spark.jars.packages` is set to nothing: Spark has all jars then.
    """
    own, options = settings.spark_options.get(PACKAGES), settings.catalog_options
    if own == "":
        return []
    on_aws = options.get("type") in ("glue", "rest") or options.get("io-impl", "").endswith("S3FileIO")
    databases = [jar for kind, jar in DATABASES.items() if options.get("uri", "").startswith(kind)]
    stated = [c.strip() for c in (own or "").split(",") if c.strip()]
    wanted = [ICEBERG, *([AWS] if on_aws else []), *databases, LOCAL_FILES, *stated]
    return list({c.rpartition(":")[0]: c for c in wanted}.values())


@contextmanager
def on_class_path(settings: Settings, say: Callable[[str], None]) -> Iterator[dict[str, str]]:
    """Give the Spark options that put the jars on the class path, for a session that starts in this block.

    The first start of this user lets Ivy resolve them. Another that comes meanwhile waits for it.
    """
    wanted = coordinates(settings)
    own = [jar for jar in settings.spark_options.get("spark.jars", "").split(",") if jar]
    folder = _folder(wanted)
    complete = folder / "complete"
    if not wanted or complete.exists():
        yield _as_files(folder, own) if wanted else {}
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists():
            yield _as_files(folder, own)
            return
        say(f"fetching Spark's jars into {folder}, once …")
        yield {PACKAGES: ",".join(wanted), "spark.jars.ivy": str(folder), "spark.jars.excludes": EXCLUDED}
        if any(folder.glob("jars/*.jar")):  # none, where a JVM was there before: it takes no jars
            complete.touch()


def _folder(wanted: list[str]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "frazil" / f"jars-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:12]}"


def _as_files(folder: Path, own: list[str]) -> dict[str, str]:
    return {"spark.jars": ",".join([*map(str, sorted(folder.glob("jars/*.jar"))), *own]), PACKAGES: ""}
