"""`frazil init`: write the whole `params/` folder of an environment from its source and the documents of its DMS task."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from frazil.config.connection import SourceDatabaseError, source_connection
from frazil.config.session import get_spark
from frazil.config.settings import ParameterError, Settings, find_params
from frazil.config.spec import Column, TableSpec
from frazil.dms.documents import read_endpoint_document, read_json
from frazil.dms.endpoint import endpoint_from
from frazil.dms.lint import LOSS, lint
from frazil.dms.mappings import Mappings, read_mappings
from frazil.flows.source import SourceTable, read_catalog
from frazil.observe import runs


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--endpoints", type=Path, required=True, help="what `aws dms describe-endpoints` prints: the S3 target, and the source if it is known there")  # fmt: skip
    parser.add_argument("--task", type=Path, help="what `aws dms describe-replication-tasks` prints, or the table mappings alone")  # fmt: skip
    parser.add_argument("--tables", nargs="+", default=["%.%"], metavar="PATTERN", help="source tables, as in shop.%%")
    parser.add_argument("--source", default="", help="folder that DMS writes to; left out: the target's bucket")


def main(options: argparse.Namespace) -> int:
    """Write the files, none over an existing one, and say what the settings will hurt; return `runs.OK`."""
    mappings = read_mappings(options.task)
    document = read_endpoint_document(options.endpoints)
    endpoint_from(document["S3Settings"], document["FrazilSettings"], str(options.endpoints))
    params = _params()
    source = options.source or _bucket(document)
    connection = source_connection(_source_of(options.endpoints))
    spark = get_spark(Settings(env=options.env, root=str(params.parent)))
    found = read_catalog(spark, connection, options.tables)
    specs = {name: t for name, t in found.items() if mappings.selects(_spec(t))}
    if not specs:
        raise SourceDatabaseError(
            f"no table of the source fits {', '.join(options.tables)} and the task's selection rules",
            f"the source has {', '.join(list(found)[:5]) or 'none that this user may see'}",
        )
    files = {
        f"{options.env}.yml": _environment(options.env, source, bool(options.task)),
        f"{options.env}.endpoint.json": options.endpoints.read_text(encoding="utf-8"),
        **({f"{options.env}.mappings.json": options.task.read_text(encoding="utf-8")} if options.task else {}),
        **{f"{options.env}/{_file_name(name)}": _yaml(t, mappings) for name, t in specs.items()},
    }
    if there := [name for name in files if (params / name).exists()]:
        raise ParameterError(f"{params / there[0]} is there already", "give --env another name, or move it away")
    for name, text in files.items():
        (params / name).parent.mkdir(parents=True, exist_ok=True)
        (params / name).write_text(text, encoding="utf-8")
        print(f"wrote {params / name}")
    for f in lint(document, mappings, [_spec(t) for t in specs.values()]):
        if f.severity == LOSS:
            print(f"{f.setting} = {f.value}: {f.hurts}; {f.cure}", file=sys.stderr)
    for name, t in specs.items():
        if not t.key:
            print(f"{name}: no primary key: set key or without_key in its spec", file=sys.stderr)
    print(f"next: frazil plan --env {options.env}")
    return runs.OK


def _params() -> Path:
    try:
        return find_params()
    except ParameterError:
        (made := Path.cwd() / "params").mkdir()
        return made


def _bucket(document: dict[str, Any]) -> str:
    s3 = document["S3Settings"]
    if not s3.get("BucketName"):
        raise ParameterError("the endpoint names no bucket", "say with --source where DMS writes")
    return f"s3://{s3['BucketName']}/{s3.get('BucketFolder') or ''}".rstrip("/")


def _source_of(file: Path) -> dict[str, Any]:
    """Return the source endpoint of a document of several, if there is one."""
    every = read_json(file, "endpoint settings").get("Endpoints") or []
    sources = [e for e in every if str(e.get("EndpointType", "")).lower() == "source"]
    return sources[0] if len(sources) == 1 else {}


def _spec(t: SourceTable) -> TableSpec:
    return TableSpec(t.source, t.source, t.key, t.columns)


def _file_name(source: str) -> str:
    schema, table = source.split(".", 1)
    return re.sub(r"[^\w.-]", "_", f"{table}.yml" if schema in ("public", "dbo") else f"{schema}.{table}.yml")


def _environment(env: str, source: str, mappings: bool) -> str:
    place = f"runs/{env}/lake"
    common = {
        "source": source, "endpoint": f"params/{env}.endpoint.json",
        **({"mappings": f"params/{env}.mappings.json"} if mappings else {}), "specs": f"params/{env}", "catalog": "lake",
        "catalog_options": {"type": "jdbc", "uri": f"jdbc:sqlite:{place}/catalog.db", "warehouse": f"{place}/warehouse"},
        "readers": ["spark", "duckdb", "pyiceberg"],
    }  # fmt: skip
    told = "# Where DMS writes, how, and where the lake is. See README.md for what else may stand here.\n"
    return told + yaml.safe_dump({"common": common}, sort_keys=False)


def _yaml(t: SourceTable, mappings: Mappings) -> str:
    """Return a table's spec; the lake's names are those after the task's renaming rules, as words that SQL takes unquoted."""
    target = ".".join(re.sub(r"\W", "_", part) for part in mappings.target_name(_spec(t)))
    head = {"source": t.source, "target": target, **({"comment": t.comment} if t.comment else {}), "key": list(t.key)}
    return (
        "".join(f"{k}: {_flow(v)}\n" for k, v in head.items())
        + "columns:\n"
        + "".join(f"  - {_flow(_entry(c))}\n" for c in t.columns)
    )


def _entry(c: Column) -> dict[str, Any]:
    more = {"nullable": False} if not c.nullable else {}
    more |= {k: v for k, v in (("utc", c.utc), ("comment", c.comment), ("source_id", c.source_id)) if v}
    return {"name": c.name, "type": c.type, **more}


def _flow(value: Any) -> str:
    """Write a value as YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True).strip().removesuffix("\n...").strip()  # fmt: skip
