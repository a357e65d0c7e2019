"""YAML files: YAML 1.2 scalars, environment variables, duplicate keys, and where each value stands."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.errors import ConfigError
from common.runtime.config.yaml_source import Document, read_document

Write = Callable[[str, str], Path]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1.0e-3", 1e-3),
        ("-.5", -0.5),
        ("2E6", 2e6),
        ("5.", 5.0),
        (".inf", math.inf),
        ("12", 12),
        ("010", 10),
        ("1:30", "1:30"),
        ("no", "no"),
        ("on", "on"),
        ("True", True),
        ("~", None),
        ("", None),
        ("null", None),
        ("2020-01-01", "2020-01-01"),
        ('"1e-3"', "1e-3"),
        ("'true'", "true"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(write: Write, text: str, value: Any) -> None:
    found = read_document(write("f.yaml", f"key: {text}\n")).data["key"]

    assert found == value
    assert type(found) is type(value)


def read(write: Write, text: str, **environment: str) -> Document:
    return read_document(write("f.yaml", text), environment)


def test_an_environment_variable_fills_a_scalar_and_takes_its_type(write: Write) -> None:
    document = read(write, 'a: ${N}\nb: "${N}"\nc: x-${N}:${P}\n', N="12", P="70")

    assert document.data == {"a": 12, "b": "12", "c": "x-12:70"}


def test_an_environment_variable_cannot_add_keys(write: Write) -> None:
    document = read(write, "a: ${EVIL}\nb: 1\n", EVIL="x\nb: 2\nc: {d: 3}")

    assert document.data == {"a": "x\nb: 2\nc: {d: 3}", "b": 1}


def test_a_doubled_dollar_keeps_the_braces(write: Write) -> None:
    assert read(write, "a: $${HOME}/$x\n").data == {"a": "${HOME}/$x"}


def test_an_undefined_environment_variable_is_a_problem_that_names_it(write: Write) -> None:
    document = read(write, "a:\n  b: ${NOWHERE_SET}\n")

    assert [(problem.dotted(), problem.text) for problem in document.problems] == [
        ("a.b", "the environment variable NOWHERE_SET is not set")
    ]


def test_a_key_that_stands_twice_is_a_problem_with_both_lines(write: Write) -> None:
    document = read(write, "a: 1\nb: 2\na: 3\n")

    assert document.problems[0].text == "stands twice, in lines 1 and 3"


def test_every_value_knows_its_line(write: Write) -> None:
    document = read(write, "a:\n  - x\n  - b: 1\n    c: 2\n")

    assert document.line_of(("a", 1, "c")) == 4
    assert document.line_of(("a", 1, "absent")) == 3


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: [1, 2\nb: 3\n", ":2:2"),
        ("a: 'x\n", ""),
        ("- 1\n", ""),
        ("", ""),
        ("a: &x [*x]\nb: *nowhere\n", ":2:4"),
    ],
)
def test_what_is_no_mapping_is_one_error_with_its_place(write: Write, text: str, where: str) -> None:
    path = write("f.yaml", text)

    with pytest.raises(ConfigError) as caught:
        read_document(path)

    assert str(path) in caught.value.where
    assert where in caught.value.where


def test_a_file_that_contains_itself_is_refused_and_does_not_exhaust_the_stack(write: Write) -> None:
    document = read(write, "a: &a\n  b: *a\n")

    assert "nested deeper" in document.problems[0].text


def test_aliases_of_aliases_are_refused_before_they_fill_the_memory(write: Write) -> None:
    levels = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]" for level in range(1, 12)]
    with pytest.raises(ConfigError, match="holds more than"):
        read(write, "\n".join(levels))


def test_an_unknown_tag_is_a_problem_and_nothing_is_constructed(write: Write) -> None:
    document = read(write, "a: !!python/object/apply:os.system [true]\nb: !secret x\n")

    assert document.data["b"] is None
    assert any("secret" in problem.text for problem in document.problems)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a: \x00\n"])
def test_a_binary_file_is_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(content)

    with pytest.raises(ConfigError):
        read_document(path)


def test_a_missing_file_and_a_folder_are_errors_with_advice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_document(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_document(tmp_path)
