"""The change set: typed rows with their order, from any file format. All later steps of Frazil use only this form.

| column | meaning |
|---|---|
| `phase`, `object`, `block`, `row_no` | the total order: load before changes, then the object's base name, then the place in it |
| `op` | `I`, `U` (both upserts) or `D` |
| `written_at` | when DMS wrote the row out; null for load rows |
| `commit_ts` | when the source committed (`timestamp`); null if DMS's settings leave it out |
| `change_seq` | DMS's own sequence, a second proof of the order; null on load rows |
| `before` | struct of the key's old values; its fields are null unless an update changed the key |
| `after` | struct of the table's columns, typed |
| `missing` | names of columns that the row does not carry at all; null: the row is complete |
| `bad` | null, or what is wrong: the name of the first column that does not fit (after `OLD`: its old value), or one of `FIELDS`, `OP`, `KEY` |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from frazil.changes.types import (
    convert_sql,
    exact_sql,
    kept_sql,
    mask_sql,
    replaced_sql,
    years_sql,
)
from frazil.config.columns import lake_type, value_type
from frazil.config.paths import readable
from frazil.config.spec import Column, TableSpec
from frazil.config.sql import identifier, literal
from frazil.core.bad_rows import BadRowError, ShownRow, explained
from frazil.core.texts import TIMES
from frazil.dms import faults
from frazil.dms.csv import JSON, PARQUET, SHARED
from frazil.dms.faults import FAULT, MESSAGE
from frazil.dms.layout import CHANGE_PHASE, COMMIT_TIME, tells_origin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIELDS, OP, KEY, OLD, WHOLE = "<fields>", "<op>", "<key>", "<old>", "<whole>"
ORDER = ("phase", "object", "block", "row_no")
COMMIT_TS = Column(COMMIT_TIME, "DATETIME", utc=True)

Observed = Any
"""What receives the counts: an Observation, or a function that is given the rows and what to count."""


def observed(rows: DataFrame, observation: Observed, counts: list) -> DataFrame:
    """Return rows that are counted while Spark processes them."""
    return observation(rows, counts) if callable(observation) else rows.observe(observation, *counts)


def _bad_sql(spec: TableSpec, rows: DataFrame) -> str:
    """Return the SQL expression for a typed row's first fault, or null.

    A value is typed as `v{i}` from its raw `a{i}`. It does not fit if the raw one exists and the typed one is null, or
    is not exactly what the text says.
    """
    kinds = dict(rows.dtypes)

    def misfit(raw: str, typed: str, c: Column, mark: str = "", where: str = "") -> list[str]:
        if value_type(c) == kinds[raw] == "string":
            if "U+FFFD" in dict(c.replace):
                return []
            return [f"when contains({raw}, '\ufffd') then {literal(mark + c.name)}"]  # for bytes that are not UTF-8
        if kinds[raw] == value_type(c):
            outside = f"not ({years_sql(kinds[raw], raw)})"
            return [f"when {where}{outside} then {literal(mark + c.name)}"] if kinds[raw] in TIMES else []
        exact = exact_sql(c, raw, typed) if kinds[raw] == "string" else kept_sql(c, raw, typed, kinds[raw])
        wrong = f"{typed} is null or not ({exact})" if exact else f"{typed} is null"
        if kinds[raw] == "string":  # an empty CSV field is null: checked last, only for apparent faults
            wrong = f"({wrong}) and ({raw} <> '' or form in ('{JSON}', '{PARQUET}'))"
        return [f"when {where}{raw} is not null and ({wrong}) then {literal(mark + c.name)}"]

    at = {n: i for i, n in enumerate(spec.names)}
    times = misfit("commit_ts", "at", COMMIT_TS)
    if kinds["commit_ts"] == "string" and spec.policy != "append":  # load rows do not keep theirs
        likely = "octet_length(commit_ts) >= 19 and instr(commit_ts, '-') = 5"  # no other field, or layout
        times = misfit("commit_ts", "at", COMMIT_TS, where=f"phase = {CHANGE_PHASE} and ")
        times.append(f"when phase <> {CHANGE_PHASE} and not ({likely}) then '{COMMIT_TS.name}'")
    checks = [
        f"when corrupt is not null then if(form = '{JSON}' and not startswith(corrupt, '{MESSAGE}'), {FAULT}, '{FIELDS}')",
        f"when op is null or op not in ('I', 'U', 'D') then '{OP}'",
        *[f"when a{at[k]} is null then '{KEY}'" for k in spec.key],
        *times,
    ]
    if spec.policy == "multiset":
        checks.append(
            f"when op = 'U' and {' and '.join(f'b{i} is null' for i in range(len(spec.names)))} then '{WHOLE}'"
        )
    for i, k in enumerate(spec.identity):
        checks += misfit(f"b{i}", f"w{i}", spec.column(k), OLD)
    for i, c in enumerate(spec.columns):
        checks += misfit(f"a{i}", f"v{i}", c)
    return f"case {' '.join(checks)} end"


def marked(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Add to raw rows their typed values (`v{i}`, `w{i}`, `at`) and their fault (`bad`).

    The steps are separate so that Spark computes each value once, not in every expression that uses it.
    """
    rows, kinds = _replaced(rows, spec), dict(rows.dtypes)
    typed = rows.selectExpr(
        "*",
        *[f"{convert_sql(c, f'a{i}', kinds[f'a{i}'])} as v{i}" for i, c in enumerate(spec.columns)],
        *[f"{convert_sql(spec.column(k), f'b{i}', kinds[f'b{i}'])} as w{i}" for i, k in enumerate(spec.identity)],
        f"{convert_sql(COMMIT_TS, 'commit_ts', kinds['commit_ts'])} as at",
    )
    return typed.selectExpr("*", f"{_bad_sql(spec, rows)} as bad")


