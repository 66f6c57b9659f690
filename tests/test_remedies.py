"""Each message that offers a remedy: the error is made, the remedy named first is carried out literally, and the lake has every row.

Tables share a world and each flow runs once over all of them: what they have in common is only the settings of the endpoint.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from frazil_old.flows import adopt
from helpers import FILE1, FILE2, LOAD1, ONE_COMMIT, I, U, World
from lake_reader import lake_rows

FRAZIL = Path(__file__).parent.parent / "lib/frazil_old"
START = {1: "a", 2: "b"}


@dataclass
class Remedy:
    """One error of one table: how it comes about, what its message says, and what is done about it.

    `site` is a part of the problem as the code has it, which tells the place that raises it. `first` begins the remedy.
    """

    name: str
    site: str
    first: str
    breaks: Callable[[World, str], None]
    carries_out: Callable[[World, str, str], None]
    then: tuple[str, ...] = ("merge",)
    rows: dict = field(default_factory=dict)
    """The lake's rows by key once that is done."""
    columns: tuple[str, ...] = ("id INT8", "v WSTRING(99)")
    world: str = "plain"
    needs: tuple[str, ...] = ("setup", "full_load", "merge")
    """The flows that run before it breaks."""
    makes: Callable[[World, str], None] | None = None
    """Write the first files, instead of a load of `START` and an update of row 1."""
    shows: str = ""
    """The flow that shows the error; empty: `merge`."""


def edit(w: World, table: str, **entries) -> None:
    """Write entries of a table's spec."""
    w.specs[table] |= entries
    (w.root / f"specs/{table}.yml").write_text(yaml.safe_dump(w.specs[table]))


def edit_column(w: World, table: str, name: str, **entries) -> None:
    """Write entries of one column of a table's spec."""
    next(c for c in w.specs[table]["columns"] if c["name"] == name).update(entries)
    edit(w, table)


def drop(w: World, table: str) -> None:
    w.spark.sql(f"DROP TABLE {w.name(table)}")


def as_text(column: str):
    """Carry out: write lake: string at the column and drop the table."""

    def carry_out(w: World, table: str, cure: str) -> None:
        assert "lake: string" in cure and f"column '{column}'" in cure
        edit_column(w, table, column, lake="string")
        drop(w, table)

    return carry_out


def parquet(w: World, table: str, name: str, op: str, rows: dict, kind: pa.DataType | None = None) -> None:
    file = source(w, table, name.replace(".csv", ".parquet"))
    file.parent.mkdir(parents=True, exist_ok=True)
    values = pa.array(list(rows.values()), kind)
    pq.write_table(
        pa.table({**({"Op": [op] * len(rows)} if op else {}), "id": pa.array(rows, pa.int64()), "v": values}), file
    )


def parquet_start(w: World, table: str) -> None:
    parquet(w, table, LOAD1, "", START)
    parquet(w, table, FILE1, "U", {1: "a1"})


def torn(w: World, table: str) -> None:
    parquet(w, table, FILE2, "U", {1: "a2"})
    cut(FILE2.replace(".csv", ".parquet"), 100)(w, table)


def truth_type(w: World, table: str, cure: str) -> None:
    assert f"specs/{table}.yml" in cure
    edit_column(w, table, "v", type="BOOLEAN")
    drop(w, table)


def past(until: str, *columns: str, load: bool = False) -> list[dict]:
    return [{"until": until, "columns": list(columns), "load": load}]


ANEW = ("setup", "full_load", "merge")
TS = ONE_COMMIT
KEPT: dict[str, bytes] = {}


def source(w: World, table: str, name: str) -> Path:
    return w.root / "source/public" / table / name


def cut(name: str, size: int):
    """Damage a file on its way: only its first bytes are there."""

    def breaks(w: World, table: str) -> None:
        file = source(w, table, name)
        KEPT[str(file)] = file.read_bytes()
        file.write_bytes(KEPT[str(file)][:size])

    return breaks


