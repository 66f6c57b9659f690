"""`frazil bundle`: one archive with the Python packages that Spark's executors need."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from frazil.config import bundle
from frazil.report import runs

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
    """Build the archive and print how to use it; return `runs.OK`."""
    platform = bundle.Platform(options.python, options.arch)
    file, unpacked = bundle.build(Path(options.to), platform, lambda text: print(text, flush=True))
    print(f"wrote {file}: {file.stat().st_size / 1e6:.0f} MB, {unpacked / 1e6:.0f} MB unpacked")
    print(USE.format(python=options.python, name=file.name))
    return runs.OK
