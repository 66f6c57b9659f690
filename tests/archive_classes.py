"""Write the classes that Spark loads to an archive (class data sharing). Each JVM of the tests then starts in half the time."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main(archive: str) -> None:
    new = f"{archive}.new"
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={new} -Xlog:cds=off -Xlog:cds+dynamic=off"
    with tempfile.TemporaryDirectory() as folder:
        _load_and_merge(Path(folder))
        _end_the_jvm()
    os.replace(new, archive)


def _load_and_merge(root: Path) -> None:
    from dms_writer import D, I, U
    from frazil_old.config.settings import Settings
    from frazil_old.config.spark_session import get_spark
    from world import World

    catalog = {"type": "jdbc", "uri": f"jdbc:sqlite:{root}/catalog.db", "warehouse": f"{root}/warehouse"}
    get_spark(Settings(root=str(root / "session"), catalog_options=catalog))
    world = World(root / "world", "world", catalog)
    world.table("t").source.load("t", (1, "a"), (2, "b"))
    world.loaded().source.changes("t", U(4, "c", was=1), D(2), I(3, "d"))
    assert world.merged().rows("t") == [(3, "d"), (4, "c")]


def _end_the_jvm() -> None:
    """Stop Spark and wait until the JVM has written the archive, which it does last."""
    from pyspark import SparkContext

    jvm: subprocess.Popen = SparkContext._gateway.proc
    SparkContext._active_spark_context.stop()
    jvm.stdin.close()
    jvm.wait(timeout=300)


if __name__ == "__main__":
    main(sys.argv[1])
