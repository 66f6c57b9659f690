"""The environment's catalog without a JVM: PyIceberg's, by the options that Java's takes."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from frazil.errors import FrazilError
from frazil.iceberg.refusals import require_known_io
from frazil.settings.settings_model import SQLITE, Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    AnyCatalog: TypeAlias = "Catalog | SqliteCatalog"

CLASSES = {
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc", "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue", "software.amazon.s3tables.iceberg.S3TablesCatalog": "s3tables",
}  # fmt: skip
"""What `catalog-impl` may name, and the type that it is."""
PYTHON = {"jdbc": "sql.SqlCatalog", "rest": "rest.RestCatalog", "glue": "glue.GlueCatalog", "s3tables": "rest.RestCatalog"}  # fmt: skip
"""PyIceberg's class for each type, below `pyiceberg.catalog`."""
POSTGRESQL = "jdbc:postgresql:"


class CatalogError(FrazilError, code="catalog"):
    """The Iceberg catalog does not open or answer, or lacks a table. Correct the option that the message names, or run 00_setup."""


def open_catalog(settings: Settings) -> AnyCatalog:
    """Open the catalog of an environment: JDBC on SQLite or PostgreSQL, REST, Glue, or S3 Tables by their REST interface.

    Raises CatalogError if it is not there or does not answer, and TableRefusedError for an option that PyIceberg cannot follow.
    """
    name, options = settings.catalog, settings.catalog_properties()
    kind = options.get("type") or CLASSES.get(options.get("catalog-impl", ""), "")
    require_known_io(name, options)
    if kind not in PYTHON:
        problem = f"Frazil opens no catalog of type '{kind or options.get('catalog-impl', 'none')}'"
        raise CatalogError(problem, "write one of type jdbc, rest or glue")
    module, _, its_class = PYTHON[kind].partition(".")
    if kind == "jdbc" and options["uri"].startswith(SQLITE):
        return SqliteCatalog(name, options)
    try:
        own = {"jdbc": _database, "s3tables": _s3_tables}.get(kind, dict)(options)
        return getattr(import_module(f"pyiceberg.catalog.{module}"), its_class)(name, **for_python(options) | own)
    except Exception as error:
        raise _told(name, error) from error


class SqliteCatalog:
    """A JDBC catalog in a file, which says where metadata are. PyIceberg's class for it takes half a second to import."""

    def __init__(self, name: str, options: dict[str, str]):
        self.name, self.properties, self.file = name, for_python(options), options["uri"].removeprefix(SQLITE)
        if not os.path.exists(self.file):
            raise CatalogError(f"there is no catalog {self.file}", "run 00_setup")

    def location(self, name: str) -> str:
        """Return where a table's metadata are; empty: there is no such table. Raises CatalogError if the file cannot be read."""
        query = "SELECT * FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
        try:
            with closing(sqlite3.connect(f"file:{quote(self.file)}?mode=rw", uri=True, timeout=60)) as database:
                database.row_factory = sqlite3.Row
                found = dict(database.execute(query, (self.name, *name.rsplit(".", 1))).fetchone() or {})
        except sqlite3.Error as error:
            raise _told(self.name, error) from error
        is_table = found.get("iceberg_type") in (None, "TABLE")  # else it is a view
        return found.get("metadata_location", "") if is_table else ""

    def table_exists(self, name: str) -> bool:
        """Return whether a table is there."""
        return bool(self.location(name))

    def load_table(self, name: str) -> Table:
        """Return a table as PyIceberg has it. Raises NoSuchTableError."""
        from pyiceberg.table import StaticTable

        if not (location := self.location(name)):
            raise NoSuchTableError(name)
        return StaticTable.from_metadata(location, self.properties)


def found_table(catalog: AnyCatalog, name: str) -> tuple[str, Callable[[], FileIO]]:
    """Return where a table's metadata are, and what opens its files when that is needed. Raises what `opened_table` does."""
    if isinstance(catalog, SqliteCatalog) and (location := catalog.location(name)):
        return location, lambda: opened_table(catalog, name).io
    table = opened_table(catalog, name)
    return table.metadata_location, lambda: table.io


def opened_table(catalog: AnyCatalog, name: str) -> Table:
    """Return a table of a catalog. Raises CatalogError if it is not there, or if the catalog does not answer."""
    try:
        table = catalog.load_table(name)
        if table.io.properties.get("s3.sse.type", "none") != "none":  # which the catalog itself may have said
            from frazil.iceberg.encrypted_io import EncryptedFileIO

            table.io = EncryptedFileIO(table.io.properties)
        return table
    except (NoSuchTableError, NoSuchNamespaceError):
        raise CatalogError(f"the catalog {catalog.name} has no table {name}", "run 00_setup") from None
    except Exception as error:
        raise _told(catalog.name, error) from error


def for_python(options: dict[str, str]) -> dict[str, str]:
    """Return a catalog's options by the names that PyIceberg has for them; what none says, the process's variables say."""
    region = options.get("client.region") or os.environ.get("AWS_REGION", os.environ.get("AWS_DEFAULT_REGION"))
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3", os.environ.get("AWS_ENDPOINT_URL"))
    given = {n: v for n, v in (("s3.region", region), ("s3.endpoint", endpoint)) if v} | options
    if style := given.get("s3.path-style-access"):
        given["s3.force-virtual-addressing"] = "false" if style == "true" else "true"
    return given


def _database(options: dict[str, str]) -> dict[str, str]:
    """Return the address of a JDBC catalog's database as SQLAlchemy takes it."""
    from sqlalchemy import make_url

    uri = options["uri"]
    if not uri.startswith(POSTGRESQL):
        raise CatalogError(f"Frazil opens no catalog in {uri}", "use one in SQLite or PostgreSQL")
    url = make_url(f"postgresql+psycopg:{uri.removeprefix(POSTGRESQL)}")
    url = url.set(username=options.get("jdbc.user"), password=options.get("jdbc.password"))
    return {"uri": url.render_as_string(hide_password=False), "init_catalog_tables": "false"}


def _s3_tables(options: dict[str, str]) -> dict[str, str]:
    """Return what the REST interface of S3 Tables needs; the warehouse is the ARN of a table bucket."""
    if not (found := re.match(r"arn:[\w-]+:s3tables:([\w-]+):", options.get("warehouse", ""))):
        cure = "write warehouse: arn:aws:s3tables:<region>:<account>:bucket/<name> below catalog_options"
        raise CatalogError(f"the warehouse '{options.get('warehouse')}' is not the ARN of a table bucket", cure)
    host = os.environ.get("AWS_ENDPOINT_URL_S3TABLES", f"https://s3tables.{found[1]}.amazonaws.com")
    signed = {"rest.sigv4-enabled": "true", "rest.signing-name": "s3tables", "rest.signing-region": found[1]}
    return {"uri": f"{host}/iceberg", "s3.region": found[1], **signed}


def _told(name: str, error: Exception) -> FrazilError:
    """Return an error of Frazil as it is, and any other as one of the catalog."""
    why = f"{type(error).__name__}: {error}".splitlines()[0]
    ours = CatalogError(f"the catalog {name} does not answer: {why}", "correct its address or its login")
    return error if isinstance(error, FrazilError) else ours