def fetch_again(name: str):
    def carry_out(w: World, table: str, cure: str) -> None:
        file = source(w, table, name)
        file.write_bytes(KEPT[str(file)])

    return carry_out


def statement(w: World, table: str, cure: str) -> None:
    """Run the statement that the remedy names."""
    w.spark.sql(re.search(r"ALTER TABLE .*", cure)[0])


def as_it_is(w: World, table: str) -> None:
    """The first files have the error."""


def nothing(w: World, table: str, cure: str) -> None:
    """The remedy is to run a notebook."""


def open_quote(w: World, table: str) -> None:
    w.write(table, FILE2, f'U,{TS},1,"cut off"\n')
    cut(FILE2, len(f'U,{TS},1,"cut'))(w, table)


def forget_history(w: World, table: str) -> None:
    """Another writer expires all snapshots but its own, and the tag of the position with them."""
    name = w.name(table)
    for ref in w.spark.sql(f"select name, type from {name}.refs where name <> 'main'").collect():
        w.spark.sql(f"ALTER TABLE {name} DROP {ref['type']} `{ref['name']}`")
    w.spark.sql(f"INSERT INTO {name} VALUES (77, 'foreign')")
    w.call("expire_snapshots", table, ", older_than => timestamp'2999-01-01', retain_last => 1")


def roll_back(w: World, table: str) -> None:
    w.changes(table, U(1, "a2"), I(3, "c"), name=FILE2)
    before = w.head(table)
    w.merge(tables=[f"public.{table}"])
    w.call("rollback_to_snapshot", table, f", snapshot_id => {before}")


def foreign_table(w: World, table: str) -> None:
    w.spark.sql(f"CREATE TABLE {w.name(table)} (id bigint, v string) USING iceberg")
    w.spark.sql(f"INSERT INTO {w.name(table)} VALUES (1, 'a'), (2, 'b')")


def take_over(w: World, table: str, cure: str) -> None:
    assert "frazil adopt" in cure
    adopt.adopt(w.book(), f"public.{table}", "load")


def past_layouts(w: World, table: str, cure: str) -> None:
    columns = [c["name"] for c in w.specs[table]["columns"]]
    edit(w, table, columns=[*w.specs[table]["columns"], {"name": "w", "type": "INT4"}], layouts=[{"until": FILE1, "columns": columns, "load": True}])  # fmt: skip


def add_column(w: World, table: str, cure: str) -> None:
    assert f"specs/{table}.yml" in cure
    edit(w, table, columns=[*w.specs[table]["columns"], {"name": "w", "type": "INT4"}])


def new_operation(w: World, table: str, cure: str) -> None:
    w.own = {"OpValues": {"I": "I", "U": "U", "D": "D", "X": "U"}}


def load_twice(w: World, table: str) -> None:
    w.load(table, (1, "a"), (1, "b"))


def whole_key(w: World, table: str, cure: str) -> None:
    assert f"specs/{table}.yml" in cure
    edit(w, table, key=["id", "v"])
    if w.spark.catalog.tableExists(w.name(table)):
        drop(w, table)


def more(w: World, table: str) -> None:
    w.changes(table, U(1, "a2"), name=FILE2)


def takes_types(w: World, table: str) -> None:
    more(w, table)
    edit_column(w, table, "v", type="INT4")


def back_to_text(w: World, table: str, cure: str) -> None:
    edit_column(w, table, "v", type="WSTRING(99)")


def another_key(w: World, table: str) -> None:
    more(w, table)
    edit(w, table, key=["v"])


def old_key(w: World, table: str, cure: str) -> None:
    edit(w, table, key=["id"])


def no_longer_lists(w: World, table: str) -> None:
    more(w, table)
    edit(w, table, columns=w.specs[table]["columns"][:1])


