"""What a user writes in YAML or JSON, checked by pydantic models: one source for errors, JSON schema and README tables."""

from __future__ import annotations

from typing import Any, ClassVar, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.json_schema import GenerateJsonSchema

from frazil.errors import FrazilError, nearest

M = TypeVar("M", bound="Entries")


def flow(value: Any) -> str:
    """Write a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.strip().removesuffix("\n...").strip()


class Entries(BaseModel):
    """Entries whose names are all known; one without a value counts as left out.

    The docstring of a field is its description in the JSON schema and in the README. Its first example is the remedy.
    """

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    kind: ClassVar[str] = "entry"
    """What messages call one of them."""

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, raw: Any, handler) -> Self:
        if not isinstance(raw, dict):
            raise FrazilError(f"{raw!r} is not of the form `name: value`", f"write {flow(cls.example())}")
        known = [f.alias or n for n, f in cls.model_fields.items()]
        for name in raw:
            if name not in known:
                raise FrazilError(f"unknown {cls.kind} '{name}'", nearest(str(name), known))
        try:
            return handler({n: v for n, v in raw.items() if v is not None})
        except ValidationError as e:
            raise cls._refusal(e.errors(include_url=False)[0]) from None

    @classmethod
    def example(cls) -> dict[str, Any]:
        """Return an example of the required entries, or of all if none is required."""
        shown = {n: f for n, f in cls.model_fields.items() if f.examples}
        required = {n: f for n, f in shown.items() if f.is_required()}
        return {n: f.examples[0] for n, f in (required or shown).items()}

    @classmethod
    def _refusal(cls, found: dict[str, Any]) -> FrazilError:
        """Return what pydantic found, as a problem and its remedy."""
        (entry, *inner), wrong, context = found["loc"], found["input"], found.get("ctx", {})
        if cause := context.get("error"):
            name = wrong.get("name") if inner and isinstance(wrong, dict) else ""
            place = f"{entry.removesuffix('s')} '{name}'" if name else entry
            return FrazilError(f"{place}: {cause.problem}", cause.cure)
        if found["type"] == "literal_error":
            known = context["expected"].replace("' or '", "', '").strip("'").split("', '")
            return FrazilError(f"unknown {entry} '{wrong}'", nearest(str(wrong), known))
        example = next(f.examples for n, f in cls.model_fields.items() if entry in (n, f.alias))
        cure = f"write {entry}: {flow(example[0])}" if example else "correct it"
        if found["type"] in ("missing", "too_short"):
            return FrazilError(f"no {entry}", cure)
        return FrazilError(f"{entry}: {wrong!r} {found['msg'].partition(' ')[2]}", cure)  # "Input should be …"


def checked(model: type[M], raw: Any, where: str, error: type[FrazilError]) -> M:
    """Return what a user wrote as a model of entries; raise an error that begins with `where`."""
    try:
        return model.model_validate(raw)
    except ValidationError as e:
        cause = e.errors()[0]["ctx"]["error"]
        raise error(f"{where}: {cause.problem}", cause.cure) from None


class _Plain(GenerateJsonSchema):
    """A JSON schema that editors show well: without titles of entries, and without defaults that say nothing."""

    def field_title_should_be_set(self, schema) -> bool:
        return False

    def default_schema(self, schema) -> dict[str, Any]:
        return {
            k: v for k, v in super().default_schema(schema).items() if k != "default" or v not in ("", None, [], {})
        }


def json_schema(model: type[Entries]) -> dict[str, Any]:
    """Return the JSON schema of a model, in the draft that all editors know."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **model.model_json_schema(schema_generator=_Plain)}
