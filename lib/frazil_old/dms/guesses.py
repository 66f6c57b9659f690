"""Guesses settings, columns, types and keys of DMS's files from their bytes, and says what each guess rests on.

A guessed type refuses what it cannot hold. Numbers in CSV would lose leading zeros, a wrong key would overwrite rows, a
wrong null token would remove texts. So these three are only proposed, unless the files prove them.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from frazil_old.config.spec import Column, TableSpec
from frazil_old.core.types import type_texts
from frazil_old.dms.endpoint import SourceTable, endpoint_from
from frazil_old.dms.file_columns import footer, written_type
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil_old.dms.files_against_settings import NULL_WORDS, NUMBER, SEQUENCE_DIGITS, TIME, Evidence, evidence
from frazil_old.dms.found_files import Found, Sample
from frazil_old.dms.mappings import Mappings
from frazil_old.dms.storage import each_of, is_s3
from frazil_old.errors import FrazilError

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
MOST_COLUMNS = 4096
"""Columns of a table: as many as any source database of DMS allows (MySQL: 4,096)."""
TIME_NAME = "dms_commit_ts"
"""The name for the commit time in files that do not name it."""
IMAGE = "BI_"
"""The usual prefix of before-image columns: a column of another prefix may be the source's own."""


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

    @property
    def looks(self) -> str:
        """The type that the values look like."""
        return self.likely or self.type

    def column(self, numbers: bool) -> Column:
        """Return the column with the likely type if `numbers`, else with the safe one."""
        return Column(self.name, self.looks if numbers else self.type, utc=self.utc)


@dataclass
class GuessedTable:
    """What is known about a table without a spec."""

    source: str
    columns: tuple[Guess, ...] = ()
    key: tuple[str, ...] = ()
    key_why: str = ""
    key_is_proven: bool = False
    sequence: str = ""
    """The column with `$AR_H_CHANGE_SEQ`, which a rule of the task adds."""
    has_images: bool = False
    """Whether its files have before-image columns."""
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
    tables: dict[str, GuessedTable]
    rules: list[dict[str, Any]]
    shown: list[Evidence] = field(default_factory=list)
    null: str | None = None
    """The null token, if files prove it."""
    proposed_null: str | None = None
    null_why: str = "no file shows how a null is written"


class _View:
    """A sample's rows without the header, the names of its fields (none: unknown), and which fields are DMS's own."""

    def __init__(self, sample: Sample, has_header: bool):
        self.sample, self.rows, self.names = sample, sample.rows, []
        if sample.file.is_parquet:
            self.names = list(footer(sample.file).names)
        elif has_header and not sample.file.is_shared and not _is_data(sample.rows[0]):
            self.names, self.rows = list(sample.rows[0]), sample.rows[1:]
        self.has_op = self.names[0] == "Op" if self.names else all(r[0] in OPERATIONS for r in self.rows)
        self.own = int(self.has_op)
        """The place of the first field that is not DMS's; before `take_time`, that of a commit time."""

    def time(self) -> str | None:
        """Return the name of the first field after the operation, if all its values are times."""
        if self.sample.file.is_parquet and len(self.names) > self.own and not self.rows:
            return (
                self.names[self.own] if str(footer(self.sample.file).field(self.own).type).startswith("time") else None
            )
        is_time = all(len(r) > self.own and TIME.fullmatch(r[self.own]) for r in self.rows)
        return ((self.names[self.own : self.own + 1] or [TIME_NAME])[0]) if self.rows and is_time else None

    def times(self) -> list[str]:
        """Return the commit times, once they are taken."""
        return [r[self.own - 1] for r in self.rows if TIME.fullmatch(r[self.own - 1])]

    def of(self, *operations: str) -> list[tuple[str, ...]]:
        """Return the rows of these operations; without operations, all rows are inserts."""
        return [r for r in self.rows if (r[0] if self.has_op else "I") in operations]


def _is_data(row: Sequence[str]) -> bool:
    return row[0] in OPERATIONS or any(TIME.fullmatch(f) for f in row)


