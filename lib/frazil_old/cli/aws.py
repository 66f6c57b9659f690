"""`frazil aws`: deploy the pipeline of an environment on AWS, start and watch it, and remove it again."""

from __future__ import annotations

import argparse

from frazil_old import exit_codes
from frazil_old.aws import deploy_stack
from frazil_old.aws.cloud import Cloud, aws_errors_explained
from frazil_old.aws.deployment_parameters import AwsError, Deployment
from frazil_old.aws.pipeline_status import progress
from frazil_old.cli import aws_archives
from frazil_old.config.settings import resolve
from frazil_old.errors import FrazilError, many
from frazil_old.report.chart_style import span


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = "; ".join(f"{name}: {text}" for name, (_, text) in ACTIONS.items())
    parser.add_argument("action", choices=ACTIONS, help=actions)
    parser.add_argument("--yes", action="store_true", help="up, down: do what they list without it")


def main(options: argparse.Namespace) -> int:
    """Carry out one action and return its exit code."""
    deployment = Deployment.of(resolve("aws", {"env": options.env}).settings)
    act, _ = ACTIONS[options.action]
    return act(deployment, options)


def _check(deployment: Deployment, options: argparse.Namespace) -> int:
    print("the settings fit")
    cloud = Cloud(deployment.settings.region)
    try:
        account, _ = cloud.identity()
    except AwsError as e:
        if "no AWS credentials" not in e.problem:
            raise
        print("AWS was not asked: no credentials were found")
        return exit_codes.OK
    _require_all(cloud, deployment)
    deploy_stack.cluster_role(cloud, deployment)
    found = deploy_stack.definition_problems(cloud, deployment)
    if not found:
        print(f"account {account} has the buckets and the DMS task, and accepts template and state machine")
    for problem in found:
        print(problem)
    return exit_codes.BREACH if found else exit_codes.OK


def _require_all(cloud: Cloud, deployment: Deployment) -> None:
    deploy_stack.require_buckets(cloud, deployment)
    deploy_stack.require_task(cloud, deployment)


# --- archives


def _bundle(deployment: Deployment, options: argparse.Namespace) -> int:
    file = aws_archives.driver_archive(deployment, again=True)
    print(f"wrote {file}: {file.stat().st_size / 1e6:.0f} MB")
    return exit_codes.OK


# --- up and down


def _up(deployment: Deployment, options: argparse.Namespace) -> int:
    cloud = Cloud(deployment.settings.region)
    identity = cloud.identity()
    _require_all(cloud, deployment)
    role = deploy_stack.cluster_role(cloud, deployment)
    deploy_stack.require_changeable(cloud, deployment)
    archives = aws_archives.all_archives(deployment)
    urls = {name: url for name, (url, _) in archives.items()}
    events = deploy_stack.events_are_on(cloud, deployment.source.bucket)
    name, changes = deploy_stack.change_set(cloud, deployment, deployment.parameters(*identity, urls, role))
    for change in changes:
        replaced = " (replaced)" if change["Replacement"] == "True" else ""
        print(f"{change['Action'].lower()} {change['LogicalResourceId']}: {change['ResourceType']}{replaced}")
    if not events:
        print(f"turn on EventBridge for bucket {deployment.source.bucket}; its other notifications stay")
    if not name and events:
        print(f"{deployment.name} is up to date")
        return exit_codes.NOTHING
    if not options.yes:
        if name:
            deploy_stack.drop_change_set(cloud, deployment, name)
        print(f"nothing is changed yet;\n  frazil aws up --env {deployment.settings.env} --yes does this")
        return exit_codes.OK
    aws_archives.send(cloud, archives)
    if name:
        deploy_stack.carry_out(cloud, deployment, name, lambda text: print(text, flush=True))
    if not events:
        deploy_stack.turn_events_on(cloud, deployment.source.bucket)
    print(
        f"{deployment.name} is up;\n  frazil aws start --env {deployment.settings.env} starts it now, else the next hour"
    )
    return exit_codes.OK


