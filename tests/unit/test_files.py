"""Files of a table on any store: which are pending, which stop the table, and what a load, a replay and the audit do with them."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import msgspec
import numpy as np
import obstore
import pyarrow as pa
import pytest
from botocore.config import Config
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from faulty_s3 import FaultyS3
from frazil.core.changes import Changes
from frazil.discover.source_folders import SourceFolderError, folders_without_spec, require_schema_folder
from frazil.dms import listing, load_rule, pending, storage
from frazil.dms.applied import applied_files, batch_of, summary_of
from frazil.dms.date_partition import DatePartition
from frazil.dms.empty_load import LoadMissingError, require_load
from frazil.dms.file_marks import mark_of
from frazil.dms.file_ranges import open_file
from frazil.dms.listing import SameNameError, list_table
from frazil.dms.load_rule import LoadChangedError, MixedLoadError
from frazil.dms.pending import FileVanishedError, audit, findings, pending_files
from frazil.dms.position import Position
from frazil.dms.storage import ChangedWhileReadError, DmsFile, Storage, StorageError
from frazil.engine.batch_limits import FileBatch, Measure, next_batch
from frazil.engine.work import for_each
from frazil_demo.seaweed import Seaweed

FOLDER, FLAT = "public/t", DatePartition()


def at(minute: int, second: int = 0) -> str:
    """Return the name of a change file."""
    return f"20240101-{10 + minute // 60:02}{minute % 60:02}{second:02}000.csv"


class Folder:
    """The source's folder, on this machine or in a bucket of S3."""

    def __init__(self, address: str):
        self.address, self.store = address, storage.store_at(address)

    def put(self, path: str, text: str = "I,1\n", aged: float = 0) -> None:
        obstore.put(self.store, path, text.encode())
        if aged and "://" not in self.address:
            os.utime(file := Path(self.address, path), (file.stat().st_mtime - aged,) * 2)

    def delete(self, path: str) -> None:
        obstore.delete(self.store, path)


LOGIN = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def moto_s3():
    requests: list[str] = []
    with FaultyS3(lambda request: requests.append(request) or "") as s3:
        yield {"AWS_ENDPOINT_URL": s3.url, **LOGIN}, requests


@pytest.fixture(scope="module")
def seaweed_s3(tmp_path_factory):
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server.environment, []
        os.kill(server.pid, signal.SIGKILL)  # else it waits ten seconds for open connections


@pytest.fixture
def bucket(request, monkeypatch, tmp_path):
    def make(store: str) -> tuple[Folder, list[str]]:
        variables, requests = request.getfixturevalue(f"{store}_s3")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        client = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
        with suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket="dms")
        return Folder(f"s3://dms/{tmp_path.name}"), requests

    return make


@pytest.fixture(params=["local", "moto", "seaweed"])
def folder(request, tmp_path, bucket):
    return Folder(str(tmp_path)) if request.param == "local" else bucket(request.param)[0]


class Table:
    """A table that applies files as a run does, and keeps a summary for each batch."""

    def __init__(self, folder: Folder, **partition):
        self.folder, self.storage, self.partition = folder, Storage(folder.address), DatePartition(**partition)
        self.position, self.batches = Position(load="none"), []
        self.order: list[str] = []
        self.commit({})

    def listed(self, hot: bool = True):
        return list_table(self.storage, FOLDER, self.partition, self.position if hot and self.position.last else None)

    def look(self, hot: bool = True) -> dict[str, tuple[str, ...]]:
        """Return what stops the table, by its code."""
        found = (findings if hot else audit)(self.listed(hot), self.position, self.applied)
        return {f.error.code: f.names for f in found}

    @property
    def applied(self):
        return applied_files(reversed(self.batches))

    def apply(self, most: int = 99, accepted: str = "") -> list[str]:
        """Apply pending files as one batch; return their names."""
        there = self.listed()
        if accepted:
            self.position = msgspec.structs.replace(self.position, accepted={accepted: self.position.last})
        files = pending_files(there, self.position, self.applied)
        batch = FileBatch(tuple(files[: 1 if accepted else most]), tuple(files[1 if accepted else most :]))
        if batch.files:
            self.position = batch.position_after(self.position, there.below(batch.files[-1]))
            self.commit({f.name: f for f in batch.files}, batch.left)
        self.order += [f.name for f in batch.files]
        return [f.name for f in batch.files]

    def commit(self, files, left=()) -> None:
        self.batches.append(batch_of(self.position, summary_of(self.storage, files, left), time.time()))


