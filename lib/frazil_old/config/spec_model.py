"""What a table spec may have in YAML: entries, types, defaults and descriptions."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from frazil_old.config.columns import TYPES, Column, PastLayout, SpecError, require_fit, require_type
from frazil_old.config.policies import ON_BAD_ROWS, POLICIES, WITHOUT_KEY
from frazil_old.config.sql import identifier
from frazil_old.config.validation import Entries, Flag, Name, Number, Real, Text, in_any_case
from frazil_old.errors import nearest

TRANSFORM = r"(?:(year|month|day|hour)\((.+)\)|(bucket|truncate)\((\d+), *(.+)\)|([^()]+))"
"""One entry of `partition`: `region`, `day(ordered_at)`, `bucket(16, id)`, `truncate(4, name)`."""


def _two_parts(source: str) -> str:
    if source.count(".") != 1:
        raise SpecError(f"'{source}' is not schema.table", "write source: public.orders")
    return source


_WORDS = "|".join(in_any_case(t) for t in sorted(TYPES - {"NUMERIC"}))
_TYPES = {"anyOf": [
    {"enum": sorted(TYPES - {"NUMERIC"})},
    {"pattern": rf"^ *({_WORDS}) *(\([0-9, ]+\))?$", "type": "string"},
    {"pattern": rf"^ *{in_any_case('NUMERIC')} *\( *[0-9]+ *, *[0-9]+ *\)$", "type": "string"},
]}  # fmt: skip

Names = Annotated[
    list[Name], BeforeValidator(lambda v: v if isinstance(v, list) else [v], json_schema_input_type=list[Name] | Name)
]
"""Names; a single one needs no list."""
Source = Annotated[Text, AfterValidator(_two_parts), WithJsonSchema({"type": "string", "pattern": r"^[^.]*\.[^.]*$"})]
Transform = Annotated[Name, WithJsonSchema({"type": "string", "pattern": f"^{TRANSFORM}$"})]
Type = Annotated[Text, AfterValidator(require_type), WithJsonSchema(_TYPES)]


class ColumnEntries(Entries):
    """A column of the source."""

    model_config = ConfigDict(title="column")

    name: Name = Field(examples=["order_id"], description="Name of the column at the source.")
    type: Type = Field(
        examples=["INT8"],
        description="DMS type of the source endpoint, in any case: `INT8`, `WSTRING(80)`, `NUMERIC(12,2)` …",
    )
    nullable: Flag = Field(
        True, description="A note without effect: in the lake, only columns of the key are NOT NULL."
    )
    comment: Text = Field("", description="Comment of the lake's column.")
    utc: Flag = Field(
        False,
        examples=[True],
        description="`DATETIME` only: the values are instants in UTC. Otherwise they are wall-clock times.",
    )
    lake: Text = Field(
        "",
        examples=["string"],
        description="Another type in the lake: `string` (the text as DMS wrote it), `bigint` for smaller integers, `double` for `REAL4`, a wider `decimal(p,s)` for `NUMERIC`.",
    )
    mask: Literal["sha256"] = Field(
        "",
        examples=["sha256"],
        description="`sha256`: the lake holds the SHA-256 of the value's text, as hex; messages do not show the value. Hashing does not hide values that can be guessed.",
    )
    renamed_from: Names = Field(
        [],
        examples=["name"],
        description="Earlier names, the newest first: the lake's column is renamed, with its history, and files with an old name are still read.",
    )
    replace: dict[Text, Text | None] = Field(
        {},
        examples=[{"zero_date": None}],
        description="What to store instead of a value that the lake's type does not have: null, or a value of the type.",
    )
    source_id: Number = Field(
        0, description="Number that the source's catalog gives the column for life. `frazil init` writes it."
    )

    def column(self) -> Column:
        """Return the column."""
        given = {**dict(self), "renamed_from": tuple(self.renamed_from), "replace": tuple(self.replace.items())}
        return Column(**given)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        require_fit(self.column())
        return self


class ChangesEntries(Entries):
    """What to do when a table's columns change in a way that the spec alone does not settle."""

    model_config = ConfigDict(title="changes")

    new: Literal[POLICIES["new"]] = Field(
        "", examples=["add"], description="Files carry a column that is not in the spec: stop, `add` it or `ignore` it."
    )
    gone: Literal[POLICIES["gone"]] = Field(
        "",
        examples=["keep"],
        description="The spec no longer lists a column: stop, `keep` it with its values, or `drop` it.",
    )
    type: Literal[POLICIES["type"]] = Field(
        "",
        examples=["beside"],
        description="A column's type in the lake cannot be promoted to the spec's, or its mask comes or goes: stop, or rename the old column and add a new one `beside` it.",
    )
    key: Literal[POLICIES["key"]] = Field(
        "",
        description="The source's primary key differs from the spec's: stop, or `keep` the spec's, which must then stay unique.",
    )


