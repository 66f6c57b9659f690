"""Shows a step of a notebook on a few values before it runs: a batch or a load, stage by stage, and what maintenance rewrites.

The functions of a run read the first records of the first files. Nothing is changed. A preview never stops a notebook:
what cannot be shown is a sentence.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from frazil_old.config.lake_types import lake_type
from frazil_old.config.paths import readable
from frazil_old.config.timestamps import clock
from frazil_old.core.masks import java_real
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil_old.dms.pending_changes import AppliedState, with_known_loads
from frazil_old.engine import load_files as engine
from frazil_old.engine.collapsed_batch import lake_columns
from frazil_old.engine.preview_sample import Key, Place, Sample, SampleRecord, read_sample
from frazil_old.engine.read_files import plan_files
from frazil_old.engine.write_rows import write_elsewhere
from frazil_old.errors import HIDDEN, many, nearest
from frazil_old.flows import bad_row_limits
from frazil_old.flows.file_batch import next_batch, size_of, to_write
from frazil_old.flows.preview_stages import Stage, beside, failed, size, stage
from frazil_old.flows.schema_changes import shape
from frazil_old.flows.workbook import Workbook
from frazil_old.lake.lane_choice import LANES
from frazil_old.lake.tables import TableState, load, read_table_state

if TYPE_CHECKING:
    import pyarrow as pa

MOST_FILES = 10
"""The number of files whose first records may be read."""
SHOWN, OF_ONE_KEY, LONGEST = 8, 5, 60
"""Number of rows that a stage shows, the most of them that have one key, and the length at which a value is cut."""
OPERATIONS = {"I": "insert", "U": "update", "D": "delete"}
BAD = "bad row"
"""The column of a stage that says what is wrong with a record."""
NOTHING = Stage("nothing to show")


class _Preview(ABC):
    """The next files of one table, and a sample of their records, as far as they can be read; `why` they cannot.

    The table is the one that has most to do by its plan, or `table`.
    """

    phase: int
    planned: str
    word: str
    whole_word: str
    none: str

    def __init__(self, book: Workbook, plan: Sequence[dict[str, Any]], table: str = ""):
        self.book, self.spec, self.taken, self.left = book, None, (), 0
        self.sample: Sample | None = None
        self.why = NOTHING
        what = self.planned
        ready = [r for r in plan if r.get(what) and not r["decision"] and not r["action"].startswith("waiting")]
        ready = [r for r in ready if r["table"] == (table or r["table"])]
        if book.stream:
            self.why = Stage("the tables are read from a stream, whose messages are not shown here")
        elif table and table not in book.specs:
            self.why = Stage(f"no table '{table}': {nearest(table, book.specs)}")
        elif not ready:
            self.why = Stage(self.none)
        else:
            self.spec = book.specs[max(ready, key=lambda r: (r[what], r["mb"]))["table"]]
            try:
                self._read()
            except Exception as error:
                self.why = failed(error)

    @abstractmethod
    def _take(self) -> TableState | None:
        """Take the files of the batch or load as a run does; return the table's state."""

    def _read(self) -> None:
        base, book = self._take(), self.book
        if self.phase == CHANGE_PHASE and book.endpoint.no_sup_value is not None:
            self.why = Stage("rows of these files may lack columns, and keep what the lake has there")
            return
        files = list(self.taken[:MOST_FILES])
        self.spec = spec = shape(book, self.spec, base, files, self.phase).spec
        self.sample = read_sample(spec, *plan_files(book.source_table(spec), files, self.phase), files)

    # --- stages

    @stage
    def files(self, most: int = SHOWN) -> Stage:
        """Return the files of the batch or load."""
        if not self.taken:
            return self.why
        total = size(sum(f.size for f in self.taken))
        more = f"; {self.left:,} more wait for later batches" if self.left else ""
        rows = [
            {"file": f.name, "landed": clock(f.landed * 1000) if f.landed else None, "size": size(f.size)}
            for f in self.taken[:most]
        ]
        return Stage(f"{self.spec.source}: {self.whole_word} is {many(self.taken, 'file')} of {total}{more}", rows)

    @stage
    def records(self, most: int = SHOWN) -> Stage:
        """Return records as DMS wrote them, with the names of their fields."""
        if not self.sample:
            return self.why if self.taken else NOTHING
        some = "all" if self.whole else "the first"
        sentence = f"{some} {many(self.sample.records, 'record')} of {many(self.sample.files, 'file')}"
        if key := self._example():
            sentence += f"; {len(self.sample.places_by_key[key])} of them are of key {self._shown_key(key)}"
        return Stage(sentence, [self._record(r) for r in self._chosen(most)])

    def _typed(self, most: int) -> Stage:
        if not self.sample:
            return NOTHING
        bad = [r for r in self.sample.records if r.bad]
        sentence = f"{many(self.sample.changes, self.word)} in these records"
        if bad:
            aside = bad_row_limits.quarantines_bad_rows(self.book, self.spec)[0]
            sentence += (
                f"; {many(bad, BAD)}, to be quarantined" if aside else f"; {many(bad, BAD)}: the table will stop"
            )
        chosen = self._chosen(most)
        good = [r.index for r in chosen if r.index is not None]
        values = dict(zip(good, self._values(self.sample.changes, good), strict=True))
        return Stage(sentence, [self._change(r, values.get(r.index, {})) for r in chosen])

    @property
    def whole(self) -> bool:
        """Whether the sample has all records of the batch or load."""
        return self.sample is not None and self.sample.whole and len(self.taken) <= MOST_FILES

    # --- rows

    def _place(self, place: Place) -> dict[str, Any]:
        return {"file": self.taken[place[0]].name, "row": str(place[1])}

    def _record(self, record: SampleRecord) -> dict[str, Any]:
        fields, roles = self.sample.fields(record.place), self.sample.files[record.place[0]].roles
        names = {"op": self.book.endpoint.op_column, "ts": self.book.endpoint.timestamp_column, "seq": "sequence"}
        unsure = record.bad is not None and self.spec.has_hidden_columns  # a field of a bad row may be another column's
        values: dict[str, Any] = {}
        for role, value in zip(roles, fields or (), strict=bool(fields)):
            image, _, column = role.partition(":")
            if role in names or column in self.spec.names:  # what the lake leaves out is not shown either
                name = names.get(role) or (f"{column} before" if image == "before" else column)
                masked = column in self.spec.names and self.spec.column(column).mask
                values[name] = HIDDEN if unsure or masked else _text(value)
        reason = {BAD: record.bad.reason} if record.bad else {}
        return beside({**self._place(record.place), **reason}, values)

    def _change(self, record: SampleRecord, values: dict[str, Any]) -> dict[str, Any]:
        facts = self._place(record.place)
        if record.bad:
            return {**facts, BAD: record.bad.reason}
        typed = {f"{c.name}: {lake_type(c)}": values[c.name] for c in self.spec.columns}
        return beside({**facts, **self._facts(record)}, typed)

    def _facts(self, record: SampleRecord) -> dict[str, Any]:
        return {}

    def _values(self, rows: pa.Table | None, places: Sequence[int]) -> list[dict[str, Any]]:
        """Return some rows' columns as the lake holds them, as texts."""
        import pyarrow as pa

        found: list[dict[str, Any]] = [{} for _ in places]
        columns = lake_columns(rows.take(pa.array(places)), self.spec).values() if places else ()
        for name, column in zip(self.spec.names, columns, strict=bool(places)):
            for row, value in zip(found, column.to_pylist(), strict=True):
                row[name] = _text(value, pa.types.is_float32(column.type))
        return found

    # --- which rows are shown

    def _example(self) -> Key | None:
        """Return the key with most changes; None if each has one."""
        places = self.sample.places_by_key if self.spec.policy == "key" else {}
        key = max(places, key=lambda k: len(places[k]), default=None)
        return key if key is not None and len(places[key]) > 1 else None

    def _chosen(self, most: int) -> list[SampleRecord]:
        """Return the records to show, in order: those of the example's key, bad rows, one per operation, the first."""
        key, records = self._example(), self.sample.records
        followed = set(self.sample.places_by_key[key][-OF_ONE_KEY:] if key else ())
        of_key = [r for r in records if r.place in followed]
        ops = self.sample.changes["op"].to_pylist()
        first_of_each = {ops[r.index]: r for r in reversed(records) if r.index is not None}.values()
        wanted = [*of_key, *[r for r in records if r.bad][:2], *first_of_each, *records]
        return sorted(list(dict.fromkeys(wanted))[:most], key=lambda r: r.place)

    def _shown_key(self, key: Key) -> str:
        parts = [HIDDEN if self.spec.column(k).mask else _text(v) for k, v in zip(self.spec.key, key, strict=True)]
        return ", ".join(map(str, parts))


