"""Rows of the quarantine, read again: the core types their kept bytes with the present spec and settings.

`reread` returns a row for each record, with these columns:

| column | meaning |
|---|---|
| `id` | the record's own |
| `op`, `change_seq` | as in changes; null for a bad row |
| `commit_ts` | in microseconds |
| `c0`, `c1` … | the lake's columns, masked, times in microseconds |
| `o0`, `o1` … | the old key of an update that changed the key, in the same form; else null |
| `reason` | what is wrong with the row; null: nothing |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from frazil_old.config.lake_types import lake_type
from frazil_old.config.spec import TableSpec
from frazil_old.config.sql import literal
from frazil_old.config.time_sql import from_micros, micros_type
from frazil_old.core.bad_rows import FIELDS, BadRow, wrong_width
from frazil_old.core.changes import Changes, no_changes, type_csv
from frazil_old.core.csv import Dialect, records_of_lines
from frazil_old.core.field_roles import ORIGIN, ORIGIN_AS, SEQUENCE_AS
from frazil_old.core.key_changes import moves, old_keys
from frazil_old.core.masks import masked
from frazil_old.core.messages import columns_of, gather, type_messages, with_bytes
from frazil_old.core.rows_of_table import table_named
from frazil_old.dms.endpoint import SourceTable
from frazil_old.dms.file_layout import shared_layout, stated_layout
from frazil_old.dms.listing import DmsObject
from frazil_old.dms.mappings import message_names
from frazil_old.engine.collapsed_batch import as_micros, lake_columns, lake_values
from frazil_old.engine.read_files import read_rules
from frazil_old.lake.quarantine_columns import JSON, PARQUET, SHARED, STATED
from frazil_old.lake.small_frames import collect_arrow, of_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RECORD = ("id", "raw", "form", "layout", "phase", "object", "misfit", "keyed")
"""The columns of a record that are read."""
MOST_BYTES = 32 << 20
"""Spark's tasks read more than this, on all cores."""
NOT_ITS_OWN = "names another table"
Place = tuple[str, int, str]
"""The form, the phase and the object of a row."""


@dataclass(frozen=True)
class Reread:
    """How the records of one table are read.

    `layouts` has the roles in rows whose fields did not fit: those of the present settings.
    """

    table: SourceTable
    before_field: str
    layouts: Mapping[Place, tuple[str, ...]] = field(default_factory=dict)

    @property
    def spec(self) -> TableSpec:
        """The table's spec."""
        return self.table.spec


def present_layouts(places: Sequence[Place], table: SourceTable) -> dict[Place, tuple[str, ...]]:
    """Return the roles by the present settings at the places of rows whose fields did not fit."""
    found = {}
    for form, phase, name in places:
        layout = stated_layout(table, phase, DmsObject(name, "", 0, ""))
        found[form, phase, name] = shared_layout(layout) if form == SHARED else layout
    return found


# --- records as a frame


def reread_frame(waiting: DataFrame, how: Reread, read_here: bool) -> DataFrame:
    """Return what waiting records are now: `id`, `op`, `commit_ts`, `change_seq`, `after`, `old` and `reason`.

    `old` is the row under the old key of an update that changed the key: its other columns are null. Few records are
    read by this process, and so are all of them if it is to be `read_here`.
    """
    size, places = _extent(waiting)
    how = replace(how, layouts=present_layouts(places, how.table))
    records = waiting.select(*RECORD)
    if read_here or size <= MOST_BYTES:
        rows = of_arrow(waiting.sparkSession, reread(collect_arrow(records), how))
    else:
        rows = records.mapInArrow(_task(how), _schema(how.spec))
    return _typed(rows, how.spec)


def _extent(waiting: DataFrame) -> tuple[int, list[Place]]:
    """Return the bytes of records, and the places of those whose fields did not fit the layout of the settings."""
    stated = f"misfit and form in ('{STATED}', '{SHARED}')"
    size, places = waiting.selectExpr(
        "coalesce(sum(octet_length(raw)), 0)", f"collect_set(if({stated}, struct(form, phase, object), null))"
    ).first()
    return size, [tuple(place) for place in places]


def _task(how: Reread) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            yield from reread(pa.Table.from_batches([batch]), how).to_batches()

    return run


def _schema(spec: TableSpec) -> str:
    """Return Spark's types of the rows."""
    kinds = {c.name: micros_type(lake_type(c)) for c in spec.columns}
    new = [f"c{i} {kind}" for i, kind in enumerate(kinds.values())]
    old = [f"o{i} {kinds[k]}" for i, k in enumerate(spec.key)]
    return ", ".join(["id string", "op string", "commit_ts bigint", "change_seq string", *new, *old, "reason string"])


def _typed(rows: DataFrame, spec: TableSpec) -> DataFrame:
    new, old = [], []
    for column, value in zip(spec.columns, lake_values(spec), strict=True):
        kind, key = lake_type(column), "null"
        if column.name in spec.key:
            key = from_micros(kind, f"o{spec.key.index(column.name)}")
        new.append(f"{literal(column.name)}, {value}")
        old.append(f"{literal(column.name)}, cast({key} as {kind})")
    return rows.selectExpr(
        "id",
        "op",
        "timestamp_micros(commit_ts) as commit_ts",
        "change_seq",
        f"named_struct({', '.join(new)}) as after",
        f"named_struct({', '.join(old)}) as old",
        "reason",
    )


# --- records as Arrow


