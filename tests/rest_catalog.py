"""A small Iceberg REST catalog on loopback that fails on demand: at one request, or at all of them. Tables of formats v2 and v3."""

import http.server
import json
import os
import re
import signal
import socket
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate, update_table_metadata
from pyiceberg.typedef import IcebergBaseModel

FAULTS = ("503 before", "503 after", "cut before", "cut after")
"""What a request may meet: an answer that says no, or none; before or after the catalog has done it."""

REFUSALS = {"409": "CommitFailedException", "500": "InternalServerError", "503": "ServiceUnavailable"}
"""The answers that say no, and the type of each."""


class RestCatalog:
    """The catalog: its tables, the requests that it got, and the faults that it shall show, by the request's number."""

    def __init__(self, folder: Path | str, write: Callable[[str, str], None] | None = None):
        """Keep tables below a folder, or below an address to which `write(address, text)` writes metadata files."""
        self.folder, self.lock, self.write = folder, threading.Lock(), write or _write
        self.spaces: set[str] = set()
        self.tables: dict[tuple[str, str], tuple[str, TableMetadata]] = {}
        self.requests: list[str] = []
        self.signed: set[str] = set()
        """Services for which AWS's signatures of the requests were made."""
        self.faults: dict[int, str] = {}
        self.down = False
        self.vended: Callable[[], dict[str, str]] = dict
        """Gives the properties, as credentials, that come with each table that is loaded."""
        self.choose: Callable[[int, str], str | threading.Event | Callable[[], str]] | None = None
        """Chooses the fault of a request by its number and text.

        A function runs before the request is served, and returns the fault; for an event the request waits.
        """
        self._unseen = 0

    def __enter__(self):
        self.start(0)
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, port: int) -> None:
        """Listen, again on the same port after a `stop`."""
        handler = type("Handler", (_Handler,), {"catalog": self})
        self.server, self.down = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler), False
        self.port = self.server.server_port
        self.uri = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Refuse connections; those that are open are cut at their next request."""
        self.down = True
        self.server.shutdown()
        self.server.server_close()

    def expect(self, **faults: str) -> None:
        """Forget the requests so far; `_3="cut before"` is the fault of the request number 3 from now on."""
        self.requests, self.faults = [], {int(k.lstrip("_")): v for k, v in faults.items()}
        self.choose = None

    def fault(self, request: str) -> str:
        """Number a request, and return its fault; requests that come while a fault's own function runs have neither."""
        with self.lock:
            if self._unseen:
                return ""
            self.requests.append(request)
            number = len(self.requests) - 1
            found = self.faults.get(number) or (self.choose(number, request) if self.choose else "")
            self._unseen += callable(found)
        if isinstance(found, threading.Event):
            return "" if found.wait(600) else "cut before"
        if not callable(found):
            return found
        try:
            return found()
        finally:
            self._unseen -= 1

    def roll_back(self, space: str, table: str, snapshot: int) -> None:
        """Make an older snapshot the current one, as another writer does."""
        with self.lock:
            metadata = self.tables[space, table][1]
            to = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot)
            self.keep((space, table), update_table_metadata(metadata, (to,)))

    # --- what it does

    def do(self, method: str, parts: list[str], body: dict) -> tuple[int, dict]:
        with self.lock:
            match method, parts:
                case "GET", ["config"]:
                    return 200, {"defaults": {}, "overrides": {}}
                case "POST", ["namespaces"]:
                    name = ".".join(body["namespace"])
                    if name in self.spaces:
                        return 409, _error("AlreadyExistsException", name, 409)
                    self.spaces.add(name)
                    return 200, {"namespace": body["namespace"], "properties": {}}
                case "GET", ["namespaces"]:
                    return 200, {"namespaces": [[n] for n in self.spaces]}
                case "GET" | "HEAD", ["namespaces", name]:
                    there = name in self.spaces
                    return (200, {"namespace": [name], "properties": {}}) if there else (404, _error("NoSuchNamespaceException", name, 404))  # fmt: skip
                case "GET", ["namespaces", name, "tables"]:
                    return 200, {"identifiers": [{"namespace": [n], "name": t} for n, t in self.tables if n == name]}
                case "POST", ["namespaces", name, "tables"]:
                    return self.create(name, CreateTableRequest.model_validate(body))
                case _, ["namespaces", name, "tables", table]:
                    return self.of_table(method, (name, table), body)
        return 404, _error("NoSuchRoute", "/".join(parts), 404)

    def create(self, space: str, asked: CreateTableRequest) -> tuple[int, dict]:
        if (space, asked.name) in self.tables:
            return 409, _error("AlreadyExistsException", asked.name, 409)
        spec = asked.partition_spec or UNPARTITIONED_PARTITION_SPEC
        place = asked.location or f"{self.folder}/{space}/{asked.name}"
        made = new_table_metadata(
            asked.table_schema, spec, asked.write_order or UNSORTED_SORT_ORDER, place, asked.properties
        )
        if made.format_version >= 3:
            made = made.model_copy(update={"next_row_id": made.next_row_id or 0})
        return self.keep((space, asked.name), made)

    def of_table(self, method: str, key: tuple[str, str], body: dict) -> tuple[int, dict]:
        if key not in self.tables:
            return 404, _error("NoSuchTableException", ".".join(key), 404)
        if method == "DELETE":
            del self.tables[key]
            return 204, {}
        place, metadata = self.tables[key]
        if method != "POST":
            return 200, _loaded(place, metadata) | {"config": self.vended()}
        asked = CommitTableRequest.model_validate({"identifier": {"namespace": [key[0]], "name": key[1]}, **body})
        try:
            for requirement in asked.requirements:
                if isinstance(requirement, AssertRefSnapshotId):  # PyIceberg's own check knows no tag of an empty table
                    ref = metadata.refs.get(requirement.ref)
                    if (ref and ref.snapshot_id) != requirement.snapshot_id:
                        raise CommitFailedException(f"Requirement failed: {requirement.ref} has changed")
                else:
                    requirement.validate(metadata)
            changed = update_table_metadata(metadata, asked.updates)
        except (CommitFailedException, ValueError) as e:  # ValueError: the snapshot's row ids were given away meanwhile
            return 409, _error("CommitFailedException", str(e), 409)
        return self.keep(key, _with_parents(changed, metadata))

    def keep(self, key: tuple[str, str], metadata: TableMetadata) -> tuple[int, dict]:
        file = f"{metadata.location.removeprefix('file:')}/metadata/{uuid.uuid4()}.metadata.json"
        self.write(file, _json(metadata))
        self.tables[key] = file, metadata
        return 200, _loaded(file, metadata)


