"""The full load from a stream: once complete, a table's load records become its rows, in one commit."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from frazil_old.config.settings import ParameterError
from frazil_old.config.spec import TableSpec
from frazil_old.config.timestamps import clock
from frazil_old.dms.control_records import CREATE
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.load_gate import load_gate
from frazil_old.dms.position import NO_LOAD, STREAM_LOAD, Position
from frazil_old.dms.stream_retention import recreated
from frazil_old.dms.stream_source import (
    ARRIVED,
    Offsets,
    StreamError,
    StreamRead,
    max_offsets,
    min_offsets,
    stream_name,
)
from frazil_old.engine.collapsed_batch import Collapsed, Wanted, frame_of
from frazil_old.engine.message_blocks import Around, arrivals, find_places, last_arrival
from frazil_old.errors import many
from frazil_old.flows import bad_row_limits, quarantine
from frazil_old.flows.quarantine import OfBatch
from frazil_old.flows.schema_changes import FromStream, follow
from frazil_old.flows.stream_position import only_topic
from frazil_old.flows.stream_read import APART, Group, Read, keep_position, messages, own, require_known
from frazil_old.flows.tasks_or_here import in_tasks_or_here
from frazil_old.flows.unknown_tables import handle_new_tables
from frazil_old.flows.unreadable_messages import require_readable
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import batch_branches, commit, merge
from frazil_old.lake.other_writers import COLUMNS, OtherWriterError
from frazil_old.lake.tables import TableState, columns_of, read_table_state
from frazil_old.results import TableResult

SKEW_MS = 1000
"""A change counts as before a load record only if it came this much earlier: the clocks of brokers differ."""
EMPTY = "no load records yet: counts as empty; its changes are applied as they come"


class _Load:
    """One read of the stream, and the result for each table."""

    def __init__(self, book: Workbook):
        self.book, s = book, book.settings
        self.policy, self.over = getattr(s, "on_changed_load", "refuse"), getattr(s, "load_complete_when", "changes")
        if self.policy == "replay":
            raise ParameterError("on_changed_load = 'replay' is for files", "write reload")
        self.gate = load_gate(s)
        self.earliest, self.retention = book.stream.earliest(), book.stream.retention()
        self.base: dict[str, TableState] = {}
        self.changed: dict[str, OtherWriterError] = {}
        """Tables that another writer changed: only new load records repair them."""
        self.begin: dict[str, Offsets] = {}
        self.may_have_expired: dict[str, set[str]] = {}
        """Partitions in which messages may have expired after the start of a table."""
        self.seen: Offsets = {}
        self.end: Offsets = {}

    def look(self, spec: TableSpec) -> TableResult:
        """Find where a table's load records would begin."""
        batch_branches.remove_abandoned_branches(self.book.spark, self.book.name(spec))
        again = self.policy == "reload"
        try:
            base = read_table_state(self.book.spark, self.book.name(spec))
        except OtherWriterError as error:
            if not again:
                raise
            self.changed[spec.source] = error
            base = read_table_state(self.book.spark, self.book.name(spec), checked=False)
        base.require_not_paused(spec.source)
        if again and (names := recreated(base.position.stream_ids, self.retention.stream_ids)):
            base = replace(base, position=_without(base.position, names))
        self.base[spec.source] = base
        # Changes never pass load records that were not applied.
        begin = max_offsets(base.position.stream_load, base.position.stream)
        if not base.position.loaded:
            begin = self.book.stream.start(where := self.book.settings.stream_start)
            self.may_have_expired[spec.source] = self.retention.may_have_expired(
                begin, where == "latest" or where.startswith("{")
            )
        elif again:
            self.may_have_expired[spec.source] = self.retention.may_have_expired(begin, True)
            begin = max_offsets(begin, self.earliest)  # `_may_lack` judges whether load records have expired
        else:
            begin = self.retention.checked_position(
                begin, spec.source, base.position.stream_ids, only_topic(self.book, spec, base.position)
            )
        self.begin[spec.source] = begin
        return TableResult(spec.source, "unchanged")

    def read(self, failed: list[str], more: Sequence[Offsets] = ()) -> list[StreamRead]:
        """Read what exists, then what arrived meanwhile.

        If the first part has a table's first change, both have its whole load. The read begins at the tables'
        positions, or earlier if one of `more` is earlier.
        """
        going = [b for t, b in self.begin.items() if t not in failed] + list(more)
        taken: list[StreamRead] = []
        for _ in ("what is there", "what arrived meanwhile") if going else ():
            self.seen = self.end
            while True:
                taken.append(self.book.stream.take(self.book.spark, self.end or min_offsets(going)))
                self.end = taken[-1].end
                if taken[-1].caught_up:
                    break
        return taken

    def take(self, spec: TableSpec, read: Read) -> TableResult:
        """Load a table if its load records are complete."""
        base, begin, groups = self.base[spec.source], self.begin[spec.source], read.groups
        mine = own(self.book, spec, groups)
        loads = [g for g in mine if g.is_load and g.is_after(begin)]
        if base.position.loaded and not base.position.awaits_load:
            if not loads:
                if spec.source in self.changed:
                    raise self.changed[spec.source]
                return TableResult(spec.source, "unchanged", "loaded")
            if self.policy != "reload":
                return TableResult(spec.source, "waiting", APART)
        require_readable(self.book, spec, groups, begin, only_topic(self.book, spec, base.position))
        old, over = self._around(spec, read, loads)
        loads = [] if over is None else loads
        begun = bool(loads) or any(not g.is_load and g.first < self.seen.get(g.object, 0) for g in mine)
        if waits := self._waits(spec, loads, over):
            return TableResult(spec.source, "waiting", waits)
        if lost := self._may_lack(spec, loads, groups):
            return TableResult(spec.source, "waiting", lost)
        if not begun:
            return self._nothing(spec, base)
        # The load already contains what comes before it in its partition.
        self.begin[spec.source] = max_offsets(begin, {p: place + 1 for p, place in old.items()})
        starts = {
            p: old[p] + 1 if p in old else min((g.first for g in loads if g.object == p), default=0) for p in self.end
        }
        stream = max_offsets(
            max_offsets(base.position.stream, self.earliest) if base.position.loaded else begin, starts
        )
        if ARRIVED in self.end:
            stream[ARRIVED] = max(stream[ARRIVED], min((g.arrived for g in groups), default=self.end[ARRIVED]))
        position = self._position(spec, base, STREAM_LOAD, stream, self.end)
        if not loads:
            keep_position(self.book, spec, base, position, "load")
            return TableResult(spec.source, "loaded", "was empty when DMS loaded it")
        names = frozenset(n for g in loads for n in g.columns)
        spec = follow(self.book, spec, base, FromStream(names), CHANGE_PHASE).spec
        require_known(self.book, spec, names, f"the load records of {self.book.stream.scheme}")
        return self._load(spec, read, base, position, sum(g.count for g in loads))

    def _nothing(self, spec: TableSpec, base: TableState) -> TableResult:
        """Record that the first part contained neither load records nor changes."""
        if base.position.awaits_load:
            return TableResult(spec.source, "unchanged", EMPTY)
        begin = max_offsets(self.begin[spec.source], self.seen)
        keep_position(self.book, spec, base, self._position(spec, base, NO_LOAD, begin, begin), "load")
        return TableResult(spec.source, "empty", EMPTY)

    def _position(self, spec: TableSpec, base: TableState, digest: str, stream: Offsets, load: Offsets) -> Position:
        """Return a table's position after a load that was read up to `load`; its changes begin at `stream`."""
        return replace(
            base.position,
            batch=batch_branches.new_batch(load=digest == STREAM_LOAD),
            load_digest=digest,
            stream=stream,
            stream_load=load,
            stream_ids=self.retention.stream_ids,
            topic=self.book.topic(spec),
            missing_columns=(),
            ignored_columns=(),
        )

    def _around(self, spec: TableSpec, read: Read, loads: list[Group]) -> tuple[Offsets, bool | None]:
        """Return by partition the last change before the last load record, and whether the load is over.

        It is over if the first part has a change after all load records. None: no load record comes after the table's
        start, which may be a time.

        DMS writes a table's changes after its load. So everything before such a change, with the load records that it
        follows, belongs to an older load. Changes may be in other partitions than load records.
        """
        if not loads:
            return {}, None
        begin = self.begin[spec.source]
        last = {g.object: max(h.last for h in loads if h.object == g.object) for g in loads}
        times = find_places(read.blocks, read.part(spec, begin, loads=True), arrivals)
        if not times:
            return {}, None
        first, newest = min(at for _, at, _ in times), max(at for _, _, at in times)
        found = find_places(read.blocks, read.part(spec, begin), Around(last, self.seen, first, newest))
        old: Offsets = {}
        for partition, before, _ in found:
            if before is not None:
                old[partition] = max(before, old.get(partition, 0))
        begin = max_offsets(begin, {p: place + 1 for p, place in old.items()})
        self._require_one_load(spec, read, begin, newest)
        return old, any(after for *_, after in found)

    def _require_one_load(self, spec: TableSpec, read: Read, begin: Offsets, newest: int) -> None:
        """Raise StreamError if a change came between load records after `begin`, the newest of which came at `newest`."""
        found = find_places(read.blocks, read.part(spec, begin, loads=True), arrivals) if len(self.end) > 1 else []
        changes = read.part(spec, self.begin[spec.source])
        for p, at, _ in find_places(read.blocks, changes, partial(last_arrival, newest - SKEW_MS)) if found else ():
            if old := sorted({q for q, first, _ in found if at is not None and q != p and first < at}):
                raise StreamError(
                    f"{spec.source}: load records of two loads are there, of the older one in {', '.join(old)}: a change came between them in {p}",
                    f"run 01_full_load with stream_start='{clock(at + 1)}', a time between the loads; a table that is loaded already: drop it "
                    "and run 00_setup before",
                )

    def _waits(self, spec: TableSpec, loads: list[Group], over: bool | None) -> str:
        """Return what is missing before a table's load is known to be complete."""
        if self.over == "declared":
            return ""
        if self.gate:
            if waits := self.gate.waits(spec.source):
                return waits
            rows = self.gate.rows(spec.source)
            return "" if loads or not rows else f"no load records are there, of {many(rows, 'row')} by DMS"
        if over is False:
            return (
                "no change of it was seen after its load records: its load may not have ended (see load_complete_when)"
            )
        return ""

    def _may_lack(self, spec: TableSpec, loads: list[Group], groups: list[Group]) -> str:
        """Return a reason if the first load records may have expired and no kept create-table record disproves it.

        DMS sends that record before them, and everything later than a kept message is kept.
        """
        if self.gate or self.over == "declared":
            return ""
        cut = {
            p
            for p in self.may_have_expired.get(spec.source, ())
            if self.book.may_have_messages_in(spec, stream_name(p))
        }
        cut &= {g.object for g in loads} or cut
        name = self.book.mappings.target_name(spec)
        made = [g.arrived for g in groups if g.operation == CREATE and (g.schema, g.table) == name]
        first = {p: min((g.arrived for g in groups if g.object == p), default=math.inf) for p in cut}
        if not (lost := sorted(p for p in cut if not any(first[p] <= at for at in made))):
            return ""
        begins = (
            "" if self.base[spec.source].position.loaded else ", set where it begins (stream_start: a time before it)"
        )
        return (
            f"messages of {', '.join(lost)} have expired, and nothing shows whether load records were among them: reload the table "
            f"in DMS and run this before they expire{begins}, or declare that the load is complete (load_complete_when)"
        )

    def _load(self, spec: TableSpec, read: Read, base: TableState, position: Position, count: int) -> TableResult:
        again = base.position.loaded and (not base.position.awaits_load or self.policy == "reload")
        # A message that DMS sent twice is stored twice; without a key this cannot be detected.
        wanted = Wanted(rows_in_driver=False, most_bad=bad_row_limits.most_kept(self.book, spec))
        part = read.part(spec, self.begin[spec.source], loads=True)

        def collapse(here: bool) -> Collapsed:
            return read.collapse(spec, part, count, replace(wanted, read_here=here))

        found = in_tasks_or_here(self.book, spec, collapse)
        try:
            bad = found.bad.count
            bad_row_limits.admit_rows(self.book, spec, found.bad, found.counts_and_delays["changes"], found.files)
            rows = found.frame if found.frame is not None else frame_of(self.book.spark, found.rows, spec)
            rows = rows if spec.policy == "append" else rows.select("after.*")
            known = self.gate.rows(spec.source) if self.gate else None
            if known not in (None, found.keys + bad):
                note = f"{found.keys + bad:,} rows are there, of {known:,} by DMS"
                return TableResult(spec.source, "waiting", note)

            def write(branch: str, properties: dict[str, str]) -> None:
                merge.replace_rows(self.book.spark, branch, rows, properties, empty_first=again)

            name = self.book.name(spec)
            own = {COLUMNS: columns_of(self.book.spark, name)}
            metadata = commit.CommitMetadata(position, {"frazil.kind": "load"}, own)
            of_batch = OfBatch(found.bad, found.files, is_load=True)
            with quarantine.quarantined_with_commit(self.book, spec, base, metadata, of_batch) as with_quarantine:
                done = commit.commit_batch(self.book.spark, name, base, with_quarantine, write)
        finally:
            found.release()
        word = "reloaded" if again else "loaded"
        counts = {"rows": done.count("added-records"), **({"quarantined": bad} if bad else {})}
        return TableResult(spec.source, word, "", counts=counts)


