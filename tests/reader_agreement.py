"""A pytest plugin: whatever files a test reads, the core reads them too, and each difference is written down.

Run it over any tests: `FRAZIL_DIFFERENCES=/tmp/differences.txt pytest -p reader_agreement tests/test_forms.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from frazil.flows import batch, full_load
from torture import readers

_real = batch.read_rows


def _compared(spark, spec, endpoint, mappings, files, phase, whole=True):
    """Read files as before, and let both readers say what is in each that is a table's own."""
    table = readers.Table(spec, endpoint, mappings, phase)
    own = [f for f in files if not f.name.startswith("CDC_TXN-")]
    try:
        by = readers.each_by_spark(spark, table, own) if own else {}
    except Exception as error:  # a file that Spark alone cannot even refuse
        _write(f"{spec.source}: Spark: {type(error).__name__}")
        by = {}
    for file in own if by else ():
        core = readers.outcome(lambda file=file: readers.by_core(table, file))
        found = readers.verdict(by[file.name], core, None)
        if not found.startswith(("equal", "both")):
            _write(f"{found} {file.path}\n  Spark {readers.first_difference(by[file.name], core)}")
    return _real(spark, spec, endpoint, mappings, files, phase, whole)


def _write(text: str) -> None:
    with Path(os.environ["FRAZIL_DIFFERENCES"]).open("a") as out:
        out.write(f"{os.environ.get('PYTEST_CURRENT_TEST', '')}: {text}\n")


@pytest.fixture(autouse=True)
def both_readers(monkeypatch):
    for module in (batch, full_load):
        monkeypatch.setattr(module, "read_rows", _compared)