REMEDIES = [
    Remedy("word", "bad_row_errors: bad row", "write the right type, or lake: string, at column 'n'",
           lambda w, t: w.changes(t, U(1, "seven"), name=FILE2) and None, as_text("n"), ANEW, {1: "seven", 2: "2"},
           columns=("id INT8", "n INT4")),
    Remedy("zero_date", "bad_row_errors: bad row", "write lake: string at column 'd'",
           as_it_is, as_text("d"), ("setup", "full_load"), {1: "0000-00-00", 2: "2024-05-06"}, columns=("id INT8", "d DATE"), needs=(),
           shows="full_load", makes=lambda w, t: w.load(t, (1, "0000-00-00"), (2, "2024-05-06")) and None),
    Remedy("no_utf8", "bad_row_errors: bad row", 'write replace: {U+FFFD: "\\uFFFD"} at column \'v\'',
           lambda w, t: w.changes(t, U(1, "a\ufffd"), name=FILE2) and None,
           lambda w, t, cure: edit_column(w, t, "v", replace={"U+FFFD": "\ufffd"}), rows={1: "a\ufffd", 2: "b"}),
    Remedy("wider", "bad_row_errors: bad row", "correct the columns in", lambda w, t: w.write(t, FILE2, f"U,{TS},1,a2,5\n") and None,
           past_layouts, rows={1: ("a2", 5), 2: ("b", None)}),
    Remedy("operation", "bad_row_errors: bad row", "correct OpValues in the FrazilSettings", lambda w, t: w.write(t, FILE2, f"U,{TS},2,b\nX,{TS},1,a2\n") and None,
           new_operation, rows={1: "a2", 2: "b"}),
    Remedy("quote", "csv: which hides where rows end", "fetch the file again, if it was cut off", open_quote, fetch_again(FILE2), rows={1: "cut off", 2: "b"}),
    Remedy("cut_off", "csv: which hides where rows end", "fetch the file again; if it is whole", lambda w, t: w.write(t, FILE2, f"U,{TS},1,a2\n") and cut(FILE2, len(f"U,{TS},1,a"))(w, t),
           fetch_again(FILE2), rows={1: "a2", 2: "b"}),
    Remedy("forgotten", "rollback: the history of its position is gone", "run 01_full_load with on_changed_load=replay", forget_history, nothing,
           ("replay", "merge"), {1: "a1", 2: "b"}),
    Remedy("rolled_back", "rollback: was rolled back to snapshot", "to continue from", roll_back, statement, rows={1: "a2", 2: "b", 3: "c"}),
    Remedy("dropped", "tables: does not exist", "run 00_setup first", drop, nothing, ANEW, {1: "a1", 2: "b"}),
    Remedy("foreign", "tables: exists and was not created by Frazil", "take it over by `frazil adopt`", foreign_table, take_over, ("setup", "full_load", "merge"),
           {1: "a1", 2: "b"}, needs=(), shows="setup"),
    Remedy("twice", "full_load: is not unique in the load", "correct the key in", load_twice, whole_key, ("setup", "full_load"),
           {(1, "a"): (), (1, "b"): ()}, needs=(), shows="full_load"),
    Remedy("retyped", "schema_evolution: no promotion", "correct the type", takes_types, back_to_text, rows={1: "a2", 2: "b"}),
    Remedy("rekeyed", "schema_evolution: and the lake's rows are identified", "correct the key", another_key, old_key, rows={1: "a2", 2: "b"}),
    Remedy("brings", "schema_changes: unknown column '", "add it to", lambda w, t: w.write(t, FILE2, f"U,{TS},1,a2,5\n", "Op,ts,id,v,w\n") and None,
           add_column, rows={1: ("a2", 5), 2: ("b", None)}, world="header"),
    Remedy("renamed", "schema_changes: renamed, or another one?", "declare it in", lambda w, t: w.write(t, FILE2, f"U,{TS},1,a2\n", "Op,ts,id,w\n") and None,
           lambda w, t, cure: edit(w, t, columns=[{"name": "id", "type": "INT8"}, {"name": "w", "type": "WSTRING(99)", "renamed_from": "v"}]),
           rows={1: "a2", 2: "b"}, world="header"),
]  # fmt: skip
REMEDIES += [
    Remedy("layout", "file_columns: fields, and", "the nearest layout is that of", lambda w, t: w.write(t, FILE2, f"U,{TS},1,a2,5,x\n") and None,
           lambda w, t, cure: edit(w, t, columns=[*w.specs[t]["columns"], {"name": "x", "type": "WSTRING(9)"}],
                                   layouts=past(FILE1, "id", "v", "w", load=True)),
           rows={1: ("a2", 5, "x"), 2: ("b", 2, None)}, columns=("id INT8", "v WSTRING(99)", "w INT4"),
           makes=lambda w, t: edit(w, t, layouts=past("20230101-000000000.csv", "id", "v")) or w.write(t, LOAD1, f"{TS},1,a,1\n{TS},2,b,2\n") and None),
    Remedy("stray", "csv: which hides where rows end", "correct the row", lambda w, t: w.write(t, FILE2, f'U,{TS},1,"a "2" b"\n') and None,
           lambda w, t, cure: w.write(t, FILE2, f'U,{TS},1,"a ""2"" b"\n') and None, rows={1: 'a "2" b', 2: "b"}),
    Remedy("unlisted", "schema_evolution: the lake has a column", "list it again in", no_longer_lists,
           lambda w, t, cure: edit(w, t, columns=[*w.specs[t]["columns"], {"name": "v", "type": "WSTRING(99)"}]), rows={1: "a2", 2: "b"}, world="header"),
    Remedy("pair", "file_columns: none of its values can have the spec's type", "correct the type in",
           as_it_is, truth_type, ("setup", "full_load"), {1: True, 2: False}, columns=("id INT8", "v INT4"), world="parquet",
           needs=(), shows="full_load", makes=lambda w, t: parquet(w, t, LOAD1, "", {1: True, 2: False})),
    Remedy("torn", "file_integrity: cannot be read", "fetch it again", torn, fetch_again(FILE2.replace(".csv", ".parquet")),
           rows={1: "a2", 2: "b"}, world="parquet", makes=parquet_start),
]  # fmt: skip
WORLDS = {
    "plain": {},
    "header": {"AddColumnName": True},
    "parquet": {"DataFormat": "parquet", "TimestampColumnName": ""},
}


