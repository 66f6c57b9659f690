"""The error of bad rows: it shows the first of them, and the remedy that loses nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from frazil_old.config.columns import unrepresentable
from frazil_old.config.lake_types import value_type
from frazil_old.config.spec import TableSpec
from frazil_old.core.bad_rows import FIELDS, OP, BadRow
from frazil_old.errors import LOAD_AGAIN, FrazilError, many

QUARANTINE = "have such rows quarantined, which leaves them out of the lake until they are replayed"


class BadRowError(FrazilError):
    """Rows that cannot be applied: the message names the first of them, and nothing of the batch was applied."""


def bad_rows_error(spec: TableSpec, count: int, worst: Sequence[tuple[str, BadRow]], other: str = "") -> BadRowError:
    """Return the error that shows the first bad rows, each given with its place in words: place, reason and cure.

    `other` names an alternative to a change of the spec; default: quarantine.
    """
    lines = [f"{place}: {row.reason}" for place, row in worst]
    more = [f"… and {count - len(worst)} more"] if count > len(worst) else []
    other = other or f"or {QUARANTINE} (on_bad_rows=quarantine)"
    cure = (
        f"{_first_remedy(spec, [row for _, row in worst])}; {other}; nothing of this batch was applied to {spec.target}"
    )
    return BadRowError(f"{spec.source}: {many(count, 'bad row')}", cure, [f"  {line}" for line in lines + more])


def _first_remedy(spec: TableSpec, worst: Sequence[BadRow]) -> str:
    """Return the lossless remedy in words, and for a replaceable value what a replacement loses."""
    for row in worst:
        if row.column in spec.names and (remedy := _remedy_of_value(spec, row)):
            return remedy
    of_message = bool(worst and worst[0].place)
    if worst and worst[0].column == OP:
        return f"correct OpValues in the FrazilSettings next to S3Settings, or the columns in {spec.file}"
    if worst and worst[0].column == FIELDS and not of_message:
        return (
            f"correct the columns in {spec.file} (layouts, if the table had other columns then), or write layouts: [{{until: <the last "
            "file before>, without: [src]}] there if the task's rule that adds src began later, or fetch a damaged file again"
        )
    return f"correct {spec.file}" + ("" if of_message else ", or fetch a damaged file again")


def _remedy_of_value(spec: TableSpec, row: BadRow) -> str:
    """Return the remedy for a value that does not fit its column; empty: none is known."""
    column = spec.column(row.column)
    value = re.sub(
        r"^(old value of )?column '.*?': '?|'? does not fit .*$| holds U.FFFD.*$", "", row.reason, flags=re.S
    )
    special = next((n for n, pattern in unrepresentable(column).items() if re.search(pattern, value)), "")
    at = f"at column '{row.column}' in {spec.file}"
    if special == "U+FFFD" and row.column not in spec.key:
        return f'write replace: {{U+FFFD: "\\uFFFD"}} {at}, which keeps the text as it is shown; or {{U+FFFD: null}} there, which loses the text'
    if special and row.column not in spec.key:
        return (
            f"write lake: string {at}, which keeps the text, {LOAD_AGAIN}; or write replace: {{{special}: null}} {at}, or another "
            "value than null, which loses what the source has there"
        )
    if wider := _wider(value_type(column), value):
        return f"write {wider} {at}: the lake's column becomes as wide, and keeps its values"
    if value_type(column) != "string":
        return f"write the right type, or lake: string, {at}, {LOAD_AGAIN}"
    return ""


def _wider(kind: str, value: str) -> str:
    """Return the DMS type that takes a number too large for a type of the lake, if Iceberg can widen the column to it; else an empty text."""
    if kind == "int" and re.fullmatch(r"[+-]?\d{10,18}", value):
        return "INT8"
    places = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
    digits = re.fullmatch(r"[+-]?0*(\d+)(?:\.(\d+))?", value)
    if places and digits and len(digits[2] or "") <= int(places[2]):
        precision = len(digits[1]) + int(places[2])
        return f"NUMERIC({precision},{places[2]})" if int(places[1]) < precision <= 38 else ""
    return ""
