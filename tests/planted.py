"""Plant one fault of each kind in a copy of the library, run the tests that should see it, and print which went red.

python tests/planted.py [WORD ...]    only the faults whose kind holds one of the words
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
COPIED = ("lib", "tests", "params", "notebooks")


class Fault(NamedTuple):
    """A fault: its kind, the tests that should see it, a file of the library, a text in it, and what it is replaced by."""

    kind: str
    tests: str
    file: str
    sound: str
    broken: str


def of_values(kind: str, file: str, sound: str, broken: str) -> Fault:
    """Return a fault on the way of a value in `frazil`."""
    tests = "unit/test_exact.py unit/test_csv.py unit/test_changes.py unit/test_latest.py test_cases.py"
    return Fault(f"values: {kind}", tests, f"{file}.py", sound, broken)


def of_tables(kind: str, file: str, sound: str, broken: str, tests: str = "commits histories tables") -> Fault:
    """Return a fault in the Iceberg room of `frazil`."""
    files = " ".join(f"unit/test_iceberg_{name}.py" for name in tests.split())
    return Fault(f"tables: {kind}", files, f"iceberg/{file}", sound, broken)


def of_files(kind: str, file: str, sound: str, broken: str) -> Fault:
    """Return a fault in what `frazil` makes of a source's files."""
    tests = "unit/test_files.py unit/test_file_columns.py unit/test_endpoint.py test_cases.py"
    return Fault(f"files: {kind}", tests, f"{file}.py", sound, broken)


def of_trunk(kind: str, file: str, sound: str, broken: str) -> Fault:
    """Return a fault in the steps, the loop or a decision of `frazil`."""
    return Fault(f"trunk: {kind}", "unit/test_steps_and_runs.py test_cases.py test_guarantees.py", f"{file}.py", sound, broken)  # fmt: skip


