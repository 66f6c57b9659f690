"""DMS's JSON messages as raw rows, in the columns that `dms.csv` tells: values as text (NUMERIC typed), rows with their place.

`object` is `topic/partition`, `row_no` the offset, `corrupt` says what is wrong with a message that no row can be made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.config.spec import Column, TableSpec
from frazil.config.sqltext import literal
from frazil.dms.layout import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.mappings import Mappings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPERATIONS = {"load": "I", "insert": "I", "update": "U", "delete": "D"}
CROSSES = (
    "an update of the key, and messages are spread over partitions by it: let DMS use partition-key-type schema-table"
)
_ROUTE = (
    "struct<metadata: struct<`record-type`: string, operation: string, `schema-name`: string, `table-name`: string>>"
)


def _name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def routed(messages: DataFrame) -> DataFrame:
    """Return messages with what their metadata says: `kind` (data, control), `operation`, `schema`, `table`; null: unreadable.

    DMS writes the metadata last: then only they are parsed here, else all of the message. A text can't be taken for them:
    its quotes are escaped.
    """
    from pyspark.sql import functions as F

    short, whole = (F.from_json(F.expr(text), _ROUTE)["metadata"] for text in (_TAIL, "value"))
    m = F.when(short["record-type"].isNotNull() & short["table-name"].isNotNull(), short).otherwise(whole)
    rows = messages.select(
        F.concat_ws("/", "topic", "partition").alias("object"), F.col("offset"), F.col("value").cast("string").alias("value"),
    ).withColumn("m", m)  # fmt: skip
    return rows.select(
        "object", "offset", "value", F.col("m.record-type").alias("kind"), F.col("m.operation").alias("operation"),
        F.col("m.schema-name").alias("schema"), F.col("m.table-name").alias("table"),
    )  # fmt: skip


_TAIL = """concat('{"metadata"', substring_index(value, '"metadata"', -1))"""


def _text(column: Column, field: str) -> str:
    """The SQL of a column's text as files have it: DMS writes every moment with T and Z here, zoned or not."""
    if column.dms_type != "DATETIME":
        return field
    return f"if({field} like '%Z', translate({field}, 'TZ', ' '), {field})"


def _kind(column: Column) -> str:
    """The type that a value is parsed as. Spark takes a number's text by way of a double: a NUMERIC must not go there.

    A decimal is parsed from its digits, with all the room for those that the column has no place for: they show, but in a
    column of 38 digits, where a value with a finer scale than the spec's is rounded.
    """
    if column.dms_type != "NUMERIC":
        return "string"
    precision, scale = column.arguments
    return f"decimal(38,{scale + 38 - precision})"


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
    """Return {column: the names that it had in messages before}."""
    return {c.name: [mappings.column_name(spec, old) for old in c.renamed_from] for c in spec.file_columns}


def raw_rows(
    rows: DataFrame, spec: TableSpec, mappings: Mappings, before_field: str, phase: int, partitions: int = 1
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
    schema = (
        f"struct<data: struct<{data}>, {f'{_name(before_field)}: struct<{old_ones}>, ' if old_ones else ''}"
        "metadata: struct<timestamp: string, `commit-timestamp`: string, `partition-key-type`: string>, corrupt: string>"
    )
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
    crosses = f"when m.metadata.`partition-key-type` = 'primary-key' and ({moved}) then {literal(CROSSES)}"
    told = " ".join(f"when {literal(k)} then '{v}'" for k, v in OPERATIONS.items())
    commit = "m.metadata.`commit-timestamp`"
    return parsed.select(
        F.lit(phase).alias("phase"), "object", F.concat(F.lit("kafka://"), "object").alias("path"),
        F.lit(0).cast("bigint").alias("block"), F.col("offset").alias("row_no"),
        F.expr("try_cast(m.metadata.timestamp as timestamp)").alias("written_at"),
        F.expr(f"case operation {told} else operation end").alias("op"),
        F.expr(f"translate({commit}, 'TZ', ' ')").alias("commit_ts"),
        F.expr(f"rpad(translate(substring({commit}, 1, 22), '-:T.Z', ''), 16, '0')").alias("change_seq"),
        *[F.expr(_text(c, new(c.name)) if c.name in names else "cast(null as string)").alias(f"a{i}")
          for i, c in enumerate(spec.columns)],
        *[F.expr(_text(spec.column(k), old(k))).alias(f"b{i}") for i, k in enumerate(spec.identity)],
        F.expr(
            "case when m.corrupt is not null or m.data is null then concat('not JSON as DMS writes it: ', value) "
            f"{crosses if partitions > 1 and spec.key else ''} end"
        ).alias("corrupt"),
    )  # fmt: skip


__all__ = ["CHANGE_PHASE", "LOAD_PHASE", "known_columns", "raw_rows", "routed"]