class LayoutEntries(Entries):
    """The columns of headerless files that were written earlier."""

    model_config = ConfigDict(title="layout")

    until: Text = Field(
        examples=["20240101-100000000.csv"],
        description="The last file with this layout, or a time as in the names of files.",
    )
    columns: list[Name] = Field(
        [], examples=[["id", "name"]], description="The source's columns at that time; left out: the same as now."
    )
    load: Flag = Field(False, description="Whether the load files have this layout too.")
    without: list[Name] = Field(
        [],
        examples=[["src"]],
        description="Columns that rules of the task add now and did not add then, including before-image columns.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.columns or self.without):
            raise SpecError(
                f"until '{self.until}' names no columns",
                "write columns: [id, name]; without: [src] names columns that a rule adds only later",
            )
        return self

    def layout(self) -> PastLayout:
        """Return the layout."""
        return PastLayout(self.until, tuple(self.columns), self.load, tuple(self.without))


class TableEntries(Entries):
    """One table of the source and its Iceberg table."""

    model_config = ConfigDict(title="Frazil's table spec")

    source: Source = Field(
        examples=["public.orders"], description="The table at the source, as `schema.table`: the names of its folders."
    )
    target: Text = Field(
        "", examples=["sales.orders"], description="Namespace and table in the lake; left out: as the source."
    )
    comment: Text = Field("", description="Comment of the lake's table.")
    key: Names = Field([], examples=[["order_id"]], description="The primary key; several columns if it is composite.")
    without_key: Literal[WITHOUT_KEY] = Field(
        "refuse",
        examples=["append"],
        description="What to do with a table without `key`: `refuse` (this table fails, the others go on), `append`, `multiset`.",
    )
    columns: list[ColumnEntries] = Field(
        min_length=1,
        examples=[[{"name": "order_id", "type": "INT8"}]],
        description="All columns that DMS writes, in its order.",
    )
    include: list[Name] = Field(
        [],
        examples=[["a", "b"]],
        description="The only columns that the lake has; `columns` still lists all that DMS writes.",
    )
    exclude: list[Name] = Field(
        [], examples=[["a", "b"]], description="Columns that the lake does not have; `columns` still lists them."
    )
    partition: list[Transform] = Field(
        [],
        examples=[["region", "day(ordered_at)", "bucket(16, order_id)"]],
        description="Columns, or `year`, `month`, `day`, `hour`, `bucket(16, c)`, `truncate(4, c)` of a column. You may use columns outside the key: updates move their row, and deletes find it by key.",
    )
    sort: list[Name] = Field(
        [],
        examples=[["customer", "ordered_at desc"]],
        description="Order of rows inside new files, also of those that compaction writes.",
    )
    changes: ChangesEntries = Field(
        default_factory=ChangesEntries,
        examples=[{"new": "add", "gone": "keep", "type": "beside"}],
        description="What to do when columns change; if you leave it out, the table stops with an error.",
    )
    layouts: list[LayoutEntries] = Field(
        [],
        examples=[[{"until": "20240101-100000000.csv", "columns": ["id", "name"]}]],
        description="Headerless files that were written earlier, the oldest first: their columns, and in `without` the columns that rules of the task added only later.",
    )
    on_bad_rows: Literal[ON_BAD_ROWS] = Field(
        "",
        examples=["quarantine"],
        description="What to do with rows that do not fit: `stop` the table, or `quarantine` them. If you leave it out, the parameter applies.",
    )
    max_bad_rows: Annotated[Number, Field(ge=0)] = Field(
        None, examples=[100], description="Maximum number of bad rows per batch or load; above it the table stops."
    )
    max_bad_percent: Annotated[Real, Field(ge=0)] = Field(
        None, examples=[0.5], description="Maximum percentage of bad rows per batch or load; above it the table stops."
    )

    @property
    def file_columns(self) -> tuple[Column, ...]:
        """The columns that DMS writes."""
        return tuple(c.column() for c in self.columns)

    @property
    def lake_columns(self) -> tuple[Column, ...]:
        """The columns that the lake gets, by `include` or `exclude`."""
        return tuple(
            c for c in self.file_columns if c.name not in self.exclude and (not self.include or c.name in self.include)
        )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        self._require_columns()
        self._require_key()
        self.partition_sql(), self.sort_sql()
        return self

    def _require_columns(self) -> None:
        names = [c.name for c in self.columns]
        if twice := {n for n in names if names.count(n) > 1}:
            raise SpecError(f"column {sorted(twice)} is listed twice", "remove one")
        for entry, chosen in (("include", self.include), ("exclude", self.exclude)):
            for name in chosen:
                if name not in names:
                    raise SpecError(f"{entry}: no column '{name}'", nearest(name, names))
        if self.include and self.exclude:
            raise SpecError("include and exclude together", "keep one of them")

    def _require_key(self) -> None:
        """Raise SpecError unless the lake gets every column of the key with values that distinguish rows."""
        if self.key and "without_key" in self.model_fields_set:
            raise SpecError("a key, and without_key", "keep one of them")
        if self.without_key == "multiset" and self.lake_columns != self.file_columns:
            raise SpecError("a multiset without some columns", "whole rows are compared: keep every column")
        columns, lake = {c.name: c for c in self.columns}, [c.name for c in self.lake_columns]
        for k in self.key:
            if k not in columns:
                raise SpecError(f"key column '{k}' is not among the columns", nearest(k, columns))
            if columns[k].replace:
                raise SpecError(f"key column '{k}' has replace, and rows would share a key", "write lake: string there")
            if k not in lake:
                raise SpecError(f"key column '{k}' is left out of the lake", "keep it; a mask hides its values")

    def partition_sql(self) -> tuple[str, ...]:
        """Return the partition fields as Spark SQL."""
        names, fields = [c.name for c in self.lake_columns], []
        for entry in self.partition:
            found = re.fullmatch(TRANSFORM, entry.strip())
            column = found and (found[2] or found[5] or found[6]).strip()
            if not found or column not in names:
                raise SpecError(
                    f"partition: '{entry}' is no column of the lake, nor a transform of one",
                    "write a column's name, year(c), month(c), day(c), hour(c), bucket(16, c) or truncate(4, c)",
                )
            inner = identifier(column)
            fields.append(
                f"{found[1]}s({inner})" if found[1] else f"{found[3]}({found[4]}, {inner})" if found[3] else inner
            )
        return tuple(fields)

    def sort_sql(self) -> tuple[str, ...]:
        """Return the sort fields as Spark SQL."""
        names, fields = [c.name for c in self.lake_columns], []
        for entry in self.sort:
            found = re.fullmatch(r"(.+?)(?: +(asc|desc))?", entry.strip(), re.I)
            if not found or found[1] not in names:
                raise SpecError(f"sort: no column '{entry}' in the lake", "write a column's name, or 'name desc'")
            fields.append(f"{identifier(found[1])} {(found[2] or 'asc').upper()}")
        return tuple(fields)