FAULTS = [
    of_values("a decimal is rounded", "core/exact_one_text", "    if cut != value:\n", "    if False:\n"),
    of_values("a decimal overflows without an error", "core/exact", "values.cast(pa.decimal256(76, max(target.scale, getattr(one, \"scale\", 0)))).cast(target)", "values.cast(target)"),
    of_values("a number with an exponent is taken though it was rounded", "core/exact_one_text", 'or ("e" in text.lower() and value.copy_abs() > EXACT_REALS)', ""),
    of_values("hex digits become an integer", "core/csv", "if _has_hex(text) else set()", "if False else set()"),
    of_values("an empty text becomes null", "core/changes", "    if column.dms_type not in _HAVE_EMPTY:\n", "    if True:\n"),
    of_values("a value that was not logged becomes null", "core/changes", "if reading.not_carried is not None and role", "if False and role"),
    of_values("a row ends within a text", "core/row_blocks", "ends[np.searchsorted(quotes, ends) % 2 == 0] if len(quotes) else ends", "ends"),
    of_values("a quote in a text ends it", "core/row_blocks", "    if len(wrong):\n", "    if False:\n"),
    of_values("a bad row has the number of another", "core/csv", "np.delete(block.numbers, places) if wrong else block.numbers", "block.numbers[: len(block.numbers) - len(wrong)]"),
    of_values("a row of one table is given to another", "engine/transactions", "len(known)) if table else -1", "0) if table else -1"),
    of_values("a changed key leaves its old row", "core/key_changes", "    if moved.any():\n", "    if False:\n"),
    of_values("the first change of a key wins over its last", "core/key_changes", "found[numbers[events]] = events  #", "found[numbers[events[::-1]]] = events[::-1]  #"),
    of_values("a deleted row gives a value to the row inserted after it", "core/partial_rows", "carried = at > deleted", "carried = at >= 0"),
    of_values("a masked value is shown", "core/changes", "    if column.mask:\n        return values, Fault", "    if False:\n        return values, Fault"),
    of_tables("a second writer commits from an old position", "commits.py", "if planned is not None and table.position != planned:", "if False:"),
    of_tables("a swap is made on what others committed since", "Commits.java", "if (!base.equals(metadata.metadataFileLocation()))", "if (false)"),
    of_tables("a batch does not move the position", "commits.py", "structs.replace(position or table.position,", "structs.replace(table.position,"),
    of_tables("a batch of unknown outcome is written again", "commits.py", "        if found := find(table, first):\n            return found\n        if not", "        if not"),
    of_tables("files that are too old are committed", "commits.py", "and time.time() - self.at_s < OLDEST_S", ""),
    of_tables("a rollback is not seen", "soundness.py", "    if made_on == own.id:\n", "    if True:\n"),
    of_tables("a batch is written again after a rollback", "commits.py", "        if not now.change.anew:\n", "        if not attempt and not now.change.anew:\n"),
    of_tables("a batch is written after a rollback", "commits.py", "        if not now.change.anew:\n", "        if attempt and not now.change.anew:\n"),
    of_tables("segments are kept over a rollback", "key_segments.py", "if self._right_for != (table, table.rewinds):", "if False:"),
    of_tables("row ids are given anew", "row_delta.py", "mask=row_id[kept] < 0)", "mask=row_id[kept] < 9)"),
    of_tables("of several data files the deletes of one are lost", "row_delta.py", "for f in found])\n", "for f in found[: max(1, len(found) - 1)]])\n"),
    of_tables("a vector has the newly deleted rows alone", "delete_files.py", "whole = [(file, old | rows)", "whole = [(file, rows)"),
    of_tables("deletes that came during a compaction are lost", "compaction.py", "places += [first + position - dead.rank(position) for position in later]", "pass"),
    of_tables("carried deletes hit other rows", "compaction.py", "first + position - dead.rank(position)", "first + position"),
    of_tables("a key that others doubled is not seen", "row_delta.py", "    require_unique_keys(table, finder)\n", ""),
    of_tables("a load with one key twice is taken", "row_delta.py", "    if places := doubled(", "    if False and doubled("),
    of_tables("columns that others changed are written to", "soundness.py", "    require_own_columns(table)\n", ""),
    of_tables("a row that lacks values gets nulls", "stored_values.py", "pc.if_else(pa.array(mask), stored[name], rows[name])", "rows[name]"),
    of_tables("rows are sorted after their keys are numbered", "data_files.py", "self._writer.write(pa.concat_tables(self._waiting).cast(self.arrow_schema))", "self._writer.write(pa.concat_tables(self._waiting).cast(self.arrow_schema).sort_by('v'))"),
    of_tables("what others committed since is expired", "expiry.py", "1 + len(require_sound(table))", "1"),
    of_files("a late file is not seen", "dms/pending", "if order_of(f.path) > since and", "if False and"),
    of_files("a copy is a second file", "dms/listing", "are_same(storage, other, file)", "False"),
    of_files("a rewritten file is taken as known", "dms/file_marks", "return found == by_etag or", "return True or"),
    of_files("a copied file counts as rewritten", "dms/file_marks", "bool(is_local) and", "False and"),
    of_files("changes from before a load count", "dms/load_rule", "written_s(f.name, fold=1) < began", "False"),
    of_files("another version of a file is read", "dms/storage", '{"if_match": file.etag, "range": (begin, end)}', '{"range": (begin, end)}'),
    of_files("a growing file is read", "dms/storage", "if self.is_local and obstore.head", "if False and obstore.head"),
    of_files("a file is written over", "dms/storage", 'data, mode="create"', "data"),
    of_files("a hole in the record accuses files", "dms/applied", "position.batch >= later.batch - 1 and", "True and"),
    of_files("a load that is missing is not seen", "dms/empty_load", "was_there & (of.before < 0)", "was_there & False"),
    of_files("a record goes on behind a load again", "dms/applied", "is_next and order_of(position.last) <= order_of(later.last)", "is_next"),
    of_files("a file that vanished is not missed", "dms/pending", "if name not in names)", "if False)"),
    of_files("a batch that ends inside of a file goes on behind it", "engine/batch_limits", "last=last, rows=self.end", "last=last, rows=None"),
    of_files("load files that are gone are not missed", "dms/load_rule", "not is_change_file(path) and there.loads and path", "False and there.loads and path"),
    of_files("the opposite of a cure is not looked for", "dms/columns_by_place", "if not opposite:", "if True:"),
    of_files("an earlier layout is not read", "dms/columns_by_place", "for entry in own[:1] or oldest", "for entry in oldest"),
    of_files("a rule's column counts as the source's", "dms/column_roles", "AFTER + source[name] if is_source else rules[name]", "UNKNOWN + name"),
    of_trunk("a batch does not move the position", "pipeline/write", "structs.replace(batch.after, quarantine=side", "structs.replace(batch.planned, quarantine=side"),
    of_trunk("two files of a batch are swapped", "pipeline/next_batch", "for file in found.files}", "for file in reversed(found.files)}"),
    of_trunk("the last file is applied twice", "dms/pending", "order_of(f.path) > last and f.name not in waits", "order_of(f.path) >= last and f.name not in waits"),
    of_trunk("rows that wait are not committed with their batch", "pipeline/write", "quarantine=side_file)", "quarantine=batch.planned.quarantine"),
    of_trunk("a failed table stops the others", "pipeline/run", "        result = result_of(table, error)\n", "        raise\n"),
    of_trunk("the load does not wait for DMS", "pipeline/next_batch", "if waits := self.table.lake.source.gate.waits(source):", "if waits := '':"),
    of_trunk("changes do not wait for their load", "pipeline/next_batch", "if loads or position.batch or is_proven:", "if True:"),
    of_trunk("a decision is made again", "pipeline/decisions", ".batch == batches[0].position.batch:", ".batch >= 0:"),
    of_trunk("a late file goes over newer rows", "pipeline/write", "if (committed < newest).any():", "if False:"),
    of_trunk("what the audit finds stops nothing", "pipeline/maintain", "decisions.halt(table, BY_AUDIT, found.problem)", "pass"),
    Fault("care: rows that still wait are deleted", "unit/test_maintain.py", "pipeline/maintain.py", "named = {position.quarantine.path for position in kept if position.quarantine}", "named = set[str]()"),
    Fault("care: a row has the origin of a later one", "test_explore.py", "pipeline/row_origin.py", "if s.sequence == number)", "if s.sequence >= number)"),
    Fault("care: a null counts as equal to an empty text", "unit/test_comparison.py", "discover/differences.py", "self.numbers([*plain, *(values.is_valid() for values in block.columns)])", "self.numbers(plain)"),
    of_trunk("a column that a file lacks becomes null", "pipeline/steps", "part.rows.drop_columns([*its.lacks])", "part.rows"),
]  # fmt: skip


