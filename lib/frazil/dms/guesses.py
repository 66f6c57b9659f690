"""Guesses settings, columns, types and keys of DMS's files from their bytes, and says what each guess rests on.

A guessed type refuses what it cannot hold. Numbers in CSV would lose leading zeros, a wrong key would overwrite rows, a
wrong null token would remove texts. So these three are only proposed, unless the files prove them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from frazil.config.spec import Column, TableSpec
from frazil.core.types import MISFIT, judge
from frazil.dms.endpoint import Endpoint, SourceTable, endpoint_from
from frazil.dms.file_columns import footer
from frazil.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.found_files import Found, Sample
from frazil.dms.mappings import Mappings
from frazil.dms.settings_check import NULL_WORDS, NUMBER, SEQUENCE_DIGITS, TIME, Evidence, evidence
from frazil.errors import FrazilError

if TYPE_CHECKING:
    import pyarrow as pa

OPERATIONS = {"I", "U", "D"}
KEYS, NUMBERS, NULLS = "keys", "numbers", "nulls"
UNSAFE = (KEYS, NUMBERS, NULLS)
"""Guesses that could lose rows or values if they are wrong: taken only if the user says so."""
WHOLE = re.compile(r"0|-?[1-9]\d*")
FRACTION = re.compile(r"-?(0|[1-9]\d*)\.\d+")
REAL = re.compile(r"[+-]?\d\.?\d*[eE][+-]?\d+")
NULLS_SEEN = {"", *NULL_WORDS}
DAY = re.compile(r"\d{4}-\d\d-\d\d")
LONGEST_TEXT = 4000
NOTHING_SEEN = "no value was seen"
IMAGE = "BI_"
"""The usual prefix of before-image columns. A column of another prefix may be the source's own."""


@dataclass(frozen=True)
class Guess:
    """A column: `type` loses nothing even if it is wrong; `likely` is what the values look like."""

    name: str
    type: str
    why: str
    likely: str = ""
    """Empty: the same as `type`."""
    utc: bool = False
    certain: bool = False
    nulls: frozenset[str] = frozenset()
    """What may stand for a null among its values."""

    @property
    def is_named(self) -> bool:
        """Whether the files name the column."""
        return not re.fullmatch(r"column_\d+", self.name)

    def column(self, numbers: bool) -> Column:
        """Return the column with the likely type if `numbers`, else with the safe one."""
        return Column(self.name, self.likely if numbers and self.likely else self.type, utc=self.utc)


@dataclass
class FoundTable:
    """What is known about a table without a spec."""

    source: str
    columns: tuple[Guess, ...] = ()
    key: tuple[str, ...] = ()
    key_why: str = ""
    key_is_proven: bool = False
    sequence: str = ""
    """The column with `$AR_H_CHANGE_SEQ`, which a rule of the task adds."""
    has_images: bool = False
    """Whether its change files have before-image columns."""
    rows: int = 0
    changes: int = 0
    last_commit: str = ""
    problems: list[str] = field(default_factory=list)

    def spec(self, numbers: bool = True, keys: bool = True) -> TableSpec:
        """Return its spec by the guesses; without `keys`, only a proven key is taken."""
        key = self.key if keys or self.key_is_proven else ()
        return TableSpec(self.source, self.source, key, tuple(g.column(numbers) for g in self.columns))


@dataclass
class Guesses:
    """What DMS's files show of the settings and the tables; `proposed_null` is the likely null token (None: not seen)."""

    settings: dict[str, Any]
    tables: dict[str, FoundTable]
    rules: list[dict[str, Any]]
    shown: list[Evidence] = field(default_factory=list)
    null: str | None = None
    """The null token, if files prove it."""
    proposed_null: str | None = None
    null_why: str = "no file shows how a null is written"


