"""Turns a YAML document into a configuration model, or into one error that names everything wrong at once."""

from __future__ import annotations

import difflib
import json
import os
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    Tag,
    ValidationError,
    ValidationInfo,
)

from common.errors import ConfigError
from common.runtime.config.yaml_source import Document, KeyPath, Problem

# Parties, jobs and data sets are named in certificates, file names and log lines: one plain alphabet.
NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]

MIN_KEY_BITS = 2048
MIN_TEST_KEY_BITS = 128
UNSAFE_TEST_KEYS = "VFL_UNSAFE_TEST_KEYS"

# The key by which each kind of file is known, the most telling first.
_KINDS = {"parties": "a file for `vfl local`", "party": "a party file", "job": "a job file"}

_KIND_ADVICE = {
    ("parties", "party"): (
        "`vfl local -c` runs such a file, and `vfl predict -p` scores new rows with the models it has left."
    )
}

_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "unknown key",
    "string_type": "should be text",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "finite_number": "should be a finite number",
    "bool_type": "should be true or false",
    "dict_type": "should be a map of keys",
    "model_type": "should be a map of keys",
    "model_attributes_type": "should be a map of keys",
    "tuple_type": "should be a list",
    "list_type": "should be a list",
    "path_type": "should be the path of a file",
}


def below_file(path: Path, info: ValidationInfo) -> Path:
    """Return a path as absolute, relative ones being relative to the file that names them."""
    base = (info.context or {}).get("base", Path.cwd())
    return Path(os.path.normpath(Path(base).absolute() / path.expanduser()))


FilePath = Annotated[Path, AfterValidator(below_file)]


class Section(BaseModel):
    """A part of a configuration file: frozen, strictly typed, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class BrokenRules(ValueError):
    """Rules between the fields of a section that do not hold, each with the field to change.

    Travels inside pydantic's own error, never to a user.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__("rules between fields do not hold")
        self.problems = tuple(problems)


def require(problems: Iterator[Problem]) -> None:
    """Raise BrokenRules when there is at least one problem."""
    found = tuple(problems)
    if found:
        raise BrokenRules(found)


def _large_enough(bits: int) -> int:
    """Return a key size unless it is too small to protect anything outside of tests."""
    unsafe = os.environ.get(UNSAFE_TEST_KEYS) == "1"
    if bits < (MIN_TEST_KEY_BITS if unsafe else MIN_KEY_BITS):
        raise ValueError(f"keys below {MIN_KEY_BITS} bits protect nothing; use {MIN_KEY_BITS} or 3072")
    if bits % 16:
        raise ValueError("should be a multiple of 16")
    return bits


KeyBits = Annotated[int, Field(le=8192), AfterValidator(_large_enough)]


Model = TypeVar("Model", bound=Section)


def validated(model: type[Model], document: Document) -> Model:
    """Return the document as a model.

    Raises:
        ConfigError: Names every problem with its path and line.
    """
    _require_kind(model, document)
    problems = list(document.problems)
    result: Model | None = None
    try:
        # In JSON mode strict types still let a list be a tuple and text be a path.
        result = model.model_validate_json(json.dumps(document.data), context={"base": document.path.parent})
    except ValidationError as exc:
        known = {problem.path for problem in problems}
        problems += [
            problem for problem in problems_of(exc, model, document.data) if problem.path not in known
        ]
    if problems or result is None:
        raise combined_error(document, problems)
    return result


def _require_kind(model: type[Section], document: Document) -> None:
    """Refuse a file of another kind as a whole, instead of key by key."""
    found = next((key for key in _KINDS if key in document.data), None)
    wanted = next((key for key in _KINDS if key in model.model_fields), None)
    if found is None or wanted is None or found == wanted:
        return
    raise ConfigError(
        f"this is {_KINDS[found]}, where {_KINDS[wanted]} is expected",
        where=f"{document.path}:{document.line_of((found,))}",
        advice=_KIND_ADVICE.get((found, wanted), "`vfl COMMAND --help` says which file goes where."),
    )


def combined_error(document: Document, problems: list[Problem]) -> ConfigError:
    """Return one error for all problems of a file, in the order of its lines."""
    lines = []
    for problem in sorted(problems, key=document.line_of_problem):
        dotted = problem.dotted()
        text = f"{dotted}: {problem.text}" if dotted else problem.text
        lines.append((f"{document.path}:{document.line_of_problem(problem)}", text))
    if len(lines) == 1:
        return ConfigError(lines[0][1], where=lines[0][0])
    listing = "".join(f"\n  {where}: {text}" for where, text in lines)
    return ConfigError(f"{len(lines)} problems in {document.path}{listing}")


