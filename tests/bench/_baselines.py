"""What others do with a file of changes, on a table of their own with the same rows: timed beside the row-delta lane.

Each keeps to what its documentation shows: no position, no order across files, no check of what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bench._lake import NAMES, TYPED, VALUES
from helpers import World


def upsert(table: str, source: str, deletes: bool = True) -> str:
    """Return a MERGE of the changes in a view or query; `deletes`: by its column `op`, deletes too."""
    gone, there = ("when matched and s.op = 'D' then delete", "and s.op <> 'D'") if deletes else ("", "")
    updates, values = ", ".join(f"t.{c} = s.{c}" for c in NAMES), ", ".join(f"s.{c}" for c in NAMES)
    inserted = f"when not matched {there} then insert ({', '.join(NAMES)}) values ({values})"
    return (
        f"merge into {table} t using {source} s on t.id = s.id {gone} when matched then update set {updates} {inserted}"
    )


def _rows(world: World, rows: int, files: int):
    return world.spark.range(1, rows + 1, 1, files).selectExpr(*VALUES)


def _iceberg(world: World, name: str, rows: int, files: int, mode: str) -> str:
    """Make an Iceberg table with the rows, and return its full name."""
    writer = _rows(world, rows, files).writeTo(world.name(name)).using("iceberg").tableProperty("format-version", "2")
    for what in ("merge", "delete", "update"):
        writer = writer.tableProperty(f"write.{what}.mode", mode)
    writer.tableProperty("write.distribution-mode", "none").create()
    return world.name(name)


def _batch(world: World, file: Path) -> None:
    """Make the last change of each key in a file the view `batch`."""
    world.spark.read.schema(f"op string, ts timestamp_ntz, {TYPED}").csv(str(file)).createOrReplaceTempView("lines")
    numbered = "select *, row_number() over (partition by id order by ts desc) n from lines"
    world.spark.sql(f"select * except (n) from ({numbered}) where n = 1").createOrReplaceTempView("batch")


def merge_into(world: World, rows: int, files: int, mode: str) -> Callable[[Path], None]:
    """One MERGE INTO a file, of Spark's."""
    table = _iceberg(world, f"merged_{mode.replace('-', '_')}", rows, files, mode)

    def apply(file: Path) -> None:
        _batch(world, file)
        world.spark.sql(upsert(table, "batch"))

    return apply


def delete_then_merge(world: World, rows: int, files: int) -> Callable[[Path], None]:
    """Two commits a file, as in AWS's article on Glue: first the deletes, then a MERGE of the rest, copy-on-write."""
    table = _iceberg(world, "two_commits", rows, files, "copy-on-write")

    def apply(file: Path) -> None:
        _batch(world, file)
        world.spark.sql(f"delete from {table} where id in (select id from batch where op = 'D')")
        world.spark.sql(upsert(table, "(select * from batch where op <> 'D')", deletes=False))

    return apply


def delta_rs(world: World, rows: int, files: int) -> Callable[[Path], None]:
    """delta-rs's merge, without Spark."""
    import pyarrow.dataset as ds
    from deltalake import DeltaTable, write_deltalake

    plain, place = world.root / "plain", str(world.root / "delta")
    _rows(world, rows, files).write.parquet(str(plain))
    for part in sorted(plain.glob("*.parquet")):
        write_deltalake(place, ds.dataset(part).to_table(), mode="append")

    def apply(file: Path) -> None:
        merge = DeltaTable(place).merge(_arrow(file), "t.id = s.id", source_alias="s", target_alias="t")
        values = {c: f"s.{c}" for c in NAMES}
        merge = merge.when_matched_delete("s.op = 'D'").when_matched_update(values)
        merge.when_not_matched_insert(values, "s.op <> 'D'").execute()

    return apply


def pyiceberg_upsert(world: World, rows: int, files: int) -> Callable[[Path], None]:
    """PyIceberg's upsert, and its delete, without Spark."""
    import pyarrow.compute as pc
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.expressions import In

    catalog_name, *name = _iceberg(world, "upserted", rows, files, "copy-on-write").split(".")
    uri, warehouse = world.catalog_options["uri"], world.catalog_options["warehouse"]
    catalog = SqlCatalog(catalog_name, uri=uri.replace("jdbc:sqlite:", "sqlite:///"), warehouse=warehouse)

    def apply(file: Path) -> None:
        table, changes = catalog.load_table(tuple(name)), _arrow(file)
        gone = pc.equal(changes["op"], "D")
        if deleted := changes.filter(gone)["id"].to_pylist():
            table.delete(In("id", deleted))
        table.upsert(changes.filter(pc.invert(gone)).select(NAMES), join_cols=["id"])

    return apply


def _arrow(file: Path):
    """Read a change file as an Arrow table of the table's types."""
    import pyarrow as pa
    from pyarrow import csv

    price, at = pa.decimal128(12, 2), pa.timestamp("us")
    kinds = [pa.string(), at, pa.int64(), pa.int32(), pa.int32(), price, price, at, pa.string(), pa.string()]
    names = ["op", "ts", *NAMES]
    types = csv.ConvertOptions(column_types=dict(zip(names, kinds, strict=True)))
    return csv.read_csv(file, csv.ReadOptions(column_names=names), convert_options=types)


def all_of(world: World, rows: int, files: int) -> Iterator[tuple[str, str, Callable[[Path], None], int]]:
    """Yield name, description, what applies a file, and how often to time it."""
    yield "merge_on_read", "one MERGE INTO, merge-on-read", merge_into(world, rows, files, "merge-on-read"), 3
    yield "copy_on_write", "one MERGE INTO, copy-on-write", merge_into(world, rows, files, "copy-on-write"), 2
    yield "delete_then_merge", "delete, then MERGE, copy-on-write: two commits", delete_then_merge(world, rows, files), 2  # fmt: skip
    yield "delta_rs", "delta-rs merge", delta_rs(world, rows, files), 3
    yield "pyiceberg", "PyIceberg delete and upsert", pyiceberg_upsert(world, rows, files), 1
