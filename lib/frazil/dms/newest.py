"""What may be new in a table's folder, found without going through what is old.

The names of change files are times, so those before a window are passed by. A local folder tells all names at once, and only
new files are looked at. S3 lists keys in order and can begin anywhere; date partitions are taken newest first, back to the one
that holds the last object applied, and one more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice, takewhile

from frazil.dms.storage import Entry, Sieve, is_s3, walk
from frazil.source.names import CHANGES, LOAD, SHARED, moment

LOOK_BACK = timedelta(hours=1)
"""So long before the last object applied a name is still listed at most: one that turned up late is found in it."""
MOST_DAYS = 40
"""Folders like `12/06/2024/` are asked for day by day, so far back at most; beyond, everything is listed."""

_PARTS = {"Y": r"(?P<Y>(?:19|20)\d\d)", "M": r"(?P<M>0[1-9]|1[0-2])", "D": r"(?P<D>0[1-9]|[12]\d|3[01])", "H": r"(?P<H>[01]\d|2[0-3])"}  # fmt: skip
_FORMS = {
    f"{order}{delimiter}": re.compile("^" + delimiter.join(_PARTS[p] for p in order) + "$")
    for order in ("YMD", "YMDH", "YM", "MYD", "DMY")
    for delimiter in ("", "-", "_")
} | {"Y/": re.compile(f"^{_PARTS['Y']}$"), "DD/": re.compile(r"^(0[1-9]|[12]\d|3[01])$")}
"""How DMS names date partitions: DatePartitionSequence and DatePartitionDelimiter; `Y/` and `DD/` begin nested ones."""


@dataclass(frozen=True)
class Leaf:
    """A date partition: its folder, and its time as (year, month, day, hour) as far as the sequence goes."""

    folder: str
    period: tuple[int, ...]


class TooFarBackError(Exception):
    """The partition that holds the last object is not among those looked at: list everything."""


def named(time: datetime, like: str) -> str:
    """Return how a change file of that time is named, of the kind that `like` is; without the end."""
    form = "CDC_TXN-%Y%m%d%H%M%S" if like.startswith("CDC_TXN-") else "%Y%m%d-%H%M%S"
    return f"{time:{form}}{time.microsecond // 1000:03}"


def window(since: str, start: str = "", like: str = "") -> str:
    """Return the name, without its end and of the kind of `like`, from which on to list: `start`, else LOOK_BACK before `since`."""
    return named(moment(start) if start else moment(since) - LOOK_BACK, like)


class Data(Sieve):
    """Shows folders that are named like DMS's files."""

    def is_data(self, name: str) -> bool:
        """Tell whether DMS names its files so."""
        return bool(CHANGES.match(name) or LOAD.match(name) or SHARED.match(name))


class Since(Data):
    """Leaves out change files with a name before `start`."""

    def __init__(self, start: str):
        self.start = start

    def passed(self, names: list[str]) -> set[str]:
        """Return the names of those."""
        return {name for name in names if name < self.start and CHANGES.match(name)}


def newest(folder: str, since: str, start: str = "") -> list[Entry]:
    """Return all load files, and the change files from `start` on, else from LOOK_BACK before `since` (the last object applied).

    Foreign objects come along as far as they lie on the way. A partition older than the one before that of `since` is not
    looked into: DMS fills them in order. What turns up there none the less is found by listing everything.
    """
    start = window(since, start)
    if not is_s3(folder):
        return list(walk(folder, sieve=Since(start)))
    found = {e.path: e for e in _top(folder, start)}
    folders = sorted((e for e in found.values() if e.folder), key=lambda e: e.path)
    plain, dated = _told_apart(folder, folders)
    found |= {e.path: e for first, last in _runs(folders, plain) for e in _sweep(folder, first, last)}
    flat = any(e.name == since for e in found.values())
    for form, names in dated.items():
        try:
            found |= {e.path: e for e in _dated(_leaves(folder, form, names), start, since, flat)}
        except TooFarBackError:
            return list(walk(folder, sieve=Data()))
    return [e for e in found.values() if not e.folder]


def _points(start: str) -> Iterator[str]:
    """Give the names from which to list the top level: the beginning, and where folders may lie among old change files.

    `2024-06-12/` and `2024/` come before the year's files, `202406/` before the month's, all others at the beginning or end.
    """
    year, month, today = int(start[:4]), int(start[4:6]), datetime.now(UTC)
    months = range(year * 12 + month - 1, today.year * 12 + today.month)
    yield from sorted({"", start, *[f"{y - 1}~" for y in range(year, today.year + 1)][-12:],
                       *[f"{(m - 1) // 12}{(m - 1) % 12 + 1:02}~" for m in months][-12:]})  # fmt: skip


