"""Files on S3 that the store encrypts as `s3.sse.type` and `s3.sse.key` say: PyIceberg's own FileIO on Arrow cannot ask for that."""

from __future__ import annotations

from typing import Any

from fsspec import AbstractFileSystem
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.fsspec import FsspecStore
from pyiceberg.io.fsspec import FsspecFileIO

KINDS = {"s3": "AES256", "kms": "aws:kms", "dsse-kms": "aws:kms:dsse"}
"""The values of `s3.sse.type`, as S3 has them."""
NAMES = {
    "s3.endpoint": "endpoint", "s3.region": "region", "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key", "s3.session-token": "session_token", "s3.sse.key": "sse_kms_key_id",
}  # fmt: skip


class EncryptedFileIO(FsspecFileIO):
    """Writes each object with the encryption that the catalog's options name, as Java's S3FileIO does."""

    def _get_fs(self, scheme: str, hostname: str | None = None) -> AbstractFileSystem:
        given = self.properties
        config: dict[str, Any] = {ours: given[name] for name, ours in NAMES.items() if name in given}
        config["server_side_encryption"] = KINDS[given["s3.sse.type"]]
        config["virtual_hosted_style_request"] = given.get("s3.force-virtual-addressing") == "true"
        login = None if "s3.access-key-id" in given else Boto3CredentialProvider()
        options: Any = {"allow_http": str(given.get("s3.endpoint", "")).startswith("http://")}
        return FsspecStore(scheme, config=config, client_options=options, credential_provider=login)  # type: ignore[call-overload]
