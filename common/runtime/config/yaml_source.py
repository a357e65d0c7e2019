"""Reads a YAML file as the values it holds together with the line each of them stands on.

The scalars are YAML 1.2's, not PyYAML's default 1.1: `1e-3` is a number, `no` is text, and `1:30` is not
ninety. `${NAME}` is replaced by the environment variable; `$${` stands for a literal `${`. An environment
variable can fill a scalar and nothing else: it is put in after the file's structure has been read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import yaml

from common.errors import ConfigError

KeyPath: TypeAlias = tuple[str | int, ...]
YamlValue: TypeAlias = "bool | int | float | str | list[YamlValue] | dict[str, YamlValue] | None"

# A configuration file is written by hand; anything larger is a data file passed by mistake.
MAX_FILE_BYTES = 1 << 20

# Deeper nesting than this has no meaning in any of our files and would only exhaust the stack.
MAX_DEPTH = 40

# A list of thousands of columns fits; nine levels of ninefold aliases do not.
MAX_VALUES = 200_000

_TAG = "tag:yaml.org,2002:"
_VARIABLE = re.compile(r"\$(\$\{|\{(?P<name>[^}]*)\})")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a configuration file.

    Attributes:
        line: Where it is when that is not the line of the value at `path`.
    """

    path: KeyPath
    text: str
    line: int | None = None

    def dotted(self) -> str:
        """Return the path as a reader writes it: `passive[0]`, `datasets.diabetes.id`."""
        parts = ""
        for key in self.path:
            parts += f"[{key}]" if isinstance(key, int) else f".{key}"
        return parts.removeprefix(".")


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file: its values, the line of every value, and what was wrong already while reading."""

    path: Path
    data: dict[str, YamlValue]
    lines: Mapping[KeyPath, int]
    problems: tuple[Problem, ...] = ()

    def line_of_problem(self, problem: Problem) -> int:
        """Return the line (from 1) that a problem is about."""
        return self.line_of(problem.path) if problem.line is None else problem.line

    def line_of(self, path: KeyPath) -> int:
        """Return the line (from 1) of a value, or of the nearest enclosing one that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _CoreSchemaLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own form


_CoreSchemaLoader.add_implicit_resolver(
    f"{_TAG}null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]
)
_CoreSchemaLoader.add_implicit_resolver(
    f"{_TAG}bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
)
_CoreSchemaLoader.add_implicit_resolver(f"{_TAG}int", re.compile(r"[-+]?[0-9]+\Z"), list("-+0123456789"))
_CoreSchemaLoader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
    list("-+.0123456789"),
)


class _TooManyValues(Exception):
    """Aliases of aliases make a short file a long one."""


@dataclass(slots=True)
class _Reader:
    """Walks the composed nodes once, and collects values, lines and problems."""

    loader: _CoreSchemaLoader
    environment: Mapping[str, str]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    values: int = 0

    def value(self, node: yaml.Node, path: KeyPath) -> YamlValue:
        self.lines.setdefault(path, node.start_mark.line + 1)
        self.values += 1
        if self.values > MAX_VALUES:
            raise _TooManyValues
        if len(path) > MAX_DEPTH:
            self.problems.append(Problem(path[:3], f"nested deeper than {MAX_DEPTH} levels"))
            return None
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self.scalar(node, path)

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, YamlValue]:
        values: dict[str, YamlValue] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(path, "a key must be text", line))
                continue
            key = str(key_node.value)
            if key in values:
                text = f"stands twice, in lines {self.lines[(*path, key)]} and {line}"
                self.problems.append(Problem((*path, key), text, line))
                continue
            self.lines[(*path, key)] = line
            values[key] = self.value(value_node, (*path, key))
        return values

    def scalar(self, node: yaml.Node, path: KeyPath) -> YamlValue:
        text = str(node.value)
        filled = _VARIABLE.sub(lambda match: self.variable(match, path), text)
        tag = node.tag
        if filled != text and getattr(node, "style", None) is None:
            tag = str(self.loader.resolve(yaml.ScalarNode, filled, (True, False)))  # type: ignore[no-untyped-call]
        return self.typed(tag.removeprefix(_TAG), filled, path)

    def typed(self, kind: str, text: str, path: KeyPath) -> YamlValue:
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return int(text)
                case "float":
                    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
                case "str":
                    return text
        except ValueError:
            kind = "unreadable number"
        self.problems.append(Problem(path, f"a value of kind {kind} is not understood here"))
        return None

    def variable(self, match: re.Match[str], path: KeyPath) -> str:
        name = match["name"]
        if name is None:
            return "${"
        if not _VARIABLE_NAME.fullmatch(name):
            self.problems.append(
                Problem(path, "between ${ and } the name of an environment variable must stand")
            )
        elif name not in self.environment:
            self.problems.append(Problem(path, f"the environment variable {name} is not set"))
        return self.environment.get(name, "")


def read_document(path: Path, environment: Mapping[str, str] | None = None) -> Document:
    """Read a YAML file whose top level is a mapping.

    Raises:
        ConfigError: The file cannot be read or is not YAML; wrong values are left to the reader's caller.
    """
    loader, node = _composed(path)
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError("the file holds no keys", where=str(path), advice="`vfl init DIR` writes examples.")
    reader = _Reader(loader, os.environ if environment is None else environment)
    try:
        data = reader.mapping(node, ())
    except _TooManyValues:
        raise ConfigError(
            f"holds more than {MAX_VALUES} values, aliases counted where they are used", where=str(path)
        ) from None
    return Document(path, data, reader.lines, tuple(reader.problems))


def _composed(path: Path) -> tuple[_CoreSchemaLoader, yaml.Node | None]:
    text = _read_text(path)
    try:
        loader = _CoreSchemaLoader(text)
        return loader, loader.get_single_node()
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(
            f"not valid YAML: {exc.problem or exc.context}",
            where=where,
            advice="Mend that place: indent with spaces, never with tabs; quote texts with `: ` or `#`.",
        ) from exc
    except (yaml.YAMLError, RecursionError) as exc:
        raise ConfigError("not valid YAML", where=str(path)) from exc


def _read_text(path: Path) -> str:
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            raise ConfigError(
                f"too large for a configuration file ({size_bytes} bytes)",
                where=str(path),
                advice="Name a YAML file here; data files are named inside it.",
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise ConfigError("no such file", where=str(path), advice="`vfl init DIR` writes examples.") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(
            "not a text file in UTF-8",
            where=str(path),
            advice="Name a YAML file here; data files are named inside it.",
        ) from exc
    except OSError as exc:
        raise ConfigError(
            f"cannot be read: {exc.strerror}",
            where=str(path),
            advice="Name a YAML file that the user who runs this may read.",
        ) from exc
