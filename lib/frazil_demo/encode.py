"""From PostgreSQL's text of a value to DMS's text, and from texts to CSV lines.

Real DMS files show REAL4 digits, dates, smallint and integer, text, nulls, quoting, and `\\n` at the row end. What this
module assumes, because no available file shows it, is marked "Assumed".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

from frazil_demo.pgoutput import UNCHANGED, Unchanged
from frazil_demo.settings import Target

Encoder = Callable[[str], str]


def real4(text: str) -> str:
    """Write a `real` as DMS does: 9 significant digits of the stored value, `+3.23800011e+01`."""
    return _special(text) or f"{struct.unpack('f', struct.pack('f', float(text)))[0]:+.8e}"


def real8(text: str) -> str:
    """Write a `double precision` with 17 significant digits, so that the value survives."""
    # Assumed: the form of REAL4, with enough digits to be exact.
    return _special(text) or f"{float(text):+.16e}"


def _special(text: str) -> str:
    # Assumed: NaN and the infinities as PostgreSQL writes them.
    return text if text.lstrip("-") in ("NaN", "Infinity") else ""


def boolean(text: str) -> str:
    """Write `true` or `false`, as DMS maps PostgreSQL's boolean by default."""
    return {"t": "true", "f": "false"}[text]


def moment(text: str) -> str:
    """Write a timestamp with 6 fraction digits; the session must show zoned ones in UTC."""
    if text == "infinity":
        return "9999-12-31 23:59:59.000000"
    # Assumed: always 6 digits; -infinity and years BC as PostgreSQL writes them.
    if not text[0].isdigit() or text.endswith("BC"):
        return text
    whole, _, fraction = text.removesuffix("+00").partition(".")
    return f"{whole}.{fraction:0<6}"


def binary(text: str) -> str:
    r"""Write bytes as lower-case hexadecimal digits without PostgreSQL's leading `\x`."""
    # Assumed: lower case.
    return text.removeprefix("\\x")


def free_numeric(text: str) -> str:
    """Round a numeric without declared precision to DMS's NUMERIC(28,6)."""
    # Assumed: half away from zero, always 6 fraction digits.
    return str(Decimal(text).quantize(Decimal("0.000001"), ROUND_HALF_UP, Context(prec=60))) if text != "NaN" else text


def money(text: str) -> str:
    """Write money as DMS's NUMERIC(38,4)."""
    # Assumed: 4 decimals. The server must show dollars, as it does without a locale.
    return f"{Decimal(re.sub('[^0-9.-]', '', text)):.4f}"


ENCODERS: dict[str, Encoder] = {
    "float4": real4, "float8": real8, "bool": boolean, "timestamp": moment, "timestamptz": moment, "bytea": binary,
    "money": money,
}  # fmt: skip
"""By PostgreSQL's type name; an unlisted type is written as PostgreSQL writes it."""


def encoder(type_name: str, modifier: int = -1) -> Encoder | None:
    """Return the function that turns PostgreSQL's text of a type into DMS's, or None if both are the same."""
    if type_name == "numeric" and modifier == -1:
        return free_numeric
    return ENCODERS.get(type_name)


class CsvRows:
    """Writes lines by the settings: with RFC 4180 quotes where a field needs them, or raw text without quotes.

    Raw text (Rfc4180 false) is as DMS writes it: a value with a delimiter or a row's end cannot be read back.
    """

    def __init__(self, target: Target):
        self.delimiter, self.end = target.delimiter, target.row_delimiter
        self.null, self.no_sup, self.quoting = target.null_value, target.no_sup_value, target.rfc4180

    def field(self, value: str | None | Unchanged) -> str:
        """Write one field: a null as the null token, an empty string as nothing, neither in quotes."""
        if value is None:
            return self.null
        if value is UNCHANGED:
            return self.no_sup
        # Assumed: a text that equals the null token cannot be distinguished from a null.
        if self.quoting and any(part in value for part in (self.delimiter, self.end, '"', "\n", "\r")):
            return '"' + value.replace('"', '""') + '"'
        return value

    def line(self, values: Sequence[str | None | Unchanged]) -> str:
        """Write one row with its row delimiter."""
        null, none = self.null, self.no_sup
        plain = self.delimiter.join([null if v is None else none if v is UNCHANGED else v for v in values])
        clean = '"' not in plain and "\n" not in plain and "\r" not in plain and self.end not in plain
        if not self.quoting or (clean and plain.count(self.delimiter) == len(values) - 1):
            return plain + self.end
        return self.delimiter.join([self.field(v) for v in values]) + self.end
