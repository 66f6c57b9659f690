"""Paths passed between systems: escaped and unescaped here where a system would take them for a pattern or a URI."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

from frazil_old.errors import FrazilError

SQLITE = "jdbc:sqlite:"
_REST = ("uri", "warehouse", "rest.sigv4-enabled", "rest.signing-name", "rest.signing-region")
_NOT_IN_URI = re.compile(r'[\x00-\x20\x7f\x60"<>#?%\[\]{}|\\^]')


def readable(uri: str) -> str:
    """Return a file's URI, as from Spark's `input_file_name()`, in readable form: for a local file its path."""
    return without_scheme(unquote(uri))


def as_uri(path: str) -> str:
    """Return a path as a URI, in the form of Spark's `input_file_name()`: characters that no URI has are escaped."""
    scheme, colon, rest = path.partition("://")
    if not colon:
        scheme, rest = "file", path
    return f"{scheme}://{_NOT_IN_URI.sub(lambda found: quote(found[0], safe=''), rest)}"


def file_location(path: object) -> str:
    """Return a local path for Hadoop: a scheme and the unescaped path, `%` and `#` included, instead of a URI."""
    return f"file:{path}"


def sqlite_file(root: str, options: Mapping[str, str]) -> str | None:
    """Return the database file of a catalog in SQLite, None for another catalog; relative paths start at `root`."""
    uri = options.get("uri", "")
    return os.path.join(root, uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None


def sqlite_properties(root: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return PyIceberg's properties of a catalog in SQLite."""
    from sqlalchemy import URL

    uri = URL.create("sqlite", database=sqlite_file(root, options)).render_as_string()
    warehouse = options.get("warehouse", "")
    return {"type": "sql", "uri": uri, "warehouse": warehouse if "://" in warehouse else os.path.join(root, warehouse)}


def rest_properties(kind: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return Iceberg's properties of a REST catalog and of signed calls to it, without credentials.

    The tables of a catalog of kind `s3tables` are in one too, in the region of its table bucket. Raise FrazilError if its
    warehouse is not the ARN of such a bucket.
    """
    if kind != "s3tables":
        return {"type": "rest"} | {name: options[name] for name in _REST if name in options}
    bucket = options.get("warehouse", "")
    if not (found := re.match(r"arn:[\w-]+:s3tables:([\w-]+):", bucket)):
        raise FrazilError(
            f"warehouse '{bucket}' is not the ARN of a table bucket",
            "write warehouse: arn:aws:s3tables:<region>:<account>:bucket/<name> below catalog_options",
        )
    region = found[1]
    host = os.environ.get("AWS_ENDPOINT_URL_S3TABLES") or f"https://s3tables.{region}.amazonaws.com"
    signed = {"rest.sigv4-enabled": "true", "rest.signing-name": "s3tables", "rest.signing-region": region}
    return {"type": "rest", "uri": f"{host}/iceberg", "warehouse": bucket, "s3.region": region, **signed}


def local_path(location: str) -> str | None:
    """Return the local path of an Iceberg location, or None if it is not local. It is unescaped, as in `file_location`."""
    path = without_scheme(location)
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) else path


def without_scheme(location: str) -> str:
    """Return a location without `file:`."""
    return re.sub("^file:/+", "/", location)
