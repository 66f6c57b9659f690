"""`frazil index`: write the page over all runs of an environment anew."""

from __future__ import annotations

import argparse
from pathlib import Path

from frazil.config.settings import resolve
from frazil.observe import runs


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options: there are none of its own."""


def main(options: argparse.Namespace) -> int:
    """Write the page and say where it lies."""
    s = resolve("operate", {"env": options.env}).settings
    print(runs.write_index(Path(s.root) / s.runs / s.env))
    return runs.OK
