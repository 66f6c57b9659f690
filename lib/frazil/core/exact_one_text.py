"""The exact value of one text that Arrow's cast refuses, or does not surely read right."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import ROUND_DOWN, Context, Decimal, InvalidOperation

import pyarrow as pa

EXACT_REALS = 2**53
"""Up to here a double holds each integer: a larger number with an exponent may have been rounded before it was written."""
SPACES = " \t\n\v\f\r"
"""They count for nothing around numbers, days and moments."""
DIGITS = r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"

_NUMBER = re.compile(rf"[+-]?{DIGITS}", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)[ T](\d\d?):(\d\d?):(\d\d?)(?:\.(\d*))?\s*(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)


def number(text: str, target: pa.DataType) -> int | Decimal | None:
    """Return the number of a text: zeros after its digits, or an exponent, change nothing."""
    try:
        value = Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:
        return None
    if value is None or (value and value.adjusted() > 40) or ("e" in text.lower() and value.copy_abs() > EXACT_REALS):
        return None
    scale = getattr(target, "scale", 0)
    cut = value.quantize(Decimal(1).scaleb(-scale), ROUND_DOWN, Context(prec=100))
    if cut != value:
        return None
    if pa.types.is_decimal(target):
        return cut if cut.copy_abs() < Decimal(1).scaleb(target.precision - scale) else None
    most = 1 << (target.bit_width - 1)
    return int(cut) if -most <= cut < most else None


def day(text: str, target: pa.DataType) -> date | None:
    """Return the day of a text."""
    try:
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else None
    except ValueError:
        return None


def moment(text: str, target: pa.DataType) -> datetime | None:
    """Return the moment of a text; only an instant may name a zone."""
    found = _MOMENT.fullmatch(text)
    if not found or (found[8] and not target.tz) or (found[7] or "")[6:].strip("0"):
        return None
    try:
        year, month, of_month, hour, minute, second = map(int, found.groups()[:6])
        value = datetime(year, month, of_month, hour, minute, second, int((found[7] or "")[:6].ljust(6, "0")))
        if not target.tz:
            return value
        zone = datetime.strptime(found[8] + "00" * (len(found[8]) == 3), "%z").tzinfo if found[8] else UTC
        return value.replace(tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
