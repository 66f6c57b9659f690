"""`frazil peek`: what DMS wrote to a folder or topic, in seconds, without Spark and without any file of parameters."""

from __future__ import annotations

import argparse
import re
import shlex
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from frazil_old import exit_codes
from frazil_old.cli.terminal import MOST_REMARKS, cut, remarks, safe_lines
from frazil_old.config.settings import ParameterError
from frazil_old.dms.aws_json import read_endpoint_document
from frazil_old.dms.file_names import time_of_name
from frazil_old.dms.files_against_settings import ANY_NAME, Evidence
from frazil_old.dms.found_files import Found, find
from frazil_old.dms.guesses import KEYS, NULLS, NUMBERS, GuessedTable, Guesses, guess
from frazil_old.dms.listing import TableObjects
from frazil_old.dms.mappings import read_mappings
from frazil_old.errors import many, safe
from frazil_old.report.chart_style import span
from frazil_old.report.notebook_output import Grid

SECONDS = 4.0
"""The time after which nothing more is read."""
SHORTEST_S = 30
"""A rate needs change files over at least this time, in seconds."""
MOST_TABLES = 40
"""Maximum number of lines about tables."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "path", help="the folder that DMS writes to, local or s3://bucket/folder, or kafka://host:port/topic"
    )
    parser.add_argument(
        "--endpoints", type=Path, help="settings to compare the files with: what `aws dms describe-endpoints` prints"
    )
    parser.add_argument("--task", type=Path, help="the task's table mappings, if they add or rename columns")


def main(options: argparse.Namespace) -> int:
    """Print what is there and what is missing; return `exit_codes.NOTHING` if DMS wrote nothing there."""
    if options.path.startswith("kinesis://"):
        raise ParameterError(
            "peek reads folders and Kafka topics, no Kinesis stream", "frazil plan shows what is pending"
        )
    began = time.monotonic()
    if options.path.startswith("kafka://"):
        from frazil_old.cli import peek_stream
        from frazil_old.dms.found_messages import find_messages
        from frazil_old.dms.kafka import Kafka

        found = find_messages(Kafka.from_address(options.path), SECONDS)
        report = peek_stream.lines(found, time.monotonic() - began, options.path)
    else:
        found = find(options.path, SECONDS)
        stated = read_endpoint_document(options.endpoints) if options.endpoints else None
        guessed = guess(found, stated, read_mappings(options.task) if options.task else None)
        report = lines(found, guessed, time.monotonic() - began, options.path)
    for line in report:
        print(line)
    return exit_codes.OK if found.tables else exit_codes.NOTHING


def lines(found: Found, guessed: Guesses, seconds: float, path: str) -> Iterator[str]:
    """Yield the report, in lines of at most 80 characters."""
    every = [f for t in found.tables.values() for f in (*t.loads, *t.changes)] + list(found.shared)
    size = sum(f.size for f in every)
    yield from safe_lines(found.root)
    if not every:
        yield f"nothing that DMS writes is there; {many(found.others, 'other file')}"
        yield from safe_lines("DMS's files are <schema>/<table>/LOAD00000001.csv and <schema>/<table>/<time>.csv")
        return
    yield (
        f"{many(found.tables, 'table')}, {many(every, 'file')} of DMS, {size / 1e6:,.1f} MB; "
        f"{many(found.others, 'other file')}; {seconds:.1f} s"
    )
    if not found.is_whole:
        yield "more is there than could be looked at in this time: numbers are minimums"
    yield ""
    yield from _tables(found, guessed)
    yield from _columns(guessed)
    yield from _settings(guessed)
    yield from _missing(found, guessed)
    yield ""
    yield "next"
    yield from _next(found, guessed, path)


# --- tables


def _tables(found: Found, guessed: Guesses) -> Iterator[str]:
    names = sorted(found.tables, key=lambda n: -sum(f.size for f in found.tables[n].loads + found.tables[n].changes))
    rows = [_row(n, found, guessed.tables.get(n)) for n in names[:MOST_TABLES]]
    yield from Grid(rows).lines()
    if len(names) > MOST_TABLES:
        yield f"and {len(names) - MOST_TABLES:,} smaller tables"
    yield "~: estimated from the files' sizes; ?: unique in the first rows, not proven"
    if newest := max((f.name for t in found.tables.values() for f in t.changes), default=""):
        yield from safe_lines(_lag(newest, [t.last_commit for t in guessed.tables.values()]))


def _row(name: str, found: Found, table: GuessedTable | None) -> dict[str, str]:
    there = found.tables[name]
    changes = table.changes if table else 0
    key = ", ".join(table.key) + " ?" * (not table.key_is_proven) if table and table.key else "not seen"
    return {
        "table": _cut(name, 26),
        "rows": _about(table.rows if table else 0),
        "changes": _about(changes),
        "an hour": _rate(there, changes),
        "files": f"{len(there.loads)}+{len(there.changes)}",
        "key": _cut(key, 21),
    }


def _cut(text: str, most: int) -> str:
    return cut(safe(text), most)


def _about(count: int) -> str:
    scale, word = next(((s, w) for s, w in ((1e9, "G"), (1e6, "M"), (1e4, "k")) if count >= s), (1, ""))
    return f"~{count / (1e3 if word == 'k' else scale):.{0 if not word else 1}f}{word}" if count else "-"


def _rate(there: TableObjects, changes: int) -> str:
    """Return the changes an hour, by the times in the names of the first and the last change file.

    The first file's changes are from before the first time.
    """
    files = there.changes
    if len(files) < 2:
        return "-"
    seconds, later = (time_of_name(files[-1].name) - time_of_name(files[0].name)).total_seconds(), 1 - 1 / len(files)
    return _about(round(changes * later * 3600 / seconds)) if seconds >= SHORTEST_S else "-"


def _lag(newest: str, commits: Iterable[str]) -> str:
    """Return the age of the newest change file, and how long after the last commit in it DMS wrote it."""
    written = time_of_name(newest).replace(tzinfo=UTC)
    text = f"newest change file: {written:%Y-%m-%d %H:%M:%S} UTC, {span((datetime.now(UTC) - written).total_seconds())} ago"
    if last := max(commits, default=""):
        behind = (written - datetime.fromisoformat(last[:26]).replace(tzinfo=UTC)).total_seconds()
        text += f"; last commit seen {last[:19]}" + (f", {span(behind)} before it was written" if behind >= 0 else "")
    return text


def _columns(guessed: Guesses) -> Iterator[str]:
    yield ""
    yield "columns"
    for table in list(guessed.tables.values())[:MOST_REMARKS]:
        shown = ", ".join(f"{g.name} {g.looks}" if g.is_named else g.looks for g in table.columns)
        yield from safe_lines(f"{table.source}: {len(table.columns)}: {_cut(shown, 280)}", "  ", "    ")
    if len(guessed.tables) > MOST_REMARKS:
        yield f"  and those of {len(guessed.tables) - MOST_REMARKS:,} more tables"


# --- settings


def _settings(guessed: Guesses) -> Iterator[str]:
    """Yield what files show of the settings, contradictions first; one line for each setting and value."""
    by_value: dict[tuple[str, str, str], list[Evidence]] = {}
    for e in guessed.shown:
        verdict = "contradicted" if e.contradicts else "proven" if e.certain else "likely"
        by_value.setdefault((verdict, e.setting, _value(e)), []).append(e)
    yield ""
    yield "settings of the DMS target, as the bytes show them"
    for (verdict, setting, value), each in sorted(by_value.items(), key=lambda item: _VERDICTS.index(item[0][0])):
        files = many(each, "file") if len(each) > 1 else each[0].file.rpartition("/")[2]
        yield f"  {verdict:<13}{_cut(setting, 24):<24} {_cut(value, 14):<14} {_cut(files, 24)}"
        if verdict == _VERDICTS[0]:
            yield from safe_lines(f"{each[0].file}: {each[0].evidence}; stated: {each[0].stated!r}", "      ")


_VERDICTS = ("contradicted", "proven", "likely")


def _value(e: Evidence) -> str:
    plain = e.proposed == ANY_NAME or re.fullmatch(r"\w+", e.proposed)
    return e.proposed if plain else repr(e.proposed)


# --- what is missing


def unsure(guessed: Guesses) -> dict[str, str]:
    """Return {guess: what it concerns} for those that could lose rows or values if they are wrong."""
    tables = [t for t in guessed.tables.values() if t.columns]
    keys = [t.source for t in tables if t.key and not t.key_is_proven]
    numbers = [f"{t.source}.{g.name}" for t in tables for g in t.columns if g.likely]
    found = {}
    if keys:
        found[KEYS] = f"only likely: the key of {many(keys, 'table')}: {', '.join(keys)}"
    if numbers:
        found[NUMBERS] = f"{many(numbers, 'column')} with values like numbers, which may be texts: {', '.join(numbers)}"
    if guessed.null is None and guessed.proposed_null is not None:
        found[NULLS] = f"nulls are likely written as {guessed.proposed_null!r}: {guessed.null_why}"
    return {name: _cut(text, 200) for name, text in found.items()}


def _missing(found: Found, guessed: Guesses) -> Iterator[str]:
    """Yield what is wrong with the files, what must be decided, and what the files cannot show."""
    tables = [t for t in guessed.tables.values() if t.columns]
    wrong = found.remarks + [p for t in guessed.tables.values() for p in t.problems]
    lacks = []
    if keyless := [t.source for t in tables if not t.key]:
        lacks.append(f"a key of {', '.join(keyless)}")
    if any(not t.columns[0].is_named for t in tables):
        lacks.append("the columns' names: the files have no header")
    if "TimestampColumnName" not in guessed.settings:
        lacks.append("commit times (TimestampColumnName): without them no latency is known")
    if tables and not any(t.has_images for t in tables):
        lacks.append("old keys (rule add-before-image-columns): without them an update of a key leaves the old row")
    if "CsvNullValue" in guessed.settings and guessed.proposed_null is None:
        lacks.append("CsvNullValue: no file shows how a null is written")
    yield from remarks(
        {"wrong or odd": wrong, "not shown by the files": lacks, "to confirm": list(unsure(guessed).values())}
    )


def _next(found: Found, guessed: Guesses, path: str) -> Iterator[str]:
    """Yield the next command, with the guesses that it may take once they are confirmed."""
    source = path if found.root in (path.rstrip("/"), str(Path(path).absolute())) else found.root
    yield f"  frazil init --from-files {shlex.quote(source)} --env prod"
    if "CsvNullValue" in guessed.settings and guessed.null is None:
        yield "  with --null TOKEN: the task's CsvNullValue, which the files do not prove"
    if names := list(unsure(guessed)):
        yield f"  and once you have confirmed these guesses: --take {' '.join(names)}"
