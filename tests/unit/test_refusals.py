"""Tables and catalogs that setup refuses: each by its own words, with the statement that helps."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.metadata import TableMetadataUtil

from frazil.iceberg.catalog import CatalogError, open_catalog, opened_table
from frazil.iceberg.refusals import TableRefusedError, require_known_io, require_writable
from frazil.settings.settings_model import Settings


def metadata(version: int = 3, **properties: str):
    """Return the metadata of a table with the columns id and st, which is nested."""
    struct = {"type": "struct", "fields": [{"id": 3, "name": "x", "type": "int", "required": False}]}
    fields = [{"id": 1, "name": "id", "type": "long", "required": True}, {"id": 2, "name": "st", "type": struct, "required": False}]  # fmt: skip
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    return TableMetadataUtil.parse_obj({
        "format-version": version, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1", "location": "/t", "last-sequence-number": 0,
        "last-updated-ms": 0, "last-column-id": 3, "schemas": [schema], "current-schema-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0, "last-partition-id": 999, "sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0,
        "properties": {n.replace("__", "-").replace("_", "."): v for n, v in properties.items()}, "next-row-id": 0,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("given", "key", "problem", "cure"),
    [
        ({"write_merge_mode": "copy-on-write"}, ["id"], "write.merge.mode is copy-on-write", "('write.merge.mode' = 'merge-on-read')"),
        ({"write_format_default": "orc"}, ["id"], "its new files are orc", "('write.format.default' = 'parquet')"),
        ({"write_location__provider_impl": "x.Y"}, ["id"], "location provider that only Java knows", "UNSET TBLPROPERTIES"),
        ({"encryption_key__id": "k"}, ["id"], "it is encrypted", "without encryption"),
        ({}, ["id", "st"], "'st' is nested", "plain type"), ({}, ["no"], "no column 'no'", "correct key"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_written_is_refused_with_the_statement_that_helps(given, key, problem, cure):
    require_writable("lake.db.t", metadata(), ["id"])
    with pytest.raises(TableRefusedError) as refused:
        require_writable("lake.db.t", metadata(**given), key)
    assert problem in refused.value.problem and cure in refused.value.cure and "lake.db.t" in str(refused.value)


def test_all_that_is_in_the_way_is_told_at_once():
    with pytest.raises(TableRefusedError) as refused:
        require_writable("t", metadata(write_merge_mode="copy-on-write", write_format_default="avro"), ["st"])
    assert len(refused.value.details) == 2


@pytest.mark.parametrize("odd", ["s3.sse.type", "s3.access-points.bucket", "io-impl", "client.factory", "s3.acl"])
def test_a_catalog_whose_files_only_java_finds_is_refused(odd):
    require_known_io("lake", {"s3.endpoint": "x", "warehouse": "s3://b", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.sse.type": "kms", "my.own": "x"})  # fmt: skip
    with pytest.raises(TableRefusedError, match=odd):
        require_known_io("lake", {odd: "x"})


REFUSED = [
    ({"type": "jdbc", "uri": "jdbc:sqlite:/no/such.db", "warehouse": "/x"}, CatalogError, "run 00_setup"),
    ({"type": "jdbc", "uri": "jdbc:mysql://h/d", "warehouse": "/x"}, CatalogError, "SQLite or PostgreSQL"),
    ({"type": "hive"}, CatalogError, "jdbc, rest or glue"),
    ({"type": "rest", "uri": "http://127.0.0.1:9/x"}, CatalogError, "correct its address"),
    ({"catalog-impl": "software.amazon.s3tables.iceberg.S3TablesCatalog", "warehouse": "s3://b"}, CatalogError, "arn:aws:s3tables"),
    ({"type": "glue", "s3.sse.type": "custom"}, TableRefusedError, "at the bucket"),
    ({"type": "glue", "s3.write.storage-class": "STANDARD_IA"}, TableRefusedError, "at the bucket"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "cure"), REFUSED, ids=lambda v: str(v)[:60])
def test_a_catalog_that_does_not_open_is_refused_with_its_cure(options, kind, cure):
    with pytest.raises(kind) as refused:
        open_catalog(Settings(catalog_options=options))
    assert cure in refused.value.cure


def test_a_table_that_is_not_there_asks_for_setup():
    with pytest.raises(CatalogError, match="no table db.none(.|\n)*run 00_setup"):
        opened_table(SqlCatalog("lake", uri="sqlite://"), "db.none")
