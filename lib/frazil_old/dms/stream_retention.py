"""Whether a stream still has the messages after a position, or was created again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frazil_old.dms.stream_source import ExpiredError, Offsets, stream_name

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


def require_retained(earliest: Offsets, ends: Offsets, position: Offsets, who: str, only: str) -> Offsets:
    """Raise ExpiredError if a position is outside the retained range; in topics other than `only`, if given, move it there."""
    others = {p for p in {*position, *ends} if only and stream_name(p) != only}
    moved = {p: min(max(position.get(p, 0), earliest[p]), ends[p]) for p in ends if p in others}
    own = {p: o for p, o in position.items() if p not in others}
    for p, offset in own.items():
        if p not in ends:
            raise ExpiredError(
                f"{who}: its position names {p}, which the topics do not have",
                "check whether the topic was created again",
            )
        if offset < earliest[p]:
            lost = f"messages {offset} to {earliest[p] - 1} of {p} expired before they were applied"
            raise ExpiredError(f"{who}: {lost}", RELOAD)
        if offset > ends[p]:
            raise ExpiredError(
                f"{who}: {p} ends at {ends[p]}, before the offset {offset}",
                "give an offset that exists; if the topic was created again: reload the table in DMS, drop it in the lake, and set it "
                "up again",
            )
    for p in ends.keys() - position.keys() - others:
        if earliest[p]:
            raise ExpiredError(f"{who}: partition {p} is new, and messages before {earliest[p]} have expired", RELOAD)
    return {**own, **moved}
