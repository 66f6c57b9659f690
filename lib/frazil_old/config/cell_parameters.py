"""The parameters of a notebook as its cells read now. A kernel also keeps what earlier versions of the cells assigned."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from frazil_old.config.environment_file import ParameterError
from frazil_old.errors import nearest


@dataclass(frozen=True)
class _Cell:
    assigned: dict[str, ast.expr | None]
    """Its variables. The value is None unless exactly one plain assignment sets the variable."""
    tagged: bool


_present: dict[str, _Cell] = {}
"""The cells that this kernel has run, each in its last version, in the order of their last run."""
_ever: set[str] = set()


def shell() -> Any:
    """Return IPython's shell if this process is one or a kernel, else None."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def follow() -> None:
    """Record each cell that this kernel runs from now on; outside IPython do nothing."""
    if here := shell():
        here.events.register("pre_run_cell", _keep)


def _assigned(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a namespace that the present cells assign, and those that no cell ever assigned.

    If the notebook's client says which cells are tagged as parameters, as JupyterLab does, return only their variables.
    Values are those in the cells.
    """
    if getattr(shell(), "user_ns", None) is not namespace:
        return namespace
    if not any(cell.tagged for cell in _present.values()):
        old = _ever.difference(*(cell.assigned for cell in _present.values()))
        return {name: value for name, value in namespace.items() if name not in old}
    found = {}
    for cell in (c for c in _present.values() if c.tagged):
        for name, value in cell.assigned.items():
            try:
                found[name] = ast.literal_eval(value)
            except (ValueError, TypeError):
                found[name] = namespace.get(name)
    return found


_PLAIN = (str, int, float, bool, list, dict, tuple, type(None))
RESOLVED = "_frazil_resolved"
"""A variable that says that parameters were taken from this namespace before."""
_INTERPRETER = {"In", "Out", "exit", "quit", "spark", "sc"}


def stated(cell: dict[str, Any], known: set[str], earlier: set[str], elsewhere: dict[str, str]) -> dict[str, Any]:
    """Return the parameters that the cell sets, also by `earlier` names; `elsewhere`: all parameters, with a section of each.

    Refuse a plain variable that is no parameter, and a parameter whose value is no plain one.
    After a first call in a kernel, later cells may have left variables: then only near misses are refused. Variables
    that only an earlier version of a cell assigned do not count.
    """
    import difflib

    found, again = {}, RESOLVED in cell
    for name, value in _assigned(cell).items():
        if name.startswith("_") or name in _INTERPRETER or callable(value) or isinstance(value, ModuleType):
            continue
        if not isinstance(value, _PLAIN):
            if name in known and not again:
                problem = f"{name}: a {type(value).__name__} is no value of a parameter"
                raise ParameterError(problem, "write a text, a number, true or false, a list or a dictionary")
            continue
        if name in known or name in earlier:
            if value is not None:
                found[name] = value
        elif not again or difflib.get_close_matches(name, list(known), n=1, cutoff=0.75):
            if name in elsewhere:
                raise ParameterError(f"'{name}' has no effect here", f"it is a parameter of {elsewhere[name]}")
            raise ParameterError(f"unknown parameter '{name}'", nearest(name, known))
    return found


def _keep(cell: Any) -> None:
    """Record a cell that is about to run. Without an id from the client, a cell counts as a new one when its text changes."""
    meta = getattr(cell, "cell_meta", None) or {}
    for deleted in meta.get("deletedCells") or ():
        _present.pop(deleted, None)
    try:  # IPython makes Python of its own commands, such as `%time`
        statements = ast.parse(shell().transform_cell(cell.raw_cell)).body
    except SyntaxError:
        return
    stored = [n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    assigned = dict.fromkeys(stored)
    for s in (s for s in statements if isinstance(s, ast.Assign | ast.AnnAssign)):
        target = getattr(s.targets[0] if isinstance(s, ast.Assign) else s.target, "id", "")
        if stored.count(target) == 1:
            assigned[target] = s.value
    name = cell.cell_id or cell.raw_cell
    _ever.update(assigned)
    _present.pop(name, None)
    _present[name] = _Cell(assigned, bool({"parameters", "injected-parameters"} & set(meta.get("tags") or ())))
