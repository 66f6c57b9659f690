"""What describes a DMS task, as AWS prints it: the target, the mappings and settings of the task, the statistics of its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from frazil.dms.endpoint import BESIDE, EndpointError, S3Target, StreamTarget
from frazil.settings.yaml_files import checked

STATISTICS = ("TableStatistics", "ReplicationTableStatistics")
"""The keys of the tables' statistics, of a task and of a serverless one."""
ALONE = "print one alone: --filters Name=endpoint-id,Values=<one of them>; of tasks Name=replication-task-id"


class TableStatistics(msgspec.Struct, frozen=True):
    """What DMS says of a table of the source: its state, and the rows that it has loaded, and could not load."""

    schema: str = msgspec.field(name="SchemaName")
    table: str = msgspec.field(name="TableName")
    state: str = msgspec.field(name="TableState")
    rows: int = msgspec.field(name="FullLoadRows", default=0)
    errors: int = msgspec.field(name="FullLoadErrorRows", default=0)

    @property
    def loaded(self) -> bool:
        """Whether the load is complete."""
        return self.state.lower() == "table completed"

    @property
    def failed(self) -> bool:
        """Whether DMS has given the table up: neither its load nor its changes go on."""
        return "error" in self.state.lower() or "cancel" in self.state.lower()


def find(document: Any, where: object, *keys: str, cure: str = "") -> Any:
    """Return the value that stands anywhere in a document under one of the keys; None if there is none.

    Texts that are JSON are read, and endpoints of sources passed over. Settings of an endpoint come with its
    `ExtraConnectionAttributes`. `where` names the document in errors.

    Raises EndpointError if there are several values, or none though there is a `cure` for that.
    """
    found, what = list(_values(document, keys)), " or ".join(keys)
    if len(found) > 1:
        owners = ", ".join(owner for owner, _ in found)
        raise EndpointError(f"{where} has {len(found)} of {what}, but one is needed: {owners}", ALONE)
    if cure and not found:
        raise EndpointError(f"{where} has no {what}, but {', '.join(document) or 'nothing'}", cure)
    return found[0][1] if found else None


def s3_target(file: Path) -> S3Target:
    """Return the S3 target in a file: the only one among its endpoints, or bare settings."""
    return _target(S3Target, file, "S3Settings")


def stream_target(file: Path) -> StreamTarget:
    """Return the Kafka or Kinesis target in a file: the only one among its endpoints, or bare settings."""
    return _target(StreamTarget, file, "KafkaSettings", "KinesisSettings")


def rules(file: Path) -> list[dict[str, Any]]:
    """Return the table mappings in a file: `{"rules": […]}`, or a description of the task."""
    return find(_read(file), file, "rules", cure="save what aws dms describe-replication-tasks prints")


def task_settings(file: Path) -> dict[str, Any]:
    """Return the settings of a task in a file: bare, or in a description of the task. Table mappings have none."""
    document = _read(file)
    found = find(document, file, "ReplicationTaskSettings", "ReplicationSettings")
    return found or {name: value for name, value in document.items() if name != "rules"}


def statistics(file: Path) -> dict[str, TableStatistics]:
    """Return the statistics in a file by source table."""
    return by_table(find(_read(file), file, *STATISTICS, cure="save what aws dms describe-table-statistics prints"))


def by_table(entries: list[dict[str, Any]]) -> dict[str, TableStatistics]:
    """Return what DMS says of tables, by source table: `schema.table`."""
    return {f"{said.schema}.{said.table}": said for said in msgspec.convert(entries, list[TableStatistics])}


def _target(model: type[S3Target] | type[StreamTarget], file: Path, *keys: str) -> Any:
    document = _read(file)
    names = {str(field.alias).lower() for field in model.model_fields.values()}
    if not names.isdisjoint(map(str.lower, document)):  # bare settings
        document = {keys[0]: document}
    settings = find(document, file, *keys, cure="save what aws dms describe-endpoints prints")
    own = find(document, file, "FrazilSettings") or {}
    return checked(model, settings | own, str(file), EndpointError)


def _read(file: Path) -> dict[str, Any]:
    cure = "save DMS's JSON there, or correct the path"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as why:
        raise EndpointError(f"{file} cannot be read as JSON: {why}", cure) from None
    if not isinstance(document, dict):
        raise EndpointError(f"{file} is no JSON object", cure)
    return document


def _values(node: Any, keys: tuple[str, ...], owner: str = "?") -> Iterator[tuple[str, Any]]:
    """Yield each value under one of the keys, after the identifier of what it belongs to."""
    node = _decoded(node)
    if isinstance(node, list):
        node = dict(enumerate(node))
    if not isinstance(node, dict) or str(node.get("EndpointType")).lower() == "source":
        return
    owner = next((node[name] for name in node if str(name).endswith("Identifier")), owner)
    for name, inner in node.items():
        if name in keys:
            yield owner, inner | {BESIDE: node[BESIDE]} if BESIDE in node else _decoded(inner)
        else:
            yield from _values(inner, keys, owner)


def _decoded(node: Any) -> Any:
    if isinstance(node, str) and node.startswith("{"):
        with suppress(ValueError):
            return json.loads(node)
    return node
