"""Checks of template and state machine that need no AWS."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from frazil_old.aws import stack_template
from frazil_old.aws.deployment_parameters import Deployment


class _Loader(yaml.SafeLoader):
    """Reads a template; `!Ref X` and the other short forms become `{"Ref": X}`."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    return {suffix: value}


_Loader.add_multi_constructor("!", _short_form)


def problems(deployment: Deployment, parameters: dict[str, str]) -> list[str]:
    """Return what does not fit: parameters, references of the template, substitutions and states of the machine."""
    stack = yaml.load(stack_template.template(deployment.settings.engine), _Loader)  # noqa: S506  a subclass of the safe loader
    declared = stack["Parameters"]
    lacking = [n for n, p in declared.items() if "Default" not in p and not parameters.get(n)]
    found = [f"the template has no parameter {n}" for n in parameters.keys() - declared.keys()]
    found += [f"the parameter {n} of the template has no value" for n in lacking]
    known = declared.keys() | stack["Resources"].keys() | stack["Conditions"].keys()
    found += [f"the template refers to {n}, which it lacks" for n in sorted(_references(stack) - known)]
    given = stack["Resources"]["Pipeline"]["Properties"]["DefinitionSubstitutions"].keys()
    machine = stack_template.definition(deployment.settings.engine)
    used = set(re.findall(r"\$\{(\w+)\}", json.dumps(machine)))
    found += [f"the state machine has a placeholder {n} without a value" for n in sorted(used - given)]
    return found + _graph_problems(machine)


def _references(node: Any) -> set[str]:
    """Return the names that `Ref`, `GetAtt` and `Sub` refer to in the same template."""
    found: set[str] = set()
    if isinstance(node, list):
        return found.union(*map(_references, node))
    if not isinstance(node, dict):
        return found
    for name, value in node.items():
        if name == "Ref":
            found.add(value)
        elif name == "GetAtt":
            found.add(str(value).split(".")[0])
        elif name == "Sub":
            text, own = value if isinstance(value, list) else (value, {})
            found |= {n.split(".")[0] for n in re.findall(r"\$\{([\w:.]+)\}", text)} - own.keys()
        found |= _references(value)
    return {n for n in found if not n.startswith("AWS::")}


def _graph_problems(machine: dict[str, Any]) -> list[str]:
    """Return the names of states that are missing, or that no state leads to."""
    states, seen = machine["States"], {machine["StartAt"]}
    todo, found = [machine["StartAt"]], []
    while todo:
        name = todo.pop()
        if name not in states:
            found.append(f"the state machine has no state {name}")
            continue
        for following in _following(states[name]) - seen:
            seen.add(following)
            todo.append(following)
    return found + [f"no state leads to {n}" for n in sorted(states.keys() - seen)]


def _following(state: dict[str, Any]) -> set[str]:
    """Return the states that may follow a state."""
    branches = [state, *state.get("Choices", ()), *state.get("Catch", ())]
    return {b[key] for b in branches for key in ("Next", "Default") if key in b}
