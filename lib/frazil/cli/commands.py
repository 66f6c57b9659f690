"""`frazil …`: each command is a module here with `add(parser)`, which declares its options, and `main(options)`."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import logging
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from typing import NoReturn, TextIO

from frazil.errors import FrazilError, safe_output
from frazil.report.runs import EXIT_CODES, FAILED, outcome_of

COMMANDS = {
    "peek": "show what DMS wrote to a folder, without any file of parameters",
    "init": "write params/ for a source and its DMS task",
    "plan": "show what a run would do to each table, and change nothing",
    "run": "run a notebook and store its result",
    "index": "write the page about all runs again",
    "check": "report tables that are late, and runs that are missing",
    "visible": "measure when a second engine sees the commits, for the latency notebook",
    "adopt": "take over a table that another pipeline has fed",
    "repair": "repair, without loss, what stops tables: columns that others changed, snapshots from the future",
    "schema": "write the JSON schemas by which editors complete and check YAML files",
    "bundle": "write an archive with the Python packages that Spark's executors need",
    "aws": "deploy the pipeline of an environment on AWS, watch it, and remove it",
    "warehouse": "set up, refresh, check or remove what reads the tables",
    "down": "list what an environment has created, then delete it",
}

WITHOUT_ENV = ("peek", "schema", "bundle")
"""Commands that concern no single environment."""


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    """Build the parser; import only the requested command."""
    parser = argparse.ArgumentParser(
        prog="frazil", description="Run and watch Frazil's notebooks, and delete what they created."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        one = commands.add_parser(name, help=text, description=text)
        if name in argv[:1]:
            if name not in WITHOUT_ENV:
                one.add_argument("--env", required=True, help="names the environment file params/ENV.yml")
            importlib.import_module(f"frazil.cli.{name}").add(one)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; a problem that the user can fix is printed in two lines."""
    argv = sys.argv[1:] if argv is None else argv
    options = _parser(argv).parse_args(argv)
    with redirect_stdout(_Safe(sys.stdout)), redirect_stderr(_Safe(sys.stderr)):
        try:
            return importlib.import_module(f"frazil.cli.{options.command}").main(options)
        except FrazilError as e:
            print(f"{type(e).__name__}: {e}", file=sys.stderr)
            return EXIT_CODES[outcome_of(None, type(e).__name__)]
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 130
        except Exception:
            traceback.print_exc()
            return FAILED


def command() -> NoReturn:
    """Run the command of this process, and end it with the exit code.

    Without Spark nothing is cleaned up: Python takes more than half a second to free a thousand modules.
    """
    gc.set_threshold(200_000)  # nearly all objects are modules, which stay
    code = main()
    if "pyspark" in sys.modules:
        sys.exit(code)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class _Safe(io.TextIOBase):
    """A stream that removes credentials and control characters."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(safe_output(text))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()
