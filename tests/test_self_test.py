"""What a self-test leaves when its process is killed: the next run removes it, and `frazil down` lists it."""

from pathlib import Path

import pytest

from frazil_old.cli import main
from frazil_old.lake import lane_choice, row_delta_self_test
from frazil_old.lake.row_delta import RowDelta
from helpers import FILE1, FILE2, Killed, U
from lake_reader import lake_rows, lake_tables

pytestmark = pytest.mark.spark


@pytest.fixture
def loaded(world):
    return world.table("t").load("t", (1, "a"), (2, "b")).loaded()


def left(world) -> tuple[list[str], list[Path]]:
    """Return the scratch tables in the catalog, and all that the warehouse has of them."""
    tables = [t for t in lake_tables(world.catalog_options) if t.startswith(f"{world.space}.") and "selftest" in t]
    return tables, list((Path(world.catalog_options["warehouse"]) / world.space).glob("*selftest*"))


def killed_at(world, monkeypatch, step: int) -> None:
    """Let a process die in its self-test: 0 is before its table is in the catalog, 1 to 3 at its commits, 4 while it is dropped."""
    real, commits = RowDelta.commit_by_index, []
    begun, _, number = row_delta_self_test.new_name().rsplit("_", 2)

    def create_half(spark, name, *_):
        folder = Path(world.catalog_options["warehouse"]) / world.space / name.rsplit(".", 1)[1] / "metadata"
        folder.mkdir(parents=True)
        (folder / "00000.metadata.json").write_text("{}")
        raise Killed

    def commit(*given):
        commits.append(1)
        if len(commits) == step:
            raise Killed
        return real(*given)

    def drop(spark, name):
        if step == 4:
            spark.sql(f"DROP TABLE {name}")  # its files come after it
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(lane_choice, "_tested", {})
        # Another process than the one that looks later.
        patch.setattr(row_delta_self_test, "new_name", lambda: f"{begun}_1_{number}")
        patch.setattr(row_delta_self_test, "_drop", drop)
        patch.setattr(RowDelta, "commit_by_index", commit)
        if step == 0:
            patch.setattr(row_delta_self_test, "create_table", create_half)
        world.merge(lane="rowdelta")


@pytest.mark.parametrize("step", range(5))
def test_the_next_run_removes_what_a_killed_self_test_left(loaded, monkeypatch, step):
    loaded.changes("t", U(1, "A"), name=FILE1)
    killed_at(loaded, monkeypatch, step)
    tables, folders = left(loaded)
    assert folders and bool(tables) == (0 < step < 4)
    monkeypatch.setattr(lane_choice, "_tested", {})
    loaded.changes("t", U(2, "B"), name=FILE2).merged(lane="rowdelta")
    assert left(loaded) == ([], [])
    assert lake_rows(loaded.catalog_options, f"{loaded.space}.t") == [(1, "A"), (2, "B")]


def test_down_lists_and_deletes_what_killed_self_tests_left(loaded, monkeypatch, capsys):
    loaded.changes("t", U(1, "A"), name=FILE1)
    loaded.given["ops_namespace"] = f"{loaded.space}_ops"
    for step in (0, 2, 4):
        with monkeypatch.context() as patch:
            patch.setattr(row_delta_self_test, "clear_self_tests", lambda *_: None)
            killed_at(loaded, patch, step)
    (table,), folders = left(loaded)
    assert len(folders) == 3
    loaded.environment(monkeypatch)
    assert main(["down", "--env", "w"]) == 0
    told = capsys.readouterr().out
    assert f"table {table}\n" in told and all(str(folder) in told for folder in folders)
    assert main(["down", "--env", "w", "--yes"]) == 0
    assert left(loaded) == ([], [])
    assert not [f for f in (Path(loaded.catalog_options["warehouse"]) / loaded.space).rglob("*") if f.is_file()]
    assert not [t for t in lake_tables(loaded.catalog_options) if t.startswith(f"{loaded.space}.")]
