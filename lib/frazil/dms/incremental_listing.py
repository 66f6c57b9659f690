"""Finds new files in a table's folder without listing all old ones.

The names of change files are times, so those before a window are skipped. A local folder returns all names together,
and only new files are examined. S3 lists keys in order and can start anywhere. Date partitions are read newest first,
back to the one with the last object applied, and one more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice, takewhile

from frazil.dms.storage import Entry, Sieve, is_s3, walk
from frazil.source.file_names import CHANGES, LOAD, SHARED, moment

LOOK_BACK = timedelta(hours=1)
"""Names this long before the last object applied are still listed, which finds late files among them."""
MOST_DAYS = 40
"""Folders like `12/06/2024/` are listed day by day, at most this far back; beyond that, everything is listed."""

_PARTS = {"Y": r"(?P<Y>(?:19|20)\d\d)", "M": r"(?P<M>0[1-9]|1[0-2])", "D": r"(?P<D>0[1-9]|[12]\d|3[01])", "H": r"(?P<H>[01]\d|2[0-3])"}  # fmt: skip
_FORMS = {
    f"{order}{delimiter}": re.compile("^" + delimiter.join(_PARTS[p] for p in order) + "$")
    for order in ("YMD", "YMDH", "YM", "MYD", "DMY")
    for delimiter in ("", "-", "_")
} | {"Y/": re.compile(f"^{_PARTS['Y']}$"), "DD/": re.compile(r"^(0[1-9]|[12]\d|3[01])$")}
"""DMS's names of date partitions, by DatePartitionSequence and DatePartitionDelimiter; `Y/` and `DD/` begin nested ones."""


@dataclass(frozen=True)
class Leaf:
    """A date partition: its folder, and its time as (year, month, day, hour) as far as the sequence states it."""

    folder: str
    period: tuple[int, ...]


class TooFarBackError(Exception):
    """The partition of the last object is not among those examined: list everything."""


def named(time: datetime, like: str) -> str:
    """Return the name, without its extension, of a change file of that time, in the form of `like`."""
    form = "CDC_TXN-%Y%m%d%H%M%S" if like.startswith("CDC_TXN-") else "%Y%m%d-%H%M%S"
    return f"{time:{form}}{time.microsecond // 1000:03}"


def window(since: str, start: str = "", like: str = "") -> str:
    """Return the first name to list, without its extension and in the form of `like`: `start`, else LOOK_BACK before `since`."""
    return named(moment(start) if start else moment(since) - LOOK_BACK, like)


class Data(Sieve):
    """Accepts only names of DMS's files."""

    def is_data(self, name: str) -> bool:
        """Return whether a name is that of a DMS file."""
        return bool(CHANGES.match(name) or LOAD.match(name) or SHARED.match(name))


class Since(Data):
    """Skips change files with a name before `start`."""

    def __init__(self, start: str):
        self.start = start

    def passed(self, names: list[str]) -> set[str]:
        """Return the names to skip."""
        return {name for name in names if name < self.start and CHANGES.match(name)}


def newest(folder: str, since: str, start: str = "") -> list[Entry]:
    """Return all load files, and the change files from `start` on, else from LOOK_BACK before `since` (the last object applied).

    Foreign objects that the listing meets are returned too. Partitions older than the one before that of `since` are
    not read, as DMS fills them in order. Files that still arrive there are found by a full listing.
    """
    start = window(since, start)
    if not is_s3(folder):
        return list(walk(folder, sieve=Since(start)))
    found = {e.path: e for e in _top(folder, start)}
    folders = sorted((e for e in found.values() if e.folder), key=lambda e: e.path)
    plain, dated = _plain_and_dated(folder, folders)
    found |= {e.path: e for first, last in _runs(folders, plain) for e in _sweep(folder, first, last)}
    flat = any(e.name == since for e in found.values())
    for form, names in dated.items():
        try:
            found |= {e.path: e for e in _dated(_leaves(folder, form, names), start, since, flat)}
        except TooFarBackError:
            return list(walk(folder, sieve=Data()))
    return [e for e in found.values() if not e.folder]


def _points(start: str) -> Iterator[str]:
    """Yield the names from which to list the top level: the beginning, and places of folders among old change files.

    `2024-06-12/` and `2024/` sort before the year's files, `202406/` before the month's, all others at the beginning or
    end.
    """
    year, month, today = int(start[:4]), int(start[4:6]), datetime.now(UTC)
    months = range(year * 12 + month - 1, today.year * 12 + today.month)
    yield from sorted({"", start, *[f"{y - 1}~" for y in range(year, today.year + 1)][-12:],
                       *[f"{(m - 1) // 12}{(m - 1) % 12 + 1:02}~" for m in months][-12:]})  # fmt: skip


def _top(folder: str, start: str) -> Iterator[Entry]:
    """Yield the top level's entries except change files before `start`: at the first of these, skip to the next point."""
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


def _plain_and_dated(folder: str, folders: list[Entry]) -> tuple[set[str], dict[str, list[str]]]:
    """Return the folders that are not date partitions, and {form: the folders that are}.

    Parallel loads name their folders freely, including `01` and `2024`. If the first folder of a form has load files in
    it, the form belongs to loads.
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
    """Yield first and last of consecutive plain folders; those among the change files are yielded one by one."""

    def run(entry: Entry) -> str:
        among = "19" <= entry.name < "22"
        return "" if entry.name not in plain else entry.name if among else f"{entry.name < '19'}"

    for kind, group in groupby(folders, key=run):
        names = [e.name for e in group]
        if kind:
            yield names[0], names[-1]


def _sweep(folder: str, first: str, last: str) -> Iterator[Entry]:
    """Yield everything in neighbouring folders, with one listing across them."""
    if first == last:
        yield from walk(f"{folder}/{first}")
        return
    for entry in walk(folder, start_after=first[:-1]):
        top = entry.path[len(folder) + 1 :].split("/")[0]
        if top > last:
            return
        yield entry


def _dated(leaves: Iterator[Leaf], start: str, since: str, flat: bool) -> Iterator[Entry]:
    """Yield the files of partitions, newest first, through the one before that of `since`.

    With `flat`, `since` is next to the folders: partitions were switched on after it.
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
    """Yield the partitions of one form, newest first."""
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
    """Descend `2024/06/12/13/`, the newest first; a folder without folders is a partition."""
    for name in sorted((n for n in names if n.isdigit()), reverse=True):
        at, period = f"{folder}/{name}", (*above, int(name))
        below = _folders_of(at) if len(period) < 4 else []
        if below:
            yield from _nested(at, below, period)
        else:
            yield Leaf(at, period)


def _folders_of(at: str) -> list[str]:
    """Return the folders at the beginning of a partition; it has none if change files come first."""
    return [e.name for e in takewhile(lambda e: e.folder, walk(at, deep=False, page=40))]


def _by_day(folder: str, names: list[str]) -> Iterator[Leaf]:
    """Yield `06/2024/12/` or `12/06/2024/` (the content of the first folder decides) for each day, from tomorrow back."""
    inner = [e.name for e in walk(f"{folder}/{names[0]}", deep=False, page=40) if e.folder]
    form = "%m/%Y/%d" if any(len(n) == 4 for n in inner) else "%d/%m/%Y"
    day = datetime.now(UTC) + timedelta(days=1)
    for _ in range(MOST_DAYS):
        if f"{day:{form}}".split("/")[0] in names:
            yield Leaf(f"{folder}/{day:{form}}", (day.year, day.month, day.day))
        day -= timedelta(days=1)
    raise TooFarBackError
