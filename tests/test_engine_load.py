"""A full load in Arrow tasks: files of several forms become data files that Spark, PyIceberg and DuckDB read alike."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from frazil.config.spec import parse_spec
from frazil.engine.on_spark import load_files
from frazil.engine.read_files import FileToRead, ReadPlan
from frazil.engine.write_rows import WritePlan
from frazil.lake import jvm, jvm_data_files
from helpers import ONE_COMMIT
from lake_reader import duckdb_rows, lake_rows, metadata_of

pytestmark = pytest.mark.spark


def test_load_files_become_data_files_that_every_engine_reads_alike(world, catalog_options, spark):
    world.table("t", "id INT8", "v WSTRING(99)", "n NUMERIC(9,2)", "at DATETIME", "day DATE")
    world.specs["t"]["partition"] = ["bucket(2, id)"]
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(world.specs["t"]))
    world.setup()
    rows = [(i, f'v "{i}",\n' if i % 3 else None, f"{i}.25", ONE_COMMIT, "2024-02-29") for i in range(300)]
    for number, some in enumerate((rows[:100], rows[100:200]), 1):
        world.load("t", *some, name=f"LOAD0000000{number}.csv")
    folder = world.root / "source/public/t"
    with (folder / "LOAD00000002.csv").open("a") as file:
        file.write(f"{ONE_COMMIT},x,,,,,,\n")
    columns = zip(*rows[200:], strict=True)
    names = [f"c{n}" for n in range(5)]
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), folder / "LOAD00000003.parquet")
    spec = parse_spec(world.specs["t"])
    after = [f"after:{c}" for c in spec.names]
    csv_roles = ("ts", *after, "seq", "before:id")
    files = [FileToRead(str(folder / f"LOAD0000000{n}.csv"), n, csv_roles) for n in (1, 2)]
    files.append(FileToRead(str(folder / "LOAD00000003.parquet"), 3, tuple(after)))
    target = f"{world.space}.t"
    metadata = Path(metadata_of(catalog_options, target).removeprefix("file:")).read_text()
    written = load_files(spark, [files[:2], files[2:]], ReadPlan(spec), WritePlan(metadata))
    assert (written.tally.rows, written.tally.bad.count) == (300, 1)
    assert [(order, b.number, b.column) for order, b in written.tally.bad.rows] == [(2, 101, "id")]
    table = jvm.load_table(spark, world.name("t"))
    entries = jvm_data_files.from_json(spark, table, written.entries)
    jvm_data_files.append(spark, table, "main", entries, {"made-by": "a test"})
    found = lake_rows(catalog_options, target)
    assert [(r[0], r[1], str(r[2]), str(r[4])) for r in sorted(found)] == [(i, v, n, d) for i, v, n, _, d in rows]
    assert duckdb_rows(catalog_options, target) == found
    assert sorted(tuple(r) for r in spark.table(world.name("t")).collect()) == sorted(found)