def reread(records: pa.Table, how: Reread) -> pa.Table:
    """Return a row for each record (`RECORD`)."""
    import pyarrow as pa

    ids, raws = records["id"].combine_chunks(), records["raw"].to_pylist()
    alike: dict[tuple, list[int]] = {}
    for i, record in enumerate(records.drop_columns(["id", "raw"]).to_pylist()):
        alike.setdefault(_kind(record, how), []).append(i)
    parts = [_rows(ids.slice(0, 0), Changes(no_changes(how.spec)), how.spec)]
    for (form, *kind), places in alike.items():
        some, found = [raws[i] or b"" for i in places], ids.take(pa.array(places))
        if form == JSON:
            parts += _messages(found, some, how, *kind)
        else:
            parts.append(_rows(found, _lines(some, how, form, *kind), how.spec))
    return pa.concat_tables(parts)


def _kind(record: Mapping[str, Any], how: Reread) -> tuple:
    """Return what records have in common that are read together: form, and partitions of messages or roles and phase.

    Messages whose key was not read, or may have come from another partition, count as spread over two.
    """
    form, phase, misfit = record["form"], record["phase"], record["misfit"]
    if form == JSON:
        return form, 2 if misfit or not record["keyed"] else 1
    roles = how.layouts.get((form, phase, record["object"])) if misfit else None
    return form, roles or tuple(record["layout"]), phase


def _messages(ids: pa.Array, raws: Sequence[bytes], how: Reread, partitions: int) -> Iterator[pa.Table]:
    import pyarrow as pa

    names = message_names(how.spec, how.table.mappings)
    for key, rows in gather(raws, how.before_field).items():
        places = [row[0] for row in rows]
        columns = columns_of(key, rows, pa.array(range(len(rows))))
        changes = type_messages(columns, how.spec, names, partitions)
        bad = tuple(with_bytes(row, raws[places[row.number]], how.spec) for row in changes.bad)
        yield _rows(ids.take(pa.array(places)), Changes(changes.rows, bad), how.spec)


def _lines(raws: Sequence[bytes], how: Reread, form: str, roles: Sequence[str], phase: int) -> Changes:
    spec = how.spec
    roles = _under_present_names(roles, spec)
    if gone := _gone(roles, spec):
        reason = f"has columns that {spec.file} no longer lists, so their values have no place: {', '.join(gone)}"
        return Changes(no_changes(spec), tuple(BadRow(i, FIELDS, reason) for i in range(len(raws))))
    rules, dialect = read_rules(how.table, phase), how.table.endpoint.dialect
    if form == PARQUET:
        rules, dialect = replace(rules, null="", not_carried=None), Dialect()
    records = records_of_lines(raws, len(roles), dialect)
    fields = _with_operation(records.fields, roles) if form == PARQUET else records.fields
    changes = type_csv(fields, records.numbers, [_present_role(role, spec) for role in roles], spec, rules)
    wrong = records.wrong_width
    misshapen = [
        wrong_width(w, spec, names_table=table_named(w.line, roles, dialect, rules) is not None) for w in wrong
    ]
    return Changes(changes.rows, (*changes.bad, *misshapen))


def _under_present_names(roles: Sequence[str], spec: TableSpec) -> list[str]:
    """Return roles with the present names of renamed columns: a layout without any later name of a column is older."""
    there = {role.partition(":")[2] for role in roles}
    olds = {c.name: next((n for n in c.renamed_from if n in there), "") for c in spec.columns if c.name not in there}
    now = {old: name for name, old in olds.items() if old}
    parts = (role.partition(":") for role in roles)
    return [f"{kind}{colon}{now.get(name, name)}" for kind, colon, name in parts]


def _gone(roles: Sequence[str], spec: TableSpec) -> list[str]:
    """Return the columns of a layout that were dropped since: where their values belong is unknown."""
    known = {c.name for c in (*spec.columns, *spec.file_columns)}
    named = [role.removeprefix("after:") for role in roles if role.startswith("after:")]
    return [name for name in named if name not in known]


def _present_role(role: str, spec: TableSpec) -> str:
    """Return a role without a column that the lake no longer has."""
    kind, _, name = role.partition(":")
    if not name or name in spec.names or role.startswith(ORIGIN):
        return role
    return {SEQUENCE_AS: "seq", ORIGIN_AS: ORIGIN + name}.get(f"{kind}:", "skip")


def _with_operation(fields: pa.RecordBatch, roles: Sequence[str]) -> pa.RecordBatch:
    """Return the fields of rows of Parquet; one without an operation is an insert, as in load files."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if "op" not in roles:
        return fields
    at = roles.index("op")
    lacks = pc.equal(pc.fill_null(fields[at], ""), "")
    return fields.set_column(at, fields.schema.field(at), pc.if_else(lacks, pa.scalar("I"), fields[at]))


def _rows(ids: pa.Array, changes: Changes, spec: TableSpec) -> pa.Table:
    """Return the rows of records that were read together; the numbers of changes are the places of `ids`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    good, number = pa.Table.from_batches([changes.rows]), changes.rows["number"]
    moved = pa.array(moves(good, spec))
    columns = {"id": ids.take(number), **{name: good[name] for name in ("op", "commit_ts", "change_seq")}}
    columns |= lake_columns(good, spec)
    for i, (name, old) in enumerate(zip(spec.key, old_keys(good, spec), strict=True)):
        of_moved = pc.if_else(moved, old.combine_chunks(), pa.scalar(None, old.type))
        columns[f"o{i}"] = masked(spec.column(name), of_moved)
    columns = {name: as_micros(values) for name, values in columns.items()}
    rows = pa.table(columns).append_column("reason", pa.nulls(len(good), pa.string()))
    reasons = {row.number: row.reason for row in changes.bad}
    others = {*range(len(ids))} - {*number.to_pylist()}
    bad = [{"id": ids[i].as_py(), "reason": reasons.get(i, NOT_ITS_OWN)} for i in sorted(others)]
    return pa.concat_tables([rows, pa.Table.from_pylist(bad, rows.schema)])
