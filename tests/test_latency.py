"""Latency over many commits: merged sketches, idle sources, clocks that contradict each other, advice."""

import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from frazil_old.cli import visible
from frazil_old.config.settings import LatencySettings, OperateSettings
from frazil_old.dms.endpoint import DatePartition, Endpoint
from frazil_old.dms.listing import DmsObject
from frazil_old.engine import latency_sketch, small_batch
from frazil_old.engine.latency_sketch import OF_FILES, QUANTILES, Ages, sketch
from frazil_old.flows import lag, ledger
from frazil_old.lake import jvm, pyiceberg_catalog
from frazil_old.report import chart_captions, lake_charts, latency_charts
from frazil_old.report.chart_style import tick
from frazil_old.report.latency import Analysis, shares, stage_name, stage_rows
from frazil_old.report.settings_advice import Advice, Observed, Setting, fit
from helpers import FILE2, FILE3, D, I, U

SCHEMA = """table string, snapshot_id long, committed_ms long, visible_ms long, changes long, files long, bytes long, picked_up_ms long,
    read_ms long, age_ms array<long>, dms_ms array<long>, land_ms array<long>, wait_ms array<long>, latency_ms array<long>, served_ms map<string, long>"""
NOON = 1_800_000_000_000


def commit(
    table="shop.orders",
    at_s=0.0,
    delays=(5.0,),
    dms=None,
    land=0.1,
    wait=1.0,
    work=1.0,
    visible=None,
    bytes_=1000,
    served=None,
):
    """A commit's row in the ledger; `delays` are its changes' seconds from source commit to commit."""
    ordered, committed = sorted(delays), NOON + round(at_s * 1000)

    def points(values, at):
        return [round(1000 * values[min(int(q * len(values)), len(values) - 1)]) for q in at]

    age = points([d - work for d in ordered], QUANTILES)
    written = points([d - work - wait - land for d in ordered], QUANTILES) if dms is None else dms
    seen = None if visible is None else committed + round(visible * 1000)
    return (table, committed, committed, seen, len(ordered), 1, bytes_, committed - round(work * 1000), 300, age, written,
            [round(land * 1000)] * len(OF_FILES), [round(wait * 1000)] * len(OF_FILES), points(ordered, QUANTILES),
            served and {n: committed + round(s * 1000) for n, s in served.items()})  # fmt: skip


@pytest.fixture
def analysed(spark):
    return lambda *commits: Analysis(spark.createDataFrame(list(commits), SCHEMA))


def test_a_points_share_is_of_the_changes_nearest_to_it():
    for points in (QUANTILES, OF_FILES):
        assert abs(sum(shares(points)) - 1) < 1e-9
    assert shares((0.0, 0.5, 1.0)) == (0.25, 0.5, 0.25)


def test_of_many_changes_some_make_the_sketch_and_the_least_and_greatest_age_are_of_all():
    """Commit times spread over 1,000 s, one a week before; the file was written 5 s after the last of them."""
    week_s, last_s = 604_800, 1_700_000_000
    times = [(last_s * 1000 - (week_s * 1000 if n == 3 else n * 10)) * 1000 for n in range(100_000)]
    block = pa.RecordBatch.from_pydict({"commit_ts": pa.array(times, pa.timestamp("us", "UTC"))})
    found = []
    for every in (1, 10):
        ages = Ages(every)
        ages.add(block, last_s + 5.0)
        found.append(ages.points())
    assert sum(map(len, ages.age)) == 10_000
    for name in ("age", "dms"):
        whole, some = (json.loads(points[name]) for points in found)
        assert len(some) == len(QUANTILES) and some == sorted(some)
        inner = list(zip(whole, some, strict=True))[1:-1]
        assert all(abs(a - b) <= 3_000 for a, b in inner), inner  # of 1,000,000 ms
    whole, some = (json.loads(points["age"]) for points in found)
    assert (some[0], some[-1]) == (whole[0], whole[-1]) and whole[-1] == (week_s - last_s) * 1000


