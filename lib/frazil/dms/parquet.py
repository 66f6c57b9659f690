"""DMS's Parquet files as a DataFrame of raw rows: the same columns as from CSV, but values keep the types of the file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

from frazil.config.columns import TEXTS, Column
from frazil.config.paths import NO_PATTERNS
from frazil.config.spec import TableSpec
from frazil.config.sql import identifier, literal
from frazil.core.texts import time_sql, wall_clock
from frazil.core.types import MISFIT, judge
from frazil.dms.csv import PARQUET, lacking, line_sql, written_at
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import named_layout, operation_sql, origin_sql
from frazil.dms.objects import DmsObject, SourceError
from frazil.dms.storage import is_s3, read, read_tail
from frazil.errors import LOAD_ANEW

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


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


def _time_text(column: str, kind: pa.DataType) -> str:
    """Return the SQL of a TIME as text: HH:mm:ss, and the fraction if there is one."""
    micros = f"cast({column} as bigint) * {1000 if kind.unit == 'ms' else 1}"
    text = (
        f"date_format(timestamp_ntz'1970-01-01' + make_dt_interval(0, 0, 0, ({micros}) / 1000000), 'HH:mm:ss.SSSSSS')"
    )
    return f"rtrim('.', rtrim('0', {text}))"


def _nanos_text(column: str) -> str:
    """Return the SQL of a count of nanoseconds as text with all nine digits: more than microseconds then show as they do in CSV."""
    micros = wall_clock(f"(({column} - pmod({column}, 1000)) div 1000)")
    return f"concat(date_format({micros}, 'yyyy-MM-dd HH:mm:ss.SSSSSS'), lpad(pmod({column}, 1000), 3, '0'))"


def _read_sql(spark: SparkSession, column: str, kind: pa.DataType) -> str:
    """Return the SQL of a column's value. Bytes that are not UTF-8 become U+FFFD, as in CSV; Spark 3.5 cannot detect them."""
    import pyarrow as pa

    if pa.types.is_time(kind):
        return _time_text(column, kind)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
        return _nanos_text(column)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return f"make_valid_utf8({column})" if text and spark.version >= "4" else column


def _text(column: str, kind: str) -> str:
    """Return the SQL of a value as a text from which it can be typed again."""
    if kind == "binary":
        return f"hex({column})"
    if kind == "timestamp":
        return time_sql(column, kind)
    return f"cast({column} as string)"


def read_parquet(
    spark: SparkSession, spec: TableSpec, endpoint: Endpoint, mappings: Mappings, files: list[DmsObject], phase: int
) -> DataFrame:
    """Return the raw rows of Parquet files. Files of different schemas are read separately; columns whose types differ become text.

    Dates before 1582 are taken as written (`CORRECTED`): DMS writes no calendar marks, and 0001-01-01 is common.
    """
    groups: dict[tuple, list[DmsObject]] = {}
    for file in files:
        schema = footer(file)
        groups.setdefault(tuple((f.name, f.type) for f in schema), []).append(file)
    frames = [_read_group(spark, spec, endpoint, mappings, list(k), v, phase) for k, v in groups.items()]
    return _typed(reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), alike(frames)))


def alike(frames: list[DataFrame]) -> list[DataFrame]:
    """Cast columns whose types differ between frames to text, from which they are typed as in CSV."""
    from pyspark.sql import functions as F

    kinds = [dict(f.dtypes) for f in frames]
    differ = {c for ks in kinds for c in ks if c != "absent" and len({k.get(c, "void") for k in kinds} - {"void"}) > 1}
    hexed = {c for c in differ if any(k.get(c) == "binary" for k in kinds)}

    def text(column: str, kind: str):
        if kind == "timestamp":
            return F.expr(time_sql(column, kind)).alias(column)
        return (F.hex(column) if kind == "binary" and column in hexed else F.col(column).cast("string")).alias(column)

    return [
        f.select(*[text(c, k) if c in differ else F.col(c) for c, k in ks.items()])
        for f, ks in zip(frames, kinds, strict=True)
    ]


def _typed(rows: DataFrame) -> DataFrame:
    """Cast columns that no file has to text: they are null."""
    from pyspark.sql import functions as F

    return rows.withColumns({c: F.col(c).cast("string") for c, kind in rows.dtypes if kind == "void"})


