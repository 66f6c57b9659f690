"""The files that jobs on AWS need: made here, and sent to S3 under names that have a hash of the content."""

from __future__ import annotations

import hashlib
import zipfile
from io import BytesIO
from pathlib import Path

import frazil_old as frazil
from frazil_old.aws.cloud import Cloud, aws_errors_explained
from frazil_old.aws.deployment_parameters import OLDEST_PYTHON, Deployment
from frazil_old.cli import aws_job, bundle
from frazil_old.config.aws_calls import code_of
from frazil_old.config.environment_file import find_params
from frazil_old.config.private_files import open_runs


def driver_archive(deployment: Deployment, again: bool = False) -> Path:
    """Return the archive with the Python packages of the jobs; build it if it is missing, or older than Frazil itself."""
    platform = bundle.Platform(OLDEST_PYTHON, "x86_64", runs_notebooks=True)
    file = open_runs(deployment.settings) / "aws" / platform.file_name
    ours = [f for f in Path(frazil.__file__).parent.rglob("*") if f.is_file() and f.suffix != ".pyc"]
    if again or not file.exists() or file.stat().st_mtime < max(f.stat().st_mtime for f in ours):
        bundle.build(file.parent, platform, lambda text: print(text, flush=True))
    return file


def small_archives(deployment: Deployment) -> dict[str, tuple[str, bytes]]:
    """Return URL and content of the files that are made for each deployment: `workbook` and `job`."""
    packed = BytesIO()
    params = find_params()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(f for f in params.rglob("*") if f.is_file()):
            entry = zipfile.ZipInfo(f"params/{file.relative_to(params)}")  # without a time: equal files, equal bytes
            archive.writestr(entry, file.read_bytes())
    contents = {
        "workbook": ("workbook-{}.zip", packed.getvalue()),
        "job": ("job-{}.py", Path(aws_job.__file__).read_bytes()),
    }
    return {
        n: (f"{deployment.artifacts}/archives/{name.format(_digest(content))}", content)
        for n, (name, content) in contents.items()
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def all_archives(deployment: Deployment) -> dict[str, tuple[str, bytes]]:
    """Return URL and content of all files that jobs need. A name has a hash of the content."""
    driver = driver_archive(deployment).read_bytes()
    url = f"{deployment.artifacts}/archives/driver-{_digest(driver)}.tar.gz"
    return {"driver": (url, driver), **small_archives(deployment)}


def send(cloud: Cloud, archives: dict[str, tuple[str, bytes]]) -> None:
    """Send the archives that are not there yet."""
    s3 = cloud.client("s3")
    for url, content in archives.values():
        bucket, _, key = url.removeprefix("s3://").partition("/")
        with aws_errors_explained(url):
            try:
                s3.head_object(Bucket=bucket, Key=key)
            except Exception as e:
                if code_of(e) not in ("404", "NoSuchKey", "NotFound"):
                    raise
                s3.put_object(Bucket=bucket, Key=key, Body=content)
                print(f"sent {url}: {len(content) / 1e6:.1f} MB")
