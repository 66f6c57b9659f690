"""Changes from a stream: one read serves all tables; each applies its part with its own position.

On average a change waits for one and a half passes. Three reads per pass, for what arrives meanwhile, gained only 3 to
7 % in measurements, since a read takes 0.4 s. So a pass has one read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from frazil_old.config.spec import TableSpec
from frazil_old.dms.control_records import Definition
from frazil_old.dms.file_layout import CHANGE_PHASE
from frazil_old.dms.position import STREAM_LOAD, Position
from frazil_old.dms.stream_retention import Retention
from frazil_old.dms.stream_source import (
    ARRIVED,
    Offsets,
    StreamRead,
    UnreachableError,
    max_offsets,
    min_offsets,
    stream_name,
)
from frazil_old.engine.collapsed_batch import Collapsed, Wanted
from frazil_old.engine.message_blocks import count_changes
from frazil_old.errors import FrazilError
from frazil_old.flows import quarantine, stream_load
from frazil_old.flows.apply_batch import apply_batch
from frazil_old.flows.continuous import LONGEST_PAUSE_S, asleep, show
from frazil_old.flows.control_record_changes import require_one_meaning
from frazil_old.flows.file_batch import Batch
from frazil_old.flows.schema_changes import FromStream, follow
from frazil_old.flows.stream_position import begin_of, only_topic
from frazil_old.flows.stream_read import (
    APART,
    WAITS,
    Group,
    Read,
    definitions,
    keep_position,
    messages,
    own,
    require_known,
)
from frazil_old.flows.unknown_tables import handle_new_tables
from frazil_old.flows.unreadable_messages import require_readable
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import batch_branches, jvm
from frazil_old.lake.commit import PositionMovedError
from frazil_old.lake.schema_evolution import columns_in_metadata
from frazil_old.lake.tables import TableState, read_table_state
from frazil_old.report.live_status import LiveStatus
from frazil_old.results import TableResult

SETTLE_S = 900


@dataclass(frozen=True)
class _Part:
    """One table's part of a read: its messages from `at` to `end`, in groups.

    `before`: only those before a place of one partition.
    """

    spec: TableSpec
    base: TableState
    at: Offsets
    end: Offsets
    read: Read
    pending: list[Group]
    before: tuple[str, int] | None = None


class _Run:
    """One run over the stream: the position of each table, and how far it is known to have no message."""

    def __init__(self, book: Workbook):
        self.book, self.passes, self.settled = book, 0, time.monotonic()
        self.total = {s.source: TableResult(s.source, "unchanged", "nothing new") for s in book.specs.values()}
        self.base: dict[str, TableState] = {}
        self.at: dict[str, Offsets] = {}
        """How far a table is known to have no messages after the position in `base`."""
        self.out: dict[str, float] = {}
        """Tables that are skipped, and until when."""
        self.pause: dict[str, float] = {}
        self.stream_ids: dict[str, str] = {}
        self.first: set[str] = set()
        """Tables whose first load has to be searched for in the whole stream."""
        self.live = LiveStatus(book.progress) if book.settings.run_for_s else None

    def _each(self, work: Callable[[TableSpec], TableResult]) -> None:
        """Process every table that is not skipped; one that fails or waits is skipped for this run, or for a while."""
        self._take(self.book.each_table(work, skip=list(self.out), quiet=self.live is not None))

    def _take(self, results: list[TableResult]) -> None:
        for result in results:
            table, stuck = result.table, result.status in ("failed", "waiting", "skipped", "paused")
            self.total[table].add(result)
            if self.live is not None:
                show(self.live, result)
            if stuck:
                self.pause[table] = min(max(2 * self.pause.get(table, 0), 1.0), LONGEST_PAUSE_S)
                self.out[table] = time.monotonic() + self.pause[table] if self.live is not None else float("inf")
            elif result.status == "merged":
                self.pause.pop(table, None)

    @property
    def batches(self) -> int:
        """The number of batches that were applied."""
        return sum(result.counts.get("batches", 0) for result in self.total.values())

    def one_pass(self) -> bool:
        """Read once what is after the tables' positions; return whether more exists."""
        self.first = set()
        self.out = {t: until for t, until in self.out.items() if until > time.monotonic()}
        retention = self.book.stream.retention()
        self.stream_ids = retention.stream_ids
        self._each(lambda spec: self._look(spec, retention))
        going = [at for t, at in self.at.items() if t not in self.out]
        if not self.book.specs:  # no table has been created yet
            going = [self.book.stream.earliest()]
        if not going:
            return False
        taken = self.book.stream.take(self.book.spark, min_offsets(going), self.book.settings.max_batch_messages)
        with messages(self.book, taken) as read:
            for new in handle_new_tables(self.book, read.groups):
                self.total[new.table], self.out[new.table] = new, float("inf")
            self._each(lambda spec: self._apply(spec, read, taken))
        self.passes += bool(read.groups)
        loaded = self._first_loads(taken.end) if self.first else False
        return loaded or (not taken.caught_up and len(self.out) < len(self.total))

    def _first_loads(self, end: Offsets) -> bool:
        """Load the tables that 01_full_load found empty; return whether any of them can continue."""
        results = stream_load.first_loads(self.book, self.first)
        for r in results:
            if r.status == "unchanged":  # the whole stream has none of its messages
                self.at[r.table] = max_offsets(self.at[r.table], end)
        self._take(results)
        return any(r.status == "loaded" for r in results)

    def _look(self, spec: TableSpec, retention: Retention) -> TableResult:
        """Read a table's position and check it against the stream."""
        name = self.book.name(spec)
        if spec.source not in self.base:
            batch_branches.remove_abandoned_branches(self.book.spark, name)
        base = read_table_state(self.book.spark, name)
        seen = self._seen(spec, base)
        self.base[spec.source] = base
        base.require_not_paused(spec.source)
        quarantine.settle_leftovers(self.book, spec, base)
        if not base.position.loaded:
            return TableResult(spec.source, "waiting", f"changes wait until {WAITS}")
        self.at[spec.source] = begin_of(self.book, spec, base.position, retention, seen)
        return TableResult(spec.source, "unchanged")

    def _seen(self, spec: TableSpec, base: TableState) -> Offsets:
        """Return how far a table is known to have no messages; nothing if its position was set meanwhile, perhaps back."""
        was = self.base.get(spec.source, base)
        return self.at.get(spec.source, {}) if was.position.batch == base.position.batch else {}

    def _apply(self, spec: TableSpec, read: Read, taken: StreamRead) -> TableResult:
        base, at = self.base[spec.source], self.at[spec.source]
        require_readable(self.book, spec, read.groups, at, only_topic(self.book, spec, base.position))
        mine = own(self.book, spec, read.groups)
        if base.position.awaits_load and any(g.is_after(at) for g in mine):
            if not taken.caught_up or any(g.is_load and g.is_after(at) for g in mine):
                self.first.add(spec.source)
                return TableResult(spec.source, "unchanged", "nothing new")
            # DMS sends a table's changes after its load. Everything was read, so the load was empty.
            base = replace(base, position=replace(base.position, load_digest=STREAM_LOAD))
        if any(g.is_load and g.is_after(base.position.stream_load) for g in mine):
            return TableResult(spec.source, "waiting", f"changes wait: {APART}")
        result = TableResult(spec.source, "unchanged", "nothing new")
        part = _Part(spec, base, at, taken.end, read, [g for g in mine if not g.is_load and g.is_after(at)])
        records = definitions(self.book, spec, read.groups, at)
        if not part.pending and not records:
            self.at[spec.source] = max_offsets(at, taken.end)
            return result
        try:
            if records:
                self._by_record(part, records, result)
            else:
                self._by_topic(part, taken, result)
        except PositionMovedError as e:
            return TableResult(spec.source, "skipped", str(e))
        del self.at[spec.source]  # its position says it
        return result

    def _by_topic(self, part: _Part, taken: StreamRead, result: TableResult) -> None:
        """Apply changes without control records among them.

        If a table moved to another topic, its older messages in the former one are a separate batch. The messages of
        later topics follow in a later pass.
        """
        topics = _in_order(part.pending)
        former = topics[:-1] if taken.caught_up else topics[:1] if len(topics) > 1 else []
        for topic in former:
            here = {p: o for p, o in part.end.items() if stream_name(p) == topic}
            others = {p: o for p, o in part.end.items() if p not in here and p != ARRIVED}
            older, newer = ([g for g in part.pending if (g.object in here) == is_here] for is_here in (True, False))
            batch = replace(part, at=max_offsets(part.at, others), end=max_offsets(part.at, here))
            self._changes(batch, _sum(older), result)
            base = read_table_state(self.book.spark, self.book.name(part.spec))
            part = replace(part, base=base, at=batch.end, pending=newer)
        if taken.caught_up or not topics[1:]:
            self._changes(replace(part, end=max_offsets(part.at, part.end)), _sum(part.pending), result)

    def _by_record(self, part: _Part, records: list[tuple[str, int, Definition]], result: TableResult) -> None:
        """Apply changes with control records among them, which the table follows.

        If data and control records share a partition, each record takes effect between the rows around it. Otherwise
        the order is unknown: after the schema has followed, all rows are read by their own names.
        """
        end, name = part.end, self.book.name(part.spec)
        partitions = {*(g.object for g in part.pending), *(p for p, _, _ in records)}
        ordered = bool(part.pending) and len(partitions) == 1
        if part.pending and not ordered:
            fields = columns_in_metadata(self.book.spark, name, part.base.schemas).fields
            first = {self.book.mappings.column_name(part.spec, f.name) for f in fields}
            require_one_meaning(part.spec, [first, *({*d.columns} for _, _, d in records)])
        for partition, place, definition in records:
            here = {partition: place} if ordered else {}
            reached = max_offsets(part.at, here)
            if ordered:
                before = (partition, place)
                seen = count_changes(part.read.blocks, part.read.part(part.spec, part.at, before))
                if self._changes(replace(part, end=reached, before=before), seen, result):
                    part = replace(part, base=read_table_state(self.book.spark, name))
            part = replace(part, at=reached, base=self._evolve(part.spec, part.base, definition))
        seen = count_changes(part.read.blocks, part.read.part(part.spec, part.at)) if ordered else _sum(part.pending)
        reached = max_offsets(part.at, end)
        if not self._changes(replace(part, end=reached), seen, result):
            # a record's change of the schema must not be lost
            position = self.position_at(part.spec, part.base, batch_branches.new_batch(), reached)
            keep_position(self.book, part.spec, part.base, position)

    def _evolve(self, spec: TableSpec, base: TableState, definition: Definition) -> TableState:
        """Let the table follow a control record; return the base of the next batch."""
        base = follow(self.book, spec, base, FromStream(definition=definition), CHANGE_PHASE).on(base)
        return replace(base, schemas=read_table_state(self.book.spark, self.book.name(spec)).schemas)

    def _changes(self, part: _Part, seen: tuple[int, frozenset[str]], result: TableResult) -> bool:
        """Apply the changes between two places in one batch; return whether any existed."""
        (count, names), base, at, end = seen, part.base, part.at, part.end
        if not count:
            return False
        shaped = follow(self.book, part.spec, base, FromStream(names), CHANGE_PHASE)
        require_known(self.book, shaped.spec, names, f"{self.book.stream.scheme} messages from {at} up to {end}")
        batch = _MessageBatch(self, part, shaped.spec, count)
        counts, live = apply_batch(self.book, shaped.spec, base, batch)
        result.add(TableResult(part.spec.source, "merged", "", counts={"batches": 1, **counts}, live=live))
        return True

    def position_at(self, spec: TableSpec, base: TableState, batch: str, place: Offsets) -> Position:
        """Return a table's position at a place; if needed, the ids of its streams are recorded once, as they were then."""
        topic, of = self.book.topic(spec), base.position.stream_ids
        if topic and topic == base.position.topic:
            of = {name: ids for name, ids in of.items() if name == topic}
        return replace(base.position, batch=batch, stream=place, stream_ids={**self.stream_ids, **of}, topic=topic)

    def settle(self) -> None:
        """Commit how far tables are known to have no messages: else these could expire after a position."""

        def work(spec: TableSpec) -> TableResult:
            base = read_table_state(self.book.spark, self.book.name(spec))
            seen = max_offsets(base.position.stream, self._seen(spec, base))
            if seen != base.position.stream:
                keep_position(self.book, spec, base, self.position_at(spec, base, batch_branches.new_batch(), seen))
            return TableResult(spec.source, "unchanged")

        self._each(work)
        self.settled = time.monotonic()


