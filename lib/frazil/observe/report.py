"""What a notebook shows and leaves behind: tables that read well anywhere, and one record of its result."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from frazil.flows.workbook import TableResult, raise_if_failed

RECORD = "application/vnd.frazil.result+json"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int | float):
        return f"{value:,}"
    return str(value)


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
        if not self.rows:
            return "(nothing to show)"
        cells = [self.columns, *self._cells()]
        width = [max(len(line[i]) for row in cells for line in [row]) for i in range(len(self.columns))]
        right = [self._is_number(c) for c in self.columns]
        lines = [
            "  ".join(v.rjust(w) if r else v.ljust(w) for v, w, r in zip(row, width, right, strict=True))
            for row in cells
        ]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        if not self.rows:
            return "<p><em>nothing to show</em></p>"
        aligned = ["right" if self._is_number(c) else "left" for c in self.columns]

        def line(tag: str, values: Sequence[str]) -> str:
            cells = (
                f'<{tag} style="text-align:{a};white-space:pre-line">{html.escape(v)}</{tag}>'
                for v, a in zip(values, aligned, strict=True)
            )
            return f"<tr>{''.join(cells)}</tr>"

        head = line("th", [c.replace("_", " ") for c in self.columns])
        return f"<table><thead>{head}</thead><tbody>{''.join(line('td', r) for r in self._cells())}</tbody></table>"


def results(done: Sequence[TableResult], *columns: str) -> Grid:
    """Show what happened to each table; with columns named, only those."""
    return Grid([r.row() for r in done], *columns)


class Record:
    """The result of a notebook as data; `read_record` finds it in the executed copy."""

    def __init__(self, notebook: str, status: str, **facts: Any):
        self.facts = {"notebook": notebook, "status": status, **facts}

    def __repr__(self) -> str:
        return f"{self.facts['notebook']}: {self.facts['status']}"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        return {RECORD: self.facts, "text/plain": repr(self)}


def finish(notebook: str, done: Sequence[TableResult], **facts: Any) -> Record:
    """Return the notebook's record as the last cell's value; if a table failed, show the record and raise with the causes."""
    failed = any(r.failed for r in done)
    tables = {r.table: {k: v for k, v in r.row().items() if k != "table"} for r in done}
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
    """Return the record that an executed notebook left in its outputs, or None."""
    notebook = json.loads(Path(executed).read_text(encoding="utf-8"))
    found = [o["data"][RECORD] for c in notebook["cells"] for o in c.get("outputs", ()) if RECORD in o.get("data", {})]
    return found[-1] if found else None
