"""Which Spark session sees which lake: in one process, catalogs of the same name each get a session of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.errors import FrazilError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class UnknownCatalogError(FrazilError):
    """An environment that does not say what its catalog is, in a session that has another environment's of that name."""


@dataclass(frozen=True)
class _Lake:
    session: SparkSession
    catalog: str
    conf: dict[str, str]
    ours: bool
    """Whether Frazil told the session what the catalog is, and not somebody else before."""


_opened: list[_Lake] = []


def require_catalog(session: SparkSession, catalog: str) -> None:
    """Raise UnknownCatalogError where nothing says what a catalog is: another environment's of that name is not this one's."""
    if session.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
        raise UnknownCatalogError(
            f"nothing says what the catalog '{catalog}' is: this Spark session has none, or it has another environment's",
            "set catalog_options in the parameters of this environment, or restart the kernel",
        )


def session_for(spark: SparkSession, catalog: str, conf: dict[str, str], built: bool = False) -> SparkSession:
    """Return a session in which `catalog` is what `conf` says: the first one, one that was opened before, or a new one.

    A session keeps a catalog as it was at its first use. Sessions share all but settings, catalogs and views. `built`: `spark` was
    just made with this `conf`.
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
