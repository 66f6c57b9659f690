"""Environments: `params/<env>.yml` and arguments become settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frazil.errors import nearest
from frazil.settings.settings_model import SettingError, Settings
from frazil.settings.yaml_files import checked, files_in, read


def resolve(env: str, given: Mapping[str, Any] | None = None) -> Settings:
    """Return an environment's settings; `given` arguments win over its file, and None is not given."""
    file = find_params() / f"{env}.yml"
    if file not in (known := files_in(file.parent, SettingError)):
        cure = nearest(env, [f.stem for f in known])
        raise SettingError(f"there is no environment '{env}': {file} does not exist", cure)
    stated = read(file, SettingError)
    arguments = {name: value for name, value in (given or {}).items() if value is not None}
    rest = {n: v for n, v in stated.items() if n not in arguments} if isinstance(stated, dict) else stated
    settings = checked(Settings, rest, file, SettingError)
    if arguments:
        settings = checked(Settings, {**stated, **arguments}, f"{file} with arguments", SettingError)
    settings._env, settings._root = env, file.parent.parent
    settings._origin = {**dict.fromkeys(stated, file.name), **dict.fromkeys(arguments, "argument")}
    return settings


def find_params() -> Path:
    """Return the folder of the environment files: the variable FRAZIL_PARAMS, else the nearest `params/` upwards."""
    stated = os.environ.get("FRAZIL_PARAMS", "")
    here = Path(stated or "params").absolute()
    for folder in (here, *(parent / "params" for parent in here.parent.parents if not stated)):
        if folder.is_dir():
            return folder
    raise SettingError(f"there is no folder {here}", "go to a folder below your project, or correct FRAZIL_PARAMS")
