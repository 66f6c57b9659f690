"""Maps column types of source databases to DMS types, by DMS's documentation for each engine.

PostgreSQL's types were tested on a database; those of the other engines only follow the documentation.
"""

from __future__ import annotations

import re

from frazil.config.source_database import SourceDatabaseError

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
    known, kind = DMS_TYPES[engine], " ".join(kind.lower().split())
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