# --- random lives of a folder, against what a person would say


@pytest.mark.parametrize("seed", range(6))
def test_random_copies_moves_deletions_and_late_files_are_told_as_they_are(folder, seed):
    """Each file that DMS wrote is applied once and in order, or named with what happened to it."""
    dice, table, minute = random.Random(seed), Table(folder), 0
    content: dict[str, str] = {}
    wrong: dict[str, set[str]] = {code: set() for code in ("late-file", "file-changed", "file-vanished")}

    def write(name: str, place: str = "") -> None:
        content.setdefault(name, f"I,{dice.randint(0, 9)}\n")
        folder.put(f"{FOLDER}/{place}{name}", content[name])

    for _ in range(40):
        done, there = list(table.order), [n for n in content if n not in wrong["file-vanished"]]
        waiting = [n for n in there if n in table.applied.waiting and n not in wrong["late-file"]]
        step = dice.choice(["write", "write", "apply", "copy", "move", "touch", "late", "change", "vanish", "rewrite"])
        late = f"{at(dice.randint(0, minute))[:13]}30500.csv"
        if step == "write":
            minute += dice.randint(1, 3)
            write(at(minute))
        elif step == "apply" and not any(wrong.values()):
            pending = sorted(n for n in there if n not in done)
            most = dice.randint(1, 3)
            assert table.apply(most) == pending[:most]
        elif step in ("copy", "move", "touch") and done:
            write(name := dice.choice(done), "processed/" * (step != "touch"))
            with suppress(FileNotFoundError):
                folder.delete(f"{FOLDER}/{name}" if step == "move" else "nothing")
        elif step == "late" and done and done[0] < late < max(done) and late not in content:
            write(late)
            wrong["late-file"].add(late)
        elif step == "change" and done and seed % 2:
            content[name := dice.choice(done)] = dice.choice(["I,longer\n", "U,5\n"])
            write(name)
            wrong["file-changed"].add(name)
        elif step == "vanish" and waiting and seed % 3 == 0:
            folder.delete(f"{FOLDER}/{waiting[0]}")
            wrong["file-vanished"].add(waiting[0])
        elif step == "rewrite" and waiting:
            content[waiting[-1]] = "I,77\n"
            write(waiting[-1])
        found = {code: set(names) for code, names in table.look().items()}
        assert found == {code: names for code, names in wrong.items() if names}, step
    assert len(table.order) == len({*table.order}) and table.order == sorted(table.order)


# --- storage


def test_a_file_is_read_as_it_was_listed_or_not_at_all(folder):
    table, large = Table(folder), "x" * (storage.PIECE + 5)
    for name, text in (("a", "one"), ("b", large), ("c", "three"), ("d", "four")):
        folder.put(f"{FOLDER}/{name}", text)
    small, big, changed, gone = table.storage.files(FOLDER)
    assert b"".join(table.storage.pieces(big)) == large.encode() and table.storage.read(big, 1, 4) == b"xxx"
    with open_file(table.storage, big) as file:
        assert (file.seek(-2, os.SEEK_END), file.read()) == (storage.PIECE + 3, b"xx")
    folder.put(f"{FOLDER}/b", large.replace("x", "y"))
    folder.put(f"{FOLDER}/c", "other")
    folder.delete(f"{FOLDER}/d")
    for file, error in ((big, ChangedWhileReadError), (changed, ChangedWhileReadError), (gone, FileVanishedError)):
        with pytest.raises(error, match=f"{FOLDER}/{file.name}"):
            [*table.storage.pieces(file)]
    assert [*table.storage.pieces(small)] == [b"one"]


