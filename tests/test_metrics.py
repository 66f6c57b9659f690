"""Metrics: what `frazil run` and `frazil check` write for Prometheus, send by OpenTelemetry, and show in the dashboard."""

from __future__ import annotations

import json
import re
import stat
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from frazil_old import exit_codes
from frazil_old.cli import check, main, monitor, run
from frazil_old.config.processes import host
from frazil_old.config.settings import resolve
from frazil_old.report import metrics, runs
from frazil_old.report.metrics import METRICS, Facts
from frazil_old.report.notebook_output import finish
from frazil_old.results import TableResult
from monitored_world import Receiver, place_with_lake, set_operate, with_notebook

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "lib/docs/monitoring.md"
DASHBOARD = json.loads((ROOT / "lib/docs/grafana-dashboard.json").read_text(encoding="utf-8"))
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


RUN = {"notebook": "02_cdc_merge", "outcome": "ok", "began": 100.0, "seconds": 5.0}
RUNS = [
    {"notebook": "02_cdc_merge", "outcome": "running", "began": 400.0, "pid": 1},
    {"notebook": "02_cdc_merge", "outcome": "skipped", "began": 300.0},
    RUN | {"outcome": "failed", "began": 200.0, "tables": {"a.t": {"status": "failed", "quarantined": 3}}},
    RUN | {"tables": {"a.t": {"status": "merged", "changes": 9, "live": LIVE}}},
    RUN | {"began": 50.0, "tables": {"a.t": {"status": "merged", "changes": 1, "live": {"commit_s": 99.0}}}},
    RUN | {"notebook": "03_maintenance", "began": 10.0, "tables": {"a.t": {"status": "maintained", "rows": 4}}},
]
EVERYTHING = Facts(
    "demo",
    tables=[{"table": "a.t", "pending": 2, "lag_s": 60.5, "problem": ""}, {"table": "a.u", "pending": None, "lag_s": None, "problem": "!"}],
    sizes={"a.t": {"data_files": 5, "delete_files": 2, "records": 100, "snapshots": 3}},
    waiting={"a.t": 4},
    runs=RUNS,
    breaches=2,
)  # fmt: skip


def test_samples_are_of_the_newest_that_is_known():
    found = {(s.name.removeprefix("frazil_"), *s.labels.values()): s.value for s in metrics.samples(EVERYTHING)}
    merge, maintenance = ("demo", "02_cdc_merge"), ("demo", "03_maintenance")
    assert found == {
        ("table_lag_seconds", "demo", "a.t"): 60.5,
        ("table_pending_files", "demo", "a.t"): 2,
        ("table_unknown", "demo", "a.t"): 0,
        ("table_unknown", "demo", "a.u"): 1,
        ("table_data_files", "demo", "a.t"): 5,
        ("table_delete_files", "demo", "a.t"): 2,
        ("table_records", "demo", "a.t"): 100,
        ("table_snapshots", "demo", "a.t"): 3,
        ("quarantine_waiting_rows", "demo", "a.t"): 4,
        ("batch_lag_p50_seconds", "demo", "a.t"): 1.5,
        ("batch_lag_p99_seconds", "demo", "a.t"): 4,
        ("batch_commit_seconds", "demo", "a.t"): 0.3,
        ("last_run_exit_code", *merge): exit_codes.FAILED,
        ("last_run_duration_seconds", *merge): 5,
        ("last_run_end_timestamp_seconds", *merge): 205,
        ("last_run_applied_rows", *merge, "a.t"): 0,
        ("last_run_bad_rows", *merge, "a.t"): 3,
        ("last_success_timestamp_seconds", *merge): 105,
        ("last_run_exit_code", *maintenance): exit_codes.OK,
        ("last_run_duration_seconds", *maintenance): 5,
        ("last_run_end_timestamp_seconds", *maintenance): 15,
        ("last_success_timestamp_seconds", *maintenance): 15,
        ("breached_limits", "demo"): 2,
    }


def every_sample() -> list[metrics.Sample]:
    """A sample of each metric at least."""
    streams = Facts("demo", stream=True, tables=EVERYTHING.tables)
    return [*metrics.samples(EVERYTHING), *metrics.samples(streams)]


def test_every_metric_has_samples_and_a_unit_in_its_name():
    assert {s.name for s in every_sample()} == set(METRICS)
    units = {name: unit for name, (unit, _) in METRICS.items()}
    assert {n for n, unit in units.items() if unit == "s"} == {n for n in METRICS if n.endswith("_seconds")}
    assert [n for n in METRICS if n.endswith(("_total", "_count", "_sum", "_bucket", "_info"))] == []


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


