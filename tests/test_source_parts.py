"""Reading a source table over several connections: no row is lost or read twice, and every difference is found."""

from collections import Counter

import pytest
from pyspark import SparkContext
from pyspark.sql import functions as F

from frazil_demo.postgres import EmbeddedPostgres
from frazil_old.config.lake_types import value_type
from frazil_old.config.spec import parse_spec
from frazil_old.flows import reconcile, source_rows
from helpers import FILE1, ONE_COMMIT, spec_of

pytestmark = pytest.mark.spark
ROWS, PARTS = 400, 5
KEYS = {
    "negative": ("bigint", "n - 200", ["a INT8"]),
    "skewed": ("bigint", "case when n < 390 then n else n * 1000000000::bigint end", ["a INT8"]),
    "reals": ("float8", "case when n = 400 then 'NaN' else n / 3.0 - 50 end", ["a REAL8"]),
    "dates": ("date", "date '2024-02-01' - n", ["a DATE"]),
    "moments": ("timestamptz", "timestamptz '2024-03-31 00:00:00+01' + n * interval '7 minutes'", ["a DATETIME"]),
    "texts": ("text", r"""(array['é', 'E''', 'a"b', '\', '?', ''])[1 + n % 6] || n""", ["a WSTRING(99)"]),
    "ids": ("uuid", "md5(n::text)::uuid", ["a STRING(36)"]),
    "composite": (
        "varchar(9), int",
        "case when n < 380 then 'x' else 'y' || n end, n",
        ["part WSTRING(9)", "lowB INT4"],
    ),
}
"""By table the types of its key, the values for row n, and the columns as a spec has them."""


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


def made(c, name, types, values, declared, rows=ROWS):
    """Make a table whose rows lie in no order, and return its spec; `v` is the number of a row."""
    keys = [d.rsplit(" ", 1)[0] for d in declared]
    columns = ", ".join(f'"{k}" {t}' for k, t in zip(keys, types.split(", "), strict=True))
    primary = ", ".join(f'"{k}"' for k in keys)
    c.execute(f"create table {name} ({columns}, v int, primary key ({primary}))")
    fill(c, name, values, rows)
    return parse_spec(
        spec_of(f"public.{name}", *declared, "v INT4", key=keys, utc=("a",) if types == "timestamptz" else ())
    )


def fill(c, name, values="n", rows=ROWS):
    c.execute(f"insert into {name} select {values}, n from generate_series(1, {rows}) n order by md5(n::text)")


def parts_of(frame):
    """Return the values of `v` that each connection reads."""
    return frame.select("v").rdd.glom().map(lambda rows: [r.v for r in rows]).collect()


@pytest.mark.parametrize("name", KEYS)
def test_each_row_is_read_by_one_of_several_connections_and_a_difference_in_each_is_found(postgres, spark, name):
    spec = made(postgres, name, *KEYS[name])
    frame = reconcile.read_source(spark, spec)
    parts = parts_of(frame)
    assert len(parts) == PARTS
    assert {len(part) for part in parts} == {ROWS // PARTS}  # all of so small a table is sampled
    assert Counter(v for part in parts for v in part) == Counter(range(1, ROWS + 1))
    lake = frame.select(*[F.col(f"`{c.name}`").cast(value_type(c)) for c in spec.columns]).localCheckpoint()
    first = [part[0] for part in parts]
    postgres.execute(f"update {name} set v = -v where v = any(%s)", [first])
    found = reconcile.compare(lake, reconcile.read_source(spark, spec), spec, show=99)
    assert (found.source_rows, found.lake_rows, found.differing_rows) == (ROWS, ROWS, PARTS)
    assert {s["lake"] for s in found.sample} == set(map(str, first))


def test_bounds_from_a_sample_of_the_pages_lose_no_row(postgres, spark, monkeypatch):
    monkeypatch.setattr(source_rows, "SAMPLED_BYTES", 1 << 18)
    spec = made(postgres, "sampled", "text", "md5(n::text)", ["a WSTRING(99)"], rows=20_000)
    parts = parts_of(reconcile.read_source(spark, spec))
    assert 1 < len(parts) <= PARTS
    assert Counter(v for part in parts for v in part) == Counter(range(1, 20_001))


def test_a_partitioned_table_is_read_in_parts(postgres, spark):
    spec = parse_spec(spec_of("public.parent", "a INT8", "v INT4", key="a"))
    postgres.execute("create table parent (a bigint primary key, v int) partition by range (a)")
    postgres.execute("create table parent_low partition of parent for values from (minvalue) to (50)")
    postgres.execute("create table parent_high partition of parent for values from (50) to (maxvalue)")
    fill(postgres, "parent", "n - 200")
    parts = parts_of(reconcile.read_source(spark, spec))
    assert [len(part) for part in parts] == [ROWS // PARTS] * PARTS
    assert {v for part in parts for v in part} == set(range(1, ROWS + 1))


@pytest.mark.parametrize(
    "case", ["no primary key", "empty", "small", "masked", "key not in the spec", "one connection"]
)
def test_one_connection_reads_a_table(postgres, spark, monkeypatch, case):
    name = case.replace(" ", "_")
    spec = made(postgres, name, *KEYS["negative"], rows=0 if case == "empty" else ROWS)
    if case == "no primary key":
        postgres.execute(f"alter table {name} drop constraint {name}_pkey, alter a drop not null")
        postgres.execute(f"update {name} set a = null where v = 1")
    if case == "small":
        monkeypatch.setattr(source_rows, "PART_BYTES", 1 << 20)
    if case == "masked":
        spec = parse_spec({**spec_of(f"public.{name}"), "columns": [{"name": "a", "type": "INT8", "mask": "sha256"}, {"name": "v", "type": "INT4"}], "key": ["v"]})  # fmt: skip
    if case == "key not in the spec":
        spec = parse_spec(spec_of(f"public.{name}", "v INT4", key="v"))
    most = 1 if case == "one connection" else 16
    (rows,) = parts_of(reconcile.read_source(spark, spec, most))
    assert sorted(rows) == ([] if case == "empty" else list(range(1, ROWS + 1)))


def test_tables_that_are_compared_at_the_same_time_share_the_connections(postgres, new_world, monkeypatch):
    monkeypatch.setattr(source_rows, "MOST_CONNECTIONS", 16)
    monkeypatch.setattr(SparkContext, "defaultParallelism", 99)
    counts = []
    read = reconcile.read_source
    monkeypatch.setattr(reconcile, "read_source", lambda *given: counts.append(read(*given)) or counts[-1])
    w = new_world()
    w.rules = {"rules": []}
    for table in ("left_one", "right_one"):
        made(postgres, table, "bigint", "n", ["id INT8"])
        w.table(table, "id INT8", "v INT4").load(table, *[(n, n if n != 7 else 0) for n in range(1, ROWS + 1)])
    w.loaded()
    done, samples = reconcile.run(w.book(parallel_tables=2))
    assert {r.table: (r.status, r.counts["differing_rows"]) for r in done} == dict.fromkeys(("public.left_one", "public.right_one"), ("differs", 1))  # fmt: skip
    assert {(s["key"], s["source"], s["lake"]) for s in samples} == {("id=7", "7", "0")}
    assert [frame.rdd.getNumPartitions() for frame in counts] == [8, 8]


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
