"""DMS's JSON messages as raw rows, in the columns that `dms.csv` tells: values as text (NUMERIC typed), rows with their place.

`object` is `topic/partition`, `row_no` the offset, `corrupt` says what is wrong with a message that no row can be made of.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from frazil.config.spec import Column, TableSpec
from frazil.config.sqltext import literal
from frazil.dms.csv import JSON
from frazil.dms.layout import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.mappings import Mappings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPERATIONS = {"load": "I", "insert": "I", "update": "U", "delete": "D"}
CROSSES = (
    "an update of the key, and messages are spread over partitions by it: let DMS use partition-key-type schema-table"
)
SPREAD = (
    "changes of a row are spread over partitions, which loses their order: let DMS use partition-key-type schema-table"
)
ROUTE = {"record-type": "kind", "operation": "operation", "schema-name": "schema", "table-name": "table"}
MORE = {"timestamp": "built", "commit-timestamp": "committed", "partition-key-type": "spread"}
"""Metadata of a message, and what `routed` calls them; those in `ROUTE` are always there."""
TYPED = {
    "INT1": "int", "INT2": "int", "INT4": "int", "UINT1": "int", "UINT2": "int", "INT8": "bigint", "UINT4": "bigint",
    "REAL4": "float", "REAL8": "double",
}  # fmt: skip
"""What a JSON number is parsed as; NUMERIC depends on the column (`_kind`), anything else is text."""
_ANOTHER = r'\\}\\s*\\{\\s*"[^"\\\\]*"\\s*:'
"""Where another message begins in the same value: quotes in a text are escaped."""

COLUMN_NAMES = r"""json_object_keys(case when startswith(value, '{"data":') then substr(value, 9)
  when startswith(value, '{\n\t"data":\t') then substr(value, 12) else get_json_object(value, '$.data') end)"""
"""The SQL of the names in a message's data, which DMS mostly writes first."""


def _name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def routed(messages: DataFrame) -> DataFrame:
    """Return messages with what their metadata says: `kind` (data, control), `operation`, `schema`, `table` …; null: unreadable.

    DMS writes the metadata last. Where they have neither an escape nor an object in them, each is cut out of the text, which
    costs a fraction of parsing; else the message is parsed.
    """
    from pyspark.sql import functions as F

    def mark(name: str) -> str:
        return f"concat({literal(f'{chr(34)}{name}{chr(34)}:')}, tab, '\"')"

    def cut(name: str) -> str:
        return f"if(instr(rest, {mark(name)}) > 0, substring_index(substring_index(rest, {mark(name)}, -1), '\"', 1), null)"

    named = {**ROUTE, **MORE}
    schema = f"struct<metadata: struct<{', '.join(f'`{n}`: string' for n in named)}>>"
    plain = r"instr(rest, '{') = 0 and instr(rest, '\\') = 0 and endswith(translate(right(rest, 9), '\n\t', ''), '}}')"
    plain += "".join(f" and instr(rest, {mark(n)}) > 0" for n in ROUTE)
    plain += "".join(f" and (instr(rest, {mark(n)}) > 0 or instr(rest, '\"{n}\"') = 0)" for n in MORE)
    quick = ", ".join(f"{literal(n)}, {cut(n)}" for n in named)
    rows = messages.withColumn("value", F.col("value").cast("string"))
    rows = rows.withColumn("tab", F.expr(r"if(instr(value, '\"metadata\":{') > 0, '', '\t')"))
    rows = rows.withColumn("rest", F.expr("substring_index(value, concat('\"metadata\":', tab, '{'), -1)"))
    parsed = F.from_json("value", schema)["metadata"]
    found = F.when(F.expr(plain), F.expr(f"named_struct({quick})")).otherwise(parsed)
    # What need not be the same twice is computed once: else Spark would compute it again in the filters behind this.
    rows = rows.withColumn("m", F.when(F.spark_partition_id() >= 0, found))
    return rows.select("object", "offset", "arrived", "value", *[F.col(f"m.`{n}`").alias(a) for n, a in named.items()])


def _text(column: Column, field: str) -> str:
    """The SQL of a column's text as files have it: DMS writes every moment with T and Z here, zoned or not."""
    if column.dms_type != "DATETIME":
        return field
    return f"if({field} like '%Z', translate({field}, 'TZ', ' '), {field})"


def _kind(column: Column) -> str:
    """The type that a value is parsed as. Spark takes a number's text by way of a double: no number must go there.

    A decimal is parsed from its digits, with all the room for those that the column has no place for: they show, but in a
    column of 38 digits, where a value with a finer scale than the spec's is rounded.
    """
    if column.dms_type != "NUMERIC":
        wide = column.lake if column.lake in ("bigint", "double") else "string"
        return TYPED.get(column.dms_type, "string") if wide == "string" else wide
    precision, scale = _digits(column)
    return f"decimal(38,{scale + 38 - precision})"


def _digits(column: Column) -> tuple[int, int]:
    """Return precision and scale of a NUMERIC: what the lake has room for, where that is more."""
    wide = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", column.lake)
    return (int(wide[1]), int(wide[2])) if wide else column.arguments


def _misfits(column: Column, name: str) -> str:
    """The SQL branch that says which value of a message is none of its type."""
    path = literal(f"$['data']['{name}']")
    told = f"column '{column.name}': "
    text = literal(f"{told}a masked value does not fit {column.type}") if column.mask else (
        f"concat({literal(told + chr(39))}, get_json_object(value, {path}), {literal(f'{chr(39)} does not fit {column.type}')})"
    )  # fmt: skip
    return f"when m.data.{_name(name)} is null and get_json_object(value, {path}) is not null then {text}"


