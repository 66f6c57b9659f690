"""What a verb did to each table: one record per table, their outcome, and the exit code of a command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from frazil.errors import FrazilError, many, safe

if TYPE_CHECKING:
    import pandas as pd

EXIT_CODES = {"ok": 0, "failed": 1, "wrong settings": 2, "some failed": 3, "decision": 4, "breach": 6, "nothing": 10, "skipped": 11}  # fmt: skip
"""The exit code of each outcome of a command. From 10 on they are no errors."""
STILL = frozenset({"unchanged", "exists", "healthy", "empty", "stopped"})
"""Statuses of tables to which nothing was done."""


class Shown(ABC):
    """Data that notebooks and terminals show as a table."""

    @abstractmethod
    def to_pandas(self) -> pd.DataFrame:
        """Return the data as rows and columns."""

    def __repr__(self) -> str:
        from frazil.report.tables import text

        return text(self.to_pandas())

    def _repr_html_(self) -> str:
        from frazil.report.tables import html

        return html(self.to_pandas())


@dataclass(frozen=True)
class Result:
    """What a verb did to one table.

    `status` is one word, such as `merged`. `code` names the error, or what the table waits for. `counts` are rows, files,
    batches. `decision`: a person must say how to go on.
    """

    table: str
    status: str
    note: str = ""
    code: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    decision: bool = False

    @classmethod
    def of_error(cls, table: str, error: Exception) -> Result:
        """Return the result of a table that an error stopped; an error that is not Frazil's own has its class as a code."""
        if isinstance(error, FrazilError):
            return cls(table, "failed", str(error), error.code, decision=error.decision)
        return cls(table, "failed", safe(error), type(error).__name__)

    @property
    def failed(self) -> bool:
        """Whether an error stopped the table."""
        return self.status == "failed"

    def row(self) -> dict[str, Any]:
        """Return the result as one flat row."""
        told = {"seconds": round(self.seconds, 1), "code": self.code, "note": self.note}
        return {"table": self.table, "status": self.status, **self.counts, **told}


class Results(Shown, Sequence[Result]):
    """The results of all tables of a verb, which a notebook shows as a table."""

    def __init__(self, results: Sequence[Result] = ()):
        self._results = list(results)

    def __getitem__(self, at):
        return self._results[at]

    def __len__(self) -> int:
        return len(self._results)

    @classmethod
    def together(cls, results: Iterable[Result]) -> Results:
        """Return one result for each table of several verbs; a failure stays, whatever came after it."""
        found: dict[str, Result] = {}
        for now in results:
            before = found.get(now.table)
            found[now.table] = before if before and before.failed else added(before, now)
        return cls([*found.values()])

    @property
    def busiest(self) -> str | None:
        """The table with most rows; the first by name if no table has any; None without tables."""
        by_rows = sorted(self, key=lambda r: (-r.counts.get("changes", 0) - r.counts.get("rows", 0), r.table))
        return by_rows[0].table if by_rows else None

    @property
    def failed(self) -> list[Result]:
        """The results of the tables that an error stopped."""
        return [r for r in self if r.failed]

    @property
    def outcome(self) -> str:
        """The outcome of all tables: a key of `EXIT_CODES`."""
        statuses = {r.status for r in self}
        if any(not r.decision for r in self.failed):
            return "failed" if len(self.failed) == len(self) else "some failed"
        if self.failed or statuses & {"waiting", "differs"}:
            return "decision"
        if "skipped" in statuses:
            return "skipped"
        return "nothing" if statuses <= STILL else "ok"

    def raise_if_failed(self) -> None:
        """Raise TablesFailedError that names each table that failed, with its cause; do nothing if none did."""
        if self.failed:
            causes = [line for r in self.failed for line in f"{r.table}: {r.note}".split("\n")]
            told = f"{len(self.failed)} of {many(len(self), 'table')} failed"
            raise TablesFailedError(
                told, "mend what each names; the others are done, and a run goes on from there", causes
            )

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per table; a count that a table lacks is 0."""
        import pandas as pd

        counts = dict.fromkeys(name for r in self for name in r.counts)
        return pd.DataFrame([{**r.row(), **{n: r.counts.get(n, 0) for n in counts}} for r in self])

    def _repr_html_(self) -> str:
        from frazil.report.tables import html

        return html(self.to_pandas(), bad=[r.failed for r in self])


def added(before: Result | None, now: Result) -> Result:
    """Return a table's result after one more: counts add up, and the last status with news counts."""
    if before is None:
        return now
    names = {**before.counts, **now.counts}
    counts = {name: before.counts.get(name, 0) + now.counts.get(name, 0) for name in names}
    newest = before if now.status in ("unchanged", "equal") and not before.failed else now
    return replace(newest, counts=counts, seconds=before.seconds + now.seconds)


class TablesFailedError(FrazilError, code="tables-failed"):
    """Some tables failed, and the others are done. The message has the cause of each: mend them and run again."""