def test_a_file_that_grows_while_it_is_read_is_not_taken(tmp_path, monkeypatch):
    folder, real = Folder(str(tmp_path)), storage.obstore.get
    folder.put("f", "one")
    (file,) = Storage(folder.address).files("")
    grown = lambda *a, **k: (real(*a, **k), folder.put("f", "one more"))[0]  # noqa: E731
    monkeypatch.setattr(storage.obstore, "get", grown)
    with pytest.raises(ChangedWhileReadError):
        [*Storage(folder.address).pieces(file)]


def test_a_file_is_created_once_and_never_written_over(folder):
    places = Table(folder).storage
    assert [places.create("new", data) for data in (b"1", b"2")] == [True, False]
    assert [*places.pieces(places.files("")[-1])] == [b"1"]


@pytest.mark.parametrize("name", ["a b", "ü", "x%20y", "#", "q?", "[a]", "$f$", 'quote"', "plus+", ".hidden"])
def test_folders_of_any_name_are_listed_and_read(folder, name):
    folder.put(f"{name}/t/{at(0)}", "I,1\n")
    places = Storage(folder.address)
    assert places.folders() == [name] and places.folders(name) == ["t"]
    assert [[*places.pieces(f)] for f in places.files(f"{name}/t")] == [[b"I,1\n"]]


def test_what_cannot_be_reached_is_named_with_its_address(bucket, tmp_path):
    with pytest.raises(StorageError, match="there is no folder .*/nowhere"):
        Storage(f"{tmp_path}/nowhere")
    bucket("moto")
    with pytest.raises(StorageError, match=r"s3://nobodys/dms/public/t cannot be reached"):
        Storage("s3://nobodys/dms").files(FOLDER)


# --- listing


def test_new_files_cost_one_request_and_reading_a_small_one_another(bucket):
    folder, requests = bucket("moto")
    for number in range(1210):  # without requests, which is faster
        key = f"{folder.address.removeprefix('s3://dms/')}/{FOLDER}/{at(number // 2, number % 2)}"
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object("dms", key, b"I,1\n")
    folder.put(f"{FOLDER}/LOAD00000001.csv")
    table = Table(folder)
    table.position = Position(load=mark_of(table.storage, table.listed().loads), last=at(599, 1))
    requests.clear()
    new = [f for f in table.listed().changes if f.name > at(599, 1)]
    assert (len(new), len(requests)) == (10, 1)
    for_each(range(30), lambda n: list_table(table.storage, f"public/t{n}", FLAT, Position(last=at(1))))
    assert len(requests) == 31
    assert [*table.storage.pieces(new[0])] == [*table.storage.pieces(new[0])] and len(requests) == 32


HOURS, MONTHS = {"sequence": "YYYYMMDDHH", "delimiter": "DASH"}, {"sequence": "YYYYMM", "delimiter": "NONE"}
BEGINS = [
    ({}, "20240301-001500000.csv", "20240229-231500"), ({}, "CDC_TXN-20240301001500000.csv", "20240229-231500"), ({}, "2024/03/01/20240301-001500000.csv", None),
    ({"enabled": True}, "2024/03/01/20240301-001500000.csv", "2024/02/29/"), ({"enabled": True} | HOURS, "2024-03-01-00/20240301-001500000.csv", "2024-02-29-23/"),
    ({"enabled": True} | MONTHS, "202403/20240301-001500000.csv", "202402/"), ({"enabled": True, "sequence": "DDMMYYYY"}, "01/03/2024/20240301-001500000.csv", None),
    ({"enabled": True}, "20240301-001500000.csv", None), ({"enabled": True}, "processed/20240301-001500000.csv", None),
]  # fmt: skip


