"""The doors of the library as it is now. This file, and its table of sentences, go with it."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path

import yaml
from pyspark.sql import SparkSession

import table_reader
from frazil_old.cli import check as check_command
from frazil_old.cli.commands import main as run_command
from frazil_old.config import jars
from frazil_old.config.settings import NOTEBOOKS, SECTIONS, Settings, resolve
from frazil_old.config.source_database import ENGINES
from frazil_old.config.spark_session import get_spark
from frazil_old.errors import FrazilError
from frazil_old.flows import adopt, cdc, full_load, lag, ledger, maintenance, plan, quarantine_replay, setup, warehouses
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm, other_writers, rollback, table_pause
from frazil_old.report.latency import Analysis
from world import Result, World

ENV = "w"
VERBS = {
    "setup": ("setup", setup.create_tables),
    "load": ("full_load", full_load.run),
    "merge": ("cdc_merge", cdc.run),
    "maintain": ("maintenance", maintenance.run),
}
"""Each verb: the notebook whose parameters it takes, and its flow."""
EAGER = {"dry_run": False, "max_small_files": 0, "max_deleted_share": 0.0, "keep_hours": 0.0, "hourly_tags": 0, "daily_tags": 0}  # fmt: skip
"""The parameters by which maintenance does all that it can."""
RENAMED = {"ignore_tables": "without_spec"}
"""The name that a setting has in this library, by the name that tests write."""

# --- what a world has declared, as this library's files of parameters


def prepare(world: World) -> None:
    """Write the environment as the command and other processes take it."""
    for folder in ("params", "runs"):
        (world.root / folder).mkdir(exist_ok=True)
    common, sections = _parameters(world)
    (world.root / "params" / f"{ENV}.yml").write_text(yaml.safe_dump({"common": common, **sections}))
    (world.root / "endpoint.json").write_text(json.dumps(_endpoint(world)))
    if _has_rules(world):
        (world.root / "mappings.json").write_text(json.dumps(world.source.rules))
    os.environ["FRAZIL_PARAMS"] = str(world.root / "params")


def _endpoint(world: World) -> dict:
    own = {"FrazilSettings": world.settings["input"]} if "input" in world.settings else {}
    if world.stream:
        kind = "KafkaSettings" if world.stream.startswith("kafka") else "KinesisSettings"
        return {kind: world.source.settings, **own}
    return {"S3Settings": world.source.settings, **own}


def _parameters(world: World) -> tuple[dict, dict]:
    """Return the parameters of the environment's file: the common ones, and those of single notebooks by section."""
    own = ("input", "warehouses", "format_version", "landing_in_clear")
    given = {"lane": "rowdelta", **{RENAMED.get(k, k): v for k, v in world.settings.items() if k not in own}}
    common = {
        "source": world.stream or "source", "specs": "specs", "endpoint": "endpoint.json", "catalog": world.catalog,
        "catalog_options": world.lake, "ops_namespace": f"{world.space}_ops", "query_engines": _engines(world),
        **({"mappings": "mappings.json"} if _has_rules(world) else {}),
    }  # fmt: skip
    if world.stream:
        given = {"stream_start": "earliest", "load_complete_when": "declared", **given}
    sections: dict[str, dict] = {"warehouses": world.settings["warehouses"]} if "warehouses" in world.settings else {}
    known = {f.name for f in fields(Settings)}
    for name, value in given.items():
        if name in known:
            common[name] = value
            continue
        of = [section for section, kind in SECTIONS.items() if name in {f.name for f in fields(kind)}]
        assert of, f"no notebook has a parameter '{name}'"
        for section in of:
            sections.setdefault(section, {})[name] = value
    return common, sections


def _has_rules(world: World) -> bool:
    return getattr(world.source, "rules", None) is not None


def _engines(world: World) -> list[str]:
    return ["athena"] if world.settings["format_version"] == 2 else ["spark"]


# --- one process: what it has open

_open: dict[tuple, Workbook] = {}


