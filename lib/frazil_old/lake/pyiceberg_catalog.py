"""Reads positions without Spark, through PyIceberg, for runs that only need to know whether there is work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from frazil_old.config.paths import rest_properties, sqlite_file, sqlite_properties
from frazil_old.config.settings import Settings
from frazil_old.dms.position import POSITION, Position, PositionError
from frazil_old.dms.storage import endpoint_url
from frazil_old.errors import FrazilError
from frazil_old.lake.clocks import require_past
from frazil_old.lake.jvm import TAG
from frazil_old.lake.other_writers import COLUMNS, RELOAD, REPLAY, SHOWN, duplicate_keys, is_foreign, require_columns
from frazil_old.lake.quarantine_columns import STATE
from frazil_old.lake.row_delta_self_test import PREFIX
from frazil_old.lake.stored_position import damaged, history_entry, stamped
from frazil_old.lake.tables import MADE

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


LOCAL_FIRST = "frazil_old.lake.local_io.LocalFirstIO"
VISIBLE = "visible"
"""The ledger's table of the time when an engine other than Spark first saw each commit."""
SERVED = "served"
"""The ledger's table of what warehouses serve."""
SERVED_COLUMNS = {
    "warehouse": "text", "name": "text", "newest_id": "int", "committed_at": "time", "snapshot_id": "int",
    "metadata": "text", "status": "text", "why": "text", "seen_at": "time",
}  # fmt: skip
LEDGER_COLUMNS = {
    VISIBLE: {"name": "text", "snapshot_id": "int", "seen_at": "time", "engine": "text"}, SERVED: SERVED_COLUMNS,
}  # fmt: skip
"""The columns of the ledger's tables that are written without Spark."""
OPS = {"commits": "name", "maintenance": "name", VISIBLE: "name", SERVED: "name", "quarantine": "table_name"}
"""Frazil's own tables in the namespace `ops`, and the column with the table that a row is about."""


class CatalogError(FrazilError):
    """The catalog, or a table's position, cannot be read without Spark."""


@contextmanager
def _as_catalog_error() -> Iterator[None]:
    """Turn any exception of PyIceberg, the database or the storage into a CatalogError."""
    try:
        yield
    except FrazilError:
        raise
    except Exception as e:
        cause = f"{type(e).__name__}: {(str(e).splitlines() or [''])[0]}"
        raise CatalogError(
            f"the lake cannot be read without Spark: {cause}",
            "correct what it names, or see whether a notebook can read it",
        ) from e


@_as_catalog_error()
def open_catalog(settings: Settings) -> Catalog:
    """Return the settings' catalog in PyIceberg: SQLite by JDBC, REST, Glue or S3 Tables."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise CatalogError("pyiceberg is not installed", "pip install 'frazil[workbook]'") from None
    given: dict[str, Any] = {k: v for k, v in settings.catalog_options.items() if not k.startswith("jdbc.")}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    given = {
        "py-io-impl": LOCAL_FIRST,
        "s3.endpoint": endpoint_url(),
        "s3.region": region,
    } | given  # as for boto3 and Spark
    given = {k: v for k, v in given.items() if v}
    kind = settings.catalog_kind
    if kind == "jdbc" and (file := sqlite_file(settings.root, given)):
        if not os.path.exists(file):
            raise CatalogError(f"there is no catalog {file}", "run 00_setup first")
        given |= {**sqlite_properties(settings.root, given), "init_catalog_tables": "false"}
        return load_catalog(settings.catalog, **given)
    if kind in ("rest", "glue", "s3tables"):
        own = rest_properties(kind, settings.catalog_options) if kind == "s3tables" else {"type": kind}
        return load_catalog(settings.catalog, **{k: v for k, v in given.items() if k != "catalog-impl"} | own)
    raise CatalogError(
        f"a catalog of type '{kind}' is not read without Spark", "use type jdbc on SQLite, rest, glue or S3 Tables"
    )


@_as_catalog_error()
def get_table(catalog: Catalog, target: str) -> Table:
    """Return a table of the lake; raise CatalogError if it does not exist."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(target)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise CatalogError(f"table {target} does not exist", "run 00_setup first") from None