def guess(found: Found, stated: dict[str, Any] | None = None, mappings: Mappings | None = None) -> Guesses:
    """Guess everything from what was found; `stated` are the endpoint's settings if they are known, and `mappings` the rules."""
    samples = [s for each in found.samples.values() for s in each if s.is_usable]
    settings, has_header, has_time = _settings(found, samples)
    tables = {
        name: _table(name, there, samples_of, _Form(has_header, has_time))
        for name, there in found.tables.items()
        if (samples_of := found.samples.get(name)) is not None
    }
    _share_sequence(tables.values())
    result = Guesses(settings, tables, _rules(tables.values()))
    if "CsvDelimiter" in settings:
        _guess_null(result)
        settings["CsvNullValue"] = result.proposed_null or ""
    known = stated or {"S3Settings": {"CsvNullValue": "", **settings}}
    try:
        endpoint = endpoint_from(known["S3Settings"], known.get("FrazilSettings", {}), "the endpoint")
    except FrazilError as e:
        found.remarks.append(f"{e.problem}; {e.cure}")
        return result
    for name, table in tables.items():
        result.shown += _judged(found, name, table, endpoint, mappings or Mappings(tuple(result.rules)))
    return result


def _judged(found: Found, name: str, table: FoundTable, endpoint: Endpoint, mappings: Mappings) -> list[Evidence]:
    if not table.columns:
        return []
    there = found.tables[name]
    readable = {s.file for s in found.samples[name] if not s.problem}
    there = replace(
        there,
        loads=tuple(f for f in there.loads if f in readable),
        changes=tuple(f for f in there.changes if f in readable),
    )
    try:
        return evidence(there, SourceTable(table.spec(), endpoint, mappings))
    except (FrazilError, ValueError) as e:
        table.problems.append(getattr(e, "problem", str(e)))
        return []


# --- settings


@dataclass(frozen=True)
class _Form:
    """Whether files have a header and a commit time."""

    has_header: bool
    has_time: bool


def _most(values: Iterable[Any], default: Any) -> Any:
    counted = Counter(v for v in values if v not in ("", None))
    return counted.most_common(1)[0][0] if counted else default


def _settings(found: Found, samples: Sequence[Sample]) -> tuple[dict[str, Any], bool, bool]:
    """Return S3 settings by the samples, whether there are headers, and whether rows have a commit time."""
    csv = [s for s in samples if not s.file.is_parquet]
    is_parquet = len(csv) * 2 < len(samples)
    has_header = _has_header(csv)
    op_in_load = any(_has_op(s, has_header) for s in samples if s.phase == LOAD_PHASE)
    time_name = _time_column(samples, has_header)
    quotes = _most((s.quotes[0] for s in csv if len(s.quotes) == 1), True)
    settings: dict[str, Any] = {"DataFormat": "parquet" if is_parquet else "csv"}
    if csv:
        settings |= {
            "CsvDelimiter": _most((s.delimiter for s in csv), ","),
            "CsvRowDelimiter": _most((s.row_delimiter for s in csv), "\n"),
            "Rfc4180": quotes,
            "AddColumnName": has_header and not found.shared,
            "CompressionType": _most((s.compression for s in csv), "none"),
        }
    settings |= {"IncludeOpForFullLoad": op_in_load}
    settings |= {"TimestampColumnName": time_name} if time_name is not None else {}
    if found.shared:
        settings |= {"PreserveTransactions": True, "CdcPath": found.cdc_path}
    elif found.partition:
        settings |= {
            "DatePartitionEnabled": True,
            "DatePartitionSequence": found.partition.sequence,
            "DatePartitionDelimiter": found.partition.delimiter,
        }
    return settings, has_header, time_name is not None


