"""DMS's CSV files as a DataFrame of raw rows: every value is still text, and every row has its place.

A raw row has:

    phase       0 load, 1 change
    object      base name of the file, and `path`, its URI
    block       with `row_no` the row's place in the file
    written_at  when DMS wrote the file, by its name; null for load files
    op          and `commit_ts` and `change_seq`, as text
    a0, a1 …    the spec's columns, in its order; an empty text may mean null, see `_is_cast`
    b0, b1 …    the key's old values
    corrupt     the line, if it has too many or too few fields
    raw         the row's bytes; fields may be quoted differently
    form        `STATED` …, and `layout`, the roles of its fields
    absent      with UseCsvNoSupValue: the columns that the source's log did not carry, or null

Columns that nothing uses are not computed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

from frazil.config.columns import TEXTS, Column
from frazil.config.paths import NO_PATTERNS
from frazil.config.spec import PastLayout, TableSpec
from frazil.config.sql import literal
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import (
    CHANGE_PHASE,
    LOAD_PHASE,
    Layout,
    as_written,
    layout_of,
    named_layout,
    operation_sql,
    origin_sql,
    past_layout,
    stated_layout,
)  # fmt: skip
from frazil.dms.newest import moment
from frazil.dms.objects import DmsObject, SourceError
from frazil.dms.storage import open_text_head, read_head
from frazil.dms.transactions import NAME, shared_layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE = (
    "substring_index(input_file_name(), '/', -1) as object", "input_file_name() as path",
    "input_file_block_start() as block", "monotonically_increasing_id() as row_no",
)  # fmt: skip
"""A row's place as SQL, for use directly above the scan.

The columns of `_metadata`, which are cheap only in Parquet, would cost a copy of the row; these do not.
"""

FEW = 32
"""Maximum number of files that SQL distinguishes one by one."""


def written_at(files: Iterable[DmsObject], phase: int) -> str:
    """Return the SQL of the time at which DMS wrote an `object`, by its name; null for load files.

    For a few files the times are constants, found by bisection. For many files they are computed per row, which costs
    more. The digits of a name (20240612-103125108.csv or CDC_TXN-20240612103125108.csv) form one number, and division
    extracts its parts.
    """
    if phase == LOAD_PHASE:
        return "cast(null as timestamp)"
    names = sorted({f.name for f in files})
    if len(names) <= FEW:
        times = ", ".join(f"timestamp'{moment(n):%Y-%m-%d %H:%M:%S.%f}Z'" for n in names)
        return f"array({times})[{_which(names)}]"
    shared = NAME.match(names[0])
    n = f"cast({'substring(object, 9, 17)' if shared else 'concat(substring(object, 1, 8), substring(object, 10, 9))'} as bigint)"
    day = f"make_date(int({n} div 10000000000000), int({n} div 100000000000 % 100), int({n} div 1000000000 % 100))"
    clock = f"({n} div 10000000 % 100) * 3600000 + ({n} div 100000 % 100) * 60000 + {n} % 100000"
    return f"timestamp_millis(unix_date({day}) * bigint(86400000) + {clock})"


def _which(names: list[str]) -> str:
    """Return the SQL of an `object`'s index in sorted names; the compiled code does not depend on the names, so Spark compiles it once."""

    def within(first: int, end: int) -> str:
        if first + 1 == end:
            return str(first)
        middle = (first + end) // 2
        return f"if(object < {literal(names[middle])}, {within(first, middle)}, {within(middle, end)})"

    return within(0, len(names)) if len(names) > 1 else "int(object = '')"


STATED, NAMED, SHARED, PARQUET, JSON = "csv", "csv named", "csv of all", "parquet", "json"
"""Where a row's layout comes from: the settings, its file's header, a file of all tables; or another file format."""
HAVE_EMPTY = TEXTS | {"BYTES", "BLOB"}
"""Types with an empty value: if the null token is not empty itself, an empty field of theirs is that value."""
NEVER = "\x01\x02"
"""Spark's own null value, which no file contains: so a quoted empty field (`""`) is read as empty and a bare one as null."""
HEAD = 1 << 20
"""Bytes of a file to read at first for its first row."""
LONGEST_NAME = 10_000
"""No database has longer column names."""
FIELD_END, ROW_END = "\x1f", "\x1e"
"""Replacements for delimiters that Python's csv module cannot read."""
NO_CHARACTER = "\uffff"
"""A Unicode non-character as Spark's third escape: its default is NUL, and a NUL in a quoted text would be lost."""


class LayoutError(SourceError):
    """A headerless file fits none of its table's layouts: its columns must be declared."""

    decision = True