@_as_catalog_error()
def ops_table(settings: Settings, which: str) -> Table | None:
    """Return one of Frazil's own tables (`OPS`), or None if it does not exist; raise CatalogError if the catalog cannot be read."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return open_catalog(settings).load_table(f"{settings.ops_namespace}.{which}")
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


@_as_catalog_error()
def records(table: Table | None) -> list[dict[str, Any]]:
    """Return the present state of each row in the quarantine: the columns `quarantine_columns.STATE`."""
    if table is None:
        return []
    there = tuple(c for c in STATE if c in table.schema().column_names)  # an older version has no `target`
    rows = [dict.fromkeys(STATE) | r for r in table.scan(selected_fields=there).to_arrow().to_pylist()]
    rows.sort(key=lambda r: (r["sequence"], r["changed_at"]))
    return list({(r["table_name"], r["target"], r["id"]): r for r in rows}.values())


def sizes(table: Table) -> dict[str, int]:
    """Return a table's numbers of data files, delete files, rows in its data files, and snapshots, by its metadata alone."""
    head = table.current_snapshot()
    totals = _summary(head) if head else {}
    counted = {name: int(totals.get(f"total-{name.replace('_', '-')}", 0)) for name in ("data_files", "delete_files")}
    return {**counted, "records": int(totals.get("total-records", 0)), "snapshots": len(table.snapshots())}


def commits(table: Table, since: float) -> list[tuple[int, dict[str, str]]]:
    """Return time (epoch milliseconds) and summary of the snapshots made after `since` (epoch seconds)."""
    kept = [s for s in table.snapshots() if s.timestamp_ms >= since * 1000 and s.summary]
    return [(s.timestamp_ms, s.summary.additional_properties) for s in kept]


@_as_catalog_error()
def tells_of(table: Table, column: str) -> set[str]:
    """Return the names of the tables that a table of `OPS` has rows about: those of the lake, where it knows them."""
    rows = table.scan(selected_fields=[c for c in ("target", column) if c in table.schema().column_names]).to_arrow()
    return {r.get("target") or r[column] for r in rows.to_pylist()}


@_as_catalog_error()
def scratch(catalog: Catalog, namespaces: Iterable[str]) -> list[tuple[str, Table]]:
    """Return the scratch tables of self-tests in some namespaces, with their names."""
    there = [n for n in namespaces if catalog.namespace_exists(n)]
    names = [".".join(t) for n in there for t in catalog.list_tables(n) if t[-1].startswith(PREFIX)]
    return [(name, catalog.load_table(name)) for name in names]


@_as_catalog_error()
def made_by_us(catalog: Catalog, namespace: str, tables: Iterable[str]) -> bool:
    """Return whether Frazil created a namespace that holds no other tables than these."""
    there = {".".join(t) for t in catalog.list_tables(namespace)}
    return bool(
        catalog.load_namespace_properties(namespace).get(MADE) and there <= set(tables)
    ) and not catalog.list_namespaces(namespace)


def seen(table: Table) -> set[int]:
    """Return the snapshots that are or were the table's current state."""
    return {entry.snapshot_id for entry in table.history()}


@_as_catalog_error()
def append(catalog: Catalog, ops: str, which: str, rows: list[tuple]) -> None:
    """Append rows to a ledger table of `LEDGER_COLUMNS`, in one commit; times are epoch milliseconds."""
    import pyarrow as pa

    kinds = {"int": pa.int64(), "text": pa.string(), "time": pa.timestamp("ms", tz="UTC")}
    columns = {
        name: pa.array(values, kinds[kind])
        for (name, kind), values in zip(LEDGER_COLUMNS[which].items(), zip(*rows, strict=True), strict=True)
    }
    stored = {**kinds, "time": pa.timestamp("us", tz="UTC")}
    new = pa.table(columns).cast(pa.schema([(name, stored[kind]) for name, kind in LEDGER_COLUMNS[which].items()]))
    catalog.create_namespace_if_not_exists(ops, {MADE: "true"})
    catalog.create_table_if_not_exists(f"{ops}.{which}", new.schema).append(new)


@_as_catalog_error()
def served(settings: Settings) -> list[dict[str, Any]]:
    """Return all kept rows about what warehouses served, the oldest first."""
    table = ops_table(settings, SERVED)
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["seen_at"]) if table is not None else []


