"""The tuning table: latency against dollars a day for the pipeline on AWS, by the model that is fitted to the measured load."""

from dataclasses import replace

import pandas as pd
import pytest

from frazil_old.config.settings import LatencySettings
from frazil_old.report import tuning_table
from frazil_old.report.notebook_output import Grid
from frazil_old.report.settings_advice import Observed, Setting, fit

S = LatencySettings()
HOUR = 4 * (0.052624 + 4 * 0.0057785)
"""A worker of 4 vCPUs and 16 GB, an hour."""


def fitted(changes_s=20.0, service=1.0, per_change_s=0.0):
    even = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5)
    seen = Observed(Setting(2, 32_000, 3), 4, changes_s, 1 / 3, 100.0, 1.5, 1.5, service, even, 9.0, per_change_s)
    return fit(seen, 2.0)


class Found:
    def __init__(self, model):
        self.model, self.settings = model, S


class Window:
    width_s = 60.0

    def __init__(self, *minutes: int):
        self.slices = pd.DataFrame({"slice": [m * 60_000 for m in minutes]})


def aims(model, active=1.0, vcpu=4) -> dict:
    return {aim.name: tuning_table.row(model, S, aim, vcpu, active) for aim in tuning_table.AIMS}


def test_a_row_for_each_aim_and_worker_with_the_settings_by_their_names():
    rows = tuning_table.tuning_table(Found(fitted()), Window(0, 1, 2))
    assert [(r["aim"], r["worker"]) for r in rows] == [
        (a.name, f"{v} vCPU") for a in tuning_table.AIMS for v in (1, 2, 4, 8)
    ]
    assert (
        rows[0]["CdcMaxBatchInterval"] == "900 s" and rows[0]["CdcMinFileSize"] == "128 MB" and rows[0]["wait_s"] == 60
    )
    assert tuning_table.tuning_table(Found(None), Window(0)) == []
    assert "4 vCPU" in repr(Grid(rows)) and "<td" in Grid(rows)._repr_html_()


def test_quicker_costs_more_and_the_order_is_that_of_the_aims():
    found = aims(fitted())
    assert (
        found["cheapest"]["p95_s"]
        > found["minutes"]["p95_s"]
        > found["minutes, warm"]["p95_s"]
        > found["seconds"]["p95_s"]
    )
    assert found["cheapest"]["usd_a_day"] < found["minutes"]["usd_a_day"] < found["seconds"]["usd_a_day"]
    assert 900 <= found["cheapest"]["p95_s"] < 900 + 60 + 60 + 60 and found["seconds"]["p95_s"] < 15


def test_a_job_that_stays_is_paid_all_day_and_one_that_ends_when_idle_for_the_active_share():
    model, stays = fitted(), aims(fitted(), active=0.25)["seconds"]
    requests = stays["usd_a_day"] - 24 * HOUR
    files, looks = 4 * 86_400 / model.file_s(Setting(2, 1024, 3)), 4 * 86_400 / 3
    commits = 4 * 86_400 / model.batch(Setting(2, 1024, 3))[1]
    by_hand = ((files + looks + 7 * commits) * 0.005 + (files + 20 * commits) * 0.0004 + 3 * 2_880 * 0.025) / 1000  # fmt: skip
    assert requests == pytest.approx(by_hand, abs=0.01)
    whole, quarter = aims(model)["minutes, warm"], aims(model, active=0.25)["minutes, warm"]
    assert whole["usd_a_day"] - quarter["usd_a_day"] == pytest.approx(0.75 * 24 * HOUR, abs=0.02)