def run_flow(w: World, flow: str, entries: list[Remedy]) -> dict[str, str]:
    """Run a flow over the tables of some entries; return the notes of those that it could not do."""
    if not entries:
        return {}
    tables = [f"public.{r.name}" for r in entries]
    given = {"on_changed_load": "replay"} if flow == "replay" else {}
    results = {"setup": w.setup, "full_load": w.full_load, "replay": w.full_load, "merge": w.merge}[flow](
        tables=tables, **given
    )
    return {t: r.note for t, r in results.items() if r.failed or r.status in ("skipped", "waiting")}


@pytest.fixture(scope="module", params=WORLDS)
def outcome(request, spark, catalog_options, tmp_path_factory):
    """Make all errors of a world, carry out all first remedies, and return the world, the errors' notes, and what failed after it."""
    w = World(
        tmp_path_factory.mktemp("remedies") / "w", f"remedies_{request.param}", catalog_options, **WORLDS[request.param]
    )
    w.rules = {"rules": []}
    mine = [r for r in REMEDIES if r.world == request.param]
    for r in mine:
        w.table(r.name, *r.columns)
        if r.makes:
            r.makes(w, r.name)
            continue
        number = any(c.split(" ")[1] in ("INT4", "DATE") for c in r.columns[1:])
        w.load(r.name, *[(k, k if number else v) for k, v in START.items()])
        w.changes(r.name, U(1, 1 if number else "a1"), name=FILE1)
    for flow in ("setup", "full_load", "merge"):
        failed = run_flow(w, flow, [r for r in mine if flow in r.needs])
        assert not failed, failed
    for r in mine:
        r.breaks(w, r.name)
    notes: dict[str, str] = {}
    for flow in ("setup", "full_load", "merge"):
        some = [r for r in mine if (r.shows or "merge") == flow or (flow == "setup" and r.shows == "full_load")]
        notes |= run_flow(w, flow, some)
    for r in mine:
        r.carries_out(w, r.name, notes.get(r.name, ""))
    after = {}
    for flow in ("setup", "full_load", "replay", "merge"):
        after |= run_flow(w, flow, [r for r in mine if flow in r.then])
    return w, notes, after


