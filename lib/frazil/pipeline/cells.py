"""The steps of one batch for the cells of a notebook, and the notebook's end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, partialmethod
from typing import TYPE_CHECKING, Any

from frazil.errors import FrazilError
from frazil.iceberg.commits import Change, PositionMovedError
from frazil.pipeline import decisions, run
from frazil.pipeline.batch import Batch, Commit, WrittenBatch
from frazil.pipeline.steps import Table
from frazil.results import Result, Results

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake
    from frazil.report.step_values import Step


class Steps:
    """The steps of a table's next batch of changes for cells: errors are shown. After the commit only what they show is kept."""

    def __init__(self, table: Table, most: int | None = None):
        self.table, self.most = table, most
        self._kept: list[Step] = []

    def _done(self, work: Callable[..., Any], *given: Step) -> Step:
        """Return what a step comes to: an error of Frazil is shown, and what ended a step before it is passed on."""
        from frazil.report.step_values import Step

        if ended := [step for step in given if isinstance(step.value, Results)]:
            return ended[0]
        try:
            with self.table.busy:
                done = Step(work(self.table, *(step.value for step in given)))
        except FrazilError as error:
            return Step(Results([run.result_of(self.table, error)]))
        self._kept.append(done)
        return done

    columns, read = partialmethod(_done, Table.columns), partialmethod(_done, Table.read)
    latest, write = partialmethod(_done, Table.latest), partialmethod(_done, Table.write)

    def next(self) -> Step:
        """Return the next batch, which `most` rows cut, once the setting `decide` is carried out."""
        return self._done(partial(_next, most=self.most))

    def commit(self, written: Step) -> Step:
        """Make the swap of a written batch, exactly once."""
        done = self._done(Table.commit, written)
        if isinstance(done.value, Commit):
            self._kept.remove(done)
            while self._kept:
                _let_go(self._kept.pop())
        return done


def _next(table: Table, most: int | None) -> Batch | Results:
    decisions.carry_out(table)
    batch = table.next(most)
    if batch and batch.kind != "load":
        return batch
    why = "its next batch is a load, which 01_full_load applies" if batch else "nothing is pending"
    return Results([Result(table.source, "unchanged", why)])


steps = Steps


def finish(lake: Lake, *results: Results | Step | Commit | None) -> None:
    """Write `run.json`, and raise TablesFailedError with every cause if a table failed, or a step.

    A table that only cells committed gets what the loop does after its batches.
    """
    given = [getattr(one, "value", one) for one in results]
    commits = [one.result for one in given if isinstance(one, Commit)]
    verbs = [result for one in given if isinstance(one, Results) for result in one]
    alone = {result.table for result in commits} - {result.table for result in verbs}
    kept = [run.attempt(lake[source], run.keep_fast) for source in sorted(alone)]
    together = Results.together([*commits, *verbs, *kept])
    lake.record.end(together)
    lake.record.write(lake.folder)
    lake.say(f"{lake.record.outcome}: {lake.folder}/run.json")
    together.raise_if_failed()


def _let_go(step: Step) -> None:
    """Keep of a step only what is shown, and what finds the commit of a written batch."""
    step.value = replace(step.value, again=_gone) if isinstance(step.value, WrittenBatch) else None


def _gone() -> Change:
    raise PositionMovedError("the batch was committed, and others undid it", "take it again: batch = step.next()")
