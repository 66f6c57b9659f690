"""The plan before a run: per table what will happen, how, and what needs a decision first. Nothing is changed by it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from statistics import mean
from typing import Any

from frazil.config.settings import CdcMergeSettings
from frazil.config.spec import TableSpec
from frazil.dms.documents import read_endpoint_document
from frazil.dms.lint import LOSS, lint
from frazil.dms.objects import DmsObject
from frazil.dms.position import Position, pending_changes, require_replayable, require_same_load
from frazil.dms.read import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.shapes import shapes
from frazil.errors import FrazilError
from frazil.flows import stream_look, watch
from frazil.flows.batch import Batch
from frazil.flows.full_load import verdict
from frazil.flows.shape import FromStream, shape
from frazil.flows.source import follow_source
from frazil.flows.stream_read import WAITS
from frazil.flows.workbook import Workbook
from frazil.lake import jvm, tables
from frazil.pipeline.lake_trouble import explained, require_readable


class DecisionNeededError(FrazilError):
    """A plan with tables that cannot go on until somebody decides."""


Samples = dict[str, list[tuple[str, float, float]]]
"""By table its newest commits: `load` or `changes`, the size of their files in MB, and the seconds they took."""


def plan(book: Workbook, on_changed_load: str = "") -> list[dict[str, Any]]:
    """Return one row per table; `decision` says what stands in its way, and is empty where nothing does.

    `load` and `changes` are the files that would be taken, `mb` their size, `about_s` an estimate from the commits that the
    tables' snapshots tell of (None: none tells), `quarantined` the rows that wait in the quarantine. Headers and Parquet
    schemas of the first and the last file are read, no rows. Where 02_cdc_merge has nothing pending, Spark is not started.
    Of a stream, `changes` are the messages of any table behind the position (None: Kinesis does not tell); none is read.
    """
    follow_source(book)
    s, policy = book.settings, on_changed_load or getattr(book.settings, "on_changed_load", "refuse")
    still = watch.nothing_pending(book) if isinstance(s, CdcMergeSettings) and not on_changed_load else None
    samples = {} if still else _samples(book)
    return _with_waiting(book, [_row(book, spec, policy, samples, still or {}) for spec in book.specs.values()])


def _with_waiting(book: Workbook, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    waiting = watch.waiting(book)
    return [{**row, "quarantined": None if waiting is None else waiting.get(row["table"], 0)} for row in rows]


def _row(
    book: Workbook, spec: TableSpec, policy: str, samples: Samples, still: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    row = {
        "table": spec.source, "target": book.name(spec), "key": ", ".join(spec.key) or f"none: {spec.policy}",
        "order": _order(book, spec),
    }  # fmt: skip
    try:
        book.require_way(spec)
        require_readable(book.settings, spec.target, depth=1)
        if idle := still.get(spec.source):
            nothing = {"load": 0, "changes": 0, "mb": 0.0, "about_s": 0.0, "position": idle["position"], "schema": ""}
            return row | {"action": "nothing new", **nothing, "impossible": _impossible(book, spec), "decision": ""}
        return row | (_look_at_stream if book.stream else _look)(book, spec, policy, samples)
    except FrazilError as e:
        return row | {"action": "stops", "decision": f"{e.problem}; {e.cure}"}
    except Exception as e:
        if (trouble := explained(e, book.settings, spec.target)) is None:
            raise
        return row | {"action": "stops", "decision": f"{trouble.problem}; {trouble.cure}"}


def _samples(book: Workbook, newest: int = 30) -> Samples:
    found: Samples = {}
    for spec in book.specs.values():
        rows, table = found.setdefault(spec.source, []), None
        with suppress(Exception):  # the table's own row says why it cannot be read
            require_readable(book.settings, spec.target, depth=1)
            table = jvm.load_table(book.spark, book.name(spec)) if book.exists(spec) else None
        for snapshot in islice(jvm.ancestors(table), newest) if table else ():
            told = {k: json.loads(snapshot.summary().get(f"frazil.{k}") or "{}") for k in ("counts", "latency")}
            began = told["latency"].get("picked_up") or told["counts"].get("began")
            kind = snapshot.summary().get("frazil.kind")
            if began and kind in ("load", "changes"):
                size = Batch.size_mb(told["counts"])
                rows.append((kind, size, (snapshot.timestampMillis() - began) / 1000))
    return found


def _about_s(samples: Samples, table: str, kind: str, mb: float, batches: int) -> float | None:
    """Estimate the seconds: each batch as long as the table's last ones (else all tables'), or longer where it is larger.

    Below a megabyte what a commit costs anyway decides, not the size.
    """
    own = [s for s in samples.get(table, ()) if s[0] == kind]
    known = own or [s for rows in samples.values() for s in rows if s[0] == kind]
    if not known or not batches:
        return None if batches else 0.0
    largest = max(1.0, *(s[1] for s in known))
    return batches * mean(s[2] for s in known) * max(1.0, mb / batches / largest)


def _look(book: Workbook, spec: TableSpec, on_changed_load: str, samples: Samples) -> dict[str, Any]:
    name, exists = book.name(spec), book.exists(spec)
    base = tables.read_base(book.spark, name) if exists else None
    position = base.position if base else Position()
    there = book.objects(spec)
    action = verdict(there, position, on_changed_load)
    if action == "refuse":
        require_same_load(there, position, tables.load_of(book.spark, name), spec.source)
    loads = list(there.loads) if action in ("load", "reload", "replay") else []
    if action == "replay":
        require_replayable(there, position, spec.source)
    pending = list(there.changes) if action == "replay" else pending_changes(there, position, spec.source)
    book.check_files(spec, replace(there, loads=tuple(loads), changes=tuple(pending)))
    steps = shape(book, spec, base, _ends(loads), LOAD_PHASE).steps
    steps = shape(book, spec, base, _ends(pending), CHANGE_PHASE).steps or steps
    load_mb, changes_mb = (sum(o.size for o in files) / 1e6 for files in (loads, pending))
    most = getattr(book.settings, "max_batch_mb", CdcMergeSettings.max_batch_mb)
    seconds = [
        _about_s(samples, spec.source, "load", load_mb, 1 if loads else 0),
        _about_s(samples, spec.source, "changes", changes_mb, math.ceil(changes_mb * 1e6 / (most << 20))),
    ]
    doing = [
        *([] if exists else ["create"]),
        *([action] if action.startswith(("load ", "re")) or loads else []),
        *(["apply changes"] if pending else []),
    ]
    return {
        "action": ", then ".join(doing) or ("nothing new" if there.loads or position.loaded else "wait for the load"),
        **_how(book, spec, exists, min(changes_mb, most) if pending else 0),
        "load": len(loads), "changes": len(pending), "mb": round(load_mb + changes_mb, 3),
        "about_s": None if None in seconds else round(sum(seconds), 1), "position": position.place,
        "schema": ", ".join(map(str, steps)),
        "impossible": _impossible(book, spec, pending[-1:]), "decision": "",
    }  # fmt: skip


def _look_at_stream(book: Workbook, spec: TableSpec, on_changed_load: str, samples: Samples) -> dict[str, Any]:
    name, exists = book.name(spec), book.exists(spec)
    base = tables.read_base(book.spark, name) if exists else None
    position = base.position if base else Position()
    book.topic(spec)  # raises where the mappings name one that is not read
    if position.loaded:
        stream_look.begin_of(book, spec, position, book.stream.kept())
    behind = stream_look.pending(book, book.stream.ends(), position)
    doing = [] if exists else ["create"]
    if position.loaded:
        doing.append({None: "read on", 0: "nothing new"}.get(behind, "apply changes"))
    else:
        doing.append(
            f"held until {WAITS}" if isinstance(book.settings, CdcMergeSettings) else "load once that is whole"
        )
    mb = Batch.size_mb({"messages": behind or 0})
    batches = math.ceil(
        (behind or 0) / (getattr(book.settings, "max_batch_messages", 0) or CdcMergeSettings.max_batch_messages)
    )
    seconds = _about_s(samples, spec.source, "changes", mb, batches) if behind is not None else None
    return {
        "action": ", then ".join(doing), **_how(book, spec, exists, mb / max(1, batches)),
        "load": 0, "changes": behind, "mb": round(mb, 3), "about_s": None if seconds is None else round(seconds, 1),
        "position": position.place,
        "schema": ", ".join(map(str, shape(book, spec, base, FromStream(), CHANGE_PHASE).steps)),
        "impossible": _impossible(book, spec), "decision": "",
    }  # fmt: skip


def _order(book: Workbook, spec: TableSpec) -> str:
    """Say what orders changes, and what else bears witness of it."""
    if book.stream:
        return "partition, then place in it"
    witness = book.mappings.sequence_column(spec)
    return "file name, then row" + (f"; {witness} is compared" if witness and spec.key else "")


def _how(book: Workbook, spec: TableSpec, exists: bool, batch_mb: float) -> dict[str, Any]:
    """Say in which way a table will be written: lane, format version, and what its deletes are."""
    version = tables.format_of(book.spark, book.name(spec)) if exists else book.format_version
    lane, why = book.lanes.expect(book.name(spec), spec, batch_mb) if exists else ("merge", "")
    return {
        "lane": spec.policy if spec.policy != "key" else lane if lane == "merge" else f"{lane}: {why}", "format": version,
        "deletes": "none" if spec.policy == "append" else "deletion vectors" if version > 2 else "position deletes",
    }  # fmt: skip


def _ends(files: list[DmsObject]) -> list[DmsObject]:
    return files if len(files) < 3 else [files[0], files[-1]]


def _impossible(book: Workbook, spec: TableSpec, newest: Sequence[DmsObject] = ()) -> str:
    """Say what can never be right with the settings of endpoint and task, or with what the newest file shows of them."""
    if book.stream:
        return "; ".join(f["says"] for f in stream_look.findings(book))
    found = lint(read_endpoint_document(book.settings.path("endpoint")), book.mappings, [spec])
    told = [f"{f.setting} = {f.value}: {f.hurts}" for f in found if f.severity == LOSS]
    image = book.mappings.before_image(spec)
    if spec.policy == "multiset" and (image is None or image.columns != "all"):
        told.append("no before-image columns with column-filter 'all': updates stop the table")
    for one in shapes(spec, book.endpoint, book.mappings, newest, CHANGE_PHASE) if image and spec.key else ():
        if one.carries is not None and (blind := [k for k in spec.key if k not in one.before]) and not spec.layouts:
            told.append(
                f"no old value of {', '.join(blind)} in {one.where}, though the rule add-before-image-columns means it: an update "
                "that changes it leaves the old row (pk-only is the source's primary key; column-filter all is every column)"
            )
    return "; ".join(dict.fromkeys(told))


def require_no_decision(rows: list[dict[str, Any]]) -> None:
    """Raise DecisionNeededError that names every table that needs a decision; do nothing if none does."""
    if open_ones := [f"{r['table']}: {r['decision']}" for r in rows if r["decision"]]:
        raise DecisionNeededError(
            f"{len(open_ones)} of {len(rows)} tables need a decision",
            "decide, then plan again",
            open_ones,
        )
