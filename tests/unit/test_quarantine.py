"""Rows that wait in quarantine: random histories against a plain replay, and what waits in each form of file."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator

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
from frazil.engine.waiting_rows import WAITING, BatchFiles, Replay, as_files
from frazil.errors import FrazilError
from frazil.pipeline import quarantine
from frazil.pipeline.quarantine import kept, replaced, replayable, require_admitted, without_stored
from frazil.pipeline.waiting_keys import BEHIND, NOT_STORED
from frazil.settings.parameters import Settings
from frazil.settings.spec import TableSpec

TIME, LARGE = "2024-01-01 09:59:00.000000", 3_000_000_000
IMAGE = {"rule-action": "add-before-image-columns", "before-image-def": {"column-prefix": "BI_"}}


class House:
    """A table in memory, and the rows that wait for it."""

    def __init__(self, types: str = "44", **target):
        self.types, self.target = types, {"TimestampColumnName": "ts", "CsvNullValue": "NULL", "UseCsvNoSupValue": True, "CsvNoSupValue": "?"} | target  # fmt: skip
        self.rows: dict[tuple, dict] = {}
        self.waiting, self.ended, self.batch = WAITING.empty_table(), 0, 0
        self.storage = Storage("memory", MemoryStore())

    def reader(self, storage: Storage, types: str = "", key=("id",)) -> TableReader:
        kinds = {"id": "INT8", **{name: f"INT{n}" for name, n in zip("ab", types or self.types, strict=True)}}
        spec = TableSpec(source="public.t", key=key, columns=[{"name": n, "type": t} for n, t in kinds.items()])
        return TableReader(storage, SourceTable(spec, resolve([IMAGE], spec), S3Target.model_validate(self.target)))

    def put(self, *contents: str | bytes, name: str = "2024010{}-1{:08}.csv") -> list:
        """Write files of one batch; return them as they are listed."""
        self.batch += 1
        paths = [f"public/t/{name.format(self.batch // 100 + 1, self.batch % 100 * 1000 + n)}" for n in range(len(contents))]  # fmt: skip
        for path, content in zip(paths, contents, strict=True):
            obstore.put(self.storage.store, path, content.encode() if isinstance(content, str) else content)
        return [file for file in self.storage.files("") if file.path in paths]

    def apply(self, files: list, types: str = "", replay: Replay | None = None, before: pa.Table | None = None) -> int:
        """Apply a batch; return how many rows of it wait."""
        reader = self.reader(replay.storage if replay else self.storage, types)
        columns = [reader.columns(file) for file in files]
        parts = [part for n, (file, its) in enumerate(zip(files, columns, strict=True)) for part in reader.read(file, its, number=n)]  # fmt: skip
        before = self.waiting if before is None else before
        found = kept(before, concat(parts), BatchFiles(reader, files, columns, self.batch, replay), ("id",))
        while len(places := self._write(found.latest)):
            found = without_stored(found, places)
        self.waiting, self.ended = found.waiting, self.ended + len(found.ended)
        return found.added

    def replay(self, types: str) -> int:
        rows, stay = replayable(self.waiting)
        if not len(rows):
            return 0
        again = as_files(rows, self.reader(self.storage, types))
        return self.apply(again.files, types, again, stay)

    def _write(self, last) -> np.ndarray:
        """Write rows, or return the places of those whose stored rows are missing."""
        new, before = last.rows.to_pylist(), dict(self.rows)
        if last.partial and last.partial.lost.any():
            return np.flatnonzero(last.partial.lost)
        for name, lacks in (last.partial.missing if last.partial else {}).items():
            stored = [k["id"] for k in last.partial.stored.to_pylist()]
            if len(none := [n for n in np.flatnonzero(lacks) if stored[n] not in before]):
                return np.array(none)
            for n in np.flatnonzero(lacks):
                new[n][name] = before[stored[n]][name]
        for key in last.keys["id"].to_pylist():
            self.rows.pop(key, None)
        self.rows |= {row["id"]: row for row in new}
        return np.empty(0, int)

    @property
    def shown(self) -> list[tuple]:
        return sorted((row["id"], row["a"], row["b"]) for row in self.rows.values())


def line(op: str, key: object, a: object = 0, b: object = 0, was: object = "") -> str:
    return f"{op},{TIME},{key},{a},{b},{was}\n"


def history(rng: random.Random, stored: dict[int, list]) -> Iterator[str]:
    """Yield changes as the source makes them, and make them in `stored`."""
    value = lambda: rng.choice([1, 2, LARGE + rng.randrange(9)])  # noqa: E731
    while True:
        there, free = [*stored], [key for key in range(5) if key not in stored]
        kind = rng.choice(["I", "U", "P", "P", "D", "M", "M"] if there else ["I"])
        key = rng.choice(there) if there else 0
        values = [value(), value()]
        lacks = [kind == "P" or (kind == "M" and rng.random() < 0.7) for _ in values]
        lacks[rng.randrange(2)] &= rng.random() < 0.5
        shown = ["?" if lack else v for lack, v in zip(lacks, values, strict=True)]
        old, new = stored.get(key, [0, 0]), rng.choice(free) if free else None
        if kind == "D":
            del stored[key]
            yield line("D", key)
        elif kind == "I" and free:
            stored[new] = values
            yield line("I", new, *values)
        elif kind == "U" or (kind in "PM" and (kind == "P" or free)):
            stored[key] = [o if lack else v for o, lack, v in zip(old, lacks, values, strict=True)]
            if kind == "M":
                stored[new] = stored.pop(key)
            yield line("U", new if kind == "M" else key, *shown, was=key if kind == "M" else "")


@pytest.mark.parametrize("seed", range(40))
def test_a_history_ends_as_if_no_row_had_been_bad(seed):
    rng, house, stored = random.Random(seed), House(CsvNullValue="NULL"), {}
    changes = history(rng, stored)
    for _ in range(rng.randrange(2, 12)):
        types = rng.choice(["44", "48", "84", "88", "44"])
        house.apply(house.put(*("".join(next(changes) for _ in range(rng.randrange(1, 7))) for _ in range(rng.randrange(1, 3)))), types)  # fmt: skip
        if rng.random() < 0.4:
            house.replay(types := rng.choice(["44", "48", "84", "88"]))
            assert types != "88" or (house.shown, len(house.waiting)) == (sorted((k, *v) for k, v in stored.items()), 0)
    house.replay("88")
    assert (house.shown, len(house.waiting)) == (sorted((k, *v) for k, v in stored.items()), 0)


def batch(house: House, content: str | bytes, name: str, types: str = "44") -> pa.Table:
    house.apply(house.put(content, name=name), types)
    return house.waiting


@pytest.mark.parametrize(("header", "rest"), [("", {}), ("Op,ts,id,a,b,BI_id\n", {"AddColumnName": True}), ("Op|ts|id|a|b|BI_id\n", {"AddColumnName": True, "CsvDelimiter": "|"})])  # fmt: skip
def test_bytes_are_kept_and_read_again_with_the_names_of_their_file(header, rest):
    house, one = House(**rest), rest.get("CsvDelimiter", ",")
    bad = line("U", 2, LARGE, '"5"').replace(",", one)
    found = batch(house, header + line("I", 1, 1, 1).replace(",", one) + bad, "20240101-1{:08}.csv")
    assert found["raw"].to_pylist() == [bad[:-1].encode()] and found["number"].to_pylist() == [2]
    assert found["header"].to_pylist() == [header[:-1].split(one) if header else None]
    assert found["keys"].to_pylist() == [['["2"]']] and found["path"][0].as_py().startswith("public/t/20240101-")
    assert house.replay("44") == 1 and house.waiting.equals(found)
    assert house.replay("88") == 0 and house.shown == [(1, 1, 1), (2, LARGE, 5)]


def test_rows_of_parquet_with_other_types_are_files_of_their_own():
    house = House()
    for kind, key in ((pa.int64(), 1), (pa.string(), 2), (pa.int64(), 3)):
        columns = {"Op": ["U"], "ts": [TIME], "id": [key], "a": pa.array([LARGE]).cast(kind), "b": [7]}
        pq.write_table(pa.table(columns), out := io.BytesIO())
        batch(house, out.getvalue(), "20240101-1{:08}.parquet")
    again = as_files(house.waiting, house.reader(house.storage))
    assert len(again.files) == 3 and again.first == [0, 1, 2] and again.paths == house.waiting["path"].to_pylist()
    assert house.replay("88") == 0 and house.shown == [(key, LARGE, 7) for key in (1, 2, 3)]


def test_rows_of_a_file_of_all_tables_wait_with_their_numbers_there():
    house = House(PreserveTransactions=True, CdcPath="public/t")
    rows = ["U,u,public", "U,t,public", "U,t,public", "I,u,public", "U,t,public"]
    text = "".join(f"{head},{TIME},{n},{LARGE if n % 2 else 1},0,\n" for n, head in enumerate(rows))
    found = batch(house, text, "CDC_TXN-202401011{:08}.csv")
    assert found["number"].to_pylist() == [2] and house.shown == [(2, 1, 0), (4, 1, 0)]
    assert house.replay("88") == 0 and house.shown == [(1, LARGE, 0), (2, 1, 0), (4, 1, 0)]


def test_a_row_without_a_readable_key_is_replayed_only_if_nothing_came_after_it():
    house = House()
    found = batch(house, line("U", "x", 1) + line("U", 1, 1) + "U,short\n" + line("U", "y", 2), "20240101-1{:08}.csv")
    assert found["keyed"].to_pylist() == [False] * 3 and found["followed"].to_pylist() == [True, False, False]
    again, stay = replayable(found)
    assert again["number"].to_pylist() == [3, 4] and stay["number"].to_pylist() == [1]
    assert house.replay("44") == 2 and house.waiting["number"].to_pylist() == [1, 3, 4]
    assert len(replayable(batch(house, line("I", 9), "20240101-1{:08}.csv"))[0]) == 0


def test_a_partial_row_without_a_stored_row_waits_and_later_ones_behind_it():
    house = House()
    rows = line("D", 1) + line("U", 1, 5, "?") + line("U", 2, "?", "?", was=1) + line("U", 3, "?", 6) + line("I", 4)
    found = batch(house, rows, "20240101-1{:08}.csv")
    assert found["number"].to_pylist() == [2, 3, 4] and found["reason"].to_pylist() == [NOT_STORED, BEHIND, NOT_STORED]
    assert house.replay("44") == 3 and house.shown == [(4, 0, 0)]
    found = batch(house, line("I", 3, 1, 1) + line("U", 3, "?", 2) + line("I", 2), "20240101-1{:08}.csv")
    assert found["keys"].to_pylist() == [['["1"]'], ['["1"]']] and house.shown == [(2, 0, 0), (3, 1, 2), (4, 0, 0)]


def test_a_load_makes_rows_obsolete_and_too_many_bytes_are_refused(monkeypatch):
    house = House()
    before = batch(house, line("U", 1, LARGE), "20240101-1{:08}.csv")
    reader, files = house.reader(house.storage), house.storage.files("")
    of = BatchFiles(reader, files, [reader.columns(file) for file in files], 2)
    bad = concat([*reader.read(files[0], of.columns[0])]).bad
    found = replaced(before, of, bad)
    assert found.ended is before and found.waiting["batch"].to_pylist() == [2] and found.added == 1
    monkeypatch.setattr(quarantine, "MOST_BYTES", 9)
    with pytest.raises(quarantine.QuarantineFullError, match=r"public\.t: rows of 0 MB"):
        replaced(before, of, bad)


@pytest.mark.parametrize(("spec", "rows", "error", "said"), [
    ({}, line("I", 1, "x"), "bad-row", "public/t/.* row 1: column 'a': 'x' does not fit INT4"),
    ({"on_bad_rows": "quarantine", "exclude": "b"}, line("I", 1, "x"), "bad-row", r"excluded columns \(b\)"),
    ({"on_bad_rows": "quarantine", "max_bad_rows": 1}, line("I", 1, "x") * 2, "too-many-bad-rows", "2 bad rows, and max_bad_rows is 1"),
    ({"on_bad_rows": "quarantine"}, line("0", 1) * 2, "no-operations", "no row of public/t/"),
    ({"on_bad_rows": "quarantine"}, line("0", 1), "", ""),
    ({}, line("I", 1), "", ""),
])  # fmt: skip
def test_bad_rows_that_may_not_wait_are_refused_by_name(spec, rows, error, said):
    house = House()
    files, reader = house.put(rows, name="20240101-1{:08}.csv"), house.reader(house.storage)
    changes = concat([*reader.read(files[0], reader.columns(files[0]))])
    asked = TableSpec.model_validate(reader.table.spec.model_dump(exclude_unset=True) | spec)
    if not error:
        require_admitted(changes, [files[0].path], asked, Settings())
        return
    with pytest.raises(FrazilError, match=said) as raised:
        require_admitted(changes, [files[0].path], asked, Settings())
    assert raised.value.code == error
