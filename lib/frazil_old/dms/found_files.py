"""Finds DMS's files below a folder without any spec or setting, and reads the first rows of the first and last ones."""

from __future__ import annotations

import csv
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from frazil_old.config.settings import ParameterError
from frazil_old.core.csv import Dialect
from frazil_old.dms.endpoint import DatePartition, Endpoint
from frazil_old.dms.file_columns import first_and_last, first_rows, footer, metadata, rows_of_text
from frazil_old.dms.file_layout import CHANGE_PHASE, LOAD_PHASE
from frazil_old.dms.file_names import LOAD, is_data, states_a_time
from frazil_old.dms.file_order import in_order
from frazil_old.dms.files_against_settings import FIELD_DELIMITERS, read_rows, unpacked
from frazil_old.dms.listing import CONTROL, DmsObject, TableObjects, classified
from frazil_old.dms.storage import PAGE, decoded, each_of, is_s3, location, walk
from frazil_old.errors import FrazilError

HEAD, MOST_ROWS = 1 << 16, 500
"""Bytes of a file to read for its first rows, and maximum number of these."""
LARGEST_PARQUET = 8 << 20
"""Bytes of a Parquet file on S3 that is read whole for its first rows; of larger ones only the columns are read."""
LISTING = 0.6
"""The part of the time that the listing may take."""


@dataclass(frozen=True)
class Sample:
    """The first rows of one file; `rows` begin with the header if there is one. Of Parquet a null is an empty text."""

    file: DmsObject
    phase: int
    compression: str = "none"
    rows: tuple[tuple[str, ...], ...] = ()
    delimiter: str = ""
    row_delimiter: str = ""
    quotes: tuple[bool, ...] = (True, False)
    row_bytes: float = 0.0
    """Bytes in the file for each row."""
    problem: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether it shows columns."""
        return bool(self.rows) or (self.file.is_parquet and not self.problem)


@dataclass
class Found:
    """What is below a folder: DMS's files by table (`schema.table`), those of all tables, and remarks for the user."""

    root: str
    tables: dict[str, TableObjects] = field(default_factory=dict)
    shared: tuple[DmsObject, ...] = ()
    cdc_path: str = ""
    partition: DatePartition | None = None
    others: int = 0
    """Number of files that are not DMS's data."""
    remarks: list[str] = field(default_factory=list)
    until: float = math.inf
    """When no further file is read (`time.monotonic`)."""
    is_whole: bool = True
    """Whether everything was listed and read in time."""
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def add(self, entries: Iterable[DmsObject]) -> None:
        """Add the entries of a listing, by table."""
        by_table: dict[str, list[DmsObject]] = defaultdict(list)
        shared = []
        for e in entries:
            parts = e.path[len(self.root) + 1 :].split("/")
            if e.is_shared:
                self.cdc_path = "/".join(parts[:-1])
                shared.append(e)
            elif len(parts) < 3 or any(CONTROL.match(p) for p in parts[:-1]):
                self.others += 1
            else:
                by_table["/".join(parts[:2])].append(e)
        for folder, there in by_table.items():
            self.tables[folder.replace("/", ".", 1)] = classified(f"{self.root}/{folder}", there)
        self.shared = tuple(in_order(shared))


