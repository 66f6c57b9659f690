"""DMS's JSON messages as raw rows, in the columns of `dms.csv`: values as text (NUMERIC typed), rows with their place.

`object` is `topic/partition`, `row_no` the offset; `corrupt` says what is wrong with a message (`faults`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.config.spec import Column, TableSpec
from frazil.config.sql import identifier, literal
from frazil.core.field_roles import ORIGIN
from frazil.core.messages import MessageNames
from frazil.dms.csv import JSON
from frazil.dms.faults import MESSAGE, is_typed, replaced_number, wrong_sql
from frazil.dms.layout import CHANGE_PHASE, LOAD_PHASE, origin_sql
from frazil.dms.mappings import Mappings
from frazil.dms.objects import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPERATIONS = {"load": "I", "insert": "I", "update": "U", "delete": "D"}
ROUTE = {"record-type": "kind", "operation": "operation", "schema-name": "schema", "table-name": "table"}
MORE = {"timestamp": "built", "commit-timestamp": "committed", "partition-key-type": "spread"}
"""Metadata of a message, and their names in `routed`; those in `ROUTE` are always present."""
TYPED = {
    **dict.fromkeys(("INT1", "INT2", "INT4", "INT8", "UINT1", "UINT2", "UINT4"), "bigint"), "REAL4": "float", "REAL8": "double",
}  # fmt: skip
"""The types in which JSON numbers are parsed, so that same-named columns of most tables agree.

NUMERIC depends on the column (`_kind`), anything else is text.
"""
MOST_FIELDS = 300
_PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt"}
COLUMN_NAMES = r"""json_object_keys(case when startswith(value, '{"data":') then substr(value, 9)
  when startswith(value, '{\n\t"data":\t') then substr(value, 12) else get_json_object(value, '$.data') end)"""
"""The SQL of the names in a message's data, which DMS mostly writes first."""


def routed(messages: DataFrame, fields: Fields | None = None) -> DataFrame:
    """Return messages with their metadata: `kind` (data, control), `operation`, `schema`, `table` …; null: unreadable.

    With `fields` the rest of each message is parsed too, as `m`, so that `raw_rows` of most tables need not parse it
    again. If the JSON before the metadata is `broken`, the metadata are parsed alone, provided that only the message's
    end follows them.
    """
    from pyspark.sql import functions as F

    named = {**ROUTE, **MORE}
    about = f"struct<{', '.join(f'{identifier(n)}: string' for n in named)}>"
    more = f", {fields.sql}" if fields and fields.data else ""
    alone = r"""regexp_extract(value, '"metadata":\\s*(\\{[^{}\\\\]*\\}\\s*)\\}\\s*$', 1)"""
    rows = messages.withColumn("value", F.col("value").cast("string"))
    parsed = F.from_json("value", f"struct<metadata: {about}{more}>", _PERMISSIVE if more else {})
    rows = rows.withColumn("m", parsed).withColumn("said", F.col("m.metadata"))
    broken = " or ".join(f"said.{identifier(n)} is null" for n in ROUTE)
    said = F.when(F.expr(broken), F.coalesce(F.from_json(F.expr(alone), about), F.col("said"))).otherwise(F.col("said"))
    # Mark it as not deterministic, so that it is computed once: otherwise Spark would compute it again in later
    # filters.
    rows = rows.withColumns({"said": F.when(F.spark_partition_id() >= 0, said), "broken": F.expr(broken)})
    kept = ("object", "offset", "arrived", "value", "broken", *(["m"] if more else []))
    return rows.select(*kept, *[F.col(f"said.{identifier(n)}").alias(a) for n, a in named.items()])


@dataclass(frozen=True)
class Fields:
    """The parts of messages to read besides their metadata: names and types in `data`, and in the before-image."""

    data: dict[str, str]
    old: dict[str, str]
    before_field: str

    @property
    def sql(self) -> str:
        """The members of a message's struct, with `corrupt`."""
        data, old = (", ".join(f"{identifier(n)}: {kind}" for n, kind in f.items()) for f in (self.data, self.old))
        image = f", {identifier(self.before_field)}: struct<{old}>" if old else ""
        return f"data: struct<{data}>{image}, corrupt: string"

    def has(self, other: Fields) -> bool:
        """Tell whether it contains all fields of another one, with their types."""
        return other.data.items() <= self.data.items() and other.old.items() <= self.old.items()


