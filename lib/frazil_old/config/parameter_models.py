"""The declared parameters as pydantic models, which check the values of a notebook's cell and of an environment file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model

from frazil_old.config import redaction
from frazil_old.config.spec_model import ChangesEntries
from frazil_old.config.validation import Entries, Flag, Number, Real, Text, as_text
from frazil_old.config.warehouse_model import WarehouseEntries


class Parameters(Entries):
    """Parameters by their names. A message hides values that may hold a credential."""

    kind = "parameter"

    @classmethod
    def shown(cls, name: str, value: Any) -> str:
        """Return a value, or a word for it, in a form that may be shown."""
        options = not name or isinstance(cls.model_fields[name].get_default(call_default_factory=True), dict)
        return "this" if options else repr(redaction.shown(name, value))


_Option = Annotated[
    str,
    BeforeValidator(lambda v: str(v).lower() if isinstance(v, bool) else as_text(v)),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
_Seconds = Annotated[
    Real, BeforeValidator(lambda v: float(v) if v == "inf" else v, json_schema_input_type=float | Literal["inf"])
]
_KINDS = {bool: Flag, int: Number, float: _Seconds, dict[str, str]: dict[Text, _Option]}


def _kind(hint: Any, declared: Mapping[str, Any]) -> Any:
    """Return the type of the values that a parameter takes."""
    choices = declared["choices"]
    if isinstance(choices, dict):
        return Annotated[ChangesEntries, AfterValidator(Entries.given)]
    kind = Literal[choices] if choices else _KINDS.get(hint, hint)
    return Annotated[kind, Field(ge=declared["least"])] if hint in (int, float) else kind


@cache
def model_of(cls: type, without: str = "") -> type[Parameters]:
    """Return the model of a dataclass of parameters, without one of them."""
    hints, entries = get_type_hints(cls), {}
    for f in (f for f in fields(cls) if f.name != without):
        default = {"default": f.default} if f.default is not MISSING else {"default_factory": f.default_factory}
        entries[f.name] = (_kind(hints[f.name], f.metadata), Field(**default, description=f.metadata["help"]))
    return create_model(cls.__name__, __base__=Parameters, __doc__=cls.__doc__, **entries)


class Sections(Parameters):
    """The sections of an environment file."""

    model_config = ConfigDict(title="Frazil's environment file")
    kind = "section"


def environment_model(sections: dict[str, type]) -> type[Sections]:
    """Return the model of an environment file, by the parameters of its sections; `env` chooses the file and cannot be in it."""
    known = {name: (model_of(cls, without="env"), None) for name, cls in sections.items()}
    readers = Field(None, description="The readers of the tables, by their names.")
    known["warehouses"] = (dict[Text, WarehouseEntries], readers)
    return create_model("Environment", __base__=Sections, __doc__=Sections.__doc__, **known)
