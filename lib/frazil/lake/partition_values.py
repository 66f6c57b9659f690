"""Partition values of rows in the driver, by PyIceberg's transforms, in Iceberg's JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema


@dataclass(frozen=True)
class Partitioning:
    """A table's partition spec, and the schema that it refers to."""

    spec: PartitionSpec
    schema: Schema

    @staticmethod
    def of(spec_json: str, schema_json: str) -> Partitioning:
        """Parse the two JSON texts of Iceberg."""
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.schema import Schema

        return Partitioning(PartitionSpec.model_validate_json(spec_json), Schema.model_validate_json(schema_json))

    def values(self, columns: Mapping[str, pa.Array]) -> list[pa.Array]:
        """Return the values of each partition field, from the rows' columns by name."""
        kinds = self.spec.partition_type(self.schema).fields
        return [
            _as_json(self._transformed(columns, f), k.field_type) for f, k in zip(self.spec.fields, kinds, strict=True)
        ]

    def _transformed(self, columns: Mapping[str, pa.Array], field: Any) -> pa.Array:
        source = self.schema.find_field(field.source_id)
        return transformed(columns[source.name], field.transform, source.field_type)


def transformed(values: pa.Array, transform: Any, source_type: Any) -> pa.Array:
    """Return a transform's values for a column: each distinct value is transformed once; days and times are numbers."""
    import pyarrow as pa

    encoded = values.dictionary_encode("encode")
    function = transform.transform(source_type)
    distinct = [function(_internal(v)) for v in encoded.dictionary.to_pylist()]
    return pa.array(distinct).take(encoded.indices)


def _internal(value: Any) -> Any:
    """Convert a value for Iceberg's transforms: dates to days and times to microseconds."""
    from datetime import date, datetime

    from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

    if isinstance(value, datetime):
        return datetime_to_micros(value)
    return date_to_days(value) if isinstance(value, date) else value


def _as_json(values: pa.Array, kind: Any) -> pa.Array:
    import pyarrow as pa
    from pyiceberg.conversions import to_json

    encoded = values.dictionary_encode("encode")
    distinct = [None if v is None else to_json(kind, v) for v in encoded.dictionary.to_pylist()]
    if all(v is None for v in distinct):
        return pa.nulls(len(values), pa.string())
    return pa.array(distinct).take(encoded.indices)
