"""How a table's columns follow its spec and its files: each case is a history of edits and files, with what each of them does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from msgspec import structs

from frazil.dms.file_columns import FileColumns, file_columns
from frazil.dms.mappings import resolve
from frazil.dms.source_file import SourceFile, SourceTable
from frazil.errors import FrazilError
from frazil.iceberg.columns import Columns, columns_of
from frazil.pipeline.schema_changes import follow, read_spec
from frazil.settings.settings_model import Changes
from frazil.settings.spec import TableSpec
from unit.test_file_columns import table

SHORT = {"rename": "{name}>{to}", "add": "+{name} {to} behind {after}", "drop": "-{name}", "widen": "{name}:{to}", "comment": "{name}#{to}"}  # fmt: skip
ADD, IGNORE, KEEP, DROP, BESIDE = {"new": "add"}, {"new": "ignore"}, {"gone": "keep"}, {"gone": "drop"}, {"type": "beside"}  # fmt: skip
ID, V, N, X = "id INT8", "v WSTRING(9)", "n INT4", "n WSTRING(9)"
IV, VN, VX, AB = f"{ID}; {V}", f"{ID}; {V}; {N}", f"{ID}; {V}; {X}", f"{ID}; a CLOB; b CLOB"
SMALL, LARGE = f"{ID}; n INT4; r REAL4; d NUMERIC(6,2)", f"{ID}; n INT8; r REAL8; d NUMERIC(12,2)"


def spec_of(text: str, **more) -> TableSpec:
    """Return a spec of columns as `new WSTRING(9) < old, older`; `hash` masks one, `#word` is its comment."""
    columns = []
    for words, _, former in (entry.partition(" < ") for entry in text.split("; ")):
        name, kind, *marks = words.split(" ")
        notes = {"mask": "sha256" if "hash" in marks else "", "comment": "".join(m[1:] for m in marks if m[0] == "#")}
        columns.append({"name": name, "type": kind, "renamed_from": former.split(", ") if former else [], **notes})
    return table(columns=columns, **more).spec


def known_of(text: str) -> Columns:
    return Columns(0, tuple(structs.replace(k, id=n) for n, k in enumerate(columns_of(spec_of(text)).columns, start=1)))


def columns_in(text: str, spec: TableSpec) -> FileColumns:
    """Return a file's columns: names, of Parquet with types behind `:`; `LOAD` or `earlier` may stand in front."""
    kind, _, listed = text.rpartition(" ")
    typed = [entry.split(":") for entry in re.split(r",(?!\d)", listed)]
    parquet = [("Op", "WSTRING"), *map(tuple, typed)] if ":" in listed else None
    name = "LOAD00000001.csv" if kind == "LOAD" else "20240101-100000000.csv"
    file = SourceFile(name, name, lambda: [["Op", "ts", *listed.split(",")]], parquet)
    return replace(file_columns(SourceTable(spec, resolve([], spec), table().target), file), earlier=kind == "earlier")


def step(known: Columns, spec: TableSpec, file: str, policy: dict) -> tuple[str, str, Columns]:
    """Return the steps that an edit or a file needs, the columns by which it is read, and what is known then."""
    shown, changes = [columns_in(file, read_spec(known, spec))] if file else [], Changes(**policy)
    read, plan = follow(known, spec, changes, shown, file.startswith("LOAD"))
    by = " ".join(f"{column.name}:{column.lake}".strip(":") for column in read.columns)
    if not plan:
        return "", by, known
    new = max(k.id for k in known.columns) + 1
    after = Columns(0, tuple(structs.replace(k, id=k.id or new + n) for n, k in enumerate(plan.known)), plan.dropped)
    assert len({k.name for k in after.columns}) == len({k.id for k in after.columns}) == len(after.columns)
    assert after != known and not follow(after, spec, changes, shown)[1], "what is done is not done twice"
    return "; ".join(SHORT[step["step"]].format(**step) for step in plan.steps), by, after


@pytest.mark.parametrize(("first", "edit", "file", "policy", "code", "named"), [
    (VN, None, "id,v,n,w", {}, "unknown-column", "'w' {new:_add} 2024"), (VN, f"{ID}; {V}; n INT8; d DATE", "id,v,n,d,e", {}, "unknown-column", "'e'"),
    (VN, None, "id,v", ADD, "column-gone", "'n' {gone:_keep} renamed_from 2024"), (VN, None, "LOAD id,v", {}, "column-gone", "'n' LOAD"),
    (VN, None, "id,w,n", ADD | KEEP, "unknown-column", "'w' 'v' renamed_from:_v"), (VN, IV, "id,v,n", {}, "column-unlisted", "'n' renamed_from <memory> {gone:_keep}"),
    (VN, VX, "", {}, "type-changed", "'n' WSTRING(9) int {type:_beside}"), (IV, "id WSTRING(9); v WSTRING(9)", "", BESIDE, "type-changed", "'id' bigint"),
    (f"{ID}; value CLOB", f"{ID}; text CLOB < valu", "", KEEP, "rename-unclear", "valu renamed_from:_value"), (AB, f"{ID}; a CLOB < b; b CLOB", "", {}, "rename-unclear", "'a' 'b' third"),
    (AB, f"{ID}; a CLOB < b; b CLOB < c; c CLOB < a", "", KEEP, "rename-unclear", "'a' 'b'"), (VN, f"{VN}; N DATE", "", {}, "name-impossible", "'N' 'n' <memory>"),
    (VN, None, "id,v,n,V", ADD, "name-impossible", "'V' 'v' 2024 renamed_from:_V"), (VN, None, "id,v,n,_FILE", ADD, "name-impossible", "'_FILE' reserves"),
])  # fmt: skip
def test_a_change_that_nothing_declares_is_refused(first, edit, file, policy, code, named):
    with pytest.raises(FrazilError) as refused:
        step(known_of(first), spec_of(edit or first), file, policy)
    assert (refused.value.code, refused.value.decision) == (code, True)
    assert [word for word in named.split(" ") if word not in str(refused.value).replace(" ", "_")] == []


