"""Connections to warehouses: any DB-API driver, named by the function that connects; its secrets by id."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from typing import Any

from frazil_old.config.source_database import read_secret
from frazil_old.config.warehouses import Warehouse
from frazil_old.errors import FrazilError, hide
from frazil_old.warehouses.family import WarehouseError, family


def connected(w: Warehouse) -> Any:
    """Return an open connection; raise WarehouseError that names what is missing, and no secret."""
    module = family(w)
    function = _function(w, w.entries.connect or module.DRIVER)
    known = {argument: getattr(w.entries, entry) for argument, entry in getattr(module, "ARGUMENTS", {}).items()}
    arguments = {**known, **w.entries.options, **_secret(w)}
    try:
        connection = function(**arguments)
    except Exception as e:
        raise WarehouseError(
            f"warehouse '{w.name}' cannot be reached: {_first_line(e)}",
            "correct `options` or `secret` of the warehouse",
        ) from None
    if isinstance(getattr(connection, "autocommit", None), bool):  # Redshift makes nothing external in a transaction
        connection.autocommit = True
    return connection


def rows_of(w: Warehouse, connection: Any, statement: str) -> list[Any]:
    """Run a statement and return its rows; raise WarehouseError with the statement if it fails."""
    return _answer(w, connection, statement)[1]


def names_in(w: Warehouse, connection: Any, statement: str) -> set[str]:
    """Return the names in the answer to a statement, in lower case: its column `name`, else its first column.

    Other columns may have the same word: the name of a schema or of an owner.
    """
    columns, rows = _answer(w, connection, statement)
    place = columns.index("name") if "name" in columns else 0
    return {str(row[place]).lower() for row in rows}


def _answer(w: Warehouse, connection: Any, statement: str) -> tuple[list[str], list[Any]]:
    """Run a statement and return the names of its answer's columns, and its rows."""
    cursor = connection.cursor()
    try:
        cursor.execute(statement)
        columns = [str(c[0]).lower() for c in cursor.description or ()]
        return columns, list(cursor.fetchall()) if columns else []
    except Exception as e:
        raise WarehouseError(f"warehouse '{w.name}': {_first_line(e)}", f"the statement was {statement}") from None
    finally:
        cursor.close()


def _function(w: Warehouse, name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    if not function:
        raise WarehouseError(
            f"warehouse '{w.name}' has no connection", "write `connect: module:function` to it, as for a DB-API driver"
        )
    try:
        return getattr(importlib.import_module(module), function)
    except ImportError:
        raise WarehouseError(
            f"the driver {module} of warehouse '{w.name}' is not installed", f"pip install 'frazil[{w.entries.engine}]'"
        ) from None
    except AttributeError:
        raise WarehouseError(f"{module} has no function {function}", "correct `connect` of the warehouse") from None


def _secret(w: Warehouse) -> dict[str, Any]:
    """Return the secret arguments; every text in them is hidden from then on."""
    name = w.entries.secret
    if not name:
        return {}
    found: Any = None
    if name.startswith("env:"):
        variable = name.removeprefix("env:")
        try:
            found = json.loads(os.environ[variable])
        except KeyError:
            raise WarehouseError(f"the environment variable {variable} is not set", "set it to a JSON object") from None
        except ValueError:  # its text may be a password: it is not shown
            pass
        if not isinstance(found, dict):
            raise WarehouseError(f"the environment variable {variable} holds no JSON object", "set it to one")
    else:
        try:
            found = read_secret(name)
        except FrazilError as e:
            raise WarehouseError(e.problem, e.cure) from None
    hide(str(v) for v in found.values() if len(str(v)) >= 6)
    return found


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
