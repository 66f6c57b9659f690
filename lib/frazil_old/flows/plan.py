"""The plan before a run: what will happen to each table, how, and what needs a decision first. Nothing is changed."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from statistics import mean
from typing import Any

from frazil_old.config.settings import CdcMergeSettings
from frazil_old.config.spec import TableSpec
from frazil_old.dms.applied_files import AppliedFiles
from frazil_old.dms.aws_json import read_endpoint_document, stream_settings
from frazil_old.dms.changed_load import require_replayable, require_same_load
from frazil_old.dms.file_columns import first_and_last, found_alike, shapes
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil_old.dms.listing import DmsObject, TableObjects
from frazil_old.dms.load_gate import load_gate
from frazil_old.dms.pending_changes import AppliedState, with_known_loads
from frazil_old.dms.position import Position
from frazil_old.dms.settings_lint import LOSS, left_out, lint, unknown_settings
from frazil_old.errors import FrazilError
from frazil_old.flows import pending_work, quarantine_counts, stream_position
from frazil_old.flows.file_batch import megabytes, size_of, to_write, within_limits
from frazil_old.flows.follow_source import follow_source
from frazil_old.flows.full_load import load_waits, require_one_age, verdict
from frazil_old.flows.schema_changes import FromStream, shape
from frazil_old.flows.stream_read import WAITS
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import jvm, tables
from frazil_old.lake.lane_choice import BatchToWrite, Costs
from frazil_old.lake.storage_errors import require_metadata
from frazil_old.lake.table_pause import PausedError
from frazil_old.lake.tables import TableState

log = logging.getLogger("frazil")


class DecisionNeededError(FrazilError):
    """A plan with tables that cannot proceed until somebody decides."""


Samples = dict[str, list[tuple[str, float, float]]]
"""By table its newest commits: `load` or `changes`, the size of their files in MB, and the seconds they took."""


def plan(book: Workbook, on_changed_load: str = "", loads: Workbook | None = None) -> list[dict[str, Any]]:
    """Return one row per table; `decision` is what blocks it, and is empty where nothing does.

    `notes` names unknown settings and columns that the lake does not get. `loads` is the workbook of 01_full_load where
    `book` is that of 02_cdc_merge: each plans its part by its own settings.

    `load` and `changes` are the files that the next runs take. `batches` is the number of commits of changes, and
    `left` the files after these. `mb` is their size. `about_s` is an estimate from the tables' commits (None: unknown).
    `quarantined` is the number of rows in the quarantine.

    The headers and Parquet schemas of each batch's first and last file are read. Rows are read of packed files alone: the
    unpacked size of the largest batch decides its lane. If 02_cdc_merge has nothing pending, Spark is not started. For a
    stream, `changes` is the number of messages of any table after the position (None for Kinesis, which does not say).
    None is read.
    """
    books = [loads, book] if loads else [book]
    for one in books:
        follow_source(one)
    policy = on_changed_load or getattr(books[0].settings, "on_changed_load", "refuse")
    changes_only = loads is None and isinstance(book.settings, CdcMergeSettings)
    still = pending_work.nothing_pending(book) if changes_only and not on_changed_load else None
    samples = {} if still else _samples(book)
    names = dict.fromkeys(name for one in books for name in one.specs)
    rows = [_row(books, name, policy, samples, still or {}) for name in names]
    return _with_waiting(book, rows if still else _with_gate(books[0], rows))


def _with_gate(loads: Workbook, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with what `load_complete_when` lets wait; DMS is asked only if there is something to load."""
    loading = [row for row in rows if row.get("load") or "load nothing" in row["action"]]
    if not loading or loads.stream:
        return rows
    try:
        gate = load_gate(loads.settings)
    except FrazilError as e:
        for row in loading:
            row |= {"action": "stops", "decision": f"{e.problem}; {e.cure}"}
        return rows
    for row in loading:
        if waits := load_waits(gate, row["table"], row["load"] > 0):
            row |= _noted(row, waits)
            row["action"] = "create, then wait for DMS" if row["action"].startswith("create") else "wait for DMS"
    return rows


