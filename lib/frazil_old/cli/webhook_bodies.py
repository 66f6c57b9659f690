"""What a webhook gets: the facts as they are, or the message that Slack, Teams or PagerDuty takes.

The address decides which. `slack+https://…`, `teams+https://…` and `pagerduty+https://…` name it for another host, as of a
proxy.
"""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

from frazil_old.errors import many

HOSTS = {
    "slack": ("hooks.slack.com", "hooks.slack-gov.com"),
    "teams": (".webhook.office.com", ".logic.azure.com", ".api.powerplatform.com"),
    "pagerduty": ("events.pagerduty.com", "events.eu.pagerduty.com"),
}
SLACK_TEXT, TEAMS_TEXT, PAGERDUTY_SUMMARY = 2_900, 4_000, 1_000
"""The characters that a message has at most: each service refuses a longer one."""


def service_of(url: str) -> tuple[str, str]:
    """Return the service of an address, empty for another, and the address to call."""
    named, plus, rest = url.partition("+")
    if plus and named in HOSTS:
        return named, rest
    host = urlsplit(url).hostname or ""
    return next((name for name, hosts in HOSTS.items() if host.endswith(hosts)), ""), url


def request_of(url: str, facts: dict[str, Any], is_over: bool = False) -> tuple[str, dict[str, Any] | None]:
    """Return the address and the body for some facts; no body if the service need not hear that the trouble `is_over`."""
    service, url = service_of(url)
    if service == "pagerduty":
        return _pagerduty(url, facts, is_over)
    if is_over:
        return url, None
    return url, {"slack": _slack, "teams": _teams}[service](facts) if service else facts


def headline(facts: dict[str, Any]) -> str:
    """Return the trouble in one line."""
    found = facts.get("breaches")
    run = f"{facts.get('notebook', 'plan')}: {facts.get('outcome', '')}"
    what = f"{many(found, 'limit')} breached" if found else run
    return f"frazil {facts.get('env', '')}: {what}"


def _details(facts: dict[str, Any]) -> list[str]:
    lines = [*facts.get("breaches", ()), *str(facts.get("cause") or "").splitlines()]
    lines += [f"runs: {facts['trouble']}"] if facts.get("trouble") else []
    return lines + ([f"run: {facts['folder']}"] if facts.get("folder") else [])


def _cut(lines: list[str], most: int) -> str:
    """Return the lines as one text; what is too much is counted."""
    text, left = "", len(lines)
    for line in lines:
        if len(text) + len(line) > most:
            return f"{text}… and {many(left, 'more line')}" if text else f"{line[:most]}…"
        text, left = f"{text}{line}\n", left - 1
    return text.rstrip("\n")


def _slack(facts: dict[str, Any]) -> dict[str, Any]:
    def safe(text: str) -> str:  # Slack takes these three for its own marks
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    text = _cut([safe(line) for line in _details(facts)], SLACK_TEXT)
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": headline(facts)[:150]}},
        {"type": "section", "text": {"type": "mrkdwn", "text": text or "no details"}},
    ]
    return {"text": safe(headline(facts)), "blocks": blocks}


def _teams(facts: dict[str, Any]) -> dict[str, Any]:
    text = _cut(_details(facts), TEAMS_TEXT).replace("\n", "\n\n")  # one line break alone does not show
    blocks = [
        {"type": "TextBlock", "text": headline(facts), "weight": "Bolder", "size": "Medium", "wrap": True},
        {"type": "TextBlock", "text": text or "no details", "wrap": True},
    ]
    card = {"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4"}
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": {**card, "body": blocks}}
    return {"type": "message", "attachments": [content]}


def _pagerduty(url: str, facts: dict[str, Any], is_over: bool) -> tuple[str, dict[str, Any]]:
    """Return a call that opens an environment's incident, or resolves it; the address has `?routing_key=…`."""
    parts = urlsplit(url)
    keys = parse_qs(parts.query).get("routing_key")
    if not keys:
        raise ValueError("PagerDuty's address lacks the key of its service; write …/v2/enqueue?routing_key=<key>")
    event = {"routing_key": keys[0], "dedup_key": f"frazil/{facts.get('env', '')}"}
    url = urlunsplit(parts._replace(query=""))
    if is_over:
        return url, {**event, "event_action": "resolve"}
    payload = {
        "summary": headline(facts)[:PAGERDUTY_SUMMARY],
        "source": socket.gethostname(),
        "severity": "warning" if facts.get("breaches") else "error",
        "component": "frazil",
        "group": facts.get("env", ""),
        "class": facts.get("outcome", ""),
        "custom_details": {"details": _cut(_details(facts), TEAMS_TEXT)},
    }
    return url, {**event, "event_action": "trigger", "payload": payload}