def test_changes_without_a_commit_time_have_no_delays():
    ages = Ages()
    ages.add(pa.RecordBatch.from_pydict({"commit_ts": pa.nulls(3, pa.timestamp("us", "UTC"))}), 1.0)
    assert ages.points() == {"age": None, "dms": None}


def test_a_large_batch_is_applied_and_told_of_as_a_small_one(world, monkeypatch):
    """The times of few rows are looked at, and nothing contradicts the order where no rule brings what could."""
    counts, sketches, rules = [], [], world.rules
    for table, most_mb in (("a", small_batch.MOST_MB), ("b", -1), ("c", -1)):
        monkeypatch.setattr(small_batch, "MOST_MB", most_mb)
        monkeypatch.setattr(latency_sketch, "SAMPLED", 10**6 if table == "a" else 1)
        world.rules = {"rules": []} if table == "c" else rules
        world.table(table).load(table, (1, "a"), (2, "b")).loaded()
        world.changes(table, *[U(1, f"v{n}") for n in range(60)], D(2), I(3, "c")).merged(tables=[f"public.{table}"])
        assert world.rows(table) == [(1, "v59"), (3, "c")]
        told = world.history(table)[0].summary()
        counts.append(json.loads(told["frazil.counts"]))
        sketches.append(json.loads(told["frazil.latency"]))
    assert all({**c, "bytes": 0} == {**counts[0], "bytes": 0} for c in counts) and counts[0]["U"] == 60, counts
    assert all(len(s["age"]) == len(s["dms"]) == len(QUANTILES) for s in sketches), sketches
    assert len({s["picked_up"] - s["age"][-1] for s in sketches}) == 1  # when the first was committed


def test_a_sketch_tells_of_files_by_their_names_and_landing_and_stays_small():
    picked_up = 1_704_103_260.0  # 2024-01-01 10:01:00
    files = [
        DmsObject("20240101-100000000.csv", "/a", 900, "e", picked_up - 58),
        DmsObject("20240101-100030000.csv", "/b", 100, "e", picked_up - 29),
    ]
    observed = {"changes": 7, "age": str([10**6] * 15), "dms": str([10**6] * 15)}
    text = sketch(observed, picked_up, [*files, DmsObject("offset", "", 1, "")], DatePartition())
    assert len(text) < 512
    assert '"land":[1000,2000,2000,2000,2000]' in text
    assert '"wait":[29000,58000,58000,58000,58000]' in text


@pytest.mark.spark
def test_percentiles_over_commits_are_those_of_all_changes_and_no_means_of_percentiles(analysed):
    dice, commits, all_ = random.Random(3), [], []
    for number in range(60):
        scale = 30 if number % 10 == 0 else 2  # a tenth of the commits is slow, and has many changes
        delays = [3 + dice.expovariate(1 / scale) for _ in range(2000 if scale == 30 else 200)]
        commits.append(commit(at_s=number * 7, delays=delays))
        all_ += delays
    found = analysed(*commits).percentiles().iloc[0]
    all_.sort()
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        exact = all_[int(share * len(all_))]
        assert abs(found[name] - exact) < 0.06 * exact, name
    assert found["p99"] == pytest.approx(all_[int(0.99 * len(all_))], rel=0.25)
    assert found["max"] == pytest.approx(all_[-1], abs=0.01)
    assert found["changes"] == pytest.approx(len(all_), abs=60)


@pytest.mark.spark
def test_rounding_makes_no_mean_above_the_maximum_and_no_changes(analysed):
    a = analysed(*(commit(at_s=n, delays=(1.47,) * 3) for n in range(2000)))
    found = a.percentiles().iloc[0]
    assert found["mean"] <= found["max"] == 1.47 and found["changes"] == 6000


@pytest.mark.spark
def test_what_is_compared_of_many_days_is_longer_than_an_hour_and_said_to_be(analysed):
    a = analysed(*(commit(at_s=86_400 * n, delays=(40.0 if n == 3 else 2.0,)) for n in range(30)))
    assert chart_captions.hours(a) == "Worst was shop.orders in the 12.0 h from 18 Jan 00:00: p95 40.0 s."
    assert "every 12.0 h" in latency_charts.tables_by_hour(a).axes[0].get_title(loc="left")
    a = analysed(*(commit(at_s=1800 * n) for n in range(4)))
    assert "in the 60.0 min from" in chart_captions.hours(a)