@pytest.mark.spark
def test_the_first_remedy_of_each_message_loses_no_row(outcome, catalog_options):
    w, notes, after = outcome
    wrong = []
    for r in (r for r in REMEDIES if r.name in w.specs):
        problem, _, cure = notes.get(r.name, "").partition("\n  cure: ")
        if r.site.split(": ", 1)[1] not in problem:
            wrong.append((r.name, "another problem", problem))
        elif not cure.startswith(r.first):
            wrong.append((r.name, "another remedy first", cure))
        elif r.name in after:
            wrong.append((r.name, "fails after the remedy", after[r.name]))
        else:
            keys = len(w.specs[r.name]["key"])
            held = {
                row[0] if keys == 1 else row[:keys]: row[keys:]
                for row in lake_rows(catalog_options, f"{w.space}.{r.name}")
            }
            wanted = {k: v if isinstance(v, tuple) else (v,) for k, v in r.rows.items()}
            if held != wanted:
                wrong.append((r.name, held, "and in the source", wanted))
    assert not wrong, "\n".join(map(str, wrong))


# --- no message is forgotten

TEXT_ONLY = {
    "ParameterError": "a value that a person typed: the remedy is to type another one",
    "SpecError": "an entry of a spec that a person typed",
    "EndpointError": "a document of settings or rules: its text is corrected, or saved again",
    "BundleError": "packages for executors; no data is concerned",
    "AwsError": "what is deployed on AWS: `down` deletes neither tables nor source files (test_aws_deploy)",
    "DmsTaskError": "DMS is not asked or not reached: the tables wait (test_load_gate)",
    "WarehouseError": "readers of the lake: no row of it is concerned (test_warehouse_runs)",
    "DoctorError": "what a run would lack: it is looked at, and nothing is changed (test_doctor)",
    "MonitoringError": "metrics and lineage: the run has ended (test_metrics, test_lineage)",
    "LabError": "JupyterLab is not installed; no data is concerned",
    "JarsError": "jars, Java or the network; no data is concerned",
    "SessionError": "Spark or its jars; no data is concerned",
    "SourceDatabaseError": "the source database is not reached or not known; no row is concerned",
    "StorageError": "rights, network or disk: the same run is repeated after it",
    "CatalogError": "a reader that gives way to Spark, which says more",
    "ExploreError": "a question that cannot be answered; nothing is written",
    "DownError": "deletes what was shown, if it is still that",
    "LedgerError": "a newer version's records",
    "AdoptError": "a position that a person typed",
    "UnreachableError": "the broker does not answer: the same run is repeated after it",
    "CompactionError": "nothing was committed, and the run is repeated",
    "PositionMovedError": "another run was faster, and the run is repeated",
    "MismatchError": "the row-delta lane gives way to a MERGE",
    "RowDeltaUnsupportedError": "the row-delta lane gives way to a MERGE",
    "StoppedError": "a person stopped the run, and it is repeated",
    "TablesFailedError": "repeats the messages of tables",
    "DecisionNeededError": "repeats the messages of tables",
}
"""Kinds of errors whose remedy concerns no row, each with the reason."""