def _is_header(row: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Return whether a first row can only be column names: `Op`, or names over numbers and times."""
    if not all(row) or any(NUMBER.fullmatch(f) or TIME.fullmatch(f) or DAY.fullmatch(f) for f in row):
        return False
    if row[0].lower() == "op":
        return True
    over = [[r[i] for r in body if r[i]] for i in range(len(row))]
    return row[0] not in OPERATIONS and any(
        values and all(NUMBER.fullmatch(v) or TIME.fullmatch(v) for v in values) for values in over
    )


def _has_header(csv: Sequence[Sample]) -> bool:
    votes = Counter(_is_header(s.rows[0], s.rows[1:]) for s in csv if s.rows and not s.is_shared)
    return votes[True] > votes[False]


def _fields(sample: Sample, has_header: bool) -> tuple[list[str], Sequence[Sequence[str]]]:
    """Return the names of a sample's fields (empty if unknown) and its rows without the header."""
    if sample.file.is_parquet:
        return list(footer(sample.file).names), sample.rows
    first = sample.rows[0]
    is_data = first[0] in OPERATIONS or any(TIME.fullmatch(f) for f in first)
    if has_header and not sample.is_shared and not is_data:
        return list(sample.rows[0]), sample.rows[1:]
    return [], sample.rows


def _has_op(sample: Sample, has_header: bool) -> bool:
    names, rows = _fields(sample, has_header)
    return names[0].lower() == "op" if names else bool(rows) and all(r[0] in OPERATIONS for r in rows)


def _operation(sample: Sample, has_header: bool, row: Sequence[str]) -> str:
    return row[0] if _has_op(sample, has_header) else "I"


def _time_column(samples: Sequence[Sample], has_header: bool) -> str | None:
    """Return the name of the column after the operation that has a time in every row of every file; None: there is none."""
    named: list[str | None] = []
    for s in samples:
        (names, rows), at = _fields(s, has_header), int(_has_op(s, has_header))
        if s.file.is_parquet:
            field_ = footer(s.file).field(at) if at < len(names) else None
            named.append(names[at] if field_ is not None and _is_time(s, field_) else None)
        elif rows:
            is_time = all(at < len(r) and TIME.fullmatch(r[at]) for r in rows)
            named.append((names[at] if names else "dms_commit_ts") if is_time else None)
    same = set(named)
    return named[0] if len(same) == 1 and named else None


def _is_time(sample: Sample, column: pa.Field) -> bool:
    import pyarrow as pa

    return pa.types.is_timestamp(column.type) or (
        pa.types.is_string(column.type) and column.name.lower().endswith("ts")
    )


# --- tables


def _table(name: str, there: Any, samples: Sequence[Sample], form: _Form) -> FoundTable:
    """Guess columns, key and numbers of rows of a table."""
    table = FoundTable(name)
    table.problems = [f"{s.file.path} {s.problem}" for s in samples if s.problem]
    usable = [s for s in samples if s.is_usable]
    if not usable:
        return table
    names, values, kinds = _columns(usable, form, table)
    for n in names:
        seen = kinds.get(n) or guess_type(n, [v for v in values[n] if v not in NULLS_SEEN])
        table.columns += (replace(seen, nulls=frozenset(NULLS_SEEN.intersection(values[n]))),)
    _guess_key(table, usable, form)
    _estimate(table, there, usable)
    table.last_commit = _last_commit(usable, form)
    return table


def _columns(
    usable: Sequence[Sample], form: _Form, table: FoundTable
) -> tuple[list[str], dict[str, list[str]], dict[str, Guess]]:
    """Return a table's own columns in the order of its newest file, their texts, and the types that Parquet states."""
    names: list[str] = []
    values: dict[str, list[str]] = {}
    kinds: dict[str, Guess] = {}
    for s in usable:
        fields, rows = _fields(s, form.has_header)
        has_op = _has_op(s, form.has_header)
        at = has_op + form.has_time
        own = fields[at:] or [f"column_{i}" for i in range(1, len(rows[0]) - at + 1)]
        for i, n in enumerate(own, at):
            # A delete has nulls outside the key: they are no values, but show the null token.
            values.setdefault(n, []).extend(r[i] for r in rows if not has_op or r[0] != "D" or r[i] in NULLS_SEEN)
            if s.file.is_parquet:
                kinds[n] = wider(kinds.get(n), parquet_type(n, footer(s.file).field(i).type))
        if names and own != names:
            table.problems.append(f"{s.file.path}: its columns differ: {_difference(names, own)}")
        names = own
    table.sequence = next((n for n in names if _is_sequence(values.get(n, ()))), "")
    return _without_images([n for n in names if n != table.sequence], table), values, kinds


def _difference(names: Sequence[str], own: Sequence[str]) -> str:
    parts = [f"without {n}" for n in names if n not in own] + [f"with {n}" for n in own if n not in names]
    return ", ".join(parts) or "their order"


def _is_sequence(values: Sequence[str]) -> bool:
    filled = [v for v in values if v and v not in NULL_WORDS]
    return bool(filled) and all(SEQUENCE_DIGITS.fullmatch(v) for v in filled)


def _without_images(names: list[str], table: FoundTable) -> list[str]:
    """Return the names without those of before-image columns, which are at the end; those of the key name the key."""
    for own in range((len(names) + 1) // 2, len(names)):
        images = [n.removeprefix(IMAGE) for n in names[own:]]
        if all(f"{IMAGE}{i}" == n and i in names[:own] for i, n in zip(images, names[own:], strict=True)):
            table.has_images = True
            if len(images) < own or own == 1:
                table.key, table.key_why = tuple(images), f"its before-image columns are {', '.join(names[own:])}"
                table.key_is_proven = len(images) == 1
            return names[:own]
    return names


# --- types


def guess_type(name: str, values: Sequence[str]) -> Guess:
    """Guess the type of a CSV column from texts that are not null."""
    count = f"all {len(values):,} values seen"
    if not values:
        return Guess(name, "WSTRING", NOTHING_SEEN)
    longest = max(map(len, values))
    text = "NCLOB" if longest > LONGEST_TEXT else "WSTRING"
    if all(DAY.fullmatch(v) for v in values) and _fits("DATE", values):
        return Guess(name, "DATE", f"{count} are dates")
    if all(TIME.fullmatch(v) for v in values) and _fits("DATETIME", values):
        return Guess(name, "DATETIME", f"{count} are times; utc: true if they are instants")
    if all(WHOLE.fullmatch(v) for v in values):
        likely = "INT8" if longest < 19 else "NUMERIC(38,0)"
        return Guess(name, text, f"{count} are whole numbers", likely if longest < 39 else "")
    if all(WHOLE.fullmatch(v) or FRACTION.fullmatch(v) for v in values):
        scale = max(len(v.partition(".")[2]) for v in values)
        likely = f"NUMERIC(38,{scale})" if scale <= 18 else ""
        return Guess(name, text, f"{count} are decimal numbers", likely)
    if all(REAL.fullmatch(v) for v in values):
        return Guess(name, text, f"{count} are reals", "REAL8")
    return Guess(name, text, f"texts, the longest of {longest:,} characters")


def _fits(kind: str, values: Sequence[str]) -> bool:
    return all(judge(Column("c", kind), v) is not MISFIT for v in values)


def parquet_type(name: str, kind: pa.DataType) -> Guess:
    """Return the DMS type of a Parquet column's type."""
    import pyarrow as pa

    plain = {
        pa.bool_(): "BOOLEAN", pa.int8(): "INT1", pa.int16(): "INT2", pa.int32(): "INT4", pa.int64(): "INT8",
        pa.uint8(): "UINT1", pa.uint16(): "UINT2", pa.uint32(): "UINT4", pa.uint64(): "UINT8", pa.float32(): "REAL4",
        pa.float64(): "REAL8", pa.date32(): "DATE", pa.binary(): "BLOB", pa.string(): "WSTRING",
        pa.large_string(): "WSTRING",
    }  # fmt: skip
    why = f"Parquet says {kind}"
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return Guess(name, f"NUMERIC({kind.precision},{kind.scale})", why, certain=True)
    if pa.types.is_timestamp(kind):
        return Guess(name, "DATETIME", why, utc=bool(kind.tz), certain=True)
    return Guess(name, plain.get(kind, "WSTRING"), why, certain=kind in plain)


_RANKS = {n: i for i, n in enumerate(("INT1", "UINT1", "INT2", "UINT2", "INT4", "UINT4", "INT8"))}


def wider(one: Guess | None, other: Guess) -> Guess:
    """Return a type that holds the values of both; a text where no number does."""
    if one is None or (one.type, one.utc) == (other.type, other.utc):
        return other
    if one.type in _RANKS and other.type in _RANKS:
        return replace(other, type="INT8", certain=False, why=f"{one.why}, elsewhere {other.why}")
    return Guess(other.name, "WSTRING", f"{one.why}, elsewhere {other.why}")


# --- keys


def _guess_key(table: FoundTable, usable: Sequence[Sample], form: _Form) -> None:
    """Set the columns that are unique in the first rows, unless before-image columns name the key."""
    first = usable[0]
    at = _has_op(first, form.has_header) + form.has_time
    body = _fields(first, form.has_header)[1]
    rows = [r[at:] for r in body if _operation(first, form.has_header, r) == "I" and len(r) - at >= len(table.columns)]
    if table.key or len(rows) < 2:
        return
    named = {table.source.split(".")[-1].rstrip("s").lower() + "_id", "id"}
    may_be = [
        i
        for i, g in enumerate(table.columns)
        if not (g.likely or g.type).startswith(("REAL", "NCLOB")) and not any(r[i] in NULLS_SEEN for r in rows)
    ]
    ranked = sorted(may_be, key=lambda i: (table.columns[i].name.lower() not in named, i))
    for places in [*((i,) for i in ranked), *combinations(ranked[:4], 2)]:
        if len({tuple(r[i] for i in places) for r in rows}) == len(rows):
            table.key = tuple(table.columns[i].name for i in places)
            table.key_why = f"unique and never null in the first {len(rows):,} rows"
            return


# --- numbers


def _estimate(table: FoundTable, there: Any, usable: Sequence[Sample]) -> None:
    """Estimate the rows of the load files and the changes, from the size of a row in the samples."""
    for phase, files in ((LOAD_PHASE, there.loads), (CHANGE_PHASE, there.changes)):
        sizes = [s.row_bytes for s in usable if s.phase == phase and s.row_bytes]
        if sizes:
            count = round(sum(f.size for f in files) / (sum(sizes) / len(sizes)))
            table.rows, table.changes = (count, table.changes) if phase == LOAD_PHASE else (table.rows, count)


def _last_commit(usable: Sequence[Sample], form: _Form) -> str:
    """Return the latest commit time in the newest change file's first rows; empty if there is none."""
    last = next((s for s in reversed(usable) if s.phase == CHANGE_PHASE and s.rows), None)
    if last is None or not form.has_time:
        return ""
    at = int(_has_op(last, form.has_header))
    return max((r[at] for r in _fields(last, form.has_header)[1] if at < len(r) and TIME.fullmatch(r[at])), default="")


def _guess_null(result: Guesses) -> None:
    """Find the null token: a word among numbers or times proves it; empty fields there, or words among texts, suggest it."""
    columns = [(t.source, g) for t in result.tables.values() for g in t.columns]
    typed = [(t, g) for t, g in columns if not (g.likely or g.type).startswith(("WSTRING", "NCLOB"))]
    for among, is_proof in ((typed, True), (columns, False)):
        for table, g in among:
            if words := sorted(g.nulls - {""}):
                result.null = words[0] if is_proof else None
                result.proposed_null, result.null_why = words[0], f"{table}: {g.name} has {words[0]}: {g.why}"
                return
        if empty := next(((t, g) for t, g in among if "" in g.nulls and is_proof), None):
            result.proposed_null, result.null_why = "", f"{empty[0]}: {empty[1].name} has empty fields: {empty[1].why}"
            return


def _share_sequence(tables: Iterable[FoundTable]) -> None:
    """Take the last column without any value as the sequence, where other tables of files without names have one there."""
    numbered = [t for t in tables if t.columns and t.columns[0].name == "column_1"]
    if any(t.sequence == f"column_{len(t.columns) + 1}" for t in numbered):
        for t in numbered:
            last = t.columns[-1]
            if not t.sequence and last.why == NOTHING_SEEN:
                t.sequence, t.columns = last.name, t.columns[:-1]
        for t in numbered:
            t.sequence = t.sequence and "dms_change_seq"


def _rules(tables: Iterable[FoundTable]) -> list[dict[str, Any]]:
    """Return the rules of the task that explain the columns which DMS adds: for a schema if its tables agree."""
    by_schema: dict[str, dict[tuple, list[str]]] = {}
    for t in (t for t in tables if t.columns):
        schema, _, name = t.source.partition(".")
        has = (t.sequence, t.has_images, bool(t.key))
        by_schema.setdefault(schema, {}).setdefault(has, []).append(name)
    rules: list[dict[str, Any]] = []
    for schema, kinds in by_schema.items():
        for (sequence, has_images, has_key), names in kinds.items():
            for name in ["%"] if len(kinds) == 1 else names:
                where = {"object-locator": {"schema-name": schema, "table-name": name}, "rule-target": "column"}
                if sequence:
                    added = {"value": sequence, "expression": "$AR_H_CHANGE_SEQ"}
                    rules.append({"rule-action": "add-column", **added, **where})
                if has_images:
                    image = {"column-prefix": IMAGE, "column-filter": "pk-only" if has_key else "all"}
                    rules.append({"rule-action": "add-before-image-columns", "before-image-def": image, **where})
    return [
        {"rule-type": "transformation", "rule-id": str(i), "rule-name": str(i), **r} for i, r in enumerate(rules, 1)
    ]