@pytest.mark.spark
def test_one_latency_alone_is_a_curve_and_long_ones_are_written_out(analysed):
    figure = latency_charts.ecdf(analysed(commit(delays=(100_000_000.0,))))
    (table, whole, *_) = figure.axes[0].lines
    assert list(table.get_ydata()) == list(whole.get_ydata()) == [0, 100]
    assert [tick(86_400.0 * days) for days in (2.5, 1157.0)] == ["2.5 days", "1,160 days"]


@pytest.mark.spark
def test_an_idle_source_is_not_lag_and_a_backlog_is(analysed):
    busy = [commit(at_s=at, delays=(4.0, 6.0)) for at in range(0, 300, 5)]
    late = commit("shop.events", at_s=900, delays=(400.0, 420.0))  # nothing came for ten minutes but what waited here
    rows = analysed(*busy, late).backlog.set_index("slice")
    quiet = rows.loc[NOON + 420_000]  # both tables have been idle for two minutes
    assert quiet["waiting_s"] == 0
    assert 100 < quiet["quiet_s"] < 150
    waiting = rows.loc[NOON + 840_000]
    assert 330 < waiting["waiting_s"] < 380
    assert "waited for longest" in chart_captions.backlog(analysed(*busy, late))


@pytest.mark.spark
def test_a_single_slice_is_drawn_in_its_own_time(analysed):
    one = analysed(commit(delays=(4.0, 6.0)))
    axes = latency_charts.backlog(one).axes[0]
    assert axes.get_xlim()[1] - axes.get_xlim()[0] < 1, "days"
    assert "1 slice of" in chart_captions.backlog(one)


@pytest.mark.spark
def test_clocks_that_contradict_each_other_are_shown_and_not_cut_off(analysed):
    good = [commit(at_s=at, delays=(4.0, 6.0)) for at in range(0, 50, 5)]
    assert analysed(*good).skew == []
    behind = [commit("shop.events", at_s=at, delays=(4.0, 6.0), dms=[-2500] * 15) for at in range(0, 50, 5)]
    a = analysed(*good, *behind)
    (row,) = a.skew
    assert (row["table"], row["stage"], row["commits"], row["of"], row["at_least_s"]) == (
        "shop.events",
        "source_to_dms",
        10,
        10,
        2.5,
    )
    assert "2.5 s" in chart_captions.skew(a)
    stages = a.percentiles("table", "stage").set_index(["table", "stage"])
    assert stages.loc[("shop.events", "source_to_dms")]["p50"] == pytest.approx(-2.5, rel=0.02)
    assert latency_charts.stages(a) is not None


@pytest.mark.spark
def test_latencies_below_zero_are_no_latencies(analysed):
    """A source's clock that is ahead: of all tables, and of one among others."""
    import pandas as pd

    a = analysed(*(commit(at_s=at, delays=(-9.0, -7.0)) for at in range(0, 8000, 100)))
    draws = ("heat", "backlog", "ecdf", "tables_by_hour")
    assert [getattr(latency_charts, draw)(a) for draw in draws] == [None] * 4
    assert lake_charts.timeline(a, pd.DataFrame(columns=["action", "began_ms", "ended_ms"])) is None
    for told in (chart_captions.all_day, chart_captions.backlog, chart_captions.tables, chart_captions.hours):
        assert told(a).startswith(chart_captions.CLOCKS) and "by up to 11.1 s" in told(a), told
    assert chart_captions.slowest_commit(a.slowest()) == chart_captions.CLOCKS
    advice = Advice(a, LatencySettings(trigger_s=2.0), Endpoint())
    assert advice.model is None and "do not contradict" in chart_captions.advice(advice)
    assert stage_rows(a)[-1]["p50"] == pytest.approx(-7.0, rel=0.3)

    good = [commit(at_s=at, delays=(4.0, 6.0)) for at in range(0, 200, 5)]
    a = analysed(*good, *(commit("shop.ahead", at_s=at, delays=(-9.0,)) for at in range(0, 200, 5)))
    grid = latency_charts.heat(a).axes[0].collections[0]
    assert grid.get_coordinates()[..., 1].min() > 3.0, "no band for what took less than 0 s"
    late = analysed(*good, *(commit(at_s=at, delays=(-9.0,)) for at in range(200, 240, 5)))
    none = pd.DataFrame(columns=["action", "began_ms", "ended_ms"])
    for axes in (latency_charts.heat(late).axes[0], lake_charts.timeline(late, none).axes[1]):
        assert all(line.get_ydata()[-1] != line.get_ydata()[-1] for line in axes.lines), "no line below 0 s"
    curve = latency_charts.ecdf(a).axes[0].lines[-4]
    assert [y for x, y in zip(*curve.get_data(), strict=True) if x < 0][-1] == pytest.approx(100 / 3, abs=1)
    for told in (chart_captions.all_day(a), chart_captions.tables(a)):
        assert (
            "Figures of 1 table are too low: by the clocks, changes of shop.ahead were in the lake up to 9.0 s before"
            in told
        )
    assert "too low" not in chart_captions.all_day(analysed(*good))


