"""Creates missing tables, and brings columns to their specs. Tables fail alone."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from frazil.core.row_blocks import RowBordersError
from frazil.core.rows import UnreadableFileError
from frazil.engine.parquet_columns import ColumnTypeError
from frazil.engine.work import for_each
from frazil.iceberg.column_rules import require_names
from frazil.iceberg.columns import columns_of, evolved
from frazil.iceberg.commits import Change, commit_as_is
from frazil.iceberg.create import create_table
from frazil.iceberg.soundness import require_sound
from frazil.iceberg.sql_text import quoted
from frazil.pipeline import all_changes, run, schema_changes
from frazil.results import Result, Results

if TYPE_CHECKING:
    from frazil.discover.findings import Findings
    from frazil.dms.listing import TableFiles
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.steps import Table

READERS = {
    2: "Every engine reads format v2. It can be raised to v3 later, by one statement.",
    3: "Format v3 has row ids, and one deletion vector for each file. Athena does not read it, and it cannot be undone.",
}


def set_up(lake: Lake) -> Results:
    """Create the tables that are missing, and bring the others to their specs."""
    lake.say(f"new tables have format v{lake.settings.format_version}. {READERS[lake.settings.format_version]}")
    session = lake.spark  # which makes the catalog's database
    spaces = {table.name.rpartition(".")[0] for table in lake} | {lake.settings.ops_namespace}
    for space in sorted(spaces):
        session.sql(f"CREATE NAMESPACE IF NOT EXISTS {quoted(f'{lake.settings.catalog}.{space}')}")
    return Results(run.each(lake, set_up_table))


def lint(lake: Lake) -> Findings:
    """Return what the first file of each table shows to be wrong, and what the source has without a spec."""
    from frazil.discover.findings import Findings

    return Findings(for_each(lake, require_first_file), lake.source.without_spec())


def set_up_table(table: Table) -> Result:
    """Create a table if its first file can be read by the spec, or bring its columns to the spec.

    A first file that shows a mistake in the spec is an error before anything is made.
    """
    table.require_key()
    lake, spec = table.lake, all_changes.with_columns(table.spec)
    if not lake.catalog.table_exists(table.name) or not table.stored.position.load:
        with suppress(ColumnTypeError, RowBordersError, UnreadableFileError):  # the load names them
            require_first_file(table)
    require_names(spec.lake_names, spec, spec.file)
    made, is_new = create_table(lake.catalog, spec, lake.settings.format_version, lambda: lake.spark)
    if is_new:
        table.stored = made
        return Result(table.source, "created")
    require_sound(table.stored)
    _, plan = schema_changes.follow(table.known, spec, table.policy)
    if not plan:
        return Result(table.source, "exists")
    columns = evolved(table.stored, plan)
    change = Change("row delta", columns=columns.steps, properties=columns.properties)
    commit_as_is(table.stored, change, table.stored.position)
    told = ", ".join(" ".join(step.values()) for step in plan.steps)
    return Result(table.source, "exists", f"columns: {told or 'what files say of them'}")


def require_first_file(table: Table) -> TableFiles:
    """Return a table's files; raise what the first of them shows to be wrong with its spec."""
    table.require_key()
    spec = all_changes.with_columns(table.spec)
    reader, there = table.lake.source.reader(table.spec), table.lake.source.look(table.spec, None)
    files = [*there.loads.values(), *there.changes]
    shown = reader.columns(files[0], (), files[1:2]) if files else None
    schema_changes.follow(columns_of(spec), spec, table.policy, [shown] if shown else [])
    return there
