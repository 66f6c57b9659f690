"""Tables as notebooks and terminals show them: figures with separators, HTML by pandas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from frazil.errors import safe

BAD = "color: #b3261e"


def with_sentence(table: pd.DataFrame, sentence: str) -> pd.DataFrame:
    """Return a table that is shown below a sentence, or as the sentence alone if it is empty."""
    table.attrs["sentence"] = sentence
    return table


def text(table: pd.DataFrame) -> str:
    """Return a table as aligned text, below its sentence."""
    sentence = safe(table.attrs.get("sentence", ""))
    if table.empty:
        return sentence or "(nothing)"
    return f"{sentence}\n".lstrip("\n") + _shown(table).to_string(index=False, justify="left")


def html(table: pd.DataFrame, bad: Sequence[bool] = ()) -> str:
    """Return a table as HTML below its sentence, with each value escaped; `bad` marks rows in red."""
    sentence = escape(safe(table.attrs.get("sentence", "")))
    if table.empty:
        return sentence or "<em>nothing</em>"
    styled = _shown(table).reset_index(drop=True).style.hide(axis="index").format(escape="html")
    styled = styled.format_index(escape="html", axis="columns")
    styled = styled.map(lambda _: "text-align: left; white-space: pre-wrap")
    styled = styled.map(lambda _: "text-align: right", subset=[c for c in table if _is_number(table[c])])
    styled = styled.apply(lambda row: [BAD if row.name < len(bad) and bad[row.name] else ""] * len(row), axis=1)
    return (f"<p>{sentence}</p>" if sentence else "") + styled.to_html()


def figure(value: Any, name: str = "") -> str:
    """Return a value as people read it; the name's ending gives the unit: `_s` seconds, `_share` a part of 1."""
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return "\n".join(map(safe, str(value).split("\n")))
    if name.endswith("_share"):
        return f"{100 * value:.1f} %"
    if name.endswith(("_s", "seconds")):
        return span(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


def span(seconds: float) -> str:
    """Return a span of time with two or three digits: `1.25 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 60 or math.isinf(seconds):
        return f"{seconds:.3g} s"
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            whole, rest = divmod(round(seconds), size)
            return f"{whole} {unit} {rest // part} {smaller}" if rest // part else f"{whole} {unit}"
    return ""


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    columns = {name: [figure(v, str(name)) for v in column.tolist()] for name, column in table.items()}
    return pd.DataFrame(columns, dtype=object)
