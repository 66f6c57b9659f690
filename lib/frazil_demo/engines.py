"""Other engines that must read what Frazil writes: DuckDB and PyIceberg, directly from the catalog's SQLite file."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil_old.config.query_engines import DUCKDB_SETTING
from frazil_old.config.sql import literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SOURCE, LAKE = "source_rows", "lake_rows"


def metadata_location(catalog_db: Path, target: str) -> str:
    """Return the path of a table's current metadata file, from the catalog."""
    namespace, table = target.split(".")
    with sqlite3.connect(catalog_db, timeout=60) as db:
        found = db.execute(
            "select metadata_location from iceberg_tables where table_namespace = ? and table_name = ?",
            (namespace, table),
        ).fetchone()
    return found[0].removeprefix("file:")


@contextmanager
def duckdb() -> Iterator[DuckDBPyConnection]:
    """Open DuckDB so that it reads Iceberg v3 correctly; its extensions are Python packages, so nothing is downloaded."""
    import duckdb as engine

    with engine.connect() as db:
        for name in ("avro", "iceberg"):
            package = Path(importlib.util.find_spec(f"duckdb_extension_{name}").origin).parent
            db.execute(f"LOAD '{next(package.rglob('*.duckdb_extension'))}'")
        db.execute(f"{DUCKDB_SETTING}; SET TimeZone = 'UTC'")
        yield db


def by_duckdb(db: DuckDBPyConnection, catalog_db: Path, target: str) -> None:
    """Create the view `lake_rows` of a table's rows as DuckDB reads them."""
    place = literal(metadata_location(catalog_db, target))
    db.execute(f"CREATE OR REPLACE VIEW {LAKE} AS SELECT * FROM iceberg_scan({place})")


def by_pyiceberg(db: DuckDBPyConnection, catalog_db: Path, target: str) -> None:
    """Create the view `lake_rows` of a table's rows as PyIceberg reads them."""
    from pyiceberg.table import StaticTable

    db.execute(f"DROP VIEW IF EXISTS {LAKE}")
    db.register(LAKE, StaticTable.from_metadata(metadata_location(catalog_db, target)).scan().to_arrow())


def compare(db: DuckDBPyConnection, columns: list[str], rows: list[tuple[Any, ...]]) -> tuple[int, int]:
    """Return the number of rows in `lake_rows`, and how many rows of it and of `rows` have no equal on the other side.

    `rows` hold the values as texts in the order of `columns`; they get the lake's types.
    """
    import pyarrow as pa

    kinds = {name: kind for name, kind, *_ in db.execute(f"DESCRIBE {LAKE}").fetchall()}
    texts = list(zip(*rows, strict=True)) if rows else [() for _ in columns]
    db.register(SOURCE, pa.table({c: pa.array(v, pa.string()) for c, v in zip(columns, texts, strict=True)}))
    names = ", ".join(f'"{c}"' for c in columns)
    typed = ", ".join(
        f"""unhex(substring("{c}", 3)) AS "{c}" """ if kinds[c] == "BLOB" else f'CAST("{c}" AS {kinds[c]}) AS "{c}"'
        for c in columns
    )
    ours, theirs = f"SELECT {typed} FROM {SOURCE}", f"SELECT {names} FROM {LAKE}"
    count, missing, surplus = db.execute(
        f"SELECT (SELECT count(*) FROM {LAKE}), (SELECT count(*) FROM ({ours} EXCEPT ALL {theirs})), "
        f"(SELECT count(*) FROM ({theirs} EXCEPT ALL {ours}))"
    ).fetchone()
    return count, missing + surplus