class Batch(_Preview):
    """The next batch of a table, from files to what it writes."""

    phase, planned, word, whole_word = CHANGE_PHASE, "changes", "change", "the next batch"
    none = "no change file is to be applied now"

    def _take(self) -> TableState:
        book, spec = self.book, self.spec
        base = read_table_state(book.spark, book.name(spec))
        state = AppliedState(book.name(spec), spec.source, base.position, base.stored, base.record)
        there, _ = with_known_loads(book.objects(spec, base.position, record=base.record), state)
        pending = book.require_applicable(spec, state, there).pending
        self.taken, self.base = next_batch(book, spec, pending), base
        self.left = len(pending) - len(self.taken)
        return base

    @cached_property
    def lane(self) -> tuple[str, str]:
        """By what the commit will find the old rows, and why."""
        book, spec = self.book, self.spec
        batch = to_write(book, spec, size_of(self.taken), self.taken)
        return book.lanes.expect(book.name(spec), spec, batch, self.base)

    @stage
    def changes(self, most: int = SHOWN) -> Stage:
        """Return the changes in the records: typed, in order, with what replaces each."""
        return self._typed(most)

    def _facts(self, record: SampleRecord) -> dict[str, Any]:
        row, place = self.sample.changes.slice(record.index, 1), record.place
        word, by = OPERATIONS[row["op"][0].as_py()], None
        if self.spec.policy == "key":
            by = self.sample.outlived.get(place)
            if place in self.sample.left:
                (old,) = self._values(self.sample.steps, [self.sample.left[place]])
                word += f" of the key, was {', '.join(str(old[k]) for k in self.spec.key)}"
        where = "" if by is None or by[0] == place[0] else f" of {self.taken[by[0]].name}"
        return {
            "operation": word,
            "source commit": _text(row["commit_ts"][0].as_py()),
            "replaced by": f"row {by[1]}{where}" if by else "",
        }

    @stage
    def latest(self, most: int = SHOWN) -> Stage:
        """Return the latest row per key, of the keys that the other stages show."""
        if reason := self._without_latest():
            return reason
        rows, by_key = self.sample.latest.rows, self.sample.places_by_key
        shown = {r.place for r in self._chosen(most)}
        keys = self.sample.keys_of(rows)
        places = [i for i, key in enumerate(keys) if shown.intersection(by_key[key])]
        ops = rows["op"].to_pylist()
        found = [
            self._key_row(values, ops[i], by_key[keys[i]])
            for i, values in zip(places, self._values(rows, places), strict=True)
        ]
        sentence = f"{many(self.sample.changes, 'change')} of {many(keys, 'key')}: the last one of each key is applied"
        return Stage(sentence, found)

    def _key_row(self, values: dict[str, Any], op: str, places: list[Place]) -> dict[str, Any]:
        facts = {"changes": len(places), "last": "row {row} of {file}".format(**self._place(places[-1]))}
        facts["then"] = "delete the row" if op == "D" else "write the row"
        return beside(facts, {n: v for n, v in values.items() if op != "D" or n in self.spec.key})

    def _without_latest(self) -> Stage | None:
        """Return why no row per key is shown; None if one is."""
        if not self.sample:
            return NOTHING
        if self.spec.policy == "append":
            return Stage("the table has no key: each change becomes a row (without_key: append)")
        if self.spec.policy == "multiset":
            return Stage("the table has no key: whole rows are compared (without_key: multiset)")
        return None if self.sample.changes else Stage("these records have no change to apply")

    @stage
    def written(self) -> Stage:
        """Return what a run writes for the records of the sample, and how."""
        if not self.sample:
            return NOTHING
        lane, why = self.lane
        how = f"{LANES[lane]} ({'parameter lane' if why == 'set' else why})"
        if reason := self._without_latest():
            return Stage(f"{reason.sentence}; in one commit by {how}")
        ops = self.sample.latest.rows["op"].to_pylist()
        counts = {
            "rows to write": (len(ops) - ops.count("D"), "the last change of their key is an insert or an update"),
            "keys to delete": (ops.count("D"), "the last change of their key is a delete, or gave the row another key"),
            "replaced changes": (len(self.sample.outlived), "a later change of their key came after them"),
        }
        rows = [{"what": what, "how many": count, "because": because} for what, (count, because) in counts.items()]
        what = "the batch" if self.whole else f"the first {many(self.sample.records, 'record')} of the batch"
        return Stage(f"{what}: {many(self.sample.changes, 'change')}, in one commit by {how}", rows)


