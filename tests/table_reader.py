"""Read tables as other engines do: PyIceberg and DuckDB on the current metadata file, which the catalog names. No Spark, nothing of Frazil."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import urllib.request
from functools import cache
from pathlib import Path
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.fs as fs
from fsspec.implementations.arrow import ArrowFSWrapper
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadata

import aws_emulator


def metadata_file(lake: dict[str, str], name: str) -> str:
    """Return the address of the current metadata file of `namespace.table` in a SQLite, REST or Glue catalog."""
    space, table = name.rsplit(".", 1)
    if lake["type"] == "rest":
        with urllib.request.urlopen(f"{lake['uri']}/v1/namespaces/{space}/tables/{table}") as answer:
            return json.load(answer)["metadata-location"]
    if lake["type"] == "glue":
        told = aws_emulator.client("glue", lake["glue.endpoint"]).get_table(DatabaseName=space, Name=table)
        return told["Table"]["Parameters"]["metadata_location"]
    file = Path(lake["uri"].removeprefix("jdbc:sqlite:"))
    assert file.exists(), f"there is no catalog {file}"
    with sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True) as catalog:
        found = catalog.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?", (space, table)
        ).fetchone()
    assert found, f"the catalog has no table {name}"
    return found[0]


def exists(lake: dict[str, str], name: str) -> bool:
    """Return whether a catalog has a table."""
    try:
        return bool(metadata_file(lake, name))
    except (AssertionError, OSError):
        return False


def table(lake: dict[str, str], name: str) -> StaticTable:
    """Open a table in PyIceberg."""
    return StaticTable.from_metadata(metadata_file(lake, name), _for_pyiceberg(lake))


def rows(lake: dict[str, str], name: str) -> list[tuple]:
    """Return a table's rows in order, as PyIceberg reads them; fail if DuckDB reads others. It takes no path with a double quote."""
    found = tuples(table(lake, name).scan().to_arrow())
    other = found if '"' in metadata_file(lake, name) else _duckdb(lake, name, "*")
    assert comparable(found) == comparable(other), f"{name}: PyIceberg has {found[:9]}, DuckDB has {other[:9]}"
    return found


def row_ids(lake: dict[str, str], name: str, key: list[str]) -> dict[tuple, int]:
    """Return the row id of each key; fail if two rows share one."""
    found = _duckdb(lake, name, ", ".join([*(f'"{k}"' for k in key), "_row_id"]))
    assert len({r[-1] for r in found}) == len(found), f"{name}: row ids are not unique"
    return {r[:-1]: r[-1] for r in found}


def history(metadata: TableMetadata) -> list:
    """Return the snapshots from the current one back to the first that is kept."""
    by_id, found = {s.snapshot_id: s for s in metadata.snapshots}, []
    at = by_id.get(metadata.current_snapshot_id)
    while at is not None:
        found.append(at)
        at = by_id.get(at.parent_snapshot_id)
    return found


def leftovers(lake: dict[str, str], name: str) -> list[str]:
    """Return branches beside main, and data and delete files that no kept snapshot names."""
    there = table(lake, name)
    metadata = there.metadata
    branches = [n for n, ref in metadata.refs.items() if ref.snapshot_ref_type == "branch" and n != "main"]
    named = {_path(p) for s in metadata.snapshots for m in s.manifests(there.io) for p in _paths(m, there.io)}
    files = {f for f in _files(lake, metadata.location) if not f.endswith(".crc")}
    return sorted([*(f"branch {b}" for b in branches), *(f"file {f}" for f in files - named)])


_named: dict[str, list[str]] = {}
"""The files that a manifest names, by its own path: manifests are never written again."""


def _paths(manifest, io) -> list[str]:
    at = manifest.manifest_path
    if at not in _named:
        _named[at] = [e.data_file.file_path for e in manifest.fetch_manifest_entry(io, discard_deleted=False)]
    return _named[at]


def _files(lake: dict[str, str], location: str) -> list[str]:
    """Return the data and delete files that lie in a table's location."""
    if location.startswith("s3://"):
        store, folder = _s3(lake), f"{location.removeprefix('s3://')}/data"
    else:
        store, folder = fs.LocalFileSystem(), f"{_path(location)}/data"
    found = store.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    return [f"s3://{f.path}" if location.startswith("s3://") else f.path for f in found if f.type == fs.FileType.File]


def _s3(lake: dict[str, str]) -> fs.FileSystem:
    keys = {"access_key": lake["s3.access-key-id"], "secret_key": lake["s3.secret-access-key"]}
    at = lake["s3.endpoint"].removeprefix("http://")
    return fs.S3FileSystem(**keys, region=lake["s3.region"], scheme="http", endpoint_override=at)


def _path(address: str) -> str:
    path = address.removeprefix("file:")
    return "/" + path.lstrip("/") if address.startswith("file:") else path


def _for_pyiceberg(lake: dict[str, str]) -> dict[str, str]:
    known = ("s3.endpoint", "s3.access-key-id", "s3.secret-access-key", "s3.region", "s3.path-style-access")
    return {k: lake[k] for k in known if k in lake}


def _duckdb(lake: dict[str, str], name: str, columns: str) -> list[tuple]:
    """Return rows as DuckDB reads them."""
    file = metadata_file(lake, name)
    if file.startswith("s3://"):
        db = _connected()
        db.register_filesystem(_Store(_s3(lake)))  # stands in for its extension httpfs, which is no package
    else:
        db = _local().cursor()
    place = _path(file).replace("'", "''")
    with db:
        return tuples(db.execute(f"SELECT {columns} FROM iceberg_scan('{place}')").to_arrow_table())


_local = cache(lambda: _connected())
"""The connection by which local files are read: to load the extensions takes longer than to read a small table."""


def _connected() -> duckdb.DuckDBPyConnection:
    """Return a connection with the extensions. Its file cache is off: with it DuckDB reads tables of format v3 wrongly."""
    db = duckdb.connect()
    for extension in ("avro", "iceberg"):
        package = Path(importlib.util.find_spec(f"duckdb_extension_{extension}").origin).parent
        db.execute(f"LOAD '{next(package.rglob('*.duckdb_extension'))}'")
    db.execute("SET GLOBAL enable_external_file_cache = false; SET GLOBAL TimeZone = 'UTC'")
    return db


class _Store(ArrowFSWrapper):
    """Addresses of S3, for DuckDB."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("s3://")


def tuples(found: pa.Table) -> list[tuple]:
    """Return the rows of an Arrow table in a fixed order."""
    return sorted(zip(*[c.to_pylist() for c in found.columns], strict=True), key=repr)


def comparable(found: list[tuple]) -> list[str]:
    """Return rows as texts, so that NaN equals itself and -0.0 is not 0.0."""
    return sorted(map(repr, found))
