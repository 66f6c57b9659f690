"""Histories of a lake: steps of the source, of the library and of others, each done to the tables and to a model of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from dms_writer import LOAD, NO_RULES, D, I, U, file_name
from model import Model
from world import World

KEYS = 12
"""Keys that the source uses; others write the next ones."""
VALUES = ("plain", "", None, 'say "hi", twice', "two\nlines", "Zürich 東京", "NULL", " padded ", "x" * 300)
BIG, WORD = 3_000_000_000, "word"
"""Values that no INT4 has: a wider type takes the first."""
LATE = "timestamp '2999-01-01 00:00:00'"


@dataclass(frozen=True)
class Shape:
    """The columns of a table, its key, its partitions, and the n-th key."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    nth: Callable[[int], tuple]
    partition: tuple[str, ...] = ()


SHAPES = {
    "plain": Shape(("id INT8", "n INT4", "v WSTRING(400)"), ("id",), lambda i: (i * 10**15,)),
    "text": Shape(("k WSTRING(40)", "n INT4", "v WSTRING(400)"), ("k",), lambda i: (f"k'{i}, \"é\"",), ("truncate(2, v)",)),
    "pair": Shape(("a INT4", "b WSTRING(9)", "n INT4", "v WSTRING(400)"), ("a", "b"), lambda i: (i % 3, f"x{i // 3}"), ("bucket(2, a)",)),
    "amount": Shape(("p NUMERIC(12,2)", "n INT4", "v WSTRING(400)"), ("p",), lambda i: (Decimal(i * 5 - 25).scaleb(-2),)),
}  # fmt: skip


@dataclass
class Table:
    """What a history knows of one table beside its rows."""

    shape: Shape
    source: dict[tuple, tuple] = field(default_factory=dict)
    """The rows of the source database, by key."""
    files: list = field(default_factory=list)
    """The change files, in order."""
    applied: int = 0
    """How many of them are applied."""
    uncertain: set[tuple] = field(default_factory=set)
    """Keys that were deleted or given away since the row ids were seen: a later row of theirs may have another id."""
    row_ids: dict[tuple, int] = field(default_factory=dict)
    states: dict[int, tuple] = field(default_factory=dict)
    """By snapshot: the state of the model, and how many files were applied."""
    metadata: str = ""
    """The metadata file that was seen last; `rows` and `left` are what it had, and left over."""
    rows: list[tuple] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    gap: bool = False
    """Whether an expiry of others may have removed the link from main to the position."""


def _table(dice: random.Random) -> dict:
    return {"table": dice.choice(list(SHAPES))}


STEPS: dict[str, tuple[int, Callable[[random.Random], dict]]] = {
    "batch": (
        6,
        lambda dice: {"seed": dice.randrange(10**6), "count": dice.randint(1, 9), "files": dice.choice((1, 1, 3))},
    ),
    "bad_batch": (3, lambda dice: {"seed": dice.randrange(10**6)}),
    "write": (2, lambda dice: {**_table(dice), "seed": dice.randrange(10**6), "count": dice.randint(1, 9)}),
    "repeat": (1, _table),
    "merge_twice": (1, lambda dice: {}),
    "new_process": (2, lambda dice: {}),
    "maintain": (2, lambda dice: {}),
    "reload": (1, _table),
    "replay": (2, _table),
    "add_column": (1, _table),
    "rename_column": (1, _table),
    "insert": (2, lambda dice: {**_table(dice), "nth": dice.randrange(4)}),
    "delete": (1, lambda dice: {**_table(dice), "below": dice.randint(1, 40)}),
    "update": (1, lambda dice: {**_table(dice), "below": dice.randint(1, 40)}),
    "rewrite": (1, _table),
    "expire": (1, _table),
    "remove_orphans": (1, _table),
    "roll_back": (3, lambda dice: {**_table(dice), "back": dice.randrange(4)}),
}
"""Each step: how often it is taken, and its arguments by chance."""


