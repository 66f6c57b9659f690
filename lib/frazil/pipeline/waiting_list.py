"""The rows in quarantine as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from frazil.engine.work import for_each
from frazil.errors import FrazilError
from frazil.iceberg import side_files

if TYPE_CHECKING:
    from frazil.pipeline.lake import Lake
    from frazil.pipeline.table import Table

COLUMNS = ["table", "reason", "column", "file", "row", "bytes", "since", "side_file"]


def waiting(lake: Lake) -> pd.DataFrame:
    """Return the rows that wait of all tables; a table that cannot be read has a row whose reason says so."""
    rows: list[dict[str, Any]] = []
    for table, found in for_each(lake.tables, _of_table).items():
        rows += [{"table": table.source, "reason": str(found)}] if isinstance(found, FrazilError) else found
    return pd.DataFrame(rows, columns=COLUMNS)


def _of_table(table: Table) -> list[dict[str, Any]]:
    table.stored.refresh()
    side_file = table.stored.position.quarantine
    rows = side_files.stored(table.lake.state, side_file)
    if side_file is None or rows is None:
        return []
    own = {"table": table.source, "side_file": side_file.path}
    named = rows.rename_columns({"path": "file", "number": "row"}).to_pylist()
    return [{**row, **own, "bytes": _read(row["raw"], row["form"])} for row in named]


def _read(raw: bytes, form: str) -> str:
    if form == "parquet":
        return str(pa.ipc.open_stream(raw).read_all().to_pylist()[0])
    return raw.decode(errors="backslashreplace")
