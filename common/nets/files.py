"""Networks as bytes: safetensors with a JSON description; no pickle, bit for bit what it was."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from common.errors import ConfigError, DataError
from common.nets.backend import tensor_files, torch
from common.nets.recipe import Recipe, Terms
from common.nets.shape import FieldLayout, NetSettings, NetShape, Optimisation

_DESCRIPTION = "colonnade"
_VERSION = 2
# safetensors' own limit of a header.
_MOST_HEADER = 100_000_000


def to_bytes(kind: str, description: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return a network's tensors and its description as one file."""
    text = json.dumps({"kind": kind, "version": _VERSION, **description}, sort_keys=True)
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    written: bytes = tensor_files.save(flat, metadata={_DESCRIPTION: text})
    return written


def from_bytes(kind: str, data: bytes) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return description and tensors.

    Raises:
        DataError: These are no bytes of this kind and version.
    """
    try:
        tensors: dict[str, torch.Tensor] = tensor_files.load(data)
        (size,) = struct.unpack("<Q", data[:8])
        if size > _MOST_HEADER:
            raise ValueError("header too large")
        description = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_DESCRIPTION])
        if description["kind"] != kind or description["version"] != _VERSION:
            raise ValueError("another kind or version")
    except Exception as failure:
        # safetensors raises an error class of its own that is no subclass of a usual one.
        raise DataError(f"this is no {kind}, or of another version") from failure
    return description, tensors


def network_to_json(layout: FieldLayout, settings: NetSettings) -> dict[str, Any]:
    """Return what is needed to build a party's modules again."""
    return {
        "layout": asdict(layout),
        "shape": asdict(settings.shape),
        "optimisation": asdict(settings.optimisation),
        "seed": settings.seed,
    }


def network_from_json(description: Mapping[str, Any]) -> tuple[FieldLayout, NetSettings]:
    """Return what `network_to_json` wrote.

    Raises:
        DataError: The description is something else.
    """
    with sound("network"):
        layout, shape = dict(description["layout"]), dict(description["shape"])
        for part, names in ((layout, ("sizes", "widths")), (shape, ("bottom", "top"))):
            part.update({name: tuple(int(one) for one in part[name]) for name in names})
        optimisation = Optimisation(**description["optimisation"])
        settings = NetSettings(NetShape(**shape), optimisation, int(description["seed"]))
        return FieldLayout(**layout), settings


def recipe_from_json(document: Mapping[str, Any]) -> Recipe:
    """Return a recipe from its fields.

    Raises:
        KeyError, TypeError, ConfigError: They are something else.
    """
    factors = tuple(float(one) for one in document["label_factors"])
    return Recipe(**{**document, "terms": Terms(**document["terms"]), "label_factors": factors})


@contextmanager
def sound(kind: str) -> Iterator[None]:
    """Turn what a broken file does to us into a typed error.

    Raises:
        DataError: Something in the file was missing, or did not fit the rest.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError, ConfigError) as failure:
        raise DataError(f"the {kind} in this file is broken") from failure
