"""Whether a table is due for maintenance: its health, measured from its metadata, and what to do, with reason and cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING

from frazil_old.config.settings import MaintenanceSettings, ParameterError
from frazil_old.errors import many
from frazil_old.lake import jvm, jvm_maintenance, snapshot_expiry
from frazil_old.lake.snapshot_log import KeptSnapshots, read_kept_snapshots
from frazil_old.lake.state_tags import states_to_tag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_MANIFESTS = 20
"""Manifests of a table that has more are rewritten."""


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


def measure(spark: SparkSession, name: str, s: MaintenanceSettings) -> Health:
    """Measure a table from its metadata."""
    kept = read_kept_snapshots(spark, name)
    files = spark.sql(
        f"""select count_if(content = 0) data_files, count_if(content = 0 and file_size_in_bytes < {s.small_file_mb * (1 << 20):.0f}) small,
                   coalesce(sum(if(content = 0, file_size_in_bytes, 0)), 0) bytes, count_if(content > 0) delete_files,
                   percentile(if(content = 0, file_size_in_bytes, null), array(0.1, 0.5, 0.9)) sizes,
                   coalesce(sum(if(content = 0, record_count, 0)), 0) records, coalesce(sum(if(content > 0, record_count, 0)), 0) deleted
            from {name}.files"""
    ).first()
    table = jvm.load_table(spark, name)
    manifests = jvm_maintenance.manifest_sizes(table)
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
        snapshots=len(kept.by_id),
        expirable=len(snapshot_expiry.expirable(table, s.keep_hours)),
        manifests=len(manifests),
        metadata_mb=round((sum(manifests) + jvm.metadata_bytes(table)) / 1e6, 3),
        commit_p95_s=_commit_p95_s(kept),
        untagged=len(states_to_tag(kept, s)),
    )


def _commit_p95_s(kept: KeptSnapshots) -> float | None:
    """Return the p95 of the seconds from picked up to committed; None if no snapshot says when its changes were picked up."""
    begun = [(s, json.loads(s.summary.get("frazil.latency") or "{}").get("picked_up")) for s in kept.by_id.values()]
    seconds = [(s.made_ms - picked_up) / 1000 for s, picked_up in begun if picked_up]
    if len(seconds) < 2:
        return round(seconds[0], 2) if seconds else None
    return round(quantiles(seconds, n=20, method="inclusive")[-1], 2)


@dataclass(frozen=True)
class Action:
    """One thing to do to a table, the reason, and the approximate cost."""

    action: str
    why: str
    cost: str


def managed_by(s: MaintenanceSettings) -> str:
    """Name the platform that maintains the tables itself, declared or found in the catalog's options; empty if none."""
    if s.managed_by:
        return f"{s.managed_by} (declared)"
    options = " ".join(s.catalog_options.values()).lower()
    return "S3 Tables (by the catalog's options)" if "s3tables" in options else ""


def plan(h: Health, s: MaintenanceSettings) -> list[Action]:
    """Decide from a table's health what to do, in order: states are tagged before any expires."""
    actions = []
    if h.untagged:
        tags = many(h.untagged, "tag")
        actions.append(Action("tag states", f"full hours or days without a tag: {h.untagged}", f"{tags}, no data"))
    compaction = ""
    if h.small_files > s.max_small_files:
        compaction = f"{h.small_files} files below {s.small_file_mb:g} MB, allowed {s.max_small_files}"
    elif h.deleted_share > s.max_deleted_share:
        compaction = f"{h.deleted_share:.0%} of the rows in data files are deleted, allowed {s.max_deleted_share:.0%}"
    if compaction:
        actions.append(Action("compact", compaction, f"reads three times and writes up to {h.mb:,.1f} MB"))
    if h.manifests > MAX_MANIFESTS:
        why = f"{h.manifests} manifests, allowed {MAX_MANIFESTS}"
        actions.append(Action("rewrite manifests", why, f"reads and writes up to {h.metadata_mb:,.1f} MB of metadata"))
    if h.expirable:
        why = f"{h.expirable} of {h.snapshots} are older than {s.keep_hours:.3g} h"
        actions.append(Action("expire snapshots", why, f"deletes {h.expirable} snapshots and the files only they need"))
    if s.orphan_days:
        if s.orphan_days < 3:
            raise ParameterError(
                f"orphan_days = {s.orphan_days:g}", "write 3 or more: younger files may belong to a running commit"
            )
        why = f"files older than {s.orphan_days:g} days that no snapshot knows"
        actions.append(Action("remove orphan files", why, "lists the table's whole folder"))
    return actions
