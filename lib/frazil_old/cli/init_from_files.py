"""What `frazil init --from-files` writes: settings, specs and rules by the files alone, each with what it rests on."""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from frazil_old.cli.peek import unsure
from frazil_old.config.settings import ParameterError
from frazil_old.config.source_database import ENGINES, SourceDatabaseError
from frazil_old.config.spec import SpecError, TableSpec, parse_spec, spec_text
from frazil_old.dms.aws_json import read_endpoint_document, read_json
from frazil_old.dms.files_against_settings import refuse
from frazil_old.dms.found_files import find
from frazil_old.dms.guesses import KEYS, NULLS, NUMBERS, UNSAFE, Guess, GuessedTable, Guesses, guess
from frazil_old.dms.mappings import Mappings, read_mappings
from frazil_old.dms.source_errors import EndpointError
from frazil_old.errors import safe
from frazil_old.flows.source_catalog import CatalogTable, dms_type


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--from-files", metavar="PATH", help="guess everything from DMS's files: a folder or s3://…")
    parser.add_argument(
        "--take",
        action="extend",
        nargs="+",
        choices=UNSAFE,
        default=[],
        help="with --from-files: guesses to take though they are not proven: a wrong key overwrites rows, a wrong number "
        "loses leading zeros, a wrong null loses texts",
    )
    parser.add_argument("--null", metavar="TOKEN", help="with --from-files: how CSV files write a null (CsvNullValue)")
    parser.add_argument(
        "--columns",
        type=Path,
        help="with --from-files: CSV with schema, table, column, type, key, as the source's catalog has them",
    )
    parser.add_argument("--engine", choices=[*ENGINES], help="the engine of these types")


@dataclass(frozen=True)
class Target:
    """The DMS target whose output an environment reads."""

    document: dict[str, Any]
    """What the endpoint's document says."""
    settings: dict[str, Any]
    """The settings that can be judged; empty for a stream."""
    source: str
    """The folder or stream that DMS writes to."""


@dataclass
class FromFiles:
    """What the files show, as `init` writes it; `remarks` concern the environment as a whole, `notes` are for the user."""

    target: Target
    mappings: Mappings
    rules: list[dict[str, Any]]
    tables: dict[str, CatalogTable] = field(default_factory=dict)
    comments: dict[str, list[str]] = field(default_factory=dict)
    """By table: the comment of its key, then of each column."""
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def from_files(options: argparse.Namespace, root: Path) -> FromFiles:
    """Look at the files and decide what to write; `root` is the folder above `params/`."""
    found = find(options.from_files)
    stated = read_endpoint_document(options.endpoints) if options.endpoints else None
    guessed = guess(found, stated, read_mappings(options.task) if options.task else None)
    if not any(t.columns for t in guessed.tables.values()):
        raise ParameterError(
            f"{found.root} has no files of DMS that can be read", f"frazil peek {found.root} says more"
        )
    if options.columns:
        _take_native_types(guessed, options)
    settings = stated or {"S3Settings": _settings(guessed, options)}
    source = Path(found.root).relative_to(root) if Path(found.root).is_relative_to(root) else found.root
    document = read_json(options.endpoints, "endpoint settings") if options.endpoints else settings
    mappings = read_mappings(options.task) if options.task else Mappings(tuple(guessed.rules))
    target = Target(document, settings, options.source or str(source))
    done = FromFiles(target, mappings, [] if options.task else guessed.rules)
    done.remarks = [] if stated else _remarks(guessed, settings["S3Settings"], options)
    done.notes = [*found.remarks, *(p for t in guessed.tables.values() for p in t.problems)]
    done.notes += [
        f"guess not taken: {text}" for name, text in unsure(guessed).items() if name not in (*options.take, NULLS)
    ]
    for table in guessed.tables.values():
        _add(done, table, options.take)
    return done


def _settings(guessed: Guesses, options: argparse.Namespace) -> dict[str, Any]:
    """Return the guessed settings of the S3 target; raise if the files do not prove the null token and nobody names it."""
    settings = dict(guessed.settings)
    if "CsvNullValue" not in settings:
        return settings
    if options.null is not None and guessed.null not in (None, options.null):
        raise EndpointError(f"--null is {options.null!r}, but {guessed.null_why}", "leave --null out")
    known = [options.null, guessed.null, guessed.proposed_null if NULLS in options.take else None]
    token = next((t for t in known if t is not None), None)
    if token is None:
        likely = f"likely --null '{guessed.proposed_null}': " if guessed.proposed_null is not None else ""
        raise EndpointError(
            f"the files do not prove how a null is written: {likely}{guessed.null_why}",
            "give --null the task's CsvNullValue (DMS's default is NULL)",
        )
    return settings | {"CsvNullValue": token}