@pytest.mark.parametrize("partition, last, after", BEGINS)
def test_a_listing_begins_an_hour_or_a_partition_before_the_newest_applied_file(partition, last, after):
    assert listing.start_after("s/t", last, DatePartition(**partition)) == (f"s/t/{after}" if after else "")


def test_folders_of_a_parallel_load_count_from_one_each(folder):
    for part in ("0", "p1", "p2"):
        folder.put(f"{FOLDER}/{part}/LOAD00000001.csv", f"{part},a\n")
    table = Table(folder)
    loads = table.listed().loads
    assert [*loads] == [f"{part}/LOAD00000001.csv" for part in ("0", "p1", "p2")]
    table.position = Position(load=mark_of(table.storage, loads), last=at(0))
    assert [*table.listed().loads] == [*loads]  # though the folder "0" comes before the names that are new
    folder.put(f"{FOLDER}/p1/LOAD00000001.csv.gz", "unpacked beside")
    with pytest.raises(SameNameError):
        table.listed(hot=False)


def test_tables_are_listed_at_the_same_time_and_fail_alone(folder):
    names = [f"t{n}" for n in range(40)]
    for name in names:
        folder.put(f"public/{name}/{at(1)}")
    for place in ("t7", "t7/old/public"):
        folder.put(f"public/{place}/LOAD00000001.csv", place)
    places = Storage(folder.address)
    found = for_each(names, lambda name: list_table(places, f"public/{name}", FLAT))
    assert [name for name in names if isinstance(found[name], SameNameError)] == ["t7"]


def test_a_source_that_is_one_folder_too_high_or_low_is_named(folder):
    for place in ("load/app/orders", "changes/app/orders", "changes/awsdms_x/y"):
        folder.put(f"{place}/{at(1)}")
    for place, words in (("", "changes and .*load has app/orders"), ("/changes/app", "folder above app/")):
        with pytest.raises(SourceFolderError, match=words):
            require_schema_folder(Storage(folder.address + place), "app", "orders")
    assert folders_without_spec(Storage(f"{folder.address}/changes"), ["app/x"]) == ["app.orders"]


# --- pending files


def test_what_a_rollback_took_back_is_pending_again(folder):
    table = Table(folder)
    for minute in (1, 2, 3):
        folder.put(f"{FOLDER}/{at(minute)}")
        table.apply()
    del table.batches[-2:]
    table.position = table.batches[-1].position
    assert not table.look() and table.apply() == [at(2), at(3)]


def test_a_hole_in_the_record_accuses_no_file_but_one_that_landed_since(tmp_path):
    folder = Folder(str(tmp_path))
    table = Table(folder)
    for minute in range(1, 7):
        folder.put(f"{FOLDER}/{at(minute)}", aged=100)
        table.apply()
    del table.batches[3:5]  # those of the minutes 3 and 4
    table.batches[3] = replace(table.batches[3], committed=time.time() - 50)
    assert table.applied.since == at(5) and not table.look() and not table.look(hot=False)
    folder.put(f"{FOLDER}/{at(4, 30)}")
    assert not table.look() and table.look(hot=False) == {"late-file": (at(4, 30),)}
    folder.put(f"{FOLDER}/{at(5, 30)}", aged=100)
    assert table.look() == {"late-file": (at(5, 30),)}


def test_files_of_all_tables_and_of_one_count_by_their_times(folder):
    """PreserveTransactions is switched off, and on again."""
    for path in (f"{FOLDER}/{at(5)}", "all/CDC_TXN-20240101100600000.csv", "all/CDC_TXN-20240101083000000.csv"):
        folder.put(path)
    table = Table(folder)
    table.position = Position(load="none", last="CDC_TXN-20240101100400000.csv")
    assert table.apply() == [at(5)] and table.position.last == at(5)
    both = list_table(table.storage, FOLDER, FLAT, None, listing.list_shared(table.storage, "all"))
    assert [f.name for f in both.changes] == ["CDC_TXN-20240101083000000.csv", at(5), "CDC_TXN-20240101100600000.csv"]
    assert [f.name for f in listing.list_shared(table.storage, "all", at(5))] == ["CDC_TXN-20240101100600000.csv"]


