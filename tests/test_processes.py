"""Whether the process that started something still runs: a run, a branch's writer, a self-test."""

import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from frazil_old.config.processes import ROUNDING_S, host, is_running
from frazil_old.lake import batch_branches, commit, row_delta_self_test
from frazil_old.report import runs


@pytest.fixture
def zombie():
    """Yield a process that has ended and whose parent has not asked for its result."""
    made = subprocess.Popen(["true"])
    while psutil.Process(made.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    yield made.pid
    made.wait()


def test_a_process_runs_until_it_ends_also_as_a_zombie(zombie):
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert is_running(host(), os.getpid(), time.time()) and is_running(host(), 1, time.time())
    assert not is_running(host(), zombie, time.time()) and not is_running(host(), ended.pid, time.time())


def test_a_process_id_in_use_again_is_another_process():
    started = psutil.Process().create_time()
    assert is_running(host(), os.getpid(), started)
    assert not is_running(host(), os.getpid(), started - ROUNDING_S - 1)


def test_another_users_process_counts_as_running(monkeypatch):
    def denied(path):
        raise PermissionError(path)

    monkeypatch.setattr(Path, "read_text", denied)
    assert is_running(host(), 1, 0.0)


def test_without_proc_a_process_runs_if_it_takes_a_signal(monkeypatch):
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(os.path, "isdir", lambda path: path != "/proc")
    assert is_running(host(), os.getpid(), 0.0) and not is_running(host(), ended.pid, time.time())


def test_a_zombie_has_neither_a_run_nor_a_branch_nor_a_self_test(zombie, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: zombie)
        batch, scratch = batch_branches.new_batch(), row_delta_self_test.new_name()
    assert batch_branches.is_dead(commit.BRANCH_PREFIX + batch) and row_delta_self_test.is_abandoned(scratch)
    (tmp_path / "a").mkdir()
    runs.write(tmp_path / "a", notebook="02_cdc_merge", outcome="running", pid=zombie, began=time.time())
    assert [run["outcome"] for run in runs.read(tmp_path)] == ["failed"]


def test_a_running_process_keeps_its_run_its_branch_and_its_self_test(monkeypatch, tmp_path):
    parent = psutil.Process(os.getppid())
    assert not batch_branches.is_dead(f"{commit.BRANCH_PREFIX}{batch_branches.new_batch()}")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: parent.pid)
        batch, scratch = batch_branches.new_batch(), row_delta_self_test.new_name()
    assert not batch_branches.is_dead(commit.BRANCH_PREFIX + batch) and not row_delta_self_test.is_abandoned(scratch)
    (tmp_path / "a").mkdir()
    runs.write(
        tmp_path / "a", notebook="02_cdc_merge", outcome="running", host=host(), pid=parent.pid, began=time.time()
    )
    assert [run["outcome"] for run in runs.read(tmp_path)] == ["running"]


def test_a_run_of_another_host_with_the_same_folder_counts_as_running_for_a_day(zombie, tmp_path):
    for name, hours in (("today", 23), ("yesterday", 25)):
        (tmp_path / name).mkdir()
        began = time.time() - hours * 3600
        runs.write(tmp_path / name, notebook="02_cdc_merge", outcome="running", host="other", pid=zombie, began=began)
    assert [(run["folder"].name, run["outcome"]) for run in runs.read(tmp_path)] == [
        ("today", "running"),
        ("yesterday", "failed"),
    ]