def known_columns(spec: TableSpec, mappings: Mappings) -> set[str]:
    """Return the names that may stand in a message's data."""
    rule = mappings.before_image(spec)
    former = {n for names in former_names(spec, mappings).values() for n in names}
    return {
        *mappings.file_columns(spec).values(),
        *former,
        *mappings.added(spec),
        *(rule.names(spec).values() if rule else ()),
    }


def former_names(spec: TableSpec, mappings: Mappings) -> dict[str, list[str]]:
    """Return {column: the names that it had in messages before, and that no other column has now}."""
    now = set(mappings.file_columns(spec).values())
    named = {c.name: [mappings.column_name(spec, old) for old in c.renamed_from] for c in spec.file_columns}
    return {c: [n for n in names if n not in now] for c, names in named.items()}


def raw_rows(
    rows: DataFrame, spec: TableSpec, mappings: Mappings, before_field: str, phase: int, scheme: str, partitions: int
) -> DataFrame:
    """Return the raw rows of a table's load records (phase 0) or changes (phase 1), out of `routed` messages of its own.

    `before_field` is BeforeImageSettings.FieldName. A null, and a column that is not there, are both null: DMS writes
    whole rows. Of several `partitions` one holds the order of a key: an update that takes a row to a key of another one is
    refused, for what came first there can't be told.
    """
    from pyspark.sql import functions as F

    names, rule = mappings.file_columns(spec), mappings.before_image(spec)
    names = {c: n for c, n in names.items() if c in spec.names}
    images = {k: n for k, n in rule.names(spec).items() if k in spec.identity} if rule else {}
    former = former_names(spec, mappings)
    every = [(c, n) for c, name in names.items() for n in (name, *former[c])]
    fields = {n: _kind(spec.column(c)) for c, n in [*every, *images.items()]}
    data = ", ".join(f"{_name(n)}: {kind}" for n, kind in fields.items())
    old_ones = ", ".join(f"{_name(names[k])}: {_kind(spec.column(k))}" for k in spec.identity if k in names)
    image = f", {_name(before_field)}: struct<{old_ones}>" if old_ones else ""
    schema = f"struct<data: struct<{data}>{image}, corrupt: string>"
    parsed = rows.withColumn(
        "m", F.from_json("value", schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt"})
    )

    def old(k: str) -> str:
        fields = [f"m.{_name(before_field)}.{_name(names[k])}"] if k in names else ["null"]
        fields += [f"m.data.{_name(images[k])}"] if k in images else []
        return f"if(operation = 'update', coalesce({', '.join(fields)}), null)"

    def new(c: str) -> str:
        return f"coalesce({', '.join(f'm.data.{_name(n)}' for n in (names[c], *former[c]))}, null)"

    moved = " or ".join(f"{old(k)} <> {new(k)}" for k in spec.key)
    crosses = f"when spread in ('transaction-id', 'attribute-name') then {literal(SPREAD)}"
    crosses += f" when spread = 'primary-key' and ({moved}) then {literal(CROSSES)}"
    near = r"contains(value, '}{') or contains(value, '}\n{')"  # cheaper than the pattern
    wrong = f"m.corrupt is not null or m.data is null or (({near}) and value rlike '{_ANOTHER}')"
    junk = "concat('not JSON as DMS writes it: ', value)"
    why = " ".join(_misfits(spec.column(c), n) for c, n in names.items())
    too_large = " or ".join(f"abs({new(c.name)}) = double('infinity')" for c in spec.columns
                            if c.dms_type.startswith("REAL") and c.name in names)  # fmt: skip
    too_large = (
        f"when ({too_large}) and instr(value, 'Infinity') = 0 then 'a number that overflows'" if too_large else ""
    )
    told = " ".join(f"when {literal(k)} then '{v}'" for k, v in OPERATIONS.items())
    return parsed.select(
        F.lit(phase).alias("phase"), "object", F.concat(F.lit(scheme), "object").alias("path"),
        F.lit(0).cast("bigint").alias("block"), F.col("offset").alias("row_no"),
        F.expr("try_cast(built as timestamp)").alias("written_at"),
        F.expr(f"case operation {told} else operation end").alias("op"),
        F.expr("translate(committed, 'TZ', ' ')").alias("commit_ts"),
        F.expr("rpad(translate(substring(committed, 1, 22), '-:T.Z', ''), 16, '0')").alias("change_seq"),
        *[F.expr(_text(c, new(c.name)) if c.name in names else "cast(null as string)").alias(f"a{i}")
          for i, c in enumerate(spec.columns)],
        *[F.expr(_text(spec.column(k), old(k))).alias(f"b{i}") for i, k in enumerate(spec.identity)],
        F.expr(
            f"case when {wrong} then case when m.data is null then {junk} {why} else {junk} end {too_large} "
            f"{crosses if partitions > 1 and spec.key and phase == CHANGE_PHASE else ''} end"
        ).alias("corrupt"),
        F.col("value").cast("binary").alias("raw"), F.lit(JSON).alias("form"), F.array().cast("array<string>").alias("layout"),
    )  # fmt: skip


__all__ = ["CHANGE_PHASE", "COLUMN_NAMES", "LOAD_PHASE", "known_columns", "raw_rows", "routed"]
