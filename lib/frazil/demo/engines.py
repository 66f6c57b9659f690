"""Other engines that must read what Frazil writes: DuckDB and PyIceberg, straight from the catalog's SQLite file."""

from __future__ import annotations

import importlib.util
import sqlite3
from pathlib import Path


def metadata_location(catalog_db: Path, target: str) -> str:
    """Return the path of a table's current metadata file, as the catalog has it."""
    namespace, table = target.split(".")
    with sqlite3.connect(catalog_db, timeout=60) as db:
        found = db.execute(
            "select metadata_location from iceberg_tables where table_namespace = ? and table_name = ?",
            (namespace, table),
        ).fetchone()
    return found[0].removeprefix("file:")


def duckdb_counts(catalog_db: Path, targets: list[str]) -> dict[str, int]:
    """Count the rows of tables with DuckDB; its extensions come as Python packages, nothing is downloaded."""
    import duckdb

    with duckdb.connect() as engine:
        for name in ("avro", "iceberg"):
            package = Path(importlib.util.find_spec(f"duckdb_extension_{name}").origin).parent
            engine.execute(f"LOAD '{next(package.rglob('*.duckdb_extension'))}'")
        return {
            t: engine.execute("select count(*) from iceberg_scan(?)", [metadata_location(catalog_db, t)]).fetchone()[0]
            for t in targets
        }


def pyiceberg_counts(catalog_db: Path, warehouse: Path, targets: list[str]) -> dict[str, int]:
    """Count the rows of tables with PyIceberg, by reading them (not from metadata)."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{catalog_db}", warehouse=str(warehouse))
    return {t: len(catalog.load_table(t).scan().to_arrow()) for t in targets}
