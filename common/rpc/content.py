"""How many numbers a message holds, and of how many rows they speak, as its .proto file declares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from common.rpc.pb.disclosure_pb2 import Content, content

_BYTES: Mapping[int, int] = {Content.WORDS_8: 8, Content.WORDS_32: 32, Content.ROW_NUMBERS_4: 4}
_MODULI: Mapping[int, int] = {Content.RESIDUES: 1, Content.CIPHERTEXTS: 2}
_ROW_NUMBERS = (Content.ROW_NUMBERS, Content.ROW_NUMBERS_4)


@dataclass(frozen=True, slots=True)
class Amount:
    """What a message holds.

    Attributes:
        rows: Rows that it speaks about.
        values: Numbers, ciphertexts or points that were computed from data; positions of rows are none.
        modulus_bytes: Width of the modulus that the message hands out; 0 where it hands out none.
    """

    rows: int = 0
    values: int = 0
    modulus_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A field that counts, or one whose messages have such fields.

    Attributes:
        inner: Fields of the messages in it; empty for a field that counts itself.
        is_list: Whether it holds several messages.
    """

    form: int
    per_row: bool
    inner: Parts
    is_list: bool

    def count(self, value: Any, modulus_bytes: int) -> int:
        """Return how many numbers a field holds; ciphertexts of an unknown modulus cannot be counted."""
        if isinstance(value, bytes):
            width = _BYTES.get(self.form) or _MODULI[self.form] * modulus_bytes
            return len(value) // width if width else 0
        return 1 if isinstance(value, int | float) else len(value)


Parts: TypeAlias = Mapping[int, Part]


def amount_in(message: Message, modulus_bytes: int) -> Amount:
    """Count what a message holds; `modulus_bytes` is the width of the job's modulus, 0 before it is known."""
    parts = parts_of(message.DESCRIPTOR)
    return Amount(*_amount(message, parts, modulus_bytes)) if parts else _NOTHING


@cache
def parts_of(descriptor: Descriptor | Any) -> Parts:
    """Return the fields of a message type that count, by number."""
    parts: dict[int, Part] = {}
    for field in descriptor.fields:
        declared = field.GetOptions().Extensions[content]
        held = field.message_type
        inner = {} if held is None or held.GetOptions().map_entry else parts_of(held)
        if declared.form or inner:
            parts[field.number] = Part(declared.form, declared.per_row, inner, field.is_repeated)
    return parts


# A small message has hundreds of these a second, so nested messages are counted without objects between.
def _amount(message: Message, parts: Parts, modulus_bytes: int) -> tuple[int, int, int]:
    rows = inner_rows = values = width = modulus = 0
    for field, value in message.ListFields():
        part = parts.get(field.number)
        if part is None:
            continue
        form = part.form
        if part.inner:
            for held in value if part.is_list else (value,):
                more_rows, more_values, _ = _amount(held, part.inner, modulus_bytes)
                inner_rows += more_rows
                values += more_values
        elif form == _MODULUS:
            modulus = len(value)
        elif form == _ROW_WIDTH:
            width = value
        elif form == _ROW_COUNT:
            rows = max(rows, value)
        else:
            count = part.count(value, modulus_bytes)
            is_position = form in _ROW_NUMBERS
            rows = max(rows, count) if is_position or part.per_row else rows
            values += 0 if is_position else count
    return rows + inner_rows, values + rows * width, modulus


_MODULUS, _ROW_WIDTH, _ROW_COUNT = int(Content.MODULUS), int(Content.ROW_WIDTH), int(Content.ROW_COUNT)
_NOTHING = Amount()
