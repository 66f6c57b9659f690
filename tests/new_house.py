"""The doors of `lib/frazil`."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

import table_reader
from frazil.dms import quarantine_files
from frazil.dms.file_marks import are_unchanged
from frazil.dms.load_rule import MixedLoadError
from frazil.dms.mappings import resolve as resolve_rules
from frazil.dms.position import read_position
from frazil.engine import batch_limits
from frazil.errors import FrazilError
from frazil.pipeline import lake as lakes
from frazil.pipeline import maintain
from frazil.settings import jars, spark
from frazil.settings.environment import resolve
from frazil.settings.secrets import is_secret
from frazil.settings.spec import TableSpec
from world import Refused, Result, World

ENV = "w"
LATEST = "02_cdc_merge"
EAGER = {"dry_run": False, "keep_hours": 0.0, "daily_tags": 0}
"""The settings by which maintenance does all that it can."""
OWN = {"max_small_files", "max_deleted_share", "input", "max_batch_files", "max_bad_percent"}
"""What tests set that is no setting of this library."""


# --- what a world has declared, as files


def prepare(world: World) -> None:
    """Write the environment as commands and other processes take it."""
    for folder in ("params", "runs", "source", "declared"):
        (world.root / folder).mkdir(exist_ok=True)
    own = {"FrazilSettings": world.settings["input"]} if "input" in world.settings else {}
    (world.root / "endpoint.json").write_text(json.dumps({"S3Settings": world.source.settings, **own}))
    if has_rules(world):
        (world.root / "mappings.json").write_text(json.dumps(world.source.rules))
    for name in world.specs:
        (world.root / f"declared/{name}.yml").write_text(yaml.safe_dump(spec_of(world, name)))
    (world.root / f"params/{ENV}.yml").write_text(yaml.safe_dump(parameters(world)))
    os.environ["FRAZIL_PARAMS"] = str(world.root / "params")


def has_rules(world: World) -> bool:
    return getattr(world.source, "rules", None) is not None


def parameters(world: World) -> dict[str, Any]:
    """Return the environment file. Secrets among the catalog's options are variables of the process."""
    options = dict(world.lake)
    for number, name in enumerate(n for n in world.lake if is_secret(n)):
        os.environ[f"LAKE_{number}"], options[name] = options[name], f"${{LAKE_{number}}}"
    given = {n: v for n, v in world.settings.items() if n not in OWN}
    return {
        "source": world.stream or "source", "specs": "declared", "endpoint": "endpoint.json", "catalog": world.catalog,
        "catalog_options": options, "ops_namespace": f"{world.space}_ops", "state": "state",
        **({"mappings": "mappings.json"} if has_rules(world) else {}), **given,
    }  # fmt: skip


def spec_of(world: World, table: str) -> dict[str, Any]:
    """Return a spec in this library's words: its layouts are `columns_until`."""
    said = {n: v for n, v in world.specs[table].items() if n not in ("max_bad_percent", "layouts")}
    said["columns"] = [{n: v for n, v in column.items() if n != "nullable"} for column in said["columns"]]
    if "key" in said.get("changes", {}):
        said["changes"] = {n: v for n, v in said["changes"].items() if n != "key"}
    if layouts := world.specs[table].get("layouts", []):
        of_rules = world.source.rules["rules"] if has_rules(world) else []
        written = resolve_rules(of_rules, TableSpec.model_validate(said))
        names = [*dict.fromkeys([*written.columns, *written.added, *written.images])]
        for layout in layouts:
            has = [name for name in layout.get("columns") or names if name not in layout.get("without", [])]
            until = layout["until"]
            name = (
                until
                if until[8:9] == "-"
                else f"{re.sub('[^0-9]', '', until)[:8]}-{re.sub('[^0-9]', '', until)[8:]}000.csv"
            )
            said.setdefault("columns_until", {})[name] = has
            if layout.get("load"):
                said["columns_until"]["LOAD00000001.csv"] = has
    return said


# --- one process: what it has open

_open: dict[tuple, lakes.Lake] = {}
_audited: set[str] = set()


