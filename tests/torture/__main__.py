"""Run a torture suite: `python tests/torture NAME [--count N] [--seed S]` (`make torture TORTURE=files`).

A suite is a module beside this one with `COUNT` and `run(count, seed)`, which returns how often each outcome was met and
raises AssertionError on the first wrong or lost row, or on a hang.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
sys.path[:0] = [str(HERE.parent), str(ROOT / "lib")]


def main() -> None:
    """Run one suite and print its counts."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(f.stem for f in HERE.glob("[a-z]*.py")))
    parser.add_argument("--count", type=int, help="how many cases; the suite's own full number if not given")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    suite = importlib.import_module(f"torture.{asked.suite}")
    began = time.monotonic()
    for outcome, count in sorted(suite.run(asked.count or suite.COUNT, asked.seed).items()):
        print(f"{count:8,}  {outcome}")
    print(f"{time.monotonic() - began:8.0f}  seconds")


if __name__ == "__main__":
    main()
