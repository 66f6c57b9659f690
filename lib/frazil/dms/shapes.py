"""Which columns each file of a table carries, as far as the file or a declared layout tells: what schema changes show in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from frazil.config.spec import TableSpec
from frazil.dms.csv import header, require_fit
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import as_written, known_names, past_layout
from frazil.dms.objects import DmsObject
from frazil.dms.parquet import footer, lake_kind
from frazil.dms.transactions import NAME


@dataclass(frozen=True)
class Shape:
    """Columns at one place: `carries` by the spec's names (None: it does not tell), `unknown` that nobody told of.

    Both with the type that is stated there, as Spark names it; empty if none is, as in CSV, where all is text.
    """

    where: str
    carries: dict[str, str] | None = None
    unknown: dict[str, str] = field(default_factory=dict)
    before: frozenset[str] = frozenset()
    """The columns whose old values it carries."""
    stated: bool = False
    """Whether a past layout of the spec says so: what it lacks came later, and what it has besides is gone."""


def shapes(
    spec: TableSpec, endpoint: Endpoint, mappings: Mappings, files: Sequence[DmsObject], phase: int
) -> list[Shape]:
    """Return the shape of each file, in the order given; heads and footers are read, no rows."""
    known = known_names(spec, endpoint, mappings)
    return [_shape(f, spec, endpoint, mappings, phase, known) for f in files]


def _shape(
    file: DmsObject, spec: TableSpec, endpoint: Endpoint, mappings: Mappings, phase: int, known: dict[str, str]
) -> Shape:
    where = file.path if file.is_parquet else f"{file.path} line 1"
    if file.is_parquet:
        names = {f.name: lake_kind(f.type, f"{file.path}: column {f.name!r}") for f in footer(file)}
    elif endpoint.header and file.size and not NAME.match(file.name):
        names = dict.fromkeys(header(file, endpoint), "")
    elif spec.layouts and file.size:
        if not NAME.match(file.name):
            require_fit(file, spec, endpoint, mappings, phase)
        if past_layout(spec, file, phase) is None:
            return Shape(where, dict.fromkeys(mappings.file_columns(spec), ""))
        return Shape(where, dict.fromkeys(as_written(spec, file, phase).names, ""), stated=True)
    else:
        return Shape(where)
    roles = {n: known.get(n, "") for n in names if n.lower() != endpoint.op_column.lower()}
    carries = {r.removeprefix("after:"): names[n] for n, r in roles.items() if r.startswith("after:")}
    before = frozenset(r.removeprefix("before:") for r in roles.values() if r.startswith("before:"))
    return Shape(where, carries, {n: names[n] for n, r in roles.items() if not r}, before)
