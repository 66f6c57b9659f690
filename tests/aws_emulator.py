"""MiniStack, an emulator of AWS, on a free port of the loopback interface. `make aws-env` installs it in an environment of its own."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest

TOOLS = Path(os.environ.get("FRAZIL_AWS_TOOLS") or Path(__file__).parent.parent / ".venv-aws/bin")
REGION, ACCOUNT = "eu-west-1", "111111111111"
"""MiniStack takes an access key of twelve digits as the account."""
ENGINES = ("emr-serverless", "glue")
"""The engines that a deployment may have; steps on a cluster go."""


def tool(name: str) -> str:
    """Return the path of a program of that environment."""
    if not (TOOLS / name).exists():
        pytest.skip(f"no {TOOLS / name}: make aws-env")
    return str(TOOLS / name)


@contextmanager
def running(**environment: str) -> Iterator[str]:
    """Start MiniStack, and yield its address."""
    program = tool("ministack")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    given = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    given |= {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), **environment}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        process = subprocess.Popen([program], env=given, stdout=log, stderr=log, cwd=folder)
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(f"{url}/_ministack/health", timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            else:
                raise TimeoutError("MiniStack does not answer")
            yield url
        finally:
            process.terminate()
            process.wait(20)


def variables(url: str) -> dict[str, str]:
    """Return the environment in which AWS's clients find it."""
    return {
        "AWS_ENDPOINT_URL": url, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION, "AWS_ACCESS_KEY_ID": ACCOUNT,
        "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip


def client(name: str, url: str):
    """Return a client of boto3."""
    keys = {"aws_access_key_id": ACCOUNT, "aws_secret_access_key": "test"}
    return boto3.client(name, endpoint_url=url, region_name=REGION, **keys)


def make_buckets(url: str, *names: str) -> None:
    for name in names:
        client("s3", url).create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})


class Queue:
    """A FIFO queue, new and as the template makes it, or the one with that address."""

    def __init__(self, url: str, address: str = "", **attributes: str):
        self.sqs, given = client("sqs", url), {"FifoQueue": "true", "ContentBasedDeduplication": "true", **attributes}
        name = f"q{time.time_ns()}.fifo"
        self.url = address or self.sqs.create_queue(QueueName=name, Attributes=given)["QueueUrl"]

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body, MessageGroupId="files")

    def receive(self, most: int = 10, wait_s: int = 0) -> list[dict]:
        told = self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=most, WaitTimeSeconds=wait_s)
        return told.get("Messages", [])

    def waiting(self) -> tuple[int, int]:
        """Return how many messages can be seen, and how many somebody has taken."""
        told = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        return int(told["ApproximateNumberOfMessages"]), int(told["ApproximateNumberOfMessagesNotVisible"])


class Between:
    """Passes requests on to an emulator, and notes what they ask for; `choose(number, request)` returns a fault, as that of a `RestCatalog`."""

    def __init__(self, url: str):
        self.url, self.requests, self.choose = url, [], lambda number, request: ""

    def __enter__(self) -> Between:
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Passing,), {"between": self}))
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Passing(http.server.BaseHTTPRequestHandler):
    protocol_version, between = "HTTP/1.1", None

    def do_POST(self) -> None:  # noqa: N802
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = self.headers.get("X-Amz-Target", "").split(".")[-1]
        self.between.requests.append(asked)
        fault = self.between.choose(len(self.between.requests) - 1, asked)
        code, answer = (500, b"{}") if fault.endswith("before") else self.passed_on(body)
        if fault.startswith("cut"):
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        self.send_response_only(int(fault[:3]) if fault else code)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        return self.wfile.write(answer)

    def passed_on(self, body: bytes) -> tuple[int, bytes]:
        asked = urllib.request.Request(self.between.url, body, dict(self.headers), method="POST")
        try:
            with urllib.request.urlopen(asked) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def log_message(self, *_) -> None:
        pass
