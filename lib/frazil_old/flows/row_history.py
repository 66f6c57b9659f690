"""The history of a row: the commits that changed a key, and the source rows that they applied. Only reads."""

from __future__ import annotations

from typing import Any

from frazil_old.config.lake_types import lake_type
from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import identifier, literal
from frazil_old.config.time_sql import key_text
from frazil_old.config.timestamps import clock
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil_old.dms.file_order import in_order
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.position import Position
from frazil_old.engine.read_files import FoundRow, plan_files, rows_of_key, typed_key
from frazil_old.errors import FrazilError, many
from frazil_old.flows.explore import ExploreError, spec_of
from frazil_old.flows.preview_stages import beside
from frazil_old.flows.schema_changes import as_carried
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import table_history
from frazil_old.lake.table_history import Snapshot
from frazil_old.lake.tables import format_of, read_table_state, require_table

FACTS = ("operation", "committed", "snapshot", "source_commit", "files", "_file", "_pos", "_row_id")
"""What `key_history` says of an event, besides the values of the row."""
MOST_MB = 1024
"""Maximum size of one commit's source files that are searched for a key."""


def key_sql(spec: TableSpec, key: list[str], row: str = "") -> str:
    """Return the condition that selects a row by its key, given as texts in the key's order."""
    if not spec.key:
        raise ExploreError(f"{spec.source} has no key", "ask for a table with one")
    if len(key) != len(spec.key):
        raise ExploreError(
            f"{many(key, 'value')} for the key of {spec.source}", f"give {', '.join(spec.key)}, in this order"
        )
    values = [_value_sql(literal(str(v)), lake_type(spec.column(k))) for k, v in zip(spec.key, key, strict=True)]
    return " and ".join(f"{row}{identifier(k)} = {v}" for k, v in zip(spec.key, values, strict=True))


def _value_sql(text: str, kind: str) -> str:
    """Return the SQL of a key's value given as text: binary as hex, an instant in UTC unless it names a zone."""
    if kind == "binary":
        return f"unhex({text})"
    typed = f"try_cast({text} as {kind})"
    return f"coalesce(try_cast(concat({text}, 'Z') as {kind}), {typed})" if kind == "timestamp" else typed


def first_key(book: Workbook, table: str) -> list[str]:
    """Return the key of one of the rows changed last, as texts."""
    spec = spec_of(book, table)
    name, columns = book.name(spec), ", ".join(key_text(identifier(k), lake_type(spec.column(k))) for k in spec.key)
    require_table(book.spark, name)
    newest = book.spark.sql(
        f"select data_file.file_path from {name}.entries where status < 2 and data_file.content = 0 order by sequence_number desc limit 1"
    ).first()
    order = ["_last_updated_sequence_number desc"] if format_of(book.spark, name) > 2 else []
    last = f"order by {', '.join([*order, *(identifier(k) for k in spec.key)])}"  # Spark orders a file's rows
    for where in [f"where _file = {literal(newest[0])} {last}", ""] if newest and spec.key else []:
        if row := book.spark.sql(f"select {columns} from {name} {where} limit 1").first():
            return list(row)
    return []


def key_history(book: Workbook, table: str, key: list[str]) -> list[dict[str, Any]]:
    """Return the history of one key, newest first: operation, commit, snapshot, batch files, source time, values.

    `source_commit` is the time span of the commit's batch: `origin` finds the exact row. A version made by an expired
    snapshot says so.
    """
    spec = spec_of(book, table)
    name, where = book.name(spec), key_sql(spec, key)
    states = table_history.lineage(book.spark, name)
    behind, place = table_history.sequences(book.spark, name), {s.id: i for i, s in enumerate(states)}
    found = table_history.versions(book.spark, name, states, where)
    events: list[dict[str, Any]] = []
    gone = True
    for n, v in enumerate(found):
        at = place.get(behind.get(v.sequence, 0))
        made = states[at] if at is not None else None
        word = "insert" if gone else "update"
        if made is None or made.kind == "load":
            word = "load" if made else "older than the kept snapshots"
        lies = {"_file": v.file.rsplit("/", 1)[-1], "_pos": v.position, "_row_id": v.row_id}
        values = {c: x for c, x in v.row.items() if c not in spec.key}
        events.append(beside({"operation": word, **_recorded(states, made), **lies}, values))
        after = place.get(behind.get(found[n + 1].sequence, 0), len(states)) if n + 1 < len(found) else len(states)
        end = table_history.first_without(book.spark, name, states[0 if at is None else at + 1 : after], where)
        gone = end is not None
        if end:
            events.append({"operation": "delete", **_recorded(states, end)})
    return events[::-1]


