"""Creates tables as their specs declare them, and takes over tables of others; each gets a position in a commit of its own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frazil.dms.position import Position
from frazil.errors import FrazilError
from frazil.iceberg.columns import COLUMNS, columns_of, iceberg_type
from frazil.iceberg.commits import Change, commit_as_is
from frazil.iceberg.doubled_keys import DoubledKeyError, doubled
from frazil.iceberg.refusals import DELTAS, require_kept, require_writable
from frazil.iceberg.snapshot_summary import TAG
from frazil.iceberg.sql_text import identifier, literal, quoted
from frazil.iceberg.table import LakeTable
from frazil.settings.spec import SORT, TRANSFORM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.iceberg.catalog import AnyCatalog
    from frazil.settings.column import Column
    from frazil.settings.spec import TableSpec

MADE = "frazil.made"
"""A property of tables that Frazil created: a digest of all that the spec said then."""
PROPERTIES = {
    **DELTAS, "write.merge.isolation-level": "serializable", "write.distribution-mode": "none",
    "write.parquet.compression-codec": "zstd", "write.target-file-size-bytes": str(256 << 20),
    "write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "100",
}  # fmt: skip


class ForeignTableError(FrazilError, code="foreign-table"):
    """A table of that name exists, and Frazil did not create it. Adopt it at a position, or name another target in the spec."""


class SpecDiffersError(FrazilError, code="spec-differs"):
    """A table that is taken over has other columns than its spec. Correct the spec, or the table."""


def create_table(
    catalog: AnyCatalog, spec: TableSpec, version: int, session: Callable[[], SparkSession]
) -> tuple[LakeTable, bool]:
    """Return the table of a spec, and whether it was created now: empty, and at its first position.

    A table that was never loaded is created anew if its spec has changed. Raises ForeignTableError for a table of others,
    and ForgetfulCatalogError for a catalog that does not keep positions.
    """
    name = f"{catalog.name}.{spec.target}"
    digest = hashlib.sha256("; ".join(_statements(name, spec, version, {})).encode()).hexdigest()[:16]
    if catalog.table_exists(spec.target):
        table = LakeTable(catalog, spec.target, spec.key, session)
        is_outdated = _is_outdated(table, digest)
        if table.own is not None and not is_outdated:
            if TAG not in table.tags:
                require_kept(table)
            return table, False
        if MADE not in table.metadata.properties or (table.own is None and table.ever_had_rows):
            cure = f"call adopt(place) on the table, rename it, or name another target in {spec.file}"
            raise ForeignTableError(f"{table.name} exists, and Frazil did not create it", cure)
        if is_outdated:
            session().sql(f"DROP TABLE {quoted(name)} PURGE")
    session().conf.set("spark.sql.variable.substitute", "false")  # a comment may look like a variable
    for statement in _statements(name, spec, version, {MADE: digest}):
        session().sql(statement)
    table = LakeTable(catalog, spec.target, spec.key, session)
    _rename_odd_partitions(table)
    _begin(table, spec, Position(), {})
    return table, True


def adopt(table: LakeTable, spec: TableSpec, position: Position) -> None:
    """Take over a table of others at a position, by a commit that changes no row.

    Raises SpecDiffersError, DoubledKeyError, and TableRefusedError for a table that Frazil cannot write.
    """
    require_writable(table.spark_name, table.metadata, spec.key)
    _require_columns(table, spec)
    if places := doubled(table, [*table.live_files.values()]):
        raise DoubledKeyError(table, places)
    more = {"format-version": "2"} if table.metadata.format_version < 2 else {}
    _begin(table, spec, position, DELTAS | more)


def _require_columns(table: LakeTable, spec: TableSpec) -> None:
    """Raise SpecDiffersError unless a table has the columns of its spec, and no others."""
    there = {field.name: str(field.field_type) for field in table.metadata.schema().fields}
    wanted = {column.name: iceberg_type(column.lake_type) for column in spec.lake_columns}
    if odd := [name for name in {**wanted, **there} if there.get(name) != wanted.get(name)]:
        told = [f"'{n}' is {there.get(n, 'not there')}, and {wanted.get(n, 'not there')} in the spec" for n in odd]
        raise SpecDiffersError(f"{table.name}: column {told[0]}", f"correct {spec.file}, or the table", told[1:])


def _begin(table: LakeTable, spec: TableSpec, position: Position, properties: dict[str, str]) -> None:
    """Give a table that has the columns of its spec a position, by a commit that changes no row."""
    known = {COLUMNS: columns_of(spec, table.metadata).text}
    change = Change("row delta", properties=properties | known, anew=True, looked=True)
    require_kept(table, commit_as_is(table, change, position))


def _is_outdated(table: LakeTable, digest: str) -> bool:
    """Return whether a table was created from another version of its spec, and never got a row."""
    made, position = table.metadata.properties.get(MADE), table.position
    never = position.load in ("", "none") and not (position.last or position.quarantine or table.live_files)
    return made is not None and made != digest and never


def _statements(name: str, spec: TableSpec, version: int, properties: dict[str, str]) -> list[str]:
    """Return the statements that create a table. They may run again, as after a kill.

    Only key columns are NOT NULL: DMS delivers nulls in others, as for LOBs that follow later.
    """
    table = quoted(name)
    columns = ", ".join(_column(column, column.name in spec.key) for column in spec.lake_columns)
    parts = f" PARTITIONED BY ({', '.join(map(_transform, spec.partition))})" if spec.partition else ""
    comment = f" COMMENT {literal(spec.comment)}" if spec.comment else ""
    entries = {"format-version": str(version), **PROPERTIES, "frazil.source": spec.source, **properties}
    listed = ", ".join(f"{literal(n)} = {literal(v)}" for n, v in entries.items())
    found = [f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg{parts}{comment} TBLPROPERTIES ({listed})"]
    if spec.sort:
        found.append(f"ALTER TABLE {table} WRITE LOCALLY ORDERED BY {', '.join(map(_order, spec.sort))}")
    if spec.key and not any(c.value_type in ("float", "double") for c in spec.columns if c.name in spec.key):
        found.append(f"ALTER TABLE {table} SET IDENTIFIER FIELDS {', '.join(map(identifier, spec.key))}")
    return found


def _column(column: Column, is_key: bool) -> str:
    """Return a column's definition."""
    comment = f" COMMENT {literal(column.comment)}" if column.comment else ""
    return f"{identifier(column.name)} {column.lake_type}{' NOT NULL' if is_key else ''}{comment}"


def _transform(entry: str) -> str:
    """Return an entry of `partition` as SQL, with its column quoted."""
    found: Any = TRANSFORM.fullmatch(entry.strip())
    column = (found[2] or found[5] or found[6]).strip()
    before, _, after = entry.rpartition(column)
    return before + identifier(column) + after


def _order(entry: str) -> str:
    """Return an entry of `sort` as SQL, with its column quoted."""
    column = SORT.sub("", entry.strip())
    return identifier(column) + entry.strip().removeprefix(column)


def _rename_odd_partitions(table: LakeTable) -> None:
    """Give partition fields ASCII names: they are names in manifests, and some Avro readers accept no others."""
    odd = [field.name for field in table.metadata.spec().fields if not field.name.isascii()]
    if odd:
        update = table.handle.updateSpec()
        for name in odd:
            update.renameField(name, re.sub(r"[^\x00-\x7f]", lambda sign: f"_x{ord(sign[0]):X}", name))
        update.commit()
        table.refresh()
