"""The matrix of schema changes: what each does to the lake, by the form of the files; the page of outcomes is made of it.

python tests/ddl.py     writes the table in lib/docs/schema-changes.md anew
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent.parent / "lib/docs/schema-changes.md"
MARKS = ("<!-- matrix: made by tests/ddl.py -->", "<!-- end of matrix -->")

FORMS = {
    "header": ("CSV with header", {"AddColumnName": True}),
    "headerless": ("CSV without header", {"AddColumnName": False}),
    "parquet": ("Parquet", {"DataFormat": "parquet"}),
    "transactions": (
        "transaction files", {"AddColumnName": False, "PreserveTransactions": True, "CdcPath": "all"},
    ),
}  # fmt: skip
NAMED, BARE = ("header", "parquet"), ("headerless", "transactions")

EQUAL, ROWS_STAY, UNTOUCHED = "equal", "rows stay: load again", "rows that no change touches lack the value: load again"
GOES_ON = "goes on"
FIELDS, NO_FIT = "too many or too few fields", "does not fit"


@dataclass(frozen=True)
class Case:
    """A DDL statement, the changes after it, and per form what comes of it undeclared, and then declared.

    The first is `GOES_ON` or what the refusal says; the second compares the lake with the source, value by value.
    """

    name: str
    ddl: str
    then: str
    undeclared: dict[str, str]
    declared: str = EQUAL
    how: str = "in the spec"

    @property
    def table(self) -> str:
        """The table that this happens to."""
        return re.sub(r"\W+", "_", self.name.lower())


def each(named: str, bare: str, **more: str) -> dict[str, str]:
    """Return what comes of a change by form: with column names in the files, and without."""
    return dict.fromkeys(NAMED, named) | dict.fromkeys(BARE, bare) | more


ON = each(GOES_ON, GOES_ON)
MORE = "update {t} set v = 'B' where id = 2; insert into {t} (id, v) values (5, 'e'); delete from {t} where id = 3"
ALL = "update {t} set v = v || '!'; delete from {t} where id = 3"

CASES = [
    Case("add a column", "alter table {t} add column w date", f"{MORE}; update {{t}} set w = '2024-05-06' where id = 2",
         each("unknown column 'w'", FIELDS)),
    Case("add a column with a default", "alter table {t} add column w int default 7", MORE, each("unknown column 'w'", FIELDS), UNTOUCHED),
    Case("drop a column", "alter table {t} drop column n", MORE, each("no column n", FIELDS), how="in the spec, and `gone: keep` or `drop`"),
    Case("rename a column", "alter table {t} rename column v to title", MORE.replace("v = ", "title = ").replace("(id, v)", "(id, title)"),
         each("renamed, or another one?", GOES_ON), how="`renamed_from`, or by the source's catalog"),
    Case("drop one and add another", "alter table {t} drop column n, add column w text", f"{MORE}; update {{t}} set w = 'x' where id = 2",
         each("renamed, or another one?", NO_FIT), how="in the spec, and `gone: keep` or `drop`"),
    Case("widen an integer", "alter table {t} alter n type bigint", f"{MORE}; update {{t}} set n = 3000000000 where id = 2",
         each(NO_FIT, NO_FIT, parquet=GOES_ON)),
    Case("widen a numeric", "alter table {t} alter d type numeric(12,2)", f"{MORE}; update {{t}} set d = 1234567.89 where id = 2",
         each(NO_FIT, NO_FIT, parquet=GOES_ON)),
    Case("change a type to another", "alter table {t} alter n type text", f"{ALL}; update {{t}} set n = 'many' where id = 2",
         each(NO_FIT, NO_FIT), how="in the spec, and `type: beside`"),
    Case("change the scale of a numeric", "alter table {t} alter d type numeric(9,4)", f"{ALL}; update {{t}} set d = 1.2345 where id = 2",
         each(NO_FIT, NO_FIT), how="in the spec, and `type: beside`"),
    Case("set NOT NULL", "alter table {t} alter v set not null", MORE, ON, how="nothing to declare"),
    Case("drop NOT NULL", "alter table {t} alter r drop not null", f"{MORE}; update {{t}} set r = null where id = 2", ON, how="nothing to declare"),
    Case("comment on a column", "comment on column {t}.v is 'what it is'", MORE, ON, how="nothing to declare"),
    Case("change the primary key", "alter table {t} drop constraint {c}_pkey, add primary key (id, r)", MORE, ON,
         how="the old key while it stays unique; another key is refused: load again"),
    Case("truncate", "truncate {t}", "insert into {t} (id, v, r) values (9, 'z', 'r')", ON, ROWS_STAY, how="nothing to see"),
    Case("rename the table", "alter table {t} rename to {c}_new", "update s.{c}_new set v = 'B' where id = 2", ON, ROWS_STAY, how="a spec of its own for the new name"),
    Case("drop the table", "drop table {t}", "select 1", ON, "rows stay", how="nothing to see"),
]  # fmt: skip


def rendered() -> str:
    """Return the table of outcomes as Markdown."""
    titles = [title for title, _ in FORMS.values()]
    lines = [f"| change at the source | {' | '.join(titles)} | then, declared | how it is declared |", "|" + "---|" * (len(titles) + 3)]  # fmt: skip
    for case in CASES:
        cells = [o if (o := case.undeclared[f]) == GOES_ON else f"refused: “{o}”" for f in FORMS]
        lines.append(f"| {case.name} | {' | '.join(cells)} | {case.declared} | {case.how} |")
    return "\n".join(lines) + "\n"


def on_page() -> str:
    """Return the table as the page has it."""
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(MARKS[0]) + len(MARKS[0]) + 1 : text.index(MARKS[1])]


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    start, end = page.index(MARKS[0]) + len(MARKS[0]) + 1, page.index(MARKS[1])
    PAGE.write_text(page[:start] + rendered() + page[end:], encoding="utf-8")
