"""The source database's own catalog: tables, columns, types, keys and comments, read over JDBC through Spark.

Types become DMS types by DMS's documentation for each engine. PostgreSQL's were tested on a database; those of the other
engines only follow the documentation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil_old.config.source_database import ENGINES, Connection, SourceDatabaseError
from frazil_old.config.spec import Column
from frazil_old.dms.mappings import like
from frazil_old.lake import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TABLES = {
    "postgresql": """
        smallint INT2, integer INT4, bigint INT8, numeric NUMERIC(28,6), money NUMERIC(38,4), real REAL4, double precision REAL8,
        boolean BOOLEAN, character WSTRING, character varying WSTRING, text NCLOB, citext NCLOB, name WSTRING(63), json NCLOB, jsonb NCLOB,
        hstore NCLOB, composite NCLOB, bytea BLOB, date DATE, time without time zone TIME, time with time zone TIME,
        timestamp without time zone DATETIME, timestamp with time zone DATETIME utc, interval STRING(128), uuid STRING(36),
        enum STRING(64), range STRING(255), bit STRING, bit varying STRING, cidr STRING(50), inet STRING(50), macaddr STRING(18),
        xml CLOB, tsvector CLOB, tsquery CLOB, path CLOB, polygon CLOB, point STRING(255), line STRING(255), lseg STRING(255),
        box STRING(255), circle STRING(255), array NCLOB""",
    "sqlserver": """
        tinyint UINT1, smallint INT2, int INT4, bigint INT8, bit BOOLEAN, decimal NUMERIC(18,0), numeric NUMERIC(18,0), money NUMERIC(19,4),
        smallmoney NUMERIC(10,4), real REAL4, float REAL8, date DATE, time TIME, datetime DATETIME, datetime2 DATETIME,
        smalldatetime DATETIME, datetimeoffset WSTRING(34), char STRING, varchar STRING, varchar(max) CLOB, text CLOB, nchar WSTRING,
        nvarchar WSTRING, sysname WSTRING(128), nvarchar(max) NCLOB, ntext NCLOB, binary BYTES, varbinary BYTES, varbinary(max) BLOB,
        image BLOB, timestamp BYTES(8), rowversion BYTES(8), uniqueidentifier STRING(36), hierarchyid STRING(250), xml NCLOB,
        geometry BLOB, geography BLOB, sql_variant STRING""",
    "mysql": """
        tinyint INT1, smallint INT2, mediumint INT4, int INT4, bigint INT8, tinyint unsigned UINT1, smallint unsigned UINT2,
        mediumint unsigned UINT4, int unsigned UINT4, bigint unsigned UINT8, decimal NUMERIC(10,0), decimal unsigned NUMERIC(10,0),
        float REAL8, double REAL8, float unsigned REAL8, double unsigned REAL8, bit(1) BOOLEAN, bit BYTES(8), date DATE, datetime DATETIME,
        timestamp DATETIME utc, time STRING, year INT2, char WSTRING, varchar WSTRING, tinytext WSTRING(255), text WSTRING(65535),
        mediumtext NCLOB, longtext NCLOB, json CLOB, enum WSTRING(64), set WSTRING(64), binary BYTES, varbinary BYTES, tinyblob BYTES(255),
        blob BYTES(65535), mediumblob BLOB, longblob BLOB, geometry BLOB, point BLOB, polygon BLOB""",
    "oracle": """
        number NUMERIC(38,10), float REAL8, binary_float REAL4, binary_double REAL8, date DATETIME, timestamp DATETIME,
        timestamp with time zone STRING(64), timestamp with local time zone STRING(64), interval year to month STRING(64),
        interval day to second STRING(64), char STRING, varchar2 STRING, nchar WSTRING, nvarchar2 WSTRING, raw BYTES, long CLOB,
        long raw BLOB, blob BLOB, bfile BLOB, clob CLOB, nclob NCLOB, xmltype CLOB, rowid STRING(18)""",
}  # fmt: skip
_ENTRY = re.compile(r"([a-z][a-z0-9_ ()]*?) ([A-Z][A-Z0-9]*(?:\([\d,]+\))?)( utc)?(?:, |$)")
DMS_TYPES = {e: {m[0]: (m[1], bool(m[2])) for m in _ENTRY.findall(" ".join(t.split()))} for e, t in _TABLES.items()}
"""By engine and type: the DMS type, and whether its values are instants in UTC."""


def dms_type(engine: str, kind: str) -> tuple[str, bool]:
    """Return the DMS type of a source's column type, such as `numeric(12,2)`, and whether its values are instants."""
    known, kind = DMS_TYPES[engine], " ".join(kind.lower().replace(" zerofill", "").split())
    if kind.endswith("[]"):
        return known["array"]
    if kind in known:
        return known[kind]
    arguments = re.search(r"\(([\d, -]+)\)", kind)
    bare = " ".join(re.sub(r"\([^)]*\)", "", kind).split())
    if bare not in known:
        raise SourceDatabaseError(
            f"column type '{kind}' of {engine} is unknown", "write the table's spec by hand, or leave it out"
        )
    dms, utc = known[bare]
    numbers = [int(a) for a in arguments[1].split(",")] if arguments else []
    if engine == "oracle" and bare == "number" and numbers:
        return _number(*numbers, *[0] * (2 - len(numbers))), utc
    if engine == "oracle" and bare == "float" and numbers and numbers[0] <= 24:
        return "REAL4", utc
    if dms.startswith("NUMERIC") and numbers and bare not in ("money", "smallmoney"):
        precision, scale = (*numbers, 0)[:2]
        return (f"NUMERIC({precision},{scale})" if precision <= 38 and scale >= 0 else f"STRING({precision + 2})"), utc
    if dms in ("STRING", "WSTRING", "BYTES") and numbers and "time" not in bare:
        return f"{dms}({numbers[0]})", utc
    return ("WSTRING(1)" if bare == "character" and not numbers else dms), utc