@pytest.mark.parametrize(("first", "history"), [  # edit, file, policy, steps, the columns by which the file is read
    (VN, [(None, "id,v,n", {}, "", "id v n"), (f"w DATE #Day; {VN}", "id,v,n", {}, "+w date behind ", "w id v n"), (None, "id,v,n,w", {}, "", "w id v n"),
          (f"w DATE #Tag; {VN}", "", {}, "w#Tag", "w id v n"), (None, "id,v,n", KEEP, "", "w id v n")]),
    (VN, [(None, "id,v,n,more", IGNORE, "", "id v n"), (None, "id,v,n,most", ADD, "+most string behind n", "id v n most"), (None, "id,v,n,most", {}, "", "id v n most"),
          (f"{VN}; all CLOB < most", "id,v,n,most", {}, "most>all", "id v n all"), (VN, "", DROP, "-all", "id v n")]),
    (VN, [(None, "id,v,n,w", ADD, "+w string behind n", "id v n w"), (None, "id,v,n", KEEP, "", "id v n w"), (None, "id,v,n,w", {}, "", "id v n w"), (None, "id,v,n", DROP, "-w", "id v n")]),
    (VN, [(IV, "id,v", KEEP, "", "id v"), (None, "id,v", {}, "", "id v"), (None, "LOAD id,v,n", {}, "", "id v n"), (None, "id,v", {}, "", "id v"), (VN, "", {}, "", "id v n")]),
    (VN, [(IV, "id,v", DROP, "-n", "id v"), (None, "LOAD id,v,n", {}, "", "id v"), (None, "id,v,n", {}, "", "id v"), (None, "id,v", {}, "", "id v"), (None, "id,v,n", ADD, "+n string behind v", "id v n")]),
    (VN, [(f"{IV}; w DATE", "earlier id,v,n", KEEP, "+w date behind v", "id v w n"), (None, "id,v,w", {}, "", "id v w"), (None, "LOAD id,v,n", {}, "", "id v w n")]),
    (SMALL, [(LARGE, "", {}, "n:long; r:double; d:decimal(12, 2)", "id n r d"), (SMALL, "id,n,r,d", {}, "", "id n:bigint r:double d:decimal(12,2)")]),
    (SMALL, [(None, "LOAD id:INT8,n:UINT4,r:REAL8,d:NUMERIC(60,2)", {}, "n:long; r:double", "id n:bigint r:double d"), (None, "id:INT8,n:INT4,r:REAL4,d:INT8", {}, "", "id n:bigint r:double d"),
             (None, "id:INT8,n:INT8,r:REAL4,d:INT8,w:INT4", ADD, "+w int behind d", "id n:bigint r:double d w"), (None, "id:INT8,n:INT8,r:REAL4,d:INT8,w:INT8", {}, "w:long", "id n:bigint r:double d w:bigint")]),
    (VN, [(VX, "id,v,n", BESIDE, "+n string behind v; n>n_int", "id v n"), (None, "id,v,n", DROP, "", "id v n"), (VN, "", BESIDE, "+n int behind v; n>n_string", "id v n")]),
    (f"{IV} hash", [(IV, "", BESIDE, "+v string behind id; v>v_string", "id v")]), (f"{IV}; m INT4 < q", [("n INT8 < id; v CLOB; m INT4 < q", "", {}, "id>n", "n v m")]),
])  # fmt: skip
def test_columns_follow_edits_and_files(first, history):
    known, spec = known_of(first), spec_of(first)
    for edit, file, policy, steps, read in history:
        spec = spec_of(edit, key="n" if "n INT8 < id" in edit else "id") if edit else spec
        done, by, known = step(known, spec, file, policy)
        assert (done, by) == (steps, read), (edit, file)


@pytest.mark.parametrize(("edit", "key"), [(VN, "id, v"), (VN, "v"), (f"{V}; {N}", "v"), (f"no INT8 < id; {V}", "no, v"), ("", "id, v")])  # fmt: skip
def test_another_key_of_the_spec_or_by_old_values_is_refused(edit, key):
    spec = spec_of(edit or VN, key=key.split(", ") if edit else "id")
    file = [] if edit else [replace(columns_in("id,v,n", spec), further_keys=("v",))]
    with pytest.raises(FrazilError, match=re.escape(f"({key}), and was (id) [key-changed]")):
        follow(known_of(VN), spec, Changes(gone="keep"), file)
