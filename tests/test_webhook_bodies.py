"""What Slack, Teams, PagerDuty and any other webhook get when something is wrong."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from frazil_old import errors
from frazil_old.cli import webhook_bodies
from frazil_old.cli.hooks import call_hooks, end_trouble
from frazil_old.cli.webhook_bodies import PAGERDUTY_SUMMARY, SLACK_TEXT, TEAMS_TEXT, request_of, service_of
from frazil_old.config.settings import OperateSettings
from monitored_world import Receiver

FAILED = {
    "notebook": "02_cdc_merge", "env": "prod", "outcome": "some tables failed",
    "cause": "shop.orders: row 3 of 20260301-080102000.csv: 'a<b' is no number\nshop.items: waits", "folder": "/srv/runs/prod/x",
}  # fmt: skip
BREACH = {
    "env": "prod",
    "outcome": "breach",
    "breaches": ["shop.orders: 3 files pending, the oldest for 1,200 s, limit 900 s"],
}


@pytest.mark.parametrize(
    ("url", "service", "called"),
    [
        ("https://hooks.slack.com/services/T/B/x", "slack", "https://hooks.slack.com/services/T/B/x"),
        ("https://acme.webhook.office.com/webhookb2/1", "teams", "https://acme.webhook.office.com/webhookb2/1"),
        ("https://prod-7.westeurope.logic.azure.com/workflows/1", "teams", "https://prod-7.westeurope.logic.azure.com/workflows/1"),
        ("https://events.pagerduty.com/v2/enqueue?routing_key=k", "pagerduty", "https://events.pagerduty.com/v2/enqueue?routing_key=k"),
        ("slack+https://proxy.local/a", "slack", "https://proxy.local/a"),
        ("https://example.org/slack+https", "", "https://example.org/slack+https"),
        ("https://hooks.slack.com.example.org/x", "", "https://hooks.slack.com.example.org/x"),
    ],
)  # fmt: skip
def test_the_address_decides_which_message_is_sent(url, service, called):
    assert service_of(url) == (service, called)


def test_another_address_gets_the_facts_as_they_are():
    assert request_of("https://example.org/hook", FAILED) == ("https://example.org/hook", FAILED)


def test_slack_gets_a_header_and_the_lines():
    _, body = request_of("https://hooks.slack.com/services/x", FAILED)
    assert body == {
        "text": "frazil prod: 02_cdc_merge: some tables failed",
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": "frazil prod: 02_cdc_merge: some tables failed"}},
            {"type": "section", "text": {"type": "mrkdwn", "text":
                "shop.orders: row 3 of 20260301-080102000.csv: 'a&lt;b' is no number\nshop.items: waits\nrun: /srv/runs/prod/x"}},
        ],
    }  # fmt: skip


def test_teams_gets_an_adaptive_card():
    _, body = request_of("teams+https://proxy.local/flow", BREACH)
    assert body == {
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
                "body": [
                    {"type": "TextBlock", "text": "frazil prod: 1 limit breached", "weight": "Bolder", "size": "Medium", "wrap": True},
                    {"type": "TextBlock", "text": BREACH["breaches"][0], "wrap": True},
                ],
            },
        }],
    }  # fmt: skip


def test_pagerduty_gets_one_incident_per_environment_which_a_good_check_resolves(monkeypatch):
    monkeypatch.setattr(webhook_bodies.socket, "gethostname", lambda: "host1")
    address = "https://events.pagerduty.com/v2/enqueue?routing_key=k1"
    url, body = request_of(address, BREACH)
    assert url == "https://events.pagerduty.com/v2/enqueue"
    assert body == {
        "routing_key": "k1", "dedup_key": "frazil/prod", "event_action": "trigger",
        "payload": {
            "summary": "frazil prod: 1 limit breached", "source": "host1", "severity": "warning", "component": "frazil",
            "group": "prod", "class": "breach", "custom_details": {"details": BREACH["breaches"][0]},
        },
    }  # fmt: skip
    assert request_of(address, FAILED)[1]["payload"]["severity"] == "error"
    over = request_of(address, {"env": "prod"}, is_over=True)
    assert over == (url, {"routing_key": "k1", "dedup_key": "frazil/prod", "event_action": "resolve"})
    assert request_of("https://hooks.slack.com/x", {"env": "prod"}, is_over=True)[1] is None


def test_a_message_that_is_too_long_is_cut_and_says_by_how_many_lines():
    many = {**BREACH, "breaches": [f"shop.t{n}: {'x' * 90} & late" for n in range(1000)]}
    slack = request_of("https://hooks.slack.com/x", many)[1]["blocks"][1]["text"]["text"]
    assert len(slack) < 3000 and slack.endswith(f"… and {1000 - slack.count(chr(10))} more lines")
    assert "&amp; late\n" in slack and SLACK_TEXT < 3000
    card = json.dumps(request_of("teams+https://x/", many)[1])
    assert TEAMS_TEXT - 200 < len(card) < 28_000
    one = {**FAILED, "cause": "y" * 50_000}
    assert len(request_of("https://hooks.slack.com/x", one)[1]["blocks"][1]["text"]["text"]) < 3000
    address = "https://events.pagerduty.com/v2/enqueue?routing_key=k1"
    summary = request_of(address, {**FAILED, "outcome": "z" * 5000})[1]["payload"]["summary"]
    assert len(summary) == PAGERDUTY_SUMMARY


@pytest.mark.parametrize("query", ["", "?routing_key=", "?routing_kye=k1"])
def test_a_pagerduty_address_without_its_key_is_told_of_at_every_check(query, capsys):
    operate = OperateSettings(env="prod", webhook=f"https://events.pagerduty.com/v2/enqueue{query}")
    end_trouble(operate)
    call_hooks(operate, FAILED)
    said = "webhook: PagerDuty's address lacks the key of its service; write …/v2/enqueue?routing_key=<key>\n"
    assert capsys.readouterr().err == 2 * said


def test_hooks_post_the_message_and_secrets_are_not_in_it(monkeypatch, capsys):
    errors.hide(["geheim-geheim"])
    with Receiver(204) as receiver:
        address = receiver.url.replace("http", "pagerduty+http")
        operate = OperateSettings(env="prod", webhook=f"{address}/v2/enqueue?routing_key=k1")
        call_hooks(operate, {**FAILED, "cause": "https://u:geheim-geheim@host/db refused"})
        end_trouble(operate)
    heard = [(path, json.loads(body)) for path, body in receiver.heard]
    assert [(path, body["event_action"]) for path, body in heard] == [
        ("/v2/enqueue", "trigger"),
        ("/v2/enqueue", "resolve"),
    ]
    assert "geheim" not in json.dumps(heard)
    call_hooks(operate, FAILED)  # nobody listens
    told = capsys.readouterr().err
    assert told.startswith("webhook: ") and "k1" not in told


def test_a_receiver_that_answers_no_http_and_an_address_with_a_blank_are_reported(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = threading.Thread(target=lambda: server.accept()[0].sendall(b"SSH-2.0-x\r\n"), daemon=True)
        answer.start()
        call_hooks(OperateSettings(webhook=f"http://127.0.0.1:{server.getsockname()[1]}/"), FAILED)
        answer.join()
    call_hooks(OperateSettings(webhook="https://hooks.slack.com/services/T B"), FAILED)
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == ["webhook", "webhook"]


def test_what_the_command_prints_is_not_in_an_output_of_json(capfd):
    call_hooks(OperateSettings(on_trouble="echo heard"), FAILED)
    assert capfd.readouterr() == ("", "heard\n")


def test_a_command_that_hangs_is_stopped_with_all_that_it_started(tmp_path, capsys):
    call_hooks(OperateSettings(on_trouble=f"(sleep 2; touch {tmp_path}/alive) & sleep 3; true"), FAILED, seconds=0.5)
    assert capsys.readouterr().err == "on_trouble: the command was stopped after 0.5 s\n"
    time.sleep(2)
    assert not (tmp_path / "alive").exists()


@pytest.mark.parametrize("address", ["file:///etc/hosts", "ftp://127.0.0.1/hook", "example.org/hook"])
def test_an_address_that_gets_nothing_is_told_of(address, capsys):
    call_hooks(OperateSettings(webhook=address), FAILED)
    assert "webhook: nothing was sent: its address must begin with https:// or http://" in capsys.readouterr().err