def _number(precision: int, scale: int) -> str:
    """Return the DMS type of Oracle's NUMBER(p,s)."""
    if scale < 0:
        return "REAL8"
    if scale > 0 or precision > 9:
        return f"NUMERIC({max(precision, scale)},{scale})"
    return "INT1" if precision <= 2 else "INT2" if precision <= 4 else "INT4"


QUERIES = {
    "postgresql": """
        select n.nspname as s, c.relname as t, a.attname as c, a.attnum as n, case t.typtype when 'e' then 'enum' when 'r' then 'range'
            when 'c' then 'composite' when 'd' then format_type(t.typbasetype, t.typtypmod)
            else format_type(a.atttypid, a.atttypmod) end as kind, not a.attnotnull as nullable,
            col_description(c.oid, a.attnum) as remark, obj_description(c.oid, 'pg_class') as about,
            array_position(i.indkey::int2[], a.attnum) as place, coalesce(to_json(a)->>'attgenerated', '') <> '' as generated,
            case when c.relkind = 'p' then 'parent' end as role,
            (select pn.nspname || '.' || p.relname from pg_inherits h join pg_class p on p.oid = h.inhparent
                join pg_namespace pn on pn.oid = p.relnamespace where h.inhrelid = c.oid and c.relispartition) as part_of
        from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
            join pg_type t on t.oid = a.atttypid left join pg_index i on i.indrelid = c.oid and i.indisprimary
        where c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
            and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname not like 'pg_toast%'""",
    "sqlserver": """
        select s.name as s, o.name as t, c.name as c, c.column_id as n, t.name + case
            when t.name in ('decimal', 'numeric') then concat('(', c.precision, ',', c.scale, ')')
            when c.max_length = -1 and t.name in ('varchar', 'nvarchar', 'varbinary') then '(max)'
            when t.name in ('nchar', 'nvarchar') then concat('(', c.max_length / 2, ')')
            when t.name in ('char', 'varchar', 'binary', 'varbinary') then concat('(', c.max_length, ')') else '' end as kind,
            c.is_nullable as nullable, cast(cd.value as nvarchar(4000)) as remark, cast(td.value as nvarchar(4000)) as about,
            k.key_ordinal as place, c.is_computed as generated
        from sys.columns c join sys.tables o on o.object_id = c.object_id join sys.schemas s on s.schema_id = o.schema_id
            join sys.types t on t.user_type_id = c.system_type_id
            left join sys.indexes i on i.object_id = o.object_id and i.is_primary_key = 1
            left join sys.index_columns k on k.object_id = o.object_id and k.index_id = i.index_id and k.column_id = c.column_id
            left join sys.extended_properties cd on cd.class = 1 and cd.major_id = o.object_id and cd.minor_id = c.column_id
                and cd.name = 'MS_Description'
            left join sys.extended_properties td on td.class = 1 and td.major_id = o.object_id and td.minor_id = 0
                and td.name = 'MS_Description'
        where o.is_ms_shipped = 0""",
    "mysql": """
        select c.table_schema as s, c.table_name as t, c.column_name as c, c.ordinal_position as n, c.column_type as kind,
            c.is_nullable = 'YES' as nullable, c.column_comment as remark, t.table_comment as about, k.ordinal_position as place,
            c.extra like '%STORED GENERATED%' or c.extra like '%VIRTUAL GENERATED%' or c.extra like '%PERSISTENT%' as generated
        from information_schema.columns c
            join information_schema.tables t on t.table_schema = c.table_schema and t.table_name = c.table_name
            left join information_schema.key_column_usage k on k.table_schema = c.table_schema
                and k.table_name = c.table_name and k.column_name = c.column_name and k.constraint_name = 'PRIMARY'
        where t.table_type = 'BASE TABLE'
            and c.table_schema not in ('mysql', 'sys', 'information_schema', 'performance_schema')""",
    "oracle": """
        select c.owner as s, c.table_name as t, c.column_name as c, c.column_id as n, lower(c.data_type) || case
            when c.data_type = 'NUMBER' and c.data_precision is not null then '(' || c.data_precision || ',' || c.data_scale || ')'
            when c.data_type = 'NUMBER' and c.data_scale is not null then '(38,' || c.data_scale || ')'
            when c.data_type = 'FLOAT' then '(' || c.data_precision || ')'
            when c.data_type in ('CHAR', 'VARCHAR2', 'NCHAR', 'NVARCHAR2') then '(' || c.char_length || ')'
            when c.data_type = 'RAW' then '(' || c.data_length || ')' end as kind,
            case c.nullable when 'Y' then 1 else 0 end as nullable, cc.comments as remark, tc.comments as about, k.position as place,
            case v.virtual_column when 'YES' then 1 else 0 end as generated
        from all_tab_columns c join all_tab_cols v on v.owner = c.owner and v.table_name = c.table_name and v.column_name = c.column_name
            join all_tables t on t.owner = c.owner and t.table_name = c.table_name
            join all_users u on u.username = c.owner and u.oracle_maintained = 'N'
            left join all_col_comments cc on cc.owner = c.owner and cc.table_name = c.table_name and cc.column_name = c.column_name
            left join all_tab_comments tc on tc.owner = c.owner and tc.table_name = c.table_name
            left join all_constraints p on p.owner = c.owner and p.table_name = c.table_name and p.constraint_type = 'P'
            left join all_cons_columns k on k.owner = p.owner and k.constraint_name = p.constraint_name
                and k.column_name = c.column_name""",
}
"""The catalog query of each engine.

Columns: schema, table, column, its number, type, whether nullable, both comments, place in the primary key (null:
none), whether it is generated. PostgreSQL's also has whether the table is partitioned, and of which table it is a
partition. Tests run PostgreSQL's. The others follow the engines' documentation and have never run on such a database.
"""
STABLE_NUMBERS = ("postgresql", "sqlserver")
"""Engines whose catalogs number columns so that renames and drops of others do not change the number."""


