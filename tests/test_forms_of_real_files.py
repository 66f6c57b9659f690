"""Forms that DMS really writes, which no document describes: each seen in files of others, written here again with other data."""

import datetime as dt
from decimal import Decimal

import pytest

from helpers import FILE1, LOAD1
from lake_reader import lake_rows

pytestmark = pytest.mark.spark


def test_four_changes_of_one_key_in_one_file_without_header_leave_the_last_and_blanks_stay(new_world, catalog_options):
    w = new_world(TimestampColumnName="")
    w.rules = {"rules": []}
    texts = [f"{c} WSTRING(50)" for c in ("name", "contact", "phone", "address", "code", "country")]
    w.table("customers", "id INT4", *texts, "rep INT4", "credit NUMERIC(10,2)")
    load = ['103,Atelier,Carine ,40.32.2555,"54, rue Royale",44000,France,1370,21000.00',
            "177,Osaka Co.,Mory,+81 06 6342 5555,1-6-20 Dojima, 530-0003,Japan,1621,81200.00",
            "456,Warburg,Sven ,0241-039123,Walserweg 21,52066,Norway  ,,0.00"]  # fmt: skip
    rest = "617,6251 Ingle Ln.,51003,USA,1188,85100.00"
    changes = [f"{op},497,Diecast,{who},{rest}" for op, who in (("I", "A"), ("U", "B"), ("D", "B"), ("I", "C"))]
    w.write("customers", LOAD1, "".join(f"{line}\n" for line in load))
    w.write("customers", FILE1, "".join(f"{line}\n" for line in changes)).loaded().merged()
    assert lake_rows(catalog_options, f"{w.space}.customers") == [
        (103, "Atelier", "Carine ", "40.32.2555", "54, rue Royale", "44000", "France", 1370, Decimal("21000.00")),
        (
            177,
            "Osaka Co.",
            "Mory",
            "+81 06 6342 5555",
            "1-6-20 Dojima",
            " 530-0003",
            "Japan",
            1621,
            Decimal("81200.00"),
        ),
        (456, "Warburg", "Sven ", "0241-039123", "Walserweg 21", "52066", "Norway  ", None, Decimal("0.00")),
        (497, "Diecast", "C", "617", "6251 Ingle Ln.", "51003", "USA", 1188, Decimal("85100.00")),
    ]


def test_doubles_with_17_digits_are_exact_also_as_a_key_and_a_date_of_oracle_is_a_time(new_world, catalog_options):
    w = new_world(AddColumnName=True, TimestampColumnName="")
    w.rules = {"rules": []}
    w.table("players", "id REAL8", "name WSTRING(40)")
    w.table("hired", "id INT4", "hired DATETIME", "salary NUMERIC(8,2)", "share NUMERIC(2,2)")
    w.table("coins", "id INT8", "price REAL8", "supply REAL8", "share REAL8")
    big, small = "+5.0656000000000000e+05", "+8.6000000000000000e+01"
    w.write("players", LOAD1, f"id,name\n{big},A\n{small},B\n")
    w.write("players", FILE1, f"Op,id,name\nU,{big},A2\nD,{small},\n")
    w.write(
        "hired",
        LOAD1,
        "id,hired,salary,share\n100,1987-06-17 00:00:00,24000.00,\n145,1996-10-01 00:00:00,14000.00,0.40\n",
    )
    w.write("coins", LOAD1, "id,price,supply,share\n"
            "1,+2.1804858784530072e+04,+2.1000000000000000e+07,-6.6068761599999997e+00\n"
            "2,+1.2799302031690859e-05,,+0.0000000000000000e+00\n")  # fmt: skip
    w.loaded().merged()
    assert lake_rows(catalog_options, f"{w.space}.players") == [(506560.0, "A2")]
    assert lake_rows(catalog_options, f"{w.space}.hired") == [
        (100, dt.datetime(1987, 6, 17), Decimal("24000.00"), None),
        (145, dt.datetime(1996, 10, 1), Decimal("14000.00"), Decimal("0.40")),
    ]
    assert lake_rows(catalog_options, f"{w.space}.coins") == [
        (1, 21804.858784530072, 21000000.0, -6.6068761599999997),
        (2, 1.2799302031690859e-05, None, 0.0),
    ]


def test_rows_of_transaction_files_have_their_time_after_the_names_and_added_columns_at_the_end(
    new_world, catalog_options
):
    w = new_world(CsvDelimiter="|", TimestampColumnName="event_ts", PreserveTransactions=True, CdcPath="cdc")

    def added(name, table, value):
        return {"rule-type": "transformation", "rule-target": "column", "rule-action": "add-column", "value": name,
                "object-locator": {"schema-name": "%", "table-name": table}, "expression": f"'{value}'",
                "data-type": {"type": "string", "length": 50}}  # fmt: skip

    w.rules = {
        "rules": [
            added("src_schema", "%", "insurance"),
            added("src_table", "policy", "policy"),
            added("src_table", "claim", "claim"),
        ]
    }
    w.table("policy", "id INT8", "code WSTRING(20)").table("claim", "id INT8", "policy_id INT8", "amount NUMERIC(10,2)")
    w.write("policy", LOAD1, "2026-06-14 16:00:00|1000001|POL-0|insurance|policy\n")
    files = {
        "CDC_TXN-20260614165504123.csv": ["I|policy|public|2026-06-14 16:55:04|1000020|POL-1|insurance|policy",
                                          "I|claim|public|2026-06-14 16:55:04|7|1000020|12.50|insurance|claim"],
        "CDC_TXN-20260614165604123.csv": ["U|policy|public|2026-06-14 16:56:01|1000020|POL-2|insurance|policy",
                                          "D|claim|public|2026-06-14 16:56:01|7|1000020|12.50|insurance|claim"],
    }  # fmt: skip
    (w.root / "source/cdc").mkdir()
    for name, lines in files.items():
        (w.root / "source/cdc" / name).write_text("".join(f"{line}\n" for line in lines))
    w.setup()
    results = {**w.full_load(), **w.merge()}
    assert not any(r.failed for r in results.values())
    assert lake_rows(catalog_options, f"{w.space}.policy") == [(1000001, "POL-0"), (1000020, "POL-2")]
    assert lake_rows(catalog_options, f"{w.space}.claim") == []
