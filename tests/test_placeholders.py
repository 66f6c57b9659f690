"""What Spark would take for a variable, `${env:…}`, stays the text that it is: in names, comments, keys and values."""

import os
from pathlib import Path

import pytest
import yaml

from helpers import FILE1, FILE2, D, I, U
from lake_reader import lake_rows, lake_table

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