class Load(_Preview):
    """The load of a table, from files to data files."""

    phase, planned, word, whole_word = LOAD_PHASE, "load", "row", "the load"
    none = "no table is to be loaded now"

    def _take(self) -> TableState | None:
        self.taken = self.book.objects(self.spec).loads
        return read_table_state(self.book.spark, self.book.name(self.spec)) if self.book.exists(self.spec) else None

    @stage
    def rows(self, most: int = SHOWN) -> Stage:
        """Return the rows in the records, typed and masked."""
        return self._typed(most)

    @stage
    def written(self, most: int = SHOWN) -> Stage:
        """Return the data files that the sample's rows make; they are written to a temporary folder, and deleted."""
        if not self.sample or not self.sample.changes:
            return NOTHING
        table = load(self.book.spark, self.book.name(self.spec))
        if reason := engine.why_spark_writes(table):
            return Stage(f"Spark writes the data files of this load: {reason}")
        plan = engine.write_plan(self.book.spark, table)
        with tempfile.TemporaryDirectory() as folder:
            entries = write_elsewhere(self.sample.changes, self.spec, plan, folder)
        parts = [e["file-path"].split(folder, 1)[1].removeprefix("/data/").rpartition("/")[0] for e in entries]
        rows = [
            {"partition": part or "none", "rows": e["record-count"], "size": size(e["file-size-in-bytes"])}
            for part, e in zip(parts, entries, strict=True)
        ]
        total = size(sum(e["file-size-in-bytes"] for e in entries))
        sentence = f"{many(self.sample.changes, 'row')} in {many(entries, 'Parquet file')} of {total}"
        return Stage(f"{sentence}; the load writes below {readable(table.location())}/data, in one commit", rows[:most])


# --- texts


def _text(value: Any, single: bool = False) -> str | None:
    """Return a value as a short text without separators; null stays None, and an empty text is quoted."""
    if value is None:
        return None
    texts: dict[type, Callable[[Any], str]] = {
        bytes: lambda v: v.hex(), bool: lambda v: str(v).lower(), Decimal: lambda v: f"{v:f}",
        float: lambda v: java_real(v, single), datetime: lambda v: v.isoformat(" "),
    }  # fmt: skip
    text = texts.get(type(value), str)(value)
    return '""' if text == "" else text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
