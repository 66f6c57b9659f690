"""The plan before a run: per table what will happen, how, and what needs a decision first. Nothing is changed by it."""

from __future__ import annotations

from typing import Any

from frazil.config.spec import TableSpec
from frazil.dms.documents import read_endpoint_document
from frazil.dms.lint import LOSS, lint
from frazil.dms.position import Position, pending_changes
from frazil.dms.read import CHANGE_PHASE, LOAD_PHASE, read_rows
from frazil.errors import FrazilError
from frazil.flows.full_load import verdict
from frazil.flows.workbook import Workbook
from frazil.lake import tables


class DecisionNeededError(FrazilError):
    """A plan with tables that cannot go on until somebody decides."""


def plan(book: Workbook, on_changed_load: str = "refuse") -> list[dict[str, Any]]:
    """Return one row per table; `decision` says what stands in its way, and is empty where nothing does.

    `load` and `changes` are the files that would be taken, `mb` their size. Headers and Parquet schemas of the first and the
    last of them are read, no rows.
    """
    return [_row(book, spec, on_changed_load) for spec in book.specs.values()]


def _row(book: Workbook, spec: TableSpec, on_changed_load: str) -> dict[str, Any]:
    row = {"table": spec.source, "target": book.name(spec), "key": ", ".join(spec.key) or f"none: {spec.policy}"}
    try:
        spec.require_policy()
        return row | _look(book, spec, on_changed_load)
    except FrazilError as e:
        return row | {"action": "stops", "decision": f"{e.problem}; {e.cure}"}


def _look(book: Workbook, spec: TableSpec, on_changed_load: str) -> dict[str, Any]:
    name, exists = book.name(spec), book.exists(spec)
    if exists:
        tables.check_columns(book.spark, name, spec)
    position = tables.read_base(book.spark, name).position if exists else Position()
    there = book.objects(spec)
    pending, action = pending_changes(there, position, spec.source), verdict(there, position, on_changed_load)
    if action == "refuse":
        raise DecisionNeededError(
            f"{spec.source}: the load files are not those that were applied",
            "run 01_full_load with on_changed_load=reload if DMS loaded again, with replay if files came late",
        )
    loads = list(there.loads) if action in ("load", "reload", "replay") else []
    if action == "replay":
        pending = list(there.changes)
    _read_names(book, spec, loads, LOAD_PHASE)
    _read_names(book, spec, pending, CHANGE_PHASE)
    version = tables.format_of(book.spark, name) if exists else book.format_version
    steps = [
        *([] if exists else ["create"]),
        *([action] if action.startswith(("load ", "re")) or loads else []),
        *(["apply changes"] if pending else []),
    ]
    return {
        "action": ", then ".join(steps) or ("nothing new" if there.loads or position.loaded else "wait for the load"),
        "lane": {"append": "append", "multiset": "multiset"}.get(spec.policy, "merge"), "format": version,
        "deletes": "none" if spec.policy == "append" else "deletion vectors" if version > 2 else "position deletes",
        "load": len(loads), "changes": len(pending), "mb": round(sum(o.size for o in (*loads, *pending)) / 1e6, 3),
        "impossible": _impossible(book, spec), "decision": "",
    }  # fmt: skip


def _read_names(book: Workbook, spec: TableSpec, files: list, phase: int) -> None:
    """Let the reader refuse, as it will in the run, files whose own column names are not the spec's. No row is read."""
    if files:
        ends = files if len(files) < 3 else [files[0], files[-1]]
        read_rows(book.spark, spec, book.endpoint, book.mappings, ends, phase)


def _impossible(book: Workbook, spec: TableSpec) -> str:
    """Say what can never be right with the settings of endpoint and task, however the files are read."""
    found = lint(read_endpoint_document(book.settings.path("endpoint")), book.mappings, [spec])
    told = [f"{f.setting} = {f.value}: {f.hurts}" for f in found if f.severity == LOSS]
    image = book.mappings.before_image(spec)
    if spec.policy == "multiset" and (image is None or image.columns != "all"):
        told.append("no before-image columns with column-filter 'all': updates stop the table")
    return "; ".join(dict.fromkeys(told))


def require_no_decision(rows: list[dict[str, Any]]) -> None:
    """Raise DecisionNeededError that names every table that needs a decision; do nothing if none does."""
    if open_ones := [f"{r['table']}: {r['decision']}" for r in rows if r["decision"]]:
        raise DecisionNeededError(
            f"{len(open_ones)} of {len(rows)} tables need a decision\n" + "\n".join(open_ones),
            "decide, then plan again",
        )
