"""Results for people: a verdict in one line, coloured in a notebook, followed by its rows."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from frazil.errors import Message, safe
from frazil.observe.report import Grid

if TYPE_CHECKING:
    from frazil.config.settings import Resolved
    from frazil.flows.explore import AsOf, Changed
    from frazil.flows.stages import Stage
    from frazil.flows.workbook import TableResult

GOOD, STILL, CARE, BAD = "good", "still", "care", "bad"
IDLE = ("nothing", "nothing new", "loaded", "empty", "healthy")
_COLOURS = {GOOD: "#2e7d4f", STILL: "#777777", CARE: "#b26a00", BAD: "#b3261e"}
_MARKS = {GOOD: "✔", STILL: "·", CARE: "!", BAD: "✘"}


class Card:
    """A verdict, its rows, and the level of each row: a coloured edge in a notebook, a mark before the line in text."""

    def __init__(self, level: str, verdict: str, rows: Sequence[dict[str, Any]], columns: Sequence[str] = (), of: Callable[[dict[str, Any]], str] | None = None):  # fmt: skip
        self.level, self.verdict, self.grid = (
            level,
            verdict if isinstance(verdict, Message) else safe(verdict),
            Grid(rows, *columns),
        )
        self.levels = [of(row) for row in rows] if of else [STILL] * len(rows)

    def __repr__(self) -> str:
        head = f"{_MARKS[self.level]} {self.verdict}"
        if not self.grid.rows:
            return head
        marks = [" ", *(_MARKS[level] if level in (CARE, BAD) else " " for level in self.levels)]
        lines = [f"{mark} " + line.replace("\n", "\n  ") for mark, line in zip(marks, self.grid.lines(), strict=True)]
        return "\n".join([head, *(line.rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        lines = "white-space:pre-line;" if "\n" in self.verdict else ""
        edge = f"{lines}border-left:4px solid {_COLOURS[self.level]};padding:.2em .8em"
        head = f'<p style="{edge}"><b style="color:{_COLOURS[self.level]}">{_MARKS[self.level]}</b> {html.escape(self.verdict)}</p>'
        return head + (self.grid.html([_tint(level) for level in self.levels]) if self.grid.rows else "")


def _tint(level: str) -> str:
    """Return the style of a row; rows that need no attention get none."""
    return f"box-shadow:inset 4px 0 {_COLOURS[level]};background:{_COLOURS[level]}14" if level in (CARE, BAD) else ""


class Parameters:
    """The parameters of a notebook with their origins: those that are set, and in HTML the others folded."""

    def __init__(self, rows: Sequence[dict[str, Any]]):
        self.all = Grid(rows)
        self.set, self.others = ([r for r in rows if (r["from"] == "default") == by] for by in (False, True))

    def __repr__(self) -> str:
        return repr(self.all)

    def _repr_html_(self) -> str:
        more = f"<summary>{len(self.others)} more parameters have their defaults</summary>"
        return f"{Grid(self.set)._repr_html_()}<details>{more}{Grid(self.others)._repr_html_()}</details>"


def parameters(resolved: Resolved) -> Parameters:
    """Show the parameters that a notebook runs with."""
    return Parameters(resolved.rows())


def _tables(count: int, what: str) -> str:
    return f"{count} table{'s' * (count != 1)} {what}"


def _sum(rows: Sequence[dict[str, Any]], name: str) -> float:
    return sum(r.get(name) or 0 for r in rows)


def shared(rows: Sequence[dict[str, Any]], column: str) -> dict[str, list[str]]:
    """Return each text in a column, in order, with the tables that have it."""
    found: dict[str, list[str]] = {}
    for row in rows:
        told = str(row.get(column) or "")
        for text in told.split("; ") if column == "impossible" else [told]:
            if text:
                found.setdefault(text.replace(f" for {row['table']}:", ":"), []).append(row["table"])
    return found


def plan(rows: Sequence[dict[str, Any]], *columns: str) -> Card:
    """Show a notebook's plan: the actions, their numbers of tables, and the tables that need a decision.

    An impossibility that several tables share is shown once, above the rows.
    """

    def level(row: dict[str, Any]) -> str:
        action = str(row.get("action", ""))
        if row.get("decision") or action.startswith(("cannot", "stops", "refuse")):
            return BAD
        if action.startswith(("held", "wait")) or row.get("impossible"):
            return CARE
        return STILL if action in IDLE else GOOD

    levels = Counter(level(row) for row in rows)
    going = [str(r["action"]) for r in rows if level(r) in (GOOD, CARE)]
    what = Counter(action.split(":")[0].split(" until ")[0] for action in going if action not in IDLE)
    idle = levels[STILL] + sum(action in IDLE for action in going)
    said = (
        [_tables(levels[BAD], f"need{'s' * (levels[BAD] == 1)} you to decide or mend something")] if levels[BAD] else []
    )
    said += [_tables(count, f"to {word}" if word not in ("held",) else word) for word, count in what.items()]
    said += [_tables(idle, "with nothing to do")] if idle else []
    if columns and any(row.get("notes") for row in rows):
        columns = (*columns, "notes")
    size = _sum(rows, "mb")
    verdict = "; ".join(said) + (f"; {size:,.1f} MB to read" if size >= 0.1 else "") or "nothing to do"
    several = {text: tables for text, tables in shared(rows, "impossible").items() if len(tables) > 1}
    lines = [f"impossible: {text} ({', '.join(tables)})" for text, tables in several.items()]
    verdict = Message("\n".join(map(safe, [verdict, *lines])))
    worst, each = next((x for x in (BAD, CARE, GOOD) if levels[x]), STILL), iter([level(row) for row in rows])
    shown = [
        {**row, "impossible": "; ".join(t for t in shared([row], "impossible") if t not in several)} if several else row
        for row in rows
    ]
    return Card(worst, verdict, shown, columns, lambda row: next(each))


def results(done: Sequence[TableResult], *columns: str) -> Card:
    """Show what happened to each table in a run or pass; if columns are named, show only those."""

    def level(row: dict[str, Any]) -> str:
        word = row["status"]
        if word == "failed":
            return BAD
        if word in ("held", "skipped", "stopped", "differs", "not compared"):
            return CARE
        return STILL if word in ("unchanged", "exists", "healthy", "empty", "planned") else GOOD

    rows = [r.row() for r in done]
    levels = Counter(level(row) for row in rows)
    order = (BAD, CARE, GOOD, STILL)
    words = Counter(r.status for r in sorted(done, key=lambda r: order.index(level(r.row()))))
    said = [_tables(count, word) for word, count in words.items()]
    said += [f"{total:,} {word}" for word in ("rows", "changes") if (total := sum(r.counts.get(word, 0) for r in done))]
    worst = next((x for x in (BAD, CARE, GOOD) if levels[x]), STILL)
    return Card(worst, "; ".join(said) or "no tables", rows, columns, level)


def compared(done: Sequence[TableResult], *columns: str) -> Card:
    """Show a comparison with the source: equal, or the number of differing rows and their tables."""
    card = results(done, *columns)
    differing = [r for r in done if r.counts.get("differing_rows")]
    if not done:
        card.verdict = "not compared with the source: see check_source"
    elif differing:
        count = sum(r.counts["differing_rows"] for r in differing)
        card.level, card.verdict = BAD, f"{count:,} row(s) differ, in " + ", ".join(r.table for r in differing)
    elif card.level == GOOD:
        card.verdict = (
            f"equal: {_tables(len(done), '')}, {sum(r.counts.get('source_rows', 0) for r in done):,} rows".replace(
                " ,", ","
            )
        )
    return card


def health(rows: Sequence[dict[str, Any]], *columns: str) -> Card:
    """Show the state of tables; a row whose `health` (see `explore.tables`) is not `healthy` needs care."""

    def level(row: dict[str, Any]) -> str:
        if str(row.get("action", "")).startswith("cannot"):
            return BAD
        return CARE if row.get("health", "healthy") != "healthy" else GOOD

    levels = Counter(level(row) for row in rows)
    files, size = _sum(rows, "data_files"), _sum(rows, "mb")
    said = [_tables(len(rows), f"with {_sum(rows, 'rows'):,} rows in {files:,} files ({size:,.1f} MB)")]
    said += [_tables(levels[CARE], f"need{'s' * (levels[CARE] == 1)} maintenance")] if levels[CARE] else []
    said += [_tables(levels[BAD], "cannot be looked at")] if levels[BAD] else []
    pending = _sum(rows, "pending")
    said += [f"{pending:,} file(s) pending"] if pending else []
    return Card(next((x for x in (BAD, CARE) if levels[x]), GOOD), "; ".join(said), rows, columns, level)


def difference(found: Changed) -> Card:
    """Show the differences between two states of a table."""
    counts = {word: n for word, n in found.counts.items() if n}
    said = ", ".join(f"{n:,} {word}" for word, n in counts.items()) or "the same rows"
    return Card(GOOD if counts else STILL, f"{found.table}: {said}", found.sample)


def stage(found: Stage) -> Card:
    """Show one stage of a batch, a load or maintenance: its sentence, and rows of which the bad ones stand out."""
    level = CARE if found.failed else STILL
    return Card(level, found.said, found.rows, (), lambda row: BAD if "bad row" in row else STILL)


def as_of(found: AsOf) -> Card:
    """Show all tables at one time of the source: the chosen states, and what is uncertain."""

    def level(row: dict[str, Any]) -> str:
        return BAD if row.get("snapshot") is None else CARE if row["unsure"] else GOOD

    levels = Counter(level(row) for row in found.rows)
    said = [_tables(levels[GOOD], "known exactly")] if levels[GOOD] else []
    said += [_tables(levels[CARE], "with something unsure")] if levels[CARE] else []
    said += [_tables(levels[BAD], "cannot be shown")] if levels[BAD] else []
    worst = next((x for x in (BAD, CARE) if levels[x]), GOOD)
    return Card(worst, f"as of {found.when}: " + "; ".join(said), found.rows, (), level)