ELSEWHERE = {
    "paths: is not the ARN of a table bucket": "another value is typed; see test_glue",
    "table_pause: paused": "the table is resumed; see test_table_command",
    "table: does not exist": "nothing is there that could be paused; see test_table_command",
    "field_roles: may be the source's own or the one of that name that DMS adds": "the rule renames one; see test_columns_by_place",
    "field_roles: and nothing shows which one is meant": "the file is written again; see test_columns_by_place",
    "field_roles: has the name of a before-image column": "the rule renames it; see test_columns_by_place",
    "file_columns: which cannot be a commit time": "the file is written again; see test_core_parquet",
    "file_columns: Frazil reads Parquet columns by name": "the file is written again; see test_columns_by_place",
    "schema_changes: there is another column than the source's": "the spec lists it; see test_columns_by_place",
    "listing: not a file": "it holds nothing that DMS wrote; see test_late_and_changed_files",
    "listing: DMS does not write such names": "DMS's own name is given back; see test_late_and_changed_files",
    "pending_changes: with names more than a day in the future": "a statement restores the position; see test_late_and_changed_files",
    "pending_changes: listed, never applied and now gone": "the file is put back; see test_late_and_changed_files",
    "pending_changes: is in the future": "a statement restores the position; see test_late_and_changed_files",
    "changed_load: load files were not written with the others": "the older file is left out; see test_late_and_changed_files",
    "file_integrity: vanished after the listing": "the file is put back; see test_late_and_changed_files",
    "file_integrity: changed while being read": "the next run takes them; see test_late_and_changed_files",
    "pending_work: files are gone, or have another time": "a run names them one by one; see test_late_and_changed_files",
    "stored_position: and no snapshot has one": "a replay; see test_late_and_changed_files",
    "stored_position: property": "a statement restores the position; see test_late_and_changed_files",
    "file_columns: …": "the file is written again; see test_files",
    "pending_changes: …: ……": "late, changed and vanished files; see test_late_and_changed_files",
    "validation: …: …": "an entry that a person typed",
    "validation: is a part of another value": "an entry that a person typed",
    "validation: is not of the form": "an entry that a person typed",
    "validation: unknown …": "an entry that a person typed",
    "validation: no …": "an entry that a person typed",
    "read_files: a row is too long to be shown": "a preview; a run reads it",
    "preview_sample: is too large to be shown": "a preview; a run reads it",
    "tasks: …": "a task's error, raised again in the driver",
    "pending_work: came after 01_full_load found none": "the load is run; see test_empty_at_load",
    "clocks: and the clock of host": "the host's clock is corrected; see test_clocks",
    "clocks: the clock of host": "the host's clock is corrected; see test_clocks",
    "other_writers: another writer changed its columns": "the schema is restored; see test_other_writers",
    "other_writers: keys occur more than once": "a person decides which row is right; see test_other_writers",
    "other_writers: the metadata no longer hold a schema": "as the other writer's columns; see test_other_writers",
    "clocks: …": "the time passes; see test_clocks",
    "schema_evolution: and the lake has both": "the edit is made in steps; see test_schema_policies",
    "schema_changes: …": "the spec is corrected; see test_first_spec",
    "stream_retention: its position names": "a topic created again; see test_kafka",
    "stream_retention: ends at": "a topic created again; see test_kafka",
    "stream_retention: partition … is new": "messages have expired; see test_kafka",
    "stream_retention: …: …": "messages have expired; see test_kafka",
    "kafka: was created again": "a topic created again; see test_kafka",
    "kafka: messages expired, or the topic was created again": "messages have expired; see test_few_messages",
    "message_blocks: has no message": "the run is repeated; see test_few_messages",
    "kinesis: has none of its": "a stream created again; see test_kinesis",
    "kinesis: the stream was last read": "messages may have expired; see test_kinesis",
    "kafka: is not installed": "a package is installed",
    "kinesis: is not installed": "a package is installed",
    "kafka: no topic": "a name that a person typed",
    "kinesis: no stream": "a name that a person typed",
    "stream_retention: was created again after its position was stored": "a topic created again; see test_kafka",
    "stream_load: load records of two loads": "the load begins at that time; see test_kafka",
    "stream_source: parameter 'source'": "a parameter that a person typed",
    "stream_source: stream_start": "a parameter that a person typed",
    "file_layout: no column": "the spec or the endpoint's settings are corrected; `brings` and test_schema_changes",
    "file_layout: unknown column": "as `brings`, where no lake has been asked yet",
    "file_layout: layouts: until": "an entry of a spec that a person typed",
    "listing: has no folder for schema": "a parameter or a spec that a person typed",
    "listing: contains DMS's own records": "a spec that a person wrote for no table",
    "listing: two change files are named": "two tasks write one table: a person ends one",
    "listing: source folder": "a parameter that a person typed",
    "file_columns: Parquet type": "no file of DMS",
    "position: was written by a newer Frazil": "a newer version is installed",
    "spark_session: nothing says what the catalog": "a parameter that a person types; see test_two_lakes",
    "apply_batch: a row was given the key of another one": "only a new load by DMS has the rows; see test_order",
    "apply_batch: changes of one key are in two partitions": "smaller batches; see test_kafka",
    "apply_batch: named in an hour that": "the files are applied in two runs; see test_clocks",
    "unknown_tables: cannot be created": "a spec is written by hand; see test_kafka",
    "unknown_tables: messages of tables without a spec": "a spec is written; see test_kafka",
    "quarantine_table: were quarantined with batch": "a person looks at the branch: both ways are named",
    "schema_evolution: has renamed_from": "an entry of a spec that a person typed; see test_schema_policies",
    "schema_changes: …: column '…' …": "the column gets another name in the lake; see test_table_names",
    "schema_changes: rows lack columns of a table without key": "whole rows are compared, so the table is loaded again",
    "follow_source: is gone from the source": "the source's key changed, so the table is loaded again",
    "follow_source: the source has no table": "a spec that a person typed",
    "follow_source: by its number": "numbers in a spec are corrected; see test_source",
    "follow_source: the source's columns are not those of": "the cut-over is declared; see test_source",
    "stream_position: was loaded from files": "the table is loaded from the stream",
    "stream_read: is mapped to topic": "the mappings are corrected",
    "stream_read: unknown column": "as `brings`, in a stream; see test_kafka",
    "control_record_changes: whose type DMS did not send": "as `brings`, in a stream; see test_control_records",
    "control_record_changes: was dropped and added again": "a new load by DMS; see test_control_records",
    "control_record_changes: from here on: no promotion": "the table is loaded again; see test_control_records",
    "unreadable_messages: messages that are none of DMS's": "a person looks at them; see test_kafka",
    "warehouse_model: is no region of AWS": "an entry that a person typed",
    "workbook: which parameter 'source' does not name": "a parameter that a person typed",
    "schema_evolution: which Frazil cannot write again": "the column is moved to another table; see test_other_writers",
    "schema_evolution: says without_key": "the spec is corrected; see test_specs",
    "schema_evolution: masked in": "the spec is corrected; see test_specs",
    "schema_evolution: the source's primary key is": "the table is loaded again by its new key; see test_source",
    "schema_evolution: is partitioned or sorted by it": "the column is kept; see test_schema_changes",
    "schema_evolution: columns of a table without key changed": "whole rows are compared, so the table is loaded again",
    "table_history: has no snapshot": "as `dropped`",
    "tables: carries a position already": "nothing has to be done",
    "tables: the column of its partition field": "the rows are copied to another table; see test_adopt",
    "tables: and its spec differ": "the spec is corrected; see test_adopt",
    "tables: was written to while it was checked": "the other pipeline is stopped; see test_adopt",
    "tables: carries no position": "as `foreign`",
    "maintenance_actions: a namespace has the same name": "a parameter that a person typed; see test_maintenance",
    "maintenance_actions: gc.enabled is false": "a parameter that a person typed; see test_maintenance",
    "tables: has several rows of one key": "the key is corrected; see test_adopt",
    "ledger: none of the tables exists": "as `dropped`",
    "changed_load: the load files are not those": "see test_reload_and_replay",
    "changed_load: no longer there": "see test_reload_and_replay",
    "changed_load: a part of the record of applied files is lost": "the table is loaded again; see test_late_and_changed_files",
    "rollback: has a batch that is newer than its position": "see test_rollback",
    "changed_load: a load had the changes of": "see test_reload_and_replay",
    "changed_load: were applied": "the load files are fetched again; see test_late_and_changed_files",
    "position: and PreserveTransactions is off": "a setting of the task; see test_files_of_all_tables",
    "schema_evolution: take each other's names": "the spec is edited in three steps; see test_schema_policies",
    "late_files: arrived late": "see test_reload_and_replay",
}
"""Messages that no entry here carries out, each with the reason or the test that does."""


