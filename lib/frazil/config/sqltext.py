"""SQL text: the one place where a value becomes a literal."""


def literal(text: str) -> str:
    """Return a text as a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