class History:
    """Tables of several shapes in one world, and the steps that were done."""

    def __init__(self, world: World, kind: str):
        self.world, self.kind, self.steps, self.number = world, kind, [], 0
        self.partial, self.stream = "partial" in kind, bool(world.stream)
        self.tables = {name: Table(shape) for name, shape in SHAPES.items()}
        if self.partial:
            world.source.rules = NO_RULES
        for name, t in self.tables.items():
            world.table(name, *t.shape.columns, key=t.shape.key, partition=list(t.shape.partition))
        target, rules = (None, None) if self.stream else (world.source.settings, world.source.rules)
        self.model = Model(world.specs, target, rules, quarantines=True)
        for name in self.tables:
            self._load(name, 6)
        world.loaded()
        if self.stream:
            self.merge()
        self._seen()

    # --- what the source does

    def batch(self, seed: int, count: int, files: int = 1, bad: bool = False) -> None:
        """Write change files of every table, and apply them."""
        for number, table in enumerate(self.tables):
            for file in range(files):
                self.write(table, seed + 10 * number + file, count, bad and not self.partial)
        self.merge()

    def write(self, table: str, seed: int, count: int = 4, bad: bool = False) -> None:
        """Write a change file of some changes; with `bad`, values that do not fit are among them."""
        t, dice = self.tables[table], random.Random(seed)
        changes = [self._change(table, dice, bad) for _ in range(count)]
        if self.stream:
            self._send(table, lambda partition: self.world.source.changes(table, *changes, partition=partition))
            return
        self.number += 1
        t.files.append(self.world.source.changes(table, *changes, name=file_name(self.number)))

    def bad_batch(self, seed: int) -> None:
        """Write change files with values that do not fit, and apply them."""
        self.batch(seed, 5, bad=True)

    def _send(self, table: str, send: Callable[[int], None]) -> None:
        """Send messages of a table to its partition, and keep them as a file of their own."""
        before = len(self.world.source.sent)
        send(list(self.tables).index(table))
        self.tables[table].files.append([raw for _, raw in self.world.source.sent[before:]])

    def repeat(self, table: str) -> None:
        """Write the rows of the last file once more, under a new name, as a resumed task does."""
        t = self.tables[table]
        if not t.files:
            return
        if self.stream:
            again = t.files[-1]
            self._send(table, lambda partition: [self.world.source.send(raw, partition) for raw in again])
            return
        self.number += 1
        t.files.append(self.world.source.write(table, file_name(self.number), t.files[-1].read_bytes()))

    def _change(self, table: str, dice: random.Random, bad: bool):
        t = self.tables[table]
        key, kind = t.shape.nth(dice.randrange(KEYS)), dice.random()
        at = {
            "ts": f"2024-01-01 09:{dice.randrange(60):02d}:{dice.randrange(60):02d}.{dice.randrange(10**6):06d}"
        }  # no order
        if key in t.source and kind < 0.25:
            del t.source[key]
            t.uncertain.add(key)
            return D(*key, **at)
        free = [k for k in map(t.shape.nth, range(KEYS)) if k not in t.source]
        if key in t.source and free and kind < 0.4 and not self.partial:
            new = dice.choice(free)
            t.source[new] = (dice.randrange(99), dice.choice(VALUES))
            del t.source[key]
            t.uncertain |= {key, new}
            return U(*new, *t.source[new], was=key if len(key) > 1 else key[0], **at)
        row = [dice.randrange(99), dice.choice(VALUES)]
        known, t.source[key] = key in t.source, tuple(row)
        if bad and dice.random() < 0.4:
            row[0] = dice.choice((BIG, WORD))
            t.uncertain.add(key)
        if known and self.partial and dice.random() < 0.6:
            row[dice.randrange(2)] = self.world.source.settings["CsvNoSupValue"]
        return (U if known else I)(*key, *row, **at)

    def _load(self, table: str, count: int) -> None:
        t = self.tables[table]
        rows = [(*k, *v) for k, v in t.source.items()]
        rows = rows or [(*t.shape.nth(i), i, f"loaded {i}") for i in range(count)]
        width = len(t.shape.key)
        t.source = {r[:width]: r[width:] for r in rows}
        if self.stream:
            self._send(table, lambda partition: self.world.source.load(table, *rows, partition=partition))
            return
        self.model.load(table, [self.world.source.load(table, *rows, name=LOAD)])

    # --- what the library does

    def merge(self) -> None:
        """Apply what is pending."""
        results = self.world.merge()
        for table, result in results.items():
            if not result.went_well and result.code == "history-gone" and self.tables[table].gap:
                self.world.cure(result)
                result = self.world.merge(tables=[table])[table]
            self._require(result.went_well, f"{table} is {result.status}: {result.note}")
            self._applied(table)
            self.tables[table].gap = False

    def merge_twice(self) -> None:
        """Apply what is pending, and then nothing."""
        self.merge()
        found = {r.status for r in self.world.merge().values()}
        self._require(found == {"unchanged"}, f"a second run found {found}")

    def new_process(self) -> None:
        """Go on in another process."""
        self.world.new_process()

    def maintain(self) -> None:
        """Compact and expire what may be."""
        for table, result in self.world.maintain().items():
            self._require(result.went_well, f"{table} is {result.status}: {result.note}")

    def reload(self, table: str) -> None:
        """Let DMS load a table again, and take the new load."""
        if self.stream:
            return
        self.merge()
        self._load(table, 0)
        result = self.world.decide(table, restart="pending")
        self._require(result.went_well, f"{table} is {result.status}: {result.note}")
        self._forget_ids(table)

    def replay(self, table: str) -> None:
        """Widen the type that bad rows do not fit, and read them again; then discard what is still bad."""
        self.merge()
        self.world.column(table, "n", type="INT8")
        for t, result in self.world.setup().items():
            self._require(result.went_well, f"{t} is {result.status}: {result.note}")
        self.model.correct_columns(table)
        self.model.replay(table)
        self._require(self.world.decide(table, replay=True).went_well, f"the replay of {table}")
        self._waiting(table)
        self.model.discard(table)
        self._require(self.world.decide(table, discard=True).went_well, f"the discard of {table}")

    def add_column(self, table: str) -> None:
        """Add a column to the source and to the spec."""
        spec, name = self.world.specs[table], f"extra{self.number}"
        if self.stream or any(c["name"] == name for c in spec["columns"]):
            return
        self.merge()
        self.world.declare(table, columns=[*spec["columns"], {"name": name, "type": "WSTRING(9)"}])
        self._follow(table)

    def rename_column(self, table: str) -> None:
        """Rename the last column, at the source and in the spec."""
        if self.stream:
            return
        self.merge()
        *others, last = self.world.specs[table]["columns"]
        new = f"{last['name']}_new"
        partition = [p.replace(last["name"], new) for p in self.world.specs[table]["partition"]]
        if len(new) < 40 and not partition:
            self.world.declare(table, columns=[*others, {**last, "name": new, "renamed_from": last["name"]}])
            self._follow(table)

    def _follow(self, table: str) -> None:
        for t, result in self.world.setup().items():
            self._require(result.went_well, f"{t} is {result.status}: {result.note}")
        self.model.correct_columns(table)
        self.tables[table].states.clear()  # what a rollback over a change of columns does is another test

    # --- what others do

    def insert(self, table: str, nth: int) -> None:
        """Let another writer insert a row of a key that is not there."""
        t = self.tables[table]
        key = t.shape.nth(KEYS + nth % 4)
        if key in self.model.keys(table) or len(self.world.specs[table]["columns"]) != len(t.shape.columns):
            return
        self.world.sql(f"INSERT INTO {{t}} VALUES ({', '.join(map(_sql, (*key, nth, 'theirs')))})", table)
        self.model.foreign_put(table, (*key, nth, "theirs"))

    def delete(self, table: str, below: int) -> None:
        """Let another writer delete some rows."""
        self.world.sql(f"DELETE FROM {{t}} WHERE n < {below}", table)
        self.model.foreign_delete(table, lambda row: row["n"] is not None and row["n"] < below)

    def update(self, table: str, below: int) -> None:
        """Let another writer change some rows by MERGE."""
        self.world.sql(
            f"MERGE INTO {{t}} t USING (SELECT 1 x) s ON t.n < {below} WHEN MATCHED THEN UPDATE SET n = -7", table
        )
        width = len(self.tables[table].shape.key)
        for row in self.model.rows(table):
            if row[width] is not None and row[width] < below:
                self.model.foreign_put(table, (*row[:width], -7, *row[width + 1 :]))

    def rewrite(self, table: str) -> None:
        """Let another writer compact the table."""
        self.world.call("rewrite_data_files", table, "options => map('rewrite-all', 'true')")

    def expire(self, table: str) -> None:
        """Let another writer expire all snapshots that it may."""
        self.world.call("expire_snapshots", table, f"older_than => {LATE}, retain_last => 1")
        self.tables[table].gap = True

    def remove_orphans(self, table: str) -> None:
        """Let another writer remove all files that it takes for orphans: those older than four days."""
        self.world.call("remove_orphan_files", table)

    def roll_back(self, table: str, back: int) -> None:
        """Let another writer roll the table back; the next run stops, and goes on by the statement of its error."""
        t = self.tables[table]
        line = [s.snapshot_id for s in self.world.history(table)]
        known = [i for i in line[1:] if i in t.states]
        if not known or t.gap:
            return
        to = known[back % len(known)]
        passed = self.world.position(table) != t.states[to][2]
        self.world.call("rollback_to_snapshot", table, f"snapshot_id => {to}")
        state, t.applied, _ = t.states[to]
        self.model.restore(table, state)
        self._forget_ids(table)
        if passed:
            result = self.world.merge(tables=[table])[table]
            self._require(result.code == "rolled-back", f"{table} was rolled back: {result.status} {result.note}")
            self.world.cure(result)
            self.merge()

    # --- what must be true after each step

    def by_chance(self, *seeds: int) -> None:
        """Do the step that these seeds choose."""
        dice = random.Random(repr(seeds))
        name = dice.choices(list(STEPS), [often for often, _ in STEPS.values()])[0]
        self.done(name, **STEPS[name][1](dice))

    def done(self, name: str, **arguments) -> None:
        """Do a step, and compare all tables with the model."""
        self.steps.append([name, arguments])
        print(name, *arguments.values(), flush=True)
        getattr(self, name)(**arguments)
        self._seen(all_files=name in ("expire", "remove_orphans", "maintain"))

    def _applied(self, table: str) -> None:
        t = self.tables[table]
        for raw in [m for messages in t.files[t.applied :] for m in messages] if self.stream else []:
            self.model.message(raw)
        if not self.stream and t.files[t.applied :]:
            self.model.apply(t.files[t.applied :], table)
        t.applied = len(t.files)

    def _seen(self, all_files: bool = True) -> None:
        """Compare the tables with the model. Read those whose metadata changed, or all, if files may have been removed."""
        for table, t in self.tables.items():
            before, t.metadata = t.metadata, self.world.metadata_file(table)
            if before != t.metadata or all_files:
                t.rows, t.left = self.world.rows(table), self.world.leftovers(table)
                self._same_ids(table)
            found, right = t.rows, self.model.rows(table)
            many, few = [r for r in found if r not in right], [r for r in right if r not in found]
            self._require(
                found == right, f"{table}: too many {many[:3]}, missing {few[:3]}, {len(found)} rows, not {len(right)}"
            )
            at, last = self.world.position(table), t.files[t.applied - 1].name if t.applied and not self.stream else ""
            self._require(self.stream or at["last"] == last, f"{table}: the position is {at}, the model's {last}")
            self._require(not t.left, f"{table}: left over: {t.left}")
            self._waiting(table)
            t.states[self.world.history(table)[0].snapshot_id] = self.model.state(table), t.applied, at

    def _waiting(self, table: str) -> None:
        found, right = self.world.quarantine(table), self.model.waiting(table)
        places = [(r["file"], r["row"]) for r in found], [(w.file, w.row) for w in right]
        alike = len(found) == len(right) if self.stream else places[0] == places[1]
        self._require(alike, f"{table}: {places[0]} wait, and should {places[1]}")

    def _same_ids(self, table: str) -> None:
        t = self.tables[table]
        if self.world.settings["format_version"] < 3:
            return
        ids = self.world.row_ids(table)
        moved = {k: (i, ids[k]) for k, i in t.row_ids.items() if k in ids and ids[k] != i and k not in t.uncertain}
        self._require(not moved, f"{table}: row ids moved: {moved}")
        t.row_ids = ids
        if t.applied == len(t.files):
            t.uncertain = set()

    def _forget_ids(self, table: str) -> None:
        self.tables[table].row_ids = {}

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise AssertionError(f"{what}\nto repeat it: {self.script()}")

    def script(self) -> str:
        """Return the command that does these steps again."""
        steps = json.dumps([self.kind, self.steps])
        return f"FRAZIL_HISTORY='{steps}' python -m pytest tests/test_history.py -k given"


def _sql(value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int | Decimal):
        return str(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
