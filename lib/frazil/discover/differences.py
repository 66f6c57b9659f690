"""How the rows of the lake differ from those of the source. Memory holds 32 bytes for each row of a side; rows that differ are read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import HIDDEN, many

SHOWN, LONGEST = 3, 40
"""The most keys that are shown, and characters of a value."""
Blocks = Callable[[], Iterator[pa.Table]]
"""Reads the rows of one side, in blocks."""
Numbers = Callable[[list[pa.ChunkedArray]], list[np.ndarray]]
"""Makes one or two numbers of each row of some columns without nulls, the same for the same values."""


@dataclass(frozen=True)
class Sides:
    """The rows of the source and of the lake, in the same columns; values of `masked` columns are never shown."""

    source: Blocks
    lake: Blocks
    key: Sequence[str]
    masked: frozenset[str]
    numbers: Numbers

    def compared(self) -> tuple[dict[str, int], list[str]]:
        """Return how many rows there are and differ, and what differs in some of them."""
        source, lake = self._numbered(self.source), self._numbered(self.lake)
        by = [name for name in source.columns if name.startswith("k")]
        both = source.merge(lake, "outer", by, indicator=True)
        apart = both[(both["_merge"] != "both") | (both["r0_x"] != both["r0_y"]) | (both["r1_x"] != both["r1_y"])]
        counts = {"rows": len(lake), "source_rows": len(source), "differing": len(apart)}
        if apart.empty:
            return counts, []
        return counts, [many(len(apart), "differing row"), *self._told(apart["k0"].to_numpy()[:SHOWN])]

    def _numbered(self, blocks: Blocks) -> pd.DataFrame:
        """Return numbers for each row of a side: of its key, and of the whole row, in which null is a value."""
        found = []
        for block in blocks():
            plain = [pc.fill_null(values, _zero(values.type)) for values in block.columns]
            halves = {"k": self.numbers(block.select(self.key).columns)}
            halves["r"] = self.numbers([*plain, *(values.is_valid() for values in block.columns)])
            found.append(pd.DataFrame({f"{of}{n}": half for of, both in halves.items() for n, half in enumerate(both)}))
        return pd.concat(found, ignore_index=True)

    def _told(self, wanted: np.ndarray) -> Iterator[str]:
        """Yield what differs in the rows of some keys, which are read again."""
        source, lake = (self._rows(blocks, wanted) for blocks in (self.source, self.lake))
        for key in {**source, **lake}:
            shown = ", ".join(self._value(name, value) for name, value in zip(self.key, key, strict=True))
            if key not in source or key not in lake:
                yield f"{shown}: only in the {'source' if key in source else 'lake'}"
                continue
            for name, value in source[key].items():
                if repr(value) != repr(other := lake[key][name]):
                    two = [HIDDEN if name in self.masked else repr(one)[:LONGEST] for one in (value, other)]
                    yield f"{shown}: {name} is {two[0]} in the source, {two[1]} in the lake"

    def _rows(self, blocks: Blocks, wanted: np.ndarray) -> dict[tuple, dict[str, Any]]:
        found: dict[tuple, dict[str, Any]] = {}
        for block in blocks():
            has = np.isin(self.numbers(block.select(self.key).columns)[0], wanted)
            rows = block.filter(pa.array(has)).to_pylist()
            found |= {tuple(row[name] for name in self.key): row for row in rows}
        return found

    def _value(self, name: str, value: Any) -> str:
        return f"{name}={HIDDEN if name in self.masked else value}"


def _zero(kind: pa.DataType) -> pa.Scalar:
    """Return a value of a type, which stands for null."""
    return pa.scalar({pa.string(): "", pa.binary(): b"", pa.bool_(): False}.get(kind, 0), kind)
