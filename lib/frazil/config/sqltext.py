"""SQL text: the one place where a value becomes a literal."""


def literal(text: str) -> str:
    """Return a text as a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def field_name(name: str) -> str:
    """Return a name as Spark SQL takes it, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"