class _MessageBatch(Batch):
    """The changes of one table's part of a read, `count` messages, read by a spec that has followed them."""

    def __init__(self, run: _Run, part: _Part, spec: TableSpec, count: int):
        self.run, self.part, self.spec, self.count = run, part, spec, count

    @property
    def size(self) -> dict[str, int]:
        """Return the number of messages."""
        return {"messages": self.count}

    def position_after(self, batch: str) -> Position:
        """Return the table's position after the part."""
        return self.run.position_at(self.part.spec, self.part.base, batch, self.part.end)

    def collapse(self, wanted: Wanted) -> Collapsed:
        """Return the last change per key; without a key, the net copies of each row, or each change as a row."""
        read, part = self.part.read, self.part
        return read.collapse(self.spec, read.part(self.spec, part.at, part.before), self.count, wanted)


def _in_order(pending: list[Group]) -> list[str]:
    """Return the topics or streams of messages, in the order of their first arrival."""
    first: dict[str, int] = {}
    for g in pending:
        name = stream_name(g.object)
        first[name] = min(g.arrived, first.get(name, g.arrived))
    return sorted(first, key=first.__getitem__)


def _sum(groups: list[Group]) -> tuple[int, frozenset[str]]:
    """Return the number of messages in some groups, and the names in them."""
    return sum(g.count for g in groups), frozenset(n for g in groups for n in g.columns)


