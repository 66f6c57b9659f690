"""Parquet files with the types that DMS gives their columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from frazil_demo.settings import SimulatorError, Target
from frazil_old.config.spec import Column

_EPOCH, _DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1).toordinal()
_PLAIN: dict[str, tuple[pa.DataType, Callable[[str], Any]]] = {
    "BOOLEAN": (pa.bool_(), lambda text: text == "true"),
    "INT1": (pa.int8(), int), "INT2": (pa.int16(), int), "INT4": (pa.int32(), int), "INT8": (pa.int64(), int),
    "UINT1": (pa.uint8(), int), "UINT2": (pa.uint16(), int), "UINT4": (pa.uint32(), int), "UINT8": (pa.uint64(), int),
    "REAL4": (pa.float32(), float), "REAL8": (pa.float64(), float),
    "BYTES": (pa.binary(), bytes.fromhex), "BLOB": (pa.binary(), bytes.fromhex),
    "DATE": (pa.date32(), lambda text: date.fromisoformat(text).toordinal() - _DAY),
}  # fmt: skip


def _time(text: str) -> int:
    """Return a time of day in milliseconds; smaller parts are cut off, as Parquet's TIME32 has none."""
    hour, minute, second = text[:8].split(":")
    fraction = text[8:].partition("+")[0].partition("-")[0].removeprefix(".")
    return (int(hour) * 3600 + int(minute) * 60 + int(second)) * 1000 + int(f"{fraction:0<3}"[:3])


def _column(column: Column, target: Target) -> tuple[pa.Field, Callable[[str], Any]]:
    """Return a column's Parquet field, and the function that converts DMS's texts into its values."""
    kind, unit = column.dms_type, "ms" if target.milliseconds else "us"

    def moment(text: str) -> int:
        return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // timedelta(
            **{"milliseconds" if unit == "ms" else "microseconds": 1}
        )

    typed, convert = _PLAIN.get(kind, (pa.string(), str))
    if kind == "NUMERIC":
        typed, convert = pa.decimal128(*column.arguments), Decimal
    elif kind == "TIME":
        typed, convert = pa.time32("ms"), _time
    elif kind == "DATETIME":
        typed, convert = pa.timestamp(unit, "UTC"), moment
    return pa.field(column.name, typed, column.nullable), convert


class ParquetFile:
    """A Parquet file with DMS's types. Its bytes are pyarrow's: DMS's writer has another name."""

    def __init__(self, path: Path, target: Target, columns: Sequence[Column]):
        self._fields = [_column(c, target) for c in columns]
        self._limit, self.size = target.row_group, 0
        self._rows: list[Sequence[str | None]] = []
        self._schema = pa.schema([f for f, _ in self._fields])
        first = target.parquet_version == "parquet-1-0"
        self._out = pq.ParquetWriter(
            path, self._schema, version="1.0" if first else "2.6", data_page_version="1.0" if first else "2.0",
            compression=target.compression, use_dictionary=target.encoding != "plain", store_schema=False,
            write_statistics=target.statistics, data_page_size=target.page_size,
            dictionary_pagesize_limit=target.dictionary_limit,
        )  # fmt: skip

    def write(self, row: Sequence[str | None]) -> None:
        """Add one row."""
        self._rows.append(row)
        self.size += sum(len(v) + 1 if v else 1 for v in row)
        if len(self._rows) >= self._limit:
            self._write()

    def close(self) -> None:
        """Finish the file."""
        if self._rows:
            self._write()
        self._out.close()

    def _write(self) -> None:
        arrays = [
            self._array(field, convert, texts)
            for (field, convert), texts in zip(self._fields, zip(*self._rows, strict=True), strict=True)
        ]
        self._out.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []

    def _array(self, field: pa.Field, convert: Callable, texts: Sequence[str | None]) -> pa.Array:
        try:
            return pa.array([None if t is None else convert(t) for t in texts], field.type)
        except (ValueError, ArithmeticError) as e:
            raise SimulatorError(
                f"column {field.name}: a value does not fit Parquet's {field.type}: {e}",
                "write CSV, or change the value",
            ) from None
