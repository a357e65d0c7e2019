"""What a party declares about its columns: types, missing values, scaling, categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from common.data.numbers import Decimal
from common.data.wording import no_such_columns
from common.errors import ConfigError

ColumnType: TypeAlias = Literal["numeric", "categorical"]
MissingRule: TypeAlias = Literal["error", "drop", "mean", "median", "most_frequent", "zero", "category"]
Scale: TypeAlias = Literal["standardize", "minmax", "max_abs", "none"]

# The key of a map of columns that stands for all columns it does not name.
DEFAULT = "default"

# A category with one row would let this party single out that row's residual in a gradient; five are a crowd
# in the sense of common statistical offices.
MIN_FREQUENCY = 5
# More columns than this out of one are seldom meant, and each one costs time in every round.
MAX_CATEGORIES = 1000

_FITTING: Mapping[ColumnType, frozenset[MissingRule]] = {
    "numeric": frozenset({"error", "drop", "mean", "median", "most_frequent", "zero"}),
    "categorical": frozenset({"error", "drop", "most_frequent", "category"}),
}


@dataclass(frozen=True, slots=True)
class Preparation:
    """How columns are read and prepared.

    Attributes:
        types: By column; `default` stands for all others.
        missing: What happens to a missing value, by column; `default` stands for all others.
        missing_values: Texts that mean "missing" in a numeric column, in any case of letters.
        decimal: What stands before a number's decimals.
        scale: Of numeric columns; None leaves it to the job.
        min_frequency: Training rows that a category needs for a column of its own.
        max_categories: Columns that one categorical column may become at most, "other" included.
    """

    types: Mapping[str, ColumnType] = field(default_factory=dict)
    missing: Mapping[str, MissingRule] = field(default_factory=dict)
    missing_values: tuple[str, ...] = ("",)
    decimal: Decimal = "."
    scale: Scale | None = None
    min_frequency: int = MIN_FREQUENCY
    max_categories: int = MAX_CATEGORIES

    def type_of(self, name: str) -> ColumnType:
        """Return the declared type of a column."""
        return self.types.get(name, self.types.get(DEFAULT, "numeric"))

    def missing_of(self, name: str) -> MissingRule:
        """Return what happens to a missing value of a column."""
        return self.missing.get(name, self.missing.get(DEFAULT, "error"))

    def check(self, label: str, names: Sequence[str], present: Sequence[str]) -> None:
        """Refuse maps that name a column which does not exist, and rules that do not fit a column's type.

        Args:
            label: The source, for messages.
            names: Columns that are used.
            present: Columns that exist.

        Raises:
            DataError: A column does not exist.
            ConfigError: A rule does not fit.
        """
        absent = [name for name in (*self.types, *self.missing) if name not in (*present, DEFAULT)]
        if absent:
            raise no_such_columns(label, list(dict.fromkeys(absent)), present)
        for name in names:
            kind, rule = self.type_of(name), self.missing_of(name)
            if rule not in _FITTING[kind]:
                fitting = " or ".join(sorted(_FITTING[kind]))
                rest = self.missing_of(DEFAULT)
                raise ConfigError(
                    f"missing: {rule} does not fit the {kind} column {name!r}",
                    where=label,
                    advice=f"write missing: {{default: {rest}, {name}: …}} with {fitting}",
                )
