"""Real DMS files through the notebooks themselves; the end state, read by PyIceberg, compared with the plain replay."""

import shutil

import papermill
import pytest

from frazil_old.report.notebook_output import read_record
from test_northwind import ROOT, SOURCE, TABLES, replay

pytestmark = [pytest.mark.notebooks, pytest.mark.northwind]


@pytest.mark.slow
def test_the_notebooks_end_where_the_replay_ends(tmp_path, monkeypatch):
    from pyiceberg.catalog.sql import SqlCatalog

    shutil.copytree(ROOT / "params", tmp_path / "params")
    monkeypatch.setenv("FRAZIL_PARAMS", str(tmp_path / "params"))
    for notebook in ("00_setup", "01_full_load", "02_cdc_merge"):
        out = tmp_path / f"{notebook}.ipynb"
        parameters = {"env": "northwind", "source": SOURCE}
        papermill.execute_notebook(
            ROOT / "notebooks" / out.name, out, parameters, kernel_name="python3", progress_bar=False
        )
        assert read_record(out)["status"] == "ok"
    lake = tmp_path / "runs" / "northwind" / "lake"
    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake / "warehouse"))
    for table in TABLES:
        columns = catalog.load_table(f"northwind.{table}").scan().to_arrow().to_pydict()
        assert sorted(zip(*columns.values(), strict=True), key=repr) == replay(table)
