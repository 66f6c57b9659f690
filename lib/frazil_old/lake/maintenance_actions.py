"""The actions of maintenance, as `maintenance_plan.plan` names them: `execute` does one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.config.sql import literal
from frazil_old.lake import jvm, jvm_maintenance, snapshot_expiry
from frazil_old.lake.commit_retry import is_known_failure, until_committed
from frazil_old.lake.compaction import compact
from frazil_old.lake.snapshot_log import read_kept_snapshots
from frazil_old.lake.state_tags import states_to_tag
from frazil_old.lake.tables import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS = 3


def execute(
    spark: SparkSession, name: str, action: str, s: MaintenanceSettings, run: str, say: Callable[[str], None]
) -> dict[str, float]:
    """Do one action on a table and return what it changed. Ingestion may run meanwhile: a batch whose base moved is written again."""
    if action == "compact":
        return compact(spark, name, s, run, say)
    if action == "tag states":
        states = states_to_tag(read_kept_snapshots(spark, name), s)
        jvm.tag(spark, name, states)
        return {"tags": len(states)}
    if action == "rewrite manifests":
        return {"rewritten_manifests": _rewrite_manifests(spark, name, say)}
    if action == "remove orphan files":
        return {"orphan_files": len(orphan_files(spark, name, s, dry_run=False))}
    return {"expired_snapshots": snapshot_expiry.expire_snapshots(jvm.load_table(spark, name), s.keep_hours)}


def _rewrite_manifests(spark: SparkSession, name: str, say: Callable[[str], None]) -> int:
    """Rewrite all manifests, or only those of data if a batch commits first; return how many."""
    failures: list[Exception] = []

    def attempt() -> int:
        return jvm_maintenance.rewrite_manifests(spark, jvm.load_table(spark, name), of_data_only=bool(failures))

    try:
        return until_committed(attempt, failed=failures.append, attempts=ATTEMPTS)
    except Exception as error:
        if not is_known_failure(error):
            raise
    say(f"{name}: {ATTEMPTS} times a batch replaced manifests while they were rewritten: left to the next run")
    return 0


def orphan_files(spark: SparkSession, name: str, s: MaintenanceSettings, dry_run: bool = True) -> list[str]:
    """Return the files in the table's folder that no snapshot uses; remove them unless `dry_run`.

    Raise TableError if other tables may use them: those of a namespace with the table's name have their folders in its own.
    """
    catalog, table = name.split(".", 1)
    inner = spark.sql(f"SHOW NAMESPACES IN {name.rsplit('.', 1)[0]}").collect()
    letters = partial(re.sub, r"\W", "")  # Spark and Frazil quote different names
    if letters(table) in (letters(row[0]) for row in inner):
        raise TableError(
            f"{name}: a namespace has the same name, so files of its tables would count as orphan files of this one",
            "nothing was removed: set orphan_days to 0, or move the namespace's tables to another one and drop it",
        )
    if not snapshot_expiry.may_delete(jvm.load_table(spark, name)):
        raise TableError(
            f"{name}: gc.enabled is false, as other tables may use its files",
            "nothing was removed: set orphan_days to 0, or gc.enabled to true if no other table uses them",
        )
    older = time.strftime("%Y-%m-%d %H:%M:%S+00:00", time.gmtime(time.time() - s.orphan_days * 86_400))
    rows = spark.sql(
        f"CALL {catalog}.system.remove_orphan_files(table => {literal(table)}, older_than => TIMESTAMP '{older}', dry_run => {str(dry_run).lower()})"
    )
    return sorted(r[0] for r in rows.collect())
