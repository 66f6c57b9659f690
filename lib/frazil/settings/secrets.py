"""Secrets stay out of settings, which name a variable (`${NAME}`) or a secret of AWS Secrets Manager (`${secret:<id>}`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable

from frazil.errors import FrazilError, hide
from frazil.settings.yaml_files import Fault

REFERENCE = re.compile(r"\$\{(?:secret:(?P<id>[^#}]+)(?:#(?P<key>[^}]+))?|(?P<name>\w+))\}")
"""`${NAME}`, `${secret:prod/lake}`, or an entry of a secret that is a JSON object: `${secret:prod/lake#token}`."""
SECRET = re.compile(
    r"passw|secret|credential|token|authorization|(access|api|private|account|shared).?key", re.IGNORECASE
)
"""Names of options that hold a secret."""
HARMLESS = re.compile(
    r"(provider|enabled|endpoint|arn|uri|url|path|id)$|token-(exchange|refresh)|secrets\.", re.IGNORECASE
)
"""Names of options that only sound so."""
LOGIN = re.compile(r"://[^/@:\s]*:([^@\s]+)@|[?;&]\s*(?:password|pwd|token)=([^&;\s]+)", re.IGNORECASE)
"""A password in an address."""


class SecretError(FrazilError, code="secret-unreadable"):
    """A variable or a secret that a setting names cannot be read. Set it, or correct its name."""


def is_secret(name: str) -> bool:
    """Return whether an option of this name holds a secret."""
    return bool(SECRET.search(name) and not HARMLESS.search(name))


def refuse_secrets(value: object, name: str, where: tuple[str | int, ...] = ()) -> None:
    """Raise Fault if a setting, or an option inside of it, holds a secret itself instead of a reference."""
    if isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            refuse_secrets(inner, str(step) if isinstance(value, dict) else name, (*where, step))
        return
    stated = [part for found in LOGIN.finditer(str(value)) for part in found.groups() if part]
    stated += [str(value)] if is_secret(name) else []
    if any(re.search(r"\w", REFERENCE.sub("", text)) for text in stated if text.lower() not in ("true", "false")):
        variable = re.sub(r"\W", "_", name).upper()
        cure = f"write ${{{variable}}} and set that variable, or ${{secret:<its id in AWS Secrets Manager>}}"
        raise Fault(f"{name} holds a secret, which each reader of the file sees", cure, *where)


def expanded(text: str, where: str, form: Callable[[str], str] = str) -> str:
    """Return a text in which each reference is what it names, in a form; no message shows that. `where`: the setting."""
    return REFERENCE.sub(lambda found: form(_value(found, where)), text)


def read_secret(id: str, key: str = "") -> str:
    """Return the text of a secret in AWS Secrets Manager, or the entry `key` of one that is a JSON object."""
    try:
        import boto3

        text = boto3.client("secretsmanager").get_secret_value(SecretId=id)["SecretString"]
    except Exception as error:
        cure = "check its id, the region, and the right secretsmanager:GetSecretValue"
        raise SecretError(f"the secret '{id}' cannot be read: {error}", cure) from error
    try:
        return str(json.loads(text)[key]) if key else text
    except (ValueError, KeyError, TypeError):  # the text itself may be a password
        raise SecretError(f"the secret '{id}' has no entry '{key}'", "store a JSON object, as RDS does") from None


def _value(found: re.Match, where: str) -> str:
    if found["id"]:
        return hide(read_secret(found["id"], found["key"] or ""))
    value = os.environ.get(found["name"])
    if value is None:
        raise SecretError(f"{where} names the variable {found['name']}, which is not set", f"export {found['name']}=…")
    return hide(value) if SECRET.search(f"{where} {found['name']}") else value
