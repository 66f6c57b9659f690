"""Rows that wait in quarantine: random histories against a plain replay, and what waits in each form of file."""

import io
import random

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from frazil.core.changes import concat
from frazil.dms.endpoint import S3Target
from frazil.dms.mappings import resolve
from frazil.dms.source_file import SourceTable
from frazil.dms.storage import Storage
from frazil.engine.read import TableReader
from frazil.engine.replay_files import WAITING, BatchFiles, as_files
from frazil.pipeline import quarantine
from frazil.pipeline.quarantine import doubted_keys, kept, replayable
from frazil.pipeline.waiting_keys import BEHIND, NOT_STORED
from frazil.settings.spec import TableSpec

TIME, LARGE = "2024-01-01 09:59:00.000000", 3_000_000_000
TYPES = ["44", "48", "84", "88"]
"""The bytes of the columns a and b: LARGE fits into 8, and not into 4."""
IMAGE = {"rule-action": "add-before-image-columns", "before-image-def": {"column-prefix": "BI_"}}
TARGET = {"TimestampColumnName": "ts", "CsvNullValue": "NULL", "UseCsvNoSupValue": True, "CsvNoSupValue": "?"}


class House:
    """A table in memory, and the rows that wait for it."""

    def __init__(self, **target):
        self.target, self.rows, self.waiting, self.number = TARGET | target, {}, WAITING.empty_table(), 0
        self.storage = Storage("memory", MemoryStore())

    def reader(self, types="44", storage=None):
        columns = [{"name": n, "type": f"INT{size}"} for n, size in zip(["id", *"ab"], f"8{types}", strict=True)]
        spec = TableSpec(source="public.t", key="id", columns=columns)
        table = SourceTable(spec, resolve([IMAGE], spec), S3Target.model_validate(self.target))
        return TableReader(storage or self.storage, table)

    def batch(self, *contents, types="44", name="20240101-1{:08}.csv"):
        """Write files of one batch, and apply them; return the rows that wait then."""
        self.number += 1
        paths = [f"public/t/{name.format(self.number * 1000 + n)}" for n in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            obstore.put(self.storage.store, path, content if isinstance(content, bytes) else content.encode())
        self.apply([file for file in self.storage.files("") if file.path in paths], types)
        return self.waiting

    def apply(self, files, types, replay=None, before=None):
        """Apply a batch; return how many rows of it wait."""
        reader = self.reader(types, replay and replay.storage)
        of = BatchFiles(reader, files, [reader.columns(file) for file in files], self.number, replay)
        read = [reader.read(file, of.columns[n], number=n) for n, file in enumerate(files)]
        changes, doubted, places = concat([part for parts in read for part in parts]), set(), [0]
        while len(places):
            found = kept(self.waiting if before is None else before, changes, of, ("id",), doubted)
            places = self._write(found.latest)
            doubted |= doubted_keys(found.latest, places)
        self.waiting = found.waiting
        return found.added

    def replay(self, types):
        rows, stay = replayable(self.waiting)
        again = as_files(rows, self.reader())
        return self.apply(again.files, types, again, stay) if len(rows) else 0

    def _write(self, last):
        """Write rows, or return the places of those whose stored rows are missing."""
        new, partial = last.rows.to_pylist(), last.partial
        if partial:
            stored = [self.rows.get(key) for key in partial.stored["id"].to_pylist()]
            lacks = np.any([*partial.missing.values()], axis=0)
            if len(places := np.flatnonzero(partial.lost | (lacks & np.array([row is None for row in stored], bool)))):
                return places
            for n, name in [(n, name) for name, mask in partial.missing.items() for n in np.flatnonzero(mask)]:
                new[n][name] = stored[n][name]
        for key in last.keys["id"].to_pylist():
            self.rows.pop(key, None)
        self.rows |= {row["id"]: row for row in new}
        return np.empty(0, int)

    @property
    def shown(self):
        return sorted((*row.values(),) for row in self.rows.values())

    def is_as(self, stored):
        assert (self.shown, len(self.waiting)) == (sorted((k, *v) for k, v in stored.items()), 0)


def line(op, key, a=0, b=0, was=""):
    return f"{op},{TIME},{key},{a},{b},{was}\n"


def change(rng, stored):
    """Return a change as the source makes it, and make it in `stored`."""
    free, kind = [key for key in range(5) if key not in stored], rng.choice("IUPPDMM" if stored else "I")
    key, new = rng.choice([*stored] or [0]), rng.choice(free or [None])
    if new is None and kind in "IM":
        return change(rng, stored)
    values = [rng.choice([1, 2, LARGE + rng.randrange(9)]) for _ in "ab"]
    lacks = [kind == "P" or (kind == "M" and rng.random() < 0.7) for _ in values]
    lacks[rng.randrange(2)] &= rng.random() < 0.5
    if kind == "I":
        stored[new] = values
        return line("I", new, *values)
    old = stored.pop(key)
    if kind == "D":
        return line("D", key)
    goes_to, was = (new, key) if kind == "M" else (key, "")
    stored[goes_to] = [o if lack else v for o, lack, v in zip(old, lacks, values, strict=True)]
    return line("U", goes_to, *("?" if lack else v for lack, v in zip(lacks, values, strict=True)), was)


@pytest.mark.parametrize("seed", range(40))
def test_a_history_ends_as_if_no_row_had_been_bad(seed):
    rng, house, stored = random.Random(seed), House(), {}
    for types in rng.choices([*TYPES, "44"], k=rng.randrange(2, 12)):
        counts = [rng.randrange(1, 7) for _ in range(rng.randrange(1, 3))]
        house.batch(*("".join(change(rng, stored) for _ in range(count)) for count in counts), types=types)
        again = rng.choice([*TYPES, *("not",) * 6])
        if again in TYPES:
            house.replay(again)
        if again == "88":
            house.is_as(stored)
    house.replay("88")
    house.is_as(stored)


@pytest.mark.parametrize(("header", "one"), [("", ","), ("Op,ts,id,a,b,BI_id\n", ","), ("Op|ts|id|a|b|BI_id\n", "|")])
def test_bytes_are_kept_and_read_again_with_the_names_of_their_file(header, one):
    house = House(AddColumnName=bool(header), CsvDelimiter=one)
    bad = line("U", 2, LARGE, '"5"').replace(",", one)
    found = house.batch(header + line("I", 1, 1, 1).replace(",", one) + bad)
    (row,) = found.to_pylist()
    assert (row["raw"], row["number"], row["keys"]) == (bad[:-1].encode(), 2, ["2"])
    assert row["header"] == (header[:-1].split(one) if header else None) and row["path"].startswith("public/t/2024")
    assert house.replay("44") == 1 and house.waiting.equals(found)
    assert house.replay("88") == 0 and house.shown == [(1, 1, 1), (2, LARGE, 5)]


def test_rows_of_parquet_with_other_types_are_files_of_their_own():
    house = House()
    for kind, key in ((pa.int64(), 1), (pa.string(), 2), (pa.int64(), 3)):
        columns = {"Op": ["U"], "ts": [TIME], "id": [key], "a": pa.array([LARGE]).cast(kind), "b": [7]}
        pq.write_table(pa.table(columns), out := io.BytesIO())
        house.batch(out.getvalue(), name="20240101-1{:08}.parquet")
    assert as_files(house.waiting, house.reader()).first == [0, 1, 2]
    assert house.replay("88") == 0 and house.shown == [(key, LARGE, 7) for key in (1, 2, 3)]


def test_rows_of_a_file_of_all_tables_wait_with_their_numbers_there():
    house = House(PreserveTransactions=True, CdcPath="public/t")
    rows = ["U,u,public", "U,t,public", "U,t,public", "I,u,public", "U,t,public"]
    text = "".join(f"{head},{TIME},{n},{LARGE if n % 2 else 1},0,\n" for n, head in enumerate(rows))
    found = house.batch(text, name="CDC_TXN-202401011{:08}.csv")
    assert found["number"].to_pylist() == [2] and house.shown == [(2, 1, 0), (4, 1, 0)]
    assert house.replay("88") == 0 and house.shown == [(1, LARGE, 0), (2, 1, 0), (4, 1, 0)]


def test_a_row_without_a_readable_key_is_replayed_only_if_nothing_came_after_it():
    house = House()
    found = house.batch(line("U", "x", 1) + line("U", 1, 1) + "U,short\n" + line("U", "y", 2))
    assert found["keys"].to_pylist() == [[], [], []] and found["followed"].to_pylist() == [True, False, False]
    assert house.replay("44") == 2 and house.waiting["number"].to_pylist() == [1, 3, 4]
    assert len(replayable(house.batch(line("I", 9)))[0]) == 0


def test_a_partial_row_without_a_stored_row_waits_and_later_ones_behind_it():
    house = House()
    rows = line("D", 1) + line("U", 1, 5, "?") + line("U", 2, "?", "?", was=1) + line("U", 3, "?", 6) + line("I", 4)
    found = house.batch(rows)
    assert found["number"].to_pylist() == [2, 3, 4] and found["reason"].to_pylist() == [NOT_STORED, BEHIND, NOT_STORED]
    assert house.replay("44") == 3 and house.shown == [(4, 0, 0)]
    found = house.batch(line("I", 3, 1, 1) + line("U", 3, "?", 2) + line("I", 2))
    assert found["keys"].to_pylist() == [["1"], ["1", "2"], ["2"]] and house.shown == [(3, 1, 2), (4, 0, 0)]


def test_too_many_bytes_are_refused(monkeypatch):
    monkeypatch.setattr(quarantine, "MOST_BYTES", 9)
    with pytest.raises(quarantine.QuarantineFullError, match=r"public\.t: rows of 0 MB"):
        House().batch(line("U", 1, LARGE))