def forget() -> None:
    """Forget all that this process keeps in memory."""
    _open.clear()
    rollback._kept.clear()
    other_writers._unique.clear()


def _source(world: World, table: str) -> str:
    return world.specs.get(table, {}).get("source", f"public.{table}")


def _book(world: World, notebook: str, settings: dict) -> Workbook:
    """Return the workbook of a notebook: the one that is open, unless what it was opened with is different now."""
    prepare(world)
    names = {f.name for f in fields(NOTEBOOKS[notebook])}
    cell = {"env": ENV, **{k: v for k, v in settings.items() if k in names}}
    declared = [p.read_text() for folder in ("params", "specs") for p in sorted((world.root / folder).glob("*.yml"))]
    declared += [p.read_text() for p in sorted(world.root.glob("*.json")) if p.name != "world.json"]
    mark = (str(world.root), notebook, json.dumps(cell), "".join(declared))
    _join_session()
    if mark not in _open:
        _open[mark] = Workbook(resolve(notebook, cell).settings, world.said.append)
    return _open[mark]


def _join_session() -> None:
    """Let this thread find the session that the process has: the library would configure it anew, without its jars."""
    known = SparkSession._instantiatedSession
    if known is not None and SparkSession.getActiveSession() is None:
        SparkSession._get_j_spark_session_class(known._jvm).setActiveSession(known._jsparkSession)


