"""Metrics: what `frazil run` and `frazil check` write for Prometheus, send by OpenTelemetry, and show in the dashboard."""

from __future__ import annotations

import json
import stat
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from frazil_old import exit_codes
from frazil_old.cli import check, main, run
from frazil_old.report import metrics
from frazil_old.report.notebook_output import finish
from frazil_old.results import TableResult
from monitored_world import Receiver, place_with_lake, set_operate, with_notebook
from prometheus_client.parser import text_string_to_metric_families

LIVE = {"lag_p50_s": 1.5, "lag_p99_s": 4.0, "commit_s": 0.3}
MERGED = f"""
from frazil_old.report.notebook_output import finish
from frazil_old.results import TableResult
finish("cdc_merge", [TableResult("app.visit", "merged", counts={{"changes": 7, "quarantined": 2}}, live={LIVE})])
"""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in metrics.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def made(tmp_path, monkeypatch) -> Path:
    place = place_with_lake(tmp_path, monkeypatch)
    set_operate(place, metrics_file="frazil.prom")
    return place


def parsed(file: Path) -> dict[tuple[str, ...], float]:
    """The samples of a file: name and values of labels but `env`, and the value."""
    families = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    found = [s for family in families for s in family.samples]
    assert {s.labels["env"] for s in found} <= {"demo"}
    return {(s.name, *(v for k, v in s.labels.items() if k != "env")): s.value for s in found}


def test_the_record_of_a_notebook_has_the_values_of_the_newest_batch():
    first, last = (TableResult("t", "merged", counts={"changes": 1}, live={"commit_s": s}) for s in (9.0, 0.5))
    first.add(last)
    record = finish("cdc_merge", [first, TableResult("u", "unchanged")])
    assert record.facts["tables"]["t"]["live"] == {"commit_s": 0.5} and "live" not in record.facts["tables"]["u"]


def test_a_check_replaces_the_file_for_every_user_and_reads_the_tables(made):
    file = made / "frazil.prom"
    file.write_text("old")
    with open(file) as reader:
        assert main(["check", "--env", "demo", "--quiet"]) == exit_codes.BREACH
        assert reader.read() == "old", "it was written in place"
    found = parsed(file)
    assert found[("frazil_breached_limits",)] == 3
    assert found[("frazil_table_pending_files", "app.person")] == 2
    assert found[("frazil_table_lag_seconds", "app.visit")] > 1e6
    assert found[("frazil_table_records", "app.person")] == 3 and found[("frazil_table_data_files", "app.visit")] == 1
    assert (
        found[("frazil_table_snapshots", "app.visit")] == 1 and found[("frazil_table_delete_files", "app.visit")] == 0
    )
    assert found[("frazil_quarantine_waiting_rows", "app.visit")] == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [f.name for f in made.glob("frazil.prom*")] == ["frazil.prom"]


