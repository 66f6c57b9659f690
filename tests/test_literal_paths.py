"""Paths are taken as they are: characters of patterns and of URIs in folders of the source, in the warehouse and in partitions."""

import os
import string

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from frazil_old.config.settings import MaintenanceSettings
from frazil_old.flows import lag, maintenance
from helpers import FILE1, LOAD1, ONE_COMMIT, World, csv_field, spec_of
from lake_reader import lake_rows, lake_table

pytestmark = pytest.mark.spark

PATTERNS = ["orders", "order?", "or[d]ers", "{orders,x}", "*", "or\\ders", "orders]", "o,r", "or}ders", "or:[d]ers"]
"""Tables; most are also patterns that fit the folder of the first."""
TXN = "CDC_TXN-20240101100000000.csv"


def specs(world: World, *tables: str) -> dict[str, str]:
    """Declare the source tables, each with a target of its own, and return these."""
    targets = {source: f"{world.space}.t{n}" for n, source in enumerate(tables)}
    for n, (source, target) in enumerate(targets.items()):
        spec = spec_of(source, "id INT8", "v WSTRING(99)", target=target)
        (world.root / f"specs/t{n}.yml").write_text(yaml.safe_dump(spec))
    return targets


def put(root, source: str, name: str, text: str) -> None:
    file = root / source.replace(".", "/", 1) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def went_well(results: dict) -> None:
    assert not [r.note for r in results.values() if r.failed or r.status in ("skipped", "waiting")]


@pytest.mark.slow
def test_a_table_reads_its_own_folder_whatever_pattern_its_name_is(new_world):
    world = new_world()
    world.rules, world.given = {"rules": []}, {"source": "s[o]urce"}
    tables = [*[f"public.{t}" for t in PATTERNS], "publi?.orders", "{public,x}.orders"]
    for folder in ("s[o]urce", "source"):  # the second is what the first would fit as a pattern
        for table in tables:
            put(
                world.root / folder,
                table,
                LOAD1,
                f"{ONE_COMMIT},1,{csv_field(f'{folder} {table}')}\n{ONE_COMMIT},2,gone\n",
            )
            put(world.root / folder, table, FILE1, f"I,{ONE_COMMIT},3,{csv_field(f'new {table}')}\nD,{ONE_COMMIT},2,\n")
    targets = specs(world, *tables)
    for step in (world.setup, world.full_load, world.merge):
        went_well(step())
    for table, target in targets.items():
        assert lake_rows(world.catalog_options, target) == [(1, f"s[o]urce {table}"), (3, f"new {table}")]


def test_a_parquet_file_is_read_whatever_pattern_its_folder_is(new_world):
    world = new_world(DataFormat="parquet")
    world.rules = {"rules": []}
    targets = specs(world, *[f"public.{t}" for t in PATTERNS[:6]])
    for source in targets:
        folder = world.root / "source" / source.replace(".", "/", 1)
        folder.mkdir()
        rows = {"ts": [ONE_COMMIT], "id": pa.array([1], pa.int64()), "v": [source]}
        pq.write_table(pa.table(rows), folder / "LOAD00000001.parquet")
        pq.write_table(pa.table({"Op": ["I"], **rows, "id": pa.array([2], pa.int64())}), folder / FILE1.replace("csv", "parquet"))  # fmt: skip
    for step in (world.setup, world.full_load, world.merge):
        went_well(step())
    for source, target in targets.items():
        assert lake_rows(world.catalog_options, target) == [(1, source), (2, source)]


def test_files_of_all_tables_are_read_whatever_pattern_their_folder_is(new_world):
    world = new_world(PreserveTransactions=True, CdcPath="c[d]c/{all,x}")
    world.rules = {"rules": []}
    targets = specs(world, "public.order?", "public.{a,b}")
    for source in targets:
        put(world.root / "source", source, LOAD1, f"{ONE_COMMIT},1,{csv_field(source)}\n")
    for folder in ("c[d]c/{all,x}", "cdc/all", "c[d]c/all"):
        (world.root / "source" / folder).mkdir(parents=True)
        text = f'I,order?,public,{ONE_COMMIT},2,{folder.count(",")}\nI,"{{a,b}}",public,{ONE_COMMIT},3,{folder.count(",")}\n'
        (world.root / "source" / folder / TXN).write_text(text)
    for step in (world.setup, world.full_load, world.merge):
        went_well(step())
    assert lake_rows(world.catalog_options, targets["public.order?"]) == [(1, "public.order?"), (2, "1")]
    assert lake_rows(world.catalog_options, targets["public.{a,b}"]) == [(1, "public.{a,b}"), (3, "1")]


PUNCTUATION = " " + string.punctuation.replace("/", "")


@pytest.mark.slow
def test_any_warehouse_and_any_partition_is_written_in_both_lanes(spark, tmp_path):
    """Both lanes, both formats, maintenance: all below a folder, and into partitions, of every printable character."""
    folder = f"{tmp_path}/{PUNCTUATION}per%20cent"
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/lake"}
    world = World(tmp_path / "w", "odd", lake)
    world.rules, world.given = {"rules": []}, {"catalog": "oddlake", "ops_namespace": "odd_ops"}
    values = [PUNCTUATION[:17], PUNCTUATION[17:], "%20", "/\u00fc"]
    tables = {"v2": ["spark", "athena"], "v3": ["spark"]}
    for table in tables:
        spec = spec_of(f"public.{table}", "id INT8", "p WSTRING(99)", "v WSTRING(9)", target=f"odd.{table}")
        (world.root / f"specs/{table}.yml").write_text(yaml.safe_dump({**spec, "partition": ["p", "truncate(3, p)"]}))
        put(world.root / "source", f"public.{table}", LOAD1, "".join(
            f"{ONE_COMMIT},{i},{csv_field(p)},old\n" for i, p in enumerate(values * 2)))  # fmt: skip
    for table, readers in tables.items():
        went_well(world.setup(tables=[f"public.{table}"], query_engines=readers))
    went_well(world.full_load())
    for n, lane in enumerate(("rowdelta", "merge", "rowdelta")):
        for table in tables:
            name = FILE1.replace("-1000", f"-100{n}")
            put(world.root / "source", f"public.{table}", name, "".join(
                f"U,{ONE_COMMIT},{i},{csv_field(p)},{lane}{n}\n" for i, p in enumerate(values)) + f"D,{ONE_COMMIT},{7 - n},,\n")  # fmt: skip
        went_well(world.merge(lane=lane))
        for table in tables:
            assert lake_table(lake, f"odd.{table}").current_snapshot().summary["frazil.lane"] == lane
    expected = [*[(i, p, "rowdelta2") for i, p in enumerate(values)], (4, values[0], "old")]
    assert [lake_rows(lake, f"odd.{t}") for t in tables] == [expected] * 2
    assert not [r["problem"] for r in lag.per_table(world.book()) if r["problem"] or r["pending"]]
    for file in tmp_path.rglob("*"):
        os.utime(file, (0, 0))  # all are old enough to be orphans
    results = maintenance.run(world.book(MaintenanceSettings, dry_run=False, target_file_mb=256))
    assert not [r.note for r in results if r.failed]
    assert [lake_rows(lake, f"odd.{t}") for t in tables] == [expected] * 2
