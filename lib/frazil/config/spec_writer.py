"""A table spec as YAML, for specs that Frazil itself writes."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from frazil.config.columns import Column
from frazil.config.spec import TableSpec


def file_name(spec: TableSpec) -> str:
    """Return the name of a spec's YAML file."""
    table = spec.table_name if spec.schema_name in ("public", "dbo") else spec.source
    return re.sub(r"[^\w.-]", "_", f"{table}.yml")


def lake_name(schema: str, table: str) -> str:
    """Return a table's name in the lake, in words that every engine accepts unquoted: `ü` becomes `u`, `2024` becomes `_2024`."""
    return ".".join(_word(part) for part in (schema, table))


def _word(name: str) -> str:
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    word = re.sub(r"\W", "_", plain, flags=re.ASCII)
    return f"_{word}" if word[:1].isdigit() else word


def spec_text(spec: TableSpec) -> str:
    """Return a spec as YAML: names, key (or `without_key`) and columns."""
    from frazil.config.validation import flow

    comment = {"comment": spec.comment} if spec.comment else {}
    key = {"key": list(spec.key)} if spec.key or spec.without_key == "refuse" else {"without_key": spec.without_key}
    head = {"source": spec.source, "target": spec.target, **comment, **key}
    lines = [f"{k}: {flow(v)}\n" for k, v in head.items()]
    return "".join([*lines, "columns:\n", *[f"  - {flow(_entry(c))}\n" for c in spec.columns]])


def _entry(c: Column) -> dict[str, Any]:
    more = {"nullable": False} if not c.nullable else {}
    more |= {k: v for k, v in (("utc", c.utc), ("comment", c.comment), ("source_id", c.source_id)) if v}
    return {"name": c.name, "type": c.type, **more}
