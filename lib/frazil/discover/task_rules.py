"""What the rules of a task lose of a table, or write without a use, though each file can be read."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.dms.mappings import SEQUENCE
from frazil.dms.source_file import SourceTable

Told = tuple[str, str, str]
"""What is wrong, what mends it, and a code."""


def lost_by_rules(table: SourceTable) -> Iterator[Told]:
    """Yield what the rules lose of a table, or write without a use."""
    spec, written = table.spec, table.written
    for name, expression in written.added.items():
        if name not in written.names and not SEQUENCE.fullmatch(expression):
            says = f"a rule adds the column '{name}', which {spec.file} does not list: it is left out"
            yield says, "list it among the columns; and in exclude, if the lake shall lack it", "rule-column"
    if not table.target.cdc_inserts_only and not {*spec.key} <= {*written.images.values()}:
        says = "no rule writes a before-image of the key, so a row whose key changes stays under its old key"
        yield (
            says,
            "add a rule add-before-image-columns to the task, and to the file that mappings names",
            "no-old-keys",
        )