def guess(found: Found, stated: dict[str, Any] | None = None, mappings: Mappings | None = None) -> Guesses:
    """Guess everything from what was found; `stated` are the endpoint's settings if they are known, and `mappings` the rules."""
    samples = [s for each in found.samples.values() for s in each if s.is_usable]
    csv = [s for s in samples if not s.file.is_parquet]
    votes = Counter(_is_header(s.rows[0], s.rows[1:]) for s in csv if not s.file.is_shared)
    views = {n: [_View(s, votes[True] > votes[False]) for s in e if s.is_usable] for n, e in found.samples.items()}
    time_name = _take_time(found, views)
    tables = {name: _table(name, found, views[name] if time.monotonic() < found.until else []) for name in views}
    found.is_whole &= time.monotonic() < found.until
    _share_sequence(tables.values())
    settings = _settings(found, csv, [v for each in views.values() for v in each], time_name)
    result = Guesses(settings, tables, _rules(tables.values()))
    if csv:
        _guess_null(result)
        settings["CsvNullValue"] = result.proposed_null or ""
    known = stated or {"S3Settings": {"CsvNullValue": "", **settings}}
    try:
        endpoint = endpoint_from(known["S3Settings"], known.get("FrazilSettings", {}), "the endpoint")
        rules = mappings or Mappings(tuple(result.rules))
        each = [(t, SourceTable(t.spec(), endpoint, rules)) for t in tables.values() if t.columns]
        for shown in each_of(lambda one: _judged(found, *one), each, is_s3(found.root)):
            result.shown += shown
    except FrazilError as e:
        found.remarks.append(f"{e.problem}; {e.cure}")
    return result


def _judged(found: Found, table: GuessedTable, source_table: SourceTable) -> list[Evidence]:
    """Return what a table's readable files show of the settings, as 00_setup judges them."""
    there, readable = found.tables[table.source], {s.file for s in found.samples[table.source] if not s.problem}
    loads, changes = (tuple(f for f in files if f in readable) for files in (there.loads, there.changes))
    if time.monotonic() > found.until:
        return []
    try:
        return evidence(replace(there, loads=loads, changes=changes), source_table)
    except (FrazilError, ValueError) as e:
        table.problems.append(getattr(e, "problem", str(e)))
        return []


# --- settings


def _most(values: Iterable[Any], default: Any) -> Any:
    counted = Counter(v for v in values if v not in ("", None))
    return counted.most_common(1)[0][0] if counted else default


def _settings(found: Found, csv: Sequence[Sample], views: Sequence[_View], time: str | None) -> dict[str, Any]:
    """Return the settings of an S3 target that most samples agree on."""
    settings: dict[str, Any] = {"DataFormat": "parquet" if len(csv) * 2 < len(views) else "csv"}
    if csv:
        settings |= {
            "CsvDelimiter": _most((s.delimiter for s in csv), ","),
            "CsvRowDelimiter": _most((s.row_delimiter for s in csv), "\n"),
            "Rfc4180": _most((s.quotes[0] for s in csv if len(s.quotes) == 1), True),
            "AddColumnName": any(v.names for v in views if not v.sample.file.is_parquet) and not found.shared,
            "CompressionType": _most((s.compression for s in csv), "none"),
        }
    settings["IncludeOpForFullLoad"] = any(v.has_op for v in views if v.sample.phase == LOAD_PHASE)
    settings |= {"TimestampColumnName": time} if time else {}
    if found.shared:
        settings |= {"PreserveTransactions": True, "CdcPath": found.cdc_path}
    elif p := found.partition:
        settings |= {
            "DatePartitionEnabled": True,
            "DatePartitionSequence": p.sequence,
            "DatePartitionDelimiter": p.delimiter,
        }
    return settings


