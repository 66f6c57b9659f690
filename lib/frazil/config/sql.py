"""SQL text: the only place that makes a value a literal and a name an identifier."""

import re


def literal(text: str) -> str:
    """Return a text as a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def identifier(name: str) -> str:
    """Quote a name as one part of an identifier in Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def table_name(name: str) -> str:
    """Return a dotted name (`catalog.namespace.table`) as SQL takes it: parts that are no plain words are quoted."""
    return ".".join(p if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", p) else identifier(p) for p in name.split("."))


def beside(sql: str, column: str) -> str:
    """Return the SQL of the whole number that a text says, which Spark keeps beside the code that it compiles and not in it.

    So what is another number or time in each batch leaves the compiled code as it is, and Spark uses that again. The column
    (a text that is never null) adds nothing: it keeps Spark from working the value out beforehand.
    """
    return f"cast(concat(left({column}, 0), {sql}) as bigint)"