@pytest.mark.spark
def test_a_few_commits_without_source_times_still_tell_of_the_stages_that_are_known(analysed):
    row = list(commit(visible=0.4))
    row[9], row[10], row[13] = None, None, None
    a = analysed(tuple(row))
    stages = a.percentiles("stage").set_index("stage")["p50"]
    assert set(stages.index) == {"dms_to_landed", "landed_to_pickup", "pickup_to_commit", "commit_to_visible"}
    assert stages["commit_to_visible"] == pytest.approx(0.4, rel=0.02)
    for draw in (latency_charts.heat, latency_charts.backlog, latency_charts.ecdf, latency_charts.tables_by_hour):
        assert draw(a) is None
    assert chart_captions.all_day(a) == chart_captions.NOTHING
    assert "TimestampColumnName" in chart_captions.tables(a)
    assert latency_charts.slowest_commit(a.slowest()) is None


@pytest.mark.spark
def test_the_last_stages_are_those_of_each_warehouse_with_the_same_words_everywhere(analysed):
    commits = [commit(at_s=10.0 * n, served={"duck": 0.5, "snow": 4.0}, visible=1.0) for n in range(5)]
    a = analysed(*commits, commit(at_s=60.0))
    stages = a.percentiles("stage").set_index("stage")
    names = {s: stage_name(s) for s in stages.index if s.startswith("commit_to_served")}
    assert names == {
        "commit_to_served duck": "committed → served by duck",
        "commit_to_served snow": "committed → served by snow",
    }
    assert stages["p50"]["commit_to_served snow"] == pytest.approx(4.0, rel=0.02)
    assert stages["changes"]["commit_to_served duck"] == 5, "a commit that nobody has served yet has no such stage"
    rows = [r["stage"] for r in stage_rows(a)]
    assert rows[3:] == [
        "picked up → committed",
        "committed → seen by another engine",
        *names.values(),
        "source commit → committed",
    ]
    assert isinstance(stage_rows(a)[0]["changes"], int)
    figure = latency_charts.stages(a)
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[-3:] == ["committed → seen by another engine", *names.values()]
    assert "'committed → served by snow' took 4.0 s (p50)" in chart_captions.stages(a)
    below = figure.axes[1]
    lefts = {round(bar.get_x(), 2) for bar in below.patches if bar.get_height() < 0.3 and bar.get_width() > 0}
    assert len(lefts) == 1, "the last stages begin together, at the commit"
    steps = [s[0] for s in latency_charts.commit_steps(a.slowest())]
    assert steps[:3] == ["committed at the source", "held by DMS", "files written by DMS"]
    assert "served by duck" in steps or a.slowest()["served_ms"] is None


