"""Which Spark session uses which lake: in one process, catalogs of the same name each get their own session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.errors import FrazilError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class UnknownCatalogError(FrazilError):
    """An environment does not define its catalog, and the session has another environment's catalog of that name."""


@dataclass(frozen=True)
class _Lake:
    session: SparkSession
    catalog: str
    conf: dict[str, str]
    ours: bool
    """Whether Frazil configured the catalog in this session, rather than somebody before it."""


_opened: list[_Lake] = []


def require_catalog(session: SparkSession, catalog: str) -> None:
    """Raise UnknownCatalogError if the session has no settings for the catalog."""
    if session.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
        raise UnknownCatalogError(
            f"nothing says what the catalog '{catalog}' is: this Spark session has none, or it has another environment's",
            "set catalog_options in the parameters of this environment, or restart the kernel",
        )


def session_for(spark: SparkSession, catalog: str, conf: dict[str, str], built: bool = False) -> SparkSession:
    """Return a session in which `catalog` has the settings `conf`: the first one, one opened before, or a new one.

    A session keeps a catalog as it was at its first use. Sessions share everything except settings, catalogs and views.
    `built`: `spark` was just created with this `conf`.
    """
    _opened[:] = [lake for lake in _opened if lake.session.sparkContext is spark.sparkContext]
    for lake in _opened:
        if (lake.catalog, lake.conf) == (catalog, conf):
            return lake.session
    session, name = (_opened[0].session if _opened else spark), f"spark.sql.catalog.{catalog}"
    taken = [lake for lake in _opened if lake.session is session and lake.catalog == catalog]
    if taken and not conf and not taken[0].ours:
        return session
    ours = built or session.conf.get(name, None) is None
    if taken or any(session.conf.get(key, None) not in (None, value) for key, value in conf.items()):
        session, ours = session.newSession(), True
        for row in session.sql("SET").collect():
            if row.key == name or row.key.startswith(f"{name}."):
                session.conf.unset(row.key)
    for key, value in conf.items():
        session.conf.set(key, value)
    _opened.append(_Lake(session, catalog, conf, ours))
    return session