def find(path: str, seconds: float = math.inf) -> Found:
    """List what is below a path, find the folder that holds DMS's folders of schemas, and read first rows; stop in time."""
    began = time.monotonic()
    if "://" in path and not is_s3(path):
        raise ParameterError(f"{path} is neither a folder nor on S3", "00_setup describes what is in a stream")
    top = location(path) if is_s3(path) else str(Path(path).absolute())
    if not is_s3(top) and not Path(top).is_dir():
        what = "is a file" if Path(top).exists() else "does not exist"
        raise ParameterError(f"{top} {what}", "name the folder that DMS writes to, or s3://bucket/folder")
    found, data = Found(top, until=began + seconds), []
    page = ""
    for number, e in enumerate(walk(top)):
        folder = e.path.rpartition("/")[0] if not is_s3(top) else str(number // PAGE)
        if folder != page and page and time.monotonic() > began + seconds * LISTING:  # another folder or page was read
            found.is_whole = False
            break
        page = folder
        if e.special or not is_data(e.name):
            found.others += not e.folder
        elif not LOAD.match(e.name) and not states_a_time(e.name):
            found.remarks.append(f"{e.path}: its name is no time, as DMS's change files have")
        else:
            data.append(e)
    found.root, found.partition = _root(top, data)
    found.add(data)
    if found.root != top and data:
        found.remarks.insert(0, f"the source is {found.root}: it holds <schema>/<table>/")
    _read_samples(found)
    return found


def _root(top: str, data: list[DmsObject]) -> tuple[str, DatePartition | None]:
    """Return the folder above the schemas, and how change files are divided by date: by how deep the files are."""
    depths, partitions = Counter(), Counter()
    for e in (e for e in data if not e.is_shared):
        parts = e.path[len(top) + 1 :].split("/")[:-1]
        tails = [n for n in range(min(4, len(parts)), 0, -1) if not LOAD.match(e.name)]
        form, length = next(((p, n) for n in tails if (p := DatePartition.of("/".join(parts[-n:])))), (None, 0))
        partitions[form] += length > 0
        depths[len(parts) - length] += 1
    partition = partitions.most_common(1)[0][0] if partitions.total() else None
    depth, levels = min(depths, default=2), top.split("/")
    if depth < 2:
        above = levels[: depth - 2]
        return ("/".join(above) if len(above) > 2 * is_s3(top) else top), partition
    first = next((e.path for e in data if not e.is_shared), f"{top}/-/-/-")
    prefix = "/".join(first.split("/")[: len(levels) + depth - 2])
    return (prefix if all(e.path.startswith(f"{prefix}/") for e in data) else top), partition


def _read_samples(found: Found) -> None:
    """Read the first rows of the first and the last file of each kind and table."""
    wanted = [
        (name, file, phase)
        for name, there in found.tables.items()
        for files, phase in ((there.loads, LOAD_PHASE), (there.changes, CHANGE_PHASE))
        for file in first_and_last([f for f in files if f.size])
    ]

    def one(item: tuple[str, DmsObject, int]) -> Sample | None:
        return None if time.monotonic() > found.until else read_sample(item[1], item[2])

    found.samples = {name: [] for name in found.tables}
    for (name, _, _), sample in zip(wanted, each_of(one, wanted, is_s3(found.root)), strict=True):
        found.is_whole &= sample is not None
        found.samples[name] += [sample] if sample else []
    for file in first_and_last([f for f in found.shared if f.size]):
        for name, sample in _shared_samples(file):
            found.samples.setdefault(name, []).append(sample)
            found.tables.setdefault(name, TableObjects())


def read_sample(file: DmsObject, phase: int) -> Sample:
    """Read the first rows of a file; whatever is wrong with it becomes its `problem`."""
    sample = Sample(file, phase)
    try:
        if file.is_parquet:
            footer(file)
            rows = _parquet_rows(file) if file.size <= LARGEST_PARQUET or not is_s3(file.path) else ()
            return replace(sample, rows=rows, row_bytes=file.size / max(1, metadata(file).num_rows))
        data, compression, whole = unpacked(file, HEAD)
        if not data:
            return replace(sample, compression=compression, problem="is no gzip archive, or a damaged one")
        return _of_text(
            replace(sample, compression=compression), decoded(data), whole, min(file.size, HEAD) / len(data)
        )
    except FrazilError as e:
        return replace(sample, problem=e.problem)
    except (OSError, ValueError, csv.Error) as e:
        return replace(sample, problem=f"cannot be read: {e}")


def _parquet_rows(file: DmsObject) -> tuple[tuple[str, ...], ...]:
    """Return the first rows of a Parquet file as texts; a null is an empty one."""
    first = first_rows(file)
    columns = [c.to_pylist() for c in first.columns] if first else []
    return tuple(tuple("" if v is None else str(v) for v in row) for row in zip(*columns, strict=True))


def _of_text(sample: Sample, text: str, whole: bool, packing: float) -> Sample:
    first = text[:10_000].splitlines()[0] if text.strip() else ""
    likely = sorted((d for d in FIELD_DELIMITERS if d in first), key=first.count, reverse=True) or [","]
    tried = [(d, read_rows(text, whole, Endpoint(null_value="", delimiter=d), 2)) for d in likely]
    delimiter, read = next(((d, r) for d, r in tried if r.delimiter == d), tried[0])
    rows, problem, count = read.rows, "", len(read.rows)
    if not rows:
        every = [r for r in rows_of_text(text, Dialect(delimiter, read.row_delimiter or "\n", True)) if any(r)]
        every = every if whole or len(every) < 2 else every[:-1]
        widths = Counter(map(len, every))
        width = widths.most_common(1)[0][0] if widths else 0
        rows, count = [r for r in every if len(r) == width], len(every)
        problem = f"{count - len(rows)} of its first {count} rows have not {width} fields" if rows else "has no rows"
    return replace(
        sample,
        rows=tuple(map(tuple, rows[:MOST_ROWS])),
        delimiter=delimiter if read.delimiter else "",
        row_delimiter=read.row_delimiter,
        quotes=read.quotes or (True, False),
        row_bytes=len(text.encode()) * packing / max(1, count),
        problem=problem,
    )


def _shared_samples(file: DmsObject) -> list[tuple[str, Sample]]:
    """Return each table's rows at the beginning of a file of all tables, as if they were in a file of its own."""
    sample, (data, _, whole) = read_sample(file, CHANGE_PHASE), unpacked(file, HEAD)
    dialect = Dialect(sample.delimiter or ",", sample.row_delimiter or "\n", True)
    rows = [r for r in rows_of_text(data.decode("utf-8", "replace"), dialect) if len(r) > 3 and r[1] and r[2]]
    by_table: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for row in (rows if whole else rows[:-1])[:MOST_ROWS]:
        by_table[f"{row[2]}.{row[1]}"].append((row[0], *row[3:]))
    alike = {name: tuple(r for r in own if len(r) == len(own[0])) for name, own in by_table.items()}
    return [(name, replace(sample, rows=own, row_bytes=0.0, problem="")) for name, own in alike.items()]
