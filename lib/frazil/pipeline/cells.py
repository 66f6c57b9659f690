"""The steps of one batch for the cells of a notebook, and the notebook's end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from frazil.errors import FrazilError
from frazil.iceberg.swap import Change, PositionMovedError
from frazil.pipeline import decisions, run
from frazil.pipeline.batch import Batch, Commit, WrittenBatch
from frazil.pipeline.steps import Table
from frazil.results import Result, Results, Shown

if TYPE_CHECKING:
    import pandas as pd

    from frazil.pipeline.lake import Lake


class Step(Shown):
    """What a step came to: `value` is what the table's own step returned, or the Results that say why there is nothing."""

    def __init__(self, value: Any):
        self.value = value
        self._shown: pd.DataFrame | None = None

    def to_pandas(self) -> pd.DataFrame:
        """Return what a cell shows."""
        return self.value.to_pandas() if self._shown is None else self._shown

    def let_go(self) -> None:
        """Keep only what is shown, and what finds the commit of a written batch."""
        self._shown = self.to_pandas()
        self.value = replace(self.value, again=_gone) if isinstance(self.value, WrittenBatch) else None


def _as_of_table(step: Callable[..., Any]) -> Callable[..., Step]:
    def of_cells(self: Steps, *given: Step) -> Step:
        return self._done(getattr(self.table, step.__name__), *given)

    of_cells.__doc__ = step.__doc__
    return of_cells


class Steps:
    """The six steps of a table's next batch of changes, as `Table` has them; after the commit only what they show is kept."""

    columns, read = _as_of_table(Table.columns), _as_of_table(Table.read)
    latest, write = _as_of_table(Table.latest), _as_of_table(Table.write)

    def __init__(self, table: Table, most: int | None = None):
        self.table, self.most = table, most
        self._kept: list[Step] = []

    def next(self) -> Step:
        """Return the next batch, once the setting `decide` is carried out."""
        return self._done(self._next)

    def commit(self, written: Step) -> Step:
        """Make the swap of a written batch, exactly once."""
        done = self._done(self.table.commit, written)
        while isinstance(done.value, Commit) and self._kept:
            self._kept.pop().let_go()
        return done

    def _done(self, work: Callable[..., Any], *given: Step) -> Step:
        """Return what a step comes to: an error of Frazil is shown, and what ended a step before it is passed on."""
        if ended := [step for step in given if isinstance(step.value, Results)]:
            return ended[0]
        try:
            with self.table.busy:
                done = Step(work(*(step.value for step in given)))
        except FrazilError as error:
            return Step(Results([run.result_of(self.table, error)]))
        self._kept += [] if isinstance(done.value, Commit) else [done]
        return done

    def _next(self) -> Batch | Results:
        decisions.carry_out(self.table)
        batch = self.table.next(self.most)
        if batch and batch.kind != "load":
            return batch
        why = "its next batch is a load, which 01_full_load applies" if batch else "nothing is pending"
        return Results([Result(self.table.source, "unchanged", why)])


def steps(table: Table, most: int | None = None) -> Steps:
    """Return the steps of a table's next batch of changes for cells, which show errors; `most` rows cut the batch."""
    return Steps(table, most)


def finish(lake: Lake, *results: Results | Step | Commit | None) -> None:
    """Write `run.json`, and raise TablesFailedError with every cause if a table failed, or a step.

    A table that only cells committed gets what the loop does after its batches.
    """
    given = [one.value if isinstance(one, Step) else one for one in results]
    commits = [one.result for one in given if isinstance(one, Commit)]
    verbs = [result for one in given if isinstance(one, Results) for result in one]
    alone = {result.table for result in commits} - {result.table for result in verbs}
    kept = [run.attempt(lake[source], run.keep_fast) for source in sorted(alone)]
    together = Results.together([*commits, *verbs, *kept])
    lake.record.end(together)
    lake.record.outcome = lake.record.outcome if together else "ok"
    lake.record.write(lake.folder)
    lake.say(f"{lake.record.outcome}: {lake.folder}/run.json")
    together.raise_if_failed()


def _gone() -> Change:
    raise PositionMovedError("the batch was committed, and others undid it", "take it again: batch = step.next()")
