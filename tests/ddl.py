"""The matrix of schema changes: what each does to the lake, by the form of the files; the page of outcomes is made of it.

python tests/ddl.py     writes the table in lib/docs/schema-changes.md anew
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent.parent / "lib/docs/schema-changes.md"
MARKS = ("<!-- {}: made by tests/ddl.py -->", "<!-- end of {} -->")

FORMS = {
    "header": ("CSV with header", {"AddColumnName": True}),
    "headerless": ("CSV without header", {"AddColumnName": False}),
    "parquet": ("Parquet", {"DataFormat": "parquet"}),
    "transactions": (
        "transaction files", {"AddColumnName": False, "PreserveTransactions": True, "CdcPath": "all"},
    ),
    "stream": (
        "stream", {"IncludeNullAndEmpty": True, "IncludeTransactionDetails": True, "IncludeTableAlterOperations": True, "IncludeControlDetails": True},
    ),
}  # fmt: skip
NAMED, BARE = ("header", "parquet", "stream"), ("headerless", "transactions")

EQUAL, CUT_OVER = "equal", "cut-over"
ROWS_STAY, UNTOUCHED = "rows stay: load again", "rows that no change touches lack the value: load again"
FIELDS, NO_FIT, WHICH = "too many or too few fields", "does not fit", "renamed, or another one?"


@dataclass(frozen=True)
class Case:
    """A DDL statement, the changes after it, and per form what comes of it undeclared, and then declared.

    The first is `EQUAL` to the source value by value, what the refusal says, or `CUT_OVER`: DMS does not show it, so that it
    goes on and is not equal until it is declared. The second compares the lake with the source then.
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
    """Return what comes of a change by form: with column names in the files or messages, and without."""
    return dict.fromkeys(NAMED, named) | dict.fromkeys(BARE, bare) | more


SAME, UNSEEN = each(EQUAL, EQUAL), each(CUT_OVER, CUT_OVER)
MORE = "update {t} set v = 'B' where id = 2; insert into {t} (id, v) values (5, 'e'); delete from {t} where id = 3"
ALL = "update {t} set v = v || '!'; delete from {t} where id = 3"

CASES = [
    Case("add a column", "alter table {t} add column w date", f"{MORE}; update {{t}} set w = '2024-05-06' where id = 2",
         each("unknown column 'w'", FIELDS)),
    Case("add a column with a default", "alter table {t} add column w int default 7", MORE, each("unknown column 'w'", FIELDS), UNTOUCHED),
    Case("drop a column", "alter table {t} drop column n", MORE, each("no column n", FIELDS), how="in the spec, and `gone: keep` or `drop`"),
    Case("rename a column", "alter table {t} rename column v to title", MORE.replace("v = ", "title = ").replace("(id, v)", "(id, title)"),
         each(WHICH, CUT_OVER, stream=EQUAL), how="`renamed_from`, or by the source's catalog"),
    Case("drop one and add another", "alter table {t} drop column n, add column w text", f"{MORE}; update {{t}} set w = 'x' where id = 2",
         each(WHICH, NO_FIT), how="in the spec, and `gone: keep` or `drop`"),
    Case("widen an integer", "alter table {t} alter n type bigint", f"{MORE}; update {{t}} set n = 3000000000 where id = 2",
         each(NO_FIT, NO_FIT, parquet=EQUAL, stream=EQUAL)),
    Case("widen a numeric", "alter table {t} alter d type numeric(12,2)", f"{MORE}; update {{t}} set d = 1234567.89 where id = 2",
         each(NO_FIT, NO_FIT, parquet=EQUAL)),
    Case("change a type to another", "alter table {t} alter n type text", f"{ALL}; update {{t}} set n = 'many' where id = 2",
         each(NO_FIT, NO_FIT, stream="no promotion leads there"), how="in the spec, and `type: beside`"),
    Case("change the scale of a numeric", "alter table {t} alter d type numeric(9,4)", f"{ALL}; update {{t}} set d = 1.2345 where id = 2",
         each(NO_FIT, NO_FIT), how="in the spec, and `type: beside`"),
    Case("set NOT NULL", "alter table {t} alter v set not null", MORE, SAME, how="nothing to declare"),
    Case("drop NOT NULL", "alter table {t} alter r drop not null", f"{MORE}; update {{t}} set r = null where id = 2", SAME, how="nothing to declare"),
    Case("comment on a column", "comment on column {t}.v is 'what it is'", MORE, SAME, how="nothing to declare"),
    Case("change the primary key", "alter table {t} drop constraint {c}_pkey, add primary key (id, r)", MORE, SAME,
         how="the old key while it stays unique; another key is refused: load again"),
    Case("truncate", "truncate {t}", "insert into {t} (id, v, r) values (9, 'z', 'r')", UNSEEN, ROWS_STAY, how="DMS shows nothing: `on_changed_load: reload` after a new load"),
    Case("rename the table", "alter table {t} rename to {c}_new", "update s.{c}_new set v = 'B' where id = 2", UNSEEN, ROWS_STAY, how="a spec of its own for the new name"),
    Case("drop the table", "drop table {t}", "select 1", UNSEEN, "rows stay", how="DMS shows nothing: drop the lake's table"),
]  # fmt: skip