@dataclass(frozen=True)
class CatalogTable:
    """A table in the source's catalog; `columns` in the order in which DMS writes them, `generated` ones separately.

    `partitioned`: its rows are those of its partitions, under whose names PostgreSQL publishes changes.
    """

    source: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    comment: str = ""
    generated: tuple[Column, ...] = ()
    partitioned: bool = False
    part_of: str = ""


def read_catalog(
    spark: SparkSession, connection: Connection, patterns: Iterable[str] = ("%.%",)
) -> dict[str, CatalogTable]:
    """Return the tables whose `schema.table` fits one of the patterns (`%` and `_` as in DMS's rules), by that name.

    A partition is included if its parent table fits.
    """
    engine, found = connection.engine, defaultdict(list)
    try:
        rows = (
            spark.read.format("jdbc").options(**connection.options()).option("query", QUERIES[engine]).load().collect()
        )
    except Exception as e:
        why = connection.hide(jvm.cause(e))
        cure = "check address, credentials and permissions"
        if "ClassNotFound" in why or "No suitable driver" in why:
            cure = (
                f"restart the kernel, or start Spark with {ENGINES[engine][3]}: a driver is fetched when Spark starts"
            )
        raise SourceDatabaseError(f"the source's catalog cannot be read: {why}", cure) from None
    for row in sorted(rows, key=lambda r: (r[0], r[1], r[3])):
        found[f"{row[0]}.{row[1]}"].append(row)
    wanted = [n for n in found if any(like(p, name) for p in patterns for name in _lineage(n, found))]
    return {name: _table(name, found[name], engine) for name in wanted}


def _lineage(name: str, rows: dict[str, list]) -> list[str]:
    """Return the names of a table and of its partitioned parent tables."""
    above = rows[name][0][11:12] if name in rows else ()
    return [name, *(_lineage(above[0], rows) if above and above[0] else ())]


def _table(name: str, rows: list, engine: str) -> CatalogTable:
    columns, generated = [], []
    for _, _, column, number, kind, nullable, comment, _, _, made, *_ in rows:
        try:
            dms, utc = dms_type(engine, kind)
        except SourceDatabaseError as e:
            raise SourceDatabaseError(f"{name}: column '{column}': {e.problem}", e.cure) from None
        stable = int(number) if engine in STABLE_NUMBERS else 0
        kept = generated if made else columns
        kept.append(Column(column, dms, bool(nullable), comment or "", utc, source_id=stable))
    key = tuple(c for _, c in sorted((int(r[8]), r[2]) for r in rows if r[8] is not None))
    if {c.name for c in generated} & {*key}:  # DMS does not write the whole key
        key = ()
    role, part_of = (*rows[0][10:12], None, None)[:2]
    return CatalogTable(name, key, tuple(columns), rows[0][7] or "", tuple(generated), bool(role), part_of or "")
