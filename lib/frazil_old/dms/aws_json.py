"""Reads the JSON documents that describe a DMS task: bare settings, or the output of the AWS CLI."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil_old.dms.setting_names import ENDPOINT_NAMES, OWN_NAMES, S3_NAMES, STREAM_NAMES, known_names
from frazil_old.dms.source_errors import EndpointError


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Return the JSON object in a file; `what` names it in errors."""
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EndpointError(f"{what}: no file {path}", "save DMS's JSON under that name, or correct the name") from None
    except OSError as e:
        cure = "let this user read it, or correct the name"
        raise EndpointError(f"{what}: {path} cannot be read: {e.strerror}", cure) from None
    except ValueError as e:
        raise EndpointError(f"{what}: {path} is not JSON: {e}", "save it again") from None
    if not isinstance(raw, dict):
        raise EndpointError(f"{what}: {path} is not a JSON object", "save the document as DMS prints it")
    return raw


def the_only(found: list[dict], names: str, path: Path, what: str, cure: str) -> dict:
    """Return the only document of a list; otherwise raise EndpointError that lists them by their field `names`."""
    if len(found) == 1:
        return found[0]
    listed = ", ".join(str(f.get(names, "?")) for f in found) or "none"
    raise EndpointError(f"{path}: {len(found) or 'no'} {what}s ({listed}), but exactly one is needed", cure)


