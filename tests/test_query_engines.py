"""v2 or v3, by the declared engines and their versions; the plan says why, and what each engine cannot do."""

import pytest

from frazil_old.config import query_engines
from frazil_old.config.query_engines import explained, format_version, reads_v3, unread, why_not_v3


@pytest.mark.parametrize(
    ("engines", "version"),
    [([], 3), (["spark"], 3), (["Spark", "DuckDB"], 3), (["spark", "athena"], 2), (["unheard-of"], 2), (["trino"], 2),
     (["trino>=483"], 3), (["trino >= 483"], 3), (["trino==476"], 2), (["trino>=479"], 2), (["trino<483"], 2), (["databricks"], 2),
     (["databricks>=18.0"], 3), (["databricks>=18.1"], 3), (["databricks>=9.9"], 2), (["duckdb==1.4.2"], 2), (["duckdb>=1.5.5"], 3),
     (["athena>=99"], 2), (["emr>=7.12", "glue>=5.1"], 3), (["emr>=7.9"], 2), (["bigquery", "polars", "snowflake", "redshift"], 3),
     (["clickhouse"], 2), (["daft>=1"], 2), (["spark<1"], 2)],
)  # fmt: skip
def test_the_format_of_new_tables_is_what_all_declared_engines_read(engines, version):
    assert format_version(engines) == version


def test_a_version_is_compared_number_by_number():
    assert reads_v3("emr>=7.100") and not reads_v3("emr>=7.2") and reads_v3("trino>483")


@pytest.mark.parametrize(
    ("stated", "why"),
    [("athena", "athena reads no v3 (AWS, 2026)"), ("spark", ""), ("x", "x is not known to read v3"),
     ("trino==476", "trino==476 reads v3 from 483 on (tried, 2026-11): write trino>=483 into query_engines if it is that new")],
)  # fmt: skip
def test_the_reason_names_the_engine_its_version_and_the_remedy(stated, why):
    assert why_not_v3(stated) == why


def test_the_remedy_of_each_engine_works():
    for name, engine in query_engines.ENGINES.items():
        if engine.v3_since and not engine.assumed:
            assert reads_v3(why_not_v3(name).split("write ")[1].split()[0])


def test_the_explanation_says_the_format_why_and_what_each_engine_cannot_do():
    assert explained(["spark", "athena"]) == ["format: new tables are v2: athena reads no v3 (AWS, 2026)"]
    assert explained([]) == ["format: new tables are v3: no query engine is declared that cannot read it"]
    first, *limits = explained(["spark", "duckdb", "snowflake", "redshift"])
    assert first == "format: new tables are v3: spark, duckdb, snowflake, redshift read it"
    assert [line.split(": ")[1] for line in limits] == ["duckdb", "snowflake", "redshift"]
    assert query_engines.DUCKDB_SETTING in limits[0]
    assert "stops its refreshes" in limits[1]
    assert "complex types" in limits[2]


def test_only_v3_tables_are_unread():
    assert unread(2, ["athena", "trino"]) == []
    assert unread(3, ["spark", "athena", "trino==476", "trino>=483"]) == ["athena", "trino==476"]
