"""Order and meaning of changes: a key change becomes delete + upsert, then the last change per key wins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.changes.changeset import ORDER, Observed, observed
from frazil.changes.fold import fold, passes_sql
from frazil.config.spec import TableSpec
from frazil.config.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = "struct(cast(phase as bigint) as phase, object, lpad(cast(row_no as string), 60, '0') as row_no)"
"""The SQL of a row's place: rows of streams may be numbered by texts of digits."""


def _moved(spec: TableSpec) -> str:
    """The SQL of whether an update changed the key."""
    names = map(identifier, spec.key)
    parts = [f"(before.{k} is not null and not before.{k} <=> after.{k})" for k in names]
    return f"(op = 'U' and ({' or '.join(parts)}))"


def events(changes: DataFrame, spec: TableSpec, *more: str) -> DataFrame:
    """Split each update that changed the key: delete the old key (`step` 0), upsert the new (`step` 2).

    Any other change is `step` 1. So a chain 1 → 2 → 3 needs no special care later: each old key's last event is its
    delete. `more`: extra columns to keep.
    """
    kinds = {f.name: f.dataType.simpleString() for f in changes.schema["after"].dataType}
    old = {c: f"before.{identifier(c)}" if c in spec.key else f"cast(null as {kinds[c]})" for c in spec.names}
    old_row = f"named_struct({', '.join(f'{literal(c)}, {value}' for c, value in old.items())})"
    delete = f"named_struct('step', 0, 'op', 'D', 'after', {old_row})"
    apply, arrive = (f"named_struct('step', {step}, 'op', op, 'after', after)" for step in (1, 2))
    split = f"if({_moved(spec)} and bad is null, array({delete}, {arrive}), array({apply}))"
    carried = (*ORDER, "commit_ts", "change_seq", *more)
    return changes.selectExpr(*carried, f"explode({split}) as e").selectExpr(*carried, "e.step", "e.op", "e.after")


def last_per_key(
    changes: DataFrame,
    spec: TableSpec,
    observation: Observed | None = None,
    partial: bool = False,
    places: bool = False,
    keys: bool = False,
) -> DataFrame:
    """Collapse a change set to the last event per key: `op` (`D`, or an upsert), `after`, and that event's `commit_ts`.

    The observation, if given, gets `out_of_sequence`: the number of events for which DMS's own sequence contradicts the
    order of their key. Only its time prefix (16 digits) is compared, since the counter after it restarts with the task.
    It also gets `passed`: the number of keys for which `passed_keys` may return something.

    `partial`: rows may lack columns; see `fold.fold`. `places`: add `place`, the event's place in the batch. `keys`:
    add the key as separate columns, `k0` …, by which Spark has distributed the rows. Bad rows with their kept content
    (`aside`) stay, each on its own.
    """
    if partial:
        return fold(events(changes, spec, "missing"), spec, observation)
    return last_event(
        events(changes, spec, *[c for c in changes.columns if c == "aside"]), spec, observation, places, keys
    )


def last_event(
    split: DataFrame,
    spec: TableSpec,
    observation: Observed | None = None,
    places: bool = False,
    keys: bool = False,
) -> DataFrame:
    """Return the last of `events` per key; see `last_per_key`."""
    from pyspark.sql import functions as F

    aside = ["aside"] if "aside" in split.columns else []
    good = [f"{a} is null" for a in aside]
    of_key = [f"after.{identifier(k)}" for k in spec.key]
    if keys:
        split = split.selectExpr("*", *[f"{k} as k{i}" for i, k in enumerate(of_key)])
        of_key = [f"k{i}" for i in range(len(of_key))]
    newest_first = (
        f"over (partition by {', '.join([*of_key, *good])} order by {', '.join(f'{c} desc' for c in (*ORDER, 'step'))})"
    )
    time = "substring(change_seq, 1, 16)"
    ranked = split.selectExpr(
        "op", "after", "commit_ts", *([f"{PLACE} as place"] if places else []), *aside, *(of_key if keys else []),
        f"row_number() {newest_first} as rank",
        f"{' and '.join([f'lead({time}) {newest_first} > {time}', *good])} as backwards",
        f"{passes_sql('lead', newest_first)} as passes",
    )  # fmt: skip
    if observation is not None:
        counts = ("count_if(backwards) as out_of_sequence", "count_if(rank = 1 and passes) as passed")
        ranked = observed(ranked, observation, [F.expr(c) for c in counts])
    wanted = ranked.where(" or ".join(["rank = 1", *(f"{a} is not null" for a in aside)]))
    return wanted.drop("rank", "backwards", "passes")


def passed_keys(changes: DataFrame, spec: TableSpec, ever: bool = False) -> DataFrame:
    """Return keys that received a row and immediately lost one at the end, with no earlier delete.

    If the key is free, this is one row in transit (3 → 4 → 5). If it is stored, one statement changed keys among stored
    rows: the row that left is the old one, and the one that arrived should stay. `ever`: also if more events followed.
    """
    keys, order = [f"after.{identifier(k)}" for k in spec.key], ", ".join((*ORDER, "step"))
    by_key = f"over (partition by {', '.join(keys)} order by {order}"
    seen = events(changes, spec).selectExpr(
        "op", "after", "step", *ORDER, f"{passes_sql('lag', by_key + ')')} as frazil_passes",
        f"lead(op) {by_key}) is null as frazil_last",
    )  # fmt: skip
    before = f"max(op = 'D' and not frazil_passes) {by_key} rows between unbounded preceding and 1 preceding)"
    found = seen.selectExpr(*keys, "frazil_passes", "frazil_last", f"coalesce({before}, false) as frazil_freed")
    wanted = "frazil_passes and not frazil_freed" + ("" if ever else " and frazil_last")
    return found.where(wanted).drop("frazil_passes", "frazil_last", "frazil_freed")
