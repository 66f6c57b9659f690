"""Columns of the source with the names of columns that DMS adds: the place in the file distinguishes them, or the file is refused."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil_old.cli.check import look
from frazil_old.config.settings import FullLoadSettings, resolve
from frazil_old.flows.plan import plan
from helpers import FILE1, LOAD1, ONE_COMMIT, World, csv_field
from lake_reader import duckdb_rows, lake_rows

pytestmark = pytest.mark.spark
SEQUENCE, EARLIER = "20240101095900000000000000000000001", "20200101000000000000000000000000009"
OWN_VALUES = {"op": "D", "ts": "2020-01-01 00:00:00.000000", "seq": EARLIER, "bi_id": "3"}
"""By name, what the source's own column holds: each would do harm if it were taken for DMS's."""
LOADED = [("I", 1, "a", "", None), ("I", 2, "b", "", None), ("I", 3, "c", "", None)]
CHANGED = [("I", 4, "d", SEQUENCE, None), ("U", 1, "a2", SEQUENCE, None), ("D", 2, "b", SEQUENCE, None)]
RESULT = [(1, "a2"), (3, "c"), (4, "d")]


class Columns:
    """One table whose source has a column `own`, written in the order in which DMS writes a row."""

    def __init__(self, world: World, table: str, own: str, **spec):
        self.world, self.table, self.own = world, table, own
        columns = ("id INT8", f"{own} WSTRING(40)", "v WSTRING(9)")
        if spec.get("changes"):  # the spec does not know the column, which comes later
            columns = ("id INT8", "v WSTRING(9)")
        world.table(table, *columns)
        world.specs[table].update(spec)
        world.table_file(table)

    def names(self, load: bool, with_own: bool) -> list[str]:
        op = [] if load and not self.world.s3.get("IncludeOpForFullLoad") else ["Op"]
        return [*op, "ts", "id", *([self.own] if with_own else []), "v", "seq", "BI_id"]

    def write(self, name: str, rows: list[tuple], with_own: bool = True) -> "Columns":
        names = self.names(name.startswith("LOAD"), with_own)
        own = [OWN_VALUES[self.own.lower()]] if with_own else []
        lines = [([op] if names[0] == "Op" else []) + [ONE_COMMIT, key, *own, v, seq, was] for op, key, v, seq, was in rows]  # fmt: skip
        if self.world.s3.get("DataFormat") == "parquet":
            return self._parquet(name.replace(".csv", ".parquet"), names, lines)
        text = "".join(",".join(csv_field(f) for f in line) + "\n" for line in (names, *lines))
        self.world.write(self.table, name, text)
        return self

    def _parquet(self, name: str, names: list[str], lines: list[list]) -> "Columns":
        kinds = {"id": pa.int64(), "BI_id": pa.int64()}
        columns = [pa.array(values, kinds.get(n, pa.string())) for n, values in zip(names, zip(*lines, strict=True), strict=True)]  # fmt: skip
        file = self.world.root / "source/public" / self.table / name
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_arrays(columns, names=names), file)
        return self

    def expected(self) -> list[tuple]:
        spec = self.world.specs[self.table]
        if spec.get("changes") or spec.get("exclude"):
            return RESULT
        return [(key, OWN_VALUES[self.own.lower()], v) for key, v in RESULT]


KEPT, OUT, IGNORED = "kept", "out", "ignored"
EVERY = {KEPT: ("op", "OP", "ts", "seq", "BI_id"), OUT: ("op", "TS", "BI_id"), IGNORED: ("Op", "ts", "seq", "BI_id")}
WAYS = {
    "header and operation in the load": ({"AddColumnName": True, "IncludeOpForFullLoad": True}, "merge", EVERY),
    "header, no operation in the load": ({"AddColumnName": True}, "rowdelta", {KEPT: ("op",), OUT: ("OP", "ts"), IGNORED: ("op",)}),
    "parquet": ({"DataFormat": "parquet"}, "rowdelta", {KEPT: ("op", "bi_id"), OUT: ("TS",), IGNORED: ("op", "SEQ")}),
}  # fmt: skip


def made(world: World, names: dict[str, tuple[str, ...]]) -> list[Columns]:
    """Make tables that have a column of each name in the lake, leave it out, or have never declared it."""
    spec = {KEPT: lambda n: {}, OUT: lambda n: {"exclude": [n]}, IGNORED: lambda n: {"changes": {"new": "ignore"}}}
    tables = [Columns(world, f"{kind}_{i}", n, **spec[kind](n)) for kind in names for i, n in enumerate(names[kind])]
    for table in tables:
        table.write(LOAD1, LOADED, with_own=not table.table.startswith(IGNORED)).write(FILE1, CHANGED)
    return tables


@pytest.mark.parametrize("way", WAYS)
def test_the_place_tells_a_column_of_the_source_from_one_that_dms_adds(new_world, way):
    settings, lane, names = WAYS[way]
    world = new_world(**settings)
    tables = made(world, names)
    world.loaded().merged(lane=lane)
    found = {t.table: lake_rows(world.catalog_options, f"{world.space}.{t.table}") for t in tables}
    assert found == {t.table: t.expected() for t in tables}
    assert duckdb_rows(world.catalog_options, f"{world.space}.kept_0") == tables[0].expected()


def refused(new_world) -> World:
    """Make tables whose load files name a column twice, or once for two columns; and three without any fault."""
    world = new_world(AddColumnName=True)
    for name in ("value", "key", "fine", "later", "later_key"):
        world.table(name)
    world.table("unclear", "id INT8", "v WSTRING(9)", "BI_id INT8")
    at = ONE_COMMIT
    world.write("value", LOAD1, f"ts,id,v,v,seq,BI_id\n{at},1,a,SECOND,,\n")
    world.write("key", LOAD1, f"ts,id,id,v,seq,BI_id\n{at},1,2,a,,\n")
    world.write("unclear", LOAD1, f"ts,id,v,BI_id\n{at},1,a,7\n")
    for name in ("fine", "later", "later_key"):
        world.write(name, LOAD1, f"ts,id,v,seq,BI_id\n{at},1,a,,\n")
    world.write("fine", FILE1, f"Op,ts,id,v,seq,BI_id\nU,{at},1,b,{SEQUENCE},\n")
    return world


def refused_later(world: World) -> None:
    """Write change files that name a value column twice, and a key column."""
    at = ONE_COMMIT
    world.write("later", FILE1, f"Op,ts,id,v,v,seq,BI_id\nU,{at},1,b,SECOND,{SEQUENCE},\n")
    world.write("later_key", FILE1, f"Op,ts,id,v,id,seq,BI_id\nU,{at},1,b,2,{SEQUENCE},\n")


def test_a_name_that_stands_twice_or_is_unclear_stops_its_table_and_is_reported_by_all(new_world, monkeypatch):
    world = refused(new_world)
    world.environment(monkeypatch)
    world.setup()
    loads = {"value": "'v' occurs 2 times, at places 3, 4", "key": "'id' occurs 2 times, at places 2, 3", "unclear": "'BI_id' at place 4"}  # fmt: skip
    changes = {"later": "'v' occurs 2 times, at places 4, 5", "later_key": "'id' occurs 2 times, at places 3, 5"}
    planned = {r["table"].removeprefix("public."): r["decision"] for r in plan(world.book(FullLoadSettings))}
    results = world.full_load()
    for table, says in loads.items():
        for told in (results[table].note, planned[table]):
            assert says in told and LOAD1 in told and "gone" not in told, told
    assert results["fine"].status == results["later"].status == "loaded" and not planned["fine"], results
    refused_later(world)
    planned = {r["table"].removeprefix("public."): r["decision"] for r in plan(world.book())}
    checked = "\n".join(look(resolve("operate", {"env": "w"}).settings)[0])
    results = world.merge()
    for table, says in changes.items():
        for told in (results[table].note, planned[table], checked):
            assert says in told and FILE1 in told and "gone" not in told, told
    assert results["fine"].status == "merged"
    for table, rows in (("fine", [(1, "b")]), ("later", [(1, "a")]), ("later_key", [(1, "a")])):
        assert lake_rows(world.catalog_options, f"{world.space}.{table}") == rows
    world.write("later", FILE1, f"Op,ts,id,v,seq,BI_id\nU,{ONE_COMMIT},1,b,{SEQUENCE},\n").merge()
    assert lake_rows(world.catalog_options, f"{world.space}.later") == [(1, "b")]