def fields_of(spec: TableSpec, mappings: Mappings, before_field: str) -> Fields:
    """Return the fields to read from a table's messages."""
    names, images, former = _names(spec, mappings)
    every = [(c, n) for c, name in names.items() for n in (name, *former[c])]
    data = {n: _kind(spec.column(c)) for c, n in [*every, *images.items()]}
    return Fields(data, {names[k]: _kind(spec.column(k)) for k in spec.identity if k in names}, before_field)


def common_fields(specs: Iterable[TableSpec], mappings: Mappings, before_field: str) -> Fields:
    """Return fields for as many tables as possible, each name with one type; none if they are too many: each message has them all."""
    common = Fields({}, {}, before_field)
    for spec in specs:
        one = fields_of(spec, mappings, before_field)
        both = Fields({**one.data, **common.data}, {**one.old, **common.old}, before_field)
        alike = len({n.lower() for n in both.data}) < len(both.data)  # Spark ignores case
        common = both if both.has(one) and not alike else common
    return common if len(common.data) <= MOST_FIELDS else Fields({}, {}, before_field)


def _names(spec: TableSpec, mappings: Mappings) -> tuple[dict[str, str], dict[str, str], dict[str, list[str]]]:
    """Return {column: name in messages}, the same for old values within the new data, and former names."""
    names, rule = mappings.file_columns(spec), mappings.before_image(spec)
    names = {c: n for c, n in names.items() if c in spec.names}
    images = {k: n for k, n in rule.names(spec).items() if k in spec.identity} if rule else {}
    return names, images, former_names(spec, mappings)


def message_names(spec: TableSpec, mappings: Mappings) -> MessageNames:
    """Return the names of a table's columns in its messages."""
    return MessageNames(*_names(spec, mappings), frozenset(mappings.listed(spec)), dict(mappings.origin(spec)))


def _moment(text: str, kind: str) -> str:
    """Return the SQL of a time, which DMS writes here with T and Z, zoned or not; null if the text is not one."""
    size = f"octet_length({text})"
    exact = f"({size} between 20 and 27 or ({size} > 27 and {text} rlike '[.][0-9]{{6}}0+Z$'))"
    form = f"endswith({text}, 'Z') and {exact} and substring({text}, 11, 1) = 'T' and not startswith({text}, '0000')"
    return f"if({form}, try_cast({text} as {kind}), null)"


def _value(column: Column, field: str, name: str) -> str:
    """Return the SQL of a column's raw value: times typed or as in files, numbers typed, anything else as text."""
    declared = replaced_number(column, f"t.data.{identifier(name)}", _kind(column))
    if declared:
        return f"coalesce({field}, case {' '.join(f'when {c} then {v}' for c, v in declared.items())} end)"
    if is_typed(column):
        return _moment(field, "timestamp" if column.utc else "timestamp_ntz")
    return _plain(column, field)


def _plain(column: Column, field: str) -> str:
    """Return the SQL of a value as text in the form of files, or a number."""
    return f"if({field} like '%Z', translate({field}, 'TZ', ' '), {field})" if column.dms_type == "DATETIME" else field


def _kind(column: Column) -> str:
    """Return the type to parse a value as. Spark parses a number into text via a double: numbers must not become texts.

    A decimal is parsed from its digits, with spare places for digits that the column cannot hold, so that these show.
    In a column of 38 digits there is no room for them, and a value with a finer scale than the spec's is rounded.
    """
    if column.dms_type != "NUMERIC":
        wide = column.lake if column.lake in ("bigint", "double") else "string"
        return TYPED.get(column.dms_type, "string") if wide == "string" else wide
    precision, scale = _digits(column)
    return f"decimal(38,{scale + 38 - precision})"


def _digits(column: Column) -> tuple[int, int]:
    """Return precision and scale of a NUMERIC: those of the lake's type if it is wider."""
    wide = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", column.lake)
    return (int(wide[1]), int(wide[2])) if wide else column.arguments


def known_columns(spec: TableSpec, mappings: Mappings) -> set[str]:
    """Return the names that may occur in a message's data."""
    rule = mappings.before_image(spec)
    former = {n for names in former_names(spec, mappings).values() for n in names}
    return {
        *mappings.file_columns(spec).values(),
        *former,
        *mappings.added(spec),
        *(rule.names(spec).values() if rule else ()),
    }


def former_names(spec: TableSpec, mappings: Mappings) -> dict[str, list[str]]:
    """Return {column: its former names in messages, unless another column has them now}."""
    now = set(mappings.file_columns(spec).values())
    named = {c.name: [mappings.column_name(spec, old) for old in c.renamed_from] for c in spec.file_columns}
    return {c: [n for n in names if n not in now] for c, names in named.items()}