def test_what_was_applied_before_a_load_again_is_not_known_after_it(folder):
    table = Table(folder)
    for minute in (1, 2):
        folder.put(f"{FOLDER}/{at(minute)}")
    table.apply()
    folder.delete(f"{FOLDER}/{at(1)}")
    table.position = msgspec.structs.replace(table.position, batch=2, last="")
    table.commit({})
    assert table.apply() == [at(2)]
    folder.put(f"{FOLDER}/{at(1)}")
    assert table.look() == {"late-file": (at(1),)} and table.apply(accepted=at(1)) == [at(1)]


def test_a_late_file_that_is_accepted_comes_next_and_alone(folder):
    table = Table(folder)
    for name in (at(5), at(9)):
        folder.put(f"{FOLDER}/{name}")
        table.apply()
    for name in (at(6), at(7), at(10)):
        folder.put(f"{FOLDER}/{name}")
    assert table.look() == {"late-file": (at(6), at(7))}
    assert table.apply(accepted=at(7)) == [at(7)] and table.position.last == at(9)
    assert table.look() == {"late-file": (at(6),)}
    assert table.apply(accepted=at(6)) == [at(6)] and not table.look() and table.apply() == [at(10)]
    assert table.position.batch == 5
    folder.put(f"{FOLDER}/2024/01/02/20240102-000000000.csv")
    assert not table.look() and table.look(hot=False) == {"file-hidden": ("20240102-000000000.csv",)}


def test_files_of_the_hour_that_autumn_repeats_are_accepted_one_by_one(folder):
    """02:10 of the second time comes after 02:50 of the first one."""
    table = Table(folder, enabled=True, timezone="Europe/Berlin")
    before, first, second, after = (f"20241027-{time}0000000.csv" for time in ("013", "025", "021", "033"))
    for name in (before, first, second, after):
        folder.put(f"{FOLDER}/2024/10/27/{name}")
    assert not table.look() and table.apply() == [before]
    assert {*table.look()["repeated-hour"]} == {first, second} and table.apply() == []
    assert table.apply(accepted=first) == [first] and table.look() == {"late-file": (second,)}
    assert table.apply(accepted=second) == [second] and not table.look() and table.apply() == [after]


def test_a_table_whose_kind_of_source_changed_stops_both_ways():
    for position, landing in ((Position(last=at(1)), "id"), (Position(last="7", landing="id"), "")):
        (found,) = pending.source_changed(position, landing)
        assert "adopt the table" in found.raised("t").cure and "restart" in found.raised("t").cure
        assert not [*pending.source_changed(position, position.landing)]
    assert not [*pending.source_changed(Position(load="none"), "id")]


# --- loads


def loaded(folder: Folder, *names: str) -> Table:
    """Return a table whose load files are applied."""
    table = Table(folder)
    for name in names:
        folder.put(f"{FOLDER}/{name}", f"{name},a\n", aged=100)
    there = table.listed()
    table.position = Position(batch=1, load=mark_of(table.storage, there.loads))
    table.commit(there.loads)
    return table


def looked(table: Table, rule) -> str:
    """Return the message of a rule of loads that the files break."""
    own = (table.position,) if rule is load_rule.require_same_load else ()
    try:
        return rule(table.listed(), *own, table.applied, "t") or ""
    except (LoadChangedError, MixedLoadError) as error:
        return str(error)


