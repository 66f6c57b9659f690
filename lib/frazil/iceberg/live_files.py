"""The live data files of a snapshot, each with its deletes: read from manifests, which never change and are read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from gzip import BadGzipFile
from typing import TYPE_CHECKING, Any, cast

from obstore.exceptions import BaseError

from frazil.errors import FrazilError
from frazil.iceberg.file_threads import each

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Record
    from pyiceberg.types import NestedField, PrimitiveType, StructType

DELETE_PATH = 2147483546
"""The field id of the column of a position delete file that names data files."""
DELETED, EQUALITY_DELETES = 2, 2
"""The status of an entry, and the content of a file."""
ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
LINEAGE = {ROW_ID: 2147483540, LAST_UPDATED: 2147483539}
"""Columns of rows that are written again, with the field ids that Iceberg reserves for them."""


def _fields(schema: Schema | StructType, *ids: int) -> list[NestedField]:
    by_id = {field.field_id: field for field in schema.fields}
    return [by_id[i] for i in ids]


@cache
def _schemas() -> tuple[Schema, Schema]:
    """Return what is read of a list and of a manifest. PyIceberg takes half a second to import, and an idle run reads neither."""
    from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS, MANIFEST_LIST_FILE_SCHEMAS
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField, StructType

    # path, first row id, spec id, sequence; the lists after these PyIceberg cannot skip
    of_list = Schema(*_fields(MANIFEST_LIST_FILE_SCHEMAS[3], 500, 520, 502, 515, 507))
    # path, size, rows, partition, content, first row id, data file, offset, length, lower and upper bounds, what cannot be skipped
    ids = (100, 104, 103, 102, 134, 142, 143, 144, 145, 125, 128, 108, 109, 110, 137, 132, 135)
    file = NestedField(2, "data_file", StructType(*_fields(DATA_FILE_TYPE[3], *ids)), required=True)
    return of_list, Schema(*_fields(MANIFEST_ENTRY_SCHEMAS[3], 0, 3), file)


@dataclass(frozen=True)
class Delete:
    """Deleted rows of one data file (`of`): a blob of a Puffin file. On v2 a Parquet file, maybe of all files of a partition."""

    path: str
    size: int
    rows: int
    spec_id: int
    partition: Record
    sequence: int
    of: str
    offset: int | None = None
    length: int | None = None


@dataclass(frozen=True)
class LiveFile:
    """A live data file. `sequence` and `first_row_id` are what its rows inherit."""

    path: str
    size: int
    rows: int
    spec_id: int
    partition: Record
    sequence: int
    first_row_id: int | None
    deletes: tuple[Delete, ...] = ()
    bounds: tuple[tuple[bytes | None, bytes | None], ...] = ()
    """The least and the greatest value of each column of the key, as Iceberg has them in bytes."""
    statistics: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What a new file has for its commit, as Iceberg's JSON has it."""

    @property
    def own_deletes(self) -> list[Delete]:
        """The deletes of this file alone, which new ones replace."""
        return [d for d in self.deletes if d.of]

    def bounds_of(self, key_ids: Sequence[int]) -> tuple[tuple[bytes | None, bytes | None], ...]:
        """Return the bounds of a new file, which are in its statistics, as its manifest will have them."""
        sides = [self.statistics[name] for name in ("lower-bounds", "upper-bounds")]
        low, high = ({i: bytes.fromhex(v) for i, v in zip(s["keys"], s["values"], strict=True)} for s in sides)
        return tuple((low.get(i), high.get(i)) for i in key_ids)


class EqualityDeletesError(FrazilError, code="equality-deletes"):
    """Another writer put equality deletes into a table, which few engines read. Rewrite its data files with Spark's procedure."""


class MetadataDamagedError(FrazilError, code="metadata-damaged"):
    """A file of a table's metadata cannot be read. Bring it back, as from a version that the store keeps; or register the table with the metadata file before it."""

    def __init__(self, file: str, error: Exception):
        cure = "bring it back; or register the table with the metadata file before it: CALL system.register_table"
        super().__init__(f"{file} cannot be read: {type(error).__name__}", cure)


@contextmanager
def damage_named(file: str) -> Iterator[None]:
    """Raise MetadataDamagedError for an error of a reader, which names no file. A store that does not answer is no damage."""
    try:
        yield
    except (FileNotFoundError, BadGzipFile) as error:
        raise MetadataDamagedError(file, error) from error
    except (FrazilError, OSError, BaseError):
        raise
    except Exception as error:
        raise MetadataDamagedError(file, error) from error


