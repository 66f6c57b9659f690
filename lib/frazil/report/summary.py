"""Notebook output: tables that are readable anywhere, and one record of the result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil.errors import Message, safe, safe_facts
from frazil.report.render import render

if TYPE_CHECKING:
    from frazil.flows.workbook import TableResult

RECORD = "application/vnd.frazil.result+json"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int | float):
        return f"{value:,}"
    return value if isinstance(value, Message) else safe(str(value))


class Grid:
    """Rows of dicts as a table: HTML in a notebook, aligned text in a terminal or a log."""

    def __init__(self, rows: Sequence[dict[str, Any]], *columns: str):
        self.rows = list(rows)
        self.columns = list(columns) or list(dict.fromkeys(k for row in self.rows for k in row))

    def _cells(self) -> list[list[str]]:
        return [["" if c not in row else _shown(row[c]) for c in self.columns] for row in self.rows]

    def _is_number(self, column: str) -> bool:
        return all(isinstance(row.get(column, 0), int | float) for row in self.rows)

    def __repr__(self) -> str:
        return "\n".join(self.lines()) if self.rows else "(nothing to show)"

    def lines(self) -> list[str]:
        """Return the head and each row as aligned text; texts of several lines make rows of several lines."""
        cells = [[c.split("\n") for c in row] for row in [[safe(c) for c in self.columns], *self._cells()]]
        width = [max(len(line) for row in cells for line in row[i]) for i in range(len(self.columns))]
        right = [self._is_number(c) for c in self.columns]

        def text(row: list[list[str]], number: int) -> str:
            parts = (c[number] if number < len(c) else "" for c in row)
            return "  ".join(
                v.rjust(w) if r else v.ljust(w) for v, w, r in zip(parts, width, right, strict=True)
            ).rstrip()

        return ["\n".join(text(row, n) for n in range(max(len(c) for c in row))) for row in cells]

    def _repr_html_(self) -> str:
        return render("table.html.j2", **self.shown())

    def shown(self, styles: Sequence[str] = ()) -> dict[str, Any]:
        """Return what the template of a table needs; `styles` has a style for each row."""
        columns = [(safe(c).replace("_", " "), "right" if self._is_number(c) else "left") for c in self.columns]
        return {"columns": columns, "rows": list(zip(styles or [""] * len(self.rows), self._cells(), strict=True))}


class Record:
    """The result of a notebook as data; `read_record` finds it in the executed copy."""

    def __init__(self, notebook: str, status: str, **facts: Any):
        self.facts = safe_facts({"notebook": notebook, "status": status, **facts})

    def __repr__(self) -> str:
        return f"{self.facts['notebook']}: {self.facts['status']}"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        return {RECORD: self.facts, "text/plain": repr(self)}


def finish(notebook: str, done: Sequence[TableResult], **facts: Any) -> Record:
    """Return the notebook's record as the last cell's value; if a table failed, show the record and raise with the causes.

    Several results of one table become one: the failed one, or else the last that did something, with the counts of the
    others.
    """
    from frazil.flows.workbook import raise_if_failed

    failed = any(r.failed for r in done)
    telling = sorted(done, key=lambda r: (r.failed, r.status != "unchanged"))
    tables: dict[str, dict[str, Any]] = {}
    for r in telling:
        tables[r.table] = {**tables.get(r.table, {}), **{k: v for k, v in r.row().items() if k != "table"}}
    record = Record(notebook, "failed" if failed else "ok", tables=tables, **facts)
    if failed:
        _display(record)
    raise_if_failed(list(done))
    return record


def _display(record: Record) -> None:
    try:
        from IPython.display import display
    except ImportError:
        print(json.dumps(record.facts, default=str))
    else:
        display(record)


def read_record(executed: Path) -> dict[str, Any] | None:
    """Return the record in an executed notebook's outputs, or None."""
    notebook = json.loads(Path(executed).read_text(encoding="utf-8"))
    found = [o["data"][RECORD] for c in notebook["cells"] for o in c.get("outputs", ()) if RECORD in o.get("data", {})]
    return found[-1] if found else None