def changed_values(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events of `key_history` as what changed, newest first: one row per changed value, old and new.

    A load, an insert and a delete are one row.
    """
    rows = []
    for event, older in zip(events, [*events[1:], {}], strict=False):
        facts = {name: event[name] for name in ("operation", "committed", "source_commit")}
        values = {c: v for c, v in event.items() if c not in FACTS}
        changed = [c for c in values if repr(values[c]) != repr(older.get(c))] if event["operation"] == "update" else []
        rows += [{**facts, "column": c, "before": older.get(c), "after": values[c]} for c in changed]
        rows += [{**facts, "column": "(whole row)"}] if not changed else []
    return rows


def caption(table: str, key: list[str], events: list[dict[str, Any]]) -> str:
    """Say how many versions a key has, or that it is in no kept snapshot."""
    of = f"key {', '.join(map(str, key))} of {table}"
    if not key:
        return f"{table} has no key, or no row to take one from: set the parameter `key`."
    if not events:
        return f"No kept snapshot has {of}. Are its values in the order of the spec's key? An older snapshot may have had it."
    newest, count = events[0], len(events)
    state = "It is deleted now." if newest["operation"] == "delete" else "The row is there now."
    return f"{of[0].upper()}{of[1:]}: {many(count, 'event')}, the newest committed {newest['committed']}. {state}"


def _recorded(states: list[Snapshot], s: Snapshot | None) -> dict[str, Any]:
    """What a snapshot records about the batch that it committed."""
    if s is None:
        return {"committed": f"at or before {clock(states[0].committed_ms)}", "snapshot": None, "source_commit": "–", "files": "–"}  # fmt: skip
    span = " … ".join(dict.fromkeys(clock(ms) for ms in (s.source_ms[:1] + s.source_ms[-1:]))) or "–"
    files = {"load": "the load", "changes": "after {} to {}".format(*map(_end, _between(states, s)))}.get(
        s.kind, f"none: {s.kind}"
    )
    return {"committed": clock(s.committed_ms), "snapshot": str(s.id), "source_commit": span, "files": files}


def _between(states: list[Snapshot], s: Snapshot) -> tuple[Position, Position]:
    """Return the positions between which a snapshot's batch is."""
    earlier = [b.position for b in states[: states.index(s)] if b.position]  # by their order: clocks may differ
    return earlier[-1] if earlier else Position(), s.position or Position()


def _end(position: Position) -> str:
    return ", ".join(f"{p}: {offset}" for p, offset in position.stream.items()) or position.last or "the load"


def origin(book: Workbook, table: str, key: list[str], snapshot: int | str = "") -> list[dict[str, Any]]:
    """Return the rows that DMS wrote for a key in the batch of one commit.

    Each has its file, row number, operation, commit time, key change (old → new) and values. `snapshot` is one of
    `key_history`; default: the newest that changed the key. Reads the source files that the commit names, if they still
    exist.
    """
    spec = spec_of(book, table)
    name = book.name(spec)
    key_sql(spec, key)  # raises for a key of another length
    if not snapshot:
        snapshot = next((e["snapshot"] for e in key_history(book, table, key) if e["snapshot"]), "")
    states = table_history.lineage(book.spark, name)
    made = next((s for s in states if str(s.id) == str(snapshot)), None)
    if made is None or made.kind not in ("changes", "load"):
        raise ExploreError(
            f"{table}: no kept snapshot of a batch shows where this key comes from",
            "ask for one of key_history, of a load or of changes",
        )
    files, phase = _files_of(book, spec, made, *_between(states, made))
    spec = as_carried(book, spec, read_table_state(book.spark, name), files, phase)
    files, read = plan_files(book.source_table(spec), files, phase)
    wanted = typed_key(spec, key)
    rows = [row for file in files for row in rows_of_key(file, read, wanted)] if wanted else []
    found = []
    for r in rows:
        facts = {"file": r.file, "row": r.number, "operation": r.op, "source_commit": r.commit_ts or "–"}
        found.append(beside({**facts, **_moved(r, spec)}, r.values))
    return found


def _moved(row: FoundRow, spec: TableSpec) -> dict[str, str]:
    """Return how a row changed its key, if it did."""
    new = tuple(row.values[k] for k in spec.key)
    if row.old_key is None or row.old_key == new:
        return {}
    return {"key_change": " → ".join(", ".join(map(str, key)) for key in (row.old_key, new))}


def newest_origin(book: Workbook, table: str, key: list[str], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return `origin` of a key's newest event with a snapshot, or one row that says why it is unknown."""
    snapshot = next((e["snapshot"] for e in events if e["snapshot"]), "")
    try:
        return origin(book, table, key, snapshot) if snapshot else []
    except FrazilError as e:
        return [{"cannot be shown": e.problem, "but": e.cure}]


def _files_of(
    book: Workbook, spec: TableSpec, made: Snapshot, after: Position, until: Position
) -> tuple[list[DmsObject], int]:
    """Return the files of a commit's batch, in order, and whether they are load files (0) or change files (1)."""
    if book.stream:
        raise ExploreError(
            f"{spec.source} is fed by a stream, whose messages are not searched for a key",
            "see key_history: it names the places of the batch",
        )
    there = book.objects(spec)
    files = (
        list(there.loads) if made.kind == "load" else [o for o in there.changes if after.last < o.name <= until.last]
    )
    if not files:
        raise ExploreError(
            f"{spec.source}: the files of snapshot {made.id} are gone",
            "only the snapshot's summary describes the batch now",
        )
    if (size := sum(o.size for o in files) / 1e6) > MOST_MB:
        raise ExploreError(
            f"{spec.source}: the files of snapshot {made.id} hold {size:,.0f} MB",
            "search these files for the key by another tool",
        )
    return in_order(files), LOAD_PHASE if made.kind == "load" else CHANGE_PHASE