@pytest.mark.notebooks
def test_runs_write_it_however_they_end(made, capsys):
    began = time.time()
    assert main(["run", "02", "--env", "demo", "-p", "max_batch_mb", "much"]) == exit_codes.WRONG
    assert main(["run", "02_cdc_murge", "--env", "demo"]) == exit_codes.WRONG
    found = parsed(made / "frazil.prom")
    codes = {labels[0]: code for (name, *labels), code in found.items() if name == "frazil_last_run_exit_code"}
    assert codes == {"02_cdc_merge": exit_codes.WRONG} and ("frazil_table_records", "app.visit") in found

    with_notebook(made, "02_cdc_merge", MERGED)
    assert main(["run", "02", "--env", "demo"]) == exit_codes.OK, capsys.readouterr().err
    of = "02_cdc_merge"
    found = parsed(made / "frazil.prom")
    assert found[("frazil_last_run_applied_rows", of, "app.visit")] == 7
    assert found[("frazil_last_run_bad_rows", of, "app.visit")] == 2
    assert (
        found[("frazil_batch_lag_p99_seconds", "app.visit")] == 4
        and found[("frazil_batch_commit_seconds", "app.visit")] == 0.3
    )
    good = found[("frazil_last_success_timestamp_seconds", of)]
    assert began < good < time.time() and found[("frazil_last_run_exit_code", of)] == exit_codes.OK

    with_notebook(made, "02_cdc_merge", "1 / 0")
    assert main(["run", "02", "--env", "demo"]) == exit_codes.FAILED
    found = parsed(made / "frazil.prom")
    assert found[("frazil_last_run_exit_code", of)] == exit_codes.FAILED
    assert found[("frazil_last_success_timestamp_seconds", of)] == good
    assert found[("frazil_batch_lag_p99_seconds", "app.visit")] == 4


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        ("the library", "metrics_file: prometheus-client is not installed; cure: pip install 'frazil[metrics]'"),
        ("the folder", "metrics_file: {made}/no/frazil.prom cannot be written: No such file or directory; cure: make its folder one that"),
        ("the exporter", "OpenTelemetry: opentelemetry-exporter-otlp-proto-http is not installed; cure: pip install 'frazil[metrics]'"),
        ("the collector", "OpenTelemetry: the collector that OTEL_EXPORTER_OTLP_ENDPOINT names took nothing; cure: start it"),
        ("the variable", "OpenTelemetry: "),
    ],
)  # fmt: skip
def test_what_fails_is_one_line_and_changes_no_exit_code(made, monkeypatch, capfd, breaks, says):
    before = main(["check", "--env", "demo"]), capfd.readouterr().err.splitlines()
    with Receiver(status=400) as refuses:
        if breaks == "the library":
            monkeypatch.setitem(sys.modules, "prometheus_client", None)
        elif breaks == "the folder":
            set_operate(made, metrics_file="no/frazil.prom")
        else:
            url = {"the collector": refuses.url, "the exporter": refuses.url}.get(breaks, "http://user:hush@[x")
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        if breaks == "the exporter":
            monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
        code = main(["check", "--env", "demo"])
    lines = capfd.readouterr().err.splitlines()
    (line,) = [text for text in lines if text.startswith(("metrics", "OpenTelemetry"))]
    assert code == before[0] and len(lines) == len(before[1]) + 1, lines
    assert line.startswith(says.format(made=made)) and "hush" not in line


def test_a_lake_that_cannot_be_read_leaves_the_metrics_of_runs(made, monkeypatch, capsys):
    (made / "lake/catalog.db").unlink()
    assert main(["check", "--env", "demo"]) == exit_codes.BREACH
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("metrics")] == [] and any("there is no catalog" in s for s in said)
    found = parsed(made / "frazil.prom")
    assert found[("frazil_breached_limits",)] == len(said) and not [n for n, *_ in found if "table_records" in n]


def test_a_run_whose_tables_cannot_be_looked_at_says_so_once(made, capsys):
    (made / "params/tiny/visit.yml").write_text("nonsense: 1\n")
    assert main(["run", "00", "--env", "demo"]) == exit_codes.WRONG
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if line.startswith("metrics of tables: ")]) == 1
    assert parsed(made / "frazil.prom")[("frazil_last_run_exit_code", "00_setup")] == exit_codes.WRONG


@pytest.mark.parametrize("what", ["a fault", "a folder"])
def test_a_check_that_cannot_look_says_so_to_the_hooks_and_in_the_metrics(made, what, capsys):
    set_operate(made, metrics_file="frazil.prom", on_trouble=f"cat > {made}/told.json")
    spec = made / "params/tiny/visit.yml"
    spec.unlink()
    if what == "a folder":
        spec.mkdir()
    else:
        spec.write_text("nonsense: 1\n")
    assert main(["check", "--env", "demo"]) == exit_codes.WRONG
    said, told = capsys.readouterr().err, json.loads((made / "told.json").read_text())
    assert (told["notebook"], told["outcome"]) == ("check", "wrong parameters") and str(spec) in told["cause"]
    assert "cure: " in said and "Traceback" not in said
    assert parsed(made / "frazil.prom")[("frazil_breached_limits",)] == 1


@pytest.mark.parametrize("argv", [["check"], ["run", "00"]])
def test_an_error_before_anything_starts_reaches_the_hooks_too(made, argv, monkeypatch, capsys):
    set_operate(made, on_trouble=f"cat > {made}/told.json")
    for module in (check, run):
        monkeypatch.setattr(module, "Workbook", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert main([*argv, "--env", "demo"]) == exit_codes.FAILED
    told = json.loads((made / "told.json").read_text())
    assert told["outcome"] == "failed" and "Permission denied" in told["cause"]


def test_a_list_of_what_goes_that_was_cut_off_is_made_again(made, capsys):
    assert main(["down", "--env", "demo"]) == exit_codes.OK
    (made / "runs/demo/down.json").write_text("{")
    assert main(["down", "--env", "demo", "--yes"]) == exit_codes.FAILED
    assert "DownError: what exists is no longer what was listed" in capsys.readouterr().err


# --- the dashboard and the page
