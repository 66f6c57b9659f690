"""The sentences above the charts, computed from the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frazil_old.errors import many
from frazil_old.report.chart_style import span, times
from frazil_old.report.latency import STAGES, TOTAL, after_commit, stage_name
from frazil_old.report.latency_charts import commit_steps
from frazil_old.report.settings_advice import FEWEST

if TYPE_CHECKING:
    import pandas as pd

    from frazil_old.report.latency import Analysis
    from frazil_old.report.settings_advice import Advice

NOTHING = "No commit in this window has source commit times: DMS writes none without TimestampColumnName."
CLOCKS = "How long changes took is not known: by their clocks, most were in the lake before the source committed them."
WHY = {
    "source_to_dms": "DMS holds changes back until CdcMaxBatchInterval is over or CdcMinFileSize is reached",
    "dms_to_landed": "the transfer from DMS's instance to the store",
    "landed_to_pickup": "files wait in the folder until a run polls it: the trigger interval, or a run that is still in progress",
    "pickup_to_commit": "reading, merging and committing a batch",
    "commit_to_visible": "the other engine polls the table now and then",
}


def fresh_now(rows: list[dict[str, Any]]) -> str:
    """Return, from `lag.fresh_now`, whether anything waits."""
    known = [r for r in rows if r.get("pending") is not None]
    late = sorted((r for r in known if r["pending"]), key=lambda r: -(r["waiting_s"] or 0))
    unknown = f" Of {len(rows) - len(known)} tables it is not known." if len(known) < len(rows) else ""
    if late:
        worst = late[0]
        return (
            f"Not fresh: changes wait for {len(late)} of {len(rows)} tables, for longest {worst['table']}'s: "
            f"{span(worst['waiting_s'] or 0)}.{unknown}"
        )
    text = f"Fresh: no change waits for any of {len(known)} tables."
    quiet = [r["newest_change_ago_s"] for r in known if r["newest_change_ago_s"] is not None]
    if quiet and min(quiet) >= 0:  # a source's clock may be ahead
        text += (
            f" The newest one in the lake was committed at the source {span(min(quiet))} ago: an idle source, not lag."
        )
    return text + unknown


def clock(ms: float, width_s: float = 60) -> str:
    """Format a time of the window (epoch milliseconds, UTC); with seconds if slices are shorter than a minute."""
    return f"{times([ms])[0]:%d %b %H:%M}{f':{times([ms])[0]:%S}' if width_s < 60 else ''}"


def backlog(a: Analysis) -> str:
    """Describe how long changes waited, how long at most, and how long the source was quiet."""
    rows = a.backlog
    if rows.empty:
        return _nothing(a)
    worst = rows.loc[rows["waiting_s"].idxmax()]
    idle = ((rows["waiting_s"] == 0) & (rows["quiet_s"] > a.width_s)).mean()
    if not worst["waiting_s"]:
        return f"Nothing was waiting at the end of {many(rows, 'slice')} of {span(a.width_s)}."
    return (
        f"Changes waited for longest at {clock(worst['slice'] + a.width_s * 1000, a.width_s)}: {span(worst['waiting_s'])}. In half "
        f"of the time none waited longer than {span(rows['waiting_s'].median())}; in {idle:.0%} of it nothing waited and the source was quiet."
    )


def _nothing(a: Analysis) -> str:
    """Return why no latency is known, and what the clocks show of it."""
    return f"{CLOCKS} {skew(a)}" if a.clocks_contradict else NOTHING


def _too_short(a: Analysis) -> str:
    """Return a warning if the clocks make some latencies negative; empty if they do not."""
    rows = [r for r in a.skew if r["stage"] == TOTAL] if not a.clocks_contradict else []
    if not rows:
        return ""
    worst = max(rows, key=lambda r: r["at_least_s"])
    return (
        f" Figures of {many(len(rows), 'table')} are too low: by the clocks, changes of {worst['table']} were in the lake up to "
        f"{span(worst['at_least_s'])} before the source committed them."
    )


def all_day(a: Analysis) -> str:
    """Describe how long changes took, and when they took longest."""
    slices, whole = a.percentiles("slice"), a.percentiles()
    if slices.empty:
        return _nothing(a)
    all_, late = whole.iloc[0], _too_short(a)
    text = (
        f"Half of {all_['changes']:,.0f} changes took less than {span(all_['p50'])}, 95 % less than {span(all_['p95'])}"
    )
    usual, worst = slices["p95"].median(), slices.loc[slices["p95"].idxmax()]
    when = f"the {span(a.width_s)} from {clock(worst['slice'], a.width_s)}"
    if worst["p95"] < 2 * usual:
        return f"{text}. It was steady: the p95 of no slice was more than twice the usual {span(usual)}.{late}"
    share = (slices["p95"] > 2 * usual).mean()
    return (
        f"{text}. It was worst in {when}: p95 {span(worst['p95'])}, {worst['p95'] / usual:.1f} times the usual {span(usual)}; "
        f"{share:.0%} of the slices with changes were above twice the usual.{late}"
    )


def tables(a: Analysis) -> str:
    """Name the slowest table, compared with all tables."""
    rows, whole, late = a.percentiles("table"), a.percentiles(), _too_short(a)
    if rows.empty:
        return _nothing(a)
    worst, best = rows.loc[rows["p95"].idxmax()], rows.loc[rows["p95"].idxmin()]
    if len(rows) == 1:
        return f"There is one table, {worst['table']}: p95 {span(worst['p95'])}.{late}"
    if worst["p95"] < 1.1 * best["p95"]:
        return f"All {len(rows)} tables are alike: p95 from {span(best['p95'])} to {span(worst['p95'])}.{late}"
    return (
        f"{worst['table']} is slowest: 95 % of its changes took less than {span(worst['p95'])}, of {best['table']}'s {span(best['p95'])}; "
        f"over all tables it is {span(whole.iloc[0]['p95'])}.{late}"
    )


def stages(a: Analysis) -> str:
    """Name the stage with the most seconds, the one that varies most, and what was not measured."""
    rows = a.percentiles("stage").set_index("stage")
    known = rows.reindex([s for s in STAGES if s in rows.index and s != "commit_to_visible"])
    if known.empty:
        return NOTHING
    total, worst = known["mean"].clip(lower=0).sum() or 1.0, known["mean"].idxmax()
    text = (
        f"{known['mean'][worst] / total:.0%} of a change's time ({span(known['mean'][worst])} of {span(total)} on average) is "
        f"'{stage_name(worst)}': {WHY[worst]}."
    )
    tail = (known["p99"] - known["p50"]).idxmax()
    text += f" The slow ones differ most in '{stage_name(tail)}': p50 {span(known['p50'][tail])}, p99 {span(known['p99'][tail])}."
    last = after_commit(rows.index)
    if not last:
        return text + " When other engines saw the commits was not measured (`frazil visible` does it)."
    times_of = (f"'{stage_name(s)}' took {span(rows['p50'][s])} (p50), {span(rows['p99'][s])} (p99)" for s in last)
    return f"{text} After the commit, {'; '.join(times_of)}."


def slowest_commit(commit: dict[str, Any]) -> str:
    """Describe where one commit spent its time."""
    steps = commit_steps(commit)
    if not steps:
        return NOTHING
    if commit["latency_ms"] and commit["latency_ms"][-2] < 0:
        return CLOCKS
    took, longest = max((end - begin, name) for name, begin, end, _ in steps)
    files = f" in {many(commit['files'], 'file')}" if commit["files"] else ""
    return (
        f"The slowest commit took {span(commit['latency_ms'][-2] / 1000)} (p99 of its {many(commit['changes'], 'change')}{files}). "
        f"The longest step, {span(took)}, is '{longest}'."
    )


def hours(a: Analysis) -> str:
    """Name the worst hour of the worst table."""
    rows = a.percentiles("table", "hour")
    if rows.empty:
        return _nothing(a)
    if rows["hour"].nunique() < 2:
        return "All changes of this window are of one hour: there are no hours to compare."
    worst = rows.loc[rows["p95"].idxmax()]
    return f"Worst was {worst['table']} in the {span(a.hour_s)} from {clock(worst['hour'])}: p95 {span(worst['p95'])}."


def skew(a: Analysis) -> str:
    """Name the clocks that contradict each other, or state that none do."""
    if not a.skew:
        return (
            "No clock contradicts another by more than its resolution (whole seconds on S3). A clock that is ahead at the source, or behind "
            "it by less than a stage takes, looks like a delay."
        )
    worst = max(a.skew, key=lambda r: r["at_least_s"])
    name = stage_name(worst["stage"])
    return (
        f"Clocks contradict each other: '{name}' of {worst['table']} took less than 0 s in {worst['commits']} of {worst['of']} "
        f"commits, by up to {span(worst['at_least_s'])}. The clock at its end is behind that at its beginning by at least as much, so "
        "this stage is longer than shown, and the next one shorter."
    )


def advice(found: Advice) -> str:
    """Describe the present setting, and a quicker one for the same money or a cheaper one of the same latency."""
    if not found.model:
        return (
            f"There is no advice: it needs {FEWEST} commits with source commit times and the times at which files landed, "
            "by clocks that do not contradict each other."
        )
    now = found.rows[0]
    text = (
        f"Now: p95 {span(found.now.p95)} measured, {span(now['p95_s'])} by the model, about ${now['usd_a_day']:,.2f} a day on AWS "
        f"for {found.settings.price('worker_vcpu'):g} vCPUs at prices of {found.settings.prices_of}."
    )

    def sentence(r: dict[str, Any]) -> str:
        return (
            f"CdcMaxBatchInterval {r['max_batch_interval_s']:g} s, a trigger of {r['trigger_s']:g} s and a worker × {r['worker']:g} would come to "
            f"p95 {span(r['p95_s'])} for ${r['usd_a_day']:,.2f}"
        )

    same = [r for r in found.rows if r["worker"] == 1 and r["usd_a_day"] <= now["usd_a_day"] * 1.02]
    quicker = min(same, key=lambda r: r["p95_s"])
    cheaper = min((r for r in found.rows if r["p95_s"] <= now["p95_s"] * 1.02), key=lambda r: r["usd_a_day"])
    better = []
    if quicker["p95_s"] < 0.9 * now["p95_s"]:
        better.append(f"Quicker for no more money, on the same worker: {sentence(quicker)}.")
    if cheaper["usd_a_day"] < 0.9 * now["usd_a_day"]:
        better.append(
            f"As quick and cheaper: {sentence(cheaper)}; of another worker's size that is a model, not a measurement."
        )
    none = ["No setting tried is a tenth better in latency or cost without being worse in the other."]
    return " ".join([text, *(better or none)])


def timeline(a: Analysis, actions: pd.DataFrame) -> str:
    """Describe the maintenance in the window, and the latency during and outside it."""
    lines = a.percentiles("slice")
    done = actions.dropna(subset=["ended_ms"])
    done = done[(done["ended_ms"] >= a.first_ms) & (done["began_ms"] <= a.last_ms)]
    if lines.empty or done.empty:
        return "No maintenance ran during ingestion in this window."
    width = a.width_s * 1000
    busy = lines["slice"].map(lambda at: bool(((done["began_ms"] < at + width) & (done["ended_ms"] > at)).any()))
    kinds = ", ".join(f"{n} × {k}" for k, n in done["action"].value_counts().items())
    text = f"Maintenance ran in {busy.sum()} of {len(lines)} slices of {span(a.width_s)} with commits ({kinds})."
    if busy.all() or not busy.any():
        return text
    there, else_ = lines["p95"][busy].median(), lines["p95"][~busy].median()
    return f"{text} The p95 of such a slice was {span(there)} (median), of the others {span(else_)}."


def health(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> str:
    """Describe in one sentence what maintenance changed."""
    pairs = [
        (b, a)
        for b, a in zip(before, after, strict=True)
        if a.get("data_files") is not None and b.get("data_files") is not None
    ]
    if not pairs:
        return "No table could be measured."

    def sums(field: str) -> str:
        old, new = (sum(p[i][field] for p in pairs) for i in (0, 1))
        return f"{old:,} → {new:,}"

    rose = any(a["small_files"] > b["small_files"] for b, a in pairs)
    meanwhile = " Ingestion wrote files meanwhile." * rose
    return (
        f"Over {len(pairs)} tables: data files {sums('data_files')}, small ones {sums('small_files')}, delete files {sums('delete_files')}, "
        f"snapshots {sums('snapshots')}, manifests {sums('manifests')}.{meanwhile}"
    )