def snapshot_of(table: Table, metadata: str) -> int | None:
    """Return the current snapshot that a metadata file of a table names; None if it cannot be read."""
    from pyiceberg.serializers import FromInputFile

    try:
        return FromInputFile.table_metadata(table.io.new_input(metadata)).current_snapshot_id if metadata else None
    except (OSError, ValueError):
        return None


def _ancestors(table: Table) -> Iterator[Snapshot]:
    """Yield the current snapshot and its kept ancestors, newest first."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None


def _summary(snapshot: Snapshot) -> dict[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def _history(table: Table) -> Iterator[tuple[int, int, str | None]]:
    for s in _ancestors(table):
        yield history_entry(s.snapshot_id, s.parent_snapshot_id, s.sequence_number or 0, _summary(s).get(POSITION))


def position_of(table: Table, name: str = "") -> Position:
    """Return a table's position, if main descends from the snapshot that it was committed with.

    Raise the errors of `tables.read_table_state` if others changed columns or doubled keys, or if the last change is in the
    future. `name` is the table's name in Spark.
    """
    metadata, name = table.metadata, name or ".".join(table.name())
    source = metadata.properties.get("frazil.source", "")
    require_past(name, source, metadata.last_updated_ms, ((s.snapshot_id, s.timestamp_ms) for s in metadata.snapshots))
    stored = metadata.properties.get(POSITION)
    if stored is None and TAG in metadata.refs:
        raise damaged(name, None, _history(table))
    if stored is None:
        raise CatalogError(f"{name} carries no position", "run 00_setup first")
    try:
        position, stamp = stamped(stored)
    except PositionError as e:
        raise damaged(name, e, _history(table)) from None
    again = RELOAD if position.stream else REPLAY
    require_columns(
        name, source, metadata.properties.get(COLUMNS), {f.name: f.field_id for f in table.schema().fields}, again
    )
    theirs = []
    for snapshot in _ancestors(table):
        if snapshot.snapshot_id == stamp["snapshot"]:
            break
        if snapshot.summary and is_foreign(snapshot.summary.operation.value, _summary(snapshot)):
            theirs.append(snapshot)
    else:
        raise CatalogError(
            f"{name}: its history does not reach its position", "run the notebook: its error has the details"
        )
    if theirs:
        _require_unique_keys(table, theirs, again)
    return position


@_as_catalog_error()
def _require_unique_keys(table: Table, theirs: list[Snapshot], again: str) -> None:
    """Raise OtherWriterError for duplicate keys among those that other writers added in the snapshots `theirs`, newest first.

    Rows are read in small parts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.manifest import ManifestContent

    key, head = [f.name for f in table.schema().fields if f.required], table.current_snapshot()
    if not key or head is None:
        return
    added = {s.snapshot_id for s in theirs}
    files = {
        entry.data_file.file_path
        for manifest in head.manifests(table.io)
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.snapshot_id in added
    }
    scan = table.scan(selected_fields=tuple(key))
    tasks = [t for t in scan.plan_files() if t.file.file_path in files]
    rows = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
    wanted = rows.to_table(tasks).select(key).group_by(key).aggregate([])
    kinds = pa.schema([(f.name, f.type) for f in wanted.schema])
    wanted, found = wanted.cast(kinds), [kinds.empty_table()]
    for part in table.scan(selected_fields=tuple(key)).to_arrow_batch_reader():
        all_keys = pa.Table.from_batches([part]).select(key).cast(kinds)
        found.append(all_keys.join(wanted, key, join_type="left semi").select(key).cast(kinds))
    counts = pa.concat_tables(found).group_by(key).aggregate([([], "count_all")])
    twice = (
        counts.filter(pc.greater(counts["count_all"], 1)).sort_by([(k, "ascending") for k in key]).slice(0, SHOWN + 1)
    )
    if twice.num_rows:
        first = theirs[-1]
        commit = (first.snapshot_id, first.timestamp_ms, first.parent_snapshot_id)
        shown = [tuple(row[c] for c in (*key, "count_all")) for row in twice.to_pylist()]
        raise duplicate_keys(".".join(table.name()), key, shown, commit, again)
