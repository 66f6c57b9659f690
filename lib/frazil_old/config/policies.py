"""What happens when a table's columns change, when it has no key, and when a row is bad: the allowed policies."""

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
class SchemaPolicy:
    """What happens when columns change (`spec_model.ChangesEntries` describes them). Empty: not set."""

    new: str = ""
    gone: str = ""
    type: str = ""
    key: str = ""

    def over(self, default: SchemaPolicy) -> SchemaPolicy:
        """Fill empty policies from `default`, then with the first value of each policy."""
        return SchemaPolicy(*(getattr(self, n) or getattr(default, n) or known[0] for n, known in POLICIES.items()))