def raise_sites() -> list[tuple[str, str, str]]:
    """Return (kind, `module: problem`, remedy) of every error in the code that has a remedy; values in texts are `…`."""
    found = []
    for file in sorted(FRAZIL.rglob("*.py")):
        if "demo" in file.relative_to(FRAZIL).parts:
            continue
        calls = (n for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(n, ast.Call))
        for call in calls:
            kind = getattr(call.func, "id", "")
            if re.fullmatch(r"[A-Z]\w+Error", kind) and len(call.args) > 1:
                found.append((kind, f"{file.stem}: {problem_text(call.args[0])}", problem_text(call.args[1])))
    return found


def problem_text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else shown_value(v.value) for v in node.values)
    if isinstance(node, ast.BinOp):
        return problem_text(node.left) + problem_text(node.right)
    return str(node.value) if isinstance(node, ast.Constant) else "…"


def shown_value(node: ast.expr) -> str:
    """Return a value in a text as `…`; of a number of things also their word."""
    counts = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "many"
    return f"… {node.args[1].value}" if counts and isinstance(node.args[1], ast.Constant) else "…"


def covers(mark: str, site: str) -> bool:
    module, text = mark.split(": ", 1)
    return site == mark if text == "…" else site.startswith(f"{module}: ") and text in site


