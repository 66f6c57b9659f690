"""`frazil index`: write the page over all runs of an environment again."""

from __future__ import annotations

import argparse

from frazil.config.private_files import open_runs
from frazil.config.settings import resolve
from frazil.report import runs


def add(parser: argparse.ArgumentParser) -> None:
    """Declare no options."""


def main(options: argparse.Namespace) -> int:
    """Write the page and print its path."""
    print(runs.write_index(open_runs(resolve("operate", {"env": options.env}).settings)))
    return runs.OK
