"""Keep tables healthy: what their files look like, what should be done about it, and doing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.config.settings import MaintenanceSettings
from frazil.lake import jvm
from frazil.lake.tables import require_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Health:
    """What a table is made of now. Sizes in MB (10⁶ bytes); `deleted_share` is of the rows in its data files."""

    rows: int
    data_files: int
    small_files: int
    mb: float
    delete_files: int
    deleted_share: float
    snapshots: int
    expirable: int
    manifests: int
    metadata_mb: float


def health(spark: SparkSession, name: str, s: MaintenanceSettings) -> Health:
    """Measure a table from its metadata tables; no data file is opened."""
    require_table(spark, name)
    files = spark.sql(
        f"""select count_if(content = 0) data_files, count_if(content = 0 and file_size_in_bytes < {s.small_file_mb << 20}) small,
                   coalesce(sum(if(content = 0, file_size_in_bytes, 0)), 0) bytes, count_if(content > 0) delete_files,
                   coalesce(sum(if(content = 0, record_count, 0)), 0) records, coalesce(sum(if(content > 0, record_count, 0)), 0) deleted
            from {name}.files"""
    ).first()
    manifests = spark.sql(f"select count(*) n, coalesce(sum(length), 0) bytes from {name}.manifests").first()
    kept = jvm.snapshots_to_expire(jvm.load_table(spark, name), s.keep_hours, s.min_snapshots)
    return Health(
        rows=files.records - files.deleted,
        data_files=files.data_files,
        small_files=files.small,
        mb=round(files.bytes / 1e6, 2),
        delete_files=files.delete_files,
        deleted_share=round(files.deleted / files.records, 3) if files.records else 0.0,
        snapshots=kept[0],
        expirable=kept[1],
        manifests=manifests.n,
        metadata_mb=round(manifests.bytes / 1e6, 3),
    )


@dataclass(frozen=True)
class Action:
    """One thing to do to a table, and why."""

    action: str
    why: str


def plan(h: Health, s: MaintenanceSettings) -> list[Action]:
    """Decide from a table's health what to do, in the order in which it should be done."""
    actions = []
    if h.small_files > s.max_small_files:
        actions.append(
            Action("compact", f"{h.small_files} files below {s.small_file_mb} MB, allowed {s.max_small_files}")
        )
    elif h.deleted_share > s.max_deleted_share:
        actions.append(
            Action(
                "compact",
                f"{h.deleted_share:.0%} of the rows in data files are deleted, allowed {s.max_deleted_share:.0%}",
            )
        )
    if h.manifests > s.max_manifests:
        actions.append(Action("rewrite manifests", f"{h.manifests} manifests, allowed {s.max_manifests}"))
    if h.expirable:
        actions.append(Action("expire snapshots", f"{h.expirable} of {h.snapshots} are older than {s.keep_hours:g} h"))
    return actions


def execute(spark: SparkSession, name: str, action: Action, s: MaintenanceSettings) -> dict[str, Any]:
    """Do one action and return what it changed. Ingestion beside it is safe: a batch whose base moved is written again."""
    catalog, table = name.split(".", 1)
    if action.action == "compact":
        options = {
            "target-file-size-bytes": s.target_file_mb << 20, "min-input-files": 2, "delete-file-threshold": 1,
            "delete-ratio-threshold": s.max_deleted_share, "remove-dangling-deletes": "true",
            "partial-progress.enabled": "false",
        }  # fmt: skip
        listed = ", ".join(f"'{k}', '{v}'" for k, v in options.items())
        row = spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{table}', options => map({listed}))"
        ).first()
        return {"rewritten_files": row.rewritten_data_files_count, "added_files": row.added_data_files_count}
    if action.action == "rewrite manifests":
        row = spark.sql(f"CALL {catalog}.system.rewrite_manifests('{table}')").first()
        return {"rewritten_manifests": row.rewritten_manifests_count}
    return {"expired_snapshots": jvm.expire_snapshots(jvm.load_table(spark, name), s.keep_hours, s.min_snapshots)}
