"""What notebooks show: tables, results with a verdict in one line, and the record of the result."""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil_old.errors import Message, counted, grouped, many, safe, safe_facts
from frazil_old.report.render import render

if TYPE_CHECKING:
    from frazil_old.config.settings import Resolved
    from frazil_old.flows.explore import AsOf, Changed
    from frazil_old.flows.preview_stages import Stage
    from frazil_old.flows.workbook import Workbook
    from frazil_old.results import TableResult

RECORD = "application/vnd.frazil.result+json"
GOOD, STILL, CARE, BAD = "good", "still", "care", "bad"
RATE = "_per_s"
"""Ends the name of a column of rates, whose cells are numbers."""
UNITS = {"mb": "MB", "kb": "kB", "usd": "USD"}
"""How headings write the units that names of columns hold."""
IDLE = ("nothing", "nothing new", "loaded", "empty", "healthy")
_COLOURS = {GOOD: "#2e7d4f", STILL: "#777777", CARE: "#b26a00", BAD: "#b3261e"}
_MOST_SINGLE, _MOST_BYTES = 3.4e38, 16
_MARKS = {GOOD: "✔", STILL: "·", CARE: "!", BAD: "✘"}


def _shown(value: Any) -> str:
    if isinstance(value, float) and value != value:
        return "–"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return value if isinstance(value, Message) else safe(str(value))


def _number(value: float, column: str, decimals: int) -> str:
    """Return a figure in the unit that its column's name ends with, or with separators."""
    if column.endswith("_s") and not column.endswith(RATE):
        from frazil_old.report.chart_style import span

        return span(value)
    if column.endswith("_share"):
        return f"{100 * value:.1f} %"
    return f"{Decimal(value):,.{decimals}f}"  # a float would round large integers


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and value == value  # not NaN


class Grid:
    """Rows of figures as a table: HTML in a notebook, aligned text in a terminal or a log.

    Names of columns may end with a unit: `_s` (seconds, shown as a span) or `_share` (shown as a percentage).
    """

    MOST_DECIMALS = 3

    def __init__(self, rows: Sequence[dict[str, Any]], *columns: str):
        self.rows = list(rows)
        self.columns = list(columns) or list(dict.fromkeys(k for row in self.rows for k in row))

    def name(self, column: str) -> str:
        """Return the name of a column without a unit that its cells show."""
        return safe(column) if column.endswith(RATE) else safe(column).removesuffix("_s").removesuffix("_share")

    def title(self, column: str) -> str:
        """Return the heading of a column in HTML: its name in words."""
        return " ".join(UNITS.get(word, word) for word in self.name(column).split("_"))

    def _column(self, name: str) -> list[str]:
        """Return the texts of a column, its numbers with the same decimals."""
        values = [row.get(name, "") for row in self.rows]
        fractions = [
            f"{v:.{self.MOST_DECIMALS}f}".rstrip("0").partition(".")[2]
            for v in values
            if isinstance(v, float | Decimal)
        ]
        decimals = max(map(len, fractions), default=0)
        return [_number(v, name, decimals) if _is_number(v) else _shown(v) for v in values]

    def _cells(self) -> list[list[str]]:
        columns = [self._column(name) for name in self.columns]
        return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in self.rows]

    def _is_numeric(self, column: str) -> bool:
        """Whether a column stands right: it has numbers, and nothing else but nulls and empty cells."""
        values = [row.get(column) for row in self.rows]
        others = [v for v in values if v is not None and v != "" and not _is_number(v)]
        return not others and any(map(_is_number, values))

    def __repr__(self) -> str:
        return "\n".join(self.lines()) if self.rows else "(nothing to show)"

    def lines(self) -> list[str]:
        """Return the head and each row as aligned text; texts of several lines make rows of several lines."""
        cells = [[c.split("\n") for c in row] for row in [map(self.name, self.columns), *self._cells()]]
        width = [max(len(line) for row in cells for line in row[i]) for i in range(len(self.columns))]
        right = [self._is_numeric(c) for c in self.columns]

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
        columns = [(self.title(c), "right" if self._is_numeric(c) else "left") for c in self.columns]
        return {"columns": columns, "rows": list(zip(styles or [""] * len(self.rows), self._cells(), strict=True))}


class Rows(Grid):
    """Rows of a table of the lake: names and values as a query needs them, without separators or units."""

    def name(self, column: str) -> str:
        """Return a column's own name."""
        return safe(column)

    title = name

    def _column(self, name: str) -> list[str]:
        return [_value(row[name]) if name in row else "" for row in self.rows]


class StageRows(Grid):
    """Rows of a stage: figures as in any table, and the names of columns as the source has them."""

    name = title = Rows.name


