"""`frazil schema`: JSON schemas by which VS Code and JupyterLab complete and check specs, environment files and settings."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from frazil_old import exit_codes
from frazil_old.config.environment_file import find_params
from frazil_old.config.settings import SECTIONS

DOCUMENTS = ("spec", "environment", "endpoint")
HEAD = "# yaml-language-server: $schema={place}schema/{document}.json\n"
"""The first line of a YAML file, which names its schema; `place`: the way from the file to `params/`."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "document",
        nargs="?",
        choices=DOCUMENTS,
        help="the schema to print; left out: all are written into params/schema/",
    )


def main(options: argparse.Namespace) -> int:
    """Print one schema, or write all; return `exit_codes.OK`."""
    if options.document:
        print(text(options.document), end="")
    else:
        write(find_params())
    return exit_codes.OK


def write(params: Path) -> None:
    """Write all schemas into `schema/` of a folder of environment files, over older ones."""
    (params / "schema").mkdir(exist_ok=True)
    for document in DOCUMENTS:
        file = params / "schema" / f"{document}.json"
        file.write_text(text(document), encoding="utf-8")
        print(f"wrote {file}")


def text(document: str) -> str:
    """Return the schema of a document as JSON."""
    from frazil_old.config.parameter_models import environment_model
    from frazil_old.config.spec_model import TableEntries
    from frazil_old.config.validation import json_schema
    from frazil_old.dms.endpoint_model import EndpointDocument

    environment = environment_model(SECTIONS)
    model = {"spec": TableEntries, "environment": environment, "endpoint": EndpointDocument}[document]
    return json.dumps(json_schema(model), indent=1, ensure_ascii=False) + "\n"
