"""The source database: its address and its login. PostgreSQL and MariaDB were tried; Oracle and SQL Server were not."""

from __future__ import annotations

import json
from urllib.parse import quote

from sqlalchemy import URL, Engine, create_engine, exc, make_url

from frazil.errors import FrazilError, hide
from frazil.settings.secrets import REFERENCE, expanded
from frazil.settings.settings_model import Settings

DRIVERS = {
    "postgres": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "mysql": "mysql+pymysql", "aurora": "mysql+pymysql",
    "oracle": "oracle+oracledb", "sqlserver": "mssql+pymssql", "mssql": "mssql+pymssql",
}  # fmt: skip
"""SQLAlchemy's dialect and driver, by what the names that AWS and addresses use have in them; the first counts."""


class SourceDatabaseError(FrazilError, code="source-database"):
    """The source database cannot be read. Correct `source_database`, or what the message names."""


def source_url(settings: Settings) -> URL:
    """Return the address of the source database, with the login that its reference names."""
    stated, name = settings.source_database, "source_database"
    whole = REFERENCE.fullmatch(stated)
    try:
        if whole and whole["id"] and not whole["key"]:
            login = json.loads(expanded(stated, name))
            parts = [login.get(part) for part in ("username", "password", "host", "port", "dbname")]
            url = URL.create(login["engine"], *parts)
        else:
            url = make_url(expanded(stated, name, lambda value: quote(value, safe="")).removeprefix("jdbc:"))
    except (exc.ArgumentError, ValueError, KeyError, TypeError, AttributeError):
        cure = "write engine://user:${PASSWORD}@host:port/database, or ${secret:<id>}, a secret as RDS stores it"
        raise SourceDatabaseError("'source_database' is no address", cure) from None
    hide(str(url.password or ""))
    driver = next((d for part, d in DRIVERS.items() if part in url.drivername), "")
    if not driver:
        raise SourceDatabaseError(f"the engine '{url.drivername}' is not known", f"write one of {', '.join(DRIVERS)}")
    return url if "+" in url.drivername else url.set(drivername=driver)


def connect(settings: Settings) -> Engine:
    """Return SQLAlchemy's engine of the source database, which has answered."""
    url = source_url(settings)
    try:
        engine = create_engine(url)
        engine.connect().close()
    except ImportError as error:
        raise SourceDatabaseError(f"the driver is missing: {error}", f"pip install {error.name}") from error
    except exc.SQLAlchemyError as error:
        why = str(getattr(error, "orig", error)).strip().split("\n")[0]
        raise SourceDatabaseError(f"{url.host} does not answer: {why}", "check address, login and network") from error
    return engine
