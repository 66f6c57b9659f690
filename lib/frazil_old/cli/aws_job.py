"""The entry point of a Spark job on EMR or Glue: runs a notebook, stores on S3 what it leaves, and deletes handled messages.

    spark-submit aws_job.py --env prod --runs s3://bucket/frazil/prod/runs --queue URL --notebook 02_cdc_merge

The notebook's kernel takes the session of spark-submit. The next kernel could not use it, so a job runs one notebook.
Glue unpacks no archives for the driver, so it names them. It also adds arguments of its own, which are ignored.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RETRY = (1, 2, 5)
"""Exit codes of `frazil run` that a retry may cure: failed, wrong parameters, timed out."""
SKIPPED = 11
"""Another run works on the tables: it may have listed before."""


def main(argv: list[str] | None = None) -> int:
    """Return 0 if the rest is up to a person: some tables failed or wait, and the hooks have reported it.

    A load that did not load all tables is a failure, so that the next execution tries it again.
    """
    parser = argparse.ArgumentParser("aws_job.py", description="Run a notebook as a job.", allow_abbrev=False)
    parser.add_argument("--env", required=True, help="names the environment file")
    parser.add_argument("--runs", required=True, help="the folder on S3 for what the run leaves")
    parser.add_argument("--queue", default="", help="the URL of the queue of S3 events")
    parser.add_argument("--notebook", required=True, help="its name")
    parser.add_argument("--packages-archive", help="on Glue: the URL of the Python packages")
    parser.add_argument("--workbook-archive", help="on Glue: the URL of the environment files")
    options, _ = parser.parse_known_args(argv)
    if options.packages_archive:
        _unpack(packages=options.packages_archive, workbook=options.workbook_archive)
    # The notebook's process has another working directory.
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, _python_path())))
    os.environ["FRAZIL_PARAMS"] = os.path.abspath(os.environ.get("FRAZIL_PARAMS", "workbook/params"))
    from frazil_old.cli import main as frazil

    if secret := _settings("aws", options.env).source_secret:
        os.environ.setdefault("FRAZIL_SOURCE_SECRET", secret)
    listed = int(time.time() * 1000)  # the run lists later
    code = frazil(["run", options.notebook, "--env", options.env])
    operate = _settings("operate", options.env)
    _keep(Path(operate.root) / operate.runs / options.env, options.runs)
    if code in RETRY or (code == 3 and "full_load" in options.notebook):
        return code
    if options.queue and code != SKIPPED:
        import boto3

        from frazil_old.aws.hint_queue import delete_before
        from frazil_old.errors import many

        region = options.queue.split(".")[1] if ".amazonaws.com" in options.queue else None
        gone = delete_before(boto3.client("sqs", region_name=region), options.queue, listed)
        print(f"deleted {many(gone, 'message')} of files that were there before the run")
    return 0


def _unpack(**archives: str) -> None:
    """Unpack archives from S3 into a temporary folder, and let this process and its kernels find them."""
    import boto3

    folder = Path(tempfile.mkdtemp(prefix="frazil-"))
    for name, url in archives.items():
        bucket, _, key = url.removeprefix("s3://").partition("/")
        file = folder / Path(key).name
        boto3.client("s3").download_file(bucket, key, str(file))
        shutil.unpack_archive(file, folder / name)
        file.unlink()
    sys.path.insert(0, str(folder / "packages"))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder / "packages"), *filter(None, _python_path())])
    os.environ["FRAZIL_PARAMS"] = str(folder / "workbook" / "params")


def _python_path() -> list[str]:
    return os.environ.get("PYTHONPATH", "").split(os.pathsep)


def _settings(section: str, env: str) -> Any:
    """Return the parameters of a section; the defaults if the environment's file has a fault, which `frazil run` reports."""
    from frazil_old.config.settings import NOTEBOOKS, resolve
    from frazil_old.errors import FrazilError

    try:
        return resolve(section, {"env": env}).settings
    except FrazilError:
        return NOTEBOOKS[section](env=env, root=str(Path(os.environ["FRAZIL_PARAMS"]).parent))


def _keep(folder: Path, place: str) -> None:
    """Copy the run folders to S3: executed notebooks, pages and records. Key indexes, and the page of this driver's runs, stay."""
    import boto3

    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    s3 = boto3.client("s3")
    for file in (f for f in folder.rglob("*") if f.is_file() and not f.name.startswith(".")):
        name = file.relative_to(folder)
        if name.parts[0] not in ("index", "index.html"):
            s3.upload_file(str(file), bucket, f"{prefix}/{name}")


if __name__ == "__main__" and (code := main()):
    sys.exit(code)  # Glue may take any exit of the interpreter for a failure, so without a code it just ends.
