"""The cases of files and values, through the rooms of both: `value_door` keeps its tables in memory."""

from __future__ import annotations

import pytest

import test_cases
import test_values
from case_worlds import Case, through
from dms_writer import BEFORE_IMAGE, NO_RULES, Messages
from unit.value_door import Door

FILES = ["values", "declared", "order", "partial_rows", "bad_rows", "forms", "all_tables", "columns", "late_files", "layouts"]  # fmt: skip
BEYOND = {"told", "position", "columns_there", "renamed", "by_others", "cure", "gone", "aged", "new_process"}
"""What a case may do or see that other rooms answer for."""
ELSEWHERE = {"a key at the limit that a load holds twice is named", "a folder of a schema that is not there fails its table alone"}  # fmt: skip
"""Cases that other rooms answer for: stored keys, folders."""
CHANGED = {
    "a file without the header that the settings state is refused", "a file with a header that the settings do not state is refused",
    "rows that wait are read by a layout that is declared later", "a layout that names no added column is refused",
}  # fmt: skip
"""Cases that end in another way, as changed.md says: `file-over-setting`, `layouts`."""


def of_values(file: str, world: str) -> dict[str, dict]:
    """Return the cases of a world that are about files and values alone."""
    cases = {n: c for n, c in test_cases.cases(file, world).items() if n not in ELSEWHERE | CHANGED}
    return {n: c for n, c in cases.items() if not BEYOND & ({*c} | {word for s in c.get("steps", []) for word in s})}


WORLDS = [(f, world) for f in FILES for world in test_cases.read(f)["worlds"] if of_values(f, world)]


def without_counts(result: dict | str) -> dict | str:
    return {w: v for w, v in result.items() if w != "counts"} if isinstance(result, dict) else result


@pytest.mark.parametrize(("file", "name"), WORLDS)
def test_a_case_ends_as_it_says(tmp_path, file, name):
    said = test_cases.read(file)["worlds"][name] or {}
    world = Door(tmp_path / "w", said.get("target", {}), **said.get("settings", {}))
    if "stream" in said:
        world.reads("memory", Messages(world.specs, **said.get("target", {})))
    elif "rules" in said:
        world.source.rules = {"none": NO_RULES, "before-image": BEFORE_IMAGE}.get(str(said["rules"]), said["rules"])
    found = [Case(world, n, c) for n, c in of_values(file, name).items()]
    through(world, found)
    for case in found:
        for number, (step, seen) in enumerate(zip(case.steps, case.found, strict=True)):
            at = f"{case.name}: step {number + 1}"
            test_cases.check_result({**step, "result": without_counts(step.get("result", {}))}, seen, at)
            test_cases.check_table(step, seen, at)


@pytest.mark.parametrize("form", test_values.FORMS)
def test_each_type_in_each_form_is_exact_or_its_row_is_bad(tmp_path, form):
    world = Door(tmp_path / "w", test_values.FORMS[form], on_bad_rows="quarantine")
    if form == "messages":
        world.reads("memory", Messages(world.specs))
    else:
        world.source.rules = NO_RULES
    test_values.fill(world, form)
    assert {r.status for r in world.through().values()} == {"merged"}
    rows = {row[0]: dict(zip(test_values.ALL, row[1:], strict=True)) for row in world.rows("t")}
    for column in test_values.ALL:
        test_values.test_a_value_is_exact_whether_a_load_or_a_change_brings_it(world, rows, column)
        bad = world.quarantine("bad")
        test_values.test_a_value_that_does_not_fit_leaves_its_row_in_the_quarantine(world, bad, column)
    test_values.test_no_row_with_a_value_that_does_not_fit_is_in_the_table(world)
