"""SQL text: the only module that turns a value into a literal and a name into an identifier."""

import re


def literal(text: str) -> str:
    """Return a text as a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def identifier(name: str) -> str:
    """Quote a name as one part of a Spark SQL identifier."""
    return f"`{name.replace('`', '``')}`"


def quoted(name: str) -> str:
    """Quote a name as standard SQL does: in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def standard_literal(text: str) -> str:
    """Return a text as a literal of standard SQL, where a backslash means itself."""
    return "'" + text.replace("'", "''") + "'"


def table_name(name: str) -> str:
    """Return a dotted name (`catalog.namespace.table`) for SQL: parts that are not plain words are quoted."""
    return ".".join(p if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", p) else identifier(p) for p in name.split("."))


def uncompiled_integer(sql: str, column: str) -> str:
    """Return SQL for the integer in a text, which Spark keeps outside the code that it compiles.

    A number or time that differs in each batch then leaves the compiled code unchanged, and Spark reuses it. The column
    (a text that is never null) adds nothing: it keeps Spark from computing the value beforehand.
    """
    return f"cast(concat(left({column}, 0), {sql}) as bigint)"
