"""`frazil index`: write the page over all runs of an environment anew."""

from __future__ import annotations

import argparse

from frazil.config.private_files import open_runs
from frazil.config.settings import resolve
from frazil.observe import runs


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options: there are none of its own."""


def main(options: argparse.Namespace) -> int:
    """Write the page and say where it lies."""
    print(runs.write_index(open_runs(resolve("operate", {"env": options.env}).settings)))
    return runs.OK
