"""What a user writes in YAML or JSON, checked by pydantic models: one source for errors, JSON schema and README tables."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, ClassVar, Self, TypeVar

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema

from frazil_old.errors import FrazilError, nearest


def as_text(value: Any) -> Any:
    """Return the text of a value that YAML reads as a number or a time."""
    return str(value) if isinstance(value, int | float | date) and not isinstance(value, bool) else value


def in_any_case(word: str) -> str:
    """Return a pattern of a word in any case, as all editors read it."""
    return "".join(f"[{c.upper()}{c.lower()}]" if c.isalpha() else c for c in word)


M = TypeVar("M", bound="Entries")
Text = Annotated[str, BeforeValidator(as_text), WithJsonSchema({"type": ["string", "number"]})]
Name = Annotated[Text, Field(min_length=1, json_schema_extra={"minLength": 1})]
Flag, Number, Real = Annotated[bool, Strict()], Annotated[int, Strict()], Annotated[float, Strict()]


def flow(value: Any) -> str:
    """Write a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.strip().removesuffix("\n...").strip()


def _text(place: str | int) -> str:
    """Return a name in the place of a fault, empty for a number of a list."""
    return place if isinstance(place, str) else ""


class Entries(BaseModel):
    """Entries whose names are all known; one without a value counts as left out.

    The description of a field is that in the JSON schema and in the README. Its first example is the remedy.
    """

    model_config = ConfigDict(extra="forbid")
    kind: ClassVar[str] = "entry"
    """What messages call one of them."""

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, raw: Any, handler) -> Self:
        if not isinstance(raw, dict):
            raise FrazilError(
                f"{cls.shown('', raw)} is not of the form `name: value`",
                f"write {flow(cls.example() or {'name': 'value'})}",
            )
        known = [f.alias or n for n, f in cls.model_fields.items()]
        for name in raw:
            if name not in known and cls.model_config["extra"] == "forbid":
                if str(name).endswith(")"):  # of an unquoted `NUMERIC(12,2)`
                    raise FrazilError(
                        f"'{name}' is a part of another value", 'put that value in quotes: "NUMERIC(12,2)"'
                    )
                raise FrazilError(f"unknown {cls.kind} '{name}'", nearest(str(name), known))
        try:
            return handler({n: v for n, v in raw.items() if v is not None})
        except ValidationError as e:
            raise cls._refusal(e.errors(include_url=False)[0]) from None

    @classmethod
    def shown(cls, entry: str, value: Any) -> str:
        """Return a value as messages show it; `entry`: its name, empty for all entries together."""
        return repr(value)

    def given(self) -> dict[str, Any]:
        """Return the entries that were written, by their names."""
        return {n: getattr(self, n) for n in type(self).model_fields if n in self.model_fields_set}

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
            name = wrong.get("name") or _text(inner[0]) if inner and isinstance(wrong, dict) else ""
            place = f"{entry.removesuffix('s')} '{name}'" if name else entry
            return FrazilError(f"{place}: {cause.problem}", cause.cure)
        if found["type"] == "literal_error":
            known = context["expected"].replace("' or '", "', '").strip("'").split("', '")
            return FrazilError(f"unknown {entry} '{wrong}'", nearest(str(wrong), known))
        cure = cls._cure(entry, found["type"], wrong)
        if found["type"] in ("missing", "too_short"):
            return FrazilError(f"no {entry}", cure)
        what = found["msg"].partition(" ")[2]  # of "Input should be …"
        return FrazilError(f"{entry}: {cls.shown(entry, wrong)} {what}", cure)

    @classmethod
    def _cure(cls, entry: str, fault: str, wrong: Any) -> str:
        if fault == "list_type" and isinstance(wrong, str):
            return f"write {entry}: {flow([wrong])}"
        if fault == "string_type" and not isinstance(wrong, list | dict):
            return "put it in quotes"
        examples = next(f.examples for n, f in cls.model_fields.items() if entry in (n, f.alias))
        return f"write {entry}: {flow(examples[0])}" if examples else "correct it"


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