@pytest.mark.spark
def test_maintenance_is_set_beside_ingestion_and_what_was_killed_has_no_bar(analysed):
    import pandas as pd

    a = analysed(*(commit(at_s=at, delays=(9.0 if 100 <= at < 150 else 3.0,)) for at in range(0, 300, 5)))
    ran = [
        ("compact", NOON + 100_000, NOON + 150_000),
        ("compact", NOON + 200_000, None),
        ("expire snapshots", NOON - 900_000, NOON - 890_000),
    ]
    actions = pd.DataFrame([{"action": k, "began_ms": b, "ended_ms": e} for k, b, e in ran])
    told = chart_captions.timeline(a, actions)
    assert "(1 × compact)" in told
    assert "p95 of such a slice was 9.0 s (median), of the others 3.0 s" in told
    figure = lake_charts.timeline(a, actions)
    assert [t.get_text() for t in figure.axes[2].get_yticklabels()] == ["compact"]
    assert len(figure.axes[2].patches) == 1
    lone = lake_charts.timeline(
        analysed(*(commit(at_s=at) for at in (0, 100, 200))), actions
    )  # 200 slices, 3 with commits
    assert {line.get_marker() for line in lone.axes[1].lines if line.get_label() in ("p50", "p95")} == {"."}
    assert chart_captions.timeline(a, actions[1:]) == "No maintenance ran during ingestion in this window."


@pytest.mark.spark
def test_a_commit_of_messages_has_no_files_and_times_are_in_utc_in_any_session(analysed, spark):
    row = list(commit())
    row[5], row[6], row[11], row[12] = None, None, None, None
    a = analysed(tuple(row))
    assert "(p99 of its 1 change)." in chart_captions.slowest_commit(a.slowest())
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert a.newest()[0]["committed"] == "2027-01-15 08:00:00"
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.spark
def test_no_commit_at_all_is_said(analysed):
    a = analysed()
    assert (a.count, a.skew, a.newest(), a.slowest()) == (0, [], [], {})
    for say in (chart_captions.all_day, chart_captions.backlog, chart_captions.tables, chart_captions.stages):
        assert say(a) == chart_captions.NOTHING
    assert a.percentiles("table", "hour", "stage").nlargest(10, "p95").empty, "its figures are numbers all the same"
    assert latency_charts.stages(a) is None


@pytest.mark.spark
@pytest.mark.parametrize("killed", [False, True], ids=["written again", "killed"])
def test_a_batch_that_was_given_up_on_its_branch_counts_once(world, monkeypatch, killed):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b"), I(2, "c"))
    real, times = jvm.publish, []

    def publish(*arguments):
        times.append(1)
        if len(times) == 1:
            if killed:
                raise KeyboardInterrupt
            world.spark.sql(f"INSERT INTO {world.name('t')} VALUES (9, 'theirs')")
        return real(*arguments)

    monkeypatch.setattr(jvm, "publish", publish)
    if killed:
        with pytest.raises(BaseException):  # noqa: B017, PT011
            world.merge(lane="merge")
    world.merged(lane="merge")
    assert len(times) == 2 and world.spark.table(f"{world.name('t')}.snapshots").count() > len(world.history("t"))
    book = world.book(LatencySettings)
    assert [r.changes for r in ledger.commits(book).collect()] == [2]
    assert sum(r["kind"] == "changes" for r in ledger.history(book, "public.t", 20)) == 1


@pytest.mark.spark
def test_the_worst_latency_of_a_run_is_known_though_a_table_does_not_exist(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b")).merged()
    world.table("a").table("z")
    assert lag.worst_latency(world.book(OperateSettings).settings, 0.0) > 86_400


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Bogota"])
def test_names_of_files_in_a_time_zone_are_times_of_that_zone(new_world, zone):
    w = new_world(DatePartitionEnabled=True, DatePartitionTimezone=zone)
    w.table("t").load("t", (1, "a")).loaded()
    written = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=20)
    name = f"{written.astimezone(ZoneInfo(zone)):%Y/%m/%d/%Y%m%d-%H%M%S000}.csv"
    w.changes("t", U(1, "b", ts=f"{written - timedelta(seconds=60):%Y-%m-%d %H:%M:%S}.000000"), name=name)
    os.utime(w.root / "source/public/t" / name, (written.timestamp() + 2,) * 2)
    (row,) = lag.per_table(w.book(OperateSettings))
    assert 1190 < row["lag_s"] < 1800
    w.merged()
    (found,) = ledger.commits(w.book(LatencySettings)).collect()
    assert set(found.dms_ms) == {60_000} and set(found.land_ms) == {2000}


