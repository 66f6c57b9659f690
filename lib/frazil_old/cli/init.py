"""`frazil init`: write the whole `params/` folder of an environment from its source and the documents of its DMS task."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from frazil_old import exit_codes
from frazil_old.cli import schema
from frazil_old.cli.init_from_files import FromFiles, Target, annotated, from_files
from frazil_old.cli.init_from_files import add as add_from_files
from frazil_old.config.columns import free_name
from frazil_old.config.environment_file import find_params
from frazil_old.config.jars import PACKAGES
from frazil_old.config.settings import ParameterError, Settings
from frazil_old.config.source_database import ENGINES, SourceDatabaseError, source_connection
from frazil_old.config.spark_session import get_spark
from frazil_old.config.spec import TableSpec, file_name, lake_name, spec_text
from frazil_old.dms.aws_json import read_endpoint_document, read_json, stream_address
from frazil_old.dms.endpoint import endpoint_from
from frazil_old.dms.mappings import Mappings, read_mappings
from frazil_old.dms.settings_lint import LOSS, lint
from frazil_old.flows.source_catalog import CatalogTable, read_catalog

NEW_TARGET: dict[str, Any] = {"S3Settings": {
    "DataFormat": "csv", "Rfc4180": True, "CsvNullValue": "__DMS_NULL__", "AddColumnName": True, "IncludeOpForFullLoad": True,
    "TimestampColumnName": "dms_commit_ts", "CdcMaxBatchInterval": 60, "CdcMinFileSize": 32000,
}}  # fmt: skip
"""Settings of an S3 target that lose nothing: columns are named, nulls differ from empty texts, commits have their time."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--endpoints",
        type=Path,
        help="what `aws dms describe-endpoints` prints: the target, and the source if it is known there; without it, settings for a new target are written",
    )
    parser.add_argument(
        "--task",
        type=Path,
        help="what `aws dms describe-replication-tasks` prints, or the table mappings alone; without it, and with a new target, mappings for a new task are written",
    )
    parser.add_argument("--tables", nargs="+", default=["%.%"], metavar="PATTERN", help="source tables, as in shop.%%")
    parser.add_argument("--source", default="", help="folder or stream that DMS writes to; left out: the target's")
    add_from_files(parser)


def main(options: argparse.Namespace) -> int:
    """Write the files, but overwrite none, and print harmful settings; return `exit_codes.OK`."""
    params = _params()
    if options.from_files:
        return _from_files(options, params)
    mappings = read_mappings(options.task)
    target = _target(options)
    found = _tables_of_source(options, target, params)
    specs, notes = _selected(options, mappings, found)
    mappings, task = _task(options, mappings, specs)
    files = _files(options.env, target, task, _specs(options.env, list(specs.values()), mappings))
    _write(files, params)
    _say(target, mappings, specs, notes)
    _say_what_is_next(options, target, params)
    return exit_codes.OK


def _from_files(options: argparse.Namespace, params: Path) -> int:
    """Write the files of an environment by what DMS's files show."""
    found: FromFiles = from_files(options, params.parent)
    task = json.dumps({"rules": found.rules}, indent=2) if found.rules else ""
    task = options.task.read_text(encoding="utf-8") if options.task else task
    specs = _specs(options.env, list(found.tables.values()), found.mappings)
    specs = {
        name: annotated(text, found.comments[t]) for (name, text), t in zip(specs.items(), found.tables, strict=True)
    }
    _write(_files(options.env, found.target, task, specs, found.remarks), params)
    _say(found.target, found.mappings, found.tables, found.notes)
    print(
        f"every guess is a comment in {params / options.env}.yml and {params / options.env}/*.yml: confirm or correct it"
    )
    print(f"next: frazil plan --env {options.env}")
    return exit_codes.OK


def _files(env: str, target: Target, task: str, specs: dict[str, str], remarks: Sequence[str] = ()) -> dict[str, str]:
    """Return the text of every file of an environment, by its name below `params/`."""
    document = {"$schema": "schema/endpoint.json", **_without_passwords(target.document)}
    return {
        f"{env}.yml": _environment(env, target.source, bool(task), remarks),
        f"{env}.endpoint.json": json.dumps(document, indent=2) + "\n",
        **({f"{env}.mappings.json": task} if task else {}),
        **specs,
    }