@lru_cache(maxsize=4096)
def header(file: DmsObject, endpoint: Endpoint) -> list[str]:
    """Return the fields of the first line: the column names of a file with a header."""
    line = open_text_head(file.path, HEAD).read().split(endpoint.row_delimiter, 1)[0].rstrip("\r\n")
    names = next(_rows(file, line, endpoint)[0], [])
    if "\r" in line or any(len(name) > LONGEST_NAME for name in names):
        problem = (
            f"{file.path} line 1 is no line of CSV: a line break within, or a name of over {LONGEST_NAME:,} characters"
        )
        raise SourceError(problem, "is it DMS's, and CsvRowDelimiter as the task has it? Fetch it again")
    return names


def _rows(file: DmsObject, text: str, endpoint: Endpoint) -> tuple[Iterator[list[str]], io.StringIO]:
    """Return the rows of a text as Spark splits it, and the stream that they are read from; line breaks become blanks."""
    for mark, instead in ((endpoint.row_delimiter, ROW_END), ("\r", " "), ("\n", " "), (ROW_END, "\n")):
        text = text.replace(mark, instead)
    delimiter = endpoint.delimiter
    if len(delimiter) > 1:
        text, delimiter = text.replace(delimiter, FIELD_END), FIELD_END
    csv.field_size_limit(2**31 - 1)
    stream, quoting = io.StringIO(text), csv.QUOTE_MINIMAL if endpoint.rfc4180 else csv.QUOTE_NONE
    rows = csv.reader(stream, delimiter=delimiter, quoting=quoting)

    def read() -> Iterator[list[str]]:
        try:
            yield from rows
        except csv.Error as e:
            raise SourceError(f"{file.path} line 1 is no line of CSV: {e}", "is it DMS's? Fetch it again") from None

    return read(), stream


def first_row(file: DmsObject, endpoint: Endpoint) -> list[str]:
    """Return the fields of a file's first row, however long that is."""
    size = HEAD
    while True:
        text = open_text_head(file.path, size).read()
        rows, stream = _rows(file, text, endpoint)
        row = next((r for r in rows if r), [])
        if stream.read(1) or size >= file.size:  # more follows after the row, so it is complete
            return row
        size *= 8


@lru_cache(maxsize=4096)
def first_width(file: DmsObject, endpoint: Endpoint) -> int:
    """Return the number of fields in a file's first row."""
    return len(first_row(file, endpoint))


def require_fit(file: DmsObject, spec: TableSpec, endpoint: Endpoint, mappings: Mappings, phase: int) -> None:
    """Raise LayoutError if a headerless file's first row is not as wide as the layout that was valid when it was written."""
    width = first_width(file, endpoint)
    wanted = len(stated_layout(spec, endpoint, mappings, phase, file, width).roles)
    if width in (0, wanted):
        return
    held = past_layout(spec, file, phase)
    known = {f"until {past.until}": past for past in spec.layouts} | {"now": None}
    widths = {name: len(layout_of(past, spec, endpoint, mappings, phase, width).roles) for name, past in known.items()}
    near = min(widths, key=lambda name: abs(widths[name] - width))
    columns = (known[near] and known[near].columns) or tuple(mappings.file_columns(spec))
    shown = (
        "a row that holds columns which are masked or left out" if spec.hides else repr(first_row(file, endpoint))[:200]
    )
    raise LayoutError(
        f"{file.path} row 1: {width} fields, and {wanted} in the layout that held when it was written: {shown}",
        f"the nearest layout is that of '{near}' ({', '.join(columns)}): correct layouts in {spec.file}"
        + _later_rule(spec, mappings, held, wanted - width),
    )


def _later_rule(spec: TableSpec, mappings: Mappings, held: PastLayout | None, lacking: int) -> str:
    """Return how to declare that a rule began later, if that explains the fields that a row lacks."""
    image = mappings.before_image(spec)
    rules = [[n] for n in mappings.added(spec)] + ([[*image.names(as_written(spec, held)).values()]] if image else [])
    every = [n for names in rules for n in names]
    fitting = [", ".join(names) for names in (*rules, every) if lacking > 0 and len(names) == lacking]
    if not fitting:
        return ""
    entries = " or ".join(f"{{until: <the last file without>, without: [{names}]}}" for names in dict.fromkeys(fitting))
    return f"; if a rule of the task that adds columns began later: {entries}"


def _value(field: str, token: str, has_empty: bool) -> str:
    """Return the SQL of a column's text: null for a field that means null, empty for one that means empty."""
    if not token:
        return field if has_empty else f"nullif({field}, '')"
    return (
        f"nullif(coalesce({field}, ''), {literal(token)})"
        if has_empty
        else f"nullif(nullif({field}, {literal(token)}), '')"
    )


def _is_cast(spec: TableSpec, column: Column) -> bool:
    """Tell whether an empty field of a column may stay empty in raw rows, because its cast is null anyway.

    `changeset` treats it as null, which saves a comparison per value. Key columns are excluded: code that has only raw
    rows must see that their value is null.
    """
    return column.name not in spec.key and column.lake != "string" and column.dms_type not in HAVE_EMPTY | {"TIME"}


