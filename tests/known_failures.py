"""The expected failures of the library under test: each must fail, and for the reason that the list states."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

from world import house_name

LIST = Path(__file__).parent / "known_failures.yml"


@cache
def listed() -> dict[str, dict]:
    """Return the entries of the library under test, by test."""
    return {entry["test"]: entry for entry in yaml.safe_load(LIST.read_text())[house_name()] or []}


def entry_of(item) -> dict | None:
    """Return the entry of a test: of its case, or of all its cases."""
    name = f"{item.path.name}::{item.name}"
    return listed().get(name) or listed().get(name.split("[")[0])


def judged(report, item):
    """Return a test's report: an expected failure is shown as such, and a surprise is a failure."""
    entry = entry_of(item)
    if not entry or report.when != "call" or report.skipped:
        return report
    if report.passed:
        report.outcome, report.longrepr = "failed", f"passes, though {LIST.name} lists it: {entry['kind']}"
    elif re.search(entry["shows"], str(report.longrepr), re.DOTALL):
        report.outcome, report.wasxfail = "skipped", entry["kind"]
    return report
