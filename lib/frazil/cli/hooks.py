"""Hooks: a command that gets the facts on its standard input, and a webhook that gets them as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any
from urllib.request import Request, urlopen

from frazil.config.settings import OperateSettings
from frazil.errors import safe, safe_facts


def call_hooks(operate: OperateSettings, facts: dict[str, Any], seconds: float = 30.0) -> None:
    """Call the environment's command and webhook; a hook that fails is reported and does not change the exit code."""
    body = json.dumps(safe_facts(facts), default=str).encode()
    if operate.on_trouble:
        try:
            subprocess.run(operate.on_trouble, shell=True, input=body, timeout=seconds, check=True)
        except subprocess.CalledProcessError as e:  # its text would show the command
            print(f"on_trouble: the command ended with exit code {e.returncode}", file=sys.stderr)
        except subprocess.TimeoutExpired:
            print(f"on_trouble: the command was stopped after {seconds:g} s", file=sys.stderr)
    if operate.webhook:
        try:
            urlopen(Request(operate.webhook, body, {"Content-Type": "application/json"}), timeout=seconds).close()
        except (OSError, ValueError) as e:
            print(f"webhook: {safe(str(e))}", file=sys.stderr)
