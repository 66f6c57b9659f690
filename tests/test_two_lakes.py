"""Two environments in one process, whose catalogs have one name: each writes to its own lake."""

import pytest

from frazil_old.config.settings import ExploreSettings, MaintenanceSettings
from frazil_old.errors import FrazilError
from frazil_old.flows import explore, maintenance
from helpers import FILE1, FILE2, D, I, U, World
from lake_reader import lake_rows, lake_tables

pytestmark = pytest.mark.spark


def environment(folder, **catalog) -> World:
    """Return a world with a lake of its own, and the same table `app.t` in it."""
    options = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/lake/catalog.db", "warehouse": f"{folder}/lake/files", **catalog}  # fmt: skip
    world = World(folder / "world", "app", options)
    return world.table("t")


def test_steps_of_two_environments_by_turns_never_meet(spark, tmp_path):
    dev, prod = environment(tmp_path / "dev"), environment(tmp_path / "prod")
    dev.load("t", (1, "dev"), (2, "dev"))
    prod.load("t", (1, "prod"))
    for world in (dev, prod):
        world.loaded()
    dev.changes("t", U(1, "dev changed"), name=FILE1)
    prod.changes("t", I(3, "prod new"), name=FILE1)
    assert [w.merge()["t"].status for w in (dev, prod)] == ["merged", "merged"]
    dev.changes("t", D(2), I(4, "not a number"), name=FILE2)
    prod.changes("t", U(3, "by index"), name=FILE2)
    assert [w.merge(lane="rowdelta")["t"].status for w in (prod, dev)] == ["merged", "merged"]
    assert dev.merge()["t"].status == "unchanged"
    assert lake_rows(dev.catalog_options, "app.t") == [(1, "dev changed"), (4, "not a number")]
    assert lake_rows(prod.catalog_options, "app.t") == [(1, "prod"), (3, "by index")]


def test_reading_and_maintaining_one_lake_leaves_the_other_alone(spark, tmp_path):
    """A notebook that only reads comes first: the lake is written to all the same afterwards, in the same process."""
    dev, prod = environment(tmp_path / "dev"), environment(tmp_path / "prod", **{"table-default.owner": "prod"})
    dev.load("t", (1, "dev")).loaded()
    shown = explore.tables(dev.book(ExploreSettings), MaintenanceSettings())
    prod.load("t", (7, "prod"), (8, "prod")).loaded().changes("t", U(7, "new")).merged()
    maintained = maintenance.run(prod.book(MaintenanceSettings, dry_run=False))
    assert [r.status for r in maintained] == ["maintained"]
    dev.changes("t", U(1, "still dev")).merged()
    assert lake_rows(dev.catalog_options, "app.t") == [(1, "still dev")]
    assert lake_rows(prod.catalog_options, "app.t") == [(7, "new"), (8, "prod")]
    assert lake_tables(dev.catalog_options) == ["app.t"] and "ops.maintenance" in lake_tables(prod.catalog_options)
    assert shown


def test_an_environment_that_names_no_lake_does_not_take_the_one_of_another(spark, tmp_path):
    environment(tmp_path / "dev").load("t", (1, "dev")).loaded()
    silent = World(tmp_path / "silent", "app", {}).table("t").load("t", (9, "whose?"))
    with pytest.raises(FrazilError, match="catalog_options"):
        silent.setup()
