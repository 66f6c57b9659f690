"""Take each table's present columns from the source's catalog (`follow_source`), in place of those of its spec."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from frazil_old.config.source_database import source_connection
from frazil_old.config.spec import TableSpec, unusable_name
from frazil_old.errors import FrazilError
from frazil_old.flows.source_catalog import CatalogTable, read_catalog
from frazil_old.lake.schema_evolution import SchemaError, require_source_key

if TYPE_CHECKING:
    from frazil_old.flows.workbook import Workbook


def as_declared(spec: TableSpec, table: CatalogTable, added: Collection[str] = ()) -> TableSpec:
    """Return a spec with its source's current columns: renamed if their numbers say so, retyped, added, removed.

    What the spec says of a column beyond its type (masks, types in the lake, what is left out) stays. So do the columns
    that the task adds (`added`).
    """
    by_id = {c.source_id: c for c in spec.file_columns if c.source_id}
    names = {c.name for c in table.columns}
    if moved := [
        c for c in table.columns if (old := by_id.get(c.source_id)) and old.name != c.name and old.name in names
    ]:
        raise SchemaError(
            f"{spec.source}: by its number, column '{moved[0].name}' is '{by_id[moved[0].source_id].name}', which is still there: "
            "was the source's table made again?",
            f"write the new numbers into {spec.file} (source_id), or leave them out",
        )
    unusable = {
        f.name for f in table.columns if unusable_name([f.name, *(o.name for o in table.columns if o is not f)])
    }
    by_name = {n: c for c in spec.file_columns for n in (*(unusable & {*c.renamed_from}), c.name)}
    columns, kept, now = [], [], {}
    listed = [c for c in table.generated if c.name in by_name]  # if a task writes them after all
    for f in sorted((*table.columns, *listed), key=lambda c: c.source_id) if listed else table.columns:
        old = by_id.get(f.source_id) or by_name.get(f.name)
        if old is None:
            columns.append(f)
            kept.append(f)
            continue
        # The spec has deliberately changed a name that the lake cannot have.
        name = old.name if f.name in unusable & {*old.renamed_from} else f.name
        former = (old.name, *old.renamed_from) if old.name != name else old.renamed_from
        new = replace(
            old,
            name=name,
            type=f.type,
            nullable=f.nullable,
            utc=f.utc,
            comment=f.comment or old.comment,
            renamed_from=former,
        )
        now[old.name] = name
        columns.append(new)
        kept += [new] if old.name in spec.names else []
    for c in (c for c in spec.file_columns if c.name in added and c.name not in now):
        now[c.name] = c.name
        columns.append(c)
        kept += [c] if c.name in spec.names else []
    if lost := [k for k in spec.key if k not in now]:
        raise SchemaError(
            f"{spec.source}: key column {', '.join(lost)} is gone from the source",
            f"declare the new key in {spec.file}, drop the table, run 00_setup, and load it again",
        )
    key = tuple(now[k] for k in spec.key)
    return replace(
        spec,
        key=key,
        columns=tuple(kept),
        all_columns=tuple(columns) if kept != columns else (),
        comment=table.comment or spec.comment,
    )


def follow_source(book: Workbook) -> None:
    """Take each table's current columns from the source, if `follow_source` is set; a failure stops its table."""
    if not book.settings.follow_source:
        return
    found = read_catalog(book.spark, source_connection(), list(book.specs))
    for name, spec in book.specs.items():
        try:
            added = book.mappings.listed(spec)
            new = book.specs[name] = _followed(spec, found.get(name), added, book.endpoint.names_columns)
            was = {n: c for c in spec.file_columns if not c.nullable for n in (c.name, c.source_id)}
            for c in (c for c in new.file_columns if c.nullable and (c.name in was or c.source_id in was)):
                book.progress(
                    f"{name}: column '{c.name}' is no longer NOT NULL at the source; the lake's takes nulls anyway"
                )
        except FrazilError as e:
            book.stopped[name] = e


def _followed(spec: TableSpec, table: CatalogTable | None, added: Collection[str], files_tell: bool) -> TableSpec:
    if table is None:
        raise SchemaError(f"the source has no table {spec.source}", f"correct {spec.file}, or leave the table out")
    new = as_declared(spec, table, added)
    own = {old: c.name for c in new.file_columns for old in c.renamed_from if unusable_name([old])}
    require_source_key(new, [own.get(k, k) for k in table.key], spec.source, added)
    before, after = ([c.name for c in s.file_columns if c.name not in added] for s in (spec, new))
    if before != after and not files_tell:  # a headerless file does not show which version it has
        raise SchemaError(
            f"{spec.source}: the source's columns are not those of {spec.file}, and its files do not name theirs",
            "declare the cut-over: the new columns in the spec, and under layouts the old ones with the last file that has them",
        )
    return new
