"""`frazil bundle`: one archive with the Python packages that Spark's executors need, and a driver on the cluster too."""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import frazil_old as frazil
from frazil_old import exit_codes
from frazil_old.errors import FrazilError

NOT_ON_CLUSTERS = ("ipykernel", "jupyterlab", "nbconvert", "papermill")
"""Packages of extra `workbook` that no task and no cell imports; all but JupyterLab run notebooks."""
AWS_SERVICES = ("dms", "dynamodb", "glue", "kinesis", "s3", "secretsmanager", "signin", "sqs", "sso", "sso-oidc", "sts")
"""The services whose descriptions boto3 keeps; those of all take 15 MB more."""
OLDEST_GLIBC = 28
"""The wheels run on glibc 2.28 and newer, as the pinned pyarrow's do."""
_LEFT_OUT = re.compile(
    r"bin/|(.*/)?(tests|include|__pycache__)/|pyarrow/[^/]*flight|.*\.(a|h|hpp|pxd|pxi|pyi|pyx|pyc)$|.*\.dist-info/RECORD$"
    rf"|botocore/data/(?!({'|'.join(AWS_SERVICES)})/)[^/]+/"
)


class BundleError(FrazilError):
    """The archive cannot be built."""


@dataclass(frozen=True)
class Platform:
    """The Python and the processor of the executors."""

    python: str
    arch: str
    runs_notebooks: bool = False
    """Whether the archive also has what `frazil run` needs, for a driver on the cluster."""

    @property
    def file_name(self) -> str:
        """The name of the archive."""
        version = "".join(self.python.split(".")[:2])
        arch = "" if self.arch == "x86_64" else f"-{self.arch}"
        return f"frazil-{'driver' if self.runs_notebooks else 'bundle'}-{frazil.__version__}-cp{version}{arch}.tar.gz"

    @property
    def options(self) -> list[str]:
        """The options by which pip takes wheels for it."""
        tags = [*(f"manylinux_2_{minor}" for minor in range(OLDEST_GLIBC, 4, -1)), "manylinux2014"]
        names = [option for tag in tags for option in ("--platform", f"{tag}_{self.arch}")]
        return ["--only-binary=:all:", "--implementation", "cp", "--python-version", self.python, *names]


def build(folder: Path, platform: Platform, say: Callable[[str], None]) -> tuple[Path, int]:
    """Write the archive into a folder. Return its path, and the bytes of its unpacked files.

    The same pins, and the same versions of what they need, make the same bytes.
    """
    file = folder / platform.file_name
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.touch()  # a folder that cannot be written is found before anything is fetched
        with tempfile.TemporaryDirectory(prefix="frazil-") as packages:
            _install(Path(packages), platform, say)
            # In a checkout the notebooks are a link, which is not packed.
            links = not platform.runs_notebooks
            shutil.copytree(Path(frazil.__file__).parent, Path(packages) / "frazil_old", symlinks=links)
            say(f"packing {file.name}")
            unpacked = _pack(Path(packages), part)
        os.replace(part, file)
    except OSError as e:
        raise BundleError(f"{file} cannot be written: {e}", "name another folder by --to") from None
    finally:
        with suppress(OSError):
            part.unlink()
    return file, unpacked


def pinned(*extras: str) -> dict[str, str]:
    """Return Frazil's packages and those of some extras with their versions, as its own metadata states them."""
    try:
        stated = metadata.requires("frazil") or []
    except metadata.PackageNotFoundError:
        raise BundleError("Frazil is not installed, so its pinned versions are unknown", "pip install frazil") from None
    parsed = [re.fullmatch(r"""([^=]+)==([^;\s]+)(?:\s*; extra == ['"](\w+)['"])?""", line) for line in stated]
    return {p[1]: p[2] for p in parsed if p and p[3] in (None, *extras)}


