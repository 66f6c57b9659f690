"""Hooks: a command that gets the facts on its standard input, and a webhook that gets them as JSON or as a message."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.request import Request, urlopen

from frazil_old.cli.webhook_bodies import request_of
from frazil_old.config.settings import OperateSettings
from frazil_old.errors import safe, safe_facts


def call_hooks(operate: OperateSettings, facts: dict[str, Any], seconds: float = 30.0) -> None:
    """Call the environment's command and webhook; a hook that fails is reported and does not change the exit code."""
    facts = safe_facts(facts)
    body = json.dumps(facts, default=str).encode()
    if operate.on_trouble:
        _run(operate.on_trouble, body, seconds)
    if operate.webhook:
        _post(operate.webhook, facts, seconds)


def _run(command: str, body: bytes, seconds: float) -> None:
    """Run a command with a text on its input; after some seconds stop it, with all that it started."""
    # What the command prints must not get into an output of JSON.
    child = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, stdout=2, start_new_session=True)
    try:
        child.communicate(body, seconds)
    except BaseException as e:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if not isinstance(e, subprocess.TimeoutExpired):
            raise
        print(f"on_trouble: the command was stopped after {seconds:g} s", file=sys.stderr)
    else:
        if child.returncode:
            print(f"on_trouble: the command ended with exit code {child.returncode}", file=sys.stderr)


def end_trouble(operate: OperateSettings, seconds: float = 30.0) -> None:
    """Let a webhook that keeps incidents open (PagerDuty) resolve this environment's: all limits are kept again."""
    if operate.webhook:
        _post(operate.webhook, {"env": operate.env}, seconds, is_over=True)


def _post(webhook: str, facts: dict[str, Any], seconds: float, is_over: bool = False) -> None:
    try:
        url, body = request_of(webhook, facts, is_over)
        if body is not None:
            if not url.startswith(("https://", "http://")):
                raise ValueError("nothing was sent: its address must begin with https:// or http://")
            text = json.dumps(body, default=str).encode()
            urlopen(Request(url, text, {"Content-Type": "application/json"}), timeout=seconds).close()
    except (OSError, ValueError, HTTPException) as e:
        print(f"webhook: {safe(str(e))}", file=sys.stderr)
