"""Random histories: whatever source, library and others do in turn, the tables hold what a replay of DMS's output comes to."""

from __future__ import annotations

import json
import os

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from dms_streams import Topic
from history import SHAPES, History

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]

HEADER = {"AddColumnName": True, "CsvNullValue": "NULL"}
PARTIAL = {"CsvNullValue": "NULL", "UseCsvNoSupValue": True, "CsvNoSupValue": "?"}
KINDS = {
    "v3": {"format_version": 3, "target": HEADER},
    "v2": {"format_version": 2, "target": HEADER},
    "v3 packed": {"format_version": 3, "target": {**HEADER, "CompressionType": "GZIP"}},
    "v3 partial": {"format_version": 3, "target": PARTIAL},
    "v3 parquet": {"format_version": 3, "target": {"DataFormat": "parquet"}},
    "v3 stream": {"format_version": 3},
    "v2 stream": {"format_version": 2},
}
"""The kinds of histories: the settings of their world."""
IN_SHORT = [("v3", 1), ("v2", 3), ("v2", 4), ("v3 partial", 5), ("v3 parquet", 6), ("v3 stream", 7)]


@pytest.fixture
def new_history(open_world, request):
    """Begin a history of a kind."""

    def make(kind: str) -> History:
        world = open_world(on_bad_rows="quarantine", **KINDS[kind])
        if "stream" in kind:
            Topic(world, request.getfixturevalue("kafka"), partitions=len(SHAPES))
        return History(world, kind)

    return make


class Steps(RuleBasedStateMachine):
    """Steps by chance, each of which is compared with the model; `begin` makes the history."""

    begin, number = None, 0

    @initialize()
    def start(self):
        self.history, self.seeds = type(self).begin(), [self.number]

    @rule(seed=st.integers(0, 10**6))
    def step(self, seed):
        self.seeds.append(seed)
        self.history.by_chance(*self.seeds)


def run(begin, number: int, examples: int, steps: int, **more) -> None:
    """Run histories that `begin` makes, each with so many steps; the number makes them differ from others."""
    settings = hypothesis.settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, print_blob=False,
        suppress_health_check=list(HealthCheck), **more,
    )  # fmt: skip
    machine = type("Steps", (Steps,), {"begin": staticmethod(begin), "number": number})
    run_state_machine_as_test(machine, settings=settings)


@pytest.mark.parametrize(("kind", "number"), IN_SHORT)
def test_a_history_ends_as_a_replay(new_history, kind, number):
    run(lambda: new_history(kind), number, 1, 14, derandomize=True, phases=[Phase.generate])


@pytest.mark.torture
@pytest.mark.parametrize("kind", KINDS)
def test_long_histories_end_as_a_replay(new_history, kind):
    run(lambda: new_history(kind), 0, int(os.environ.get("COUNT") or 20), 40, phases=[Phase.generate, Phase.shrink])


if given := json.loads(os.environ.get("FRAZIL_HISTORY", "null")):

    def test_the_given_history_is_repeated(new_history):
        kind, steps = given
        history = new_history(kind)
        for name, arguments in steps:
            history.done(name, **arguments)
