"""Paths between systems: what one of them takes for a pattern or a URI is escaped here, in both directions."""

from __future__ import annotations

import re
from urllib.parse import unquote

NO_PATTERNS = {"__globPaths__": "false"}
"""The option by which Spark's readers take paths as they are: else `* ? [ ] { } \\` in a folder's name make it a pattern.

Spark sets it itself for the files of its tables. Escaping a pattern is no way: Hadoop then refuses a name with a colon.
"""


def readable(uri: str) -> str:
    """Return a file's URI, as Spark's `input_file_name()` gives it, in the way that people write it: a local one as its path."""
    return without_scheme(unquote(uri))


def file_location(path: object) -> str:
    """Return a local path for Hadoop, which takes no URI but the path itself, `%` and `#` included, after a scheme."""
    return f"file:{path}"


def sqlite_url(path: str) -> str:
    """Return a database file as SQLAlchemy's URL."""
    from sqlalchemy import URL

    return URL.create("sqlite", database=path).render_as_string()


def local_path(location: str) -> str | None:
    """Return the path of an Iceberg location on this machine, None for another one; it is escaped no more than in `file_location`."""
    path = without_scheme(location)
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) else path


def without_scheme(location: str) -> str:
    """Return a location without `file:`."""
    return re.sub("^file:/+", "/", location)