def gauges(body: bytes) -> dict[tuple[str, ...], float]:
    """The values of a request to a collector, by name and attributes."""
    request = ExportMetricsServiceRequest.FromString(body)
    (resource,) = request.resource_metrics
    assert {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == "frazil"
    found = {}
    for metric in resource.scope_metrics[0].metrics:
        assert metric.unit == METRICS[metric.name][0] and metric.description == METRICS[metric.name][1]
        for point in metric.gauge.data_points:
            labels = {a.key: a.value.string_value for a in point.attributes}
            found[metric.name, *labels.values()] = point.as_double
    return found


def test_a_collector_gets_the_same_values_as_the_file(tmp_path, monkeypatch):
    found = metrics.samples(EVERYTHING)
    with Receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        metrics.send(found)
    ((path, body),) = collector.heard
    assert path == "/v1/metrics"
    assert gauges(body) == {(s.name, *s.labels.values()): s.value for s in found}
    metrics.write_file(found, tmp_path / "x.prom")
    in_file = {(name, "demo", *labels): v for (name, *labels), v in parsed(tmp_path / "x.prom").items()}
    assert {(n, *sorted(labels)): v for (n, *labels), v in gauges(body).items()} == {
        (n, *sorted(labels)): v for (n, *labels), v in in_file.items()
    }


def test_a_variable_alone_sends_metrics(made, monkeypatch):
    set_operate(made)
    with Receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{collector.url}/own")
        assert main(["check", "--env", "demo", "--quiet"]) == exit_codes.BREACH
    ((path, body),) = collector.heard
    assert path == "/own" and gauges(body)["frazil_breached_limits", "demo"] == 3
    assert not (made / "frazil.prom").exists()


def test_without_a_receiver_nothing_is_read(made, monkeypatch):
    set_operate(made)
    monkeypatch.setattr(monitor, "_facts", lambda *_: pytest.fail("it was read"))
    assert main(["check", "--env", "demo", "--quiet"]) == exit_codes.BREACH


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


def test_a_collector_that_nobody_runs_costs_a_few_seconds(made, monkeypatch, capfd):
    with Receiver() as gone:
        pass
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", gone.url)
    began = time.monotonic()
    assert main(["check", "--env", "demo", "--quiet"]) == exit_codes.BREACH
    assert "took nothing" in capfd.readouterr().err.splitlines()[-1]
    assert time.monotonic() - began < metrics.TIMEOUT_S + 10


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


def test_check_reports_what_it_did_before(made, monkeypatch):
    operate = resolve("operate", {"env": "demo"}).settings
    assert check.look(operate)[0][-1] == "runs: 02_cdc_merge has not succeeded yet"


def test_a_run_that_was_skipped_does_not_hide_that_the_one_before_failed(made):
    home = made / "runs/demo"
    for at, outcome in enumerate(["failed", "skipped"], 1):
        folder = home / f"02_cdc_merge-{at}"
        folder.mkdir(parents=True)
        runs.write(folder, **RUN | {"outcome": outcome, "began": float(at)})
    breaches = check.look(resolve("operate", {"env": "demo"}).settings)[0]
    assert any(line.startswith("last run: failed: ") for line in breaches), breaches


def test_a_maintenance_that_was_killed_is_a_breach_until_one_succeeds(made):
    operate, home = resolve("operate", {"env": "demo"}).settings, made / "runs/demo"

    def last(began: float, outcome: str) -> list[str]:
        folder = home / f"03_maintenance-{began:g}"
        folder.mkdir(parents=True)
        runs.write(folder, notebook="03_maintenance", outcome=outcome, began=began, pid=2**30, host=host())
        return [line for line in check.look(operate)[0] if line.startswith("last run: ")]

    assert last(1.0, "running") == [f"last run: failed: {home}/03_maintenance-1"]
    assert last(2.0, "ok") == []


def test_a_list_of_what_goes_that_was_cut_off_is_made_again(made, capsys):
    assert main(["down", "--env", "demo"]) == exit_codes.OK
    (made / "runs/demo/down.json").write_text("{")
    assert main(["down", "--env", "demo", "--yes"]) == exit_codes.FAILED
    assert "DownError: what exists is no longer what was listed" in capsys.readouterr().err


# --- the dashboard and the page


def panels() -> list[dict]:
    return [p for p in DASHBOARD["panels"] if p["type"] != "row"]


def test_the_dashboard_shows_every_metric_and_no_other():
    shown = {n for p in panels() for t in p["targets"] for n in re.findall(r"frazil_\w+", t["expr"])}
    assert shown == set(METRICS)
    variables = {v["name"]: v for v in DASHBOARD["templating"]["list"]}
    assert set(variables) == {"datasource", "env", "table"} and variables["datasource"]["type"] == "datasource"
    asked = {n for v in variables.values() for n in re.findall(r"frazil_\w+", json.dumps(v.get("query", "")))}
    assert asked <= set(METRICS)


def test_every_panel_of_the_dashboard_has_a_place_and_the_variables():
    assert len({p["id"] for p in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and cells and not cells & taken, panel["title"]
        taken |= cells
    labels = {s.name: set(s.labels) for s in every_sample()}
    for panel in panels():
        assert panel["title"] and panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            (name,) = re.findall(r"frazil_\w+", target["expr"])
            wanted = {"env"} | ({"table"} if "table" in labels[name] else set())
            assert set(re.findall(r'(\w+)=~"\$(?:env|table)"', target["expr"])) == wanted, target["expr"]
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels[name]
    mapped = {int(k): v["text"] for p in panels() for m in p["fieldConfig"]["defaults"].get("mappings", []) for k, v in m["options"].items()}  # fmt: skip
    named = {code: outcome for outcome, code in exit_codes.EXIT_CODES.items()}
    assert {code: mapped[code] for code in mapped} == {
        code: named[code] for code in mapped
    } and exit_codes.FAILED in mapped


def test_the_page_lists_the_metrics():
    labels = {s.name: [n for n in s.labels if n != "env"] for s in every_sample()}
    rows = [f"| `{name}` | {', '.join(labels[name]) or '–'} | {METRICS[name][1]} |" for name in METRICS]
    table = re.search(r"<!-- metrics -->\n(.*?)\n<!-- end of metrics -->", PAGE.read_text(encoding="utf-8"), re.S)
    assert table and table[1].splitlines()[2:] == rows, "\n".join(rows)
