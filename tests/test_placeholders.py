"""What Spark would take for a variable, `${env:…}`, stays the text that it is: in names, comments, keys and values."""

import os
from pathlib import Path

import pytest
import yaml

from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, D, I, U, spec_of
from lake_reader import lake_rows, lake_table, lake_tables
from stream_world import KafkaWorld
from test_tables_from_streams import create_table, send

pytestmark = pytest.mark.spark
VARIABLE, OTHER = "${env:FRAZIL_TEST_MARKER}", "${spark.app.name}"
LANES = ("merge", "rowdelta")


def files_with(text: str, *folders: Path) -> list[Path]:
    """Return the files below some folders that have a text, in their names or in them."""
    files = [f for folder in folders for f in folder.rglob("*") if f.is_file()]
    return [f for f in files if text.encode() in f.read_bytes() or text in str(f)]


@pytest.mark.parametrize("name", [VARIABLE, "${env}"])
def test_a_variable_in_a_spec_and_its_files_is_never_filled_in(spark, new_world, catalog_options, name):
    world = new_world(CsvNullValue=f"no {VARIABLE}", AddColumnName=True)
    world.rules = {"rules": []}
    spark.conf.set("spark.sql.variable.substitute", "true")  # as a session may have it that somebody else made
    for lane in LANES:
        world.table(lane, f"{name} WSTRING(99)", "v WSTRING(99)", key=name)
        spec = {**world.specs[lane], "comment": f"a {VARIABLE} b"}
        spec["columns"][1]["comment"] = f"c {VARIABLE} d"
        (world.root / f"specs/{lane}.yml").write_text(yaml.safe_dump(spec))
        world.load(lane, (name, "old"), ("k", None), (VARIABLE + "2", "gone"), ("z", "stays"))
        world.changes(lane, U(name, OTHER), I(OTHER + "3", VARIABLE + "!"), D(VARIABLE + "2"), name=FILE1)
        world.changes(lane, U("k", f"'{VARIABLE}'"), name=FILE2)
    world.loaded()
    for lane in LANES:
        world.merged(lane=lane, tables=[f"public.{lane}"], max_batch_files=1)
        rows = lake_rows(catalog_options, f"{world.space}.{lane}")
        assert rows == sorted([(name, OTHER), ("k", f"'{VARIABLE}'"), (OTHER + "3", VARIABLE + "!"), ("z", "stays")], key=repr)  # fmt: skip
        there = lake_table(catalog_options, f"{world.space}.{lane}")
        assert there.properties["comment"] == f"a {VARIABLE} b"
        assert [(f.name, f.doc) for f in there.schema().fields] == [(name, None), ("v", f"c {VARIABLE} d")]
    assert not files_with(os.environ["FRAZIL_TEST_MARKER"], world.book().folder, Path(catalog_options["warehouse"]))


def test_a_variable_in_the_name_of_a_schema_or_a_table_is_never_filled_in(spark, new_world, catalog_options):
    world = new_world()
    world.rules = {"rules": []}
    spark.conf.set("spark.sql.variable.substitute", "true")
    source = f"{VARIABLE}.t {VARIABLE}"
    spec = spec_of(source, "id INT8", "v WSTRING(99)", target=f"{world.space}.t {VARIABLE}")
    (world.root / "specs/t.yml").write_text(yaml.safe_dump(spec))
    for name, text in ((LOAD1, f"{ONE_COMMIT},1,a\n"), (FILE1, f"U,{ONE_COMMIT},1,b\n")):
        file = world.root / "source" / VARIABLE / f"t {VARIABLE}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    world.loaded().merged()
    assert [t for t in lake_tables(catalog_options) if t.startswith(world.space)] == [f"{world.space}.t {VARIABLE}"]
    assert lake_rows(catalog_options, f"{world.space}.t {VARIABLE}") == [(1, "b")]
    assert not files_with(os.environ["FRAZIL_TEST_MARKER"], world.book().folder, Path(catalog_options["warehouse"]))


def test_a_variable_that_a_stream_brings_in_names_and_values_is_never_filled_in(
    kafka, spark, catalog_options, tmp_path
):
    world = KafkaWorld(kafka, tmp_path / "w", "variables", catalog_options).table("other").loaded()
    spark.conf.set("spark.sql.variable.substitute", "true")
    columns = {"id": "STRING", VARIABLE: "STRING"}
    before = {*lake_tables(catalog_options)}
    create_table(world, VARIABLE, f"t{VARIABLE}", (VARIABLE, OTHER), columns=columns)
    world.merge(unknown_tables="create")
    world.full_load()
    send(world, VARIABLE, f"t{VARIABLE}", "insert", {"id": "k", VARIABLE: VARIABLE})
    world.merge()
    [made] = {*lake_tables(catalog_options)} - before - {"variables.other"}
    assert lake_rows(catalog_options, made) == sorted([(VARIABLE, OTHER), ("k", VARIABLE)], key=repr)
    assert [f.name for f in lake_table(catalog_options, made).schema().fields] == ["id", VARIABLE]
    marker = os.environ["FRAZIL_TEST_MARKER"]
    assert marker not in made
    assert not files_with(marker, world.book().folder, world.root / "specs", Path(catalog_options["warehouse"]))
