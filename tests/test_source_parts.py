"""Reading a source table over several connections: no row is lost or read twice, and every difference is found."""

import pytest
from pyspark import SparkContext

from frazil_demo.postgres import EmbeddedPostgres
from frazil_old.config.spec import parse_spec
from frazil_old.flows import reconcile, source_rows
from helpers import FILE1, ONE_COMMIT, spec_of

pytestmark = pytest.mark.spark
ROWS, PARTS = 400, 5


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as server:
        patch.setenv("FRAZIL_SOURCE_URL", server.jdbc_url)
        patch.setenv("FRAZIL_SOURCE_USER", server.user)
        patch.setenv("FRAZIL_SOURCE_PASSWORD", server.password)
        with server.connect(autocommit=True) as c:
            yield c


@pytest.fixture(autouse=True)
def many_cores_and_small_parts(monkeypatch):
    monkeypatch.setattr(source_rows, "PART_BYTES", 1 << 12)
    monkeypatch.setattr(SparkContext, "defaultParallelism", PARTS)


def fill(c, name, values="n", rows=ROWS):
    c.execute(f"insert into {name} select {values}, n from generate_series(1, {rows}) n order by md5(n::text)")


def parts_of(frame):
    """Return the values of `v` that each connection reads."""
    return frame.select("v").rdd.glom().map(lambda rows: [r.v for r in rows]).collect()


def test_a_partitioned_table_is_read_in_parts(postgres, spark):
    spec = parse_spec(spec_of("public.parent", "a INT8", "v INT4", key="a"))
    postgres.execute("create table parent (a bigint primary key, v int) partition by range (a)")
    postgres.execute("create table parent_low partition of parent for values from (minvalue) to (50)")
    postgres.execute("create table parent_high partition of parent for values from (50) to (maxvalue)")
    fill(postgres, "parent", "n - 200")
    parts = parts_of(reconcile.read_source(spark, spec))
    assert [len(part) for part in parts] == [ROWS // PARTS] * PARTS
    assert {v for part in parts for v in part} == set(range(1, ROWS + 1))


def test_a_column_that_a_policy_added_is_compared_where_its_text_is_the_sources(postgres, new_world):
    postgres.execute("create table grown (id bigint primary key, v int, word text, flag boolean)")
    postgres.execute("insert into grown values (1, 1, 'a', true), (2, 2, 'b', false)")
    w = new_world(AddColumnName=True)
    w.rules = {"rules": []}
    w.given = {"changes": {"new": "add"}}
    w.table("grown", "id INT8", "v INT4").load("grown", (1, 1)).loaded()
    line = f"I,{ONE_COMMIT},%s,%s,%s,%s,x\n"
    text = "".join(line % row for row in ((1, 1, "a", "true"), (2, 2, "wrong", "false")))
    w.write("grown", FILE1, "Op,ts,id,v,word,flag,gone\n" + text).merged()
    done, samples = reconcile.run(w.book())
    assert [(r.status, r.counts["differing_rows"]) for r in done] == [("differs", 1)]
    assert [(s["key"], s["column"], s["source"], s["lake"]) for s in samples] == [("id=2", "word", "b", "wrong")]
    assert done[0].note == "1 differing row; not compared: flag, gone; the source has no such column, or not as a text"