def _with_waiting(book: Workbook, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    waiting, does = quarantine_counts.waiting(book), getattr(book.settings, "quarantine", "show")
    rows = [{**row, "quarantined": None if waiting is None else waiting.get(row["table"], 0)} for row in rows]
    for row in rows:
        if row["quarantined"] and does != "show" and not row["decision"] and row["action"] != "paused":
            then = "" if row["action"] == "nothing new" else f", then {row['action']}"
            row["action"] = f"{does} the quarantine{then}"
    return rows


def _row(
    books: list[Workbook], name: str, policy: str, samples: Samples, still: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    book = next(b for b in reversed(books) if name in b.specs)
    spec = book.specs[name]
    row = {
        "table": spec.source, "target": book.name(spec), "key": ", ".join(spec.key) or f"none: {spec.policy}",
        "order": _order(book, spec), "notes": _notes(book, spec),
    }  # fmt: skip
    try:
        for one in (b for b in books if name in b.specs):
            one.require_way(one.specs[name])
        require_metadata(book.settings, spec.target, depth=1)
        if idle := still.get(spec.source):
            return _noted(row, idle.get("note", "")) | {
                "action": "paused" if "note" in idle else "nothing new", "load": 0, "changes": 0, "batches": 0, "left": 0, "mb": 0.0, "about_s": 0.0,
                "position": idle["position"], "schema": "", "impossible": _impossible(book, spec, False), "decision": "",
            }  # fmt: skip
        return row | _look(books, book, name, policy, samples)
    except PausedError as e:
        return _noted(row, e.note) | {"action": "paused", "decision": ""}
    except FrazilError as e:
        return row | {"action": "stops", "decision": f"{e.problem}; {e.cure}"}
    except Exception as e:
        log.error("%s cannot be planned", spec.source, exc_info=True)
        return row | {"action": "stops", "decision": book.why(spec, e).replace("\n  cure: ", "; ")}


def _noted(row: dict[str, Any], note: str) -> dict[str, Any]:
    return row | {"notes": "; ".join(filter(None, (row["notes"], note)))}


def _samples(book: Workbook, newest: int = 30) -> Samples:
    found: Samples = {}
    for spec in book.specs.values():
        rows, table = found.setdefault(spec.source, []), None
        with suppress(Exception):  # the table's own row says why it cannot be read
            require_metadata(book.settings, spec.target, depth=1)
            table = jvm.load_table(book.spark, book.name(spec)) if book.exists(spec) else None
        for snapshot in islice(jvm.ancestors(table), newest) if table else ():
            facts = {k: json.loads(snapshot.summary().get(f"frazil.{k}") or "{}") for k in ("counts", "latency")}
            began = facts["latency"].get("picked_up") or facts["counts"].get("began")
            kind = snapshot.summary().get("frazil.kind")
            if began and kind in ("load", "changes"):
                size = megabytes(facts["counts"])
                rows.append((kind, size, (snapshot.timestampMillis() - began) / 1000))
    return found


def _about_s(samples: Samples, table: str, kind: str, mb: float, batches: int) -> float | None:
    """Estimate the seconds: a batch takes as long as the table's last ones, or longer if it is larger.

    Without these, all tables' commits count. Below a megabyte the fixed cost of a commit decides, not the size. Whole
    commits of earlier runs count here, by whichever lane; `lane_choice` compares lanes, also before the first commit.
    """
    own = [s for s in samples.get(table, ()) if s[0] == kind]
    known = own or [s for rows in samples.values() for s in rows if s[0] == kind]
    if not known or not batches:
        return None if batches else 0.0
    largest = max(1.0, *(s[1] for s in known))
    return batches * mean(s[2] for s in known) * max(1.0, mb / batches / largest)


def _look(books: list[Workbook], book: Workbook, table: str, on_changed_load: str, samples: Samples) -> dict[str, Any]:
    spec, loads = book.specs[table], books[0]
    name = book.name(spec)
    base = tables.read_table_state(book.spark, name) if book.exists(spec) else None
    if base:
        base.require_not_paused(table)
    position = base.position if base else Position()
    if book.stream:
        return _look_at_stream(books, book, spec, base, samples)
    stored, record = (base.stored, base.record) if base else ("", AppliedFiles())
    state = AppliedState(name, spec.source, position, stored, record)
    there, _ = with_known_loads(book.objects(spec), state)
    action = verdict(there, position, on_changed_load)
    if action == "refuse":
        require_same_load(there, position, tables.load_of(book.spark, name), spec.source)
    if table not in loads.specs and action != "loaded":
        action = "loaded" if position.loaded and not position.awaits_load else "not taken by 01_full_load"
    files = list(there.loads) if action in ("load", "reload", "replay") else []
    if action == "replay":
        require_replayable(there, position, tables.load_of(book.spark, name), book.source_table(spec), record)
    pending = list(there.changes) if action == "replay" else book.require_applicable(spec, state, there).pending
    if action in ("load", "reload"):
        require_one_age(loads, spec, there, base)
    pending = pending if table in books[-1].specs else []
    book.check_files(spec, replace(there, loads=tuple(files), changes=tuple(pending)))
    steps = shape(loads, loads.specs.get(table, spec), base, first_and_last(files), LOAD_PHASE).steps
    steps = shape(book, spec, base, first_and_last(pending), CHANGE_PHASE).steps or steps
    batches = _batches(book, spec, pending)
    taken = [o for batch in batches for o in batch]
    load_mb, changes_mb = (sum(o.size for o in some) / 1e6 for some in (files, taken))
    seconds = [
        _about_s(samples, spec.source, "load", load_mb, 1 if files else 0),
        _about_s(samples, spec.source, "changes", changes_mb, len(batches)),
    ]
    doing = [
        *([] if base else ["create"]),
        *([action] if action.startswith(("load ", "re", "not ")) or files else []),
        *(["apply changes"] if pending else []),
    ]
    if len(books) == 1 and isinstance(book.settings, CdcMergeSettings):
        doing = _changes_only(there, base, pending) or doing
    largest = max(batches, key=lambda batch: sum(o.size for o in batch), default=())
    batch = to_write(book, spec, size_of(largest), largest)
    return _found(book, spec, base, ", then ".join(doing) or "nothing new", batch) | {
        "load": len(files), "changes": len(taken), "batches": len(batches), "left": len(pending) - len(taken),
        "mb": round(load_mb + changes_mb, 3), "about_s": None if None in seconds else round(sum(seconds), 1),
        "schema": ", ".join(map(str, steps)), "impossible": _impossible(book, spec, base is not None, pending[-1:]),
    }  # fmt: skip


def _look_at_stream(
    books: list[Workbook], book: Workbook, spec: TableSpec, base: TableState | None, samples: Samples
) -> dict[str, Any]:
    position = base.position if base else Position()
    book.topic(spec)  # raises where the mappings name a topic that is not read
    if position.loaded:
        stream_position.begin_of(book, spec, position, book.stream.retention())
    waiting = stream_position.pending(book, book.stream.ends(), position)
    doing = [] if base else ["create"]
    if position.loaded:
        doing.append({None: "read on", 0: "nothing new"}.get(waiting, "apply changes"))
    else:
        alone = len(books) == 1 and isinstance(book.settings, CdcMergeSettings)
        doing.append(f"waiting until {WAITS}" if alone else "load once that is complete")
    s = book.settings if isinstance(book.settings, CdcMergeSettings) else CdcMergeSettings()
    batches = math.ceil((waiting or 0) / s.max_batch_messages)
    left = 0
    if s.max_batches and batches > s.max_batches:
        batches, left = s.max_batches, waiting - s.max_batches * s.max_batch_messages
        waiting -= left
    mb = megabytes({"messages": waiting or 0})
    seconds = _about_s(samples, spec.source, "changes", mb, batches) if waiting is not None else None
    batch = to_write(book, spec, {"messages": (waiting or 0) // max(1, batches)})
    return _found(book, spec, base, ", then ".join(doing), batch) | {
        "load": 0, "changes": waiting, "batches": batches, "left": left, "mb": round(mb, 3), "about_s": None if seconds is None else round(seconds, 1),
        "schema": ", ".join(map(str, shape(book, spec, base, FromStream(), CHANGE_PHASE).steps)),
        "impossible": _impossible(book, spec, base is not None),
    }  # fmt: skip


def _changes_only(there: TableObjects, base: TableState | None, pending: list[DmsObject]) -> list[str]:
    """Return what 02_cdc_merge waits for; empty if nothing."""
    if not base:
        return ["waiting until the table is created and loaded: run 00_setup and 01_full_load"]
    if not base.position.loaded or (base.position.awaits_load and there.loads and not pending):
        return [f"waiting until {WAITS}"]
    return []


def _batches(book: Workbook, spec: TableSpec, pending: list[DmsObject]) -> list[list[DmsObject]]:
    """Return the batches that the next run of 02_cdc_merge makes of pending files.

    They are more if columns change and change back within one batch, which only the headers of all files would show.
    """
    most, batches, at = getattr(book.settings, "max_batches", 0), [], 0
    while at < len(pending) and not (most and len(batches) == most):
        batches.append(found_alike(book.source_table(spec), within_limits(book, spec, pending, at)))
        at += len(batches[-1])
    return batches


def _order(book: Workbook, spec: TableSpec) -> str:
    """Return what orders changes, and what else confirms that order."""
    if book.stream:
        return "partition, then place in it"
    witness = book.mappings.sequence_column(spec)
    return "file name, then row" + (f"; {witness} is compared" if witness and spec.key else "")


def _found(
    book: Workbook, spec: TableSpec, base: TableState | None, action: str, batch: BatchToWrite
) -> dict[str, Any]:
    """Return what is done with a table, from which position, and how it is written: lane, format version, deletes."""
    name = book.name(spec)
    version = tables.format_of(book.spark, name) if base else book.format_version
    if not base:
        book.lanes.costs.setdefault(name, Costs())
    lane, why = book.lanes.expect(name, spec, batch, base)
    return {
        "action": action, "lane": spec.policy if spec.policy != "key" else lane if lane == "merge" else f"{lane}: {why}", "format": version,
        "deletes": "none" if spec.policy == "append" else "deletion vectors" if version > 2 else "position deletes",
        "position": base.position.place if base else Position().place, "decision": "",
    }  # fmt: skip


def _notes(book: Workbook, spec: TableSpec) -> str:
    """Name the columns added by DMS that the lake leaves out, and the unknown settings of the endpoint."""
    path = book.settings.path("endpoint")
    unknown = stream_settings(path)[1] if book.stream else read_endpoint_document(path)["UnknownSettings"]
    found = [*left_out(book.mappings, [spec]), *unknown_settings(unknown)]
    return "; ".join(f.effect if f.setting == "add-column" else f"{f.setting}: {f.effect}" for f in found)


def _impossible(book: Workbook, spec: TableSpec, exists: bool, newest: Sequence[DmsObject] = ()) -> str:
    """Return what can never be right.

    It checks the settings of endpoint and task, the table if it `exists`, and the newest file.
    """
    checks = (tables.unread_partitions, tables.unread_format) if exists else ()
    unread = "; ".join(filter(None, (check(book.spark, book.name(spec), book.query_engines) for check in checks)))
    if book.stream:
        return "; ".join(filter(None, [*(f["says"] for f in stream_position.findings(book)), unread]))
    found = lint(read_endpoint_document(book.settings.path("endpoint")), book.mappings, [spec])
    wrong = [f"{f.setting} = {f.value}: {f.effect}" for f in found if f.severity == LOSS] + [unread] * bool(unread)
    image = book.mappings.before_image(spec)
    if spec.policy == "multiset" and (image is None or image.columns != "all"):
        wrong.append("no before-image columns with column-filter 'all': updates stop the table")
    for one in shapes(book.source_table(spec), newest, CHANGE_PHASE) if image and spec.key else ():
        if one.carries is not None and (blind := [k for k in spec.key if k not in one.before]) and not spec.layouts:
            wrong.append(
                f"no old value of {', '.join(blind)} in {one.where}, though the rule add-before-image-columns covers it: an update "
                "that changes it leaves the old row (pk-only is the source's primary key, and column-filter all every column)"
            )
    return "; ".join(dict.fromkeys(wrong))


def require_no_decision(rows: list[dict[str, Any]]) -> None:
    """Raise DecisionNeededError that names every table that needs a decision; do nothing if none does."""
    if open_ones := [f"{r['table']}: {r['decision']}" for r in rows if r["decision"]]:
        raise DecisionNeededError(
            f"{len(open_ones)} of {len(rows)} tables need a decision", "decide, then plan again", open_ones
        )