def _without(position: Position, names: list[str]) -> Position:
    """Return a position without its offsets in recreated streams, where they mean nothing."""

    def others(places: Offsets) -> Offsets:
        return {p: o for p, o in places.items() if stream_name(p) not in names}

    return replace(position, stream=others(position.stream), stream_load=others(position.stream_load))


def first_loads(book: Workbook, tables: Collection[str]) -> list[TableResult]:
    """Load tables that 01_full_load found empty and that have messages now."""
    load, others = _Load(book), [t for t in book.specs if t not in tables]
    looked = book.each_table(load.look, skip=others)
    failed = [r for r in looked if r.failed]
    out = [*others, *(r.table for r in failed)]
    with messages(book, *load.read(out), loads=True) as read:
        return [*failed, *book.each_table(lambda spec: load.take(spec, read), skip=out)]


def run(book: Workbook) -> list[TableResult]:
    """Load every table whose load records are complete; the others wait. Tables fail independently."""
    load = _Load(book)
    found = {r.table: r for r in book.each_table(load.look)}
    failed = [t for t, r in found.items() if r.failed]
    # A table that could not be created before is found again.
    creates = book.settings.unknown_tables == "create" and not book.settings.tables
    with messages(book, *load.read(failed, [load.earliest] if creates else []), loads=True) as read:
        new = {r.table: r for r in handle_new_tables(book, read.groups)}
        if made := [t for t, r in new.items() if not r.failed]:
            book.progress(f"reading again, from the start of {', '.join(made)}")
        else:
            found |= {r.table: r for r in book.each_table(lambda spec: load.take(spec, read), skip=failed)}
    again = {r.table: r for r in run(book)} if made else {}
    return list({**found, **new, **again}.values())
