"""The clocks of hosts and tables: Iceberg refuses a commit that is more than a minute older than the table's newest one."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from frazil_old.dms.storage import is_s3, server_time
from frazil_old.errors import FrazilError, many
from frazil_old.lake import jvm, jvm_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil_old.lake.jvm import JavaTable


ALLOWED_S = 60


class ClockError(FrazilError):
    """This host's clock is wrong, or a table's newest snapshot is in the future; nothing was written."""


def shown(at: float) -> str:
    """Format a time (epoch seconds)."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def require_same_time(theirs: float, ours: float, whose: str) -> None:
    """Raise ClockError if this host's clock (`ours`, epoch seconds) differs from another one by more than a minute."""
    if abs(ours - theirs) > ALLOWED_S:
        raise ClockError(
            f"the clock of host {socket.gethostname()} says {shown(ours)}, and {whose} {shown(theirs)}; nothing was written",
            "set the clock (chrony, systemd-timesyncd) and run again",
        )


def require_right_clock(file: Path, places: Iterable[str] = ()) -> None:
    """Raise ClockError if this host's clock differs from another one by more than a minute.

    `file` is one that the run has written: a network file system gives it its own time. S3 is asked for its time in
    each bucket of `places`, once.
    """
    buckets = {p.split("://", 1)[1].split("/")[0]: p for p in places if is_s3(p)}
    for place in [*([str(file)] if file.is_file() else []), *buckets.values()]:
        if times := server_time(place):
            require_same_time(*times, f"that of {place}")


def require_past(name: str, source: str, last_updated_ms: int, snapshots: Iterable[tuple[int, int]]) -> None:
    """Raise ClockError if a table's last change is in the future; `snapshots` are ids and times in milliseconds, read only then."""
    now = time.time()
    if last_updated_ms / 1000 - now <= ALLOWED_S:
        return
    late = {made: snapshot for snapshot, made in snapshots if made / 1000 > now}
    what = (
        f"its snapshot {late[max(late)]} is of {shown(max(late) / 1000)}"
        if late
        else "it was changed last at " + shown(last_updated_ms / 1000)
    )
    which = f" --table {source}" if source else ""  # Frazil's own tables have no source
    raise ClockError(
        f"{name}: {what}, and the clock of host {socket.gethostname()} says {shown(now)}; nothing was written",
        f"if this clock is right, a run with a wrong clock made that snapshot: frazil repair{which} gives such snapshots the "
        "present time, and loses nothing; if it is wrong, set it and run again",
    )


def require_table_in_past(table: JavaTable, name: str) -> None:
    """Raise ClockError if the last change of a table is in the future; see `require_past`."""
    last = table.operations().current().lastUpdatedMillis()
    made = ((s.snapshotId(), s.timestampMillis()) for s in table.snapshots())
    require_past(name, table.properties().get("frazil.source") or "", last, made)


def retime(spark: SparkSession, name: str) -> str:
    """Set commit times in the future to the present time, in the order of the commits; rows, positions and ids stay."""
    table = jvm.load_table(spark, name)
    now, metadata = round(time.time() * 1000), json.loads(jvm.metadata_json(spark, table))
    last = metadata["last-updated-ms"]
    if last <= now + ALLOWED_S * 1000:
        return ""
    late = [s for s in metadata["snapshots"] if s["timestamp-ms"] > now]
    logged = [e for part in ("snapshots", "snapshot-log", "metadata-log") for e in metadata.get(part, ())]
    for entry in logged:
        entry["timestamp-ms"] = min(entry["timestamp-ms"], now)
    metadata["last-updated-ms"] = now
    jvm_schema.replace_metadata(spark, table, json.dumps(metadata))
    try:
        require_table_in_past(jvm.load_table(spark, name), name)
    except ClockError as e:  # a REST catalog accepts only single changes
        until = shown(last / 1000)
        raise ClockError(
            e.problem, f"this catalog does not let times be changed: wait until {until}; readers see all rows"
        ) from None
    return f"{name}: {many(late, 'snapshot')} from the future given the present time"