def _remarks(guessed: Guesses, settings: dict[str, Any], options: argparse.Namespace) -> list[str]:
    """Return one line for each setting: what proves it, or that it is a guess."""
    try:
        refuse(guessed.shown)
        lines = []
    except EndpointError as e:
        lines = [f"contradicted: {e.problem}"]
    for name, value in settings.items():
        shown = [e for e in guessed.shown if e.setting == name]
        proof = next((e.evidence for e in shown if e.certain), None)
        why = proof or next((e.evidence for e in shown), "no file shows it")
        if name == "CsvNullValue" and not proof:
            why = "given by --null" if options.null is not None else guessed.null_why
        lines.append(f"{'proven' if proof else 'guess'}: {name} {value!r}: {why}")
    return [safe(line) for line in lines]


def _add(done: FromFiles, table: GuessedTable, take: list[str]) -> None:
    """Add a table, unless no spec of it is valid."""
    if not table.columns:
        done.notes.append(f"{table.source}: no file of it can be read, so it has no spec")
        return
    spec = table.spec(NUMBERS in take, KEYS in take)
    try:
        parse_spec(yaml.safe_load(spec_text(spec)))
    except SpecError as e:
        done.notes.append(f"{table.source}: has no spec: {e.problem}; {e.cure}")
        return
    done.tables[table.source] = CatalogTable(spec.source, spec.key, spec.columns)
    done.comments[table.source] = [_about_key(table, spec), *(_about(g, NUMBERS in take) for g in table.columns)]


def _about_key(table: GuessedTable, spec: TableSpec) -> str:
    if not table.key:
        return "guess: no columns are unique in the first rows: name the key, or declare without_key"
    if table.key_is_proven:
        return f"proven: {table.key_why}"
    taken = (
        "" if spec.key else f"{', '.join(table.key)} is likely, and not taken, as a wrong key would overwrite rows: "
    )
    return f"guess: {taken}{table.key_why}"


def _about(g: Guess, numbers: bool) -> str:
    if g.certain:
        return g.why
    if g.likely and not numbers:
        return f"guess: {g.why}; not taken: as {g.likely} a text would lose leading zeros"
    return f"guess: {g.why}"


def annotated(text: str, comments: list[str]) -> str:
    """Return a spec's YAML with a comment at its key and at each column."""
    rest, lines = iter(comments[1:]), []
    for line in text.splitlines():
        comment = comments[0] if line.startswith(("key:", "without_key:")) else ""
        comment = next(rest) if line.startswith("  - ") else comment
        lines.append(f"{line}  # {safe(comment)}" if comment else line)
    return "\n".join(lines) + "\n"


def _take_native_types(guessed: Guesses, options: argparse.Namespace) -> None:
    """Replace guesses by the types and keys of the source's catalog, for tables whose columns agree with it."""
    if not options.engine:
        raise ParameterError("--columns needs --engine", "name the engine whose types the file has: --engine mysql")
    native: dict[str, list[dict[str, str]]] = {}
    with options.columns.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            row = {str(k).strip().lower(): (v or "").strip() for k, v in row.items() if k}
            if lacks := {"schema", "table", "column", "type"} - row.keys():
                raise ParameterError(
                    f"{options.columns}: no column {', '.join(sorted(lacks))}",
                    "begin with: schema,table,column,type,key",
                )
            native.setdefault(f"{row['schema']}.{row['table']}", []).append(row)
    for name, table in guessed.tables.items():
        rows = native.get(name, [])
        same = [r["column"] for r in rows] == [g.name for g in table.columns]
        if same or (rows and len(rows) == len(table.columns) and not table.columns[0].is_named):
            table.columns = tuple(_native(g, r, options.engine) for g, r in zip(table.columns, rows, strict=True))
            keyed = sorted((r for r in rows if r.get("key")), key=lambda r: int(r["key"]))
            table.key, table.key_is_proven = tuple(r["column"] for r in keyed), bool(keyed)
            table.key_why = f"{options.columns.name} says so"
        elif rows:
            table.problems.append(f"{name}: its columns are not those of {options.columns}: they stay guesses")


def _native(g: Guess, row: dict[str, str], engine: str) -> Guess:
    try:
        kind, utc = dms_type(engine, row["type"])
    except SourceDatabaseError as e:
        return replace(g, name=row["column"], type="WSTRING", likely="", why=f"{e.problem}: a text loses nothing")
    return replace(g, name=row["column"], type=kind, utc=utc, likely="", certain=True, why=f"{engine}: {row['type']}")
