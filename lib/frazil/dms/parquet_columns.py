"""Reads the columns of DMS's Parquet files from their footers, and checks whether a spec's types fit them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from frazil.config.columns import Column
from frazil.config.spec import TableSpec
from frazil.core.types import MISFIT, judge
from frazil.dms.damaged_files import refused_if_damaged
from frazil.dms.listing import DmsObject, SourceError
from frazil.dms.storage import is_s3, read, read_tail
from frazil.errors import LOAD_AGAIN

if TYPE_CHECKING:
    import pyarrow as pa

WRITE_A_TIME = "have DMS write the file again, with a timestamp or a text in this column"


def _tail(file: DmsObject) -> bytes:
    """Return the end of a file, from its footer on."""
    tail = read_tail(file.path, file.size, 1 << 16)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    return b"PAR1" + (tail if length <= len(tail) else read_tail(file.path, file.size, length))


def require_comparable(
    spec: TableSpec, roles: tuple[str, ...], schema: list[tuple[str, pa.DataType]], where: str
) -> None:
    """Raise SourceError for columns whose type in the file cannot have any value of the spec's type."""
    from frazil.core.changes import COMMIT_TS
    from frazil.core.parquet import can_be_compared

    wrong = []
    for role, (name, kind) in zip(roles, schema, strict=True):
        if role == "ts" and not can_be_compared(COMMIT_TS, kind):
            raise SourceError(f"{where}: column '{name}' is {kind}, which cannot be a commit time", WRITE_A_TIME)
        image, _, of = role.partition(":")
        if image not in ("after", "before"):
            continue
        column = spec.column(of)
        if not can_be_compared(column, kind):
            wrong.append(f"column '{name}' is {kind} in the file and {column.type} in {spec.file}")
    if wrong:
        raise SourceError(
            f"{where}: {'; '.join(dict.fromkeys(wrong))}: none of its values can have the spec's type",
            f"correct the type in {spec.file}, {LOAD_AGAIN}",
        )


@lru_cache(maxsize=4096)
def footer(file: DmsObject) -> pa.Schema:
    """Return the columns of a Parquet file, from its footer; INT96 as microseconds, as Spark reads it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with refused_if_damaged(file.path):
        found = pq.read_metadata(pa.BufferReader(_tail(file)) if is_s3(file.path) else file.path).schema
        kinds, schema = {c.path: c.physical_type for c in found}, found.to_arrow_schema()
        schema = pa.schema([f.with_type(pa.timestamp("us")) if kinds.get(f.name) == "INT96" else f for f in schema])
    if twice := next((n for n in schema.names if schema.names.count(n) > 1), None):
        positions = ", ".join(str(i) for i, n in enumerate(schema.names, 1) if n == twice)
        raise SourceError(
            f"{file.path}: column '{twice}' occurs twice, at positions {positions}: Frazil reads Parquet columns by name",
            "rename one of them by a rule of the task or by the endpoint's TimestampColumnName, or have DMS write CSV, "
            "whose columns are read by position; then have it write the file again",
        )
    return schema


FIRST_ROWS = 1000
"""Number of values to check whether a column's texts have the spec's type."""


def has_only_other_texts(file: DmsObject, name: str, column: Column) -> bool:
    """Return whether a file's column has texts, and none of the first ones is a value of the spec's type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not pa.types.is_string(footer(file).field(name).type):
        return False
    source = pa.BufferReader(read(file.path)) if is_s3(file.path) else file.path
    with pq.ParquetFile(source) as opened:
        first = next(opened.iter_batches(FIRST_ROWS, columns=[name]), None)
    texts = pa.array([]) if first is None else first.column(0).drop_null()
    return len(texts) > 0 and all(judge(column, text) is MISFIT for text in texts.to_pylist())


def lake_kind(kind: pa.DataType, where: str) -> str:
    """Return the lake's type for a Parquet column's values: there are no integers below `int`, and TIME becomes text."""
    import pyarrow as pa

    plain = {
        pa.bool_(): "boolean", pa.int8(): "int", pa.int16(): "int", pa.int32(): "int", pa.int64(): "bigint",
        pa.uint8(): "int", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
        pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.large_string(): "string",
        pa.binary(): "binary", pa.date32(): "date",
    }  # fmt: skip
    if kind in plain:
        return plain[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_time(kind):
        return "string"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    raise SourceError(f"{where}: Parquet type {kind} is not one that DMS writes", "check that DMS wrote the file")
