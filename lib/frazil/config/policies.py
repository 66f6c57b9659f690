"""The policies of a spec, and earlier layouts of headerless files."""

from __future__ import annotations

from dataclasses import dataclass

POLICIES = {
    "new": ("refuse", "add", "ignore"), "gone": ("refuse", "keep", "drop"), "type": ("refuse", "beside"), "key": ("refuse", "keep"),
}  # fmt: skip
"""The allowed values of each policy, the default first."""
WITHOUT_KEY = ("refuse", "append", "multiset")
"""Policies for a table without a key: take no rows; append every change; keep the source's rows, including duplicates."""
ON_BAD_ROWS = ("stop", "quarantine")
"""What a bad row does: stop its table, or move to the quarantine while the good rows of its batch are applied."""


@dataclass(frozen=True)
class Changes:
    """The policies for columns that change (`spec_entries.ChangesEntries` describes them). Empty: not set."""

    new: str = ""
    gone: str = ""
    type: str = ""
    key: str = ""

    def over(self, default: Changes) -> Changes:
        """Fill empty policies from `default`, then with the first value of each policy."""
        return Changes(*(getattr(self, n) or getattr(default, n) or known[0] for n, known in POLICIES.items()))


@dataclass(frozen=True)
class PastLayout:
    """The fields of headerless files up to and including `until` (`spec_entries.LayoutEntries` describes them)."""

    until: str
    columns: tuple[str, ...] = ()
    load: bool = False
    without: tuple[str, ...] = ()