def _read(rows: DataFrame, before_field: str) -> Fields:
    """Return the fields that are already parsed."""
    kinds = {f.name: f.dataType for f in rows.schema["m"].dataType}
    told = [{f.name: f.dataType.simpleString() for f in kinds.get(n, ())} for n in ("data", before_field)]
    return Fields(*told, before_field)


def raw_rows(
    rows: DataFrame, spec: TableSpec, mappings: Mappings, before_field: str, phase: int, scheme: str, partitions: int
) -> DataFrame:
    """Return the raw rows of a table's load records (phase 0) or changes (phase 1), from its own `routed` messages.

    `before_field` is BeforeImageSettings.FieldName. A null and a missing column are both null: DMS writes whole rows.
    With several `partitions`, each keeps the order of its keys. An update that moves a row to a key in another
    partition is refused, because the order between partitions is unknown.
    """
    from pyspark.sql import functions as F

    names, images, former = _names(spec, mappings)
    fields, added = fields_of(spec, mappings, before_field), mappings.listed(spec)
    if len({n.lower() for n in fields.data}) < len(fields.data):
        raise SourceError(
            f"{spec.source}: names of columns in its messages differ in upper and lower case only: {', '.join(fields.data)}",
            "have DMS rename one, which loses nothing (a transformation rule: rename)",
        )
    if origin := mappings.origin(spec):
        told = {ORIGIN + c: f"get_json_object(value, {literal(f'$.data[{c!r}]')})" for c in origin}
        untold, is_own = origin_sql(told, origin)
        rows = rows.withColumn("untold", F.expr(untold)).where(f"broken or untold or {is_own}")
    if "m" not in rows.columns or not _read(rows, before_field).has(fields):
        rows = rows.withColumn("m", F.from_json("value", f"struct<{fields.sql}>", _PERMISSIVE))

    def image(k: str) -> list[str]:
        of_metadata = [f"m.{identifier(before_field)}.{identifier(names[k])}"] if k in names else []
        return of_metadata + ([f"m.data.{identifier(images[k])}"] if k in images else [])

    def old(k: str) -> str:
        own = f"coalesce({', '.join(image(k) or ['null'])}, null)"
        others = ", ".join(f"cast({f} as string)" for o in spec.identity if o not in added for f in image(o))
        if k in added and k in names and others:  # a column that a rule adds has no old value of its own
            own = f"coalesce({own}, if(coalesce({others}, null) is not null, m.data.{identifier(names[k])}, null))"
        return f"if(operation = 'update', {own}, null)"

    at = {c: i for i, c in enumerate(spec.names)}
    given = {f"d{at[c]}": f"coalesce({', '.join(f'm.data.{identifier(n)}' for n in (name, *former[c]))}, null)" for c, name in names.items()}  # fmt: skip
    given |= {f"o{i}": old(k) for i, k in enumerate(spec.identity)}
    told = ", ".join(f"{identifier(n)}: string" for n in names.values())
    texts = f"from_json(value, {literal(f'struct<data: struct<{told}>>')})"
    given |= {"at": _moment("committed", "timestamp"), "t": f"case when m.corrupt is not null then {texts} end"}
    values = {f"a{i}": _value(c, f"d{i}", names[c.name]) if c.name in names else "cast(null as string)" for i, c in enumerate(spec.columns)}  # fmt: skip
    for step in (given, values):
        rows = rows.selectExpr("*", *[f"{v} as {n}" for n, v in step.items()])
    told = " ".join(f"when {literal(k)} then '{v}'" for k, v in OPERATIONS.items())
    wrong = wrong_sql(spec, names, partitions > 1 and phase == CHANGE_PHASE)
    if origin:
        wrong = f"coalesce({wrong}, if(untold, {literal(MESSAGE + 'no value in ' + ', '.join(origin) + ', which tells its table')}, null))"
    return rows.selectExpr(
        f"{phase} as phase", "object", f"concat({literal(scheme)}, object) as path", "0L as block", "offset as row_no",
        "try_cast(built as timestamp) as written_at", f"case operation {told} else operation end as op",
        "at as commit_ts", "lpad(unix_micros(at) div 10000, 16, '0') as change_seq",
        *values, *[f"{_plain(spec.column(k), f'o{i}')} as b{i}" for i, k in enumerate(spec.identity)],
        f"{wrong} as corrupt",
        "cast(value as binary) as raw", f"{literal(JSON)} as form", "cast(array() as array<string>) as layout",
    )  # fmt: skip


__all__ = [
    "CHANGE_PHASE",
    "COLUMN_NAMES",
    "LOAD_PHASE",
    "Fields",
    "common_fields",
    "known_columns",
    "raw_rows",
    "routed",
]
