"""OpenLineage: the events of a run, by its own JSON schemas, and who hears them.

The schemas are not part of this repository: `FRAZIL_OPENLINEAGE` names the folder `spec` of a checkout of OpenLineage/OpenLineage.
Without it, the events are only compared with what they should be.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client.serde import Serde
from referencing import Registry, Resource

from frazil_old import exit_codes
from frazil_old.cli import main, monitor
from frazil_old.config.settings import CdcMergeSettings, resolve
from frazil_old.dms.endpoint import Endpoint
from frazil_old.errors import HIDDEN, hide
from frazil_old.flows.workbook import Workbook
from frazil_old.report import lineage
from frazil_old.report.lineage import Place, RunFacts, Written
from monitored_world import Receiver, place_with_lake, with_notebook

SPEC = Path(os.environ.get("FRAZIL_OPENLINEAGE", "/nowhere"))
AT = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
MERGED = """
from frazil_old.report.notebook_output import finish
from frazil_old.results import TableResult
results = [TableResult("app.visit", "merged", counts={"changes": 7}), TableResult("app.person", "unchanged")]
finish("cdc_merge", results)
"""
FAILED = MERGED.replace('TableResult("app.person", "unchanged")', 'TableResult("app.person", "failed", "no such file")')
WRITTEN = Written(Place("s3://lake", "app/visit"), [("id", "int"), ("at", "timestamptz")], 7)
RAN = RunFacts("demo", "02_cdc_merge", outcome="ok", read=[Place("s3://dms", "app/visit")], written=[WRITTEN])


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in (*lineage.VARIABLES, "OPENLINEAGE_NAMESPACE", "OPENLINEAGE_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def made(tmp_path, monkeypatch) -> Path:
    return place_with_lake(tmp_path, monkeypatch)


def sent(facts: RunFacts) -> dict:
    """An event as it goes over the wire."""
    return json.loads(Serde.to_json(lineage.event(facts, AT)))


def valid(event: dict) -> dict:
    """Check an event against the schema, and each facet against the one that it names."""
    if not SPEC.is_dir():
        return event
    files = [json.loads(f.read_text()) for f in [SPEC / "OpenLineage.json", *sorted((SPEC / "facets").glob("*.json"))]]
    schemas = Registry().with_resources([(s["$id"], Resource.from_contents(s)) for s in files])

    def check(part: dict, name: str) -> None:
        Draft202012Validator({"$ref": name}, registry=schemas, format_checker=FormatChecker()).validate(part)

    check(event, next(s["$id"] for s in files if s["$id"].endswith("/OpenLineage.json")) + "#/$defs/RunEvent")
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    facets = [f for h in holders for kind in ("facets", "outputFacets") for f in h.get(kind, {}).values()]
    for facet in facets:
        check(facet, facet["_schemaURL"])
    return event


@pytest.mark.skipif(not SPEC.is_dir(), reason="FRAZIL_OPENLINEAGE names no folder with OpenLineage's schemas")
def test_the_schemas_refuse_what_is_no_event():
    for wrong in ({"eventTime": "yesterday"}, {"run": {"runId": "1"}}, {"eventType": "DONE"}, {"producer": None}):
        with pytest.raises(Exception, match="is not"):
            valid(sent(RAN) | wrong)


def test_a_run_that_ended_says_what_it_read_and_wrote():
    event = valid(sent(RAN))
    (output,) = event["outputs"]
    assert (event["eventType"], event["eventTime"]) == ("COMPLETE", "2026-03-01T08:00:00.000+00:00")
    assert event["job"] | {"facets": {}} == {"namespace": "frazil.demo", "name": "02_cdc_merge", "facets": {}}
    assert [(d["namespace"], d["name"]) for d in event["inputs"]] == [("s3://dms", "app/visit")]
    assert (output["namespace"], output["name"]) == ("s3://lake", "app/visit")
    columns = [(f["name"], f["type"]) for f in output["facets"]["schema"]["fields"]]
    assert columns == [("id", "int"), ("at", "timestamptz")]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert event["run"]["facets"] == {} and str(uuid.UUID(event["run"]["runId"])) == RAN.run_id


@pytest.mark.parametrize(
    ("outcome", "cause", "state"),
    [
        ("", "", "START"),
        ("ok", "", "COMPLETE"),
        ("nothing to do", "", "COMPLETE"),
        ("skipped", "another run of this notebook is in progress", "COMPLETE"),
        ("failed", "no such file", "FAIL"),
        ("needs a decision", "the load changed", "FAIL"),
        ("some tables failed", "app.visit", "FAIL"),
        ("timed out", "stopped after 5 s", "ABORT"),
        ("failed", "stopped", "ABORT"),
        ("running", "", "ABORT"),
    ],
)
def test_the_type_of_the_event_is_that_of_the_outcome(outcome, cause, state):
    event = valid(sent(RunFacts("demo", "00_setup", outcome=outcome, cause=cause)))
    assert event["eventType"] == state
    message = event["run"]["facets"].get("errorMessage", {}).get("message")
    assert message == ((cause or outcome) if state in ("FAIL", "ABORT") else None)


def test_no_credential_goes_out(monkeypatch):
    hide(["hush-hush-hush"])
    event = sent(RunFacts("demo", "00_setup", outcome="failed", cause="login: hush-hush-hush\n  cure: another"))
    assert event["run"]["facets"]["errorMessage"]["message"] == f"login: {HIDDEN}\n  cure: another"


def test_a_namespace_of_the_users_own_is_that_of_the_job(monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "warehouse-team")
    assert sent(RAN)["job"]["namespace"] == "warehouse-team"


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("s3://bucket/dms/app/t", "s3://bucket", "dms/app/t"),
        ("s3a://bucket/dms/app/t/", "s3://bucket", "dms/app/t"),
        ("s3://bucket", "s3://bucket", "/"),
        ("/srv/dms:x/app/t", "file", "/srv/dms:x/app/t"),
        ("file:/srv/lake/t", "file", "/srv/lake/t"),
        ("file:///srv/lake/t/", "file", "/srv/lake/t"),
        ("gs://bucket/t", "gs://bucket", "t"),
    ],
)
def test_places_have_the_names_of_the_conventions(location, namespace, name):
    assert lineage.place(location) == Place(namespace, name)


def test_streams_have_the_names_of_the_conventions(made):
    book = Workbook(resolve("cdc_merge", {"env": "demo"}).settings, lambda text: None)
    spec = book.specs["app.visit"]

    def read(**stream) -> list[Place]:
        like = SimpleNamespace(**stream)
        kafka = "brokers" in stream
        return monitor._read(SimpleNamespace(stream=like, is_kafka=kafka, topic=lambda _: stream.get("of", "")), spec)

    kafka = {"brokers": "one:9092,two:9092", "names": ("orders", "items")}
    assert read(**kafka) == [Place("kafka://one:9092", "orders"), Place("kafka://one:9092", "items")]
    assert read(**kafka, of="items") == [Place("kafka://one:9092", "items")]
    arn = "arn:aws:kinesis:eu-central-1:123456789012"
    assert read(arns=lambda: [f"{arn}:stream/dms"]) == [Place(arn, "stream/dms")]


def test_changes_in_files_of_all_tables_have_these_files_as_their_input(made, monkeypatch):
    book = Workbook(resolve("cdc_merge", {"env": "demo"}).settings, lambda text: None)
    assert isinstance(book.settings, CdcMergeSettings)
    assert monitor._read(book, book.specs["app.visit"]) == [Place("file", f"{made}/s3/app/visit")]
    book.endpoint = Endpoint(preserve_transactions=True, cdc_path="changes")
    assert monitor._read(book, book.specs["app.visit"]) == [Place("file", f"{made}/s3/changes")]


@pytest.mark.notebooks
@pytest.mark.parametrize(
    ("code", "exit_code", "end"), [(MERGED, exit_codes.OK, "COMPLETE"), (FAILED, exit_codes.SOME_FAILED, "FAIL")]
)
def test_a_whole_run_sends_its_start_and_its_end(made, monkeypatch, capsys, code, exit_code, end):
    with_notebook(made, "02_cdc_merge", code)
    with Receiver() as heard:
        monkeypatch.setenv("OPENLINEAGE_URL", heard.url)
        assert main(["run", "02", "--env", "demo"]) == exit_code, capsys.readouterr().err
    assert [path for path, _ in heard.heard] == ["/api/v1/lineage"] * 2
    first, last = (valid(json.loads(body)) for _, body in heard.heard)
    assert (first["eventType"], last["eventType"]) == ("START", end)
    assert first["run"]["runId"] == last["run"]["runId"] and first["eventTime"] < last["eventTime"]
    assert first["inputs"] == first["outputs"] == []
    assert [(d["namespace"], d["name"]) for d in last["inputs"]] == [("file", f"{made}/s3/app/visit")]
    (output,) = last["outputs"]
    assert (output["namespace"], output["name"]) == ("file", f"{made}/lake/warehouse/app/visit")
    assert [f["name"] for f in output["facets"]["schema"]["fields"]] == ["person_id", "place"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert ("no such file" in last["run"]["facets"].get("errorMessage", {}).get("message", "")) == (end == "FAIL")


@pytest.fixture
def traced(made, monkeypatch):
    """Trace a run that is not run: a function that takes what happens in it."""
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    book = Workbook(resolve("maintenance", {"env": "demo"}).settings, lambda text: None)
    run = SimpleNamespace(facts={"notebook": "03_maintenance", "began": AT.timestamp(), "outcome": "running"})

    def trace(happens) -> None:
        with monitor.traced(book, run):
            happens(run.facts)

    return trace


def test_a_run_that_is_interrupted_is_aborted(traced, monkeypatch):
    states = []
    monkeypatch.setattr(lineage, "emit", lambda event: states.append(event.eventType.value))

    def interrupted(facts):
        facts |= {"outcome": "failed", "cause": "stopped"}
        raise SystemExit(143)

    with pytest.raises(SystemExit):
        traced(interrupted)
    assert states == ["START", "ABORT"]


@pytest.mark.parametrize("breaks", ["the library", "the receiver", "the transport"])
def test_what_fails_is_one_line(traced, monkeypatch, capfd, breaks):
    if breaks == "the library":
        monkeypatch.setitem(sys.modules, "openlineage.client.event_v2", None)
    elif breaks == "the transport":
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "pigeon")
    with Receiver(status=403) as refuses:
        monkeypatch.setenv("OPENLINEAGE_URL", refuses.url)
        traced(lambda facts: facts.update(outcome="ok"))
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("OpenLineage: ") and "; cure: " in line and refuses.url not in line
    assert breaks != "the library" or line.endswith(
        "openlineage-python is not installed; cure: pip install 'frazil[lineage]'"
    )


def test_without_a_variable_nothing_is_made(traced, monkeypatch):
    monkeypatch.delenv("OPENLINEAGE_URL")
    monkeypatch.setattr(lineage, "event", lambda *_: pytest.fail("an event was made"))
    traced(lambda facts: facts.update(outcome="ok"))