def start_spark(folder: Path, catalog_options: dict, options: dict):
    """Start the session of all tests, with the jars of AWS and of every source database; `FRAZIL_ICEBERG` chooses the release of Iceberg."""
    if version := os.environ.get("FRAZIL_ICEBERG"):
        jars.ICEBERG["4.1"] = [f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{version}"]
    drivers = ",".join(driver for *_, driver in ENGINES.values())
    packages = ",".join([drivers, *jars.AWS_BUNDLE["4.1"], *jars.WITH_BUNDLE["4.1"]])
    conf = {**options, "spark.jars.packages": packages}
    return get_spark(Settings(root=str(folder), catalog_options=catalog_options, spark_options=conf))


def session(world: World):
    """Return the Spark session."""
    return _book(world, "cdc_merge", {}).spark


# --- the verbs


def do(world: World, verb: str, settings: dict) -> list[Result]:
    """Do what a verb says; an error of the whole environment is a result of each table."""
    notebook, flow = VERBS[verb]
    given = dict(settings)
    if "tables" in given:
        given["tables"] = [_source(world, t) for t in given["tables"]]
    if verb == "maintain":
        given = {**EAGER, **given}
    try:
        return [_result(r) for r in flow(_book(world, notebook, given))]
    except FrazilError as e:
        return [Result(t, "failed", code_of(str(e)), str(e), decision=e.decision) for t in world.specs]


def _result(found) -> Result:
    table, note = found.table.split(".", 1)[-1], str(found.note)
    wrong = found.status in ("failed", "waiting", "skipped", "stopped")
    if found.status == "paused":
        return Result(table, "stopped", "stopped", note, dict(found.counts), found.decision)
    return Result(table, found.status, code_of(note) if wrong else "", note, dict(found.counts), found.decision)


def decide(world: World, table: str, **decision) -> Result:
    """Carry out a decision, and the flow that follows it."""
    (kind, value), only = next(iter(decision.items())), {"tables": [table]}
    if kind == "accept":
        return world.merge(late_files="after", **only)[table]
    if kind == "without":
        return world.merge(go_on_without=[value], **only)[table]
    if kind == "restart":
        return world.load(on_changed_load={"all": "replay", "pending": "reload"}[value], **only)[table]
    if kind in ("replay", "discard"):
        book = _book(world, "cdc_merge", {"quarantine": kind, "tables": [_source(world, table)]})
        return _result(quarantine_replay.run(book)[0])
    if kind == "adopt":
        try:
            note = adopt.adopt(_book(world, "cdc_merge", {}), _source(world, table), value)
            return Result(table, "adopted", note=note)
        except FrazilError as e:
            return Result(table, "failed", code_of(str(e)), str(e))
    there = jvm.load_table(session(world), world.name(table))
    if kind == "stop":
        return Result(table, "stopped", "stopped", table_pause.pause(there, value))
    assert kind == "resume", f"no decision '{kind}'"
    return Result(table, "resumed", note=table_pause.resume(there) or "")


def command_line(world: World, arguments: tuple[str, ...]) -> list[str]:
    """Prepare the world for a command, and return how it is called."""
    prepare(world)
    if not (world.root / "notebooks").exists():
        (world.root / "notebooks").symlink_to(Path(__file__).parent.parent / "lib/frazil_old/notebooks")
    return [sys.executable, "-m", "frazil_old.cli", *arguments]


def command(world: World, arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[int, str]:
    """Run the command `frazil` in this process."""
    command_line(world, arguments)
    printed, before = StringIO(), dict(os.environ)
    os.environ.update({"FRAZIL_ENV": ENV, **environment})
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            code = run_command(list(arguments))
    finally:
        os.environ.clear()
        os.environ.update(before)
    return code, printed.getvalue()


# --- what it says


def _by_table(rows: list[dict]) -> dict[str, dict]:
    return {r["table"].split(".", 1)[-1]: r for r in rows}


def world_plan(world: World) -> dict[str, dict]:
    """Return the plan of 01 and 02 together."""
    rows = plan.plan(_book(world, "cdc_merge", {}), loads=_book(world, "full_load", {}))
    return _by_table([{**r, "code": code_of(r["decision"]) if r["decision"] else ""} for r in rows])


def lint(world: World) -> list[dict]:
    """Return what 00_setup finds of settings and files."""
    try:
        found = setup.check_source(_book(world, "setup", {}))
    except FrazilError as e:
        return [{"subject": "", "says": e.problem, "cure": e.cure, "kind": "refused"}]
    found += [{"setting": r["table"], "says": r["notes"], "cure": "", "kind": "note"} for r in world_plan(world).values() if r.get("notes")]  # fmt: skip
    return [{"subject": r["setting"], "says": r["says"], "cure": r["cure"], "kind": r["kind"]} for r in found]


def check(world: World, limits: dict) -> list[str]:
    """Return the lines of `frazil check`."""
    return check_command.look(_book(world, "operate", limits).settings)[0]


def lateness(world: World) -> dict[str, dict]:
    """Return what waits after each table's position."""
    rows = _by_table(lag.per_table(_book(world, "operate", {})))
    return {t: {**r, "code": code_of(r["problem"]) if r["problem"] else ""} for t, r in rows.items()}


def quarantine(world: World, table: str) -> list[dict]:
    """Return the rows that wait, from the table of records: of each row its newest record."""
    name, newest = f"{world.space}_ops.quarantine", {}
    if not table_reader.exists(world.lake, name):
        return []
    records = table_reader.table(world.lake, name).scan().to_arrow().to_pylist()
    for r in sorted(records, key=lambda r: (r["sequence"], r["changed_at"])):
        newest[r["table_name"], r["id"]] = r
    source = world.specs[table]["source"]
    waiting = [r for r in newest.values() if r["table_name"] == source and r["status"] in ("waiting", "still bad")]
    waiting.sort(key=lambda r: (r["object"] or r["path"], int(r["row_no"])))
    return [
        {"file": Path(r["path"]).name, "row": int(r["row_no"]), "column": r["column_name"], "reason": r["reason"], "raw": bytes(r["raw"])}
        for r in waiting
    ]  # fmt: skip


def latency(world: World, hours: float) -> dict[str, dict]:
    """Return the percentiles of the stages, as notebook 04 computes them."""
    found = Analysis(ledger.commits(_book(world, "latency", {}), hours))
    rows = found.percentiles("stage").set_index("stage").to_dict("index")
    return {stage: {**row, "changes": found.changes} for stage, row in rows.items()}


def warehouses_of(world: World, refresh: bool) -> list[dict]:
    """Return what each declared warehouse serves."""
    return warehouses.looks(_book(world, "warehouses", {}), refresh=refresh)


def warehouse_facts(world: World) -> list[dict]:
    """Return what each declared warehouse is."""
    return [{"status": "", **row} for row in warehouses.overview(_book(world, "warehouses", {}))]


def statements(world: World) -> list[str]:
    """Return what each declared warehouse needs, in order."""
    return [row["what"] for row in warehouses.needs(_book(world, "warehouses", {}))]


def set_up_warehouses(world: World, dry_run: bool) -> list[dict]:
    """Make what the declared warehouses lack, or only show it."""
    return warehouses.set_up(_book(world, "warehouses", {}), dry_run)


def position(metadata) -> dict:
    """Return the position that the table's property holds."""
    stored = json.loads(metadata.properties.get("frazil.position", "{}"))
    found = {"last": stored.get("last", "")}
    return found | ({"offsets": stored["stream"]} if stored.get("stream") else {})


def is_batch(snapshot) -> bool:
    """Return whether the library made a snapshot for a load or a batch."""
    return snapshot.summary is not None and snapshot.summary.additional_properties.get("frazil.kind") in ("load", "changes")  # fmt: skip


# --- codes of sentences

CODES = [
    ("key-taken", r"given the key of another one"), ("column-unclear", r"occurs \d+ times, at places|at place \d+"), ("same-source", r"read the same "),
    ("load-changed", r"the load files are not those that were applied"), ("file-vanished", r"never applied and now gone|the object does not exist"),
    ("late-file", r"\.(csv|parquet)\S* (and \d+ more )?arrived late: "), ("too-many-bad-rows", r"are more than max_bad_rows="),
    ("stream-replaced", r"was created again after its position"), ("dms-silent", r"DMS does not answer|no AWS credentials were found"),
    ("stopped", r"^paused|is paused|: paused"), ("mask-changed", r"is (not )?masked in"), ("no-key", r"has no key"), ("no-start", r"where in the stream"),
    ("two-loads", r"load records of two loads"), ("expired", r"expired before"), ("unreadable", r"none of DMS's"),
    ("rolled-back", r"was rolled back to snapshot|newer than its position"), ("history-gone", r"history of its position is gone"),
    ("late-file", r"before the position|came late|late file"), ("file-vanished", r"vanished|are gone, which|disappeared|is gone, and|no longer there"),
    ("load-changed", r"load files (that )?(changed|differ)|another load|not those that were applied|more load files"),
    ("load-mixed", r"not written with the others|load files of two"), ("load-waits", r"until the full load is applied|01_full_load found none"),
    ("load-duplicate-key", r"is not unique in the load"), ("row-borders", r"which hides where rows end"), ("bad-row", r"bad row"),
    ("too-many-bad-rows", r"more bad rows than"), ("unknown-column", r"unknown column"), ("column-gone", r"no column|is gone from|lack columns"),
    ("name-impossible", r"renamed_from: "), ("other-writer", r"another writer (changed|added)"),
    ("key-twice", r"keys occur more than once|has several rows of one key"), ("type-changed", r"no promotion"),
    ("key-changed", r"rows are identified|primary key is \(|the key is \("), ("no-position", r"is no position|did you mean|no change file"),
    ("column-type", r"none of its values can have the spec.s type"), ("position-moved", r"position (has )?moved|another run"),
    ("no-table", r"does not exist"), ("foreign-table", r"was not created by Frazil|carries no position"),
]  # fmt: skip
"""A code and the words that tell it, the first that fits. What has no words here has the code `other`."""


def code_of(sentence: str) -> str:
    """Return the code of a message of this library."""
    return next((code for code, words in CODES if re.search(words, sentence)), "other")


def cure(world: World, result: Result) -> str:
    """Carry out the SQL statement that a message names as its remedy, and return it."""
    found = re.search(r"(ALTER TABLE|CALL) .*", result.note)
    assert found, f"{result.code} names no statement: {result.note}"
    world.session.sql(found[0])
    return found[0]