def _top(folder: str, start: str) -> Iterator[Entry]:
    """Give the entries of the top level but for change files before `start`: from the first of these on, skip to the next point."""
    reached = ""
    for point in _points(start):
        if point > start or (point and point <= reached):
            continue
        for entry in walk(folder, start_after=point, deep=False, page=1000 if point == start else 100):
            reached = entry.name
            if CHANGES.match(entry.name) and not entry.folder and entry.name < start:
                break
            yield entry
        else:
            return


def _told_apart(folder: str, folders: list[Entry]) -> tuple[set[str], dict[str, list[str]]]:
    """Return the folders that are no date partitions, and {form: the folders that are}.

    Parallel loads name their folders as they like, `01` and `2024` too. The first folder of a form with load files in it
    tells that the form is theirs.
    """
    forms: dict[str, list[str]] = {}
    for entry in folders:
        form = next((f for f, pattern in _FORMS.items() if pattern.match(entry.name)), "")
        forms.setdefault(form, []).append(entry.name)
    plain = set(forms.pop("", ()))
    for form, names in list(forms.items()):
        first = walk(f"{folder}/{names[0]}", start_after=":", deep=False, page=10)
        if any(LOAD.match(e.name) for e in islice(first, 10)):
            plain |= set(forms.pop(form))
    return plain, forms


def _runs(folders: list[Entry], plain: set[str]) -> Iterator[tuple[str, str]]:
    """Give the first and last of plain folders that follow on each other; those among the change files go one by one."""

    def run(entry: Entry) -> str:
        among = "19" <= entry.name < "22"
        return "" if entry.name not in plain else entry.name if among else f"{entry.name < '19'}"

    for kind, group in groupby(folders, key=run):
        names = [e.name for e in group]
        if kind:
            yield names[0], names[-1]


def _sweep(folder: str, first: str, last: str) -> Iterator[Entry]:
    """Give all that lies in neighbouring folders by one listing that goes through them."""
    if first == last:
        yield from walk(f"{folder}/{first}")
        return
    for entry in walk(folder, start_after=first[:-1]):
        top = entry.path[len(folder) + 1 :].split("/")[0]
        if top > last:
            return
        yield entry


def _dated(leaves: Iterator[Leaf], start: str, since: str, flat: bool) -> Iterator[Entry]:
    """Go through partitions, newest first, until the one before that of `since` is done.

    With `flat`, `since` lies beside the folders: partitions have only been switched on since then.
    """
    day = moment(since) - timedelta(days=1)
    oldest, anchored = (day.year, day.month, day.day), False
    for leaf in leaves:
        if flat and leaf.period[:3] < oldest[: len(leaf.period)]:
            return
        entries = list(walk(leaf.folder, start_after=start))
        yield from entries
        if anchored:
            return
        anchored = any(e.name == since for e in entries)


def _leaves(folder: str, form: str, names: list[str]) -> Iterator[Leaf]:
    """Give the partitions of one form, newest first."""
    if form == "Y/":
        yield from _nested(folder, names, ())
    elif form == "DD/":
        yield from _by_day(folder, names)
    else:
        parts = [_FORMS[form].match(n).groupdict() for n in names]
        periods = [tuple(int(p[k]) for k in "YMDH" if k in p) for p in parts]
        for period, name in sorted(zip(periods, names, strict=True), reverse=True):
            yield Leaf(f"{folder}/{name}", period)


def _nested(folder: str, names: list[str], above: tuple[int, ...]) -> Iterator[Leaf]:
    """Go down `2024/06/12/13/`, the newest first; what has no folders in it is a partition."""
    for name in sorted((n for n in names if n.isdigit()), reverse=True):
        at, period = f"{folder}/{name}", (*above, int(name))
        below = _folders_of(at) if len(period) < 4 else []
        if below:
            yield from _nested(at, below, period)
        else:
            yield Leaf(at, period)


def _folders_of(at: str) -> list[str]:
    """Return the folders that a partition begins with: where change files come first, it has none."""
    return [e.name for e in takewhile(lambda e: e.folder, walk(at, deep=False, page=40))]


def _by_day(folder: str, names: list[str]) -> Iterator[Leaf]:
    """Give `06/2024/12/` or `12/06/2024/` (what lies in the first folder tells which) for each day, from tomorrow back."""
    inner = [e.name for e in walk(f"{folder}/{names[0]}", deep=False, page=40) if e.folder]
    form = "%m/%Y/%d" if any(len(n) == 4 for n in inner) else "%d/%m/%Y"
    day = datetime.now(UTC) + timedelta(days=1)
    for _ in range(MOST_DAYS):
        if f"{day:{form}}".split("/")[0] in names:
            yield Leaf(f"{folder}/{day:{form}}", (day.year, day.month, day.day))
        day -= timedelta(days=1)
    raise TooFarBackError
