"""Times in readable form, and as epoch milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime

from frazil_old.config.settings import ParameterError


def clock(ms: int | None) -> str:
    """Format epoch milliseconds as a time in UTC."""
    return "–" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def instant(text: str) -> int:
    """Return a time as epoch milliseconds; without a zone it counts as UTC."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ParameterError(
            f"'{text}' is no time", "write it like 2026-11-21 10:00, in UTC, or with a zone: 2026-11-21 10:00+02:00"
        ) from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
