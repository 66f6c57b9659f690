"""Reads what DMS wrote for a table: files of any format in, raw rows out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from frazil.config.paths import readable
from frazil.config.session import SessionError
from frazil.config.spec import TableSpec
from frazil.core.field_roles import ORIGIN
from frazil.dms.csv import HAVE_EMPTY, file_layout, must_be_read_whole, read_csv
from frazil.dms.endpoint import Endpoint, Mappings
from frazil.dms.layout import CHANGE_PHASE, LOAD_PHASE
from frazil.dms.objects import DmsObject, SourceError
from frazil.dms.parquet import alike, read_parquet
from frazil.dms.transactions import NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_rows(
    spark: SparkSession,
    spec: TableSpec,
    endpoint: Endpoint,
    mappings: Mappings,
    files: list[DmsObject],
    phase: int,
    whole: bool = True,
) -> DataFrame:
    """Return the raw rows (columns as in `dms.csv`) of a table's load files (phase 0) or change files (phase 1).

    `whole` reads each CSV file in one piece, which texts with newlines need; see `may_be_split`.
    """
    parquet, text = [f for f in files if f.is_parquet], [f for f in files if not f.is_parquet]
    frames = [read_csv(spark, spec, endpoint, mappings, text, phase, whole)] if text else []
    frames += [read_parquet(spark, spec, endpoint, mappings, parquet, phase)] if parquet else []
    return (
        frames[0]
        if len(frames) == 1
        else reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), alike(frames))
    )


STRAY = re.compile(r"TextParsingException - (?:Unescaped quote|Unexpected character).*?record=(\d+)", re.DOTALL)
"""The error of Spark's CSV parser for a quoted field with another quote, not doubled, before its end."""


def has_stray_quote(error: Exception) -> bool:
    """Tell whether Spark failed at such a field; in files read in pieces, a text with a newline causes the same error."""
    return bool(STRAY.search(str(error)))


DAMAGE = re.compile(
    r"EOFException|ZipException|FileNotFoundException|Parquet\w*Exception|not a Parquet file|TextParsingException|"
    r"MalformedInputException|IOException: (?:not a gzip|incorrect|invalid|unexpected)|"
    r"at org\.apache\.(?:parquet|spark\.sql\.execution\.datasources\.parquet)\."
)
"""Errors that show a damaged or missing file without a name."""
NO_PYTHON = re.compile(r"Cannot run program [^,\n]*|Python worker \w+ [^\n]*|ModuleNotFoundError: [^\n]*")


ELSEWHERE = re.compile(
    r"OutOfMemoryError|No space left|org\.apache\.iceberg|maxResultSize|Buffer size .* exceeds|exceed.* broadcast"
)
"""Errors that no file causes: memory, disks, the lake, a limit of Spark."""


def missing_python(error: Exception) -> str:
    """Return what of Python the executors lack, if a Spark job failed for that; else an empty text."""
    found = NO_PYTHON.search(str(error)) if "aborted due to stage failure" in str(error) else None
    return found[0][:200] if found else ""


@contextmanager
def reading(spec: TableSpec, header: bool = False) -> Iterator[None]:
    """Turn Spark's failure to read a file (a torn archive, a damaged page) into a SourceError that names it."""
    try:
        yield
    except Exception as e:
        at = re.search(r"(?:reading file|reading from) (\S+?)\.(?:\s|$)", text := str(e))
        if not at and (missing := missing_python(e)):
            raise SessionError(
                f"Spark's executors cannot run Python: {missing}",
                "install Python on each of them, with boto3 for Kinesis, and name it by PYSPARK_PYTHON",
            ) from None
        elsewhere = ELSEWHERE.search(text)
        if elsewhere or not (at or DAMAGE.search(text)):
            raise
        causes = re.findall(r"^Caused by: (?:[\w$]+\.)*([\w$]+(?:: .*)?)", text, re.MULTILINE) or text.splitlines()[:1]
        file = readable(at[1]) if at else "a file of this batch (one at a time tells which)"
        if stray := STRAY.search(text):
            where = f"{file} row {int(stray[1]) + (not header)}"
            raise SourceError(
                f"{spec.source}: {where}: a quote inside a quoted field is not doubled",
                "correct the row, or have DMS write the file again (Rfc4180)",
            ) from None
        raise SourceError(f"{spec.source}: {file} cannot be read: {causes[-1][:200]}", "fetch it again") from None


def may_be_split(files: list[DmsObject], endpoint: Endpoint, hidden: bool) -> bool:
    """Tell whether it is safe, and worth trying, to read CSV files in several pieces.

    A text with a newline then breaks its row in two. The number of fields shows that: rows look bad, and the files must
    be read as a whole after all. If it may be `hidden` (`may_hide_open_text`), files are always read as a whole.
    """
    text = [f for f in files if f.name.endswith(".csv")]
    if not text or not endpoint.rfc4180:
        return bool(text)
    return not hidden and not must_be_read_whole(text, endpoint)


def may_hide_open_text(
    spec: TableSpec, files: list[DmsObject], endpoint: Endpoint, mappings: Mappings, phase: int
) -> bool:
    """Tell whether rows could look right although a quoted text does not end: if the last field is free text.

    In files of all tables it may be another table's text, or a part of it may look like a row of this table.
    """
    text = [f for f in files if not f.is_parquet]
    if any(NAME.match(f.name) for f in text):
        return True
    told = text if endpoint.header or spec.layouts else text[:1]
    last = {file_layout(spec, endpoint, mappings, phase, f)[0].roles[-1] for f in told}
    return any(_is_free(spec, role) for role in last)


def _is_free(spec: TableSpec, role: str) -> bool:
    """Tell whether a field may hold any text."""
    if ":" not in role or role.startswith(ORIGIN):
        return role not in ("op", "ts")
    name = role.split(":", 1)[1]
    # A spec that follows the source has columns that its file does not name.
    column = next(c for c in (*spec.columns, *spec.file_columns) if c.name == name)
    return column.dms_type in HAVE_EMPTY | {"TIME"} or column.lake == "string"


__all__ = ["CHANGE_PHASE", "LOAD_PHASE", "has_stray_quote", "may_be_split", "read_rows", "reading"]
