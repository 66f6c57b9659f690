"""The columns of DMS's Parquet files: what their footers say, and whether a spec's types fit them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from frazil.config.columns import TEXTS, Column
from frazil.config.spec import TableSpec
from frazil.core.types import MISFIT, judge
from frazil.dms.objects import DmsObject, SourceError
from frazil.dms.storage import is_s3, read, read_tail
from frazil.errors import LOAD_ANEW

if TYPE_CHECKING:
    import pyarrow as pa


def _tail(file: DmsObject) -> bytes:
    """Return the end of an object with its footer, whose length precedes the closing mark."""
    tail = read_tail(file.path, file.size, 1 << 16)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    return b"PAR1" + (tail if length <= len(tail) else read_tail(file.path, file.size, length))


NUMBERS = {"tinyint", "smallint", "int", "bigint", "decimal", "float", "double"}
COMPARABLE = {
    "BOOLEAN": {"boolean", *NUMBERS}, "BYTES": {"binary"}, "BLOB": {"binary"}, "TIME": {"time"},
    **dict.fromkeys(("DATE", "DATETIME"), {"date", "timestamp", "timestamp_ntz"}),
    **dict.fromkeys(TEXTS, {"boolean", "date", "time", "timestamp", "timestamp_ntz", *NUMBERS}),
}  # fmt: skip
"""{DMS type: types in a file (Spark's names, and `time`) whose values can have it}. A text always can. A missing DMS type is a number."""


def require_comparable(
    spec: TableSpec, roles: tuple[str, ...], schema: list[tuple[str, pa.DataType]], where: str
) -> None:
    """Raise SourceError for columns whose type in the file cannot hold any value of the spec's type."""
    import pyarrow as pa

    wrong = []
    for role, (name, kind) in zip(roles, schema, strict=True):
        image, _, of = role.partition(":")
        if image not in ("after", "before"):
            continue
        column = spec.column(of)
        found = spark_type(kind, f"{where}: column {name!r}").split("(")[0]
        found = "time" if pa.types.is_time(kind) else "timestamp" if pa.types.is_timestamp(kind) else found
        if found != "string" and found not in COMPARABLE.get(column.dms_type, NUMBERS):
            wrong.append(f"column '{name}' is {kind} there and {column.type} in {spec.file}")
    if wrong:
        raise SourceError(
            f"{where}: {'; '.join(dict.fromkeys(wrong))}: none of its values can be of that type",
            f"write the right type there in {spec.file}, {LOAD_ANEW}",
        )


@lru_cache(maxsize=4096)
def footer(file: DmsObject) -> pa.Schema:
    """Return the columns of a Parquet file, from its footer; INT96 as microseconds, as Spark reads it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.read_metadata(pa.BufferReader(_tail(file)) if is_s3(file.path) else file.path).schema
        kinds, schema = {c.path: c.physical_type for c in found}, found.to_arrow_schema()
        schema = pa.schema([f.with_type(pa.timestamp("us")) if kinds.get(f.name) == "INT96" else f for f in schema])
    except (pa.ArrowException, OSError) as e:
        reason = str(e).splitlines()[0]
        raise SourceError(f"{file.path} is no Parquet file that can be read: {reason}", "fetch it again") from None
    if twice := next((n for n in schema.names if schema.names.count(n) > 1), None):
        places = ", ".join(str(i) for i, n in enumerate(schema.names, 1) if n == twice)
        raise SourceError(
            f"{file.path}: column '{twice}' stands twice, at places {places}: columns of Parquet are read by their names",
            "rename one of them by a rule of the task or by the endpoint's TimestampColumnName, or have DMS write CSV, "
            "whose columns have places; then have it write the file again",
        )
    return schema


FIRST_ROWS = 1000
"""Number of values that show whether a column's texts have the spec's type."""


def has_only_other_texts(file: DmsObject, name: str, column: Column) -> bool:
    """Tell whether a column of a file has texts, and not one of the first is a value of the spec's type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not pa.types.is_string(footer(file).field(name).type):
        return False
    source = pa.BufferReader(read(file.path)) if is_s3(file.path) else file.path
    with pq.ParquetFile(source) as opened:
        first = next(opened.iter_batches(FIRST_ROWS, columns=[name]), None)
    texts = pa.array([]) if first is None else first.column(0).drop_null()
    return len(texts) > 0 and all(judge(column, text) is MISFIT for text in texts.to_pylist())


def spark_type(kind: pa.DataType, where: str) -> str:
    """Return the Spark type to read a Parquet column as; TIME and nanoseconds, which Spark lacks, are read as their integers."""
    import pyarrow as pa

    plain = {
        pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
        pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
        pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.large_string(): "string",
        pa.binary(): "binary", pa.date32(): "date", pa.time32("ms"): "int", pa.time64("us"): "bigint",
    }  # fmt: skip
    if kind in plain:
        return plain[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_timestamp(kind):
        return "bigint"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    raise SourceError(f"{where}: Parquet type {kind}", "no DMS type is written so: is it a file of DMS?")


def lake_kind(kind: pa.DataType, where: str) -> str:
    """Return the lake's type for a Parquet column's values: there are no integers below `int`, and TIME becomes text."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    spark = "string" if pa.types.is_time(kind) else spark_type(kind, where)
    return "int" if spark in ("tinyint", "smallint") else spark


def with_texts(
    spec: TableSpec, roles: Sequence[str], schema: Sequence[tuple[str, pa.DataType]]
) -> list[tuple[str, pa.DataType]]:
    """Return the columns of a file; bytes of a text column are text, which some writers do not mark as such."""
    import pyarrow as pa

    texts = {f"{image}:{c.name}" for image in ("after", "before", "seq") for c in spec.columns if c.dms_type in TEXTS}
    return [
        (name, pa.string() if role in texts and kind == pa.binary() else kind)
        for role, (name, kind) in zip(roles, schema, strict=True)
    ]