class Manifests:
    """Reads manifests by what `io` returns, and keeps what the last snapshot had; `key_ids` are the field ids of the key."""

    def __init__(self, io: Callable[[], FileIO]) -> None:
        self.io = io
        self.key_ids: Sequence[int] = ()
        self._read: dict[tuple[Any, ...], list[LiveFile | Delete]] = {}
        """By what the list says of a manifest: its first row id appears when a table gets format v3."""

    def listed(self, manifest_list: str) -> list[tuple[Any, ...]]:
        """Return what a list says of its manifests."""
        return [tuple(manifest[:4]) for manifest in self._records(manifest_list, _schemas()[0])]

    def live_files(self, manifest_list: str) -> dict[str, LiveFile]:
        """Return the live data files of a snapshot by path."""
        manifests = self.listed(manifest_list)
        missing = [manifest for manifest in manifests if manifest not in self._read]
        self._read |= zip(missing, each(self._entries, missing, manifest_list), strict=True)
        self._read = {manifest: self._read[manifest] for manifest in manifests}
        entries = [entry for of_manifest in self._read.values() for entry in of_manifest]
        files = {e.path: e for e in entries if isinstance(e, LiveFile)}
        deletes: dict[str, list[Delete]] = {}
        for delete in (e for e in entries if isinstance(e, Delete)):
            for path in [delete.of] if delete.of else in_partition(delete, files):
                deletes.setdefault(path, []).append(delete)
        return files | {path: replace(files[path], deletes=in_order(d)) for path, d in deletes.items() if path in files}

    def _records(self, path: str, schema: Schema) -> Iterator[list[Any]]:
        from pyiceberg.avro.file import AvroFile

        records: AvroFile[Record]
        with damage_named(path), AvroFile(self.io().new_input(path), schema) as records:
            yield from map(_values, records)

    def _entries(self, manifest: tuple[Any, ...]) -> list[LiveFile | Delete]:
        """Read the live entries of a manifest; a row id that a file does not have follows from the entries before."""
        path, next_row_id, spec_id, sequence = manifest
        found: list[LiveFile | Delete] = []
        for status, own_sequence, file in self._records(path, _schemas()[1]):
            if status == DELETED:
                continue
            location, size, rows, partition, content, first_row_id, of, offset, length, low, high, *_ = _values(file)
            place = (location, size, rows, spec_id, partition, sequence if own_sequence is None else own_sequence)
            low, high = low or {}, high or {}
            if content == EQUALITY_DELETES:
                cure = "CALL system.rewrite_data_files, with options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"
                raise EqualityDeletesError(f"{location} has equality deletes", cure)
            if content:
                found.append(Delete(*place, of or _only_file(low, high), offset, length))
                continue
            if first_row_id is None and next_row_id is not None:
                first_row_id, next_row_id = next_row_id, next_row_id + rows
            found.append(LiveFile(*place, first_row_id, bounds=tuple((low.get(i), high.get(i)) for i in self.key_ids)))
        return found


def in_order(deletes: Iterable[Delete]) -> tuple[Delete, ...]:
    """Return deletes of a data file in a fixed order."""
    return tuple(sorted(deletes, key=lambda delete: (delete.sequence, delete.path)))


def _values(record: Record) -> list[Any]:
    return [record[i] for i in range(len(record))]


def _only_file(low: dict[int, bytes], high: dict[int, bytes]) -> str:
    """Return the data file that position deletes of format v2 are of, by their bounds; empty: they are of several."""
    first, last = low.get(DELETE_PATH), high.get(DELETE_PATH)
    return first.decode() if first and first == last else ""


def in_partition(delete: Delete, files: dict[str, LiveFile]) -> list[str]:
    """Return the files of a partition that its deletes may be of."""
    place = delete.spec_id, delete.partition
    return [f.path for f in files.values() if (f.spec_id, f.partition) == place and f.sequence <= delete.sequence]


def partition_types(metadata: TableMetadata) -> dict[int, StructType]:
    """Return the types of partition values by spec id, from a schema that has all their columns: some may be dropped since."""
    schemas = [metadata.schema(), *reversed(metadata.schemas)]
    found = {}
    for spec in metadata.partition_specs:
        needed = {field.source_id for field in spec.fields}
        found[spec.spec_id] = spec.partition_type(next(s for s in schemas if needed <= s.field_ids))
    return found


def file_json(types: dict[int, StructType], file: LiveFile | Delete) -> dict[str, Any]:
    """Return a data file, or deletes, as Iceberg's JSON has them; a file that is to be removed needs no statistics."""
    from pyiceberg.conversions import to_json

    partition = {
        str(kind.field_id): None if value is None else to_json(cast("PrimitiveType", kind.field_type), value)
        for kind, value in zip(types[file.spec_id].fields, _values(file.partition), strict=True)
    }
    told = {
        "spec-id": file.spec_id, "partition": partition, "file-path": file.path,
        "file-size-in-bytes": file.size, "record-count": file.rows, "file-format": "PARQUET",
    }  # fmt: skip
    if isinstance(file, LiveFile):
        return told | {"content": "DATA"} | file.statistics
    told |= {"content": "POSITION_DELETES"} | ({"referenced-data-file": file.of} if file.of else {})
    puffin = {"file-format": "PUFFIN", "content-offset": file.offset, "content-size-in-bytes": file.length}
    return told if file.offset is None else told | puffin
