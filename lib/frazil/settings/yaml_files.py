"""What users write, read as models: an error names the file, the line, the entry and the cure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from frazil.errors import FrazilError, nearest


class Fault(ValueError):
    """What is wrong with an entry and its cure; `checked` adds where it stands. `inside`: steps to an entry inside of it."""

    def __init__(self, problem: str, cure: str, *inside: str | int):
        super().__init__(problem)
        self.problem, self.cure, self.inside = problem, cure, inside


class Entries(BaseModel):
    """Entries that a user writes. A name that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _are_known(cls, content: Any) -> Any:
        for name in content if isinstance(content, dict) and cls.model_config["extra"] == "forbid" else ():
            if name not in cls.model_fields:
                raise Fault(f"there is no entry '{name}'", nearest(str(name), cls.model_fields), str(name))
        return content


class _Loader(yaml.CSafeLoader):
    """Reads words, numbers and truth values as YAML 1.2 does, and refuses a name that stands twice."""

    yaml_implicit_resolvers: dict = {}  # YAML 1.1 takes `no` for false, 012 for 10, 1:30 for 90

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        names = [key.value for key, _ in node.value if key.value != "<<"]
        if twice := next((n for n in names if names.count(n) > 1), None):
            mark = [key.start_mark for key, _ in node.value if key.value == twice][1]
            raise yaml.constructor.ConstructorError(None, None, f"'{twice}' stands there a second time", mark)
        return super().construct_mapping(node, deep)


for _tag, _pattern in {
    "bool": r"true|false",
    "null": r"~|null|",
    "int": r"[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?|\.inf)|\.nan",
    "merge": r"<<",
}.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), None)


def read(file: Path, error: type[FrazilError]) -> Any:
    """Return the content of a YAML file; an empty one has no entries."""
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _Loader) or {}  # a safe loader
    except OSError as why:
        raise error(f"{file} cannot be read: {why.strerror}", "check its path and your right to read it") from None
    except UnicodeDecodeError as why:
        raise error(f"{file} is not UTF-8: byte {why.start}", "save it as UTF-8") from None
    except yaml.YAMLError as why:
        mark, problem = getattr(why, "problem_mark", None), getattr(why, "problem", None) or str(why)
        cure = "correct it: indent with blanks, and put a text with : or # in quotes"
        raise error(f"{file}, line {mark.line + 1 if mark else 1}: {problem}", cure) from None


def files_in(folder: Path, error: type[FrazilError]) -> list[Path]:
    """Return the YAML files of a folder by name."""
    try:
        return sorted(file for file in folder.iterdir() if file.suffix in (".yml", ".yaml"))
    except OSError as why:
        raise error(f"the folder {folder} cannot be read: {why.strerror}", "check its path and your rights") from None


def checked(model: type[BaseModel], content: Any, source: Path | str, error: type[FrazilError]) -> Any:
    """Return a content as a model; `source` is its YAML file, or says in words where it comes from."""
    try:
        return model.model_validate(content)
    except ValidationError as faults:
        fault = faults.errors()[0]
    own = fault.get("ctx", {}).get("error")
    where = [step for step in fault["loc"] if step != "[key]"] + [*getattr(own, "inside", ())]
    at = f"{source}, line {_line(source, where)}" if isinstance(source, Path) else source
    at += f": {'.'.join(map(str, where))}" if where else ""
    if isinstance(own, Fault):
        raise error(f"{at}: {own.problem}", own.cure)
    if fault["type"] == "missing":
        raise error(f"{at}: this entry is missing", "write it")
    shown = type(fault["input"]).__name__ if isinstance(fault["input"], dict | list) else repr(fault["input"])
    cure = "put it in quotes" if fault["type"] == "string_type" else fault["msg"].replace("Input should be", "write")
    raise error(f"{at}: {shown} does not fit", cure)


def _line(file: Path, where: Sequence[str | int]) -> int:
    """Return the line of an entry; of one that is missing, the line of what should have it."""
    node, line = yaml.compose(file.read_text(encoding="utf-8"), yaml.CSafeLoader), 1
    for step in where:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(step)), None)
            line, node = (found[0].start_mark.line + 1, found[1]) if found else (line, node)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
            line = node.start_mark.line + 1
    return line