def _target(options: argparse.Namespace) -> Target:
    """Read the target's document, or take the settings for a new target, and check them."""
    document = read_json(options.endpoints, "endpoint settings") if options.endpoints else NEW_TARGET
    if stream := stream_address(options.endpoints) if options.endpoints else "":
        return Target(document, {}, options.source or stream)
    settings = read_endpoint_document(options.endpoints) if options.endpoints else NEW_TARGET
    endpoint_from(settings["S3Settings"], settings.get("FrazilSettings", {}), str(options.endpoints))
    return Target(document, settings, options.source or _bucket(settings))


def _tables_of_source(options: argparse.Namespace, target: Target, params: Path) -> dict[str, CatalogTable]:
    """Read the tables that fit the patterns from the source database's catalog."""
    connection = source_connection(_source_of(target.document))
    print("reading the source's catalog by JDBC through Spark: this takes some seconds", file=sys.stderr)
    driver = {PACKAGES: ENGINES[connection.engine][3]}  # only a secret may name the engine
    spark = get_spark(Settings(env=options.env, root=str(params.parent), spark_options=driver))
    return read_catalog(spark, connection, options.tables)


def _selected(
    options: argparse.Namespace, mappings: Mappings, found: dict[str, CatalogTable]
) -> tuple[dict[str, CatalogTable], list[str]]:
    """Return the result of `written` for the tables that the task's rules select; raise if none is left."""
    specs, notes = written({name: t for name, t in found.items() if mappings.selects(_spec(t))}, found)
    if not specs:
        raise SourceDatabaseError(
            f"no table of the source fits {', '.join(options.tables)} and the task's selection rules",
            f"the source has {', '.join(list(found)[:5]) or 'none that this user may see'}",
        )
    return specs, notes


def _task(options: argparse.Namespace, mappings: Mappings, specs: dict[str, CatalogTable]) -> tuple[Mappings, str]:
    """Return the task's mappings and their text; with a new target and no task, those of a new task."""
    text = options.task.read_text(encoding="utf-8") if options.task else ""
    if options.endpoints or text:
        return mappings, text
    rules = _new_task({t.source.split(".")[0] for t in specs.values()})
    return Mappings(tuple(rules)), json.dumps({"rules": rules}, indent=2)


def _write(files: dict[str, str], params: Path) -> None:
    """Write the files and the schemas into the folder, or none of them if one of the files exists already."""
    if there := [name for name in files if (params / name).exists()]:
        all_of_it = ", ".join(dict.fromkeys(str(params / name.partition("/")[0]) for name in there))
        raise ParameterError(
            f"{params / there[0]} exists already", f"give --env another name, or move away: {all_of_it}"
        )
    for name, text in files.items():
        (params / name).parent.mkdir(parents=True, exist_ok=True)
        (params / name).write_text(text, encoding="utf-8")
        print(f"wrote {params / name}")
    schema.write(params)


def _say(target: Target, mappings: Mappings, specs: dict[str, CatalogTable], notes: list[str]) -> None:
    """Print the settings that lose rows or values, the notes, and the tables whose key or policy the user must set."""
    found = lint(target.settings, mappings, [_spec(t) for t in specs.values()]) if target.settings else []
    lines = [f"{f.setting} = {f.value}: {f.effect}; {f.cure}" for f in found if f.severity == LOSS] + notes
    if keyless := [name for name, t in specs.items() if not t.key]:
        lines.append(f"{', '.join(keyless)}: no primary key: set key or without_key in its spec")
    for line in lines:
        print(line, file=sys.stderr)


def _say_what_is_next(options: argparse.Namespace, target: Target, params: Path) -> None:
    """Print what to do with the written files."""
    if not target.settings:
        print(
            f"set the place in the stream at which the load begins: full_load: {{stream_start: …}} in {params / options.env}.yml"
        )
    if not options.endpoints:
        print(f"{params / options.env}.endpoint.json and .mappings.json are for a new target and task of DMS")
    print(f"next: frazil plan --env {options.env}")


def written(
    selected: dict[str, CatalogTable], found: dict[str, CatalogTable]
) -> tuple[dict[str, CatalogTable], list[str]]:
    """Return the selected tables that the task will write, and a line for each table or column that it will not.

    A partitioned table's rows arrive under the names of its partitions.
    """
    notes, left = [], set()
    parts = {n: t for n, t in found.items() if t.part_of and not t.partitioned}
    for name, t in selected.items():
        if not t.partitioned:
            continue
        mine = [p for p in parts if name in _above(p, found)]
        taken = [p for p in mine if p in selected]
        if taken:
            left.add(name)
            notes.append(
                f"{name}: is partitioned and has no spec: its rows arrive under the names of its partitions ({len(taken)})"
            )
        notes += [
            f"{p}: has no spec, as the task does not take this partition of {name}: its changes are not written; add a selection rule"
            for p in mine
            if p not in taken
        ]
    kept = {n: t for n, t in selected.items() if n not in left}
    notes += [
        f"{n}: left out, as generated columns, which the task does not write: {', '.join(c.name for c in t.generated)}"
        for n, t in kept.items()
        if t.generated
    ]
    return kept, notes


