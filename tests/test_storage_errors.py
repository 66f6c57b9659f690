"""A full disk and damaged metadata: run, plan and check name the table, the file and the remedy, which works."""

import re
import sqlite3
from pathlib import Path

import pytest

from frazil_old.config.settings import FullLoadSettings, OperateSettings
from frazil_old.flows import lag
from frazil_old.flows.plan import plan
from helpers import FILE2, I, U, slow
from lake_reader import lake_rows, metadata_of

pytestmark = pytest.mark.spark


def table_files(world, table: str) -> tuple[Path, Path]:
    """Return a table's current metadata file and manifest list."""
    metadata = Path(metadata_of(world.catalog_options, f"{world.space}.{table}").removeprefix("file:"))
    lists = sorted(metadata.parent.glob("snap-*.avro"), key=lambda f: f.stat().st_mtime_ns)
    return metadata, lists[-1]


DAMAGE = {
    "metadata_cut": lambda metadata, manifests: metadata.write_text(metadata.read_text()[:200]),
    "metadata_gone": lambda metadata, manifests: metadata.unlink(),
    "list_cut": lambda metadata, manifests: manifests.write_bytes(manifests.read_bytes()[:40]),
    "list_empty": lambda metadata, manifests: manifests.write_bytes(b""),
    "list_gone": lambda metadata, manifests: manifests.unlink(),
}


@pytest.mark.parametrize("lane", ["rowdelta", slow("merge")])
def test_damaged_metadata_are_named_with_the_newest_that_can_be_read(world, lane):
    for table in (*DAMAGE, "fine"):
        world.table(table).load(table, (1, "a"), (2, "b")).changes(table, U(1, "A"))
    world.loaded().merged(lane=lane)
    broken = {t: table_files(world, t)[not t.startswith("metadata")] for t in DAMAGE}
    for table, harm in DAMAGE.items():
        harm(*table_files(world, table))
    for table in world.specs:
        world.changes(table, I(3, "c"), name=FILE2)
    done = world.merge(lane=lane)
    assert done["fine"].status == "merged"
    planned = {r["table"].split(".")[1]: r["decision"] for r in plan(world.book(FullLoadSettings))}
    checked = {
        r["table"].split(".")[1]: f"{r['problem']} {r['cure']}" for r in lag.per_table(world.book(OperateSettings))
    }
    for said in ({t: r.note for t, r in done.items()}, planned, checked):
        for table, file in broken.items():
            assert world.name(table) in said[table] and file.name in said[table] and "backup" in said[table], (
                table,
                said[table],
            )
            assert ".metadata.json" in said[table].split("newest metadata")[1], said[table]
    with sqlite3.connect(world.catalog_options["uri"].removeprefix("jdbc:sqlite:")) as db:
        for table in DAMAGE:
            db.execute(re.search(r"UPDATE iceberg_tables .*?table_name = '\w+'", done[table].note)[0])
    world.merged(lane=lane)
    for table in DAMAGE:
        assert lake_rows(world.catalog_options, f"{world.space}.{table}") == [(1, "A"), (2, "b"), (3, "c")], table
