"""Comparing with real source databases: each type, exactly; what differs is named."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url

import new_house
from dms_writer import LOAD, NO_RULES
from frazil.discover.source_values import statement
from frazil.settings.column import Column
from frazil.settings.source_database import connect
from source_servers import mariadb

TYPES = {"id": "INT8", "n": "NUMERIC(12,2)", "f": "REAL4", "d": "REAL8", "s": "WSTRING(80)", "b": "BYTES", "day": "DATE", "t": "DATETIME", "u": "DATETIME", "flag": "BOOLEAN", "m": "WSTRING(9)"}  # fmt: skip
MORE = {"u": {"utc": True}, "m": {"mask": "sha256"}, "day": {"replace": {"zero_date": None}}}
COLUMNS = [{"name": name, "type": kind, **MORE.get(name, {})} for name, kind in TYPES.items()]
FILE = """1,12.50,0.1,0.30000000000000004,"a % : {x} ü ",00ff,2024-02-29,2024-01-01 10:00:00.123456,2024-01-01 10:00:00.5,true,secret
2,-0.01,16777217,1e300,"",ff,NULL,2024-01-01 10:00:00,2024-07-01 00:00:00,false,NULL
3,0.00,1.17549435e-38,-0.1,NULL,NULL,1970-01-01,1969-12-31 23:59:59.999999,1970-01-01 00:00:01,true,z
"""
KINDS = {
    "postgresql": ("int8 primary key,numeric(12,2),real,float8,text,bytea,date,timestamp,timestamptz,bool,text", r"'\xFF'"),
    "mariadb": ("bigint primary key,decimal(12,2),float,double,text,blob,date,datetime(6),timestamp(6) null,bit(1),text", "X'FF'"),
}  # fmt: skip


@pytest.fixture(params=KINDS)
def database(request, tmp_path, monkeypatch):
    if request.param == "mariadb":
        with mariadb(tmp_path / "server") as url:
            yield "mariadb", f"{url}/"
    else:
        from frazil_demo.postgres import EmbeddedPostgres

        with EmbeddedPostgres(tmp_path / "postgres") as server:
            monkeypatch.setenv("SOURCE_PASSWORD", server.password)
            yield "postgresql", f"postgresql://{server.user}:${{SOURCE_PASSWORD}}@127.0.0.1:{server.port}/{server.database}"  # fmt: skip


@pytest.mark.spark
def test_every_value_is_compared_with_the_source(database, open_world):
    (kind, url), w = database, open_world(target={"TimestampColumnName": "", "CsvNullValue": "NULL"})
    w.source.rules = NO_RULES
    w.table("t", "id INT8").declare("t", columns=COLUMNS).source.write("t", LOAD, FILE)
    lake = new_house.opened(w.loaded(), {"source_database": url})
    types, binary = KINDS[kind]
    said = FILE.replace("ff", binary).replace("00" + binary, binary.replace("FF", "00FF"))
    with connect(lake.settings).execution_options(no_parameters=True).begin() as c:
        first = ["create schema public", "set time_zone = '+00:00'"] if kind == "mariadb" else ["set time zone 'UTC'"]
        created = ", ".join(map(" ".join, zip(TYPES, types.replace("12,2", "12;2").split(","), strict=True)))
        for sql in [*first, f"create table public.t ({created.replace(';', ',')})"]:
            c.exec_driver_sql(sql)
        for line in said.splitlines():
            plain = {"NULL", binary, binary.replace("FF", "00FF"), "true", "false"}
            row = ",".join(v if v in plain else "'" + v.strip('"') + "'" for v in line.split(","))
            c.exec_driver_sql(f"insert into public.t values ({row})")
    (found,) = lake.compare()
    assert (found.status, found.counts["rows"], found.counts["differing"]) == ("equal", 3, 0), found
    with connect(lake.settings).begin() as c:
        c.exec_driver_sql("update public.t set n = 12.51, m = 'other' where id = 1")
        c.exec_driver_sql("delete from public.t where id = 2")
        c.exec_driver_sql("update public.t set s = '' where id = 3")  # it was null
    (found,) = lake.compare()
    assert found.status == "differs" and found.counts["differing"] == 3 and "other" not in found.note, found
    for says in ("id=1: n is Decimal('12.51') in the source", "id=2: only in the lake", "id=3: s is '' in the source"):
        assert says in found.note, found


@pytest.mark.parametrize(("kind", "says"), [
    ("oracle", """SELECT to_char("ID", 'TM9'), s, to_char(sys_extract_utc(u), 'YYYY-MM-DD HH24:MI:SS.FF6') FROM "SHOP"."T\""""),
    ("mssql", "SELECT convert(nvarchar(max), [ID], 2), convert(nvarchar(max), s, 2), convert(nvarchar(33), switchoffset(u, '+00:00'), 121) FROM [SHOP].[T]"),
])  # fmt: skip
def test_values_are_asked_for_as_texts_of_databases_that_are_not_here(kind, says):
    columns = [Column(name=n, type=TYPES[n.lower()], **MORE.get(n, {})) for n in ("ID", "s", "u")]
    dialect = make_url(f"{kind}://").get_dialect()()
    assert statement(dialect, "SHOP.T", [(c, c.name) for c in columns]) == says
