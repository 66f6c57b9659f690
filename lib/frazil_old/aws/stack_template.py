"""The CloudFormation template of a deployment (`stack.yml`), with the state machine of its engine (`pipeline.asl.json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from frazil_old.aws import engines

HERE = Path(__file__).parent


def definition(engine: str) -> dict[str, Any]:
    """Return the state machine of an engine."""
    base = json.loads((HERE / "pipeline.asl.json").read_text(encoding="utf-8"))
    return engines.adapted(base, engine)


def template(engine: str) -> str:
    """Return the template with the state machine in it."""
    machine = json.dumps(json.dumps(definition(engine)))
    return (HERE / "stack.yml").read_text(encoding="utf-8").replace('"@pipeline.asl.json"', machine)
