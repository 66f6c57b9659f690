"""YAML files that users write: an error names the place, and an entry that is there twice is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from frazil_old.errors import FrazilError


class _Loader(yaml.SafeLoader):
    """Refuses a name that a mapping has twice: YAML would keep the last value and drop the others."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node, names = super().compose_mapping_node(anchor), set()
        for name, _ in node.value:
            if name.value in names:
                problem = f"'{name.value}' is there twice"
                raise yaml.composer.ComposerError(None, None, problem, name.start_mark)
            names |= {name.value} if isinstance(name, yaml.ScalarNode) else set()
        return node


def read_yaml(file: Path, error: type[FrazilError]) -> Any:
    """Return what a YAML file holds; raise `error` if that cannot be read."""
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _Loader)  # noqa: S506  a subclass of the safe loader
    except UnicodeDecodeError:
        raise error(f"{file}: is not in UTF-8", "save it in UTF-8") from None
    except OSError as e:
        raise error(f"{file} cannot be read: {e.strerror}", "let this user read it, or correct the name") from None
    except yaml.YAMLError as e:
        raise error(f"{file}: not YAML: {yaml_fault(e)}", "correct the file") from None


def yaml_fault(error: yaml.YAMLError) -> str:
    """Return what is wrong with a YAML text and where, without the line itself, which may hold a credential."""
    mark = getattr(error, "problem_mark", None)
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{getattr(error, 'problem', None) or type(error).__name__}{place}"
