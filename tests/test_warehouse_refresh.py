"""Refreshes after commits: coalesced, one at a time, never in the way, with errors, delays and an answer that never comes."""

import threading
import time
from dataclasses import replace
from statistics import median

import pytest

from fake_driver import SERVERS, FakeServer
from frazil_old.config.settings import ParameterError
from frazil_old.config.validation import checked
from frazil_old.config.warehouse_model import WarehouseEntries
from frazil_old.config.warehouses import Warehouse
from frazil_old.warehouses.family import LakeTable
from frazil_old.warehouses.refresher import Refresher, State
from warehouse_world import ENTRIES

ORDERS = LakeTable("public.orders", "shop.orders")
ITEMS = LakeTable("public.items", "shop.items")


def until(happened) -> None:
    """Wait for something, 10 s at most."""
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.005)


class Lake:
    """A lake whose newest state is a number, and a Snowflake that serves the state of its last refresh."""

    def __init__(self, wait_s: float = 5.0, **entries):
        given = {"engine": "snowflake", **ENTRIES, "refresh_wait_s": wait_s, **entries}
        self.w = Warehouse("snow", "test", checked(WarehouseEntries, given, "test", ParameterError))
        self.server, self.seen, self.number, self.served = FakeServer(), [], 0, 0
        SERVERS["fake"] = self.server
        self.refresh_s = 0.0
        self.server.answers = [
            ("REFRESH$", self._refresh),
            ("GET_ICEBERG", self._information),
            ("AUTO_REFRESH", self._status),
        ]
        self.refresher = Refresher(self.w, self.newest, self.seen.append)
        self.refresher.first_pause_s = 0.01

    def newest(self, table: LakeTable) -> State:
        return State(self.number, self.number, f"s3://lake/{self.number}.metadata.json")

    def _refresh(self, statement: str):
        new = self.number
        time.sleep(self.refresh_s)
        self.served = new
        return []

    def _information(self, statement: str):
        return [(f'{{"metadataLocation":"s3://lake/{self.served}.metadata.json","status":"success"}}',)]

    def _status(self, statement: str):
        return [(f'{{"executionState":"RUNNING","currentSnapshotId":"{self.served}"}}',)]

    def commit(self, table: LakeTable = ORDERS) -> float:
        self.number += 1
        began = time.perf_counter()
        self.refresher.committed(table)
        return time.perf_counter() - began

    def end(self) -> list[str]:
        self.refresher.end()
        return self.refresher.join()

    @property
    def refreshes(self) -> list[str]:
        return [s for s in self.server.sent if s.endswith("REFRESH")]


@pytest.fixture(autouse=True)
def no_servers():
    yield
    SERVERS.clear()


def test_a_thousand_commits_against_slow_refreshes_give_one_at_a_time_and_the_last_state_is_served():
    """10 commits/s against refreshes of 2 s, a hundred times faster: 1,000 commits in 1 s, refreshes of 20 ms."""
    lake, took, began = Lake(), [], time.monotonic()
    lake.refresh_s = 0.02
    for _ in range(1000):
        took.append(lake.commit())
        time.sleep(0.001)
    most = 3 + (time.monotonic() - began) / 0.02
    assert lake.end() == []
    assert lake.server.most_in_flight == 1
    assert len(lake.refreshes) <= most, "the last commits share one refresh"
    assert (lake.seen[-1].status, lake.seen[-1].newest.snapshot, lake.served) == ("served", 1000, 1000)
    assert median(took) < 0.01, "a commit does not wait for a refresh"


def test_ten_commits_during_one_refresh_are_one_refresh():
    lake = Lake()
    began, go_on = threading.Event(), threading.Event()

    def refresh(statement):
        began.set()
        go_on.wait(5)
        return lake._refresh(statement)

    lake.server.answers.insert(0, ("REFRESH$", refresh))
    lake.commit()
    assert began.wait(5)
    for _ in range(10):
        lake.commit()
    go_on.set()
    assert lake.end() == []
    assert len(lake.refreshes) == 2
    assert lake.served == 11


def test_tables_of_one_warehouse_are_refreshed_in_turn_and_each_once():
    lake = Lake()
    lake.number = 1
    lake.refresher.committed(ORDERS)
    lake.refresher.committed(ITEMS)
    assert lake.end() == []
    assert sorted(s.split('"')[5] for s in lake.refreshes) == ["ITEMS", "ORDERS"]
    assert {s.table for s in lake.seen} == {"public.orders", "public.items"}