ENGINES = [
    ("MySQL, Oracle", "truncate", "files", "cut-over: DMS takes the table's files away, and rows stay until it is loaded again",
     "test_mysql_oracle_a_truncate_takes_the_files_away_and_the_rows_stay"),
    ("SQL Server", "rename a column (`sp_rename`)", "CSV with header, Parquet", "equal, under the old name: DMS does not notice it",
     "test_sql_server_a_column_renamed_by_sp_rename_goes_on_under_its_old_name"),
    ("MySQL", "add a column FIRST or AFTER another", "CSV with header, Parquet", "equal, declared where it stands at the source",
     "test_mysql_a_column_added_first_comes_last_in_files"),
    ("MySQL", "add a column FIRST or AFTER another", "CSV without header", "equal, declared as the last one, with the cut-over: that is where it comes in files",
     "test_mysql_a_column_added_first_is_the_last_of_a_headerless_file"),
    ("MySQL", "rename a column (`CHANGE old new type`)", "stream", f"refused: “{WHICH}”: its record, change-columns, does not show a rename",
     "test_mysql_a_rename_by_change_is_not_told_as_one_in_a_stream"),
]  # fmt: skip
"""Engine, change, form, what comes of it, and the test of it: what PostgreSQL cannot show, by AWS's documentation."""


def matrix() -> str:
    """Return the table of outcomes as Markdown."""
    titles = [title for title, _ in FORMS.values()]
    lines = [f"| change at the source | {' | '.join(titles)} | then, declared | how it is declared |", "|" + "---|" * (len(titles) + 3)]  # fmt: skip
    for case in CASES:
        cells = [o if (o := case.undeclared[f]) in (EQUAL, CUT_OVER) else f"refused: “{o}”" for f in FORMS]
        lines.append(f"| {case.name} | {' | '.join(cells)} | {case.declared} | {case.how} |")
    return "\n".join(lines) + "\n"


def engines() -> str:
    """Return the table of what other engines do as Markdown."""
    lines = ["| engine | change | form | what comes of it |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row[:4])} |" for row in ENGINES)]) + "\n"


TABLES = {"matrix": matrix, "engines": engines}


def _place(text: str, name: str) -> tuple[int, int]:
    first, last = (mark.format(name) for mark in MARKS)
    return text.index(first) + len(first) + 1, text.index(last)


def on_page(name: str) -> str:
    """Return a table as the page has it."""
    text = PAGE.read_text(encoding="utf-8")
    return text[slice(*_place(text, name))]


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        start, end = _place(page, name)
        page = page[:start] + table() + page[end:]
    PAGE.write_text(page, encoding="utf-8")