def _endpoint(raw: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a document with its top-level names in the spelling of the API."""
    return known_names(raw, (*ENDPOINT_NAMES, *S3_NAMES, *STREAM_NAMES), str(path))[0]


def read_endpoint_document(path: Path) -> dict[str, Any]:
    """Return the S3 target from the output of `describe-endpoints`: a document with `S3Settings`.

    Bare settings are wrapped into such a document. Of several endpoints, the S3 target is
    used; two S3 targets raise EndpointError. If the task's source is among them, `SourceEngineName` is its engine.
    `UnknownSettings` lists unknown settings. `StatedTwice` lists those with different values in
    `ExtraConnectionAttributes` and `S3Settings`.
    """
    raw = _endpoint(read_json(path, "endpoint settings"), path)
    extra, engine = raw.get("FrazilSettings"), ""
    if "Endpoints" in raw:
        endpoints = [_endpoint(e, path) for e in raw["Endpoints"]]
        sources = [e for e in endpoints if str(e.get("EndpointType", "")).lower() == "source"]
        engine = sources[0].get("EngineName", "") if len(sources) == 1 else ""
        targets = [e for e in endpoints if _is_s3_target(e)]
        cure = "print one: aws dms describe-endpoints --filters Name=endpoint-id,Values=<the S3 target>"
        raw = the_only(targets, "EndpointIdentifier", path, "S3 target", cure)
    raw = _endpoint(raw["Endpoint"], path) if "Endpoint" in raw else raw
    if "S3Settings" not in raw and "ExtraConnectionAttributes" not in raw:
        if wrong := {"ReplicationTasks", "rules", "TableStatistics"} & raw.keys():
            raise EndpointError(
                f"{path}: contains {sorted(wrong)[0]} and no S3Settings",
                "give the output of aws dms describe-endpoints",
            )
        raw = {"S3Settings": {k: v for k, v in raw.items() if k not in ENDPOINT_NAMES}}
    attributes, unknown_attributes = known_names(
        _attributes(raw.get("ExtraConnectionAttributes") or ""), S3_NAMES, f"{path}: ExtraConnectionAttributes"
    )
    settings, unknown = known_names(raw.get("S3Settings") or {}, S3_NAMES, f"{path}: S3Settings")
    twice = sorted(n for n in attributes.keys() & settings.keys() if _plain(attributes[n]) != _plain(settings[n]))
    own_names = {name.lower(): name for name in OWN_NAMES}
    own = {own_names.get(n.lower(), n): value for n, value in (raw.get("FrazilSettings") or extra or {}).items()}
    return {
        **raw, "S3Settings": {**attributes, **settings}, "FrazilSettings": own, "SourceEngineName": engine,
        "UnknownSettings": sorted({*unknown_attributes, *unknown}), "StatedTwice": twice,
    }  # fmt: skip


def _plain(value: Any) -> str:
    """Return a value as attributes write it: a switch as `true`, a line end as `\\n`."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return text.lower() if text.lower() in ("true", "false") else text


def stream_settings(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the settings of a Kafka or Kinesis target, bare or from the output of `describe-endpoints`, and the unknown names."""
    raw, where = _endpoint(read_json(path, "endpoint settings"), path), str(path)
    targets = [t for t in _endpoints(raw, path) if _STREAM_TARGETS & t.keys()]
    if not targets and "Endpoints" not in raw:
        return known_names({k: v for k, v in raw.items() if k not in ENDPOINT_NAMES}, STREAM_NAMES, where)
    cure = "print one: aws dms describe-endpoints --filters Name=endpoint-id,Values=<the stream's>"
    target = the_only(targets, "EndpointIdentifier", path, "stream target", cure)
    (name, *_) = _STREAM_TARGETS & target.keys()
    return known_names(target[name] or {}, STREAM_NAMES, f"{where}: {name}")


_STREAM_TARGETS = {"KafkaSettings", "KinesisSettings"}


def _endpoints(raw: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    return [_endpoint(e, path) for e in raw.get("Endpoints") or [raw.get("Endpoint", raw)]]


def stream_address(path: Path) -> str:
    """Return the parameter `source` for a Kafka or Kinesis target in the output of `describe-endpoints`; empty if there is none."""
    endpoints = _endpoints(_endpoint(read_json(path, "endpoint settings"), path), path)
    if any("S3Settings" in e for e in endpoints) or not any(_STREAM_TARGETS & e.keys() for e in endpoints):
        return ""
    settings, _ = stream_settings(path)
    if arn := settings.get("StreamArn"):
        return f"kinesis://{arn.split(':')[3]}/{arn.split('/', 1)[1]}"
    if not settings.get("Broker"):
        raise EndpointError(f"{path}: contains no Broker and no StreamArn", "give the stream's address with --source")
    return f"kafka://{settings['Broker'].replace(' ', '')}/{settings.get('Topic') or 'kafka-default-topic'}"


def _is_s3_target(endpoint: dict) -> bool:
    if "S3Settings" not in endpoint and "ExtraConnectionAttributes" not in endpoint:
        return False
    engine = endpoint.get("EngineName", "s3" if "S3Settings" in endpoint else "")
    return str(engine).lower() == "s3" and str(endpoint.get("EndpointType", "target")).lower() == "target"


def _attributes(text: str) -> list[tuple[str, str]]:
    """Return the settings that older endpoints have in `ExtraConnectionAttributes` (`addColumnName=true;...`)."""
    pairs = (part.split("=", 1) for part in text.split(";") if "=" in part)
    return [(key.strip(), value.strip()) for key, value in pairs]


TASKS = {"ReplicationTasks": "ReplicationTaskSettings", "ReplicationConfigs": "ReplicationSettings"}
"""Keys in the output of `describe-replication-tasks` and, for serverless tasks, `describe-replication-configs`."""


def _task(raw: dict, path: Path) -> dict[str, Any] | None:
    """Return the only task of a document, with its settings under one name; None if the document describes no tasks."""
    for outer, settings in TASKS.items():
        if outer in raw or outer[:-1] in raw:
            tasks = raw.get(outer) or [raw[outer[:-1]]]
            names = "ReplicationTaskIdentifier" if outer == "ReplicationTasks" else "ReplicationConfigIdentifier"
            task = the_only(
                tasks, names, path, "task", "print one: --filters Name=replication-task-id,Values=<the task>"
            )
            return {"mappings": task.get("TableMappings"), "settings": task.get(settings)}
    return None


def _inner(text: Any, path: Path, what: str) -> dict[str, Any]:
    """Return a document that AWS prints as a string inside another one."""
    try:
        return json.loads(text) if isinstance(text, str) else (text or {})
    except ValueError as e:
        raise EndpointError(f"{what}: the string in {path} is not JSON: {e}", "print the task again") from None


def read_rules(path: Path) -> list[dict]:
    """Return the table-mapping rules of a task: from `{"rules": [...]}`, or from a description of the task."""
    raw = read_json(path, "table mappings")
    task = _task(raw, path)
    rules = (raw if task is None else _inner(task["mappings"], path, "TableMappings")).get("rules", [])
    if task is None and "rules" not in raw and raw:
        raise EndpointError(
            f"{path}: contains no rules", f'write {{"rules": [...]}}, as the task prints it; there is {", ".join(raw)}'
        )
    return rules


def read_task_settings(path: Path) -> dict[str, Any]:
    """Return the task settings (`TargetMetadata`, `FullLoadSettings` ...), bare or from a description of the task; else {}."""
    raw = read_json(path, "task settings")
    task = _task(raw, path)
    if task is not None:
        return _inner(task["settings"], path, "ReplicationTaskSettings")
    return {} if "rules" in raw else raw


def is_on(settings: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return whether a switch is on: DMS accepts a JSON boolean, or its text."""
    value = settings.get(name)
    return default if value is None else str(value).lower() == "true"


LISTS = ("TableStatistics", "ReplicationTableStatistics")
"""The list's name for a task, and for a serverless one (`describe-replication-table-statistics`)."""


@dataclass(frozen=True)
class TableStatistics:
    """One table's state, and the numbers of rows of its load; names in comments are DMS's own."""

    state: str = ""  # TableState
    full_load_rows: int = 0  # FullLoadRows
    full_load_errors: int = 0  # FullLoadErrorRows

    @property
    def loaded(self) -> bool:
        """Whether the table's full load has ended without an error: its load files are complete."""
        return self.state.lower() == "table completed"

    @property
    def failed(self) -> bool:
        """Whether DMS stopped replicating the table: neither its load nor its changes continue."""
        return "error" in self.state.lower() or "cancel" in self.state.lower()


def read_statistics(path: Path) -> dict[str, TableStatistics]:
    """Read the document that describes a task's tables; return {source schema.table: its statistics}."""
    raw = read_json(path, "table statistics")
    entries = next((raw[name] for name in LISTS if name in raw), None)
    if entries is None:
        raise EndpointError(
            f"{path}: contains no TableStatistics",
            "save the output of: aws dms describe-table-statistics --replication-task-arn <the task's>",
        )
    return statistics_by_table(entries)


def statistics_by_table(entries: Iterable[dict[str, Any]]) -> dict[str, TableStatistics]:
    """Return {source schema.table: its statistics} from DMS's entries."""
    return {
        f"{e.get('SchemaName', '')}.{e.get('TableName', '')}": TableStatistics(
            e.get("TableState") or "", int(e.get("FullLoadRows") or 0), int(e.get("FullLoadErrorRows") or 0)
        )
        for e in entries
    }
