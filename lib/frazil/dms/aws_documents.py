"""What describes a DMS task, as AWS prints it: the target, and the mappings of the task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from frazil.dms.endpoint import BESIDE, EndpointError, S3Target, StreamTarget, Target
from frazil.settings.yaml_files import checked


def find(document: Any, where: object, *keys: str, cure: str = "") -> Any:
    """Return the value that stands anywhere in a document under one of the keys; None if there is none.

    Texts that are JSON are read, and endpoints of sources passed over. Settings of an endpoint come with its
    `ExtraConnectionAttributes`. `where` names the document in errors.

    Raises EndpointError if there are several values, or none though there is a `cure` for that.
    """
    found, what = list(_values(document, keys)), " or ".join(keys)
    if len(found) > 1:
        owners = ", ".join(owner for owner, _ in found)
        alone = "print one alone: --filters Name=endpoint-id,Values=<one of them>; of tasks Name=replication-task-id"
        raise EndpointError(f"{where} has {len(found)} of {what}, but one is needed: {owners}", alone)
    if cure and not found:
        raise EndpointError(f"{where} has no {what}, but {', '.join(document) or 'nothing'}", cure)
    return found[0][1] if found else None


def s3_target(file: Path) -> S3Target:
    """Return the S3 target in a file: the only one among its endpoints, or bare settings."""
    return _target(file, S3Target, "S3Settings")


def stream_target(file: Path) -> StreamTarget:
    """Return the Kafka or Kinesis target in a file: the only one among its endpoints, or bare settings."""
    return _target(file, StreamTarget, "KafkaSettings", "KinesisSettings")


def rules(file: Path) -> list[dict[str, Any]]:
    """Return the table mappings in a file: `{"rules": […]}`, or a description of the task."""
    return find(read(file), file, "rules", cure="save what aws dms describe-replication-tasks prints")


def _target(file: Path, model: type[Target], *keys: str) -> Any:
    document = read(file)
    names = {str(field.alias).lower() for field in model.model_fields.values()}
    if not names.isdisjoint(map(str.lower, document)):  # bare settings
        document = {keys[0]: document}
    settings = find(document, file, *keys, cure="save what aws dms describe-endpoints prints")
    own = find(document, file, "FrazilSettings") or {}
    return checked(model, settings | own, str(file), EndpointError)


def read(file: Path) -> dict[str, Any]:
    """Return a file of JSON."""
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
    if isinstance(node, list):
        node = dict(enumerate(node))
    if not isinstance(node, dict) or str(node.get("EndpointType")).lower() == "source":
        return
    owner = next((node[name] for name in node if str(name).endswith("Identifier")), owner)
    for name, inner in node.items():
        if isinstance(inner, str) and inner.startswith("{"):
            with suppress(ValueError):
                inner = json.loads(inner)
        if name in keys and inner is not None:
            yield owner, inner | {BESIDE: node[BESIDE]} if BESIDE in node else inner
        else:
            yield from _values(inner, keys, owner)
