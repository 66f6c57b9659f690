"""What the engines that read the tables can do: which read format v3, since which version, and what else they cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

DUCKDB_SETTING = "SET enable_external_file_cache = false"
"""DuckDB needs this to read v3: otherwise it may apply a deletion vector to the wrong file and return wrong rows."""


@dataclass(frozen=True)
class Engine:
    """What is known about an engine.

    `v3_since`: the first version that reads v3 with deletion vectors; empty: all do; None: none does. `assumed`: whether it
    counts as new enough if no version is stated. `limits` are those on v3. `known`: when and from where.
    """

    v3_since: str | None
    assumed: bool
    known: str
    limits: str = ""


UPGRADE = "an upgrade of a table from v2 to v3 stops its refreshes until a new snapshot is committed and the table is made again there"
ENGINES = {
    "spark": Engine("", True, "tried, 2026-11"),
    "emr": Engine("7.12", False, "AWS, 2026"),
    "glue": Engine("5.1", False, "AWS, 2026"),
    "s3tables": Engine("", True, "AWS, 2026"),
    "flink": Engine("", True, "Iceberg 1.11, 2026"),
    "snowflake": Engine("", True, "Snowflake, 2026-05-07", UPGRADE),
    "redshift": Engine("", True, "AWS, 2026-08-31", "v3 only on Graviton nodes (RG) and Serverless, without complex types and materialised views"),
    "bigquery": Engine("", True, "Google, 2026"),
    "databricks": Engine("18.0", False, "Databricks, 2026", "v3 is a preview"),
    "trino": Engine("483", False, "tried, 2026-11", "v3 is experimental; EMR 7.14 has 479, which refuses it"),
    "duckdb": Engine("1.5", True, "tried, 2026-11", f"rows may be wrong without {DUCKDB_SETTING}"),
    "polars": Engine("2.1", True, "tried, 2026-11"),
    "pyiceberg": Engine("0.12", True, "tried, 2026-11", "it reads v3 and writes none"),
    "athena": Engine(None, False, "AWS, 2026"),
    "clickhouse": Engine(None, False, "tried as chDB 26.9, 2026-11"),
    "daft": Engine(None, False, "tried, 0.7.26, 2026-11"),
}  # fmt: skip
"""The engines by name. One that is not listed counts as unable to read v3."""


def name_of(stated: str) -> str:
    """Return the name of an engine as it was stated, with or without a version."""
    return re.split(r"[<>=~\s]", stated.strip(), maxsplit=1)[0].lower()


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def why_not_v3(stated: str) -> str:
    """Return why an engine does not read v3, empty if it does: `trino`, `trino>=483`, `trino==476`.

    After `<` it may be any older version.
    """
    name = name_of(stated)
    engine = ENGINES.get(name)
    if engine is None:
        return f"{stated} is not known to read v3"
    if engine.v3_since is None:
        return f"{stated} reads no v3 ({engine.known})"
    found = re.search(r"(>=|==|=|>)\s*v?(\d+(?:\.\d+)*)\s*$", stated)
    alone = engine.assumed and name == stated.strip().lower()
    if _version(found[2]) >= _version(engine.v3_since) if found else alone:
        return ""
    cure = f"write {name}>={engine.v3_since} into query_engines if it is that new"
    return f"{stated} reads v3 from {engine.v3_since} on ({engine.known}): {cure}"


def reads_v3(stated: str) -> bool:
    """Return whether an engine reads v3."""
    return not why_not_v3(stated)


def format_version(query_engines: Iterable[str]) -> int:
    """Return 3 unless a declared query engine cannot read it; an unknown one counts as unable."""
    return 3 if all(map(reads_v3, query_engines)) else 2


def explained(query_engines: Iterable[str]) -> list[str]:
    """Return the format of new tables and why, then what each declared engine cannot do."""
    engines = list(query_engines)
    version, against = format_version(engines), [why for e in engines if (why := why_not_v3(e))]
    all_read = f"{', '.join(engines)} read it" if engines else "no query engine is declared that cannot read it"
    found = [f"format: new tables are v{version}: {'; '.join(against) or all_read}"]
    for stated in engines:
        engine = ENGINES.get(name_of(stated))
        if engine and engine.limits and version == 3:
            found.append(f"format: {name_of(stated)}: {engine.limits} ({engine.known})")
    return found


def unread(version: int, query_engines: Iterable[str]) -> list[str]:
    """Return the engines that cannot read a table of this format."""
    return [e for e in query_engines if version >= 3 and not reads_v3(e)]
