"""`frazil …`: each command is a module here with `add(parser)`, which declares its options, and `main(options)`."""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import io
import logging
import os
import re
import sys
import textwrap
import traceback
from contextlib import redirect_stderr, redirect_stdout
from typing import NoReturn, TextIO

from frazil_old import __version__
from frazil_old.errors import FrazilError, nearest, safe_output
from frazil_old.exit_codes import EXIT_CODES, FAILED, WRONG, outcome_of

COMMANDS = {
    "peek": "show what DMS wrote to a folder or topic, without any file of parameters",
    "init": "write params/ for a source and its DMS task",
    "plan": "show what a run would do to each table, and change nothing",
    "lab": "open copies of the notebooks in JupyterLab",
    "run": "run a notebook and store its result",
    "runs": "list the last runs and how they ended, and write their page again",
    "check": "report tables that are late, and runs that are missing",
    "doctor": "check Java, packages, parameters, source, catalog, rights, disk and clock, without Spark",
    "visible": "measure when a second engine sees the commits, for the latency notebook",
    "table": "pause, resume, reload or drop one table",
    "adopt": "take over a table that another pipeline has fed",
    "repair": "repair, without loss, what stops tables: columns that others changed, snapshots from the future",
    "schema": "write the JSON schemas by which editors complete and check YAML files",
    "bundle": "write an archive with the Python packages that Spark's executors need",
    "aws": "deploy the pipeline of an environment on AWS, watch it, and remove it",
    "warehouse": "set up, refresh, check or remove what reads the tables",
    "down": "list what an environment has created, then delete it",
}

WITHOUT_ENV = ("peek", "lab", "schema", "bundle")
"""Commands that concern no single environment."""
ANY_ENV = ("doctor",)
"""Commands that do less without an environment."""


_DISK = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EISDIR)
"""Errors of files and folders that the user can cure."""
ENV = "FRAZIL_ENV"
"""The environment variable that is taken if `--env` is left out."""
EXAMPLES = {
    "": ("frazil peek dms", "frazil init --from-files dms --env prod", "frazil plan --env prod", "frazil run 02 --env prod"),
    "peek": ("frazil peek dms", "frazil peek s3://my-bucket/dms", "frazil peek kafka://host:9092/dms"),
    "init": ("frazil init --env prod --from-files dms", "frazil init --env prod --endpoints endpoints.json --task task.json"),
    "plan": ("frazil plan --env prod", "frazil plan --env prod --tables shop.orders --wide", "frazil plan --env prod --json"),
    "run": ("frazil run 02 --env prod", "frazil run 01_full_load --env prod -p tables \"[shop.orders]\"", "frazil run 02 --idle-ok && frazil run 04"),
    "doctor": ("frazil doctor", "frazil doctor --env prod"),
    "check": ("frazil check --env prod --quiet", "frazil check --env prod --json"),
    "runs": ("frazil runs --env prod", "frazil runs --env prod --json"),
    "table": ("frazil table pause shop.orders --env prod --why correction", "frazil table resume shop.orders --env prod", "frazil table reload shop.orders --env prod --yes"),
    "down": ("frazil down --env prod", "frazil down --env prod --yes"),
}  # fmt: skip


def _epilog(command: str) -> str:
    """Return what a help ends with: examples, exit codes, where the documentation is."""
    lines = ["examples:", *(f"  {e}" for e in EXAMPLES[command]), ""] if command in EXAMPLES else []
    codes = ", ".join(f"{code} {word}" for word, code in EXIT_CODES.items())
    lines += textwrap.wrap(f"exit codes: {codes}; from 10 on nothing is wrong", 78, subsequent_indent="  ")
    return "\n".join([*lines, "", f"{ENV} is taken if --env is left out; documentation: lib/docs/operations.md"])


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    """Build the parser; import only the requested command."""
    form = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    text = (
        "Turn what AWS DMS writes into Iceberg tables: run and watch Frazil's notebooks, and delete what they created."
    )
    parser = argparse.ArgumentParser(prog="frazil", description=text, epilog=_epilog(""), **form)
    parser.add_argument("--version", action="version", version=f"frazil {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, text in COMMANDS.items():
        one = commands.add_parser(name, help=text, description=text, epilog=_epilog(name), **form)
        if name in argv[:1]:
            if name not in WITHOUT_ENV:
                env = os.environ.get(ENV)
                one.add_argument(
                    "--env",
                    required=not env and name not in ANY_ENV,
                    default=env,
                    help="names the environment file params/ENV.yml",
                )
            importlib.import_module(f"frazil_old.cli.{name}").add(one)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; a problem that the user can fix is printed in two lines."""
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0][:1] != "-" and argv[0] not in COMMANDS:
        print(f"frazil: no command '{safe_output(argv[0])}': {nearest(argv[0], COMMANDS)}", file=sys.stderr)
        return WRONG
    parser = _parser(argv)
    options = parser.parse_args(argv)
    if not options.command:
        parser.print_help()
        return WRONG
    with redirect_stdout(_Safe(sys.stdout)), redirect_stderr(_Safe(sys.stderr)):
        try:
            return importlib.import_module(f"frazil_old.cli.{options.command}").main(options)
        except FrazilError as e:
            print(f"{type(e).__name__}: {e}", file=sys.stderr)
            return EXIT_CODES[outcome_of(None, type(e).__name__)]
        except BrokenPipeError:  # as of `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return FAILED
        except OSError as e:
            if e.errno not in _DISK:
                traceback.print_exc()
                return FAILED
            print(f"{type(e).__name__}: {e.filename or 'a file'}: {e.strerror}", file=sys.stderr)
            print("  cure: let this user read and write it, free some space, or name another folder", file=sys.stderr)
            return FAILED
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


_COLOURS = {"✔": 32, "✘": 31, "!": 33, "·": 2}


def coloured(text: str) -> str:
    """Return a text with colours for marks at the beginning of a line, and for the names of errors."""
    text = re.sub(r"^ {0,2}([✔✘!·])(?= )", lambda m: f"\x1b[{_COLOURS[m[1]]}m{m[0]}\x1b[0m", text, flags=re.M)
    return re.sub(r"^\w+Error(?=: )", lambda m: f"\x1b[31m{m[0]}\x1b[0m", text, flags=re.M)


class _Safe(io.TextIOBase):
    """A stream that removes credentials and control characters; on a terminal, marks and errors have a colour."""

    def __init__(self, stream: TextIO):
        self.stream = stream
        self.has_colours = stream.isatty() and "NO_COLOR" not in os.environ

    def write(self, text: str) -> int:
        safe = safe_output(text)
        self.stream.write(coloured(safe) if self.has_colours else safe)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()
