"""Lists, reads and deletes DMS's files, in a local folder or on S3.

A path is text: `/folder/file` or `s3://bucket/key`. boto3 handles access to S3: credentials by AWS's usual chain
(environment, profile, role), and the endpoint by AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL. None of this is a parameter.
"""

from __future__ import annotations

import codecs
import gzip
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from threading import Lock
from typing import Any, TypeVar

from frazil_old.dms.file_names import is_data, is_shared
from frazil_old.errors import FrazilError

Item, Found = TypeVar("Item"), TypeVar("Found")
PAGE = 1000
"""Maximum number of keys that S3 returns per request."""
LISTINGS = 16
"""Number of parts of a folder that are listed in parallel."""


class StorageError(FrazilError):
    """The storage cannot be reached or denies access; the message names the bucket or folder, and what to do."""


class GoneError(StorageError):
    """An object does not exist, or no longer does."""


@dataclass(frozen=True)
class DmsObject:
    """One object of a listing. `name` is its base name, which orders change files; `etag` changes when it is written again.

    `landed` is the time when the storage received it, in epoch seconds (S3 has whole ones); 0 if unknown. A `folder` has
    a path that ends in `/`. `special` describes what has a file's name and is not a file: a folder, a broken link.
    """

    name: str
    path: str
    size: int = 0
    etag: str = ""
    landed: float = field(default=0.0, compare=False)
    folder: bool = False
    special: str = ""

    def chunks(self, n: int) -> Iterator[bytes]:
        """Yield its bytes in chunks of `n`, without decompressing them."""
        return chunks(self.path, n, packed=True)

    @property
    def is_parquet(self) -> bool:
        """Whether it is Parquet; else it is CSV, plain or gzip."""
        return self.name.endswith(".parquet")

    @property
    def is_shared(self) -> bool:
        """Whether it has the changes of all tables (PreserveTransactions)."""
        return is_shared(self.name)


class ListingFilter:
    """Decides what a listing leaves out. This base class leaves out nothing."""

    def names_to_skip(self, names: list[str]) -> set[str]:
        """Return the base names in a folder to leave out, by name alone: size and time of local files are not read."""
        return set()

    def known(self, name: str, etag: str) -> bool:
        """Return whether to leave out a file, by its base name and ETag."""
        return False

    def cuts(self) -> list[str]:
        """Return names below the folder that divide it into parts, which S3 lists in parallel."""
        return []


def is_s3(path: Any) -> bool:
    """Return whether a path is on S3."""
    return str(path).startswith(("s3://", "s3a://", "s3n://"))


def location(path: Any) -> str:
    """Return a path as text in its canonical form: with the scheme `s3://` also for Hadoop's schemes, and no `/` at the end."""
    text = str(path).rstrip("/")
    return "s3://" + text.split("://", 1)[1] if is_s3(text) else text


def _split(path: str) -> tuple[str, str]:
    bucket, _, key = location(path).removeprefix("s3://").partition("/")
    return bucket, key + "/" if path.endswith("/") and key else key


# --- the client


def endpoint_url() -> str:
    """Return the S3 endpoint in the environment; empty for AWS's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def client() -> Any:
    """Return boto3's S3 client for the current AWS_* variables; threads share it."""
    with _client_lock:  # many threads want the first one together, and it takes long
        return _client(hash(tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith("AWS_")))))


_client_lock = Lock()


@lru_cache(maxsize=1)
def _client(environment: int) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise StorageError(
            "boto3 is not installed, and the source is on S3", "pip install 'frazil[workbook]'"
        ) from None
    # A self-hosted server rarely has a host name per bucket.
    style = {"addressing_style": "path"} if endpoint_url() else {}
    config = Config(retries={"mode": "standard", "max_attempts": 5}, max_pool_connections=32, s3=style)
    with _storage_errors("S3"):
        return boto3.session.Session(botocore_session=_session()).client("s3", config=config)


def _session() -> Any:
    """Return a botocore session with a faster parser of times, which are most of the work in a listing of 100,000 keys."""
    import botocore.session

    session = botocore.session.get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
    return session


def _timestamp(text: Any) -> datetime:
    """Parse a time of a listing (ISO 8601), or any other format that AWS writes."""
    from botocore.utils import parse_timestamp

    try:
        return datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return parse_timestamp(text)