PLACE = (
    "_metadata.file_name as object", "_metadata.file_path as path", "_metadata.file_block_start as block",
    "monotonically_increasing_id() as row_no",
)  # fmt: skip


def _scan(spark: SparkSession, declared: str, files: list[DmsObject]) -> DataFrame:
    return (
        spark.read.schema(declared)
        .option("datetimeRebaseMode", "CORRECTED").option("int96RebaseMode", "CORRECTED")
        .option("parquet.page.verify-checksum.enabled", True)
        .options(**NO_PATTERNS).parquet(*[f.path for f in files])
    )  # fmt: skip


def _by_number(spark: SparkSession, declared: str, files: list[DmsObject]) -> DataFrame:
    """Read columns with names that differ only in case, as `f0`, `f1` …, with the rows' places.

    This session treats such names as equal; a separate session does not. The checkpoint keeps this session from
    planning the scan.
    """
    apart = spark.newSession()
    apart.conf.set("spark.sql.caseSensitive", True)
    rows = _scan(apart, declared, files)
    rows = rows.toDF(*[f"f{i}" for i in range(len(rows.columns))]).selectExpr("*", *PLACE).localCheckpoint(eager=False)
    none = spark.range(0).selectExpr(*[f"cast(null as {kind}) as {name}" for name, kind in rows.dtypes])
    return none.union(rows)


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


def _read_group(
    spark: SparkSession,
    spec: TableSpec,
    endpoint: Endpoint,
    mappings: Mappings,
    schema: list[tuple[str, pa.DataType]],
    files: list[DmsObject],
    phase: int,
) -> DataFrame:
    import pyarrow as pa
    from pyspark.sql import functions as F

    where = files[0].path
    layout = named_layout([n for n, _ in schema], spec, endpoint, mappings, phase, where)
    schema = with_texts(spec, layout.roles, schema)
    require_comparable(spec, layout.roles, schema, where)
    declared = ", ".join(f"{identifier(n)} {spark_type(t, f'{where}: column {n!r}')}" for n, t in schema)
    if len({n.lower() for n, _ in schema}) < len(schema):
        frame, place = _by_number(spark, declared, files), ("object", "path", "block", "row_no")
        schema = [(f"f{i}", t) for i, (_, t) in enumerate(schema)]
    else:
        frame, place = _scan(spark, declared, files), PLACE
    values = [_read_sql(spark, identifier(n), t) for n, t in schema]
    at = layout.at(values)
    line = line_sql([_text(v, str(t) if pa.types.is_time(t) else spark_type(t, where)) for v, (_, t) in zip(values, schema, strict=True)])  # fmt: skip

    instant = any(
        r == "ts" and spark_type(t, where) == "timestamp" for r, (_, t) in zip(layout.roles, schema, strict=True)
    )

    def control(role: str) -> str:
        return f"nullif(cast({at[role]} as string), '')" if role in at else "cast(null as string)"

    def value(role: str) -> str:
        return at.get(role, "null")

    def old(key: str) -> str:
        others = [at[f"before:{k}"] for k in spec.identity if f"before:{k}" in at]
        if f"before:{key}" in at or not others:
            return value(f"before:{key}")
        return f"if(coalesce({', '.join(f'cast({o} as string)' for o in others)}) is not null, {value(f'after:{key}')}, null)"

    corrupt = "cast(null as string)"
    if origin := mappings.origin(spec):  # a row that names no table concerns every table: none may skip it
        untold, own = origin_sql(at, origin)
        frame, corrupt = frame.where(f"{untold} or {own}"), f"if({untold}, {line}, null)"
    operation = f"coalesce({operation_sql(at['op'], endpoint)}, 'I')" if "op" in at else "'I'"
    return frame.selectExpr(
        f"{phase} as phase", *place, f"{operation} as op",
        f"{at['ts'] if instant else control('ts')} as commit_ts", f"{control('seq')} as change_seq",
        *[f"{value(f'after:{c}')} as a{i}" for i, c in enumerate(spec.names)],
        *[f"{old(k)} as b{i}" for i, k in enumerate(spec.identity)],
        f"{corrupt} as corrupt", *lacking(spec, layout), f"cast({line} as binary) as raw",
        f"{literal(PARQUET)} as form", f"array({', '.join(map(literal, layout.roles))}) as layout",
    ).withColumn("written_at", F.expr(written_at(files, phase)))  # fmt: skip
