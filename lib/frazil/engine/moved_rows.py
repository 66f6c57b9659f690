"""The rows of a large batch that had another key before it: several tasks see the events of one row.

Each task reports the events of keys that rows left or reached. The driver follows the rows from key to key.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import TYPE_CHECKING

from frazil.core.latest_per_key import Latest, keys_at_first
from frazil.engine.row_form import RowForm
from frazil.engine.shuffle import ORDER, packed

if TYPE_CHECKING:
    import pyarrow as pa

BUCKET_BITS = 32
"""The number of a row in its batch is its bucket, shifted by this, plus its place in the bucket."""


def moving_of_bucket(bucket: int, latest: Latest, rows: pa.Table, form: RowForm) -> str | None:
    """Return the moving events of a bucket, with the numbers and the keys of their rows, as text; None: no key changed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if latest.moving is None:
        return None
    place = latest.moving["row"]
    number = pc.add(place, pa.scalar(bucket << BUCKET_BITS))
    keys = rows.select(form.key_columns).take(place.combine_chunks())
    found = latest.moving.select([*ORDER, "deleted"]).append_column("n", number)
    for name in keys.column_names:
        found = found.append_column(name, keys[name])
    return base64.b64encode(packed(found)).decode()


def moved_rows(texts: Iterable[str], form: RowForm) -> pa.Table | None:
    """Return the rows that had another key before the batch: their number `n`, and number and key of their old one.

    These are `before` and `stored0` …. None: no row moved.
    """
    import pyarrow as pa

    parts = [pa.ipc.open_stream(base64.b64decode(text)).read_all() for text in texts]
    if not parts:
        return None
    moving = pa.concat_tables(parts).sort_by([(name, "ascending") for name in ORDER])
    numbers = moving["n"].to_pylist()
    at_first = keys_at_first(moving, numbers)
    if not at_first:
        return None
    event = {n: i for i, n in enumerate(numbers)}
    now = sorted(at_first)
    before = [at_first[n] for n in now]
    keys = moving.select(form.key_columns).take(pa.array([event[n] for n in before]))
    keys = keys.rename_columns([f"stored{i}" for i in range(len(form.key_columns))])
    return keys.append_column("n", pa.array(now)).append_column("before", pa.array(before))
