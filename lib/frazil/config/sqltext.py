"""SQL text: the one place where a value becomes a literal."""


def literal(text: str) -> str:
    """Return a text as a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def field_name(name: str) -> str:
    """Return a name as Spark SQL takes it, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"


def beside(sql: str, column: str) -> str:
    """Return the SQL of the whole number that a text says, which Spark keeps beside the code that it compiles and not in it.

    So what is another number or time in each batch leaves the compiled code as it is, and Spark uses that again. The column
    (a text that is never null) adds nothing: it keeps Spark from working the value out beforehand.
    """
    return f"cast(concat(left({column}, 0), {sql}) as bigint)"
