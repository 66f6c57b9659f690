"""The files in which given keys occur, for errors that name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from frazil.core.masks import masked
from frazil.engine.read_files import FileToRead, ReadPlan, read_changes

if TYPE_CHECKING:
    import pyarrow as pa


def files_of_keys(files: Sequence[FileToRead], read: ReadPlan, keys: Sequence[Sequence[Any]]) -> list[list[str]]:
    """Return, for each key as the driver collects it (times as texts), the paths of the files that have a row of it."""
    found: list[list[str]] = [[] for _ in keys]
    for file in files:
        for changes in read_changes(file, read):
            for paths, key in zip(found, keys, strict=True):
                if file.path not in paths and _has_key(changes.rows, read, key):
                    paths.append(file.path)
    return [sorted(paths) for paths in found]


def _has_key(rows: pa.RecordBatch, read: ReadPlan, key: Sequence[Any]) -> bool:
    import pyarrow.compute as pc

    same = None
    for name, value in zip(read.spec.key, key, strict=True):
        column = masked(read.spec.column(name), rows[f"new_{read.spec.names.index(name)}"])
        part = pc.equal(column, _scalar(value, column.type))
        same = part if same is None else pc.and_(same, part)
    return bool(pc.any(same).as_py())


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a value as the driver collects it in a column's type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(kind) and kind.tz:
        return pc.assume_timezone(pa.scalar(value).cast(pa.timestamp("us")), "UTC")
    if isinstance(value, str):
        return pa.scalar(value).cast(kind)
    return pa.scalar(bytes(value) if isinstance(value, bytearray) else value, kind)