_CREDENTIALS = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws sso login`, or give the machine a role"
_OF_EXECUTORS = "give the executors' machines a role, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in their environment (spark-env.sh)"
_CURES = {
    "NoSuchBucket": ("the bucket does not exist", "correct the bucket in parameter 'source', or AWS_ENDPOINT_URL"),
    "NoSuchKey": ("the object does not exist", "it was removed during the run: run again"),
    "404": ("the object does not exist", "it was removed during the run: run again"),
    "AccessDenied": ("access is denied", "the role or user needs s3:ListBucket on the bucket and s3:GetObject below the folder"),
    "403": ("access is denied", "the role or user needs s3:ListBucket on the bucket and s3:GetObject below the folder"),
    "InvalidAccessKeyId": ("S3 does not know the access key", _CREDENTIALS),
    "SignatureDoesNotMatch": ("the secret key does not belong to the access key", _CREDENTIALS),
    "ExpiredToken": ("the credentials have expired", _CREDENTIALS),
    "InvalidBucketName": ("the bucket's name is not valid", "correct the bucket in parameter 'source'"),
}  # fmt: skip


def _in_task() -> bool:
    """Return whether this process works for a Spark task, which has the executor's environment."""
    spark = sys.modules.get("pyspark")
    return spark is not None and spark.TaskContext.get() is not None


@contextmanager
def _storage_errors(path: str) -> Iterator[None]:
    """Turn boto3's exceptions into one StorageError with its cure, without secrets."""
    try:
        from botocore import exceptions as e
    except ImportError:
        yield
        return
    try:
        yield
    except (e.NoCredentialsError, e.PartialCredentialsError) as error:
        place, cure = ("on a Spark executor ", _OF_EXECUTORS) if _in_task() else ("", _CREDENTIALS)
        raise StorageError(f"{path}: no AWS credentials found {place}({type(error).__name__})", cure) from None
    except e.ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "?"))
        problem, cure = _CURES.get(code, (f"S3 answers {code}", "see AWS's list of S3 error codes"))
        raise (GoneError if code in ("NoSuchKey", "404") else StorageError)(f"{path}: {problem}", cure) from None
    except (e.EndpointConnectionError, e.ConnectionError, e.HTTPClientError) as error:
        at = endpoint_url() or "AWS"
        raise StorageError(
            f"{path}: S3 at {at} cannot be reached ({type(error).__name__})", "check the network and AWS_ENDPOINT_URL"
        ) from None
    except e.BotoCoreError as error:
        raise StorageError(f"{path}: {error}", _CREDENTIALS) from None


# --- listing


def walk(
    folder: str,
    start_after: str = "",
    deep: bool = True,
    prefix: str = "",
    page: int = PAGE,
    listing_filter: ListingFilter = ListingFilter(),  # noqa: B008
) -> Iterator[DmsObject]:
    """Yield a folder's entries in order of their paths: objects of all levels, or of this level with its sub-folders.

    `start_after` and `prefix` are names below the folder: S3 starts there and does not list what is before. The first
    request asks for `page` keys, later ones for 1,000: a caller that stops early sets a small number. A missing folder has no
    entries. A local folder with the name of a DMS file is listed as an object.
    """
    root = location(folder) + "/"
    if not is_s3(root):
        yield from _walk_local(root, start_after, deep, prefix, listing_filter)
        return
    bucket, base = _split(root)
    ask: dict[str, Any] = {"Bucket": bucket, "Prefix": base + prefix, "MaxKeys": page}
    ask |= {} if deep else {"Delimiter": "/"}
    cuts = listing_filter.cuts() if deep and not start_after and not prefix else []
    for answer in _parallel_pages(
        root, ask, [base + start_after if start_after else "", *[base + cut for cut in cuts]]
    ):
        yield from _entries(bucket, answer, listing_filter)


def _entries(bucket: str, answer: dict[str, Any], listing_filter: ListingFilter) -> list[DmsObject]:
    """Return the entries of one page of a listing, in order, without what the filter leaves out."""
    found = [(o["Key"].rsplit("/", 1)[-1], o) for o in answer.get("Contents", ())]
    skipped = listing_filter.names_to_skip([name for name, _ in found])
    objects = [
        DmsObject(name, f"s3://{bucket}/{o['Key']}", o["Size"], o["ETag"].strip('"'), o["LastModified"].timestamp())
        for name, o in found
        if name not in skipped and not listing_filter.known(name, o["ETag"].strip('"'))
    ]
    prefixes = [p["Prefix"] for p in answer.get("CommonPrefixes", ())]
    folders = [DmsObject(p.split("/")[-2], f"s3://{bucket}/{p}", folder=True) for p in prefixes]
    return sorted([*objects, *folders], key=lambda entry: entry.path)


def _parallel_pages(root: str, ask: dict[str, Any], starts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield S3's pages of a listing that begins after the first of the keys `starts`; request the parts between them in parallel."""
    if len(starts) == 1:
        yield from _pages(root, ask, starts[0])
        return
    with ThreadPoolExecutor(LISTINGS) as pool:
        parts = pool.map(lambda start, end: list(_pages(root, ask, start, end)), starts, [*starts[1:], ""])
        yield from chain.from_iterable(parts)


def _pages(root: str, ask: dict[str, Any], start: str, end: str = "") -> Iterator[dict[str, Any]]:
    """Yield S3's pages after the key `start`, through `end`; empty: from the first key, to the last."""
    ask = ask | ({"StartAfter": start} if start else {})
    while True:
        with _storage_errors(root):
            answer = client().list_objects_v2(**ask)
        found = answer.get("Contents", ())
        if end and found and found[-1]["Key"] >= end:
            yield {"Contents": [o for o in found if o["Key"] <= end]}
            return
        yield answer
        if not answer.get("IsTruncated"):
            return
        ask |= {"ContinuationToken": answer["NextContinuationToken"], "MaxKeys": PAGE}
        ask.pop("StartAfter", None)


def _walk_local(
    root: str, start_after: str, deep: bool, prefix: str, listing_filter: ListingFilter
) -> Iterator[DmsObject]:
    """List a complete local folder, then drop what S3 would not return; links to folders are not followed."""
    found, folders = [], [""]
    while folders:
        below = folders.pop()
        entries = _scan(root + below)
        skipped = listing_filter.names_to_skip([e.name for e in entries])
        for e in entries:
            name = below + e.name
            if e.name in skipped:
                continue
            if deep and _is_folder(e) and not is_data(e.name):
                folders += [] if e.is_symlink() else [name + "/"]
            elif name.startswith(prefix) and name > start_after:
                found += _local_object(root + name, e, listing_filter)
    yield from sorted(found, key=lambda entry: entry.path)


def _local_object(path: str, entry: os.DirEntry[str], listing_filter: ListingFilter) -> list[DmsObject]:
    """Return a local object; none if the filter knows it or it was deleted since."""
    try:
        stat = entry.stat()
    except OSError as error:
        if entry.is_symlink():  # to nothing, or to itself
            return [DmsObject(entry.name, path, special="a broken link")]
        if isinstance(error, FileNotFoundError):  # deleted since
            return []
        raise
    if S_ISDIR(stat.st_mode):
        is_object = is_data(entry.name)
        return [
            DmsObject(
                entry.name, path if is_object else f"{path}/", folder=not is_object, special="a folder" * is_object
            )
        ]
    if not S_ISREG(stat.st_mode):
        return [DmsObject(entry.name, path, special="a pipe, a socket or a device")]
    return [] if listing_filter.known(entry.name, _etag(stat)) else [_local(path, stat)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError:
        raise StorageError(
            f"{folder}: permission denied", "give the user that runs Frazil the right to read it"
        ) from None


def _local(path: str, stat: os.stat_result) -> DmsObject:
    return DmsObject(os.path.basename(path), path, stat.st_size, _etag(stat), stat.st_mtime)


def _etag(stat: os.stat_result) -> str:
    return f"{stat.st_size}-{stat.st_mtime_ns}"


def head(path: str) -> DmsObject:
    """Return one object's size, ETag and time of last writing; a local file's ETag consists of size and time."""
    if not is_s3(path):
        return _local(path, os.stat(path))
    bucket, key = _split(path)
    with _storage_errors(path):
        answer = client().head_object(Bucket=bucket, Key=key)
    etag, landed = answer["ETag"].strip('"'), answer["LastModified"].timestamp()
    return DmsObject(key.rsplit("/", 1)[-1], path, answer["ContentLength"], etag, landed)


def server_time(path: str) -> tuple[float, float] | None:
    """Return the times of the storage's clock and this host's (epoch seconds), read together; None if the storage sends none.

    For a local folder it is the time of the file `path`, which the owner of the file system sets.
    """
    if not is_s3(path):
        os.utime(path)
        return os.stat(path).st_mtime, time.time()
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer = client().head_bucket(Bucket=_split(path)[0])
    except ClientError as error:  # a refusal also has the time
        answer = error.response
    except BotoCoreError:  # a later read reports the problem
        return None
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return (parsedate_to_datetime(date).timestamp(), time.time()) if date else None


def current_objects(paths: Sequence[str]) -> list[DmsObject | None]:
    """Return the `head` of each object, None for a missing one; S3 gets sixteen requests at a time."""

    def one(path: str) -> DmsObject | None:
        try:
            return head(path)
        except (FileNotFoundError, GoneError):
            return None

    return each_of(one, paths, any(map(is_s3, paths)))


def each_of(work: Callable[[Item], Found], items: Sequence[Item], on_s3: bool) -> list[Found]:
    """Return what `work` returns for each item; S3 gets sixteen requests at a time."""
    if len(items) < 2 or not on_s3:
        return [work(item) for item in items]
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(work, items))


def put(path: str, data: bytes) -> None:
    """Write an object on S3."""
    bucket, key = _split(path)
    with _storage_errors(path):
        client().put_object(Bucket=bucket, Key=key, Body=data)


def remove(paths: Sequence[str]) -> None:
    """Delete local files, and objects in groups of a thousand."""
    objects: dict[str, list[str]] = {}
    for path in paths:
        if is_s3(path):
            bucket, key = _split(path)
            objects.setdefault(bucket, []).append(key)
        else:
            os.unlink(path)
    for bucket, keys in objects.items():
        for i in range(0, len(keys), PAGE):
            named = {"Objects": [{"Key": key} for key in keys[i : i + PAGE]], "Quiet": True}
            with _storage_errors(bucket):
                left = client().delete_objects(Bucket=bucket, Delete=named).get("Errors", ())
            if left:
                raise StorageError(
                    f"s3://{bucket}/{left[0]['Key']}: S3 answers {left[0]['Code']}, and to {len(left)} in all",
                    "the role or user needs s3:DeleteObject",
                )


# --- reading


def _get(path: str, **more: str) -> bytes:
    with _storage_errors(path), closing(_opened(path, **more)) as body:
        return body.read()


def read(path: str) -> bytes:
    """Return an object's bytes."""
    return _get(path) if is_s3(path) else Path(path).read_bytes()


def read_head(path: str, n: int = 1 << 16) -> bytes:
    """Return an object's first `n` bytes, or all if it has fewer."""
    if is_s3(path):
        # For an empty object S3 refuses any range.
        return _get(path, Range=f"bytes=0-{n - 1}") if head(path).size else b""
    with open(path, "rb") as file:
        return file.read(n)


def read_tail(path: str, size: int, n: int) -> bytes:
    """Return the last `n` bytes of an object on S3 with `size` bytes, or all if it has fewer."""
    return _get(path, Range=f"bytes={max(0, size - n)}-{size - 1}") if size else b""


def chunks(path: str, n: int = 1 << 22, packed: bool = False) -> Iterator[bytes]:
    """Yield an object's bytes in chunks of `n`, with `.gz` unpacked unless `packed`.

    A damaged archive raises BadGzipFile, EOFError or zlib.error.
    """
    with closing(_opened(path)) as raw, _storage_errors(path):
        file = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") and not packed else raw
        while chunk := file.read(n):
            yield chunk


def _opened(path: str, **more: str) -> Any:
    if not is_s3(path):
        return Path(path).open("rb")
    bucket, key = _split(path)
    with _storage_errors(path):
        return client().get_object(Bucket=bucket, Key=key, **more)["Body"]


def text_head(path: str, n_bytes: int = 1 << 16) -> str:
    """Return the text at the beginning of an object, `.gz` unpacked."""
    raw = read_head(path, n_bytes)
    return decoded(zlib.decompressobj(wbits=31).decompress(raw) if path.endswith(".gz") else raw)


def decoded(data: bytes) -> str:
    """Return a text without a byte-order mark or a character cut in two; bytes that are not UTF-8 become U+FFFD."""
    return codecs.getincrementaldecoder("utf-8-sig")("replace").decode(data)


def random_access(path: str) -> Any:
    """Return what pyarrow opens: a local file's path, or an object's bytes."""
    import pyarrow as pa

    return pa.BufferReader(read(path)) if is_s3(path) else path