def _down(deployment: Deployment, options: argparse.Namespace) -> int:
    cloud, env = Cloud(deployment.settings.region), deployment.settings.env
    cloud.identity()
    there = deploy_stack.state(cloud, deployment.name)
    found = deploy_stack.outputs(cloud, deployment) if there else {}
    keys = deploy_stack.objects(cloud, deployment.artifacts)
    at_work = deploy_stack.running(cloud, found["Pipeline"]) if found.get("Pipeline") else []
    for each in at_work:
        print(f"stop execution {each['name']} and its job")
    if there:
        print(f"delete stack {deployment.name} with all its resources")
    if keys:
        print(f"delete {many(keys, 'file')} in {deployment.artifacts}: archives, and what runs have left")
    print(f"not deleted: the tables in {deployment.lake}; the files in {deployment.source}")
    print(f"not changed: bucket {deployment.source.bucket} sends its events to EventBridge, which costs nothing")
    if not options.yes:
        print(f"nothing is deleted yet;\n  frazil aws down --env {env} --yes deletes this")
        return exit_codes.OK if there or keys else exit_codes.NOTHING
    deploy_stack.stop(cloud, at_work)
    if there:
        if found.get("Application"):
            deploy_stack.stop_application(cloud, found["Application"])
        deploy_stack.delete_stack(cloud, deployment, lambda text: print(text, flush=True))
    deploy_stack.delete_objects(cloud, deployment.artifacts, keys)
    if left := deploy_stack.left_over(cloud, env):
        raise AwsError(f"still there with the tag of {env}: {', '.join(left)}", "delete them in the console")
    print(f"nothing of {env} is left")
    return exit_codes.OK


# --- start and status


def _start(deployment: Deployment, options: argparse.Namespace) -> int:
    cloud = Cloud(deployment.settings.region)
    cloud.identity()
    pipeline = deploy_stack.outputs(cloud, deployment)["Pipeline"]
    if at_work := deploy_stack.running(cloud, pipeline):
        print(f"execution {at_work[0]['name']} is at work")
        return exit_codes.SKIPPED
    with aws_errors_explained("the pipeline"):
        started = cloud.client("stepfunctions").start_execution(stateMachineArn=pipeline, input="{}")
    print(f"started {started['executionArn'].rsplit(':', 1)[1]}")
    return exit_codes.OK


def _status(deployment: Deployment, options: argparse.Namespace) -> int:
    cloud = Cloud(deployment.settings.region)
    cloud.identity()
    lines, healthy = progress(cloud, deployment)
    for line in [*lines, *_lag(deployment.settings.env)]:
        print(line)
    return exit_codes.OK if healthy else exit_codes.BREACH


def _lag(env: str) -> list[str]:
    """Return lines about what waits in the source after the tables' positions."""
    from frazil_old.flows import lag
    from frazil_old.flows.workbook import Workbook

    try:
        rows = lag.per_table(Workbook(resolve("operate", {"env": env}).settings, lambda text: None))
    except FrazilError as e:
        return [f"lag: unknown: {e.problem}"]
    late = [r for r in rows if r["pending"]]
    behind = [f"lag {r['table']}: {many(r['pending'], 'file')}, the oldest for {span(r['lag_s'])}" for r in late]
    unknown = [f"lag {r['table']}: unknown: {r['problem']}" for r in rows if r["problem"]]
    paused = [f"lag {r['table']}: paused {r['paused']}" for r in rows if r.get("paused")]
    fresh = len(rows) - len(behind) - len(unknown) - len(paused)
    return [*behind, *unknown, *paused, *([f"lag: nothing waits for {many(fresh, 'table')}"] if fresh else [])]


ACTIONS = {
    "check": (
        _check,
        "check the settings; with credentials also buckets and task, and AWS checks template and state machine",
    ),
    "bundle": (_bundle, "build the archive with the Python packages of the jobs again"),
    "up": (_up, "show what would be made or changed; with --yes do it"),
    "start": (_start, "start the pipeline"),
    "status": (_status, "show the state of the pipeline"),
    "down": (_down, "list what would be removed; with --yes remove it: tables and source files stay"),
}