def _is_header(row: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Return whether a first row can only be column names: `Op`, or names over numbers and times."""
    forms = (NUMBER, TIME, DAY)
    if not all(row) or row[0] in OPERATIONS or any(form.fullmatch(f) for f in row for form in forms):
        return False
    over = [[r[i] for r in body if r[i]] for i in range(len(row))]
    return row[0] == "Op" or any(v and all(NUMBER.fullmatch(f) or TIME.fullmatch(f) for f in v) for v in over)


def _take_time(found: Found, views: dict[str, list[_View]]) -> str | None:
    """Return the name of the commit time and step over it in all views; None: there is none, or it may be a table's own column.

    It is DMS's if several tables have it, or its name says so, or deletes have it and little else.
    """
    every = [v for each in views.values() for v in each]
    names = {v.time() for v in every}
    name = next(iter(names)) if len(names) == 1 else None
    deletes = [r[v.own :] for v in every for r in v.of("D") if v.has_op]
    alone = any(sum(f not in NULLS_SEEN for f in r) * 2 <= len(r) for r in deletes if len(r) > 3)
    is_ours = len([1 for each in views.values() if each]) > 1 or alone
    says_so = any(v.names for v in every) and re.search("dms|commit", name or "", re.I)
    if name and not is_ours and not says_so:
        found.remarks.append(f"the first column ({name}) may be the commit time: name it in --endpoints if it is")
        return None
    for v in every if name else ():
        v.own += 1
    return name


# --- tables


def _table(name: str, found: Found, views: Sequence[_View]) -> GuessedTable:
    """Guess columns, key and numbers of rows of a table."""
    table = GuessedTable(name, problems=[f"{s.file.path} {s.problem}" for s in found.samples[name] if s.problem])
    wide = next((v for v in views if max(map(len, (v.names, *v.rows[:1]))) > MOST_COLUMNS), None)
    if wide:
        table.problems.append(
            f"{wide.sample.file.path}: its first row has over {MOST_COLUMNS:,} fields: is it damaged?"
        )
    if wide or not views:
        return table
    names, values, kinds = _columns(views, table)
    for n in names:
        seen = kinds.get(n) or guess_type(n, [v for v in values[n] if v not in NULLS_SEEN])
        table.columns += (replace(seen, nulls=frozenset(NULLS_SEEN.intersection(values[n]))),)
    _guess_key(table, views[0])
    last = [v for v in views if v.sample.phase == CHANGE_PHASE and v.own > v.has_op][-1:]
    times = sorted((t for v in last for t in v.times()), reverse=True)
    table.last_commit = next((t for t in times if _fits("DATETIME", [t])), "")
    table.rows, table.changes = (
        _estimate([f.size for f in files], [v.sample.row_bytes for v in views if v.sample.phase == phase])
        for phase, files in ((LOAD_PHASE, found.tables[name].loads), (CHANGE_PHASE, found.tables[name].changes))
    )
    return table


def _estimate(sizes: Sequence[int], row_bytes: Sequence[float]) -> int:
    """Estimate the number of rows in files from the bytes of a row in the samples."""
    return round(sum(sizes) * len(row_bytes) / sum(row_bytes)) if sum(row_bytes) else 0


def _columns(views: Sequence[_View], table: GuessedTable) -> tuple[list[str], dict[str, list[str]], dict[str, Guess]]:
    """Return a table's own columns in the order of its newest file, their texts, and the types that Parquet states."""
    names: list[str] = []
    values: dict[str, list[str]] = {}
    kinds: dict[str, Guess] = {}
    for v in views:
        own = v.names[v.own :] or [f"column_{i}" for i in range(1, len(v.rows[0]) - v.own + 1)]
        for i, n in enumerate(own, v.own):
            # A delete has nulls outside the key: they are no values, but show the null token.
            values.setdefault(n, []).extend(r[i] for r in v.rows if not v.has_op or r[0] != "D" or r[i] in NULLS_SEEN)
            if v.sample.file.is_parquet:
                kinds[n] = wider(kinds.get(n), parquet_type(n, footer(v.sample.file).field(i).type))
        if names and own != names:
            differing = [f"without {n}" for n in names if n not in own] + [f"with {n}" for n in own if n not in names]
            table.problems.append(f"{v.sample.file.path}: its columns differ: {', '.join(differing) or 'their order'}")
        names = own
    own = _without_images(names, views[-1], table)
    if _is_sequence(values[own[-1]]):
        table.sequence, own = own[-1], own[:-1]
    return own, values, kinds


def _is_sequence(values: Sequence[str]) -> bool:
    filled = [v for v in values if v not in NULLS_SEEN]
    return bool(filled) and all(SEQUENCE_DIGITS.fullmatch(v) for v in filled)


def _without_images(names: list[str], view: _View, table: GuessedTable) -> list[str]:
    """Return the names without those of before-image columns: the last ones, null in inserts. Those of the key name the key."""
    for own in range((len(names) + 1) // 2, len(names)) if names[-1].startswith(IMAGE) else ():
        images = [n.removeprefix(IMAGE) for n in names[own:]]
        are_images = all(f"{IMAGE}{i}" == n and i in names[:own] for i, n in zip(images, names[own:], strict=True))
        if are_images and all(f in NULLS_SEEN for r in view.of("I") for f in r[view.own + own :]):
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
    import pyarrow as pa

    return type_texts(Column("c", kind), pa.array(values))[1] is None


def parquet_type(name: str, kind: pa.DataType) -> Guess:
    """Return the DMS type of a Parquet column's type."""
    import pyarrow as pa

    found = written_type(kind)
    is_sure = found not in ("", "TIME", "BYTES")
    if pa.types.is_decimal(kind):
        is_sure = kind.precision <= 38 and 0 <= kind.scale <= kind.precision
    utc = bool(getattr(kind, "tz", None))
    return Guess(name, found if is_sure else "WSTRING", f"Parquet says {kind}", utc=utc, certain=is_sure)


_INTEGERS = {"INT1", "UINT1", "INT2", "UINT2", "INT4", "UINT4", "INT8"}


def wider(one: Guess | None, other: Guess) -> Guess:
    """Return a type that holds the values of both; a text where no number does."""
    if one is None or (one.type, one.utc) == (other.type, other.utc):
        return other
    if {one.type, other.type} <= _INTEGERS:
        return replace(other, type="INT8", certain=False, why=f"{one.why}, elsewhere {other.why}")
    return Guess(other.name, "WSTRING", f"{one.why}, elsewhere {other.why}")


# --- keys, nulls and rules


def _guess_key(table: GuessedTable, first: _View) -> None:
    """Set the columns that are unique in the first rows, unless before-image columns name the key."""
    rows = [r[first.own :] for r in first.of("I")]
    rows = [r for r in rows if len(r) >= len(table.columns)]
    if table.key:
        places = [i for i, g in enumerate(table.columns) if g.name in table.key]
        table.key_is_proven &= len({tuple(r[i] for i in places) for r in rows}) == len(rows)
    if table.key or len(rows) < 2:
        return
    named = {table.source.split(".")[-1].rstrip("s").lower() + "_id", "id"}
    filled = [i for i in range(len(table.columns)) if not any(r[i] in NULLS_SEEN for r in rows)]
    may_be = [i for i in filled if not table.columns[i].looks.startswith(("REAL", "NCLOB"))]
    ranked = sorted(may_be, key=lambda i: (table.columns[i].name.lower() not in named, i))
    for places in [*((i,) for i in ranked), *combinations(ranked[:4], 2)]:
        if len({tuple(r[i] for i in places) for r in rows}) == len(rows):
            table.key = tuple(table.columns[i].name for i in places)
            table.key_why = f"unique and never null in the first {len(rows):,} rows"
            return


def _guess_null(result: Guesses) -> None:
    """Find the null token: a word among times, or in two columns of numbers, proves it; other words and empty fields suggest it."""
    columns = [(t.source, g) for t in result.tables.values() for g in t.columns]
    typed = [(t, g) for t, g in columns if not g.looks.startswith(("WSTRING", "NCLOB"))]
    times = {w for _, g in typed for w in g.nulls if g.looks.startswith("DATE")}
    several = Counter(w for _, g in typed for w in g.nulls)  # one column of numbers alone may be one of texts
    proven = {w for w in NULL_WORDS if w in times or several[w] > 1}
    words = [(t, g, w, w in proven) for among in (typed, columns) for t, g in among for w in sorted(g.nulls - {""})]
    empty = [(t, g, "", False) for t, g in typed if "" in g.nulls]
    for table, g, token, is_proof in sorted([*empty, *words], key=lambda w: not w[3])[:1]:
        result.null, result.proposed_null = token if is_proof else None, token
        result.null_why = f"{table}: {g.name} has {token or 'empty fields'}: {g.why}"


def _share_sequence(tables: Iterable[GuessedTable]) -> None:
    """Take the last column without any value as the sequence, where other tables of files without names have one there."""
    numbered = [t for t in tables if t.columns and t.columns[0].name == "column_1"]
    if any(t.sequence == f"column_{len(t.columns) + 1}" for t in numbered):
        for t in numbered:
            last = t.columns[-1]
            if not t.sequence and last.why == NOTHING_SEEN:
                t.sequence, t.columns = last.name, t.columns[:-1]
        for t in numbered:
            t.sequence = t.sequence and "dms_change_seq"


def _rules(tables: Iterable[GuessedTable]) -> list[dict[str, Any]]:
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