def _names_sql(conditions: dict[str, str]) -> str:
    """Return the SQL of the names whose condition holds, as an array; null if none does."""
    names = ", ".join(f"if({condition}, {literal(name)}, null)" for name, condition in conditions.items())
    return f"nullif(array_compact(array({names})), array())"


def lacking(spec: TableSpec, layout: Layout, more: dict[str, str] | None = None) -> list[str]:
    """Return the SQL of raw rows' column `absent`: the optional columns that a layout lacks, and those under a condition; or nothing."""
    absent = {c: "true" for c in spec.optional if not layout.carries(c)} | (more or {})
    return [f"{_names_sql(absent)} as absent"] if absent else []


def file_layout(
    spec: TableSpec, endpoint: Endpoint, mappings: Mappings, phase: int, file: DmsObject
) -> tuple[Layout, str]:
    """Return the layout of a file and its origin (`STATED`, `NAMED`, `SHARED`)."""
    if endpoint.header and file.size and not NAME.match(file.name):
        where = f"{file.path} line 1"
        return named_layout(header(file, endpoint), spec, endpoint, mappings, phase, where), NAMED
    shared = bool(NAME.match(file.name))
    width = 0
    if file.size and mappings.listed(spec):  # otherwise all rows have the stated width
        width = _width_of(file, endpoint, mappings.target_name(spec)) if shared else first_width(file, endpoint)
    layout = stated_layout(spec, endpoint, mappings, phase, file, width)
    return (shared_layout(layout), SHARED) if shared else (layout, STATED)


def _width_of(file: DmsObject, endpoint: Endpoint, table: tuple[str, str]) -> int:
    """Return the width of a table's rows as in its own files, by its first row in the head of a file of all tables. 0: unknown."""
    rows, _ = _rows(file, open_text_head(file.path, HEAD).read(), endpoint)
    more = 2 if endpoint.op_in_changes else 3  # the table and the schema, and an operation that is always present
    return next((len(row) - more for row in rows if tuple(row[2:0:-1]) == table), 0)


def csv_options(endpoint: Endpoint) -> dict[str, str]:
    """Return the options with which Spark splits a line into fields."""
    return {
        "sep": endpoint.delimiter, "quote": '"' if endpoint.rfc4180 else "", "escape": '"', "mode": "PERMISSIVE",
        "nullValue": NEVER, "emptyValue": "", "columnNameOfCorruptRecord": "corrupt",
        "charToEscapeQuoteEscaping": NO_CHARACTER, **NO_PATTERNS,
    }  # fmt: skip


def fields_schema(layout: Layout) -> str:
    """Return the schema of a line's fields: `f0`, `f1` …, and `corrupt`."""
    return ", ".join(f"f{i} string" for i in range(len(layout.roles))) + ", corrupt string"


def line_sql(fields: list[str], delimiter: str = ",", quotes: bool = True) -> str:
    """Return the SQL of a CSV line with these texts as its fields: a null is empty, any other text quoted."""
    some = [
        f"""coalesce(concat('"', replace({f}, '"', '""'), '"'), '')""" if quotes else f"coalesce({f}, '')"
        for f in fields
    ]
    return f"concat_ws({literal(delimiter)}, {', '.join(some)})"


def _read_layout(
    spark: SparkSession,
    layout: Layout,
    endpoint: Endpoint,
    spec: TableSpec,
    files: list[DmsObject],
    phase: int,
    whole: bool,
    form: str,
    mappings: Mappings,
) -> DataFrame:
    """Read files of one layout."""
    from pyspark.sql import functions as F

    rows = (
        spark.read.schema(fields_schema(layout)).options(**csv_options(endpoint))
        .option("header", endpoint.header).option("lineSep", endpoint.row_delimiter)
        .option("multiLine", whole).option("encoding", "UTF-8").option("columnPruning", False)
        .option("unescapedQuoteHandling", "RAISE_ERROR")  # otherwise a field with an extra quote would be read unchanged
        .csv([f.path for f in files])
    )  # fmt: skip
    found = raw_rows(rows, layout, endpoint, spec, phase, [f"{phase} as phase", *PLACE], form, mappings)
    return found.withColumn("written_at", F.expr(written_at(files, phase)))


