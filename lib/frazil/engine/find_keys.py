"""The rows of given keys in files of a table, for errors and histories that name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.config.spec import TableSpec
from frazil.core.types import masked, type_texts
from frazil.engine.read_files import FileToRead, ReadPlan, read_changes

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FoundRow:
    """A row of a key: its number in its file, operation, commit time, old key (None: unchanged), and the lake's values.

    Times are texts, those of instants in UTC.
    """

    file: str
    number: int
    op: str
    commit_ts: str | None
    old_key: tuple[Any, ...] | None
    values: dict[str, Any]


def files_of_keys(files: Sequence[FileToRead], read: ReadPlan, keys: Sequence[Sequence[Any]]) -> list[list[str]]:
    """Return, for each key as the driver collects it (times as texts), the paths of the files that have a row of it."""
    import pyarrow.compute as pc

    found: list[list[str]] = [[] for _ in keys]
    for file in files:
        for changes in read_changes(file, read):
            for paths, key in zip(found, keys, strict=True):
                if file.path not in paths and pc.any(_has_key(changes.rows, read, key, "new_")).as_py():
                    paths.append(file.path)
    return [sorted(paths) for paths in found]


def rows_of_key(file: FileToRead, read: ReadPlan, key: Sequence[Any]) -> Iterator[FoundRow]:
    """Yield a file's good rows of a key: those that have it, and those that an update moved away from it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    spec = read.spec
    for changes in read_changes(file, read):
        of_key = pc.or_kleene(
            pc.fill_null(_has_key(changes.rows, read, key, "new_"), False),
            pc.fill_null(_has_key(changes.rows, read, key, "old_"), False),
        )
        rows = changes.rows.filter(of_key)
        if not rows.num_rows:
            continue
        values = [_shown(masked(c, rows[f"new_{i}"])) for i, c in enumerate(spec.columns)]
        old = [_shown(masked(spec.column(k), rows[f"old_{i}"])) for i, k in enumerate(spec.key)]
        times = rows["commit_ts"].cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        for i, (number, op) in enumerate(zip(rows["number"].to_pylist(), rows["op"].to_pylist(), strict=True)):
            was = tuple(part[i] for part in old)
            moved = op == "U" and None not in was
            row = dict(zip(spec.names, (column[i] for column in values), strict=True))
            yield FoundRow(file.path.rsplit("/", 1)[-1], number, op, times[i], was if moved else None, row)


def typed_key(spec: TableSpec, key: Sequence[str]) -> list[pa.Scalar] | None:
    """Return a key that a person typed, in the types of its columns: bytes as hex digits, a masked value as its hash.

    None if a part is no value of its type.
    """
    import pyarrow as pa

    found = []
    for name, text in zip(spec.key, key, strict=True):
        column, texts = spec.column(name), pa.array([str(text)])
        values, misfit = (texts, None) if column.mask else type_texts(column, texts)
        if misfit is not None:
            return None
        found.append(values[0])
    return found


def _has_key(rows: pa.RecordBatch, read: ReadPlan, key: Sequence[Any], side: str) -> pa.Array:
    """Return which rows have a key in their new or old values."""
    import pyarrow.compute as pc

    same = None
    for i, (name, value) in enumerate(zip(read.spec.key, key, strict=True)):
        place = i if side == "old_" else read.spec.names.index(name)
        column = masked(read.spec.column(name), rows[f"{side}{place}"])
        part = pc.equal(column, _scalar(value, column.type))
        same = part if same is None else pc.and_(same, part)
    return same


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a value as the driver collects it in a column's type; a typed one stays as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(value, pa.Scalar):
        return value
    if pa.types.is_timestamp(kind) and kind.tz:
        return pc.assume_timezone(pa.scalar(value).cast(pa.timestamp("us")), "UTC")
    if isinstance(value, str):
        return pa.scalar(value).cast(kind)
    return pa.scalar(bytes(value) if isinstance(value, bytearray) else value, kind)


def _shown(values: pa.Array) -> list[Any]:
    """Return values for the driver: times as texts without zeros at their end."""
    import pyarrow as pa

    if pa.types.is_timestamp(values.type):
        texts = values.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        return [t and t.rstrip("0").rstrip(".") if t and "." in t else t for t in texts]
    if pa.types.is_date(values.type):
        return values.cast(pa.string()).to_pylist()
    return values.to_pylist()