def test_a_load_that_is_copied_is_the_same_and_another_one_is_told_by_its_files(tmp_path):
    folder, first, second = Folder(str(tmp_path)), "LOAD00000001.csv", "LOAD00000002.csv"
    table = loaded(folder, first, second)
    folder.put(f"{FOLDER}/{first}", f"{first},a\n")
    assert looked(table, load_rule.require_same_load) == ""
    folder.put(f"{FOLDER}/{first}", f"{first},new\n")
    folder.put(f"{FOLDER}/{second}", f"{second},a\n")  # a new load may have the same rows
    assert looked(table, load_rule.require_one_load) == ""
    folder.put(f"{FOLDER}/{first}", f"{first},a\n", aged=100)
    folder.put(f"{FOLDER}/{second}", "LOAD00000002.csv,b\n")
    assert "written again: LOAD00000002.csv" in looked(table, load_rule.require_same_load)
    folder.delete(f"{FOLDER}/{second}")
    assert "gone: LOAD00000002.csv" in looked(table, load_rule.require_same_load)
    folder.put(f"{FOLDER}/LOAD00000003.csv")
    assert "new: LOAD00000003.csv" in looked(table, load_rule.require_same_load)
    assert "are older than the others: LOAD00000001.csv" in looked(table, load_rule.require_one_load)
    folder.delete(f"{FOLDER}/{first}")
    folder.delete(f"{FOLDER}/LOAD00000003.csv")
    assert looked(table, load_rule.require_same_load) == ""


@pytest.mark.parametrize("old, change, days, mixed", [(900, 100, 0, True), (100, 900, 0, False), (0, 100, 0, False), (900, 100, 9, False)])  # fmt: skip
def test_load_files_of_two_ages_are_not_one_load(tmp_path, old, change, days, mixed):
    """A change file that landed long after its name was copied, and proves nothing."""
    folder = Folder(str(tmp_path))
    table = Table(folder)
    for path, aged in (("LOAD00000001.csv", 0), ("p1/LOAD00000002.csv", old), (f"{datetime.now(UTC) - timedelta(days):%Y%m%d-%H%M%S}000.csv", change)):  # fmt: skip
        folder.put(f"{FOLDER}/{path}", path, aged)
    assert ("p1/LOAD00000002.csv" in looked(table, load_rule.require_one_load)) is mixed


def test_changes_count_again_unless_they_are_certainly_from_before_the_load(tmp_path):
    folder = Folder(str(tmp_path))
    for minute in (0, 1, 2, 3):
        folder.put(f"{FOLDER}/{at(minute)}", aged=minute * 9000)  # a copy lands by another clock, in any order
    there = Table(folder).listed()
    began = datetime(2024, 1, 1, 10, 2, tzinfo=UTC).timestamp()
    assert load_rule.last_before(there, began) == at(1) and load_rule.last_before(there, None) == ""
    berlin = replace(there, partition=DatePartition(enabled=True, timezone="Europe/Berlin"))
    assert load_rule.last_before(berlin, began - 3600) == at(1)
    folder.put(f"{FOLDER}/20241027-023000000.csv")  # at 00:30 or 01:30 UTC
    again = replace(Table(folder).listed(), partition=berlin.partition)
    assert load_rule.last_before(again, datetime(2024, 10, 27, 1, 10, tzinfo=UTC).timestamp()) == at(3)


def test_a_load_again_needs_all_files_since_the_load(folder):
    table = loaded(folder, "LOAD00000001.csv", "LOAD00000002.csv")
    for minute in (1, 2):
        folder.put(f"{FOLDER}/{at(minute)}")
        table.apply()
    load_rule.require_all_there(table.listed(hot=False), table.applied, "", "t")
    folder.delete(f"{FOLDER}/{at(1)}")
    load_rule.require_all_there(table.listed(hot=False), table.applied, at(1), "t")
    with pytest.raises(load_rule.RecordGapError):
        load_rule.require_all_there(table.listed(hot=False), replace(table.applied, since=at(1)), "", "t")
    folder.delete(f"{FOLDER}/LOAD00000002.csv")
    with pytest.raises(FileVanishedError, match=f"{at(1)}, LOAD00000002.csv"):
        load_rule.require_all_there(table.listed(hot=False), table.applied, "", "t")


