"""Positions and the side files that they name: read as they were written, or refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import obstore
import pyarrow as pa
import pytest
from obstore.store import MemoryStore

from frazil.dms.position import VERSION, Position, PositionError, SideFile, read_position
from frazil.dms.quarantine_files import SideFileGoneError, store, stored, unnamed


@pytest.mark.parametrize("position", [Position(), Position(batch=7, last="a/b.csv", rows=12, schema=3, quarantine=SideFile("q", 2, 5), stopped="late")])  # fmt: skip
def test_a_position_is_read_as_it_was_written(position):
    assert read_position(position.text, "t") == position
    assert len(position.text) < 1024


@pytest.mark.parametrize(
    "text", ["", "{", '{"lsat": "x"}', '{"batch": "1"}', "[]", f'{{"version": {VERSION + 1}, "later": 1}}']
)
def test_a_position_that_is_none_or_of_a_newer_version_is_refused_by_name(text):
    with pytest.raises(PositionError, match="db.t: its position is"):
        read_position(text, "db.t")


def test_side_files_are_written_once_and_a_lost_one_is_named():
    state, rows = MemoryStore(), pa.table({"raw": [b"1,x", b"2,y"]})
    assert store(state, "db.t", rows[:0]) is None and stored(state, None) is None
    first, second = store(state, "db.t", rows), store(state, "db.t", rows)
    assert first.path != second.path and stored(state, first) == rows
    assert msgspec.json.decode(msgspec.json.encode(first), type=SideFile) == first
    soon, past = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) - timedelta(hours=1)
    assert unnamed(state, "db.t", {first.path}, soon) == [second.path] and unnamed(state, "db", set(), soon) == []
    assert unnamed(state, "db.t", set(), past) == []
    obstore.put(state, first.path, b"other")
    obstore.delete(state, second.path)
    for file, said in ((first, "other bytes"), (second, "not there")):
        with pytest.raises(SideFileGoneError, match=f"2 waiting rows, .*{said}"):
            stored(state, file)
