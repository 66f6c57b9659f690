"""HTML from the templates next to the code: every value is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import BaseLoader, Environment


def loader(package: str = __package__) -> BaseLoader:
    """Return the templates of a package, and those of this one."""
    from jinja2 import ChoiceLoader, PackageLoader

    return ChoiceLoader([PackageLoader(p) for p in dict.fromkeys([package, __package__])])


@cache
def _templates(package: str) -> Environment:
    from jinja2 import Environment, StrictUndefined

    return Environment(
        loader=loader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def render(template: str, package: str = __package__, **values: Any) -> str:
    """Fill a template of a package."""
    return _templates(package).get_template(template).render(values)
