"""The columns of a file that does not name them: by the settings and rules, or by what the spec says of earlier files."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from frazil.core.changes import OPERATIONS
from frazil.dms.column_roles import has_header
from frazil.dms.file_names import base_name, load_number, order_of
from frazil.dms.source_file import OP_NAME, SourceFile, SourceTable
from frazil.errors import FrazilError, many

Names = tuple[str, ...]
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?")


class LayoutError(FrazilError, code="no-layout", decision=True):
    """Nothing says which columns a file without a header has. Write them as `columns_until`, or correct the setting that the message names."""


@dataclass(frozen=True)
class Headerless:
    """A file without a header, and one of its first rows; of a file of all tables without the fields of table and schema."""

    row: Sequence[str]
    table: SourceTable
    file: SourceFile

    @property
    def stated(self) -> Names:
        """The names of operation and time, if the settings state them."""
        return self.table.stated(self.file)

    def names(self, carried: Collection[str]) -> tuple[Names, bool] | None:
        """Return the names of the row's fields, as a header would have them, and whether these are earlier columns.

        `carried` are names that the file before has: what it lacks came later, the source's last columns one after the other.
        None: the row fits no layout, or several, or the source dropped a column that the spec has.
        """
        fitting, now, of_source = self._fitting, self.table.now(self.file), self.table.written.of_source
        missing, lacked = len(now) - len(self.row), [n for n in now[len(self.stated) :] if carried and n not in carried]
        came_last = lacked == [*of_source[len(of_source) - len(lacked) :]]
        if len(fitting) == 1 and (fitting[0] != now or came_last or not {*lacked} & {*of_source}):
            return fitting[0], fitting[0] != now
        if self._layouts[0] == now and 0 < missing <= len(lacked) and (came_last or missing == len(lacked)):
            return tuple(name for name in now if name not in lacked[-missing:]), True
        return None

    def error(self, others: Iterable[SourceFile]) -> LayoutError:
        """Return the error of a row that fits no layout; the cure depends on what `others` of the table's files show."""
        near = min([*self._layouts, self.table.now(self.file)], key=lambda names: abs(len(names) - len(self.row)))
        meant, spec = self._fitting or [near], self.table.spec
        beside = " beside table and schema" if self.file.of_all_tables else ""
        hidden = any(column.mask for column in spec.columns) or spec.exclude
        shown = "a row of a table with masked or excluded columns" if hidden else repr([*self.row])[:200]
        wanted = " or ".join(f"{len(names)} in the layout ({', '.join(self._behind(names))})" for names in meant)
        problem = f"{self.file.where} row 1: {many(len(self.row), 'field')}{beside}, and {wanted}: {shown}"
        return LayoutError(problem, self._cure(meant, others))

    @property
    def _layouts(self) -> list[Names]:
        """The layouts that count: that of an entry of `columns_until`, or of now, and of a load file also the oldest entry's."""
        entries = sorted((_moment(last), names) for last, names in self.table.spec.columns_until.items())
        until, of_load = _moment(self.file.name), self.file.of_load
        own = [names for last, names in entries if last[0] == of_load and (of_load or last >= until)]
        oldest = [names for last, names in entries[:1] if of_load]
        meant = [names for entry in own[:1] or oldest for names in self._meant(entry)]
        return [*dict.fromkeys(meant if own else [self.table.now(self.file), *meant])]

    @property
    def _fitting(self) -> list[Names]:
        return [names for names in self._layouts if len(names) == len(self.row)]

    def _meant(self, entry: Names) -> Iterator[Names]:
        """Yield what an entry may mean: if it does not name the operation, the stated ones come first, or there are none."""
        has_op = entry[0].lower() == OP_NAME.lower() and entry[0] not in self.table.written.columns
        if not has_op:
            yield (*self.stated, *entry)
        if has_op or OP_NAME not in self.stated or self.file.of_load or self.row[0] not in OPERATIONS:
            yield entry

    def _behind(self, names: Names) -> Names:
        """Return names without those of operation and time in front, if these are as stated."""
        return names[len(self.stated) :] if names[: len(self.stated)] == self.stated else names

    def _cure(self, near: Sequence[Names], others: Iterable[SourceFile]) -> str:
        names, missing, file = self._behind(near[0]), len(near[0]) - len(self.row), self.table.spec.file
        shown, stated = _shown(self.row), (OP_NAME in self.stated, bool(self.table.target.timestamp_column_name))
        if shown != stated and sum(shown) + len(names) == len(self.row):
            return self._cure_of_setting(names, shown[0] != stated[0], others)
        if missing < 0:
            return f"list the source's new columns in {file}, with {_entry('<the last file without them>', names)}"
        options = [self._behind(layout) for layout in near] if not missing else [*self._without(names, missing)]
        written = " or ".join(_entry(self.file.name, option) for option in options or [("its columns",)])
        return f"write {written} into {file}, with the columns that it has; take those that the source dropped out of its list"

    def _without(self, names: Names, missing: int) -> Iterator[Names]:
        """Yield names without those of rules that may have begun later, and without the source's last ones."""
        added, images = (*self.table.written.added,), (*self.table.written.images,)
        last = [name for name in names if name not in (*added, *images)][-missing:]
        for later in (images, added, added + images, last):
            if len(later) == missing and {*later} <= {*names}:
                yield tuple(name for name in names if name not in later)

    def _cure_of_setting(self, names: Names, of_op: bool, others: Iterable[SourceFile]) -> str:
        """Return the cure of a setting that the row contradicts; if another file shows the opposite, no value of it fits both."""
        setting = ("IncludeOpForFullLoad" if self.file.of_load else "CdcHasOp") if of_op else "TimestampColumnName"
        correct, shown = f"correct {setting} in the endpoint's JSON, as the task has it", _shown(self.row)
        seen = [(o, _shown_by(o, self.table)) for o in others if o.of_load == self.file.of_load or not of_op]
        opposite = next(((o, has) for o, has in seen if has and has[not of_op] != shown[not of_op]), None)
        if not opposite:
            return correct
        older, has = min((self.file, shown), opposite, key=lambda known: (not known[0].of_load, known[0].name))
        own = (OP_NAME,) * has[0] + (self.table.target.timestamp_column_name or "commit_time",) * has[1]
        write = f"write {_entry(older.name, (*own, *names))} into {self.table.spec.file}"
        return f"{opposite[0].where} shows the opposite: {write}" + (f", and {correct}" if older is opposite[0] else "")


def _moment(name: str) -> tuple[bool, str]:
    """Return what orders the entries of `columns_until`, and whether one is about load files; folders and endings do not count."""
    return load_number(base_name(name)) is not None, order_of(name)


def _shown(row: Sequence[str]) -> tuple[bool, bool]:
    """Return whether a row begins with an operation, and whether a time comes then."""
    has_op = row[0] in OPERATIONS
    return has_op, len(row) > has_op and _TIME.fullmatch(row[has_op]) is not None


def _shown_by(file: SourceFile, table: SourceTable) -> tuple[bool, bool] | None:
    """Return what the first row of a file shows; nothing if it is Parquet, empty, or has a header."""
    rows = [] if file.columns else file.rows()
    return _shown(rows[0]) if rows and not has_header(rows[0], table, file) else None


def _entry(last: str, names: Names) -> str:
    """Return an entry of `columns_until` as a spec has it."""
    listed = (name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps(name, ensure_ascii=False) for name in names)
    return f"columns_until: {{{last}: [{', '.join(listed)}]}}"