@pytest.mark.spark
def test_what_was_seen_is_added_later_if_another_run_commits_first(world, monkeypatch):
    world.table("t").load("t", (1, "a")).loaded()
    stop, looks, tries = threading.Event(), iter([{1}, {1, 2}]), []
    real = pyiceberg_catalog.append

    def append(*given):
        tries.append(1)
        if len(tries) == 1:
            raise pyiceberg_catalog.CatalogError("the branch main has changed")
        stop.set()
        real(*given)

    monkeypatch.setattr(visible, "WRITE_S", 0.0)
    monkeypatch.setattr(pyiceberg_catalog, "seen", lambda table: next(looks, {1, 2}))
    monkeypatch.setattr(pyiceberg_catalog, "append", append)
    book = world.book(LatencySettings)
    assert visible.watch(book, stop, 0.01) == 1
    assert [r.snapshot_id for r in world.spark.table(book.ops("visible")).collect()] == [2]


@pytest.mark.spark
def test_a_commit_keeps_its_time_when_only_a_tag_keeps_its_snapshot(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b")).merged(lane="merge")
    book = world.book(LatencySettings)
    (before,) = ledger.commits(book).collect()
    ledger.record(book)
    world.spark.sql(f"ALTER TABLE {world.name('t')} CREATE TAG kept")
    world.changes("t", U(1, "c"), name=FILE2).merged(lane="merge")
    world.call("expire_snapshots", "t", ", older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 1")
    after = {r.snapshot_id: r.committed_ms for r in ledger.commits(book).collect()}
    assert len(after) == 2 and after[before.snapshot_id] == before.committed_ms


@pytest.mark.slow
def test_a_second_engine_tells_when_it_saw_each_commit_and_what_is_not_measured_is_absent(world):
    world.table("t").load("t", (1, "a")).loaded()
    world.changes("t", U(1, "b")).merged()
    book, stop = world.book(LatencySettings), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(visible.watch, book, stop, 0.1)
        time.sleep(2)
        world.changes("t", I(2, "c"), name=FILE2).merged()
        time.sleep(1)
        stop.set()
        assert watching.result() == 1
    first, second = ledger.commits(book).orderBy("committed_ms").collect()
    assert first.visible_ms is None
    assert 0 <= second.visible_ms - second.committed_ms < 20_000
    (now,) = lag.fresh_now(book, Analysis(ledger.commits(book)))
    assert (now["state"], now["pending"]) == ("fresh", 0)
    world.changes("t", D(1), name=FILE3)
    (now,) = lag.fresh_now(book, Analysis(ledger.commits(book)))
    assert (now["state"], now["pending"]) == ("late", 1)
    assert chart_captions.fresh_now([now]).startswith("Not fresh: changes wait for 1 of 1 tables")


# --- advice


def seen(interval, trigger, service, dms, wait, p95=9.0, tables=4):
    even = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5)
    return Observed(
        Setting(interval, 32_000, trigger), tables, 2.0, 1 / (interval + 1.0), 100.0, dms, wait, service, even, p95
    )


def test_the_model_gives_back_what_it_was_fitted_on_and_queues_where_the_machine_is_full():
    truth = replace(fit(seen(2, 3, 1.0, 1.5, 1.5), 2.0), fixed_s=0.8, parallel=1.5, delta=0.3, epsilon=0.2)
    settings = [Setting(1, 32_000, 1), Setting(5, 32_000, 3), Setting(10, 32_000, 10)]
    for x in settings:
        wait_dms = 0.3 + x.interval_s * (1 / (1 + x.interval_s) + x.interval_s / (1 + x.interval_s) / 2)
        service = truth.batch(x)[0]
        measured = seen(x.interval_s, x.trigger_s, service, wait_dms, 0.2 + truth.run(x).window_s / 2)
        found = fit(measured, 1.5)
        assert found.fixed_s == pytest.approx(0.8, rel=0.01)
        assert found.batch(x)[0] == pytest.approx(service, rel=0.01)
        for other in (*settings, Setting(2, 32_000, 30), Setting(20, 32_000, 0)):
            assert found.latency(other) == pytest.approx(truth.latency(other), rel=0.08)
        assert (found.delta, found.epsilon) == pytest.approx((0.3, 0.2), abs=0.05)
    slow, quick = (replace(found, fixed_s=f).batch(Setting(1, 32_000, 0))[0] for f in (4.0, 0.1))
    assert slow > 4.0 * 2 > quick  # four tables share a machine that does one and a half at a time


