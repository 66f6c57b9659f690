"""Whether a stream still has the messages after a position, or was created again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frazil.dms.stream_source import ExpiredError, Offsets

RELOAD = "only a new load has the missing changes: reload the table in DMS, then run 01_full_load with on_changed_load=reload"


def recreated(was: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the names of topics or streams that were replaced by others."""
    return [name for name, identity in was.items() if now.get(name, identity) != identity]


@dataclass(frozen=True)
class Retention:
    """What the streams retain: their ids, which change if one is created again, and a check of positions.

    `check` raises for a position outside of what is retained. `may_have_expired` returns the partitions whose messages
    after a position may have expired. Its second argument is false if the user set the position: it may then mean the
    first retained message.
    """

    stream_ids: dict[str, str]
    check: Callable[[Offsets, str, str], Offsets]
    may_have_expired: Callable[[Offsets, bool], set[str]]

    def checked_position(self, position: Offsets, who: str, of: dict[str, str], only: str = "") -> Offsets:
        """Return a position without partitions that are gone and were read; `who` owns it, `of` is `stream_ids` at its time.

        Raise ExpiredError if messages after it were lost, or if its streams were replaced by others of the same name.
        If all of its messages are in `only` one topic, changes of other topics lose nothing.
        """
        if names := [n for n in recreated(of, self.stream_ids) if only in ("", n)]:
            raise ExpiredError(f"{who}: {', '.join(names)} was created again after its position was stored", RELOAD)
        return self.check(position, who, only)