def planted(fault: Fault, folder: Path) -> Path:
    """Copy the project to a folder, and plant a fault in it."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    file = folder / "lib/frazil" / fault.file
    text = file.read_text()
    if text.count(fault.sound) != 1:
        raise SystemExit(f"{fault.kind}: {fault.file} holds the text {text.count(fault.sound)} times")
    file.write_text(text.replace(fault.sound, fault.broken))
    return folder


def red_tests(fault: Fault, folder: Path) -> list[str]:
    """Return the first tests that fail."""
    tests = [f"tests/{word}" if ".py" in word else word for word in shlex.split(fault.tests)]
    order = [
        sys.executable,
        *shlex.split("-m pytest -x -q --no-header -p no:cacheprovider -m"),
        "not slow and not torture",
        *tests,
    ]
    found = {
        **os.environ,
        "PYTHONPATH": str(folder / "lib"),
        "FRAZIL_HOUSE": "new",
    }  # for Spark's Python and for kernels
    done = subprocess.run(order, cwd=folder, capture_output=True, text=True, env=found)
    return re.findall(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", done.stdout, re.MULTILINE)


def main(words: list[str]) -> int:
    """Plant the faults one after the other; return 1 if one was not seen."""
    unseen = []
    for fault in (f for f in FAULTS if not words or any(w in f.kind for w in words)):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            red = red_tests(fault, planted(fault, Path(folder)))
        unseen += [] if red else [fault.kind]
        seen, took = "seen" if red else "NOT SEEN", time.monotonic() - began
        print(f"{seen:8} {took:5.0f} s  {fault.kind}: {', '.join(red)}", flush=True)
    print(f"{len(unseen)} of the planted faults were not seen" if unseen else "every planted fault was seen")
    return bool(unseen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
