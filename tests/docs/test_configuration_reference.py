"""The guide lists every key of the party file and of the job file, with the default it has."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from common.runtime.config.job import JobConfig
from common.runtime.config.networks import NetJob
from common.runtime.config.party import PartyConfig
from common.runtime.config.vfb2 import Vfb2Job
from tests.docs.markdown import ROOT, section, table_rows

GUIDE = ROOT / "docs" / "guide.md"
# Required unless `insecure` stands instead of them, which the models say in a rule and not in a default.
WITHOUT_DEFAULT = {"tls.ca", "tls.cert", "tls.key"}
# Filled in from `peers`.
DERIVED = {"policy.peers": "all of `peers`"}


def _sections_of(kind: object) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the models within a field's type; a map of them has keys that the user names."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield "", kind
    for argument in typing.get_args(kind):
        prefix = ".NAME" if typing.get_origin(kind) is dict else ""
        for inner, model in _sections_of(argument):
            yield prefix + inner, model


def keys_of(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """Return every key of a model, dotted, with its default as YAML would have it."""
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        inner = list(_sections_of(field.annotation))
        for infix, section_model in inner:
            found |= keys_of(section_model, f"{prefix}{name}{infix}.")
        if not inner:
            found[f"{prefix}{name}"] = _default(
                f"{prefix}{name}", field.get_default(call_default_factory=False)
            )
    return found


def _default(key: str, value: object) -> str:
    if value is PydanticUndefined or key in WITHOUT_DEFAULT:
        return "required"
    if key in DERIVED:
        return DERIVED[key]
    if isinstance(value, tuple):
        return f"`[{', '.join(str(item) or json.dumps(item) for item in value)}]`"
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("Party file", PartyConfig),
        ("Job file", JobConfig),
        ("Networks job file", NetJob),
        ("VFB² job file", Vfb2Job),
    ],
)
def test_the_table_names_every_key_with_its_default_and_no_other(
    heading: str, model: type[BaseModel]
) -> None:
    described = {row[0].strip("`"): row[1] for row in table_rows(section(GUIDE, heading))}
    assert described == keys_of(model)
