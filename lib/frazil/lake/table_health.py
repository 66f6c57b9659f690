"""The present state of a table, measured from its metadata; no data file is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.config.settings import MaintenanceSettings
from frazil.lake import jvm, jvm_expire
from frazil.lake.tables import require_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Health:
    """The state of a table. Sizes are in MB (10⁶ bytes); `deleted_share` is the share of the rows in its data files.

    `file_mb_*` are quantiles of the data files' sizes. `commit_p95_s` is the time from picked up to committed, over the
    kept snapshots.
    """

    rows: int
    data_files: int
    small_files: int
    small_share: float
    mb: float
    file_mb_p10: float
    file_mb_p50: float
    file_mb_p90: float
    delete_files: int
    deleted_share: float
    snapshots: int
    expirable: int
    manifests: int
    metadata_mb: float
    commit_p95_s: float | None
    untagged: int


def health(spark: SparkSession, name: str, s: MaintenanceSettings) -> Health:
    """Measure a table from its metadata."""
    require_table(spark, name)
    files = spark.sql(
        f"""select count_if(content = 0) data_files, count_if(content = 0 and file_size_in_bytes < {s.small_file_mb * (1 << 20):.0f}) small,
                   coalesce(sum(if(content = 0, file_size_in_bytes, 0)), 0) bytes, count_if(content > 0) delete_files,
                   percentile(if(content = 0, file_size_in_bytes, null), array(0.1, 0.5, 0.9)) sizes,
                   coalesce(sum(if(content = 0, record_count, 0)), 0) records, coalesce(sum(if(content > 0, record_count, 0)), 0) deleted
            from {name}.files"""
    ).first()
    manifests = spark.sql(f"select count(*) n, coalesce(sum(length), 0) bytes from {name}.manifests").first()
    picked_up = "get_json_object(summary['frazil.latency'], '$.picked_up')"
    p95 = spark.sql(
        f"select percentile((unix_millis(committed_at) - {picked_up}) / 1000, 0.95) from {name}.snapshots"
    ).first()[0]
    table = jvm.load_table(spark, name)
    snapshots, expirable = jvm_expire.snapshots_to_expire(table, s.keep_hours, s.min_snapshots)
    sizes = [round(x / 1e6, 3) for x in files.sizes or (0, 0, 0)]
    return Health(
        rows=files.records - files.deleted,
        data_files=files.data_files,
        small_files=files.small,
        small_share=round(files.small / files.data_files, 3) if files.data_files else 0.0,
        mb=round(files.bytes / 1e6, 2),
        file_mb_p10=sizes[0],
        file_mb_p50=sizes[1],
        file_mb_p90=sizes[2],
        delete_files=files.delete_files,
        deleted_share=round(files.deleted / files.records, 3) if files.records else 0.0,
        snapshots=snapshots,
        expirable=expirable,
        manifests=manifests.n,
        metadata_mb=round((manifests.bytes + jvm.metadata_bytes(table)) / 1e6, 3),
        commit_p95_s=None if p95 is None else round(p95, 2),
        untagged=len(states_to_tag(spark, name, s)),
    )


def states_to_tag(spark: SparkSession, name: str, s: MaintenanceSettings) -> list[tuple[str, int, int]]:
    """Return the last states of full hours and days (UTC) without a tag: tag, snapshot, and how long to keep it, in ms."""
    kinds = [
        ("hour", "HOUR", "yyyyMMdd'T'HH", s.hourly_tags * 3_600_000),
        ("day", "DAY", "yyyyMMdd", s.daily_tags * 86_400_000),
    ]
    found: list[tuple[str, int, int]] = []
    for prefix, unit, pattern, keep in kinds:
        if keep:
            # Shifted so that hours and days are in UTC, whatever the session's time zone.
            at = "to_utc_timestamp(made_current_at, current_timezone())"
            rows = spark.sql(
                f"""select '{prefix}_' || date_format(date_trunc('{unit}', {at}), "{pattern}") tag, max_by(snapshot_id, made_current_at) id
                    from {name}.history where is_current_ancestor and {at} < date_trunc('{unit}', to_utc_timestamp(now(), current_timezone()))
                      and unix_millis(made_current_at) > unix_millis(now()) - {keep} group by 1
                    having tag not in (select name from {name}.refs) order by 1"""
            ).collect()
            found += [(r.tag, r.id, keep) for r in rows]
    return found