@pytest.mark.parametrize("changes, wrong", [("I1 U1 D1 D1", None), ("I1 U2", 2), ("D1 I1", 1), ("I1 U1>2 U2 D2", None), ("I1 U3>2", 2)])  # fmt: skip
def test_a_change_of_a_row_that_nobody_inserted_shows_that_a_load_is_missing(changes, wrong):
    words = changes.split()
    keys = [(w[1:].split(">") * 2)[:2] if ">" in w else [None, w[1:]] for w in words]
    facts = {"file": [0] * len(words), "number": [*range(1, len(words) + 1)], "op": [w[0] for w in words]}
    old = pa.array([int(was) if was else None for was, _ in keys], pa.int64())
    of = Changes(pa.table({"id": [int(now) for _, now in keys]}), pa.table({**facts, "before id": old}), pa.table({}))
    require_load(of, Position(load="x"), ["id"], [at(1)], "t", lambda keys: 1 / 0)
    for position, there in ((Position(load="none"), False), (Position(load="none", last=at(0)), True)):
        with pytest.raises(LoadMissingError, match=f"{at(1)} row {wrong} ") if wrong and not there else nullcontext():
            require_load(of, position, ["id"], [at(1)], "t", lambda keys, there=there: np.full(len(keys), there))


def test_a_batch_ends_at_its_bytes_where_columns_change_or_inside_of_a_file(tmp_path):
    folder = Folder(str(tmp_path))
    for number, size in enumerate((10, 20, 30, 40, 500, 60)):
        folder.put(f"{FOLDER}/{at(number)}", "x" * size)
    files = Table(folder).listed().changes
    names = {f: "ab" if f.size < 40 else "abc" for f in files}
    rows = {f: Measure(f.size, 2.0) for f in files}

    def cut(begin: int = 0, first: int = 0, size: int = 10**6, memory: int = 10**6) -> tuple:
        at_row = Position(last=at(first) if begin else "", rows=begin or None)
        batch = next_batch(files[first:], at_row, names.get, rows.get, (size, memory))
        assert [*batch.files, *batch.left] == [*files[first:]]
        return [f.size for f in batch.files], batch.end

    assert cut() == ([10, 20, 30], None) and cut(first=3) == ([40, 500, 60], None)
    assert cut(size=30) == ([10, 20], None) and cut(memory=60) == ([10, 20], None)
    assert cut(first=4, size=1) == ([500], None)
    assert cut(first=4, memory=300) == ([500], 150) and cut(400, 4, memory=300) == ([500], None)
    position = Position(load="x", last=at(3), batch=7)
    batch = replace(next_batch(files[4:], Position(last=at(4), rows=150), names.get, rows.get, (1, 300)), begin=150)
    assert batch.position_after(position, at(4)) == Position(load="x", last=at(4), rows=300, batch=8)
    assert next_batch(files[4:], Position(last=at(9)), names.get, rows.get, (1, 300)).end is None  # a late file
    there, cut = Table(folder).listed(), batch.position_after(position, at(4))
    accepted = msgspec.structs.replace(cut, accepted={at(5): cut.last})  # what is begun comes first
    assert [f.size for f in pending_files(there, accepted, applied_files([]))] == [500]
    gone = replace(there, changes=there.changes[5:])
    assert [f.names for f in findings(gone, cut, applied_files([]))] == [(at(4),)]
    assert next_batch(files[5:], cut, names.get, rows.get, (1, 300)).begin == 0
    many = [DmsFile(f"f/{n}", 1, "", 0.0) for n in range(1001)]
    assert len(next_batch(many, Position(), lambda f: "", lambda f: Measure(1, 1), (10**6, 10**6)).left) == 1
    ended = FileBatch(files[4:5], (), 300)
    assert ended.position_after(batch.position_after(position, at(4)), at(4)) == Position(load="x", last=at(4), batch=9)
