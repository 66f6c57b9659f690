"""Whether the process that started something still runs: a run, a branch's writer, a self-test."""

import os
import subprocess
import time

import psutil
import pytest

from frazil_old.config.processes import host, is_running
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


def test_without_proc_a_process_runs_if_it_takes_a_signal(monkeypatch):
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(os.path, "isdir", lambda path: path != "/proc")
    assert is_running(host(), os.getpid(), 0.0) and not is_running(host(), ended.pid, time.time())


def test_a_run_of_another_host_with_the_same_folder_counts_as_running_for_a_day(zombie, tmp_path):
    for name, hours in (("today", 23), ("yesterday", 25)):
        (tmp_path / name).mkdir()
        began = time.time() - hours * 3600
        runs.write(tmp_path / name, notebook="02_cdc_merge", outcome="running", host="other", pid=zombie, began=began)
    assert [(run["folder"].name, run["outcome"]) for run in runs.read(tmp_path)] == [
        ("today", "running"),
        ("yesterday", "failed"),
    ]