def _pins(runs_notebooks: bool) -> list[str]:
    """Return the packages of the archive, as pip takes them."""
    without = ("jupyterlab",) if runs_notebooks else NOT_ON_CLUSTERS
    return [f"{name}=={version}" for name, version in pinned("workbook", "kafka").items() if name not in without]


def _install(target: Path, platform: Platform, say: Callable[[str], None]) -> None:
    """Let pip fetch the packages. What they need gets the versions that are installed here, which were tested."""
    pins = _pins(platform.runs_notebooks)
    pinned = {pin.split("==")[0] for pin in pins}
    here = {f"{d.name}=={d.version}\n" for d in metadata.distributions() if d.name and d.name not in pinned}
    say(f"fetching {len(pins)} packages and what they need, for Python {platform.python} on {platform.arch}")
    with tempfile.NamedTemporaryFile("w", prefix="frazil-", suffix=".txt") as constraints:
        constraints.writelines(sorted(here))
        constraints.flush()
        command = [
            sys.executable, "-m", "pip", "install", "--target", str(target), "--no-compile", "--no-input", "--progress-bar", "off",
            "--constraint", constraints.name, *platform.options, *pins,
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
            lines = []
            for line in pip.stdout or ():
                lines.append(line.strip())
                if large := re.search(r"(?:Downloading|Using cached) ([\w.]+-[\w.]+)-\S* \((\d\S* MB)\)", line):
                    say(f"  {large[1]}: {large[2]}")
    if pip.returncode:
        raise _why(lines)


def _why(lines: list[str]) -> BundleError:
    """Return the error that pip's last line describes."""
    cure = "does --python name a version for which all pinned packages have wheels?"
    if any("Retrying" in line for line in lines):
        cure = "can this machine reach pip's index? PIP_INDEX_URL names another one"
    elif any("No module named pip" in line for line in lines):
        cure = f"{sys.executable} -m ensurepip"
    errors = [line for line in lines if line.startswith("ERROR: ")]
    return BundleError(f"pip cannot fetch the packages: {[*lines, *errors][-1] if lines else 'no output'}", cure)


def _pack(packages: Path, part: Path) -> int:
    """Write the files in order, without times and owners; return the bytes of all files."""
    files = {str(f.relative_to(packages)): f for f in packages.rglob("*") if f.is_file() and not f.is_symlink()}
    unpacked = 0
    with (
        open(part, "wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, 0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name in sorted(n for n in files if not _LEFT_OUT.match(n)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = files[name].stat().st_size, 0o755 if os.access(files[name], os.X_OK) else 0o644
            unpacked += entry.size
            with open(files[name], "rb") as opened:
                tar.addfile(entry, opened)
    return unpacked


USE = """\
Put it where all executors can read it: S3, HDFS or a shared folder. Each needs Python {python} without packages. Set:
  spark.archives               PLACE/{name}#frazil
  spark.executorEnv.PYTHONPATH ./frazil
and for a driver in YARN's cluster mode also:
  spark.yarn.appMasterEnv.PYTHONPATH ./frazil
PYSPARK_PYTHON names the executors' Python: python{python}, for example."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    here = ".".join(map(str, sys.version_info[:2]))
    parser.add_argument("--python", default=here, help=f"the executors' Python; left out: {here}")
    parser.add_argument("--arch", default="x86_64", choices=("x86_64", "aarch64"), help="aarch64: Graviton")
    parser.add_argument("--to", default=".", help="the folder that gets the archive; left out: this one")


def main(options: argparse.Namespace) -> int:
    """Build the archive and print how to use it; return `exit_codes.OK`."""
    platform = Platform(options.python, options.arch)
    file, unpacked = build(Path(options.to), platform, lambda text: print(text, flush=True))
    print(f"wrote {file}: {file.stat().st_size / 1e6:.0f} MB, {unpacked / 1e6:.0f} MB unpacked")
    print(USE.format(python=options.python, name=file.name))
    return exit_codes.OK