def _value(value: Any) -> str:
    """Return a stored value as text: reals as short as they are exact, binary in hex."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _shortest_real(value)
    if isinstance(value, bytes | bytearray):
        return f"0x{bytes(value[:_MOST_BYTES]).hex()}" + "…" * (len(value) > _MOST_BYTES)
    return _shown(value)


def _shortest_real(value: float) -> str:
    """Return the shortest text that reads back as the same number: the same single-precision number, if it is one."""
    if not abs(value) < _MOST_SINGLE or _single(value) != value:
        return str(value)
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return min((str(value), *(t for t in texts if _single(float(t)) == value)), key=len)


def _single(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


class Summary:
    """A verdict, its rows, and the level of each row: a coloured edge in a notebook, a mark before the line in text."""

    def __init__(
        self,
        level: str,
        verdict: str,
        rows: Sequence[dict[str, Any]] | Grid,
        columns: Sequence[str] = (),
        levels: Sequence[str] = (),
    ):
        self.level, self.verdict = level, verdict if isinstance(verdict, Message) else safe(verdict)
        self.grid = rows if isinstance(rows, Grid) else Grid(rows, *columns)
        self.levels = levels or [STILL] * len(self.grid.rows)

    def __repr__(self) -> str:
        head = f"{_MARKS[self.level]} {self.verdict}"
        if not self.grid.rows:
            return head
        marks = [" ", *(_MARKS[level] if level in (CARE, BAD) else " " for level in self.levels)]
        lines = [f"{mark} " + line.replace("\n", "\n  ") for mark, line in zip(marks, self.grid.lines(), strict=True)]
        return "\n".join([head, *(line.rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        head = {"colour": _COLOURS[self.level], "mark": _MARKS[self.level], "verdict": self.verdict}
        return render("summary.html.j2", **head, **self.grid.shown([_tint(level) for level in self.levels]))


def _tint(level: str) -> str:
    """Return the style of a row; rows that need no attention get none."""
    return f"box-shadow:inset 4px 0 {_COLOURS[level]};background:{_COLOURS[level]}14" if level in (CARE, BAD) else ""


class Parameters:
    """The parameters of a notebook with their origins: those that are set, and in HTML the others folded."""

    def __init__(self, rows: Sequence[dict[str, Any]]):
        rows = [{**r, "value": _plain(r["value"])} for r in rows]
        self.all = Grid(rows)
        self.set, self.others = ([r for r in rows if (r["from"] == "default") == by] for by in (False, True))

    def __repr__(self) -> str:
        return repr(self.all)

    def _repr_html_(self) -> str:
        return render("parameters.html.j2", set=Grid(self.set).shown(), others=Grid(self.others).shown())


def _plain(value: Any) -> Any:
    """Return a number as its text: values of one column would get the same number of digits."""
    return str(value).removesuffix(".0") if _is_number(value) else value


def parameters(resolved: Resolved) -> Parameters:
    """Show the parameters that a notebook runs with."""
    return Parameters(resolved.rows())


def _worst(levels: Sequence[str], otherwise: str) -> str:
    """Return the worst of some levels; `otherwise` if none of them says anything."""
    return next((level for level in (BAD, CARE, GOOD) if level in levels), otherwise)


def _sum(rows: Sequence[dict[str, Any]], name: str) -> float:
    return sum(r.get(name) or 0 for r in rows)


def remarks(rows: Sequence[dict[str, Any]], column: str) -> list[tuple[str, str]]:
    """Return the tables and texts of a column of a plan; `impossible` has several in one cell."""
    cells = [(row["table"], str(row.get(column) or "")) for row in rows]
    several = column == "impossible"
    return [(table, text) for table, cell in cells for text in (cell.split("; ") if several else [cell]) if text]


def plan(rows: Sequence[dict[str, Any]], *columns: str) -> Summary:
    """Show a notebook's plan: the actions, their numbers of tables, and the tables that need a decision.

    An impossibility that several tables share is shown once, above the rows.
    """

    def level(row: dict[str, Any]) -> str:
        action = str(row.get("action", ""))
        if row.get("decision") or action.startswith(("cannot", "stops", "refuse")):
            return BAD
        if action.startswith(("wait", "paused")) or row.get("impossible"):
            return CARE
        return STILL if action in IDLE else GOOD

    levels = [level(row) for row in rows]
    going = [str(r["action"]) for r, of in zip(rows, levels, strict=True) if of in (GOOD, CARE)]
    what = Counter(action.split(":")[0].split(" until ")[0] for action in going if action not in IDLE)
    idle = levels.count(STILL) + sum(action in IDLE for action in going)
    bad, states = levels.count(BAD), ("waiting", "paused")
    parts = [f"{many(bad, 'table')} need{'s' * (bad == 1)} you to decide or correct something"] if bad else []
    parts += [f"{many(count, 'table')} {'' if word in states else 'to '}{word}" for word, count in what.items()]
    parts += [f"{many(idle, 'table')} with nothing to do"] if idle else []
    if columns and any(row.get("notes") for row in rows):
        columns = (*columns, "notes")
    size = _sum(rows, "mb")
    verdict = "; ".join(parts) + (f"; {size:,.1f} MB to read" if size >= 0.1 else "") or "nothing to do"
    texts = grouped(remarks(rows, "impossible"))
    several = {text: tables for text, tables in texts.items() if len(tables) > 1}
    single = [(tables[0], text) for text, tables in texts.items() if text not in several]
    lines = [f"impossible: {text} ({', '.join(tables)})" for text, tables in several.items()]
    verdict = Message("\n".join(map(safe, [verdict, *lines])))
    left: dict[str, list[str]] = {}
    for table, text in single:
        left.setdefault(table, []).append(text)
    shown = [{**row, "impossible": "; ".join(left.get(row["table"], []))} if several else row for row in rows]
    return Summary(_worst(levels, STILL), verdict, shown, columns, levels)


def results(done: Sequence[TableResult], *columns: str) -> Summary:
    """Show what happened to each table in a run or pass; if columns are named, show only those."""

    def level(row: dict[str, Any]) -> str:
        word = row["status"]
        if word == "failed":
            return BAD
        if word in ("waiting", "skipped", "stopped", "paused", "differs", "not compared"):
            return CARE
        return STILL if word in ("unchanged", "exists", "healthy", "empty", "planned") else GOOD

    rows = [r.row() for r in done]
    levels, order = [level(row) for row in rows], (BAD, CARE, GOOD, STILL)
    words = Counter(row["status"] for row in sorted(rows, key=lambda row: order.index(level(row))))
    parts = [f"{many(count, 'table')} {word}" for word, count in words.items()]
    totals = {word: sum(r.counts.get(word, 0) for r in done) for word in ("rows", "changes")}
    parts += [counted(total, word) for word, total in totals.items() if total]
    return Summary(_worst(levels, STILL), "; ".join(parts) or "no tables", rows, columns, levels)


def compared(done: Sequence[TableResult], *columns: str) -> Summary:
    """Show a comparison with the source: equal, or the number of differing rows and their tables."""
    shown = results(done, *columns)
    differing = [r for r in done if r.counts.get("differing_rows")]
    if not done:
        shown.verdict = "not compared with the source: see check_source"
    elif differing:
        count = sum(r.counts["differing_rows"] for r in differing)
        tables = ", ".join(r.table for r in differing)
        shown.level, shown.verdict = BAD, f"{many(count, 'row')} differ{'s' * (count == 1)}, in {tables}"
    elif shown.level == GOOD:
        rows = sum(r.counts.get("source_rows", 0) for r in done)
        shown.verdict = f"equal: {many(done, 'table')}, {many(rows, 'row')}"
    return shown


def health(rows: Sequence[dict[str, Any]], *columns: str) -> Summary:
    """Show the state of tables; a row whose `health` (see `explore.tables`) is not `healthy` needs care."""

    def level(row: dict[str, Any]) -> str:
        if str(row.get("action", "")).startswith("cannot"):
            return BAD
        return CARE if row.get("health", "healthy") != "healthy" else GOOD

    levels = [level(row) for row in rows]
    care, bad = levels.count(CARE), levels.count(BAD)
    files, size = _sum(rows, "data_files"), _sum(rows, "mb")
    parts = [f"{many(rows, 'table')} with {_sum(rows, 'rows'):,} rows in {files:,} files ({size:,.1f} MB)"]
    parts += [f"{many(care, 'table')} need{'s' * (care == 1)} maintenance"] if care else []
    parts += [f"{many(bad, 'table')} cannot be looked at"] if bad else []
    late = sum(bool(row.get("pending")) for row in rows)  # of a stream, each table counts the messages of all
    parts += [f"changes wait for {many(late, 'table')}"] if late else []
    return Summary(_worst(levels, GOOD), "; ".join(parts), rows, columns, levels)


def difference(found: Changed) -> Summary:
    """Show the differences between two states of a table."""
    counts = {word: n for word, n in found.counts.items() if n}
    text = ", ".join(f"{n:,} {word}" for word, n in counts.items()) or "the same rows"
    return Summary(GOOD if counts else STILL, f"{found.table}: {text}", Rows(found.sample))


def sentence(text: str, rows: Sequence[dict[str, Any]] | Grid = (), *columns: str) -> Summary:
    """Show a sentence that was computed from data, and the rows of the data."""
    return Summary(STILL, text, rows, columns)


def stage(found: Stage) -> Summary:
    """Show one stage of a batch, a load or maintenance: its sentence, and rows of which the bad ones are marked."""
    levels = [BAD if "bad row" in row else STILL for row in found.rows]
    return Summary(CARE if found.failed else STILL, found.sentence, StageRows(found.rows), levels=levels)


def as_of(found: AsOf) -> Summary:
    """Show all tables at one time of the source: the chosen states, and what is uncertain."""

    def level(row: dict[str, Any]) -> str:
        return BAD if row.get("snapshot") is None else CARE if row["unsure"] else GOOD

    levels = [level(row) for row in found.rows]
    words = {GOOD: "known exactly", CARE: "with something unknown", BAD: "cannot be shown"}
    parts = [f"{many(levels.count(of), 'table')} {word}" for of, word in words.items() if of in levels]
    return Summary(_worst(levels, GOOD), f"as of {found.when}: {'; '.join(parts)}", found.rows, (), levels)


class Statements:
    """What warehouses need, by warehouse and purpose (`warehouses.needs`); of many of one purpose, HTML folds all but two."""

    def __init__(self, rows: Sequence[dict[str, Any]]):
        self.groups: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            key = (safe(row["warehouse"]), safe(row.get("when", "failed")))
            self.groups.setdefault(key, []).append(safe(row.get("what") or row["why"]))

    def __repr__(self) -> str:
        shown = [
            f"{name}: {when}\n" + "\n".join(f"  {t}" for t in texts) for (name, when), texts in self.groups.items()
        ]
        return "\n".join(shown) or "(nothing to show)"

    def _repr_html_(self) -> str:
        return render("statements.html.j2", groups=list(self.groups.items()))


def warehouses(rows: Sequence[dict[str, Any]], *columns: str, env: str = "") -> Summary:
    """Show what is declared, made or served of warehouses: how many rows have which status, and those in trouble.

    `env` names the environment that declares none if there are no rows.
    """

    def level(row: dict[str, Any]) -> str:
        word = row.get("status", "")
        if word in ("failed", "stopped", "unanswered"):
            return BAD
        return CARE if word == "late" or (row.get("why") and word != "unknown") else GOOD

    if not rows:
        how = f"no warehouse is declared: to have one, add a section `warehouses` to params/{env}.yml, as params/README.md shows"
        return Summary(STILL, how if env else "nothing to do", [])
    levels, words = [level(r) for r in rows], Counter(r["status"].split(":")[0] for r in rows if "status" in r)
    names = len({r["warehouse"] for r in rows})
    text = "; ".join([many(names, "warehouse"), *(f"{n} {word}" for word, n in words.items())])
    used = [c for c in columns if any(row.get(c) not in (None, "") for row in rows)]
    return Summary(_worst(levels, GOOD), text, [dict.fromkeys(used) | row for row in rows], used, levels)


class NotebookResult:
    """The result of a notebook as data; `read_record` finds it in the executed copy."""

    def __init__(self, notebook: str, status: str, **facts: Any):
        self.facts = safe_facts({"notebook": notebook, "status": status, **facts})

    def __repr__(self) -> str:
        return f"{self.facts['notebook']}: {self.facts['status']}"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        return {RECORD: self.facts, "text/plain": repr(self)}


def finish(notebook: str, done: Sequence[TableResult], book: Workbook | None = None, **facts: Any) -> NotebookResult:
    """Return the notebook's record as the last cell's value; if a table failed, show the record and raise with the causes.

    Several results of one table become one: the failed one, or else the last that did something, with the counts of the
    others. `live` has the values of the newest batch. With `book`, a run that `frazil run` did not start, such as one by
    papermill, is listed and checked like one that it did.
    """
    from frazil_old.report import runs
    from frazil_old.results import raise_if_failed

    failed = any(r.failed for r in done)
    in_order = sorted(done, key=lambda r: (r.failed, r.status != "unchanged"))
    tables: dict[str, dict[str, Any]] = {}
    for r in in_order:
        row = r.row() | ({"live": r.live} if r.live else {})
        tables[r.table] = {**tables.get(r.table, {}), **{k: v for k, v in row.items() if k != "table"}}
    record = NotebookResult(notebook, "failed" if failed else "ok", tables=tables, **facts)
    if book is not None and not os.environ.get(runs.STARTED):
        runs.record(book.folder, notebook, record.facts, env=book.settings.env, began=book.opened)
    if failed:
        _display(record)
    raise_if_failed(list(done))
    return record


def _display(record: NotebookResult) -> None:
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