def test_one_pass_is_paid_for_starts_and_work_and_waits_for_the_look_and_the_start():
    aim, setting = tuning_table.AIMS[0], Setting(900, 128 * 1024, 3)

    def one_pass(aim, start_s=60.0):
        model = replace(fitted(), start_s=start_s)
        run = tuning_table._one_pass(model, aim, setting)
        return run, model.latency(setting, run)

    run, latency = one_pass(aim)
    assert run.look_s == pytest.approx(fitted().file_s(setting) / 4 + 30, rel=0.05)
    assert run.paid == pytest.approx(62 / run.look_s, rel=0.1)
    assert latency[0] - one_pass(aim, 10.0)[1][0] == pytest.approx(50, abs=5)
    assert one_pass(replace(aim, wait_s=600))[1][1] > latency[1] + 200


def test_jobs_that_start_by_the_queue_and_by_a_schedule_are_the_same_at_the_same_times():
    model, scheduled = fitted(), Setting(300, 32_000, 400)
    apart = model.file_s(scheduled) / 4
    aim = tuning_table.Aim("same", 300, 32_000 / 1024, 400, "one pass")
    queued = tuning_table._one_pass(model, replace(aim, wait_s=2 * (400 - apart)), scheduled)
    planned = model.run(scheduled)
    assert replace(queued, window_s=0) == replace(planned, window_s=0) and planned.paid == pytest.approx(
        61 / 400, rel=0.02
    )
    row = tuning_table.row(model, S, aim, 4, 1.0)
    assert row["p95_s"] == pytest.approx(model.latency(scheduled)[1], rel=0.02)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 1.01])
def test_a_job_of_one_pass_is_full_when_the_machine_is(share):
    """Four tables on a machine that does two batches at a time."""
    model = replace(fitted(), per_change_s=share / (20.0 * 2))
    assert (aims(model)["minutes"]["p95_s"] is not None) == (share < 1)


def test_a_worker_that_does_not_keep_up_has_no_figures():
    drowning = fitted(changes_s=40_000.0, service=60.0, per_change_s=0.001)
    rows = tuning_table.tuning_table(Found(drowning), Window(0))
    small = [r for r in rows if r["worker"] == "1 vCPU"]
    assert all(r["p95_s"] is None and r["usd_a_day"] is None for r in small)
    assert "would not keep up" in tuning_table.caption(rows, S) or "no worker keeps up" in tuning_table.caption(rows, S)


@pytest.mark.parametrize("share", [0.9, 0.99, 1.01, 1.05])
def test_a_batch_near_the_limit_takes_what_the_formula_says_and_above_it_has_no_end(share):
    """Four tables on a machine that does two batches at a time: each batch takes 2.5 times as long as alone."""
    model = replace(fitted(), per_change_s=share / (20.0 * 2.5))
    took = model.batch(Setting(2, 1024, 3))[0]
    assert took == pytest.approx(model.fixed_s * 2.5 / (1 - share) if share < 1 else 86_400, rel=1e-6)
    kept_up = {aim: row["p95_s"] is not None for aim, row in aims(model).items()}
    assert kept_up["seconds"] == kept_up["minutes, warm"] == (share < 1)


def test_a_job_of_one_pass_whose_work_grows_faster_than_time_has_no_figures():
    """Of such jobs each is 2 % longer than the one before."""
    model = replace(fitted(), per_change_s=1.02 / (4 * 20.0), parallel=1.0)
    alone = replace(model, observed=replace(model.observed, tables=1, changes_s=80.0))
    assert aims(alone)["minutes"]["p95_s"] is None
    assert aims(replace(alone, per_change_s=0.9 / 80.0))["minutes"]["p95_s"] < 10_000


def test_the_active_share_counts_slices_with_commits():
    assert tuning_table.active_share(Window(0, 1, 1, 9)) == pytest.approx(0.3)
    assert tuning_table.active_share(Window(5)) == 1.0


def test_the_line_below_names_the_cheapest_the_quickest_and_the_date_of_the_prices():
    rows = tuning_table.tuning_table(Found(fitted()), Window(0))
    told = tuning_table.caption(rows, S)
    assert told.startswith("Cheapest: cheapest on 1 vCPU") and "Quickest: seconds on 8 vCPU" in told
    assert "prices of 2025-11, us-east-1" in told
    assert "There is no table" in tuning_table.caption([], S)
