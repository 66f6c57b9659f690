"""Tables and catalogs that Frazil does not write to, each refused in setup with what helps: nothing is found out in the midst of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.iceberg.commits import ForgetfulCatalogError, pass_others
from frazil.iceberg.delete_files import PartitionDroppedError
from frazil.iceberg.snapshot_summary import POSITION, TAG, TOKEN, Snapshot

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from frazil.iceberg.table import LakeTable

UNLIMITED_MS = 2**63 - 1
DELTAS = {f"write.{change}.mode": "merge-on-read" for change in ("merge", "update", "delete")}
"""So other writers leave the files alone that Frazil deletes rows from."""
OF_FILES = (
    "s3.", "client.", "kms.", "encryption.", "gcs.encryption-key", "gcs.decryption-key", "glue.lakeformation-enabled", "io-impl",
)  # fmt: skip
"""How properties begin by which Java's FileIO finds, opens or encrypts files."""
KNOWN_IO = (
    "s3.endpoint", "s3.region", "s3.path-style-access", "s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.sse.key",
    "s3.use-arn-region-enabled", "s3.checksum-enabled", "s3.chunked-encoding-enabled", "s3.multipart.", "s3.staging-dir", "s3.delete-enabled",
    "s3.delete.batch-size", "s3.delete.num-threads", "s3.preload-client-enabled", "s3.retry.", "s3.acceleration-enabled", "s3.dualstack-enabled",
    "s3.cross-region-access-enabled", "s3.crt.", "s3.analytics-accelerator.", "s3.directory-bucket.", "client.region",
    "client.refresh-credentials", "client.legacy-md5-plugin-enabled",
)  # fmt: skip
"""Those that mean the same to PyIceberg, or leave no trace in a file."""
KNOWN_VALUES = {
    "s3.sse.type": {"none", "s3", "kms", "dsse-kms"},
    "s3.remote-signing-enabled": {"false"},
    "s3.access-grants.enabled": {"false"},
    "glue.lakeformation-enabled": {"false"},
    "io-impl": {f"org.apache.iceberg.{n}" for n in ("aws.s3.S3FileIO", "hadoop.HadoopFileIO", "io.ResolvingFileIO")},
}
"""Those of which PyIceberg follows some values."""


class TableRefusedError(FrazilError, code="table-refused"):
    """Frazil does not write to a table of this kind. Run the statement that the message names, or let Frazil make the table."""


def require_writable(name: str, metadata: TableMetadata, key: Sequence[str]) -> None:
    """Raise TableRefusedError, or PartitionDroppedError, for a table that Frazil cannot write; `name` is the one in Spark."""
    if {field.source_id for field in metadata.spec().fields} - metadata.schema().field_ids:
        cure = f"CREATE TABLE {name}_copy USING iceberg AS SELECT * FROM {name}, and name it as the target in the spec"
        raise PartitionDroppedError(f"{name}: a column that partitions it was dropped", cure)
    if found := [*_refusals(name, metadata, key)]:
        (problem, cure), *more = found
        raise TableRefusedError(f"{name}: {problem}", cure, [f"{what}; {way}" for what, way in more])


def _refusals(name: str, metadata: TableMetadata, key: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what is in the way, and the statement that helps."""
    yield from _odd_properties(name, metadata)
    schema = metadata.schema()
    for column in key:
        if column not in schema.column_names:
            yield f"it has no column '{column}', which is in the key", "correct key in the spec"
        elif not schema.find_field(column).field_type.is_primitive:
            yield f"its key column '{column}' is nested", "name a column of a plain type in the key of the spec"


def _odd_properties(name: str, metadata: TableMetadata) -> Iterator[tuple[str, str]]:
    told = metadata.properties
    for mode in DELTAS:
        if told.get(mode) == "copy-on-write":
            cure = f"ALTER TABLE {name} SET TBLPROPERTIES ('{mode}' = 'merge-on-read')"
            yield f"{mode} is copy-on-write, and Frazil writes row deltas", cure
    if (form := told.get("write.format.default", "parquet")) != "parquet":
        yield f"its new files are {form}", f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = 'parquet')"
    for entry in ("write.location-provider.impl", "write.folder-storage.path"):
        if entry in told:
            cure = f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{entry}')"
            yield f"it has {entry}: a location provider that only Java knows", cure
    if {*"?#"} & {*metadata.location}:
        yield f"its location {metadata.location} has a sign that URLs end at", "make the table at another location"
    if any(entry.startswith("encryption.") for entry in told):
        yield "it is encrypted, and only Java reads it", "let Frazil make a table without encryption"


def require_known_io(catalog: str, properties: dict[str, str]) -> None:
    """Raise TableRefusedError if Java's FileIO has properties that Python's does not follow: files would lie elsewhere, or in clear."""
    odd = []
    for name, value in sorted(properties.items()):
        if value not in KNOWN_VALUES.get(name, {value}):
            odd.append(f"{name}={value}")
        elif name.startswith(OF_FILES) and not name.startswith(KNOWN_IO) and name not in KNOWN_VALUES:
            odd.append(name)
    if odd:
        problem = f"the catalog {catalog} has the option {odd[0]}, which PyIceberg does not follow"
        cure = "set it at the bucket or for the process, and take it out of catalog_options"
        raise TableRefusedError(problem, cure, odd[1:])


def require_kept(table: LakeTable, made: Snapshot | None = None) -> None:
    """Require that the catalog keeps the position of a commit that was just made (None: an empty one is), and its tag.

    Raises ForgetfulCatalogError; TableRefusedError if Java's files have what Python's have not.
    """
    require_known_io(table.catalog.name, dict(table.handle.io().properties()))
    number = (made or pass_others(table)).id
    answer = table.catalog.load_table(table.name).metadata
    tag, there = answer.refs.get(TAG), answer.snapshot_by_id(number)
    told = there.summary.additional_properties if there and there.summary else {}
    lost = [f"{entry} in the summary of a snapshot" for entry in (POSITION, TOKEN) if entry not in told]
    if tag is None or (tag.snapshot_id, tag.max_ref_age_ms) != (number, UNLIMITED_MS):
        lost.append(f"the tag {TAG}, which must not expire")
    if lost:
        cure = "use a catalog that keeps tags and summaries, or allow them there"
        raise ForgetfulCatalogError(f"the catalog {table.catalog.name} did not keep {' and '.join(lost)}", cure)