def forget() -> None:
    """Forget all that this process keeps in memory. Before the next process runs, maintenance has looked at all files."""
    _open.clear()
    _audited.clear()


def opened(world: World, settings: dict) -> lakes.Lake:
    """Return the lake of a world: the one that is open, unless what it was opened with is different now."""
    prepare(world)
    own = {n: v for n, v in settings.items() if n not in OWN}
    if "tables" in own:
        own["tables"] = [world.specs[t]["source"] for t in own["tables"]]
    declared = [p.read_text() for folder in ("params", "declared") for p in sorted((world.root / folder).glob("*.yml"))]
    declared += [p.read_text() for p in sorted(world.root.glob("*.json")) if p.name != "world.json"]
    mark = (str(world.root), json.dumps(own, sort_keys=True), "".join(declared))
    batch_limits.MOST_FILES = {**world.settings, **settings}.get("max_batch_files", 1000)
    if mark not in _open:
        lake = _open[mark] = lakes.open(LATEST, ENV, **own)
        lake.say = world.said.append
    _open[mark].stop.clear()
    return _open[mark]


def start_spark(folder: Path, catalog_options: dict, options: dict):
    """Start the session of all tests, with the jars of AWS; `FRAZIL_ICEBERG` chooses the release of Iceberg."""
    iceberg = f"{jars.ICEBERG.rpartition(':')[0]}:{os.environ.get('FRAZIL_ICEBERG', '1.12.0')}"
    conf = {**options, "spark.jars.packages": ",".join([jars.AWS, iceberg])}
    (folder / "params").mkdir(parents=True)
    given = {"catalog_options": catalog_options, "spark_options": conf}
    (folder / "params/session.yml").write_text(yaml.safe_dump(given))
    os.environ["FRAZIL_PARAMS"] = str(folder / "params")
    return spark.session(resolve("session"))


def session(world: World):
    """Return the Spark session."""
    return opened(world, {}).spark


# --- the verbs


def do(world: World, verb: str, settings: dict) -> list[Result]:
    """Do what a verb says; an error of the whole environment is a result of each table."""
    try:
        lake = opened(world, EAGER | settings if verb == "maintain" else settings)
        if verb == "merge" and str(world.root) not in _audited:
            _audited.add(str(world.root))
            for table in lake:
                with suppress(FrazilError):
                    maintain.audit_table(table)
        return [result(r) for r in getattr(lake, verb)()]
    except FrazilError as error:
        return [Result(t, "failed", error.code, str(error), decision=error.decision) for t in world.specs]


def result(found) -> Result:
    table = found.table.split(".", 1)[-1]
    return Result(table, found.status, found.code, found.note, dict(found.counts), found.decision)


def decide(world: World, table: str, **decision) -> Result:
    """Carry out a decision, and go on with the table."""
    ((kind, value),) = decision.items()
    try:
        of = opened(world, {})[world.specs[table]["source"]]
        if kind == "restart":
            return _restart(world, of, table, value)
        if kind in ("accept", "without"):
            of.accept(value)
        elif kind in ("replay", "discard"):
            return _of_waiting(world, of, table, kind)
        elif kind == "stop":
            of.stop(value)
            return Result(table, "stopped", "stopped", value)
        elif kind == "resume":
            of.resume(of.stored.position.stopped.split()[0])
            return Result(table, "resumed")
        elif kind == "adopt":
            of.adopt(value)
            return Result(table, "adopted")
    except FrazilError as error:
        status = "stopped" if error.code == "stopped" else "failed"
        return Result(table, status, error.code, str(error), decision=error.decision)
    return world.merge(tables=[table])[table]


def _restart(world: World, of, table: str, kind: str) -> Result:
    """Load a table again. "pending" is what a person says who had DMS load it again: the load is another one."""
    there = of.lake.source.look(of.spec, None)
    is_same = of.stored.position.load and are_unchanged(there.storage, there.loads, of.stored.position.load)
    has_times = bool(world.source.settings.get("TimestampColumnName", "ts"))
    if kind == "all" or not is_same:
        try:
            of.restart("next" if kind == "pending" else None if has_times else "first")
        except MixedLoadError:
            if kind == "pending":
                raise
            of.restart("first")  # a person knows better
    found = world.load(tables=[table])[table]
    status = {"all": "replayed", "pending": "reloaded"}[kind] if found.status == "loaded" else found.status
    return Result(table, status, found.code, found.note, found.counts, found.decision)