def test_no_message_with_a_remedy_for_data_is_left_out():
    sites = [site for kind, site, _ in raise_sites() if kind not in TEXT_ONLY]
    marks = [*ELSEWHERE, *(r.site for r in REMEDIES)]
    left = [site for site in sites if not any(covers(mark, site) for mark in marks)]
    assert not left
    assert not [mark for mark in ELSEWHERE if not any(covers(mark, site) for site in sites)]


LOSSY = re.compile(
    r"(remove|delete|move .*away|clear|discard|have DMS load|run 01_full_load with on_changed_load=reload)"
)
ONLY_A_NEW_LOAD = {
    "apply_batch: …: a row was given the key of another one": "the changes do not tell which row is which",
    "listing: … contains DMS's own records": "a spec for no table is removed",
    "listing: …: … is …, not a file": "what is moved away holds no changes",
    "listing: …: … is named like a change file": "what is moved away is not of DMS",
    "changed_load: …: a part of the record of applied files is lost": "names do not tell in which order files were applied",
    "changed_load: …: a load had the changes of": "nothing shows which changes the load has",
    "changed_load: …: … of … load files": "rows of an older load are in the newer one",
}
"""Messages whose first remedy discards something, since no other exists."""


def test_a_first_remedy_discards_nothing_where_another_does_not():
    lossy = [site for kind, site, cure in raise_sites() if kind not in TEXT_ONLY and LOSSY.match(cure)]
    assert not [site for site in lossy if not site.startswith(tuple(ONLY_A_NEW_LOAD))]