def _replaced(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Replace values in raw rows that the lake's types lack by what the spec declares, also in a multiset's old rows."""
    from pyspark.sql import functions as F

    kinds = dict(rows.dtypes)
    told = [(f"a{i}", c) for i, c in enumerate(spec.columns)]
    told += [(f"b{i}", spec.column(n)) for i, n in enumerate(spec.identity)]
    replaced = {raw: F.expr(replaced_sql(c, raw, kinds[raw])) for raw, c in told if c.replace}
    return rows.withColumns(replaced) if replaced else rows


def _struct(prefix: str, columns: Sequence[Column]) -> str:
    """The SQL of a struct of typed values."""
    fields = ", ".join(f"{literal(c.name)}, {mask_sql(c, f'{prefix}{i}')}" for i, c in enumerate(columns))
    return f"named_struct({fields})" if columns else "cast(null as struct<>)"


def change_set(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Type the raw rows of `dms` and mark the bad ones; no row is dropped or repaired."""
    return shaped(marked(rows, spec), spec)


def load_rows(rows: DataFrame, spec: TableSpec, good_only: bool) -> DataFrame:
    """Return the columns of raw load rows, typed: of the good rows only, since Spark would fail at the first bad one.

    The struct `after` is left out, which Spark would build for each row and take apart again.
    """
    typed = marked(rows, spec)
    values = [mask_sql(c, f"v{i}") for i, c in enumerate(spec.columns)]
    if good_only:
        typed = typed.where("bad is null")
    else:
        values[0] = f"if(bad is null, {values[0]}, raise_error(bad))"
    return typed.selectExpr(*[f"{v} as {identifier(c.name)}" for v, c in zip(values, spec.columns, strict=True)])


def shaped(rows: DataFrame, spec: TableSpec, *more: str) -> DataFrame:
    """Return `marked` rows as a change set; `more`: columns to carry along."""
    missing = "absent" if "absent" in rows.columns else "cast(null as array<string>)"
    return rows.selectExpr(
        *ORDER, "written_at", "op", "at as commit_ts", "change_seq",
        f"{_struct('w', [spec.column(k) for k in spec.identity])} as before", f"{_struct('v', spec.columns)} as after",
        f"{missing} as missing", "bad", *more,
    )  # fmt: skip


def explain_bad(
    rows: DataFrame, spec: TableSpec, locate: Callable[[str, int], int | None], show: int = 3, other: str = ""
) -> BadRowError:
    """Return the error that shows the first bad raw rows: file, row (counted from 1 after the header), reason, cure.

    `other` names an alternative to a change of the spec; default: quarantine. In files of all tables Spark counts only
    the rows that the table reads; `locate` returns the row number in the file.
    """
    from pyspark.sql import functions as F

    first = {r["path"]: r["first_no"] for r in rows.groupBy("path").agg(F.min("row_no").alias("first_no")).collect()}
    bad = marked(rows, spec).where("bad is not null").withColumn("reason", F.expr(reason_sql(spec, rows)))
    # Only texts and numbers, so that values outside Python's range are shown too.
    shown = bad.orderBy(*ORDER).limit(show).select("path", "form", "layout", "row_no", "bad", "reason")
    count, worst = bad.count(), shown.collect()

    def place(r) -> str:
        path = readable(r["path"])
        if r["form"] == JSON:  # Kinesis's is a text of digits
            return f"{path} offset {r['row_no']}"
        number = r["row_no"] - first[r["path"]] + 1
        if tells_origin(r["layout"]):
            return f"{path} row {number} of {spec.source}'s"
        if r["form"] == SHARED:
            found = locate(path, number)
            return f"{path} row {found}" if found else f"{path} row {number} of {spec.source}'s"
        return f"{path} row {number}"

    found = [ShownRow(place(r), r["bad"].removeprefix(OLD), r["reason"], r["form"] == JSON) for r in worst]
    return explained(spec, count, found, other)


def reason_sql(spec: TableSpec, rows: DataFrame) -> str:
    """Return the SQL of a bad row's fault in `marked`, in words."""
    kinds = dict(rows.dtypes)

    def shown(value: str, most: int = 100) -> str:
        if kinds.get(value, "string") != "string":
            return f"hex({value})" if kinds[value] == "binary" else f"cast({value} as string)"
        return f"""coalesce(concat("'", replace(left({value}, {most}), '\n', '\\\\n'), "'"), 'None')"""

    line = "'the line holds columns that are masked or left out'" if spec.hides else shown("corrupt", 200)
    width = f"too many or too few fields for {len(spec.file_columns)} columns and those that DMS adds: "
    nameless = f"names no table, and so stops all, or has {width}"
    shared = f"form = '{SHARED}' or exists(layout, r -> startswith(r, 'origin'))"
    nulls = ", ".join(f"if(a{spec.names.index(k)} is null, {literal(k)}, null)" for k in spec.key) or "''"
    told = {
        FIELDS: f"concat(if({shared}, {literal(nameless)}, {literal(width)}), {line})",
        WHOLE: literal("an update without the old row: add before-image columns with column-filter 'all'"),
        OP: f"concat('unknown operation ', {shown('op')}, ', none that stands for I, U or D')",
        KEY: f"concat('no value in key column ', concat_ws(', ', {nulls}))",
        COMMIT_TS.name: f"concat('commit timestamp ', {shown('commit_ts')}, ' is not yyyy-MM-dd HH:mm:ss.SSSSSS')",
    }
    images = [(OLD, f"b{i}", spec.column(k)) for i, k in enumerate(spec.identity)]
    for mark, value, c in [("", f"a{i}", c) for i, c in enumerate(spec.columns)] + images:
        fault = f" does not fit {c.type} ({lake_type(c)} in the lake)"
        if value_type(c) == "string":
            fault = " holds U+FFFD: bytes that are not UTF-8, or that character itself"
        of = f"{'old value of ' if mark else ''}column '{c.name}': {'a masked value' if c.mask else ''}"
        told[mark + c.name] = f"concat({literal(of)}, {literal('') if c.mask else shown(value)}, {literal(fault)})"
    named = f"case bad {' '.join(f'when {literal(k)} then {v}' for k, v in told.items())} end"
    reason = f"case when form = '{JSON}' and corrupt is not null then {faults.reason_sql(spec)} else {named} end"
    # It removes invalid UTF-8, because of which other engines could not read the quarantine.
    return f"nullif(format_string('%s', {reason}), 'null')"
