"""S3 in this process, by moto, that fails on demand: its requests have numbers and faults together with those of a catalog."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from rest_catalog import RestCatalog, kill

KEY, REGION = "test", "us-east-1"
RETRIES = {"rest.client.max-retries": "1", "s3.retry.num-retries": "1", "s3.retry.min-wait-ms": "10", "s3.retry.max-wait-ms": "20"}  # fmt: skip
"""The clients' own repeats: few and soon, so that a fault that is shown twice reaches the library."""
UNAVAILABLE = b"<?xml version='1.0'?><Error><Code>ServiceUnavailable</Code><Message>not now</Message></Error>"


class FaultyS3:
    """The store; `fault(request)` numbers a request and returns its fault."""

    def __init__(self, fault: Callable[[str], str] = lambda request: ""):
        self.fault, self.app = fault, create_backend_app("s3")
        self.backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self.logins: set[tuple[str, str]] = set()
        """The clients that came (`java`, `cpp`), each with its access key."""

    def __enter__(self) -> FaultyS3:
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self.server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=_Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.backend.reset()

    # --- without a request, for those who own the store

    def bucket(self, name: str) -> None:
        """Make a bucket."""
        self.backend.create_bucket(name, REGION)

    def put(self, address: str, data: str | bytes) -> None:
        """Store an object."""
        bucket, key = address.removeprefix("s3://").split("/", 1)
        self.backend.put_object(bucket, key, data.encode() if isinstance(data, str) else data)

    def delete(self, address: str) -> None:
        """Delete an object."""
        self.backend.delete_object(*address.removeprefix("s3://").split("/", 1))

    def mirror(self, folder: Path, address: str) -> None:
        """Store all files of a folder that are not there yet, as they are."""
        bucket, top = address.removeprefix("s3://").split("/", 1)
        there = self.backend.buckets[bucket].keys
        for file in (p for p in sorted(folder.rglob("*")) if p.is_file()):
            if (key := f"{top}/{file.relative_to(folder)}") not in there:
                self.put(f"s3://{bucket}/{key}", file.read_bytes())

    # --- requests

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        """Answer a request as moto does, or show its fault before or after that."""
        client = re.search(r"aws-sdk-(\w+)", environ.get("HTTP_USER_AGENT", ""))
        key = re.search(r"Credential=([^/]+)", environ.get("HTTP_AUTHORIZATION", ""))
        self.logins.add((client[1] if client else "", key[1] if key else ""))
        fault = self.fault(f"S3 {environ['REQUEST_METHOD']} {environ['PATH_INFO'].lstrip('/')}")
        if not fault:
            return self.app(environ, start_response)
        if fault.endswith("before"):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        else:
            b"".join(self.app(environ, lambda *_: lambda data: None))
        if fault.startswith("kill"):
            kill(fault)
        if not fault.startswith("503"):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError(fault)
        start_response("503 Service Unavailable", [("Content-Type", "application/xml"), ("Content-Length", str(len(UNAVAILABLE)))])  # fmt: skip
        return [UNAVAILABLE]


class _Handler(WSGIRequestHandler):
    """Keeps connections open, as S3 does."""

    protocol_version = "HTTP/1.1"

    def log(self, *_) -> None:
        """Write no log."""


@contextmanager
def rest_on_s3(warehouse: str, *buckets: str) -> Iterator[tuple[RestCatalog, FaultyS3]]:
    """Run a REST catalog whose tables lie on a store of its own; boto3 finds the store by the environment."""
    catalog = RestCatalog(warehouse)
    with pytest.MonkeyPatch.context() as patch, FaultyS3(catalog.fault) as s3, catalog:
        catalog.write = s3.put
        for bucket in buckets:
            s3.bucket(bucket)
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            patch.setenv(name, REGION)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, KEY)
        patch.setenv("AWS_ENDPOINT_URL_S3", s3.url)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield catalog, s3


def lake_options(catalog: RestCatalog, s3: FaultyS3) -> dict[str, str]:
    """Return the options of such a catalog, for Spark and for PyIceberg."""
    return {
        "type": "rest", "uri": catalog.uri, "warehouse": catalog.folder, "rest-metrics-reporting-enabled": "false",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint": s3.url, "s3.path-style-access": "true",
        "s3.access-key-id": KEY, "s3.secret-access-key": KEY, "client.region": REGION, "s3.region": REGION,
        **RETRIES,
    }  # fmt: skip