def raw_rows(
    rows: DataFrame,
    layout: Layout,
    endpoint: Endpoint,
    spec: TableSpec,
    phase: int,
    place: list[str],
    form: str,
    mappings: Mappings,
) -> DataFrame:
    """Return raw rows from split lines (`fields_schema`); `place` is the SQL of each line's place.

    From files with rows of several tables, only this table's rows are read, and those that name no table.
    """
    physical = [f"f{i}" for i in range(len(layout.roles))]
    at, token = layout.at(physical), endpoint.null_value or ""
    line = line_sql(physical, endpoint.delimiter, endpoint.rfc4180)
    absent = {}
    if endpoint.no_sup_value is not None and phase == CHANGE_PHASE:
        absent = {c: f"{at[f'after:{c}']} = {literal(endpoint.no_sup_value)}" for c in spec.names if f"after:{c}" in at}
        at |= {r: f"nullif({f}, {literal(endpoint.no_sup_value)})" for r, f in at.items() if ":" in r}

    def control(role: str) -> str:
        """Return the SQL of Op, time or sequence: empty means absent, however it is written."""
        return _value(at[role], token, False) if role in at else "cast(null as string)"

    def after(column, image: str = "after") -> str:
        field = at.get(f"{image}:{column.name}")
        may_be_empty = column.dms_type in HAVE_EMPTY or (image == "after" and _is_cast(spec, column))
        return _value(field, token, may_be_empty) if field else "cast(null as string)"

    def before(name: str) -> str:
        """Return the SQL of a key's old value.

        DMS writes nothing if the key did not change, so only a quoted empty field is an old empty text.
        """
        column, role = spec.column(name), f"before:{name}"
        if role not in at:  # a column that a rule adds has no old value of its own
            others = [control(f"before:{k}") for k in spec.identity if f"before:{k}" in at]
            return f"if(coalesce({', '.join(others)}) is not null, {after(column)}, null)" if others else control(role)
        if spec.policy == "multiset":
            return after(column, "before")
        if column.dms_type in HAVE_EMPTY:
            return f"nullif({at[role]}, {literal(token)})" if token else at[role]
        return control(role)

    fields, corrupt = ", ".join(physical), "corrupt"
    rows = rows.where(f"coalesce({fields}, corrupt) is not null")
    told = []  # a row that names no table concerns every table: none may skip it
    if form == SHARED:  # rows of other tables in it may have any width
        schema, table = mappings.target_name(spec)
        told.append(("(f1 is null or f2 is null)", f"(f1 = {literal(table)} and f2 = {literal(schema)})"))
    if origin := mappings.origin(spec):
        nameless, own = origin_sql({r: f"nullif({f}, {literal(token)})" for r, f in at.items()}, origin)
        told.append((nameless, f"(corrupt is not null or {own})"))
    for nameless, own in told:
        rows = rows.where(f"{nameless} or {own}")
        corrupt = f"coalesce({corrupt}, if({nameless}, concat_ws({literal(endpoint.delimiter)}, {fields}), null))"
    operation = operation_sql(control("op"), endpoint) if "op" in at else "'I'"
    return rows.selectExpr(
        *place, f"{operation} as op", f"{control('ts')} as commit_ts", f"{control('seq')} as change_seq",
        *[f"{after(c)} as a{i}" for i, c in enumerate(spec.columns)],
        *[f"{before(k)} as b{i}" for i, k in enumerate(spec.identity)],
        f"{corrupt} as corrupt", *lacking(spec, layout, absent), f"cast(coalesce(corrupt, {line}) as binary) as raw",
        f"{literal(form)} as form", f"array({', '.join(map(literal, layout.roles))}) as layout",
    )  # fmt: skip


def has_quoted_newline(head: bytes, row_delimiter: bytes) -> bool:
    """Tell whether a row in the head of a file ends inside quotes."""
    return any(line.count(b'"') % 2 for line in head.split(row_delimiter)[:-1])


def must_be_read_whole(files: list[DmsObject], endpoint: Endpoint) -> bool:
    """Tell from the heads of some files whether texts contain newlines, so that no file may be split.

    If the heads do not show it, rows with too few fields appear: then the files are read again, each as a whole.
    """
    some = files if len(files) <= 4 else [*files[:2], *files[-2:]]
    rows = endpoint.row_delimiter.encode()
    return endpoint.rfc4180 and any(has_quoted_newline(read_head(f.path, 1 << 18), rows) for f in some)


def read_csv(
    spark: SparkSession,
    spec: TableSpec,
    endpoint: Endpoint,
    mappings: Mappings,
    files: list[DmsObject],
    phase: int,
    whole: bool,
) -> DataFrame:
    """Return the raw rows of a table's load files (phase 0) or change files (phase 1).

    `whole`: read each file in one piece, which keeps quoted newlines; otherwise Spark may split files.
    """
    groups: dict[tuple[Layout, str], list[DmsObject]] = {}
    for file in files:
        groups.setdefault(file_layout(spec, endpoint, mappings, phase, file), []).append(file)
    frames = [
        _read_layout(spark, layout, endpoint, spec, group, phase, whole, form, mappings)
        for (layout, form), group in groups.items()
    ]
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)


__all__ = ["CHANGE_PHASE", "LOAD_PHASE", "must_be_read_whole", "read_csv"]