def problems_of(error: ValidationError, model: type[BaseModel], data: Any) -> Iterator[Problem]:
    """Yield pydantic's errors in plain words; the alternatives of one value become one problem."""
    texts: dict[KeyPath, list[str]] = {}
    for item in error.errors(include_url=False, include_input=False):
        broken = item.get("ctx", {}).get("error")
        if isinstance(broken, BrokenRules):
            yield from (
                Problem((*_existing(item["loc"], data), *found.path), found.text) for found in broken.problems
            )
            continue
        if item["type"] == "too_short" and _is_longer(item["loc"], data, item.get("ctx", {})):
            continue
        named = item["type"] in ("missing", "extra_forbidden")
        path = _without_tags(item["loc"], data) if named else _existing(item["loc"], data)
        text = _text(item["type"], item["msg"], item.get("ctx", {}))
        if item["type"] == "extra_forbidden":
            text += _suggestion(str(path[-1]), _section_at(model, item["loc"][:-1]))
        texts.setdefault(path, []).append(text)
    for path, alternatives in texts.items():
        yield Problem(path, " or ".join(dict.fromkeys(alternatives)))


def _text(kind: str, message: str, context: dict[str, Any]) -> str:
    if kind == "string_pattern_mismatch" and context.get("pattern") == NAME_PATTERN:
        return "should be a name: a small letter, then at most 62 of a-z, 0-9, _ and -"
    if kind == "literal_error":
        return f"should be {context['expected']}"
    if kind == "value_error":
        return str(context["error"])
    return _WORDS.get(kind, message.replace("Input should be", "should be"))


def _without_tags(path: KeyPath, data: Any) -> KeyPath:
    """Return pydantic's location of a key without the tags of alternatives that stand between the keys."""
    *inner, last = path
    return (*_existing(tuple(inner), data), last)


def _existing(path: KeyPath, data: Any) -> KeyPath:
    """Return the part of pydantic's location that is in the file; tags of alternatives are not."""
    known: KeyPath = ()
    for key in path:
        if _holds(data, key):
            data = data[key]
            known = (*known, key)
    return known


def _is_longer(path: KeyPath, data: Any, context: dict[str, Any]) -> bool:
    """Tell whether a list is long enough in the file: pydantic counts only its items that are right."""
    for key in path:
        if not _holds(data, key):
            return False
        data = data[key]
    return isinstance(data, list) and len(data) >= context["min_length"]


def _holds(data: Any, key: str | int) -> bool:
    if isinstance(data, list):
        return isinstance(key, int) and key < len(data)
    return isinstance(data, dict) and key in data


def _suggestion(key: str, section: type[BaseModel] | None) -> str:
    if section is None:
        return ""
    close = difflib.get_close_matches(key.lower(), list(section.model_fields), n=1, cutoff=0.6)
    if close:
        return f', did you mean "{close[0]}"?'
    return f" (known here: {', '.join(section.model_fields)})"


def _section_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    """Return the section at pydantic's location, whose tags say which alternative of a value was meant."""
    kinds: list[Any] = [model]
    for key in path:
        meant = [kind for kind in kinds if _tag(kind) == key]
        kinds = meant or [inner for kind in kinds for inner in _inside(_bare(kind), key)] or kinds
    bare = map(_bare, kinds)
    return next((kind for kind in bare if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _tag(kind: Any) -> str | None:
    """Return the name by which pydantic tells an alternative from the others."""
    marks = [mark.tag for mark in typing.get_args(kind)[1:] if isinstance(mark, Tag)]
    return marks[0] if marks else getattr(kind, "__name__", None)


def _is_tagged(kind: Any) -> bool:
    return any(isinstance(mark, Tag) for mark in typing.get_args(kind)[1:])


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def _inside(kind: Any, key: str | int) -> list[Any]:
    """Return the possible types below one key of a type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(key))
        return _alternatives(field.annotation) if field else []
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is dict:
        return _alternatives(arguments[1])
    if typing.get_origin(kind) in (tuple, list):
        return _alternatives(arguments[0])
    return []


def _alternatives(kind: Any) -> list[Any]:
    origin = typing.get_origin(kind)
    if origin is Annotated:
        return [kind] if _is_tagged(kind) else _alternatives(_bare(kind))
    if origin in (typing.Union, types.UnionType):
        return [inner for alternative in typing.get_args(kind) for inner in _alternatives(alternative)]
    return [kind]