def _of_waiting(world: World, of, table: str, kind: str) -> Result:
    """Replay or discard the rows that wait."""
    of.require_not_stopped()
    of.refresh()
    waiting = of.stored.position.quarantine
    if waiting is None:
        return Result(table, "unchanged")
    if kind == "discard":
        of.discard(waiting.path, "a test")
        return Result(table, "discarded")
    of.replay(waiting.path)
    return world.merge(tables=[table])[table]


# --- what it says


def world_plan(world: World) -> dict[str, dict]:
    """Return the plan."""
    try:
        rows = opened(world, {}).plan().rows
    except FrazilError as error:
        rows = [{"table": t, "decision": str(error), "code": error.code, "load": 0, "changes": 0} for t in world.specs]
    return {row["table"].split(".", 1)[-1]: row for row in rows}


def lateness(world: World) -> dict[str, dict]:
    """Return what waits after each table's position."""
    rows = opened(world, {}).lateness().to_dict("records")
    return {row["table"].split(".", 1)[-1]: row for row in rows}


def check(world: World, limits: dict) -> list[str]:
    """Return the lines of breached limits."""
    rows = opened(world, limits).lateness().to_dict("records")
    late = [f"{r['table']}: {r['lag_s']:.0f} s" for r in rows if not r["problem"] and r["lag_s"] > r["limit_s"]]
    return [f"{r['table']}: {r['problem']}" for r in rows if r["problem"]] + late


def quarantine(world: World, table: str) -> list[dict]:
    """Return the rows that wait."""
    of = opened(world, {})[world.specs[table]["source"]]
    of.refresh()
    rows = quarantine_files.stored(of.lake.state, of.stored.position.quarantine)
    found = rows.to_pylist() if rows is not None else []
    found.sort(key=lambda row: (row["path"], row["number"]))
    return [
        {"file": Path(r["path"]).name, "row": r["number"], **{n: r[n] for n in ("column", "reason", "raw")}}
        for r in found
    ]


def lint(world: World) -> list[dict]:
    """Return what settings, specs and files show to be wrong."""
    return [dict(zip(("subject", "says", "cure"), row[:3], strict=True)) for row in opened(world, {}).lint().rows]


def find(world: World, table: str, key: tuple) -> list[dict]:
    """Return the row of a key with its origin."""
    with _asked(world, table) as of:
        found = of.find(*key).to_dict("records")
    facts = ("committed", "snapshot", "origin", *world.specs[table]["key"])
    return [{"values": {n: v for n, v in row.items() if n not in facts}, "origin": row["origin"]} for row in found]


@contextmanager
def _asked(world: World, table: str):
    """Give the table; raise the world's error where the library has no answer."""
    try:
        yield opened(world, {})[world.specs.get(table, {}).get("source", f"public.{table}")]
    except FrazilError as error:
        raise Refused(str(error)) from error


def position(metadata) -> dict:
    """Return the position in the summary of the newest own snapshot."""
    summary = next(
        s.summary.additional_properties
        for s in table_reader.history(metadata)
        if "frazil.position" in s.summary.additional_properties
    )
    return {"last": Path(read_position(summary["frazil.position"], "t").last).name}


def is_batch(snapshot) -> bool:
    """Return whether the library made a snapshot for a load or a batch."""
    return snapshot.summary is not None and snapshot.summary.additional_properties.get("frazil.kind") in ("load", "changes")  # fmt: skip


def cure(world: World, found: Result) -> str:
    """Carry out the SQL statement, or the decision, that a message names as its remedy, and return it."""
    named = re.search(r'(ALTER TABLE|CALL) .*|adopt\("last"\)', found.note)
    assert named, f"{found.code} names no statement: {found.note}"
    if named[1]:
        world.session.sql(named[0])
    else:
        world.decide(found.table, adopt="last")
    return named[0]