def run(book: Workbook) -> list[TableResult]:
    """Apply what is after the tables' positions, read once for all, up to `max_batches` passes.

    With `run_for_s` it polls every `trigger_s` seconds for that long, or until an interrupt or SIGTERM, or until
    nothing was applied for `idle_s` seconds. A failed table is tried again after a pause that doubles up to a minute.
    """
    s, run, trouble = book.settings, _Run(book), None
    until = time.monotonic() + s.run_for_s
    applied, batches = time.monotonic(), 0
    with book.interruptible():
        while not book.stop.is_set():
            began, more = time.monotonic(), False
            try:
                more, trouble = run.one_pass(), None
            except Exception as e:
                if not s.run_for_s or (isinstance(e, FrazilError) and not isinstance(e, UnreachableError)):
                    raise
                trouble = e
                book.progress(f"the stream cannot be read, trying again: {jvm.cause(e)}")
            if run.batches != batches:
                applied, batches = time.monotonic(), run.batches
            if s.max_batches and run.passes >= s.max_batches:
                break
            if not more:
                if time.monotonic() >= min(until, asleep(applied, s.idle_s)):
                    break
                if time.monotonic() - run.settled > SETTLE_S:
                    run.settle()
                book.stop.wait(max(0.0, min(began + s.trigger_s, until) - time.monotonic()))
    if trouble:
        raise trouble
    run.settle()
    book.lanes.save()
    return list(run.total.values())