def _above(name: str, found: dict[str, CatalogTable]) -> list[str]:
    """Return the names of the tables above a partition, the nearest first."""
    parent = found[name].part_of if name in found else ""
    return [parent, *_above(parent, found)] if parent else []


def _params() -> Path:
    try:
        return find_params()
    except ParameterError:
        (made := Path.cwd() / "params").mkdir()
        return made


def _bucket(document: dict[str, Any]) -> str:
    s3 = document["S3Settings"]
    if not s3.get("BucketName"):
        raise ParameterError("no endpoint names a bucket", "name the folder that DMS writes to by --source")
    return f"s3://{s3['BucketName']}/{s3.get('BucketFolder') or ''}".rstrip("/")


def _new_task(schemas: set[str]) -> list[dict[str, Any]]:
    """Return the rules of a task that makes every change traceable: all tables of some schemas, their order and old keys."""
    kinds: list[dict[str, Any]] = [
        {"rule-type": "selection", "rule-action": "include", "filters": []},
        {"rule-type": "transformation", "rule-target": "column", "rule-action": "add-column", "value": "dms_change_seq",
         "expression": "$AR_H_CHANGE_SEQ", "data-type": {"type": "string", "length": 35}},
        {"rule-type": "transformation", "rule-target": "column", "rule-action": "add-before-image-columns",
         "before-image-def": {"column-prefix": "BI_", "column-filter": "pk-only"}},
    ]  # fmt: skip
    rules = [
        {**kind, "object-locator": {"schema-name": s, "table-name": "%"}} for s in sorted(schemas) for kind in kinds
    ]
    return [{"rule-id": str(i), "rule-name": str(i), **rule} for i, rule in enumerate(rules, 1)]


def _without_passwords(document: Any) -> Any:
    if isinstance(document, dict):
        return {k: _without_passwords(v) for k, v in document.items() if "password" not in k.lower()}
    return [_without_passwords(v) for v in document] if isinstance(document, list) else document


def _source_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return the source endpoint in a document of several endpoints; empty if there is not exactly one."""
    every = document.get("Endpoints") or []
    sources = [e for e in every if str(e.get("EndpointType", "")).lower() == "source"]
    return sources[0] if len(sources) == 1 else {}


def _spec(t: CatalogTable) -> TableSpec:
    return TableSpec(t.source, t.source, t.key, t.columns)


def _environment(env: str, source: str, mappings: bool, remarks: Sequence[str] = ()) -> str:
    place = f"runs/{env}/lake"
    common = {
        "source": source, "endpoint": f"params/{env}.endpoint.json",
        **({"mappings": f"params/{env}.mappings.json"} if mappings else {}), "specs": f"params/{env}", "catalog": "lake",
        "catalog_options": {"type": "jdbc", "uri": f"jdbc:sqlite:{place}/catalog.db", "warehouse": f"{place}/warehouse"},
        "query_engines": ["spark", "duckdb", "pyiceberg"],
    }  # fmt: skip
    text = schema.HEAD.format(place="", document="environment")
    text += "# Where DMS writes, how, and where the lake is. See params/README.md for what else you can set here.\n"
    text += "".join(
        f"# {line}\n" for line in (["The settings of the endpoint, by DMS's files:"] if remarks else []) + list(remarks)
    )
    return text + yaml.safe_dump({"common": common}, sort_keys=False)


def _specs(env: str, tables: list[CatalogTable], mappings: Mappings) -> dict[str, str]:
    """Return the specs' files. The tables' names in the lake follow the task's renaming rules and are unique."""
    files: dict[str, str] = {}
    targets, names = set[str](), set[str]()
    for t in tables:
        spec = _spec(t)
        target = free_name(lake_name(*mappings.target_name(spec)), targets)
        name = free_name(file_name(spec).removesuffix(".yml"), names)
        targets.add(target.lower())
        names.add(name.lower())
        head = schema.HEAD.format(place="../", document="spec")
        files[f"{env}/{name}.yml"] = head + spec_text(replace(spec, target=target, comment=t.comment))
    return files
