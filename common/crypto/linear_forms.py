"""What remains of masked sums once every mask has been eliminated: exact linear algebra over the rationals.

Somebody who holds sums of secrets u_1 … u_q and masks δ_1 … δ_k can compute a sum without masks exactly if
some combination of what it holds has zeros at all masks. Those combinations are a linear space; elimination
gives a basis of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

Row: TypeAlias = list[Fraction]


@dataclass(frozen=True, slots=True)
class LinearForm:
    """Σ plain_i u_i + Σ masks_j δ_j, which somebody holds the value of.

    Attributes:
        plain: One coefficient for each secret.
        masks: One coefficient for each mask.
    """

    plain: tuple[int, ...]
    masks: tuple[int, ...]


def mask_free(held: Sequence[LinearForm]) -> list[Row]:
    """Return a basis of the combinations of `held` that contain no mask, as coefficients of the secrets."""
    if not held:
        return []
    masks = len(held[0].masks)
    rows = echelon([[Fraction(c) for c in (*form.masks, *form.plain)] for form in held])
    return [row[masks:] for row in rows if not any(row[:masks])]


def rank(rows: Sequence[Sequence[int | Fraction]]) -> int:
    """Return the dimension of the space that rows span."""
    return len(echelon([[Fraction(c) for c in row] for row in rows]))


def spanned_by(rows: Sequence[Row], allowed: Sequence[Sequence[int | Fraction]]) -> bool:
    """Return whether every row is a combination of the allowed ones."""
    return rank([*allowed, *rows]) == rank(allowed)


def echelon(rows: list[Row]) -> list[Row]:
    """Return rows in echelon form, without those that became zero."""
    remaining, done = list(rows), []
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((row for row in remaining if row[column]), None)
        if pivot is None:
            continue
        remaining.remove(pivot)
        remaining = [_cleared(row, pivot, column) for row in remaining]
        done.append(pivot)
    return done


def _cleared(row: Row, pivot: Row, column: int) -> Row:
    if not row[column]:
        return row
    factor = row[column] / pivot[column]
    return [entry - factor * subtracted for entry, subtracted in zip(row, pivot, strict=True)]
