"""The way into Iceberg's Java API: `Commits.java`, which Spark's own compiler compiles once in a session."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil.errors import FrazilError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = Path(__file__).with_name("Commits.java")
_compiled: dict[Any, Any] = {}


class NoBridgeError(FrazilError, code="iceberg-java"):
    """Iceberg's Java classes are not those that Frazil knows. Use Iceberg 1.11 or 1.12 with Spark 4.1."""


def commits(spark: SparkSession, catalog: str) -> Any:
    """Return the Java object with `load`, `refresh`, `schema`, `swap` and `expire`.

    Its parent is the class loader of the catalog, as that has Iceberg's classes however they came to the session: on the
    class path, by `spark.jars` or by `--packages`. Its package is a new one, as py4j knows the methods of a class by its
    name. Raises NoBridgeError if it does not compile.
    """
    gateway: Any = spark.sparkContext._gateway
    if gateway not in _compiled:
        plugin = spark._jsparkSession.sessionState().catalogManager().catalog(catalog)
        compiler, package = gateway.jvm.org.codehaus.janino.SimpleCompiler(), f"frazil_{uuid.uuid4().hex}"
        compiler.setParentClassLoader(plugin.getClass().getClassLoader())
        try:
            compiler.cook(_SOURCE.read_text(encoding="utf-8").replace("package frazil;", f"package {package};"))
        except Exception as error:
            why = next(iter(causes(error)), ("", str(error)))[1]
            told = f"Spark {spark.version}, {plugin.getClass().getName()}: {why[:300]}"
            raise NoBridgeError(f"Iceberg's Java classes do not fit ({told})", "use Iceberg 1.11 or 1.12") from None
        _compiled[gateway] = compiler.getClassLoader().loadClass(f"{package}.Commits").newInstance()
    return _compiled[gateway]


def opened(spark: SparkSession, catalog: str, name: str) -> Any:
    """Return Java's handle of a table, which stays open."""
    return commits(spark, catalog).load(spark._jsparkSession, catalog, name)


def causes(error: BaseException) -> list[tuple[str, str]]:
    """Return the class and the message of each Java exception in an error, outermost first."""
    java: Any = getattr(error, "java_exception", None)
    found: list[tuple[str, str]] = []
    while java is not None and len(found) < 20:
        found.append((java.getClass().getSimpleName(), str(java.getMessage() or "")))
        java = java.getCause()
    return found