def test_a_commit_that_changes_nothing_for_the_warehouse_costs_no_refresh():
    lake = Lake()
    lake.commit()
    until(lambda: lake.seen)
    lake.refresher.committed(ORDERS)
    assert lake.end() == []
    assert len(lake.refreshes) == 1


def test_errors_are_recorded_and_tried_again_with_growing_pauses_on_a_new_connection():
    lake, times, connections = Lake(), [], []

    def refresh(statement):
        times.append(time.monotonic())
        return RuntimeError("locked") if len(times) < 5 else lake._refresh(statement)

    lake.server.answers.insert(0, ("REFRESH$", refresh))
    connections.append(lake.server)
    lake.commit()
    assert lake.end() == []
    assert [s.status for s in lake.seen] == ["failed"] * 4 + ["served"]
    assert "RuntimeError: locked" in lake.seen[0].why


def test_pauses_after_errors_double(monkeypatch):
    lake, pauses, pause = Lake(), [], Refresher._pause

    def counted(refresher, seconds):
        pauses.append(seconds)
        pause(refresher, seconds)

    def refresh(statement):
        return RuntimeError("locked") if len(pauses) < 4 else lake._refresh(statement)

    monkeypatch.setattr(Refresher, "_pause", counted)
    lake.server.answers.insert(0, ("REFRESH$", refresh))
    began = time.monotonic()
    lake.commit()
    until(lambda: lake.served == 1)
    assert pauses == [0.01, 0.02, 0.04, 0.08] and time.monotonic() - began > sum(pauses)
    lake.end()


def test_a_warehouse_that_never_answers_holds_nothing_up_and_is_recorded():
    lake, stuck = Lake(wait_s=0.3), threading.Event()
    lake.server.answers.insert(0, ("REFRESH$", lambda s: stuck.wait(10) and []))
    assert max(lake.commit() for _ in range(50)) < 5
    began = time.monotonic()
    assert lake.end() == ["public.orders"]
    assert time.monotonic() - began < 5
    assert (lake.seen[-1].status, lake.seen[-1].why) == ("unanswered", "no answer in time")
    stuck.set()


def test_a_warehouse_that_cannot_be_reached_is_recorded_and_the_end_does_not_wait_longer_than_it_may():
    lake = Lake(wait_s=0.3)
    SERVERS.clear()
    lake.commit()
    began = time.monotonic()
    assert lake.end() == ["public.orders"]
    assert time.monotonic() - began < 4
    assert {s.status for s in lake.seen} == {"failed"}
    assert len(lake.seen) < 10, "pauses grow at the end too"
    assert "cannot be reached" in lake.seen[-1].why


def test_a_warehouse_that_refreshes_itself_is_looked_at_until_it_serves_the_state():
    lake = Lake(refresh="auto")
    lake.commit()
    until(lambda: any(s.status == "late" for s in lake.seen))
    lake.served = lake.number
    assert lake.end() == []
    assert lake.refreshes == []
    assert lake.seen[-1].status == "served"


def test_a_warehouse_that_stopped_is_said_and_not_asked_again():
    lake = Lake(refresh="auto")
    stopped = '{"executionState":"STOPPED","invalidExecutionStateReason":"a required column was added"}'
    lake.server.answers.insert(0, ("AUTO_REFRESH", [(stopped,)]))
    lake.commit()
    assert lake.end() == []
    assert [(s.status, s.why) for s in lake.seen] == [("stopped", "STOPPED: a required column was added")]


def test_a_withheld_refresh_is_late():
    lake = Lake(wait_s=0.3)
    lake.server.answers.insert(0, ("REFRESH$", []))
    lake.commit()
    assert lake.end() == ["public.orders"]
    assert {s.status for s in lake.seen} == {"late"}


def test_a_record_that_cannot_be_written_disturbs_nothing():
    lake = Lake()

    def broken(seen):
        lake.seen.append(seen)
        raise OSError("disk full")

    lake.refresher._record = broken
    lake.commit()
    assert lake.end() == []
    assert lake.seen[-1].status == "served"


def test_a_warehouse_without_commits_starts_no_thread_and_no_connection():
    lake = Lake()
    assert lake.end() == []
    assert lake.refresher._thread is None
    assert lake.server.arguments == {}
    assert replace(ORDERS, metadata="x") != ORDERS