def test_a_model_fitted_on_jobs_by_a_schedule_gives_them_back():
    truth = replace(fit(seen(2, 3, 1.0, 1.5, 1.5), 2.0), fixed_s=8.0, parallel=1.5, epsilon=2.0)
    x = Setting(10, 32_000, 300)
    run = truth.run(x)
    measured = seen(10, 300, run.service_s, 8.0, 60 + run.window_s / 2 + 2.0)
    found = fit(measured, 1.5)
    assert (found.fixed_s, found.epsilon) == pytest.approx((8.0, 2.0), rel=0.05)
    assert found.run(Setting(2, 32_000, 3)).service_s == pytest.approx(
        truth.run(Setting(2, 32_000, 3)).service_s, rel=0.05
    )


def test_cheaper_is_slower_and_prices_are_the_settings(tmp_path):
    model, s = fit(seen(2, 3, 1.0, 1.5, 1.5), 2.0), LatencySettings()
    now = Setting(2, 32_000, 3)
    rare, large = replace(now, trigger_s=900), replace(now, speed=2.0)
    assert model.cost(rare, s) < model.cost(now, s) < model.cost(large, s)
    assert model.latency(rare)[1] > model.latency(now)[1] > model.latency(large)[1]
    dear = LatencySettings(prices={**s.prices, "vcpu_hour": "0.5"})
    assert model.cost(now, dear) > 3 * model.cost(now, s)
    assert model.cost(now, LatencySettings(prices={"vcpu_hour": "0.5"})) == model.cost(now, dear)
    of_two_workers = LatencySettings(prices={"worker_vcpu": "8", "worker_gb": "32"})
    assert model.cost(now, of_two_workers) == pytest.approx(model.cost(large, s))
    assert of_two_workers.prices_of == s.prices_of != LatencySettings(prices={"gb_hour": "1"}).prices_of
    assert model.latency(rare)[0] - replace(model, start_s=10.0).latency(rare)[0] == pytest.approx(50, abs=1)
    more = replace(now, min_file_kb=0.1)
    assert model.latency(more)[0] < model.latency(now)[0]


@pytest.mark.parametrize("seen", [(0,), (1, 2), ()], ids=["the newest unseen", "some seen", "none seen"])
def test_every_slice_and_every_table_has_its_bar_whichever_commits_another_engine_saw(analysed, seen):
    """The slowest slice is one that nobody saw; of 24 tables one was never seen."""
    slow = commit(at_s=40, delays=(78.6,), work=60.0)
    fast = [commit(at_s=n * 10, delays=(3.0 + n,), visible=0.5 if n in seen else None) for n in range(3)]
    tables = [commit(f"shop.t{n}", at_s=5, delays=(4.0,), visible=1.0 if n and seen else None) for n in range(24)]
    a = analysed(*fast, slow, *tables)
    figure = latency_charts.stages(a)
    top, bottom = figure.axes
    ends = {}
    for bar in top.patches:
        ends[round(bar.get_x(), 8)] = max(ends.get(round(bar.get_x(), 8), 0), bar.get_y() + bar.get_height())
    assert len(ends) == len(a.percentiles("slice")) and all(ends.values())
    labels = [t.get_text() for t in top.texts if "78." in t.get_text()]
    assert max(ends.values()) == pytest.approx(78.6, rel=0.03) or labels
    lengths = {}
    for bar in bottom.patches:
        at = round(bar.get_y(), 3)
        lengths[at] = max(lengths.get(at, 0), bar.get_x() + bar.get_width())
    assert len(lengths) == 25 and all(lengths.values())
