"""The comparison with the source: tables without a key, and every table that differs."""

import pytest
import yaml
from frazil_demo.postgres import EmbeddedPostgres
from frazil_old import exit_codes
from frazil_old.flows import reconcile
from frazil_old.report import notebook_output

pytestmark = pytest.mark.spark
ROWS = [(1, "a"), (1, "a"), (2, None), (3, "c")]


@pytest.fixture
def source(tmp_path):
    with pytest.MonkeyPatch.context() as patch, EmbeddedPostgres(tmp_path / "postgres") as postgres:
        patch.setenv("FRAZIL_SOURCE_URL", postgres.jdbc_url)
        patch.setenv("FRAZIL_SOURCE_USER", postgres.user)
        patch.setenv("FRAZIL_SOURCE_PASSWORD", postgres.password)
        with postgres.connect(autocommit=True) as c:
            for table in ("same", "less", "other", "log", "keyed", "equal"):
                c.execute(f"create table {table} (id bigint, v varchar(99))")
                c.cursor().executemany(f"insert into {table} values (%s, %s)", ROWS[1:] if table in ("keyed", "equal") else ROWS)  # fmt: skip
        yield


def test_tables_without_a_key_are_compared_whole_and_every_difference_is_shown(new_world, source):
    w = new_world()
    w.rules = {"rules": []}
    loads = {"same": ROWS[::-1], "less": ROWS[1:], "other": [*ROWS[:3], (3, "C")], "log": ROWS}
    for t, rows in loads.items():
        w.table(t, key=())
        w.specs[t]["without_key"] = "append" if t == "log" else "multiset"
        (w.root / f"specs/{t}.yml").write_text(yaml.safe_dump(w.specs[t]))
        w.load(t, *rows)
    w.table("keyed").load("keyed", (1, "a"), (2, "b"), (3, "c")).table("equal").load("equal", *ROWS[1:]).loaded()
    done, samples = reconcile.run(w.book())
    got = {r.table.removeprefix("public."): (r.status, r.counts.get("differing_rows")) for r in done}
    assert got == {
        "same": ("equal", 0), "less": ("differs", 1), "other": ("differs", 2), "log": ("not compared", None), "keyed": ("differs", 1),
        "equal": ("equal", 0),
    }  # fmt: skip
    assert {s["table"] for s in samples} == {"public.less", "public.other", "public.keyed"}
    counts = {(s["key"], s["source"], s["lake"]) for s in samples if s["table"] == "public.less"}
    assert counts == {("id=1, v=a", "2 times", "1 time")}
    shown = str(notebook_output.compared(done, "table", "status", "differing_rows"))
    assert all(f"public.{t}" in shown for t in loads)
    record = {"status": "ok", "tables": {}, "compared": [r.row() for r in done]}
    assert exit_codes.outcome_of(record, "") == "needs a decision"
    assert all(f"public.{t}: differs" in exit_codes.why(record) for t in ("less", "other", "keyed"))
