"""What others do with a file of changes, on a table of their own with the same rows: timed beside the row-delta lane.

Each keeps to what its documentation shows: no position, no order across files, no check of what it reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench._lake import COLUMNS, VALUES
from helpers import World

NAMES = [c.split()[0] for c in COLUMNS]
TYPED = (
    "op string, ts timestamp_ntz, id bigint, cust int, qty int, price decimal(12,2), amount decimal(12,2), "
    "placed timestamp_ntz, status string, note string"
)


def _rows(world: World, rows: int, files: int):
    return world.spark.range(1, rows + 1, 1, files).selectExpr(*VALUES)


def _iceberg(world: World, name: str, rows: int, files: int, mode: str) -> str:
    """Make an Iceberg table with the rows, and return its full name."""
    table = world.name(name)
    writer = _rows(world, rows, files).writeTo(table).using("iceberg").tableProperty("format-version", "2")
    for what in ("merge", "delete", "update"):
        writer = writer.tableProperty(f"write.{what}.mode", mode)
    writer.tableProperty("write.distribution-mode", "none").create()
    return table


def _batch(world: World, file: Path) -> None:
    """Make the last change of each key in a file the view `batch`."""
    world.spark.read.schema(TYPED).csv(str(file)).createOrReplaceTempView("lines")
    numbered = "select *, row_number() over (partition by id order by ts desc) n from lines"
    world.spark.sql(f"select * except (n) from ({numbered}) where n = 1").createOrReplaceTempView("batch")


def _upsert(source: str, delete: str = "", unless: str = "") -> str:
    updates, values = ", ".join(f"t.{c} = s.{c}" for c in NAMES), ", ".join(f"s.{c}" for c in NAMES)
    inserted = f"when not matched {unless} then insert ({', '.join(NAMES)}) values ({values})"
    return f"using {source} s on t.id = s.id {delete} when matched then update set {updates} {inserted}"


def merge_into(world: World, rows: int, files: int, mode: str) -> Callable[[Path], None]:
    """One MERGE INTO a file, of Spark's."""
    table = _iceberg(world, f"merged_{mode.replace('-', '_')}", rows, files, mode)

    def apply(file: Path) -> None:
        _batch(world, file)
        merge = _upsert("batch", "when matched and s.op = 'D' then delete", "and s.op <> 'D'")
        world.spark.sql(f"merge into {table} t {merge}")

    return apply


def delete_then_merge(world: World, rows: int, files: int) -> Callable[[Path], None]:
    """Two commits a file, as in AWS's article on Glue: first the deletes, then a MERGE of the rest, copy-on-write."""
    table = _iceberg(world, "two_commits", rows, files, "copy-on-write")

    def apply(file: Path) -> None:
        _batch(world, file)
        world.spark.sql(f"delete from {table} where id in (select id from batch where op = 'D')")
        merge = _upsert("(select * from batch where op <> 'D')")
        world.spark.sql(f"merge into {table} t {merge}")

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
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.expressions import In

    name = _iceberg(world, "upserted", rows, files, "copy-on-write")
    options = world.catalog_options
    catalog = SqlCatalog(name.split(".")[0], uri=options["uri"].removeprefix("jdbc:").replace("sqlite:", "sqlite:///"), warehouse=options["warehouse"])  # fmt: skip

    def apply(file: Path) -> None:
        import pyarrow.compute as pc

        table, changes = catalog.load_table(tuple(name.split(".")[1:])), _arrow(file)
        gone = pc.equal(changes["op"], "D")
        if deleted := changes.filter(gone)["id"].to_pylist():
            table.delete(In("id", deleted))
        table.upsert(changes.filter(pc.invert(gone)).select(NAMES), join_cols=["id"])

    return apply


def _arrow(file: Path):
    """Read a change file as an Arrow table of the table's types."""
    import pyarrow as pa
    from pyarrow import csv

    kinds = {"id": pa.int64(), "cust": pa.int32(), "qty": pa.int32(), "price": pa.decimal128(12, 2), "amount": pa.decimal128(12, 2),
             "placed": pa.timestamp("us"), "op": pa.string(), "ts": pa.timestamp("us"), "status": pa.string(), "note": pa.string()}  # fmt: skip
    return csv.read_csv(
        file, csv.ReadOptions(column_names=["op", "ts", *NAMES]), convert_options=csv.ConvertOptions(column_types=kinds)
    )


def all_of(world: World, rows: int, files: int) -> Iterator[tuple[str, str, Callable[[Path], None], int]]:
    """Yield name, description, what applies a file, and how often to time it."""
    yield "merge_on_read", "one MERGE INTO, merge-on-read", merge_into(world, rows, files, "merge-on-read"), 3
    yield "copy_on_write", "one MERGE INTO, copy-on-write", merge_into(world, rows, files, "copy-on-write"), 2
    yield "delete_then_merge", "delete, then MERGE, copy-on-write: two commits", delete_then_merge(world, rows, files), 2  # fmt: skip
    yield "delta_rs", "delta-rs merge", delta_rs(world, rows, files), 3
    yield "pyiceberg", "PyIceberg delete and upsert", pyiceberg_upsert(world, rows, files), 1


def timed(apply: Callable[[Path], None], files: list[Path]) -> list[float]:
    """Apply files one by one and return the seconds of each, the first left out where there are more."""
    seconds = []
    for file in files:
        began = time.perf_counter()
        apply(file)
        seconds.append(time.perf_counter() - began)
    return seconds[1:] or seconds