def _write(file: str, text: str) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text)


def _json(metadata: TableMetadata) -> str:
    """Return metadata as JSON; the method of PyIceberg's own class leaves out what format v3 needs."""
    return IcebergBaseModel.model_dump_json(metadata, by_alias=True, exclude_none=True)


def _with_parents(metadata: TableMetadata, before: TableMetadata) -> TableMetadata:
    """Return metadata whose snapshots name their parents although these have expired, as every catalog on Iceberg's own library has it.

    PyIceberg leaves such a parent out. Iceberg's expiry then takes the snapshot for another one, and deletes its manifest list.
    """
    parents = {s.snapshot_id: s.parent_snapshot_id for s in before.snapshots}
    kept = [
        s.model_copy(update={"parent_snapshot_id": parents.get(s.snapshot_id, s.parent_snapshot_id)})
        for s in metadata.snapshots
    ]
    return metadata.model_copy(update={"snapshots": kept})


def kill(fault: str) -> None:
    """Kill the group of processes that a fault names: `kill 4711 before`, `kill 4711 after`."""
    os.killpg(int(fault.split()[1]), signal.SIGKILL)


def _loaded(place: str, metadata: TableMetadata) -> dict:
    return {"metadata-location": place, "metadata": json.loads(_json(metadata)), "config": {}}


def _error(kind: str, message: str, code: int) -> dict:
    return {"error": {"message": message, "type": kind, "code": code}}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, catalog = "HTTP/1.1", None

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0].removeprefix("/v1/")
        fault = self.catalog.fault(f"{self.command} {path}")
        fault = "cut before" if self.catalog.down else fault
        self.catalog.signed |= set(
            re.findall(r"^AWS4-HMAC-SHA256 .*/([\w-]+)/aws4_request", self.headers.get("Authorization") or "")
        )
        if fault.endswith("before"):
            self.fail(fault)
            return
        told = json.loads(body) if body.startswith(b"{") else {}
        code, answer = self.catalog.do(self.command, path.split("/"), told)
        if fault:
            self.fail(fault)
        else:
            self.send(code, answer)

    do_GET = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

    def fail(self, fault: str) -> None:
        if fault.startswith("kill"):
            kill(fault)
        if fault[:3] in REFUSALS:
            self.send(int(fault[:3]), _error(REFUSALS[fault[:3]], "not now", int(fault[:3])))
        else:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def send(self, code: int, answer: dict) -> None:
        text = json.dumps(answer).encode() if code != 204 else b""
        self.send_response_only(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, *_):
        pass
